#!/usr/bin/env python3
"""Predicted against measured step time, on emulated machines.

  bed_prediction.py --bin build/release/bin [--steps 40] [--cells PATTERN]
                    [--tries 3] [--name NAME]

Brings a bed up (deploy/testbed.sh, needs root), and for each model with 1 to 4
stages and both schedules profiles the model there and trains it; then all of it
again with one slow machine.  A cell is the median of some tries.  The box may
be shared, and its speed changes: a try counts when a fixed loop ran as fast
while it trained as while the profile was taken; else a new profile is taken and
it is tried again.  Prints a table; exits 1 when a prediction is off by more
than a tenth, 77 when nothing can be said: there cannot be a bed (not root), or
the box did not keep its speed for long enough.
"""

import argparse
import fnmatch
import os
import sys
import time

from bed import NODES, ROOT, SKIPPED, Bed
from box_speed import BoxSpeed

MOST_OFF = 0.10
MOST_DRIFT = 0.04  # of the box between profile and try
MOST_PROFILES = 6  # for one cell

# model -> job file; the micro-batch is the file's own.
MODELS = {"lenet": ROOT / "deploy/jobs/fashion-mnist.yaml",
          "vit": ROOT / "deploy/jobs/vit-small.yaml"}
MICRO_BATCH = 32
SLOW_NODE = 3


def profile(bed, model):
    """One node after the other: what shares this box must not disturb them."""
    name, sets = model_settings(MODELS[model])
    for node in range(1, NODES + 1):
        bed.json("profile", "--model", name, "--batch", str(MICRO_BATCH),
                 "--worker", f"node-{node}", *sets)


def model_settings(job_file):
    """The model's name and its --set options, as the job file has them."""
    name, sets, section = "", [], ""
    for line in job_file.read_text(encoding="utf-8").splitlines():
        text = line.split("#")[0].rstrip()
        if not text:
            continue
        if not text.startswith(" "):
            section = text.rstrip(":")
            continue
        key, value = (part.strip() for part in text.split(":", 1))
        if section == "model" and key == "name":
            name = value
        elif section == "model":
            sets += ["--set", f"model.{key}={value}"]
        elif section == "optimizer":
            sets += ["--set", f"train.optimizer.{key}={value}"]
    return name, sets


def train(bed, model, stages, schedule, steps):
    """Predicted and measured seconds of a step."""
    job = bed.json("job", "submit", str(MODELS[model]),
                   "--set", f"pipeline.stages={stages}",
                   "--set", f"pipeline.schedule={schedule}",
                   "--set", f"train.steps={steps}",
                   "--set", "train.evaluate_every=0")
    return job["predicted_step_seconds"], job["measured_step_seconds"]


class Tries:
    """Tries on one bed, with a profile of each model that holds."""

    def __init__(self, bed, box, steps):
        self.bed = bed
        self.box = box
        self.steps = steps
        self.speed_of = {}  # model -> the box's, while it was profiled

    def profile(self, model):
        """False when the box changed its speed meanwhile."""
        begin = time.monotonic()
        profile(self.bed, model)
        speed = self.box.since(begin)
        if speed.is_steady():
            self.speed_of[model] = speed.mean
        return speed.is_steady()

    def is_valid(self, model, begin):
        """Whether the box kept its speed in a try since `begin`."""
        speed = self.box.since(begin)
        drift = speed.mean / self.speed_of[model] - 1
        if speed.is_steady() and abs(drift) <= MOST_DRIFT:
            return True
        print(f"box: loops take {drift:+.1%} of the profile's, spread "
              f"{speed.spread:.1%}", file=sys.stderr)
        return False

    def run(self, cell, count):
        """The one of `count` tries whose deviation is the median; None when
        the box does not keep its speed."""
        model = cell[0]
        tries = []
        for _ in range(MOST_PROFILES):
            if model not in self.speed_of and not self.profile(model):
                continue
            while model in self.speed_of and len(tries) < count:
                begin = time.monotonic()
                step = train(self.bed, *cell, self.steps)
                if self.is_valid(model, begin):
                    tries.append(step)
                else:
                    del self.speed_of[model]
            if len(tries) == count:
                tries.sort(key=lambda each: each[0] / each[1])
                return tries[count // 2]
        return None


def cells_of(bed_name, pattern):
    cells = [(model, stages, schedule)
             for model in MODELS for stages in (1, 2, 3, 4)
             for schedule in ("gpipe", "1f1b")]
    return [cell for cell in cells if fnmatch.fnmatch(
        f"{bed_name}/{'/'.join(map(str, cell))}", pattern)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--name", default="p", help="begins the beds' names")
    parser.add_argument("--cells", default="*",
                        help="as in 'even/vit/4/1f1b' or '*/lenet/*'")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root: an emulated machine is a network namespace and a "
              "cgroup; skipped")
        return SKIPPED

    worst, missed, unsteady, count = 0.0, 0, 0, 0
    print(f"{'cell':24} {'predicted':>10} {'measured':>10} {'off':>7}")
    for bed_name, more in (
            ("even", ()), ("slow", ("--cpu-of", f"{SLOW_NODE}=0.2"))):
        cells = cells_of(bed_name, arguments.cells)
        if not cells:
            continue
        with Bed(arguments.name + bed_name, arguments.bin, more) as bed, \
                BoxSpeed() as box:
            tries = Tries(bed, box, arguments.steps)
            for cell in cells:
                step = tries.run(cell, arguments.tries)
                count += 1
                name = f"{bed_name}/{'/'.join(map(str, cell))}"
                if step is None:
                    unsteady += 1
                    print(f"{name:24} the box did not keep its speed",
                          flush=True)
                    continue
                predicted, measured = step
                off = predicted / measured - 1
                worst = max(worst, abs(off))
                missed += abs(off) > MOST_OFF
                print(f"{name:24} {predicted * 1e3:8.1f}ms "
                      f"{measured * 1e3:8.1f}ms {off:+6.1%}", flush=True)
    print(f"worst {worst:.1%}, {missed} of {count} missed (at most "
          f"{MOST_OFF:.0%} each), {unsteady} not measured")
    if count == 0:
        print(f"no cell is called {arguments.cells}", file=sys.stderr)
        return 2
    if missed:
        return 1
    return SKIPPED if unsteady else 0


if __name__ == "__main__":
    sys.exit(main())
