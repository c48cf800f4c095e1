"""Hours in minutes: many jobs on one mesh, and nothing piles up.

Submits job after job (some are stopped in the middle, one in five has a bad
spec), and watches the daemons: same processes to the end, and neither memory,
threads nor open files grow from the settled state.
"""

import itertools
import time

from mesh import reading, sets_of

OPTIONS = {"minutes": 20.0}
SETTLE_JOBS = 10
# Allocators keep some of what they once had; growth beyond this is a leak.
SLACKS = {"resident KiB": 48 * 1024, "open files": 8, "threads": 4}
SYNTHETIC = ("data.name=synthetic", "train.batch=32", "train.micro_batch=8")
JOBS = ("deploy/jobs/fashion-mnist.yaml", "deploy/jobs/vit-small.yaml")


def one_job(mesh, number):
    """Runs the number-th job: how it ends, and how it must."""
    job = (JOBS[number % len(JOBS)], *sets_of((
        *SYNTHETIC, f"pipeline.stages={number % 4 + 1}",
        f"pipeline.schedule={('gpipe', '1f1b')[number // 4 % 2]}")))
    if number % 5 == 4:
        return mesh.run("job", "submit", *job, "--set", "pipeline.stages=99"), 2
    if number % 5 == 3:
        begun = mesh.ask("job", "submit", *job, "--set", "train.steps=100000",
                         "--detach")["id"]
        mesh.stop_job(begun)
        return mesh.run("job", "wait", begun, timeout=120), 6
    return mesh.run("job", "submit", *job, "--set", "train.steps=40",
                    timeout=300), 0


def growth(before, after):
    if before.keys() != after.keys():
        yield f"processes changed: {sorted(before)} to {sorted(after)}"
        return
    for pid in before:
        for (name, slack), was, now in zip(SLACKS.items(), before[pid],
                                           after[pid]):
            if now > was + slack:
                yield f"pid {pid}: {name} {was} to {now}"


def main(run):
    before = None
    with run.mesh(4) as mesh:
        def readings():
            return {pid: reading(pid) for pid in mesh.processes()}
        end = time.monotonic() + run.minutes * 60
        for number in itertools.count():
            if number == SETTLE_JOBS:
                before = readings()
            if number > SETTLE_JOBS and time.monotonic() > end:
                break
            ended, code = one_job(mesh, number)
            if ended.returncode != code:
                run.wrong.append(f"job {number}: exit code {ended.returncode}, "
                                 f"need {code}: {ended.stderr[-500:]}")
        run.wrong += growth(before, readings())
    print(f"{number} jobs")
