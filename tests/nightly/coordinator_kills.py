#!/usr/bin/env python3
"""The coordinator is killed, again and again, and hangs for a minute: training
does not notice.

  coordinator_kills.py --bin build/release/bin [--times 20] [--hang 60]
                       [--seed 1]

One job over four workers is trained three times: undisturbed; with so many
kill -9 of the coordinator at random moments, each followed by a start a second
later; with a coordinator that is stopped (SIGSTOP) for so many seconds.  Every
time: one attempt, every step recorded once, the same weights.  Around a kill no
step may take 100 ms longer than the median one, unless the undisturbed job had
such steps too.  What each kill leaves on the disk is a whole data base with the
same jobs.
"""

import argparse
import contextlib
import random
import shutil
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from recoveries import curve_of, step_seconds
from restarting_mesh import RestartingMesh

WORKERS = 4
PAUSE_SECONDS = 1
CALM_SECONDS = 3  # the least from a start to the next kill
MOST_PAUSE_SECONDS = 0.1
# The whole curve is shown of so many steps (client/README.md).
MOST_STEPS = 1000
JOB = ("deploy/jobs/vit-small.yaml", "train.batch=256", "train.micro_batch=64",
       "train.evaluate_every=0")


def gaps_of(document):
    """(seconds since the step before, when it was done), by step."""
    times = curve_of(document)
    return [(times[step] - times[step - 1], times[step])
            for step in times if step - 1 in times]


def longest_gap(gaps, begin, end):
    """Of the steps that were under way between these times."""
    return max((length for length, at in gaps
                if at >= begin and at - length <= end), default=None)


def check_database(folder, jobs):
    """What is wrong with what a dead coordinator left, or ''."""
    with tempfile.TemporaryDirectory() as copy:
        for file in folder.glob("coordinator.db*"):
            shutil.copy(file, copy)
        with contextlib.closing(
                sqlite3.connect(Path(copy) / "coordinator.db")) as database:
            said = database.execute("PRAGMA integrity_check").fetchone()[0]
            found = database.execute("SELECT count(*) FROM jobs").fetchone()[0]
    if said != "ok":
        return f"the data base is damaged: {said}"
    return "" if found == jobs else f"the data base has {found} jobs, not {jobs}"


class Check:
    """What the undisturbed job was like, and what is wrong with the others."""

    def __init__(self, mesh, steps):
        self.mesh = mesh
        self.wrong = []
        self.job = (*JOB, f"train.steps={steps}")
        shown = mesh.finish(mesh.submit(*self.job))
        self.weights = shown["weights_sha256"]
        self.steps = shown["steps"]
        self.step_seconds = step_seconds(shown)
        lengths = [length for length, _ in gaps_of(shown)]
        self.most_seconds = max(max(lengths),
                                self.step_seconds + MOST_PAUSE_SECONDS)
        print(f"undisturbed: a step takes {1e3 * self.step_seconds:.1f} ms "
              f"(median), the longest {1e3 * max(lengths):.1f} ms", flush=True)

    def same(self, what, shown):
        for name, found, wanted in (
                ("state", shown["state"], "succeeded"),
                ("weights", shown["weights_sha256"], self.weights),
                ("attempts", shown["attempt"], 1),
                ("recorded steps", len(shown["loss"]), self.steps)):
            if found != wanted:
                self.wrong.append(f"{what}: {name} {found}, not {wanted}")

    def pause(self, what, gap):
        if gap is None:
            self.wrong.append(f"{what}: no step was recorded around it")
        elif gap > self.most_seconds:
            self.wrong.append(f"{what}: a step took {1e3 * gap:.0f} ms, at "
                              f"most {1e3 * self.most_seconds:.0f}")


def kills(check, arguments, draw):
    number = check.mesh.submit(*check.job)
    while check.mesh.show(number)["step"] < 2:
        time.sleep(0.05)
    between = (0.9 * check.steps * check.step_seconds / arguments.times)
    at = []
    for _ in range(arguments.times):
        at.append(check.mesh.coordinator.signal(signal.SIGKILL))
        time.sleep(PAUSE_SECONDS / 2)
        complaint = check_database(check.mesh.state / "coordinator", number)
        if complaint:
            check.wrong.append(f"kill {len(at)}: {complaint}")
        least = max(CALM_SECONDS, 2 * PAUSE_SECONDS)
        time.sleep(draw.uniform(least, max(least, 2 * between - least)))
    shown = check.mesh.finish(number)
    check.same("with kills", shown)
    gaps = gaps_of(shown)
    pauses = []
    for i, moment in enumerate(at):
        if moment > max(done for _, done in gaps):
            continue  # the job had ended
        gap = longest_gap(gaps, moment, moment + CALM_SECONDS)
        check.pause(f"kill {i + 1}", gap)
        pauses.append(max(0, gap - check.step_seconds))
    print(f"{len(pauses)} kills: the longest step around one is beyond the "
          f"median by {1e3 * statistics.median(pauses):.0f} ms (median), "
          f"{1e3 * max(pauses):.0f} ms (most)", flush=True)


def hang(check, arguments):
    number = check.mesh.submit(*check.job)
    while check.mesh.show(number)["step"] < 2:
        time.sleep(0.05)
    begin = check.mesh.coordinator.signal(signal.SIGSTOP)
    time.sleep(arguments.hang)
    end = check.mesh.coordinator.signal(signal.SIGCONT)
    shown = check.mesh.finish(number)
    check.same("with a hang", shown)
    gap = longest_gap(gaps_of(shown), begin, end + CALM_SECONDS)
    check.pause("the hang", gap)
    print(f"a hang of {arguments.hang:.0f} s: the longest step "
          f"{1e3 * (gap or 0):.0f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--hang", type=float, default=60)
    parser.add_argument("--steps", type=int, default=MOST_STEPS)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with RestartingMesh(arguments.bin, WORKERS, PAUSE_SECONDS) as mesh:
        check = Check(mesh, arguments.steps)
        kills(check, arguments, random.Random(arguments.seed))
        hang(check, arguments)
        mesh.keep = bool(check.wrong)
    for sentence in check.wrong:
        print(f"WRONG: {sentence}")
    return int(bool(check.wrong))


if __name__ == "__main__":
    sys.exit(main())
