#!/usr/bin/env python3
"""Makes the Grafana dashboards: NAME.json of each NAME.yaml here.

  generate.py           writes them
  generate.py --check   says which ones are not up to date, and ends with 1

A dashboard has `uid`, `title`, and `rows`: name -> panels.  Keys of a panel:

  title, help   the heading, and what its (i) says
  kind          lines (the default), stack, states, heatmap, bars or stat
  queries       legend -> PromQL
  unit          Grafana's name of it: s, bytes, Bps, ops, percentunit
  states        a table of STATES: names and colours of values or of series
  thresholds    value -> colour of what is at or above it; drawn as lines
  min, max      the ends of the axis; 0 and open unless given
  width, height in units of Grafana's grid, which is 24 wide

Every dashboard has the same variables and annotations.
"""

import argparse
import json
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
GRAY = "#8e8e8e"

# Name -> colour.  A metric that counts states begins at 1, `serving` at 0.
STATES = {
    "worker": {"idle": "blue", "busy": "green", "suspect": "orange",
               "lost": "red", "measuring": "purple", "stopped": GRAY},
    "job": {"queued": "blue", "running": "yellow", "succeeded": "green",
            "failed": "red", "stopped": GRAY},
    "phase": {"preparing": "blue", "training": "green", "moving": "yellow",
              "recovering": "orange", "paused": "red", "predicting": "green",
              "saving": "purple"},
    "serving": {"waits": GRAY, "serves": "green"},
    "outcome": {"committed": "green", "kept": "green", "void": "red",
                "failed": "red"},
    "code": {"OK": "green", "attached: OK": "green", "lost": "red"},
}

# Name, colour, expression: an event while it is above 0.
EVENTS = [
    ("Worker lost", "red",
     "increase(paceline_coordinator_workers_lost_total[$__rate_interval])"),
    ("Worker attached", "blue", "increase(paceline_coordinator_attach_total"
     '{code="OK"}[$__rate_interval])'),
    ("Pipeline recovered", "green",
     "increase(paceline_coordinator_recoveries_total[$__rate_interval])"),
    ("Job failed", "dark-red", 'delta(paceline_coordinator_jobs'
     '{state="failed"}[$__rate_interval])'),
]


def mappings(states):
    """What Grafana shows for each value of a metric that counts states."""
    first = 0 if states == "serving" else 1
    return [{"type": "value", "options": {
        str(value): {"text": name, "color": colour, "index": value}
        for value, (name, colour) in enumerate(STATES[states].items(), first)}}]


def override(name, colour):
    return {"matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {
                "mode": "fixed", "fixedColor": colour}}]}


def looks(kind):
    """(Grafana's panel type, options, custom)"""
    last = {"reduceOptions": {"calcs": ["lastNotNull"]}}
    if kind == "states":
        return "state-timeline", {"showValue": "never", "mergeValues": True,
                                  "rowHeight": 0.9}, {"fillOpacity": 80}
    if kind == "heatmap":
        return "heatmap", {
            "calculate": False, "cellGap": 1, "filterValues": {"le": 1e-9},
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64,
                      "exponent": 0.5}}, {}
    if kind == "bars":
        return "bargauge", {**last, "orientation": "horizontal",
                            "displayMode": "basic"}, {}
    if kind == "stat":
        return "stat", {**last, "textMode": "value_and_name",
                        "graphMode": "none", "colorMode": "none"}, {}
    custom = {"lineWidth": 1, "showPoints": "never"}
    if kind == "stack":
        custom |= {"fillOpacity": 60,
                   "stacking": {"mode": "normal", "group": "A"}}
    return "timeseries", {"tooltip": {"mode": "multi", "sort": "desc"}}, custom


def field_config(source, kind, custom):
    defaults = {"custom": custom, "unit": source.get("unit", "short")}
    if kind not in ("states", "heatmap"):
        defaults["min"] = source.get("min", 0)
    if "max" in source:
        defaults["max"] = source["max"]
    if "thresholds" in source:
        steps = [{"value": value, "color": colour}
                 for value, colour in source["thresholds"].items()]
        steps[0]["value"] = None
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        custom["thresholdsStyle"] = {"mode": "dashed"}
    overrides = []
    if kind == "states":
        defaults["mappings"] = mappings(source["states"])
        defaults["color"] = {"mode": "thresholds"}
    elif "states" in source:
        overrides = [override(*each)
                     for each in STATES[source["states"]].items()]
    return {"defaults": defaults, "overrides": overrides}


def panel(source):
    kind = source.get("kind", "lines")
    panel_type, options, custom = looks(kind)
    made = {"type": panel_type, "title": source["title"], "datasource": SOURCE,
            "fieldConfig": field_config(source, kind, custom),
            "options": options,
            "targets": [{"refId": chr(ord("A") + i), "expr": expression,
                         "legendFormat": legend,
                         **({"format": "heatmap"} if kind == "heatmap" else {})}
                        for i, (legend, expression)
                        in enumerate(source["queries"].items())]}
    if "help" in source:
        made["description"] = source["help"]
    return made, source.get("width", 8), source.get("height", 8)


def layout(rows):
    """Panels from left to right, row by row."""
    made, y = [], 0
    for name, sources in rows.items():
        made.append({"type": "row", "title": name, "collapsed": False,
                     "panels": [], "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        y, x, tallest = y + 1, 0, 0
        for each, width, height in map(panel, sources):
            if x + width > 24:
                y, x, tallest = y + tallest, 0, 0
            each["gridPos"] = {"x": x, "y": y, "w": width, "h": height}
            made.append(each)
            x, tallest = x + width, max(tallest, height)
        y += tallest
    for number, each in enumerate(made, 1):
        each["id"] = number
    return made


def variable(name, label, values):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE,
            "definition": values, "query": {"query": values, "refId": name},
            "refresh": 2, "sort": 1, "includeAll": True, "allValue": ".*",
            "multi": True, "current": {"text": "All", "value": "$__all"}}


def dashboard(source):
    """Everything of a dashboard but its panels."""
    return {
        "uid": source["uid"], "title": source["title"], "tags": ["paceline"],
        "schemaVersion": 37, "editable": True, "graphTooltip": 1,
        "refresh": "5s", "time": {"from": "now-15m", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["paceline"],
                   "title": "Paceline", "keepTime": True,
                   "includeVars": True}],
        "templating": {"list": [
            {"name": "datasource", "label": "Data source",
             "type": "datasource", "query": "prometheus"},
            variable("job", "Job",
                     "label_values(paceline_coordinator_job_step, job)"),
            variable("worker", "Worker", "label_values("
                     "paceline_coordinator_worker_state, worker)")]},
        "annotations": {"list": [
            {"name": name, "iconColor": colour, "expr": f"{expression} > 0",
             "datasource": SOURCE, "enable": True, "titleFormat": name}
            for name, colour, expression in EVENTS]},
    }


def text_of(source):
    """JSON with one line a panel, so that a change of one shows as one."""
    head = json.dumps(dashboard(source), indent=1)
    panels = ",\n".join("  " + json.dumps(each)
                        for each in layout(source["rows"]))
    return f'{head[:-2]},\n "panels": [\n{panels}\n ]\n}}\n'


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--folder", type=Path, default=HERE,
                        help="where the files are (default: here)")
    arguments = parser.parse_args()
    stale = []
    for path in sorted(arguments.folder.glob("*.yaml")):
        text = text_of(yaml.safe_load(path.read_text(encoding="utf-8")))
        made = path.with_suffix(".json")
        if not arguments.check:
            made.write_text(text, encoding="utf-8")
        elif not made.exists() or made.read_text(encoding="utf-8") != text:
            stale.append(made.name)
    if stale:
        print(f"not up to date: {' '.join(stale)}: run dashboards/generate.py")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
