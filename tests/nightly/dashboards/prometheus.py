"""A real Prometheus that scrapes a mesh, configured as dashboards/ does it."""

import json
import urllib.parse
import urllib.request
from pathlib import Path

from bed import ROOT
from mesh import end, free_port, spawn

DASHBOARDS = ROOT / "dashboards"
# As it is, but for a test's patience: it looks every second.
IMPATIENT = (("scrape_interval: 5s",
              "scrape_interval: 1s\n  evaluation_interval: 1s"),
             ("scrape_timeout: 4s", "scrape_timeout: 1s"),
             ("refresh_interval: 10s", "refresh_interval: 1s"))


class Prometheus:
    """A context manager.  folder: for its files.  http: the coordinator's."""

    def __init__(self, folder, http):
        self._folder = Path(folder)
        self._http = http
        self._address = f"127.0.0.1:{free_port()}"
        self._process = None

    def __enter__(self):
        text = (DASHBOARDS / "prometheus.yml").read_text(encoding="utf-8")
        for usual, here in (("localhost:7480", self._http), *IMPATIENT):
            if usual not in text:
                raise ValueError(f"no '{usual}' in prometheus.yml")
            text = text.replace(usual, here)
        file = self._folder / "prometheus.yml"
        file.write_text(text, encoding="utf-8")
        alerts = (DASHBOARDS / "alerts.yml").read_text(encoding="utf-8")
        (self._folder / "alerts.yml").write_text(alerts, encoding="utf-8")
        self._process = spawn(self._folder / "prometheus.log", "prometheus",
                              f"--config.file={file}",
                              f"--storage.tsdb.path={self._folder}/tsdb",
                              f"--web.listen-address={self._address}")
        return self

    def __exit__(self, *_):
        end(self._process)

    def ask(self, what, **parameters):
        """The answer's `data`; {} while there is none."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(
                    f"http://{self._address}/api/v1/{what}?{query}",
                    timeout=10) as answer:
                return json.load(answer).get("data") or {}
        except (OSError, ValueError):
            return {}

    def value(self, expression):
        """The value of an expression with one result; -1: it has none, or
        several."""
        result = self.ask("query", query=expression).get("result", [])
        return float(result[0]["value"][1]) if len(result) == 1 else -1

    def series(self, expression, begin, end):
        """Every second from `begin` to `end`, in seconds since 1970:
        [({label: value}, [(time, value), ...]), ...]"""
        answer = self.ask("query_range", query=expression, start=begin, end=end,
                          step=1)
        if "result" not in answer:
            raise RuntimeError(f"Prometheus does not answer: {expression}")
        return [(each["metric"], [(at, float(value))
                                  for at, value in each["values"]])
                for each in answer["result"]]
