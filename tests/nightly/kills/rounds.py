"""The server of a round is killed, again and again: training does not stop.

Five workers train LeNet on Fashion-MNIST as one group.  The `faults` of a job
kill -9 the worker that serves a step in each phase, one after the other:
computing, gathering, spreading, committing (between the hold of all and
anybody's commit); so in --times jobs.  It is started again after --pause
seconds, by default those of the systemd unit.

What is shown, beside what is asked:
- every job ends, in its first attempt, without a step that is left out;
- no two members ever tell different states of one step, also the one that came
  back: a state that differs once differs until the end;
- the stall: how much later than at the job's median pace the step was done that
  follows the one that was hit, so that the group went on as before;
- how long a process takes from its registration until it is a member.

Times are those of the coordinator's events and records.
"""

import json
import math
import re
import statistics
import time
from collections import Counter, defaultdict
from typing import NamedTuple, Optional

from nightly import curve_of, say, step_seconds

MEMBERS = 5
PHASES = ("computing", "gathering", "spreading", "committing")
MOST_STALL_MS = 300       # median
MOST_RETURN_SECONDS = 2   # each
WARM_UP_STEPS = 150
# From a kill to the next one, beyond the pause before the restart: an exec, a
# registration, a copy of the state, and rounds without anything.
CALM_SECONDS = 4
# The whole curve is shown of so many (client/README.md).
MOST_STEPS = 1000
LOOK_SECONDS = 0.1
# Since a step whose server is killed may be done without a takeover.
MOST_JOBS_EXTRA = 4

# A part of a batch is one micro-batch, so that a round takes tens of ms with
# five processes on two cores.
JOB = ("deploy/jobs/data-parallel.yaml", "train.batch=160",
       "train.micro_batch=32", "train.evaluate_every=0",
       f"aggregation.members={MEMBERS}")


class Kill(NamedTuple):
    """One death on purpose, as the job's file has it, and what came of it."""
    worker: str
    phase: str
    step: int  # of the first step from here on that it serves
    stall_ms: Optional[float] = None  # where the step was taken over
    return_seconds: Optional[float] = None

    def __str__(self):
        return f"{self.worker}, killed {self.phase} from step {self.step} on"

    def fault(self):
        return {"worker": self.worker, "step": self.step, "kind": "kill",
                "phase": self.phase}


class Job:
    """A job that has ended, with its kills, and what is told of it."""

    def __init__(self, mesh, steps, kills):
        faults = json.dumps([kill.fault() for kill in kills])
        self.number = mesh.submit(*JOB, f"train.steps={steps}",
                                  f"faults={faults}")
        self.states = defaultdict(set)  # by step
        self.shown = self.look(mesh)
        while self.shown["state"] in ("queued", "running"):
            time.sleep(LOOK_SECONDS)
            self.shown = self.look(mesh)
        self.events = mesh.events(self.number)
        self.normal = step_seconds(self.shown)
        self.kills = [self.measured(kill) for kill in kills]

    def look(self, mesh):
        shown = mesh.show(self.number)
        for worker in shown["workers"]:
            if (member := worker["member"]) and member["state_step"]:
                self.states[member["state_step"]].add(member["state_hash"])
        return shown

    def measured(self, kill):
        begins = self.event("joining", f"worker {kill.worker} ")
        ends = self.event("joined", f"worker {kill.worker} ")
        if begins and ends:
            kill = kill._replace(
                return_seconds=(ends["unix_ms"] - begins["unix_ms"]) / 1e3)
        if lost := self.event("takeover", f"server {kill.worker} lost, "):
            hit = int(re.match(r"step (\d+):", lost["text"])[1])
            times = curve_of(self.shown)
            took = times[hit + 1] - times[hit - 1] - 2 * self.normal
            kill = kill._replace(stall_ms=1e3 * took)
        return kill

    def event(self, kind, text):
        """The first one; no worker is killed twice in a job."""
        return next((event for event in self.events
                     if event["kind"] == kind and text in event["text"]), None)

    def wrong(self):
        """All that does not hold, whatever was killed."""
        what, shown = f"job {self.number}", self.shown
        for step, states in sorted(self.states.items()):
            if len(states) > 1:
                yield f"{what}: {len(states)} states after step {step}"
        if len(self.states) < 2 * MEMBERS:
            yield f"{what}: its states were seen {len(self.states)} times"
        if shown["state"] != "succeeded" or shown["step"] != shown["steps"]:
            yield (f"{what} {shown['state']} at step {shown['step']} of "
                   f"{shown['steps']}: {shown['why']}")
        if shown["attempt"] != 1:
            yield f"{what} began again: {shown['attempt']} attempts"
        if shown["skipped_steps"]:
            yield f"{what} left {shown['skipped_steps']} steps out"
        for kill in self.kills:
            if kill.return_seconds is None:
                yield f"{what}: {kill}, did not come back"

    def show(self):
        say(f"job {self.number}: {self.shown['steps']} steps, median round "
            f"{1e3 * self.normal:.1f} ms")
        for kill in self.kills:
            say(f"  {kill}: stall {kill.stall_ms} ms, back after "
                f"{kill.return_seconds} s")


def kills_of(names, turn, gap):
    """One in each phase, each of another worker, since a process that comes
    later than its job is not killed by it."""
    return [Kill(names[(turn + i) % MEMBERS], phase, gap * (i + 1))
            for i, phase in enumerate(PHASES)]


def judge(run, kills):
    """What is asked of the times."""
    for phase in PHASES:
        stalls = [kill.stall_ms for kill in kills
                  if kill.phase == phase and kill.stall_ms is not None]
        if len(stalls) < run.times:
            run.wrong.append(f"{phase}: {len(stalls)} steps were taken over")
        else:
            run.at_most(f"{phase}: the median stall, ms", MOST_STALL_MS,
                        statistics.median(stalls))
    for kill in kills:
        if kill.return_seconds is not None:
            run.at_most(f"{kill}: seconds from its registration to membership",
                        MOST_RETURN_SECONDS, kill.return_seconds)


OPTIONS = {"times": 20, "pause": 2.0}


def main(run):
    with run.restarting_mesh(MEMBERS, pause=run.pause) as mesh:
        first = Job(mesh, WARM_UP_STEPS, [])
        first.show()
        # The last one has time to come back, too.
        parts = len(PHASES) + 1
        steps = min(MOST_STEPS, parts * math.ceil(
            (run.pause + CALM_SECONDS) / first.normal))
        names = [f"w{i}" for i in range(1, MEMBERS + 1)]
        kills, missing = [], Counter(dict.fromkeys(PHASES, run.times))
        for turn in range(run.times + MOST_JOBS_EXTRA):
            if not +missing:
                break
            mesh.await_all_idle()
            job = Job(mesh, steps, kills_of(names, turn, steps // parts))
            job.show()
            run.wrong += job.wrong()
            kills += job.kills
            missing.subtract(kill.phase for kill in job.kills
                             if kill.stall_ms is not None)
    judge(run, kills)
    say(f"{len(kills)} kills")
