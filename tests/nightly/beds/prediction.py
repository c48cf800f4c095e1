"""Predicted against measured step time, on emulated machines.

Brings a bed up, and for each model with 1 to 4 stages and both schedules
profiles the model there and trains it; then all of it again with one slow
machine.  A cell is the median of some tries, each with a profile of its own:
that is what a prediction is off by, the profile's luck too.  The box may be
shared, and its speed changes: a try counts when a fixed loop ran as fast while
it trained as while the profile was taken.  A prediction may be off by a tenth.
Exits 77 when the box did not keep its speed for long enough, at most --within
seconds a bed and model.

--cells chooses: even/vit/4/1f1b, */lenet/*.  --name begins the beds' names.
"""

import fnmatch
import statistics
import sys
import threading
import time

from bed import NODES, ROOT
from nightly import Skip, say

OPTIONS = {"steps": 40, "tries": 3, "nodes": NODES, "within": 3600.0,
           "name": "p", "cells": "*"}
PERIOD_SECONDS = 0.05
WARM_LOOP = 10_000
LOOP = 40_000  # about 1 ms: two percent of a core
MOST_OFF = 0.10
MOST_DRIFT = 0.04  # of the box between profile and try
MOST_ROUNDS = 20

# model -> job file
MODELS = {"lenet": ROOT / "deploy/jobs/fashion-mnist.yaml",
          "vit": ROOT / "deploy/jobs/vit-small.yaml"}
SLOW_NODE = 3


def loop_seconds(count):
    """CPU seconds of a fixed piece of work on this thread."""
    begin = time.thread_time_ns()
    total = 0
    for i in range(count):
        total += i * i
    return (time.thread_time_ns() - begin) * 1e-9


class Speed:
    """Of the box in some stretch of time."""

    def __init__(self, samples):
        ordered = sorted(samples)
        self.mean = statistics.mean(ordered)
        tenth = len(ordered) // 10
        # What nine in ten loops lie within, as a part of them.
        self.spread = (ordered[-1 - tenth] - ordered[tenth]) / self.mean

    def is_steady(self):
        return self.spread < 0.25


class BoxSpeed:
    """Times the same loop again and again on a thread; a context manager.  A
    virtual machine slows down by half when somebody else's work comes to the
    other thread of its core, and says nothing of it."""

    def __init__(self):
        self._samples = []  # (monotonic time, CPU seconds)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        while not self._ended.wait(PERIOD_SECONDS):
            loop_seconds(WARM_LOOP)
            self._samples.append((time.monotonic(), loop_seconds(LOOP)))

    def since(self, begin):
        """The Speed since time.monotonic() was `begin`."""
        return Speed([seconds for at, seconds in self._samples if at >= begin]
                     or [loop_seconds(LOOP)])


def profile(bed, model, nodes):
    """One node after the other: what shares this box must not disturb them."""
    for node in range(1, nodes + 1):
        bed.ask("profile", "-f", MODELS[model], "--worker", f"node-{node}")


def train(bed, model, stages, schedule, steps):
    """Predicted and measured seconds of a step."""
    job = bed.train(MODELS[model], f"pipeline.stages={stages}",
                    f"pipeline.schedule={schedule}", f"train.steps={steps}",
                    "train.evaluate_every=0")
    return job["predicted_step_seconds"], job["measured_step_seconds"]


class Rounds:
    """On one bed: the profile of a model, then each of its cells that has not
    enough tries yet once, and again."""

    def __init__(self, run, bed, box):
        self.bed = bed
        self.box = box
        self.asked = run

    def run(self, model, cells):
        """cell -> its tries, (predicted, measured) seconds of a step; fewer
        than asked where the box does not keep its speed."""
        tries = {cell: [] for cell in cells}
        first = time.monotonic()
        for _ in range(MOST_ROUNDS):
            missing = [cell for cell in cells
                       if len(tries[cell]) < self.asked.tries]
            begin = time.monotonic()
            if not missing or begin - first > self.asked.within:
                break
            profile(self.bed, model, self.asked.nodes)
            profiled = self.box.since(begin)
            if not profiled.is_steady():
                print(f"box: loops spread {profiled.spread:.1%} while the "
                      "profile was taken", file=sys.stderr)
                continue
            for cell in missing:
                begin = time.monotonic()
                step = train(self.bed, *cell, self.asked.steps)
                if self._is_valid(profiled, begin):
                    tries[cell].append(step)
        return tries

    def _is_valid(self, profiled, begin):
        """Whether the box kept the speed it was profiled with since `begin`."""
        speed = self.box.since(begin)
        drift = speed.mean / profiled.mean - 1
        if speed.is_steady() and abs(drift) <= MOST_DRIFT:
            return True
        print(f"box: loops take {drift:+.1%} of the profile's, spread "
              f"{speed.spread:.1%}", file=sys.stderr)
        return False


def off_by(step):
    predicted, measured = step
    return predicted / measured - 1


def middle(tries):
    """The try whose deviation is the median."""
    return sorted(tries, key=off_by)[len(tries) // 2]


def cells_of(bed_name, pattern):
    cells = [(model, stages, schedule)
             for model in MODELS for stages in (1, 2, 3, 4)
             for schedule in ("gpipe", "1f1b")]
    return [cell for cell in cells if fnmatch.fnmatch(
        f"{bed_name}/{'/'.join(map(str, cell))}", pattern)]


def show(run, name, tries):
    """Whether the box kept its speed for long enough."""
    if len(tries) < run.tries:
        say(f"{name:24} the box did not keep its speed")
        return False
    predicted, measured = middle(tries)
    off = off_by(middle(tries))
    each = " ".join(f"{off_by(step):+.1%}" for step in tries)
    say(f"{name:24} {predicted * 1e3:8.1f}ms {measured * 1e3:8.1f}ms "
        f"{off:+6.1%}  ({each})")
    run.at_most(f"{name}: off by", MOST_OFF, abs(off))
    return True


def main(run):
    run.needs(root=True)
    steady, prefix = [], run.name
    print(f"{'cell':24} {'predicted':>10} {'measured':>10} {'off':>7}")
    for bed_name, more in (
            ("even", ()), ("slow", ("--cpu-of", f"{SLOW_NODE}=0.2"))):
        cells = cells_of(bed_name, run.cells)
        if not cells:
            continue
        run.name = prefix + bed_name
        with run.bed(*more, nodes=run.nodes) as bed, BoxSpeed() as box:
            rounds = Rounds(run, bed, box)
            for model in MODELS:
                of_model = [cell for cell in cells if cell[0] == model]
                for cell, tries in rounds.run(model, of_model).items():
                    steady.append(show(
                        run, f"{bed_name}/{'/'.join(map(str, cell))}", tries))
    if not steady:
        run.wrong.append(f"no cell is called {run.cells}")
    if not all(steady):
        raise Skip(f"{steady.count(False)} of {len(steady)} cells: the box did "
                   "not keep its speed")
