// Draws one dashboard with Grafana's own components.  render.py
// sets window.answers (answers.json) and window.dashboard (its title).
//
// The packages have no state timeline and no heatmap: these two are drawn here,
// with the names and colours that Grafana's field functions give.
import React, {useLayoutEffect} from 'react';
import {createRoot} from 'react-dom/client';
import {
  applyFieldOverrides, createDataFrame, createTheme, dateTime, FieldType,
  formattedValueToString, getValueFormat, ReducerID, reduceField,
  standardFieldConfigEditorRegistry, ThemeContext, VizOrientation,
} from '@grafana/data';
import {
  BarGauge, BigValue, GlobalStyles, PanelChrome, TimeSeries,
} from '@grafana/ui';
import 'uplot/dist/uPlot.min.css';

const WIDTH = 1400;
const CELL = 30, GAP = 8;  // Grafana's grid
const theme = createTheme({colors: {mode: 'dark'}});
const {answers} = window;
const source = answers.dashboards.find((d) => d.title === window.dashboard);
const timeRange = {
  from: dateTime(answers.begin * 1000), to: dateTime(answers.end * 1000),
  raw: {from: 'now-15m', to: 'now'},
};

// What a panel may set of a field, as Grafana's server registers it.
const PATHS = ['unit', 'min', 'max', 'decimals', 'thresholds', 'mappings',
               'color', ...['drawStyle', 'lineInterpolation', 'axisPlacement',
               'lineWidth', 'fillOpacity', 'showPoints', 'stacking',
               'thresholdsStyle'].map((name) => `custom.${name}`)];
standardFieldConfigEditorRegistry.setInit(() => PATHS.map((id) => ({
  id, name: id, path: id.replace('custom.', ''),
  isCustom: id.startsWith('custom.'), editor: () => null, override: () => null,
  process: (value) => value, shouldApply: () => true,
})));

// A frame for each line, as the Prometheus data source makes them.
function frames(panel) {
  const config = structuredClone(panel.fieldConfig);
  config.defaults.color ??= {mode: 'palette-classic'};
  config.defaults.thresholds ??= {
    mode: 'absolute', steps: [{value: null, color: 'green'}]};
  config.defaults.thresholds.steps[0].value = -Infinity;
  config.defaults.custom = {drawStyle: 'line', lineInterpolation: 'linear',
                            axisPlacement: 'auto', ...config.defaults.custom};
  const lines = answers.panels[`${source.title}: ${panel.title}`];
  return applyFieldOverrides({
    data: lines.map(({name, points}) => createDataFrame({
      name, fields: [
        {name: 'Time', type: FieldType.time, config: {interval: 1000},
         values: points.map(([at]) => at * 1000)},
        {name: 'Value', type: FieldType.number,
         config: {displayNameFromDS: name},
         values: points.map(([, value]) => value)},
      ]})),
    fieldConfig: config, theme, timeZone: 'utc',
    replaceVariables: (text) => text,
  });
}

const valueOf = (frame) => frame.fields[1];
const nameOf = (frame) => frame.fields[1].config.displayNameFromDS;

// When each event began.
const marks = source.annotations.list.flatMap(({name, iconColor}) =>
  answers.events[name].flatMap(({points}) => points
    .filter(([at], i) => i === 0 || at - points[i - 1][0] > 1.5)
    .map(([at]) => ({name, at, color: theme.visualization.getColorByName(
      iconColor)}))));

function Marks({builder}) {
  useLayoutEffect(() => {
    builder.addHook('draw', (plot) => {
      const {ctx, bbox} = plot;
      ctx.save();
      ctx.setLineDash([4, 4]);
      for (const {at, color} of marks) {
        const x = plot.valToPos(at * 1000, 'x', true);
        ctx.strokeStyle = color;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    });
  }, [builder]);
  return null;
}

function Lines({panel, width, height}) {
  return <TimeSeries frames={frames(panel)} width={width} height={height}
    timeRange={timeRange} timeZone="utc" structureRev={1}
    legend={{showLegend: true, displayMode: 'list', placement: 'bottom',
             calcs: []}}>
    {(builder) => <Marks builder={builder} />}
  </TimeSeries>;
}

const LEFT = 90, BOTTOM = 20;
const text = {fill: theme.colors.text.primary, fontSize: 12,
              fontFamily: theme.typography.fontFamily};

// An axis of time below `children`, which get a function from time to x.
function OverTime({width, height, children}) {
  const {begin, end} = answers;
  const x = (at) => LEFT + (at - begin) / (end - begin) * (width - LEFT - 5);
  const step = 30;
  const ticks = [];
  for (let at = Math.ceil(begin / step) * step; at < end; at += step) {
    ticks.push(at);
  }
  return <svg width={width} height={height}>
    {children(x, height - BOTTOM)}
    {marks.map(({at, color}, i) => <line key={i} x1={x(at)} x2={x(at)} y1={0}
      y2={height - BOTTOM} stroke={color} strokeDasharray="4" />)}
    {ticks.map((at) => <text key={at} x={x(at)} y={height - 5} {...text}
      textAnchor="middle">
      {dateTime(at * 1000).utc().format('HH:mm:ss')}</text>)}
  </svg>;
}

function States({panel, width, height}) {
  const rows = frames(panel);
  const legend = Object.values(
    panel.fieldConfig.defaults.mappings[0].options);
  const high = 18;
  return <>
    <OverTime width={width} height={height - high}>{(x, bottom) => {
      const each = bottom / rows.length;
      return rows.map((frame, row) => {
        const times = frame.fields[0].values;
        return <g key={row}>
          <text x={LEFT - 6} y={(row + 0.6) * each} {...text} textAnchor="end">
            {nameOf(frame)}</text>
          {valueOf(frame).values.map((value, i) => <rect key={i}
            x={x(times[i] / 1000)} y={row * each + 2} height={each * 0.85}
            width={x(times[i] / 1000 + 1.05) - x(times[i] / 1000)}
            fill={valueOf(frame).display(value).color} />)}
        </g>;
      });
    }}</OverTime>
    <div style={{height: high, lineHeight: `${high}px`, fontSize: 12}}>
      {legend.map(({text: state, color}) => <span key={state} style={{
        marginRight: 12}}><span style={{color:
          theme.visualization.getColorByName(color)}}>■</span> {state}</span>)}
    </div>
  </>;
}

// Lines are cumulative: one for each upper bound of a bucket.
function Heatmap({panel, width, height}) {
  const rows = frames(panel).map((frame) => ({
    bound: nameOf(frame), times: frame.fields[0].values,
    values: valueOf(frame).values}));
  const number = ({bound}) => bound === '+Inf' ? Infinity : Number(bound);
  rows.sort((a, b) => number(a) - number(b));
  const cells = rows.map(({values}, row) => values.map((value, i) =>
    Math.max(0, value - (row ? rows[row - 1].values[i] : 0))));
  const most = Math.max(...cells.flat());
  const unit = getValueFormat(panel.fieldConfig.defaults.unit);
  return <OverTime width={width} height={height}>{(x, bottom) => {
    const each = bottom / rows.length;
    return rows.map(({bound, times}, row) => <g key={bound}>
      <text x={LEFT - 6} y={bottom - (row + 0.3) * each} {...text}
        textAnchor="end">{bound === '+Inf' ? bound :
          formattedValueToString(unit(Number(bound)))}</text>
      {cells[row].map((value, i) => value > 0 && <rect key={i}
        x={x(times[i] / 1000)} y={bottom - (row + 1) * each + 1}
        width={x(times[i] / 1000 + 0.9) - x(times[i] / 1000)} height={each - 2}
        fill={theme.visualization.getColorByName('orange')}
        fillOpacity={0.15 + 0.85 * Math.sqrt(value / most)} />)}
    </g>);
  }}</OverTime>;
}

function last(frame) {
  const field = valueOf(frame);
  const value = reduceField({field, reducers: [ReducerID.lastNotNull]});
  return {...field.display(value[ReducerID.lastNotNull]),
          title: nameOf(frame)};
}

function Bars({panel, width, height}) {
  const rows = frames(panel);
  const each = height / rows.length;
  return rows.map((frame, i) => <BarGauge key={i} width={width} theme={theme}
    height={each - 6} itemSpacing={6} value={last(frame)}
    field={valueOf(frame).config} display={valueOf(frame).display}
    orientation={VizOrientation.Horizontal}
    displayMode={panel.options.displayMode} />);
}

function Stat({panel, width, height}) {
  const rows = frames(panel);
  return <div style={{display: 'flex'}}>{rows.map((frame, i) => <BigValue
    key={i} width={width / rows.length} height={height} theme={theme}
    value={last(frame)} colorMode={panel.options.colorMode}
    graphMode={panel.options.graphMode} textMode={panel.options.textMode} />)}
  </div>;
}

const KINDS = {timeseries: Lines, 'state-timeline': States, heatmap: Heatmap,
               bargauge: Bars, stat: Stat};

function Panel({panel}) {
  const {x, y, w, h} = panel.gridPos;
  const place = {position: 'absolute', left: x * WIDTH / 24, top:
                 y * (CELL + GAP)};
  if (panel.type === 'row') {
    return <div style={{...place, fontSize: 16, fontWeight: 500,
                        padding: '8px 0'}}>⌄ {panel.title}</div>;
  }
  const Kind = KINDS[panel.type];
  return <div style={place} id={`panel-${panel.id}`}>
    <PanelChrome title={panel.title} width={w * WIDTH / 24 - GAP}
      description={panel.description} height={h * (CELL + GAP) - GAP}>
      {(width, height) => <Kind panel={panel} width={width} height={height} />}
    </PanelChrome>
  </div>;
}

function Dashboard() {
  const variables = source.templating.list.map(({label, current}) =>
    `${label}: ${current ? current.text : 'Prometheus'}`);
  return <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{padding: 8, color: theme.colors.text.primary,
                 background: theme.colors.background.canvas}}>
      <h3>Paceline / {source.title}</h3>
      <div>{variables.join(' · ')} · {source.annotations.list.map(
        ({name, iconColor}) => <span key={name} style={{marginRight: 12,
          color: theme.visualization.getColorByName(iconColor)}}>┆ {name}
        </span>)}</div>
      <div style={{position: 'relative', marginTop: 8, width: WIDTH,
                   height: Math.max(...source.panels.map(({gridPos}) =>
                     gridPos.y + gridPos.h)) * (CELL + GAP)}}>
        {source.panels.map((panel) => <Panel key={panel.id} panel={panel} />)}
      </div>
    </div>
  </ThemeContext.Provider>;
}

createRoot(document.getElementById('root')).render(<Dashboard />);
