"""What a job's events and curve tell of a recovery: when a loss was seen, when
the next attempt took its first step, how many steps were run again."""

import itertools
import re
import time
from typing import NamedTuple, Optional

from nightly import curve_of, median_and_most, say, step_seconds

BEGINS = re.compile(r"attempt (\d+) begins from (?:step (\d+)|the beginning)")
REPLAYED = re.compile(r"has run (\d+) steps? again")
# The coordinator's clock and the script's are the same one, read twice.
SLACK_SECONDS = 0.003


class Undisturbed:
    """A job as it is when nothing happens."""

    def __init__(self, mesh, job):
        self.job = job
        begin = time.monotonic()
        self.shown = mesh.train(*job)
        self.seconds = time.monotonic() - begin
        self.weights = self.shown["weights_sha256"]
        self.steps = self.shown["steps"]
        self.step_seconds = (step_seconds(self.shown) if self.shown["loss"]
                             else None)


class Recovery(NamedTuple):
    """Times are seconds from the loss on, and None where nothing tells them."""
    kind: str
    detected: Optional[float] = None    # the coordinator's first event
    first_step: Optional[float] = None  # the new attempt's first step is done
    replayed: Optional[int] = None  # steps that the job ran again, as it says
    replay: Optional[float] = None  # seconds that these took

    def __str__(self):
        if self.first_step is None:
            return "no step tells how it went on"
        return (f"seen after {self.detected:.3f} s, first step after "
                f"{self.first_step:.2f} s, {self.replayed} steps again in "
                f"{self.replay:.2f} s")


def recovery_of(kind, document, events, lost_at, normal, until=float("inf")):
    """One recovery of a job that has ended.

    lost_at: when a worker was killed, or the first of several.
    until: when the next one was, which belongs to another recovery.  So does a
    move to a better plan, which may follow when the worker is back.
    normal: seconds of a step of the undisturbed job.
    """
    own = [event for event in events
           if lost_at - SLACK_SECONDS <= event["unix_ms"] / 1e3 < until]
    own = list(itertools.takewhile(lambda event: event["kind"] != "move", own))
    seen = [event["unix_ms"] / 1e3 - lost_at for event in own
            if event["kind"] in ("lost", "left")]
    detected = max(0.0, seen[0]) if seen else None
    begun = [event for event in own if event["kind"] == "attempt"]
    if not begun:
        return Recovery(kind, detected)
    base = int(BEGINS.search(begun[-1]["text"])[2] or 0)
    times = curve_of(document)
    first = times.get(base + 1)
    counts = [int(REPLAYED.search(event["text"])[1]) for event in own
              if event["kind"] == "replayed"]
    if first is None or first < lost_at or not counts:
        return Recovery(kind, detected)
    replayed = sum(counts)
    last = times.get(base + replayed)
    replay = last - first + normal if replayed and last else 0.0
    return Recovery(kind, detected, first - lost_at, replayed, replay)


def show(recoveries):
    """A line for each kind."""
    width = max([len(each.kind) for each in recoveries] + [4])
    print(f"\n{'kind':{width}}{'runs':>6}  {'detected s':^16}  "
          f"{'first step s':^16}  {'replayed steps':^16}  {'replay s':^16}")
    print(" " * (width + 6) + f"  {'median':>8}{'most':>8}" * 4)
    for kind in dict.fromkeys(each.kind for each in recoveries):
        own = [each for each in recoveries if each.kind == kind]
        columns = (median_and_most([getattr(each, name) for each in own], digits)
                   for name, digits in (("detected", 3), ("first_step", 2),
                                        ("replayed", 0), ("replay", 2)))
        say(f"{kind:{width}}{len(own):6}  {'  '.join(columns)}")
