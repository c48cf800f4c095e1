"""Predicted against measured step time, on emulated machines.

Brings a bed up, and for each model with 1 to 4 stages and both schedules
profiles the model there and trains it; then all of it again with one slow
machine.  A cell is the median of some tries, each with a profile of its own:
that is what a prediction is off by, the profile's luck too.  The box may be
shared, and its speed changes: a try counts when a fixed loop ran as fast before
the profile, before the try and after it.  A prediction may be off by a tenth.
Exits 77 when the box did not keep its speed for long enough, at most --within
seconds a bed and model.

--cells chooses: even/vit/4/1f1b, */lenet/*.  --name begins the beds' names.
"""

import fnmatch
import statistics
import sys
import time

from bed import NODES, ROOT
from nightly import Skip, say

OPTIONS = {"steps": 40, "tries": 3, "nodes": NODES, "within": 3600.0,
           "name": "p", "cells": "*"}
LOOP = 40_000  # about 1 ms
TURNS = 200
MOST_OFF = 0.10
MOST_DRIFT = 0.04  # of the box, from the profile to the try's end
MOST_ROUNDS = 20

# model -> job file
MODELS = {"lenet": ROOT / "deploy/jobs/fashion-mnist.yaml",
          "vit": ROOT / "deploy/jobs/vit-small.yaml"}
SLOW_NODE = 3


def loop_seconds():
    """CPU seconds of a fixed piece of work, the median of some turns.  A
    virtual machine slows down by half when somebody else's work comes to the
    other thread of its core, and says nothing of it."""
    def turn():
        begin = time.thread_time_ns()
        total = 0
        for i in range(LOOP):
            total += i * i
        return (time.thread_time_ns() - begin) * 1e-9
    return statistics.median(turn() for _ in range(TURNS))


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


def tries_of(run, bed, model, cells):
    """cell -> its tries, (predicted, measured) seconds of a step; fewer than
    asked where the box does not keep its speed.  After each profile each cell
    that has not enough tries yet is trained once."""
    tries = {cell: [] for cell in cells}
    first = time.monotonic()
    for _ in range(MOST_ROUNDS):
        missing = [cell for cell in cells if len(tries[cell]) < run.tries]
        if not missing or time.monotonic() - first > run.within:
            break
        unprofiled = loop_seconds()
        profile(bed, model, run.nodes)
        for cell in missing:
            profiled = loop_seconds()
            step = train(bed, *cell, run.steps)
            speeds = unprofiled, profiled, loop_seconds()
            drift = max(speeds) / min(speeds) - 1
            if drift <= MOST_DRIFT:
                tries[cell].append(step)
            else:
                print(f"box: loops differ by {drift:.1%}", file=sys.stderr)
    return tries


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
        with run.bed(*more, nodes=run.nodes) as bed:
            for model in MODELS:
                of_model = [cell for cell in cells if cell[0] == model]
                for cell, tries in tries_of(run, bed, model, of_model).items():
                    steady.append(show(
                        run, f"{bed_name}/{'/'.join(map(str, cell))}", tries))
    if not steady:
        run.wrong.append(f"no cell is called {run.cells}")
    if not all(steady):
        raise Skip(f"{steady.count(False)} of {len(steady)} cells: the box did "
                   "not keep its speed")
