"""Stages of several workers that train, on emulated machines.

Parts:
  front  a VGG-16 of small pictures, whose front computes most: the planner's
         plan with replicas beside the best one without
  half   the same where one replica's machine is half as fast: the planner's
         shares beside equal ones

Four machines of 0.4 core, links of 1 Gbit/s.  A turn is a profile and the two
jobs of a part; which is first alternates.  The median of the turns' ratios
counts.
"""

import statistics
import tempfile
from pathlib import Path

from bed import NODES
from nightly import middle_step_seconds, say

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

    def __init__(self, run, bed, folder, steps, batch):
        self.run = run
        self.bed = bed
        self.folder = Path(folder)
        self.steps = steps
        self.batch = batch

    def file(self, pipeline):
        file = self.folder / "bed_replicas.yaml"
        file.write_text(JOB.format(steps=self.steps, batch=self.batch,
                                   pipeline=pipeline), encoding="utf-8")
        return str(file)

    def profile(self, turn=1):
        """One node after the other: what shares this box must not disturb
        them.  The first turn has one already."""
        for node in range(1, NODES + 1) if turn else ():
            self.bed.ask("profile", "-f", self.file(""), "--worker",
                         f"node-{node}")

    def stages(self, pipeline):
        """The plan's: (first layer, worker, share) of each replica."""
        shown = self.bed.ask("job", "submit", "--dry-run", self.file(pipeline))
        return [(stage["first_layer"], stage["worker"], stage["share"])
                for stage in shown["stages"]]

    def compare(self, what, slow, fast):
        """The median ratio, and the faster job's measured / predicted."""
        predictions = []

        def measure(pipeline):
            shown = self.bed.train(self.file(pipeline))
            seconds, predicted = (middle_step_seconds(shown),
                                  shown["predicted_step_seconds"])
            say(f"{what}: {pipeline or 'as it is'}: predicted {predicted:.3f} s")
            if pipeline == fast:
                predictions.append(seconds / predicted)
            return seconds
        ratio = self.run.compare(what, self.run.turns, (slow, fast), measure,
                                 self.profile)
        return ratio, statistics.median(predictions)


def front(place):
    say(f"front: the plan is {place.stages(REPLICAS)}")
    ratio, off = place.compare("front", "", REPLICAS)
    place.run.at_least("heavy front: as fast as the best without replicas",
                       1.15, ratio)
    place.run.at_most("heavy front: measured / predicted", 1.10, off)
    place.run.at_least("heavy front: measured / predicted", 0.90, off)


def layout_of(stages, shares):
    """The keys of a job whose one stage these workers hold."""
    keys = (f"stages: 1, replicas: [{len(stages)}], "
            f"workers: [{', '.join(worker for _, worker, _ in stages)}]")
    if not shares:
        return keys
    return f"{keys}, shares: {[share for _, _, share in stages]}"


def half(place):
    stages = place.stages("stages: 1, " + REPLICAS)
    say(f"half: the plan is {stages}")
    ratio, _ = place.compare("half", layout_of(stages, False),
                             layout_of(stages, True))
    place.run.at_least("a replica half as fast: as fast as with equal shares",
                       1.25, ratio)


# What a bed is made with, the steps of a job, samples of a step, and what is done
# there.  Of equal shares each replica has as many micro-batches of a step.
PARTS = {"front": ((), 24, 288, front),
         "half": (("--cpu-of", f"{SLOW}=0.2"), 8, 512, half)}
OPTIONS = {"turns": 3, "name": "replicas"}


def main(run):
    run.needs(root=True)
    for name in run.part:
        more, steps, batch, part = PARTS[name]
        with run.bed(*more) as bed, tempfile.TemporaryDirectory() as folder:
            place = Place(run, bed, folder, steps, batch)
            place.profile()
            part(place)
