"""Dashboards against the daemons: every metric is seen, every panel is fed."""

import json
import re
import sys
import tempfile
from pathlib import Path

import yaml

from formats import run
from tree import Problem

DECLARATIONS = ("core/obs/metrics.h",
                *(f"{folder}/metrics.{ending}"
                  for folder in ("coordinator/watch", "worker/control")
                  for ending in ("h", "cc")))
METRIC = re.compile(r"\b(?:paceline_(?:coordinator|worker)|process)_[a-z0-9_]+")
# The program that makes the dashboards' JSON.
GENERATE = Path(__file__).resolve().parents[2] / "dashboards/generate.py"
# What Prometheus makes of a histogram.
SUFFIXES = ("_bucket", "_sum", "_count")
# Grafana fills these in; promtool cannot.
VARIABLES = {"$__rate_interval": "1m", "$__interval": "1m", "$__range": "1h"}


def declared(tree):
    """Metric name -> (file, line) of the daemons' metrics.h."""
    found = {}
    for path in DECLARATIONS:
        if tree.exists(path):
            for number, line in enumerate(tree.lines(path), 1):
                for name in re.findall(f'"({METRIC.pattern})"', line):
                    found.setdefault(name, (path, number))
    return found


def panels(tree):
    """Yields (dashboard, title of a panel or annotation, expression)."""
    for path in tree.with_suffix(".json"):
        if not path.startswith("dashboards/"):
            continue
        dashboard = json.loads(tree.text(path))
        for event in dashboard.get("annotations", {}).get("list", []):
            yield path, event["name"], event["expr"]
        todo = list(dashboard.get("panels", []))
        while todo:
            panel = todo.pop(0)
            todo += panel.get("panels", [])
            for target in panel.get("targets", []):
                yield path, panel.get("title", "?"), target.get("expr", "")


def yaml_files(tree, *keys):
    """Path -> content of each that has these keys."""
    loaded = {path: yaml.safe_load(tree.text(path)) or {}
              for path in tree.with_suffix(".yml", ".yaml")
              if path.startswith("dashboards/")}
    return {path: content for path, content in loaded.items()
            if all(key in content for key in keys)}


def rule_files(tree):
    return yaml_files(tree, "groups")


def alerts(tree):
    """Yields (file, rule) of every alert."""
    for path, content in rule_files(tree).items():
        for group in content["groups"]:
            for rule in group.get("rules", []):
                if "alert" in rule:
                    yield path, rule


def base_name(metric, names):
    for suffix in SUFFIXES:
        if metric not in names and metric.endswith(suffix):
            return metric[:-len(suffix)]
    return metric


def check_metrics(tree):
    """Names in metrics.h and names in dashboards are the same set."""
    names = declared(tree)
    uses = [(path, f"panel {title!r}", expression)
            for path, title, expression in panels(tree)]
    uses += [(path, "a rule", tree.text(path)) for path in rule_files(tree)]
    used = set()
    for path, what, expression in uses:
        for metric in METRIC.findall(expression):
            name = base_name(metric, names)
            used.add(name)
            if name not in names:
                yield Problem(path, 0, f"{what} asks for {metric}, which no "
                              "metrics.h declares")
    for name, (path, line) in sorted(names.items()):
        if name not in used:
            yield Problem(path, line, f"{name} has no panel and no alert: "
                          "show it or drop it")


def check_generated(tree):
    """The dashboards are what generate.py makes of their YAML."""
    complaint = run([sys.executable, str(GENERATE), "--check", "--folder",
                     str(tree.root / "dashboards")])
    if complaint:
        yield Problem("dashboards", 0, complaint)


def plain(expression):
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return re.sub(r"\$\{?\w+\}?", "x", expression)


def check_promtool(tree):
    """promtool accepts configuration, rules, their tests, each expression."""
    tests = yaml_files(tree, "rule_files", "tests")
    for words, paths in (("check config", tree.with_suffix("prometheus.yml")),
                         ("check rules", rule_files(tree)),
                         ("test rules", tests)):
        for path in paths:
            complaint = run(["promtool", *words.split(), str(tree.root / path)])
            if complaint:
                yield Problem(path, 0, complaint)
    tested = "".join(map(tree.text, tests))
    for path, rule in alerts(tree):
        name = rule["alert"]
        if name not in tested:
            yield Problem(path, 0, f"alert {name} has no test: add one to a "
                          "file of `promtool test rules`")
        if "runbook" not in rule.get("annotations", {}):
            yield Problem(path, 0, f"alert {name} has no annotation `runbook`: "
                          "say what to do")
    places = list(panels(tree))
    rules = [{"record": f"panel_{i}", "expr": plain(expression)}
             for i, (_, _, expression) in enumerate(places)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "panels", "rules": rules}]}, file)
        file.flush()
        complaint = run(["promtool", "check", "rules", file.name])
    for i in sorted(set(map(int, re.findall(r"panel_(\d+)", complaint)))):
        path, title, _ = places[i]
        yield Problem(path, 0, f"panel {title!r}: {complaint}")
