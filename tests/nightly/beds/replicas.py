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

from bed import NODES
from mesh import sets_of
from nightly import middle_step_seconds, say

FILE = "deploy/jobs/fashion-mnist.yaml"
JOB = ("model.name=vgg16", "model.width=8", "data.name=synthetic",
       "data.shape=[3,64,64]", "data.train_samples=4096",
       "train.micro_batch=32", "train.evaluate_every=0", "pipeline.stages=0")
REPLICAS = "pipeline.replicate=allowed"
SLOW = 2


class Place:
    """A bed, and the job that is run there with other keys of its pipeline."""

    def __init__(self, run, bed, steps, batch):
        self.run = run
        self.bed = bed
        self.job = (*JOB, f"train.steps={steps}", f"train.batch={batch}")

    def profile(self, turn=1):
        """One node after the other: what shares this box must not disturb
        them.  The first turn has one already."""
        for node in range(1, NODES + 1) if turn else ():
            self.bed.ask("profile", "-f", FILE, *sets_of(self.job), "--worker",
                         f"node-{node}")

    def stages(self, *pipeline):
        """The plan's: (first layer, worker, share) of each replica."""
        shown = self.bed.ask("job", "submit", "--dry-run", FILE,
                             *sets_of((*self.job, *pipeline)))
        return [(stage["first_layer"], stage["worker"], stage["share"])
                for stage in shown["stages"]]

    def compare(self, what, slow, fast):
        """The median ratio, and the faster job's measured / predicted."""
        predictions = []

        def measure(pipeline):
            shown = self.bed.train(FILE, *self.job, *pipeline)
            seconds, predicted = (middle_step_seconds(shown),
                                  shown["predicted_step_seconds"])
            say(f"{what}: {' '.join(pipeline) or 'as it is'}: predicted "
                f"{predicted:.3f} s")
            if pipeline == fast:
                predictions.append(seconds / predicted)
            return seconds
        ratio = self.run.compare(what, self.run.turns, (slow, fast), measure,
                                 self.profile)
        return ratio, statistics.median(predictions)


def front(place):
    say(f"front: the plan is {place.stages(REPLICAS)}")
    ratio, off = place.compare("front", (), (REPLICAS,))
    place.run.at_least("heavy front: as fast as the best without replicas",
                       1.15, ratio)
    place.run.at_most("heavy front: measured / predicted", 1.10, off)
    place.run.at_least("heavy front: measured / predicted", 0.90, off)


def layout_of(stages, shares):
    """The keys of a job whose one stage these workers hold."""
    keys = ("pipeline.stages=1", f"pipeline.replicas=[{len(stages)}]",
            f"pipeline.workers=[{','.join(each[1] for each in stages)}]")
    share = f"pipeline.shares={[share for _, _, share in stages]}"
    return (*keys, share) if shares else keys


def half(place):
    stages = place.stages("pipeline.stages=1", REPLICAS)
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
        with run.bed(*more) as bed:
            place = Place(run, bed, steps, batch)
            place.profile()
            part(place)
