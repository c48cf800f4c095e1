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


def level(bed, job):
    """Seconds a step takes from now on.  By the number of steps: of a long
    job's curve not every step is shown."""
    begin, step = time.monotonic(), bed.show(job)["step"]
    time.sleep(LEVEL_SECONDS)
    return (time.monotonic() - begin) / (bed.show(job)["step"] - step)


def await_attempt(bed, job, wanted, after_seconds=0):
    """When it was there; None: it did not come."""
    def there():
        shown = bed.show(job)
        if shown["state"] not in ("running", "queued"):
            raise RuntimeError(f"{shown['state']}: {shown['why']}")
        return shown["attempt"] >= wanted
    came = eventually(there, after_seconds + PATIENCE_SECONDS, 1)
    return time.time() if came else None


def tell(bed, job):
    say(bed.run("job", "events", job).stdout)


def shares(run, bed):
    """Of the rate of both, one counts for half."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(INFER % 1_000_000)
        file.flush()
        job = bed.submit(file.name)
        bed.await_step(job, 100)
        both = 1 / level(bed, job)
        bed.stop_job(job)
        rate = both * (1 + LEFT_AT) / 2
        job = bed.submit(file.name, "data.test_samples="
                         f"{int(8 * rate * IDEAL_SECONDS)}")
    bed.await_step(job, 50)
    bed.testbed("set", "--cpu-of", f"2={0.4 * LEFT_AT}")
    time.sleep(SETTLED_SECONDS)
    begin, shown = time.monotonic(), bed.show(job)
    ideal = (shown["steps"] - shown["step"]) / rate
    shown = bed.finish(job)
    took = time.monotonic() - begin
    say(f"{both:.1f} micro-batches a second by both; with one at "
        f"{LEFT_AT:.0%}, from {SETTLED_SECONDS} s on: {took:.1f} s, the ideal "
        f"is {ideal:.1f} s; {shown['attempt']} attempts")
    run.at_most("shares: times the ideal", MOST_OF_IDEAL, took / ideal)
    if run.wrong:
        tell(bed, job)


def slowed(run, bed, job):
    normal = level(bed, job)
    bed.testbed("set", "--cpu-of", f"{SLOW}=0.2")
    begin = time.time()
    moved = await_attempt(bed, job, 2)
    if moved is None:
        run.wrong.append("no layers moved off the slow machine")
        return
    left = min(event["unix_ms"] / 1e3 for event in bed.events(job)
               if event["unix_ms"] / 1e3 > begin)
    staying = step_seconds(bed.show(job), begin, left)
    after = level(bed, job)
    say(f"a step takes {normal:.3f} s, {staying:.3f} s on the slow machine, "
        f"{after:.3f} s after the move {moved - begin:.0f} s later")
    run.at_least("slowed: times as fast after the move", LEAST_GAIN,
                 staying / after)
    attempt = bed.show(job)["attempt"]
    time.sleep(max(0.0, moved + 60 * MINUTES - time.time()))
    run.at_most(f"slowed: moves in the {MINUTES} minutes after it", 1,
                bed.show(job)["attempt"] - attempt)


def joined(run, bed, job):
    before = level(bed, job)
    attempt = bed.show(job)["attempt"]
    bed.testbed("start", str(NODES + 1))
    if await_attempt(bed, job, attempt + 1, 60 * MINUTES) is None:
        run.wrong.append("a machine that joined was not used")
        return
    say(f"a fifth machine joined: a step takes {level(bed, job):.3f} s, "
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
        job = bed.submit(*JOB)
        bed.await_step(job, 20)
        for part in parts:
            PARTS[part](run, bed, job)
        bed.stop_job(job)
        if run.wrong:
            tell(bed, job)
