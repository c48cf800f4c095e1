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
- the stall: how much longer than the median one the longest step around the
  loss took;
- how long a process takes from its registration until it is a member.

Times are those of the coordinator's events and records.
"""

import json
import math
import statistics
import time
from collections import defaultdict
from typing import NamedTuple, Optional

from kills.coordinator import longest_gap
from nightly import gaps_of, say, step_seconds

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
AROUND_SECONDS = 1

# A part of a batch is one micro-batch, so that a round takes tens of ms with
# five processes on two cores.
JOB = ("deploy/jobs/data-parallel.yaml", "train.batch=160",
       "train.micro_batch=32", "train.evaluate_every=0",
       f"aggregation.members={MEMBERS}")


class Kill(NamedTuple):
    """One death on purpose, as the job's file has it, and what came of it."""
    worker: str
    phase: str
    step: int  # updates done before
    stall_ms: Optional[float] = None
    return_seconds: Optional[float] = None

    def __str__(self):
        return f"{self.worker}, killed {self.phase} in step {self.step + 1}"

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
        if lost := self.event("lost", f"member {kill.worker} lost"):
            at = lost["unix_ms"] / 1e3
            longest = longest_gap(gaps_of(self.shown), at - AROUND_SECONDS,
                                  at + AROUND_SECONDS)
            if longest is not None:
                kill = kill._replace(stall_ms=1e3 * (longest - self.normal))
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
            if kill.stall_ms is None or kill.return_seconds is None:
                yield f"{what}: {kill}, was not lost, or did not come back"

    def show(self):
        say(f"job {self.number}: {self.shown['steps']} steps, median round "
            f"{1e3 * self.normal:.1f} ms")
        for kill in self.kills:
            say(f"  {kill}: stall {kill.stall_ms} ms, back after "
                f"{kill.return_seconds} s")


def kills_of(names, turn, gap):
    """One in each phase, each of another worker, since a process that comes
    later than its job is not killed by it.  names: by id, as members of a view
    are ordered: names[t % n] serves step t."""
    kills = []
    for i, phase in enumerate(PHASES):
        at, step = (turn + i) % MEMBERS, gap * (i + 1)
        kills.append(Kill(names[at], phase, step + (at - step) % MEMBERS))
    return kills


def judge(run, kills):
    """What is asked of the times."""
    for phase in PHASES:
        stalls = [kill.stall_ms for kill in kills
                  if kill.phase == phase and kill.stall_ms is not None]
        if stalls:
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
        names = [each["name"] for each in sorted(
            mesh.ask("node", "list")["workers"], key=lambda each: each["id"])]
        kills = []
        for turn in range(run.times):
            mesh.await_all_idle()
            job = Job(mesh, steps, kills_of(names, turn, steps // parts))
            job.show()
            run.wrong += job.wrong()
            kills += job.kills
    judge(run, kills)
    say(f"{len(kills)} kills")
