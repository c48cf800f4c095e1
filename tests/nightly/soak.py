#!/usr/bin/env python3
"""Hours in minutes: many jobs on one mesh, and nothing piles up.

Submits job after job (some are stopped in the middle, one in five has a bad
spec), and watches the daemons: same processes to the end, and neither memory,
threads nor open files grow from the settled state.
"""

import argparse
import itertools
import sys
import time

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from mesh import Mesh, reading

SETTLE_JOBS = 10
# Allocators keep some of what they once had; growth beyond this is a leak.
MEMORY_SLACK_KIB = 48 * 1024
FILES_SLACK = 8
THREADS_SLACK = 4

STEPS = 40
SYNTHETIC = ["--set", "data.name=synthetic", "--set", "train.batch=32",
             "--set", "train.micro_batch=8"]
JOBS = ["deploy/jobs/fashion-mnist.yaml", "deploy/jobs/vit-small.yaml"]


def readings(mesh):
    return {pid: reading(pid) for pid in mesh.processes()}


def one_job(mesh, number):
    """Runs the number-th job; a complaint, or ""."""
    file = JOBS[number % len(JOBS)]
    stages = number % 4 + 1
    schedule = ("gpipe", "1f1b")[number // 4 % 2]
    arguments = ["job", "submit", file, *SYNTHETIC,
                 "--set", f"pipeline.stages={stages}",
                 "--set", f"pipeline.schedule={schedule}"]
    if number % 5 == 4:
        result = mesh.run(*arguments, "--set", "pipeline.stages=99")
        return "" if result.returncode == 2 else (
            f"99 stages: exit code {result.returncode}, need 2")
    if number % 5 == 3:
        job = mesh.ask(*arguments, "--set", "train.steps=100000", "--detach")
        mesh.ask("job", "stop", str(job["id"]))
        result = mesh.run("job", "wait", str(job["id"]), timeout=120)
        return "" if result.returncode == 6 else (
            f"stopped job: exit code {result.returncode}, need 6")
    result = mesh.run(*arguments, "--set", f"train.steps={STEPS}", timeout=300)
    return "" if result.returncode == 0 else (
        f"job {number}: exit code {result.returncode}: {result.stderr[-500:]}")


def growth(before, after):
    if before.keys() != after.keys():
        return [f"processes changed: {sorted(before)} to {sorted(after)}"]
    complaints = []
    slacks = (MEMORY_SLACK_KIB, FILES_SLACK, THREADS_SLACK)
    names = ("resident KiB", "open files", "threads")
    for pid in before:
        for name, was, now, slack in zip(names, before[pid], after[pid],
                                         slacks):
            if now > was + slack:
                complaints.append(f"pid {pid}: {name} {was} to {now}")
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--minutes", type=float, default=20)
    options = parser.parse_args()

    complaints, before = [], None
    with Mesh(options.bin, workers=4) as mesh:
        deadline = time.monotonic() + options.minutes * 60
        for number in itertools.count():
            if number == SETTLE_JOBS:
                before = readings(mesh)
            if before and number > SETTLE_JOBS and (
                    time.monotonic() > deadline):
                break
            complaint = one_job(mesh, number)
            if complaint:
                complaints.append(complaint)
                print(complaint, flush=True)
        complaints += growth(before, readings(mesh))
    print(f"{number} jobs, {len(complaints)} complaints")
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
