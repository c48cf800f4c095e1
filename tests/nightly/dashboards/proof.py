"""Every panel of the dashboards shows something while a mesh works.

Four workers with certificates run five jobs, for so many seconds each, and a
real Prometheus scrapes them:

  pipeline   three stages; one of their workers is killed (kill -9)
  pipedream  three stages without a flush
  rolling    four members; the job's own faults kill two, and spoil parts
  replicas   two stages, of which two workers hold the first
  coded      three stages, int8 between them

Then each expression of each panel is asked for, as Grafana would.  Asked: an
answer to each, and a line in each panel that changes (but for FLAT, whose lines
come and go).  The kill is seen where it should be.  The answers are kept in
--out, for render.py.
"""

import json
import math
import re
import signal
import time
from pathlib import Path

from dashboards.prometheus import DASHBOARDS, Prometheus
from mesh import eventually
from nightly import say

OPTIONS = {"seconds": 25.0, "out": Path("build/dashboards")}
WORKERS = 4
PAUSE_SECONDS = 5  # from a worker's death to its next life
SCRAPED_SECONDS = 4
# The most of a run at a time: such a line only comes and goes.
FLAT = {"Versions of the weights", "Bytes of these versions"}

PIPELINE = """
model: {name: lenet}
data: {name: synthetic, train_samples: 1024, test_samples: 64}
train:
  {steps: 1000000, batch: 64, micro_batch: 16, evaluate_every: 2,
   checkpoint_every: 200, learning_rate: {base: 0.001}}
pipeline: {stages: 3, snapshot_every: 100}
"""
LENET = """
model: {name: lenet}
data: {name: synthetic, train_samples: 1024, test_samples: 64}
train: {steps: 1000000, batch: 64, micro_batch: 16, evaluate_every: 0}
"""
JOBS = {
    "pipeline": PIPELINE,
    "pipedream": LENET + "pipeline: {stages: 3, schedule: pipedream}\n",
    "rolling": LENET + """aggregation: {mode: rolling, min_parts: 3, shards: 1, conflict: true}
faults:
  - {worker: w1, step: 20, steps: 20, kind: bit-flip}
  - {worker: w4, step: 40, steps: 20, kind: nan}
  # Two of four: the group pauses until one of them is back.
  - {worker: w2, step: 80, kind: kill, phase: gathering}
  - {worker: w3, step: 100, kind: kill}
  - {worker: w1, step: 150, steps: 40, kind: delay, seconds: 0.1}
  - {worker: w4, step: 160, steps: 40, kind: delay, seconds: 0.2}
""",
    "replicas": PIPELINE.replace(
        "stages: 3,", "cuts: [2], workers: [w1, w2, w3], replicas: [2, 1],"),
    "coded": PIPELINE.replace("stages: 3,", "stages: 3, codec: int8,"),
}


class Panel:
    """A panel, or an annotation, and its lines: [(name, [(time, value)])]."""

    def __init__(self, dashboard, title, targets):
        self.dashboard = dashboard
        self.title = title
        self.targets = targets  # [(legend, expression)]
        self.lines = []
        self.empty = []  # expressions without an answer

    def ask(self, prometheus, begin, end):
        for legend, expression in self.targets:
            found = prometheus.series(filled_in(expression), begin, end)
            if not found:
                self.empty.append(expression)
            for labels, points in found:
                name = re.sub(r"\{\{(\w+)\}\}",
                              lambda m, of=labels: of.get(m[1], ""), legend)
                self.lines.append((name, points))

    def verdict(self):
        """(whether it is as it should be, in words)"""
        if self.empty:
            return False, f"EMPTY: {' and '.join(self.empty)}"
        values = [{value for _, value in points if not math.isnan(value)}
                  for _, points in self.lines]
        changing = sum(len(each) > 1 for each in values)
        if not changing and self.title in FLAT:
            return True, f"{len(values)} lines come and go"
        if not changing:
            return False, f"CONSTANT: {sorted(set.union(*values))}"
        return True, f"{changing} of {len(values)} lines change"


def filled_in(expression):
    """As Grafana does it, for a scrape a second."""
    return (expression.replace("$__rate_interval", "5s")
            .replace("$job", ".*").replace("$worker", ".*"))


def dashboards():
    return [json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(DASHBOARDS.glob("*.json"))]


def panels():
    return [Panel(each["title"], panel["title"],
                  [(target["legendFormat"], target["expr"])
                   for target in panel["targets"]])
            for each in dashboards() for panel in each["panels"]
            if panel["type"] != "row"]


def events():
    """Annotations; they are the same on every dashboard."""
    return [Panel("all", each["name"], [(each["name"], each["expr"])])
            for each in dashboards()[0]["annotations"]["list"]]


# --- What happens in the mesh -------------------------------------------------


def run_job(mesh, name, seconds, meanwhile=None):
    file = mesh.state / f"{name}.yaml"
    file.write_text(JOBS[name], encoding="utf-8")
    number = mesh.submit(file)
    mesh.await_step(number, 5)
    begin = time.monotonic()
    if meanwhile is not None:
        time.sleep(seconds / 3)
        meanwhile(number)
    time.sleep(max(0, begin + seconds - time.monotonic()))
    say(f"job {number}, {name}: {mesh.show(number)['step']} steps")
    mesh.stop_job(number)
    mesh.finish(number)
    mesh.await_all_idle()


class Kill:
    """A worker of the pipeline's middle is killed; tells who and when."""

    def __init__(self, mesh):
        self._mesh = mesh
        self.worker = None
        self.at = None

    def __call__(self, number):
        self.worker = self._mesh.show(number)["workers"][1]["name"]
        self.at = self._mesh.daemon(self.worker).signal(signal.SIGKILL)
        say(f"{self.worker} is killed")

    def sees(self):
        """(panel's title, line, what its values are right after the kill)"""
        return [("State of each worker", self.worker, lambda v: 4 in v),
                ("Workers by state", "lost", lambda v: max(v) >= 1),
                ("Workers that attached, and that were lost", "lost",
                 lambda v: max(v) > 0),
                ("Workers that are attached, and that run a job", "attached",
                 lambda v: min(v) == WORKERS - 1), ("Age of each process",
                                                    self.worker,
                                                    lambda v: v[-1] < v[0]),
                ("Workers lost, recoveries, steps run again", "recoveries",
                 lambda v: v[-1] > v[0]),
                ("Seconds of the recoveries, by phase", "build",
                 lambda v: max(v) > 0),
                ("Steps that count, of all that were computed", "job 1",
                 lambda v: v[-1] < v[0]), ("Worker lost", "Worker lost",
                                           lambda v: max(v) > 0),
                ("Worker attached", "Worker attached", lambda v: max(v) > 0),
                ("Pipeline recovered", "Pipeline recovered",
                 lambda v: max(v) > 0),]

    def unseen(self, asked, seconds):
        """Sentences on panels that do not show it."""
        wrong = []
        for title, line, shown in self.sees():
            values = [value for panel in asked if panel.title == title for name,
                      points in panel.lines if name == line for at,
                      value in points if self.at - 2 <= at <= self.at + seconds]
            if not values or not shown(values):
                wrong.append(f"'{title}' does not show the kill: {line} is "
                             f"{values}")
            else:
                print(f"the kill is seen: {title}: {line}")
        return wrong


def keep(folder, asked, happened, begin, end):
    """For render.py.  NaN is no JSON."""
    def line(name, points):
        return {"name": name, "points": [
            [at, None if math.isnan(value) else value] for at, value in points]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answers.json").write_text(json.dumps({
        "begin": begin, "end": end, "dashboards": dashboards(),
        "panels": {f"{panel.dashboard}: {panel.title}": [
            line(*each) for each in panel.lines] for panel in asked},
        "events": {panel.title: [line(*each) for each in panel.lines]
                   for panel in happened}}), encoding="utf-8")


def main(run):
    with run.restarting_mesh(WORKERS, pause=PAUSE_SECONDS, tls=True) as mesh:
        folder = mesh.state / "prometheus"
        folder.mkdir()
        with Prometheus(folder, mesh.addresses["http"]) as prometheus:
            if not eventually(lambda: prometheus.value("sum(up)") > WORKERS, 60):
                raise RuntimeError("Prometheus does not find the mesh")
            time.sleep(SCRAPED_SECONDS)
            kill = Kill(mesh)
            begin = time.time()
            for name in JOBS:
                run_job(mesh, name, run.seconds,
                        kill if name == "pipeline" else None)
            time.sleep(SCRAPED_SECONDS)
            end = time.time()
            asked, happened = panels(), events()
            for panel in (*asked, *happened):
                panel.ask(prometheus, begin, end)
            keep(run.out, asked, happened, begin, end)
    for panel in asked:
        good, words = panel.verdict()
        print(f"{panel.dashboard}: {panel.title}: {words}")
        if not good:
            run.wrong.append(f"{panel.dashboard}: {panel.title}: {words}")
    print(f"{len(asked)} panels, {sum(len(each.targets) for each in asked)} "
          "expressions")
    run.wrong += kill.unseen((*asked, *happened), run.seconds)
