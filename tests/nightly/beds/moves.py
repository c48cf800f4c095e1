"""A pipeline's layers move by themselves when a machine becomes slow, and when
another one joins; so do the shares of replicas that predict.

Two emulated machines of 0.4 core hold a model each and share out an inference
job.  One of them gets 15 % of its CPU time.  Asked: from 15 s later on the rest
takes at most 1.3 times as long as it would with shares by speed from the first.

Four machines train a pipeline of four stages; a fifth is off.  After some steps
machine 3 gets half of its CPU time.  Asked: layers move, the job then is at
least 1.4 times as fast as it was on the slow machine, and it moves once more at
most in the ten minutes after.  Then the fifth machine is started.  Asked: the
job uses it, at once or when ten minutes have passed since its last move.
"""

import tempfile
import time

from bed import NODES
from mesh import eventually
from nightly import say, step_seconds

JOB = ("deploy/jobs/vit-small.yaml", "model.depth=12", "train.micro_batch=16",
       "train.steps=1000000", "train.evaluate_every=0")
SLOW = 3
LEVEL_SECONDS = 40
PATIENCE_SECONDS = 240
LEAST_GAIN = 1.4
INFER = """
kind: infer
model: {name: vit, depth: 6, width: 64, heads: 4, patch: 7}
data: {name: synthetic, test_samples: %d}
infer: {micro_batch: 8, outputs: false}
"""
LEFT_AT = 0.15
SETTLED_SECONDS = 15
IDEAL_SECONDS = 90
MOST_OF_IDEAL = 1.3
MINUTES = 10  # so long a job stays after a move


class Job:
    def __init__(self, bed, file=JOB[0], sets=JOB[1:]):
        self.bed = bed
        self.number = bed.submit(file, *sets)

    def show(self):
        return self.bed.show(self.number)

    def await_step(self, step):
        self.bed.await_step(self.number, step)

    def level(self):
        """Seconds a step takes from now on.  By the number of steps: of a long
        job's curve not every step is shown."""
        begin, step = time.monotonic(), self.show()["step"]
        time.sleep(LEVEL_SECONDS)
        return (time.monotonic() - begin) / (self.show()["step"] - step)

    def await_attempt(self, wanted, after_seconds=0):
        """When it was there; None: it did not come."""
        def there():
            shown = self.show()
            if shown["state"] not in ("running", "queued"):
                raise RuntimeError(f"{shown['state']}: {shown['why']}")
            return shown["attempt"] >= wanted
        came = eventually(there, after_seconds + PATIENCE_SECONDS, 1)
        return time.time() if came else None

    def tell(self):
        say(self.bed.run("job", "events", self.number).stdout)


def shares(run, bed):
    """Of the rate of both, one counts for half."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(INFER % 1_000_000)
        file.flush()
        job = Job(bed, file.name, ())
        job.await_step(100)
        both = 1 / job.level()
        bed.stop_job(job.number)
        rate = both * (1 + LEFT_AT) / 2
        job = Job(bed, file.name, (
            f"data.test_samples={int(8 * rate * IDEAL_SECONDS)}",))
    job.await_step(50)
    bed.testbed("set", "--cpu-of", f"2={0.4 * LEFT_AT}")
    time.sleep(SETTLED_SECONDS)
    begin, shown = time.monotonic(), job.show()
    ideal = (shown["steps"] - shown["step"]) / rate
    shown = bed.finish(job.number)
    took = time.monotonic() - begin
    say(f"{both:.1f} micro-batches a second by both; with one at "
        f"{LEFT_AT:.0%}, from {SETTLED_SECONDS} s on: {took:.1f} s, the ideal "
        f"is {ideal:.1f} s; {shown['attempt']} attempts")
    run.at_most("shares: times the ideal", MOST_OF_IDEAL, took / ideal)
    if run.wrong:
        job.tell()


def slowed(run, bed, job):
    normal = job.level()
    bed.testbed("set", "--cpu-of", f"{SLOW}=0.2")
    begin = time.time()
    moved = job.await_attempt(2)
    if moved is None:
        run.wrong.append("no layers moved off the slow machine")
        return
    left = min(event["unix_ms"] / 1e3 for event in bed.events(job.number)
               if event["unix_ms"] / 1e3 > begin)
    staying = step_seconds(job.show(), begin, left)
    after = job.level()
    say(f"a step takes {normal:.3f} s, {staying:.3f} s on the slow machine, "
        f"{after:.3f} s after the move {moved - begin:.0f} s later")
    run.at_least("slowed: times as fast after the move", LEAST_GAIN,
                 staying / after)
    attempt = job.show()["attempt"]
    time.sleep(max(0.0, moved + 60 * MINUTES - time.time()))
    run.at_most(f"slowed: moves in the {MINUTES} minutes after it", 1,
                job.show()["attempt"] - attempt)


def joined(run, bed, job):
    before = job.level()
    attempt = job.show()["attempt"]
    bed.testbed("start", str(NODES + 1))
    if job.await_attempt(attempt + 1, 60 * MINUTES) is None:
        run.wrong.append("a machine that joined was not used")
        return
    say(f"a fifth machine joined: a step takes {job.level():.3f} s, "
        f"{before:.3f} s before")


PARTS = {"shares": shares, "slowed": slowed, "joined": joined}
OPTIONS = {"name": "moves"}


def main(run):
    run.needs(root=True)
    if "shares" in run.part:
        with run.bed(nodes=2) as bed:
            shares(run, bed)
    parts = [part for part in run.part if part != "shares"]
    if not parts:
        return
    with run.bed(nodes=NODES + 1) as bed:
        bed.testbed("kill", str(NODES + 1))
        job = Job(bed)
        job.await_step(20)
        for part in parts:
            PARTS[part](run, bed, job)
        bed.stop_job(job.number)
        if run.wrong:
            job.tell()
