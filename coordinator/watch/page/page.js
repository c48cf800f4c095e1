// Shows the mesh as /watch tells of it.  Names come from others: they reach the
// page as text only.
'use strict';

const MOST_EVENTS = 200;
const MOST_POINTS = 400;
const mesh = {workers: new Map(), jobs: new Map(), counts: {}, events: [],
              traces: new Map()};

// An element with attributes (of SVG: in its name space) and children, which
// are elements or text.
function element(tag, attributes = {}, ...children) {
  const svg = ['svg', 'rect', 'polyline', 'text'].includes(tag);
  const made = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag)
                   : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null));
  return made;
}

// --- what the mesh is ---

const number = value => Number(value || 0);
const name = worker => worker.registration.name;
const word = (text, prefix) => (text || '').replace(prefix, '').toLowerCase();
const stateOf = job => job.phase && job.phase !== 'training'
    ? job.phase : word(job.state, 'JOB_STATE_');
const stateOfWorker = worker => {
  const state = word(worker.state, 'WORKER_STATE_');
  if (!worker.drained || !['idle', 'busy'].includes(state)) return state;
  return state === 'busy' ? 'draining' : 'drained';
};
const workersOf = job => (job.workers || []).filter(worker => !worker.let_go);

function addAccuracies(job) {
  for (const {step, accuracy} of job.evaluations || []) {
    job.accuracies = job.accuracies.filter(point => point.step < number(step));
    job.accuracies.push({step: number(step), accuracy: Number(accuracy || 0)});
  }
}

function addPoints(job, points) {
  for (const point of points || []) {
    const step = number(point.step);
    let place = job.points.length;
    while (place > 0 && job.points[place - 1].step >= step) --place;
    job.points.splice(place, job.points[place]?.step === step ? 1 : 0,
                      {step, loss: Number(point.loss || 0)});
  }
  if (job.points.length <= MOST_POINTS) return;
  const last = job.points.at(-1);
  const gap = 2 * (last.step - job.points[0].step) / MOST_POINTS;
  let kept = -Infinity;
  job.points = job.points.filter(point => {
    if (point.step - kept < gap && point !== last) return false;
    kept = point.step;
    return true;
  });
}

// Keeps a batch that all workers of the job have told of.
function takeTrace(job) {
  const lanes = [];
  let stages = 0;
  for (const worker of workersOf(job)) {
    stages += (worker.stages || []).length;
    for (const time of worker.run?.stage_times || []) {
      if (!time.trace) return;
      lanes.push({worker: worker.name, stage: number(time.stage), ...time.trace});
    }
  }
  if (!stages || lanes.length !== stages ||
      lanes.some(lane => lane.step !== lanes[0].step)) return;
  lanes.sort((a, b) => a.stage - b.stage);
  mesh.traces.set(job.id, lanes);
}

function merge(update) {
  if (update.whole) {
    for (const map of [mesh.workers, mesh.jobs, mesh.traces]) map.clear();
    mesh.events = [];
  }
  for (const worker of update.workers || []) mesh.workers.set(worker.id, worker);
  for (const id of update.forgotten_workers || []) mesh.workers.delete(id);
  for (const job of update.jobs || []) {
    const known = mesh.jobs.get(job.id);
    const same = known?.attempt === job.attempt;
    job.points = same ? known.points : [];
    job.accuracies = same ? known.accuracies : [];
    addPoints(job, job.curve);
    addAccuracies(job);
    mesh.jobs.set(job.id, job);
    takeTrace(job);
  }
  for (const id of update.forgotten_jobs || []) {
    mesh.jobs.delete(id);
    mesh.traces.delete(id);
  }
  mesh.counts = update.job_counts || {};
  mesh.events = mesh.events.concat(update.events || []).slice(-MOST_EVENTS);
}

// --- how it reads ---

function seconds(value) {
  if (!value) return '';
  if (value < 1e-3) return `${(value * 1e6).toPrecision(3)} µs`;
  return value < 1 ? `${(value * 1e3).toPrecision(3)} ms`
                   : `${value.toPrecision(3)} s`;
}

function bytes(value) {
  const units = ['B', 'KB', 'MB', 'GB'];
  let unit = 0;
  for (; value >= 1000 && unit < 3; ++unit) value /= 1000;
  return `${rate(value) || 0} ${units[unit]}/s`;
}

const rate = value => !value ? ''
    : value < 100 ? value.toPrecision(3) : Math.round(value).toLocaleString();
const clock = ms => new Date(number(ms)).toLocaleTimeString();
const steps = job => number(job.steps) ? `${number(job.step)}/${job.steps}`
                                       : `${number(job.step)}`;
const loss = job => job.loss === undefined ? ''
    : Math.abs(job.loss) < 1e4 ? Number(job.loss).toFixed(4)
                               : Number(job.loss).toPrecision(3);
const accuracy = job =>
    job.accuracy === undefined ? '' : Number(job.accuracy).toFixed(4);

// Shares of a worker's time.
function split(worker) {
  const time = worker.run?.seconds || {};
  const share = (...parts) =>
      time.wall ? parts.reduce((sum, part) => sum + (time[part] || 0), 0) /
                      time.wall : 0;
  const forward = share('forward');
  const backward = share('backward');
  const wait = share('receive_wait');
  return {forward, backward, wait,
          other: time.wall ? Math.max(0, 1 - forward - backward - wait) : 0};
}

const percent = share => `${Math.round(share * 100)} %`;

// titles: those that begin with '-' are left out where there is little room.
function table(titles, rows) {
  const long = ['name', 'what', '-why'];
  const kind = i => ({class: (titles[i].startsWith('-') ? 'wide ' : '') +
                             (long.includes(titles[i]) ? 'long' : '')});
  const line = (tag, cells) =>
      cells.map((cell, i) => element(tag, kind(i), cell));
  return element('div', {class: 'scroll'}, element('table', {},
      element('tr', {}, ...line('th', titles.map(title => title.replace('-', '')))),
      ...rows.map(row => element('tr', row.attributes || {},
                                 ...line('td', row.cells)))));
}

const state = text => element('span', {class: text}, text);

// --- a job ---

function stages(job) {
  const cards = workersOf(job).flatMap(worker => {
    const known = mesh.workers.get(worker.id);
    const gone = known === undefined ? 'lost' : stateOfWorker(known);
    const shares = split(worker);
    return (worker.stages || [{}]).map(stage => {
      const drift = (job.drift || []).find(
          each => number(each.stage) === number(stage.stage) &&
                  each.worker_id === worker.id) || {};
      const bar = element('div', {class: 'split', title: Object.entries(shares)
          .map(([part, share]) => `${part} ${percent(share)}`).join(', ')});
      for (const [part, share] of Object.entries(shares)) {
        const piece = element('i', {class: part});
        piece.style.width = `${100 * share}%`;
        bar.append(piece);
      }
      const member = worker.member;
      return {order: number(stage.stage), card: element(
          'div', {class: `stage ${gone}`},
          element('b', {}, member ? (job.server === worker.id ? 'serves' : 'member')
                                  : `stage ${number(stage.stage)}`),
          ` on ${worker.name} `, gone === 'busy' ? '' : state(gone), bar,
          element('div', {class: 'faint'}, [
            member ? `view ${member.view}, step ${number(member.next)}`
                   : `layers ${number(stage.first_layer)}-${stage.last_layer - 1}`,
            drift.measured_seconds &&
                `${seconds(drift.measured_seconds)} a micro-batch` +
                (drift.predicted_seconds
                     ? `, ${seconds(drift.predicted_seconds)} predicted` : ''),
            shares.wait && `waits ${percent(shares.wait)}`,
          ].filter(Boolean).join('; ')))};
    });
  });
  cards.sort((a, b) => a.order - b.order);
  return element('div', {class: 'stages'}, ...cards.map(each => each.card));
}

function key(...parts) {
  return element('p', {class: 'key faint'}, ...parts.flatMap(
      part => [element('i', {class: part}), part]));
}

function gantt(job) {
  const lanes = mesh.traces.get(job.id);
  if (!lanes) return null;
  const begin = Math.min(...lanes.map(lane => number(lane.begin_unix_us)));
  const at = (lane, i) =>
      number(lane.begin_unix_us) - begin + lane.begin_us[i];
  const end = Math.max(...lanes.map(
      lane => at(lane, lane.us.length - 1) + lane.us.at(-1)));
  const height = 26;
  const svg = element('svg', {height: lanes.length * height + 4, role: 'img',
                              'aria-label': 'Gantt of a step'});
  lanes.forEach((lane, row) => {
    for (let i = 0; i < lane.us.length; ++i) {
      svg.append(element('rect', {
        class: lane.ops[i] === 'F' ? 'forward' : 'backward',
        x: `${100 * at(lane, i) / end}%`, y: row * height + 4,
        width: `${Math.max(.1, 100 * lane.us[i] / end - .1)}%`,
        height: height - 4}));
    }
    svg.append(element('text', {x: 4, y: row * height + 19},
                       `${lane.stage} ${lane.worker}`));
  });
  return element('section', {},
      element('h2', {}, `Step ${lanes[0].step} `,
              element('small', {}, `${seconds(end / 1e6)}, as measured`)),
      svg, key('forward', 'backward'));
}

// A line over steps, with axes; over more than three decades the scale is
// logarithmic.
function curve(title, all, key) {
  const points = all.filter(point => Number.isFinite(point[key]));
  if (!points.length) return null;
  const values = points.map(point => point[key]);
  const least = Math.min(...values), most = Math.max(...values);
  const log = least > 0 && most > 1000 * least;
  const first = points[0].step, last = points.at(-1).step;
  const up = value => most === least ? .5
      : log ? Math.log(value / least) / Math.log(most / least)
            : (value - least) / (most - least);
  const place = point =>
      `${10 + 580 * (last === first ? .5 : (point.step - first) / (last - first))},` +
      `${10 + 100 * (1 - up(point[key]))}`;
  const svg = element('svg', {viewBox: '0 0 600 120', role: 'img',
                              preserveAspectRatio: 'none', 'aria-label': title},
                      element('polyline', {points: points.map(place).join(' ')}));
  for (const point of points.length <= 20 ? points : []) {
    svg.append(element('polyline', {class: 'dot',
                                    points: `${place(point)} ${place(point)}`}));
  }
  const labels = (side, texts) => element('div', {class: side},
      ...[...new Set(texts)].map(text => element('span', {}, text)));
  const middle = log ? Math.sqrt(least * most) : (least + most) / 2;
  return element('section', {},
      element('h2', {}, title, log ? element('small', {}, ' logarithmic') : null),
      element('div', {class: 'chart'},
              labels('y', [most, middle, least].map(
                  value => `${Number(value.toPrecision(4))}`)),
              svg,
              labels('x', [`step ${first}`, `${Math.round((first + last) / 2)}`,
                           `${last}`].slice(0, last > first ? 3 : 1))));
}

function recovery(job) {
  const last = job.recovering || job.recovery;
  if (!last || !last.seconds) return null;
  const phases = Object.entries(last.seconds)
      .map(([phase, value]) => `${phase} ${seconds(value)}`).join(', ');
  return element('p', {},
      `${clock(last.unix_ms)}: ${last.why}. ` + (job.recovering ? 'So far: ' :
      `It went on from step ${number(last.from_step)}, ` +
      `${number(last.again)} steps again: `) + phases);
}

function links(job) {
  if (!job.links) return null;
  const capacity = link => link.capacity_bytes_per_second
      ? `${bytes(link.capacity_bytes_per_second)}, ` +
        percent(number(link.sent_bytes_per_second) /
                link.capacity_bytes_per_second)
      : 'not measured';
  return element('section', {}, element('h2', {}, 'Links'),
      table(['from', 'to', 'sends', 'of'], job.links.map(link => ({cells: [
        link.from, link.to, bytes(number(link.sent_bytes_per_second)),
        capacity(link)]}))));
}

function jobParts(job) {
  const facts = [steps(job), loss(job) && `loss ${loss(job)}`,
                 accuracy(job) && `accuracy ${accuracy(job)}`,
                 job.samples_per_second &&
                     `${rate(job.samples_per_second)} samples/s`,
                 job.step_seconds && `${seconds(job.step_seconds)} a step`,
                 job.floor_step && `kept up to ${job.floor_step}`,
                 number(job.attempt) > 1 && `attempt ${job.attempt}`];
  return [
    element('h2', {}, `Job ${job.id} ${job.spec.name || ''} `, state(stateOf(job)),
            ' ', element('small', {}, facts.filter(Boolean).join(', '))),
    job.why ? element('p', {class: stateOf(job)}, job.why) : null,
    recovery(job), stages(job), key('forward', 'backward', 'wait', 'other'),
    gantt(job), curve('Loss', job.points, 'loss'),
    curve('Accuracy on the test set', job.accuracies, 'accuracy'), links(job)];
}

// --- the page ---

// The one that the address names, else the newest that runs, else the newest.
function chosen() {
  const jobs = [...mesh.jobs.values()].sort((a, b) => number(b.id) - number(a.id));
  const named = mesh.jobs.get(location.hash.slice(1));
  return named || jobs.find(job => job.state === 'JOB_STATE_RUNNING') || jobs[0];
}

function show() {
  const job = chosen();
  const workers = [...mesh.workers.values()]
      .sort((a, b) => number(a.id) - number(b.id));
  const count = {};
  for (const worker of workers) {
    count[stateOfWorker(worker)] = (count[stateOfWorker(worker)] || 0) + 1;
  }
  const list = counts =>
      Object.entries(counts).sort().map(([what, n]) => `${n} ${what}`).join(', ');
  document.getElementById('summary').textContent =
      `workers: ${list(count) || 'none yet'}; jobs: ${list(mesh.counts) || 'none'}`;
  document.getElementById('job').replaceChildren(
      ...(job ? jobParts(job) : []).filter(part => part !== null));
  const parts = {};
  for (const each of mesh.jobs.values()) {
    for (const worker of workersOf(each)) parts[`${each.id} ${worker.id}`] = worker;
  }
  const jobs = [...mesh.jobs.values()].sort((a, b) => number(b.id) - number(a.id));
  document.getElementById('mesh').replaceChildren(
      element('h2', {}, 'Jobs'),
      table(['job', 'name', 'state', 'step', 'loss', 'accuracy', '-samples/s',
             '-why'],
            jobs.map(each => ({
              attributes: {'data-job': each.id,
                           class: each === job ? 'chosen' : ''},
              cells: [element('a', {href: `#${each.id}`}, each.id),
                      each.spec.name || '', state(stateOf(each)),
                      steps(each), loss(each), accuracy(each),
                      rate(each.samples_per_second),
                      each.why || '']}))),
      element('h2', {}, 'Workers'),
      table(['worker', 'state', 'job', 'stages', 'compute', 'wait', '-address'],
            workers.map(worker => {
              const shares = split(parts[`${worker.job} ${worker.id}`] || {});
              const busy = shares.forward + shares.backward;
              return {cells: [
                name(worker), state(stateOfWorker(worker)), worker.job || '',
                (worker.stages || []).join(', '), busy ? percent(busy) : '',
                busy ? percent(shares.wait) : '', worker.registration.address]};
            })),
      element('h2', {}, 'Events'),
      table(['time', 'job', 'kind', 'what'],
            mesh.events.slice().reverse().map(event => ({cells: [
              clock(event.unix_ms), event.job || '', event.kind, event.text]}))));
}

let drawing = false;
function draw() {
  if (drawing) return;  // once a frame is enough
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    show();
  });
}

function watch() {
  const source = new EventSource('/watch');
  const away = document.getElementById('away');
  source.onmessage = event => {
    away.hidden = true;
    const update = JSON.parse(event.data);
    merge(update);
    if (!update.more) draw();
  };
  source.onerror = () => {
    away.hidden = false;
    // After an answer that is no stream it does not try again by itself.
    if (source.readyState !== EventSource.CLOSED) return;
    source.close();
    setTimeout(watch, 2000);
  };
}

document.addEventListener('click', event => {
  const row = event.target.closest('tr[data-job]');
  if (row) location.hash = row.dataset.job;
});
window.addEventListener('hashchange', draw);
watch();
