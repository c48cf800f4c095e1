"""Replicas of a pipeline's stages are killed: no step is lost, none differs.

Five workers train a small `vit`: w1 and w2 hold the first stage, w3, w4 and w5
the second one.  Parts:
  each     kill -9 of one replica of each stage, less than a second apart
  firsts   the first replicas of both stages, at once
  verdict  the first stage's first replica, where the gate is, while another
           worker stands still: some stages have reported and others not, or the
           verdict has reached some and others not

What must hold of every job:
- it ends, and no two replicas of a stage ever differ (the gate compares them
  in every step, and ends the job);
- a new attempt begins at a step that no survivor has gone beyond, and that one
  of them has applied: a committed step is not run again;
- the workers' logs tell that in each step that counts each stage has computed
  each micro-batch once;
- losses and final weights are within 1e-5 of those of the undisturbed job.

A worker that is killed is started again a second later.
"""

import random
import re
import signal
import time
from collections import Counter, defaultdict

from kills.recoveries import BEGINS, recovery_of, show
from mesh import tensors_of
from nightly import say, step_seconds

STAGES = (("w1", "w2"), ("w3", "w4", "w5"))
NAMES = [name for stage in STAGES for name in stage]
MICRO_BATCHES = 8
MOST_DIFFERENCE = 1e-5
STOPPED_SECONDS = 0.1
LINE = re.compile(r"(\S+)Z \S+ (\w+) (.*)")
FIELD = re.compile(r"(\w+)=(\S+)")
DONE = re.compile(r"(\d+)(F|B|STEP)(\d*)$")

JOB = ("deploy/jobs/vit-small.yaml", "model.depth=2", "model.width=16",
       "model.heads=2", "data.name=synthetic", "data.train_samples=960",
       "data.test_samples=64", "train.steps=200",
       f"train.batch={6 * MICRO_BATCHES}", "train.micro_batch=6",
       "train.optimizer.name=sgd", "train.optimizer.momentum=0.9",
       "train.learning_rate.base=0.01", "train.evaluate_every=0",
       "pipeline.stages=0", "pipeline.cuts=[3]", "pipeline.replicas=[2,3]",
       f"pipeline.workers=[{','.join(NAMES)}]")


class Logs:
    """What each process wrote of one job."""

    def __init__(self, mesh, number):
        # [attempt][step][life]: the instructions that it has done.
        self.done = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        self.finished = Counter()  # [attempt]: steps by another's verdict
        for life in mesh.lives():
            self._read(life, str(number))

    def _read(self, life, number):
        attempt = None
        for line in life.log.read_text(errors="replace").split("\n"):
            match = LINE.match(line)
            if match is None:
                continue
            fields = dict(FIELD.findall(match[3]))
            if "run begins" in line:
                attempt = (int(fields["attempt"])
                           if fields["job"] == number else None)
            elif "finished a step" in line and fields["job"] == number:
                self.finished[int(fields["attempt"])] += 1
            elif attempt and "instruction done" in line and "step" in fields:
                self.done[attempt][int(fields["step"])][life].append(
                    fields["instruction"])

    def applied(self, attempt, lives):
        """How many steps the furthest of these lives has applied."""
        return max((step + 1 for step, by_life in self.done[attempt].items()
                    for life in lives
                    if any("STEP" in each for each in by_life.get(life, []))),
                   default=0)

    def computed(self, attempt, step):
        """Counts of (stage, F or B, micro-batch)."""
        return Counter(
            DONE.match(each).groups() for by_life in
            self.done[attempt][step].values() for each in by_life
            if DONE.match(each) and "STEP" not in each)


def bases_of(events):
    """attempt -> (its first step, when it began)."""
    bases = {}
    for event in events:
        match = BEGINS.search(event["text"])
        if event["kind"] == "attempt" and match:
            bases[int(match[1])] = (int(match[2] or 0), event["unix_ms"] / 1e3)
    return bases


class Outcome:
    """A job that has ended."""

    def __init__(self, mesh, number):
        self.shown = mesh.finish(number)
        self.events = mesh.events(number)
        self.bases = bases_of(self.events)
        self.logs = Logs(mesh, number)
        self.weights = {}
        if self.shown["state"] == "succeeded":
            path = mesh.state / f"{number}.safetensors"
            mesh.export(number, path)
            self.weights = tensors_of(path)

    def differences(self, other):
        """The largest one of two weights, and of two losses."""
        return (max((abs(a - b) for name in self.weights
                     for a, b in zip(self.weights[name], other.weights[name])),
                    default=float("inf")),
                max((abs(a["value"] - b["value"]) for a, b in
                     zip(self.shown["loss"], other.shown["loss"])),
                    default=0.0))


class Disturber:
    """Runs jobs, and kills workers meanwhile."""

    def __init__(self, run, mesh):
        self.mesh = mesh
        self.random = random.Random(run.seed)
        self.recoveries = []
        self.wrong = run.wrong
        self.normal = Outcome(mesh, mesh.train(*JOB)["id"])
        self.step_seconds = step_seconds(self.normal.shown)
        say(f"undisturbed: {self.normal.shown['steps']} steps of "
            f"{1e3 * self.step_seconds:.1f} ms")
        self.check_computed("undisturbed", self.normal)

    def hit(self, part):
        """One job of which PARTS[part] kills, and tells (life, time) of each."""
        self.mesh.await_all_idle()
        number = self.mesh.submit(*JOB)
        steps = self.normal.shown["steps"]
        self.mesh.await_step(number, steps // 10)
        time.sleep(self.random.uniform(0, 0.4) * steps * self.step_seconds)
        dead = PARTS[part](self)
        outcome = Outcome(self.mesh, number)
        victims = " ".join(life.worker for life, _ in dead)
        what = f"{part}, job {number}, {victims}"
        self.check(what, outcome, dead)
        recovery = recovery_of(part, outcome.shown, outcome.events, dead[0][1],
                               self.step_seconds)
        self.recoveries.append(recovery)
        finished = sum(outcome.logs.finished.values())
        weights, losses = outcome.differences(self.normal)
        say(f"{what}: {recovery}, {len(outcome.bases)} attempts, {finished} "
            f"finished by another's verdict, weights within {weights:.1e}, "
            f"losses within {losses:.1e}")

    def kill(self, name):
        daemon = self.mesh.daemon(name)
        return daemon.lives[-1], daemon.signal(signal.SIGKILL)

    # --- checks

    def check(self, what, outcome, dead):
        shown = outcome.shown
        if shown["state"] != "succeeded" or shown["step"] != shown["steps"]:
            self.wrong.append(f"{what}: {shown['state']} at step "
                              f"{shown['step']}: {shown['why']}")
            return
        if len(outcome.bases) < 2:
            self.wrong.append(f"{what}: it was not disturbed")
        for name, value in zip(("weights", "losses"),
                               outcome.differences(self.normal)):
            if not value <= MOST_DIFFERENCE:
                self.wrong.append(f"{what}: {name} differ by {value:.1e}")
        self.check_bases(what, outcome, dead)
        self.check_computed(what, outcome)

    def check_bases(self, what, outcome, dead):
        """A new attempt begins where the furthest survivor was, or at the step
        after it that some finish."""
        attempts = sorted(outcome.bases)
        for before, after in zip(attempts, attempts[1:]):
            base, began = outcome.bases[after]
            lost = {life for life, killed in dead if killed <= began}
            furthest = outcome.logs.applied(
                before, [life for life in self.mesh.lives()
                         if life not in lost])
            furthest = max(furthest, outcome.bases[before][0])
            if base != furthest:
                self.wrong.append(
                    f"{what}: attempt {after} begins from step {base}, but a "
                    f"survivor had applied {furthest}")

    def check_computed(self, what, outcome):
        expected = Counter((str(stage), op, str(micro_batch))
                           for stage in range(len(STAGES)) for op in "FB"
                           for micro_batch in range(MICRO_BATCHES))
        attempts = sorted(outcome.bases) or [1]
        ends = [outcome.bases[each][0] for each in attempts[1:]]
        for attempt, end in zip(attempts, (*ends, outcome.shown["steps"])):
            begin = outcome.bases.get(attempt, (0,))[0]
            for step in range(begin, end):
                computed = outcome.logs.computed(attempt, step)
                if computed != expected:
                    self.wrong.append(
                        f"{what}: step {step + 1} of attempt {attempt}: "
                        f"missing {dict(expected - computed)}, too much "
                        f"{dict(computed - expected)}")


def each_stage(disturber):
    victims = [disturber.random.choice(stage) for stage in STAGES]
    disturber.random.shuffle(victims)
    dead = [disturber.kill(victims[0])]
    time.sleep(disturber.random.uniform(0, 1))
    return [*dead, disturber.kill(victims[1])]


def firsts(disturber):
    return [disturber.kill(stage[0]) for stage in STAGES]


def verdict(disturber):
    """A worker that stands still has reported or not: the gate lacks its
    report, or it lacks the verdict."""
    still = disturber.mesh.daemon(disturber.random.choice(NAMES[1:]))
    still.signal(signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    dead = [disturber.kill(NAMES[0])]
    still.signal(signal.SIGCONT)
    return dead


PARTS = {"each": each_stage, "firsts": firsts, "verdict": verdict}
OPTIONS = {"times": 20, "seed": 1}


def main(run):
    with run.restarting_mesh(len(NAMES), log_level="debug") as mesh:
        disturber = Disturber(run, mesh)
        for part in run.part:
            for _ in range(run.times):
                disturber.hit(part)
    show(disturber.recoveries)
