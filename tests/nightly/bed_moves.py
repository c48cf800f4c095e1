#!/usr/bin/env python3
"""A pipeline's layers move by themselves when a machine becomes slow, and when
another one joins; so do the shares of replicas that predict.

  bed_moves.py --bin build/release/bin [--name moves]
      [--part shares|slowed|joined]...

Two emulated machines of 0.4 core hold a model each and share out an inference
job.  One of them gets 15 % of its CPU time.  Asked: from 15 s later on the rest
takes at most 1.3 times as long as it would with shares by speed from the first.

Four machines train a pipeline of four stages; a fifth is
off.  After some steps machine 3 gets half of its CPU time.  Asked: layers move,
the job then is at least 1.4 times as fast as it was on the slow machine, and it
moves once more at most in the ten minutes after.  Then the fifth machine is started.
Asked: the job uses it, at once or when ten minutes have passed since its last
move.  Exits 77 where there cannot be a bed (not root).
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from bed import NODES, ROOT, SKIPPED, TESTBED, Bed
from recoveries import curve_of

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
        words = [word for each in sets for word in ("--set", each)]
        self.number = str(bed.json("job", "submit", file, *words,
                                   "--detach")["id"])

    def show(self):
        return self.bed.json("job", "show", self.number)

    def step_seconds(self, begin, end):
        """Of the steps that were begun and done between these times."""
        times = curve_of(self.show())
        lengths = [times[step] - times[step - 1] for step in times
                   if step - 1 in times and times[step - 1] >= begin
                   and times[step] <= end]
        return statistics.median(lengths)

    def level(self):
        """Seconds a step takes from now on.  By the number of steps: of a long
        job's curve not every step is shown."""
        begin, step = time.monotonic(), self.show()["step"]
        time.sleep(LEVEL_SECONDS)
        return (time.monotonic() - begin) / (self.show()["step"] - step)

    def await_attempt(self, wanted, after_seconds=0):
        """When it was there; None: it did not come."""
        end = time.monotonic() + after_seconds + PATIENCE_SECONDS
        while time.monotonic() < end:
            shown = self.show()
            if shown["state"] not in ("running", "queued"):
                raise RuntimeError(f"{shown['state']}: {shown['why']}")
            if shown["attempt"] >= wanted:
                return time.time()
            time.sleep(1)
        return None


def testbed(bed, *words):
    subprocess.run([TESTBED, *words, "--name", bed.name], check=True,
                   stdout=sys.stderr)


def shares(bed, wrong):
    """Of the rate of both, one counts for half."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(INFER % 1_000_000)
        file.flush()
        job = Job(bed, file.name, ())
        while job.show()["step"] < 100:
            time.sleep(1)
        both = 1 / job.level()
        bed.json("job", "stop", job.number)
        rate = both * (1 + LEFT_AT) / 2
        job = Job(bed, file.name, (
            f"data.test_samples={int(8 * rate * IDEAL_SECONDS)}",))
    while job.show()["step"] < 50:
        time.sleep(0.1)
    testbed(bed, "set", "--cpu-of", f"2={0.4 * LEFT_AT}")
    time.sleep(SETTLED_SECONDS)
    begin, shown = time.monotonic(), job.show()
    ideal = (shown["steps"] - shown["step"]) / rate
    bed.run("paceline", "job", "wait", job.number)
    took = time.monotonic() - begin
    shown = job.show()
    print(f"{both:.1f} micro-batches a second by both; with one at "
          f"{LEFT_AT:.0%}, from {SETTLED_SECONDS} s on: {took:.1f} s, "
          f"{took / ideal:.2f} times the ideal {ideal:.1f} s, asked "
          f"{MOST_OF_IDEAL}; {shown['attempt']} attempts", flush=True)
    if took > MOST_OF_IDEAL * ideal:
        wrong.append("replicas wait for the slow one")
        print(bed.run("paceline", "job", "events", job.number).decode())


def slowed(bed, job, wrong):
    normal = job.level()
    testbed(bed, "set", "--cpu-of", f"{SLOW}=0.2")
    begin = time.time()
    moved = job.await_attempt(2)
    if moved is None:
        wrong.append("no layers moved off the slow machine")
        return
    events = bed.json("job", "events", job.number)["events"]
    left = min(event["unix_ms"] / 1e3 for event in events
               if event["unix_ms"] / 1e3 > begin)
    staying = job.step_seconds(begin, left)
    after = job.level()
    print(f"a step takes {normal:.3f} s, {staying:.3f} s on the slow machine, "
          f"{after:.3f} s after the move {moved - begin:.0f} s later: "
          f"{staying / after:.2f} times as fast, asked {LEAST_GAIN}", flush=True)
    if staying / after < LEAST_GAIN:
        wrong.append("the move gained too little")
    attempt = job.show()["attempt"]
    time.sleep(max(0.0, moved + 60 * MINUTES - time.time()))
    more = job.show()["attempt"] - attempt
    print(f"{more} moves in the {MINUTES} minutes after it, asked at most 1",
          flush=True)
    if more > 1:
        wrong.append("the layers move to and fro")


def joined(bed, job, wrong):
    before = job.level()
    attempt = job.show()["attempt"]
    testbed(bed, "start", str(NODES + 1))
    if job.await_attempt(attempt + 1, 60 * MINUTES) is None:
        wrong.append("a machine that joined was not used")
        return
    print(f"a fifth machine joined: a step takes {job.level():.3f} s, "
          f"{before:.3f} s before", flush=True)


PARTS = {"slowed": slowed, "joined": joined}  # of one job


def moves(arguments, parts, wrong):
    with Bed(arguments.name, arguments.bin, nodes=NODES + 1) as bed:
        testbed(bed, "kill", str(NODES + 1))
        job = Job(bed)
        while job.show()["step"] < 20:
            time.sleep(1)
        for part in parts:
            PARTS[part](bed, job, wrong)
        bed.json("job", "stop", job.number)
        if wrong:
            print(bed.run("paceline", "job", "events", job.number).decode())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--name", default="moves")
    parser.add_argument("--part", action="append",
                        choices=["shares", *PARTS])
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: a bed needs root", file=sys.stderr)
        return SKIPPED
    wrong = []
    asked = arguments.part or ["shares", *PARTS]
    if "shares" in asked:
        with Bed(arguments.name, arguments.bin, nodes=2) as bed:
            shares(bed, wrong)
    if asked != ["shares"]:
        moves(arguments, [part for part in asked if part in PARTS], wrong)
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
