#!/usr/bin/env python3
"""Snapshots cost little: the same job with and without them, turn about.

  snapshot_cost.py --bin build/release/bin [--part loopback|bed]...
                   [--turns 8] [--name snapshots]

Parts:
  loopback  four workers on this box, steps of about 20 ms: a floor that came
            with heartbeats only would hold up every snapshot
  bed       DeiT-S on four emulated machines at 1 Gbit/s; needs root

A turn is a job with the default and one without snapshots; which is first
alternates.  The middle three quarters of a job's steps count.  Asked: the median
of the turns' ratios is at most 1.03.
"""

import argparse
import os
import statistics
import sys

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from bed import ROOT, Bed
from mesh import Mesh
from recoveries import curve_of

WORKERS = 4
MOST_RATIO = 1.03
JOBS = {
    "loopback": ("deploy/jobs/fashion-mnist.yaml", "train.steps=400",
                 "train.evaluate_every=0", "train.optimizer.name=adamw",
                 "train.learning_rate.base=0.001"),
    "bed": ("deploy/jobs/deit-small.yaml", "train.steps=24"),
}


def seconds_a_step(document):
    """Of the middle three quarters, so that no beginning or end counts."""
    times = curve_of(document)
    first, last = len(times) // 8 + 1, len(times) - len(times) // 8
    return (times[last] - times[first]) / (last - first)


def compare(part, run, turns):
    """Prints each turn; the median ratio."""
    ratios = []
    for turn in range(turns):
        seconds = {}
        for every in (10, 0) if turn % 2 else (0, 10):
            sets = (*JOBS[part][1:], f"pipeline.snapshot_every={every}")
            words = [word for each in sets for word in ("--set", each)]
            job = run("job", "submit", JOBS[part][0], *words)
            shown = run("job", "show", str(job["id"]))
            if shown["state"] != "succeeded":
                raise RuntimeError(f"job {job['id']}: {shown['why']}")
            seconds[every] = seconds_a_step(shown)
        ratios.append(seconds[10] / seconds[0])
        print(f"{part}: a step takes {1e3 * seconds[10]:.2f} ms with snapshots, "
              f"{1e3 * seconds[0]:.2f} without: {ratios[-1]:.4f}", flush=True)
    ratio = statistics.median(ratios)
    print(f"{part}: median of {turns} turns {ratio:.4f}, asked {MOST_RATIO}",
          flush=True)
    return ratio


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--part", action="append", choices=JOBS)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--name", default="snapshots")
    arguments = parser.parse_args()
    ratios = []
    for part in arguments.part or JOBS:
        if part == "loopback":
            with Mesh(arguments.bin, WORKERS) as mesh:
                ratios.append(compare(part, mesh.ask, arguments.turns))
        elif os.geteuid() != 0:
            print("bed: left out, it needs root", file=sys.stderr)
        else:
            with Bed(arguments.name, arguments.bin) as bed:
                ratios.append(compare(part, bed.json, arguments.turns))
    return int(any(ratio > MOST_RATIO for ratio in ratios))


if __name__ == "__main__":
    sys.exit(main())
