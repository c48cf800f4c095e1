#!/usr/bin/env python3
"""Predicted against measured step time, on emulated machines.

  bed_prediction.py --bin build/release/bin [--steps 40] [--cells PATTERN]
                    [--tries 3] [--nodes 4] [--within SECONDS] [--name NAME]

Brings a bed up (deploy/testbed.sh, needs root), and for each model with 1 to 4
stages and both schedules profiles the model there and trains it; then all of it
again with one slow machine.  A cell is the median of some tries, each with a
profile of its own: that is what a prediction is off by, the profile's luck too.
The box may be shared, and its speed changes: a try counts when a fixed loop ran
as fast while it trained as while the profile was taken.  Prints a table; exits 1
when a prediction is off by more than a tenth, 77 when nothing can be said: there
cannot be a bed (not root), or the box did not keep its speed for long enough,
at most --within seconds a bed and model.
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
MOST_ROUNDS = 20

# model -> job file; the micro-batch is the file's own.
MODELS = {"lenet": ROOT / "deploy/jobs/fashion-mnist.yaml",
          "vit": ROOT / "deploy/jobs/vit-small.yaml"}
MICRO_BATCH = 32
SLOW_NODE = 3


def profile(bed, model, nodes):
    """One node after the other: what shares this box must not disturb them."""
    name, sets = model_settings(MODELS[model])
    for node in range(1, nodes + 1):
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


class Rounds:
    """On one bed: the profile of a model, then each of its cells that has not
    enough tries yet once, and again."""

    def __init__(self, bed, box, arguments):
        self.bed = bed
        self.box = box
        self.nodes = arguments.nodes
        self.steps = arguments.steps
        self.within = arguments.within

    def run(self, model, cells, count):
        """cell -> its tries, (predicted, measured) seconds of a step; fewer
        than `count` where the box does not keep its speed."""
        tries = {cell: [] for cell in cells}
        first = time.monotonic()
        for _ in range(MOST_ROUNDS):
            missing = [cell for cell in cells if len(tries[cell]) < count]
            begin = time.monotonic()
            if not missing or begin - first > self.within:
                break
            profile(self.bed, model, self.nodes)
            profiled = self.box.since(begin)
            if not profiled.is_steady():
                print(f"box: loops spread {profiled.spread:.1%} while the "
                      "profile was taken", file=sys.stderr)
                continue
            for cell in missing:
                begin = time.monotonic()
                step = train(self.bed, *cell, self.steps)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=NODES,
                        help="machines of a bed")
    parser.add_argument("--within", type=float, default=3600,
                        help="seconds for the tries of a model on a bed")
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
        with Bed(arguments.name + bed_name, arguments.bin, more,
                 nodes=arguments.nodes) as bed, \
                BoxSpeed() as box:
            rounds = Rounds(bed, box, arguments)
            for model in MODELS:
                of_model = [cell for cell in cells if cell[0] == model]
                for cell, tries in rounds.run(model, of_model,
                                              arguments.tries).items():
                    count += 1
                    name = f"{bed_name}/{'/'.join(map(str, cell))}"
                    if len(tries) < arguments.tries:
                        unsteady += 1
                        print(f"{name:24} the box did not keep its speed",
                              flush=True)
                        continue
                    predicted, measured = middle(tries)
                    off = off_by(middle(tries))
                    worst = max(worst, abs(off))
                    missed += abs(off) > MOST_OFF
                    each = " ".join(f"{off_by(step):+.1%}" for step in tries)
                    print(f"{name:24} {predicted * 1e3:8.1f}ms "
                          f"{measured * 1e3:8.1f}ms {off:+6.1%}  ({each})",
                          flush=True)
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
