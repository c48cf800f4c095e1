"""The server of a round is killed, again and again: training does not stop.

Five workers train LeNet on Fashion-MNIST as one group.  The job's `faults` kill
-9 the worker that serves a step in each phase: computing, gathering, spreading,
committing (between the hold of all and anybody's commit), --times each.  It is
started again after --pause seconds, by default those of the systemd unit.

What is shown, beside what is asked:
- every job ends, in its first attempt, without a step that is left out;
- after every round all members' states have one hash, also that of the one that
  came back;
- the stall: how much longer the round that was hit took than the median round
  of its job, until the last survivor had applied it;
- how long a process takes from its registration to its first part in a result.

Times are of this machine's one clock: the workers' logs (a line for each round
that was applied, in ms), and the coordinator's events and log.
"""

import json
import math
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from nightly import say

MEMBERS = 5
PHASES = ("computing", "gathering", "spreading", "committing")
MOST_STALL_MS = 300       # median
MOST_RETURN_SECONDS = 2   # each
WARM_UP_STEPS = 150
# From a kill to the next one, beyond the pause before the restart: an exec, a
# registration, a copy of the state, and rounds without anything.
CALM_SECONDS = 4
MOST_JOBS_EXTRA = 4

# A part of a batch is one micro-batch, so that a round takes tens of ms with
# five processes on two cores.
JOB = """\
name: rounds-kill
model: {{name: lenet}}
data: {{name: fashion-mnist}}
threads: 1
train:
  steps: {steps}
  batch: 40
  micro_batch: 8
  seed: 1
  optimizer: {{name: sgd, momentum: 0.9}}
  learning_rate: {{base: 0.02}}
  evaluate_every: 0
aggregation: {{mode: rolling, members: 5}}
faults: {faults}
"""

LINE = re.compile(r"(\S+)Z \S+ (\w+) (.*)")
FIELD = re.compile(r"(\w+)=(\S+)")
TAKEOVER = re.compile(r"step (\d+): server (\S+) lost, \S+ took over in ")


@dataclass(eq=False)
class Kill:
    """One death on purpose, as the job's file has it."""
    worker: str
    step: int  # updates done before
    phase: str
    life: object = None  # that ended
    stall_ms: float = None
    registration_to_part: float = None
    why_not: str = ""  # it does not count

    def __str__(self):
        return f"{self.worker}, killed {self.phase} in step {self.step + 1}"

    def fault(self):
        return {"worker": self.worker, "step": self.step, "kind": "kill",
                "phase": self.phase}


class Applied(NamedTuple):
    """A round as one process applied it."""
    time: float
    life: object
    state: str
    used: bool  # its part


class Tail:
    """A log, of which each call gives what is new."""

    def __init__(self, path):
        self.path = path
        self.at = 0

    def lines(self):
        """Whole lines: (time, text after the level)."""
        with open(self.path, "rb") as log:
            log.seek(self.at)
            whole = log.read().rpartition(b"\n")[0]
        self.at += len(whole) + bool(whole)
        for line in whole.decode(errors="replace").split("\n"):
            if "instruction done" not in line and (match := LINE.match(line)):
                yield (datetime.fromisoformat(match[1] + "+00:00").timestamp(),
                       match[3])


class Logs:
    """What all workers wrote, and when each process registered."""

    def __init__(self, mesh):
        self.applied = defaultdict(lambda: defaultdict(list))  # [job][step]
        self.deaths = {}  # (job, worker): (life, fields)
        self.registered = defaultdict(list)  # worker: times
        self._mesh = mesh
        self._tails = {}
        self._jobs = {}  # what each life runs
        self._coordinator = Tail(mesh.coordinator.lives[-1].log)

    def read(self):
        """What is new since the last time."""
        for life in self._mesh.lives():
            for time, text in self._tails.setdefault(life,
                                                     Tail(life.log)).lines():
                self._take(life, time, text)
        for time, text in self._coordinator.lines():
            if found := re.match(r"worker (\S+) attached", text):
                self.registered[found[1]].append(time)

    def _take(self, life, time, text):
        fields = dict(FIELD.findall(text))
        if text.startswith("run begins"):
            self._jobs[life] = int(fields["job"])
        elif text.startswith("dies on purpose"):
            self.deaths[self._jobs[life], life.worker] = (life, fields)
        elif text.startswith("applied a round"):
            self.applied[self._jobs[life]][int(fields["step"])].append(Applied(
                time, life, fields["state"], fields["part"] == "used"))


class Job:
    """A job that has ended, with its kills, and what the logs tell of it."""

    def __init__(self, mesh, logs, steps, kills):
        file = mesh.state / "job.yaml"
        faults = json.dumps([kill.fault() for kill in kills])
        file.write_text(JOB.format(steps=steps, faults=faults),
                        encoding="utf-8")
        self.number = mesh.submit(file)
        self.shown = mesh.finish(self.number)
        self.events = mesh.events(self.number)
        self.kills = kills
        self.logs = logs
        mesh.await_all_idle()
        logs.read()
        self.rounds = logs.applied[self.number]
        for kill in kills:
            self.find_death(kill)
        self.measure_stalls()
        lives = {(life.worker, life.number): life for life in mesh.lives()}
        for kill in kills:
            life = kill.life and lives.get((kill.worker, kill.life.number + 1))
            if life:
                self.find_return(kill, life)

    def events_of(self, kind, worker):
        """(time, text) of each."""
        return [(event["unix_ms"] / 1e3, event["text"]) for event in self.events
                if event["kind"] == kind and f" {worker} " in event["text"]]

    def find_death(self, kill):
        """Fills in what the dead and those who went on say of it."""
        death = self.logs.deaths.get((self.number, kill.worker))
        if death is None:
            kill.why_not = "it was not killed"
            return
        kill.life, fields = death
        # Of the first step from its own on that it serves.
        kill.step = int(fields["step"])
        if fields["phase"] != kill.phase:
            kill.why_not = f"it died {fields['phase']}"
        takeovers = [match[1] for _, text in
                     self.events_of("takeover", kill.worker)
                     if (match := TAKEOVER.match(text)) and
                     match[2] == kill.worker]
        if takeovers != [str(kill.step + 1)]:
            kill.why_not = kill.why_not or f"taken over in steps {takeovers}"

    def measure_stalls(self):
        # When the last one that had a part in the result had applied it.
        ends = {step: max(each.time for each in
                          [each for each in applied if each.used] or applied)
                for step, applied in self.rounds.items()}
        lengths = {step: ends[step] - ends[step - 1]
                   for step in ends if step - 1 in ends}
        if not lengths:
            raise RuntimeError(f"job {self.number} {self.shown['state']}, and no "
                               f"log tells of its rounds: {self.shown['why']}")
        hit = {kill.step + 1 for kill in self.kills}
        self.normal = statistics.median(
            length for step, length in lengths.items() if step not in hit)
        self.longest = max(lengths.values())
        for kill in self.kills:
            if kill.step + 1 in lengths:
                kill.stall_ms = 1e3 * (lengths[kill.step + 1] - self.normal)

    def find_return(self, kill, life):
        """Times of the process that came after the one that was killed."""
        # The event is the same moment, told before it was stored.
        registered = [time for time in (
            *self.logs.registered[kill.worker],
            *(time for time, _ in self.events_of("joining", kill.worker)))
            if time >= life.began]
        if not registered:
            return
        begin = min(registered)
        own = [each.time for applied in self.rounds.values()
               for each in applied if each.life is life and each.used]
        if own:
            kill.registration_to_part = min(own) - begin

    def wrong(self):
        """All that does not hold, whatever was killed."""
        what, shown = f"job {self.number}", self.shown
        for step, applied in sorted(self.rounds.items()):
            states = {each.state for each in applied}
            if len(states) > 1:
                yield f"{what}: {len(states)} states after step {step}"
        if shown["state"] != "succeeded" or shown["step"] != shown["steps"]:
            yield (f"{what} {shown['state']} at step {shown['step']} of "
                   f"{shown['steps']}: {shown['why']}")
        if shown["attempt"] != 1:
            yield f"{what} began again: {shown['attempt']} attempts"
        if shown["skipped_steps"]:
            yield f"{what} left {shown['skipped_steps']} steps out"
        missing = [step for step in range(1, shown["steps"] + 1) if len(
            {each.life.worker for each in self.rounds.get(step, [])}) < 2]
        if missing:
            yield (f"{what}: {len(missing)} steps of which fewer than two "
                   f"members told their state, the first is {missing[0]}")


# --- placing the kills -------------------------------------------------------


class Planner:
    """Kills for job after job, until enough of each phase count."""

    def __init__(self, names, times):
        self.names = names  # by id: names[t % n] serves step t
        self.missing = {phase: times for phase in PHASES}
        self.jobs = 0

    def next(self, gap):
        """The kills of the next job: each worker once at most, since a process
        that comes later than its job is not killed by it."""
        kills, step = [], gap
        for i in range(MEMBERS):
            planned = [kill.phase for kill in kills]
            left = {phase: count - planned.count(phase)
                    for phase, count in self.missing.items()}
            phase = max(PHASES, key=lambda each: left[each])
            if left[phase] <= 0:
                break
            at = (self.jobs + i) % MEMBERS
            step += (at - step) % MEMBERS
            kills.append(Kill(self.names[at], step, phase))
            step += gap
        self.jobs += 1
        return kills, step + gap  # the last one has time to come back, too

    def count(self, kills):
        for kill in kills:
            self.missing[kill.phase] -= not kill.why_not

    def done(self):
        return all(count <= 0 for count in self.missing.values())


def run_jobs(run, mesh):
    logs = Logs(mesh)
    first = Job(mesh, logs, WARM_UP_STEPS, [])
    say(f"a round takes {1e3 * first.normal:.1f} ms (median of "
        f"{WARM_UP_STEPS}), the longest {1e3 * first.longest:.1f}")
    gap = math.ceil((run.pause + CALM_SECONDS) / first.normal)
    # As members of a view are ordered.
    by_id = sorted(mesh.ask("node", "list")["workers"],
                   key=lambda each: each["id"])
    planner = Planner([each["name"] for each in by_id], run.times)
    most = math.ceil(len(PHASES) * run.times / MEMBERS) + MOST_JOBS_EXTRA
    jobs = []
    while not planner.done() and len(jobs) < most:
        kills, steps = planner.next(gap)
        jobs.append(Job(mesh, logs, steps, kills))
        planner.count(kills)
        run.wrong += jobs[-1].wrong()
        show_job(jobs[-1])
    if not planner.done():
        run.wrong.append(f"after {len(jobs)} jobs there were too few kills: "
                         f"{planner.missing} are missing")
    return jobs


# --- what came of it ---------------------------------------------------------


def show_job(job):
    print(f"job {job.number}: {job.shown['steps']} steps, median round "
          f"{1e3 * job.normal:.1f} ms, longest {1e3 * job.longest:.1f} ms")
    for kill in job.kills:
        say(f"  {kill}: stall {kill.stall_ms} ms, back after "
            f"{kill.registration_to_part} s {kill.why_not}")


def judge(run, kills):
    """What is asked of the times."""
    for phase in PHASES:
        stalls = [kill.stall_ms for kill in kills
                  if kill.phase == phase and kill.stall_ms is not None]
        if stalls:
            run.at_most(f"{phase}: the median stall, ms", MOST_STALL_MS,
                        statistics.median(stalls))
        else:
            run.wrong.append(f"{phase}: no stall could be measured")
    for kill in kills:
        back = kill.registration_to_part
        if back is None:
            run.wrong.append(f"{kill}, did not take part again")
        else:
            run.at_most(f"{kill}: seconds from its registration to a part",
                        MOST_RETURN_SECONDS, back)


OPTIONS = {"times": 20, "pause": 2.0}


def main(run):
    # Each round's line has the hash of the state behind it.
    with run.restarting_mesh(MEMBERS, pause=run.pause,
                             log_level="debug") as mesh:
        jobs = run_jobs(run, mesh)
        kills = [kill for job in jobs for kill in job.kills if not kill.why_not]
        judge(run, kills)
    diverged = sum(" states after step " in each for each in run.wrong)
    say(f"{len(kills)} kills, {sum(job.shown['step'] for job in jobs)} rounds, "
        f"{diverged} after which states differed")
