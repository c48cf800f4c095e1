#!/usr/bin/env python3
"""TLS costs little: the same four-stage job with and without it, turn about.

  tls_cost.py --bin build/release/bin [--turns 6] [--job NAME]...

Two meshes of four workers are up on this box, one with TLS; one of them trains
at a time, and which is first alternates.  The middle three quarters of a job's
steps count.  Asked of each job: the median of the turns' ratios is at most 1.10.
A step of fashion-mnist is little but frames on one box: 10 MB in 27 ms.
"""

import argparse
import statistics
import sys

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from bed import ROOT
from restarting_mesh import RestartingMesh
from snapshot_cost import seconds_a_step

WORKERS = 4
PAUSE_SECONDS = 1
MOST_RATIO = 1.10
JOBS = {
    "fashion-mnist": ("train.steps=400", "train.evaluate_every=0"),
    # Frames of 1 MiB and more.
    "vit-small": ("train.batch=256", "train.micro_batch=64",
                  "train.evaluate_every=0", "train.steps=150"),
}


def train(mesh, name):
    """Seconds that a step takes."""
    shown = mesh.finish(mesh.submit(ROOT / f"deploy/jobs/{name}.yaml",
                                    *JOBS[name]))
    if shown["state"] != "succeeded" or shown["attempt"] != 1:
        raise RuntimeError(f"{name} is {shown['state']} at attempt "
                           f"{shown['attempt']}: {shown['why']}")
    return seconds_a_step(shown), shown["weights_sha256"]


def compare(name, plain, encrypted, turns):
    """Prints each turn; the median ratio."""
    ratios = []
    for turn in range(turns):
        done = {mesh: train(mesh, name) for mesh in
                ((plain, encrypted) if turn % 2 else (encrypted, plain))}
        if done[plain][1] != done[encrypted][1]:
            raise RuntimeError(f"{name}: other weights with TLS")
        ratios.append(done[encrypted][0] / done[plain][0])
        print(f"{name}: a step takes {1e3 * done[encrypted][0]:.2f} ms with TLS, "
              f"{1e3 * done[plain][0]:.2f} without: {ratios[-1]:.3f}",
              flush=True)
    ratio = statistics.median(ratios)
    print(f"{name}: median of {turns} turns {ratio:.3f}, asked {MOST_RATIO}",
          flush=True)
    return ratio


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--job", action="append", choices=JOBS)
    arguments = parser.parse_args()
    with RestartingMesh(arguments.bin, WORKERS, PAUSE_SECONDS) as plain, \
            RestartingMesh(arguments.bin, WORKERS, PAUSE_SECONDS,
                           tls=True) as encrypted:
        ratios = [compare(name, plain, encrypted, arguments.turns)
                  for name in arguments.job or JOBS]
    return int(max(ratios) > MOST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
