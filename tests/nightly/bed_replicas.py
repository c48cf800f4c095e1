#!/usr/bin/env python3
"""Stages of several workers that train, on emulated machines.

  bed_replicas.py --bin build/release/bin [--part NAME]... [--turns 3]
                  [--name NAME]

Parts:
  front  a VGG-16 of small pictures, whose front computes most: the planner's
         plan with replicas beside the best one without
  half   the same where one replica's machine is half as fast: the planner's
         shares beside equal ones

Four machines of 0.4 core, links of 1 Gbit/s.  A turn is a profile and the two jobs
of a part; which is first alternates.  The median of the turns' ratios counts.  Prints what must be
reached beside what was; exits 1 when something was not, 77 where there cannot be
a bed (not root).
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from bed import NODES, ROOT, SKIPPED, Bed
from bed_speed import Report
from ddp_beside import job_seconds

JOB = """
data: {{name: synthetic, shape: [3, 64, 64], classes: 10, train_samples: 4096}}
train:
  {{steps: {steps}, batch: {batch}, micro_batch: 32, evaluate_every: 0,
   optimizer: {{name: sgd, momentum: 0.9}}, learning_rate: {{base: 0.01}}}}
model: {{name: vgg16, width: 8}}
pipeline: {{{pipeline}}}
"""
REPLICAS = "replicate: allowed"
SLOW = 2


class Place:
    """A bed with the folder of its job files."""

    def __init__(self, bed, folder, steps, batch):
        self.bed = bed
        self.folder = Path(folder)
        self.steps = steps
        self.batch = batch

    def file(self, pipeline):
        file = self.folder / "bed_replicas.yaml"
        file.write_text(JOB.format(steps=self.steps, batch=self.batch,
                                   pipeline=pipeline), encoding="utf-8")
        return str(file)

    def profile(self):
        """One node after the other: what shares this box must not disturb
        them."""
        for node in range(1, NODES + 1):
            self.bed.json("profile", "-f", self.file(""), "--worker",
                          f"node-{node}")

    def stages(self, pipeline):
        """The plan's: (first layer, worker, share) of each replica."""
        shown = self.bed.json("job", "submit", "--dry-run",
                              self.file(pipeline))
        return [(stage["first_layer"], stage["worker"], stage["share"])
                for stage in shown["stages"]]

    def compare(self, what, slow, fast, turns):
        """The turns' ratios, and the faster job's measured / predicted."""
        ratios, predictions = [], []
        for turn in range(turns):
            if turn > 0:
                self.profile()
            seconds = {}
            for pipeline in (slow, fast) if turn % 2 else (fast, slow):
                seconds[pipeline], predicted = job_seconds(
                    self.bed.json, self.file(pipeline))
                print(f"{what}: {pipeline or 'as it is'}: a step takes "
                      f"{seconds[pipeline]:.3f} s, predicted {predicted:.3f}",
                      flush=True)
                if pipeline == fast:
                    predictions.append(seconds[pipeline] / predicted)
            ratios.append(seconds[slow] / seconds[fast])
        return statistics.median(ratios), statistics.median(predictions)


def front(place, turns, report):
    print(f"front: the plan is {place.stages(REPLICAS)}", flush=True)
    ratio, off = place.compare("front", "", REPLICAS, turns)
    report.at_least("heavy front: as fast as the best without replicas", 1.15,
                    ratio)
    report.at_most("heavy front: measured / predicted", 1.10, off)
    report.at_least("heavy front: measured / predicted", 0.90, off)


def layout_of(stages, shares):
    """The keys of a job whose one stage these workers hold."""
    keys = (f"stages: 1, replicas: [{len(stages)}], "
            f"workers: [{', '.join(worker for _, worker, _ in stages)}]")
    if not shares:
        return keys
    return f"{keys}, shares: {[share for _, _, share in stages]}"


def half(place, turns, report):
    stages = place.stages("stages: 1, " + REPLICAS)
    print(f"half: the plan is {stages}", flush=True)
    ratio, _ = place.compare("half", layout_of(stages, False),
                             layout_of(stages, True), turns)
    report.at_least("a replica half as fast: as fast as with equal shares",
                    1.25, ratio)


# What a bed is made with, the steps of a job, samples of a step, and what is done
# there.  Of equal shares each replica has as many micro-batches of a step.
PARTS = {"front": ((), 24, 288, front),
         "half": (("--cpu-of", f"{SLOW}=0.2"), 8, 512, half)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--name", default="replicas")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: a bed needs root", file=sys.stderr)
        return SKIPPED
    report = Report()
    for name in arguments.part or PARTS:
        more, steps, batch, part = PARTS[name]
        with Bed(arguments.name, arguments.bin, more) as bed, \
                tempfile.TemporaryDirectory() as folder:
            place = Place(bed, folder, steps, batch)
            place.profile()
            part(place, arguments.turns, report)
    return 0 if report.print() else 1


if __name__ == "__main__":
    sys.exit(main())
