"""The coordinator is killed, again and again, and hangs for a minute: training
does not notice.

One job over four workers is trained three times: undisturbed; with --times
kill -9 of the coordinator at random moments, each followed by a start a second
later; with a coordinator that is stopped (SIGSTOP) for --hang seconds.  Every
time: one attempt, every step recorded once, the same weights.  Around a kill no
step may take 100 ms longer than the median one, unless the undisturbed job had
such steps too.  What each kill leaves on the disk is a whole data base with the
same jobs.
"""

import contextlib
import random
import shutil
import signal
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from nightly import gaps_of, say, step_seconds

# The whole curve is shown of 1,000 steps (client/README.md).
OPTIONS = {"times": 20, "hang": 60.0, "steps": 1000, "seed": 1}
CALM_SECONDS = 3  # the least from a start to the next kill
MOST_PAUSE_SECONDS = 0.1
JOB = ("deploy/jobs/vit-small.yaml", "train.batch=256", "train.micro_batch=64",
       "train.evaluate_every=0")


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

    def __init__(self, run, mesh):
        self.run = run
        self.mesh = mesh
        self.job = (*JOB, f"train.steps={run.steps}")
        self.normal = mesh.train(*self.job)
        self.step_seconds = step_seconds(self.normal)
        longest = max(length for length, _ in gaps_of(self.normal))
        self.most_seconds = max(longest, self.step_seconds + MOST_PAUSE_SECONDS)
        say(f"undisturbed: a step takes {1e3 * self.step_seconds:.1f} ms "
            f"(median), the longest {1e3 * longest:.1f} ms")

    def begin(self):
        number = self.mesh.submit(*self.job)
        self.mesh.await_step(number, 2)
        return number

    def gaps(self, what, number):
        """Those of a job that must have ended as the undisturbed one did."""
        shown = self.mesh.finish(number)
        self.run.same(what, {**shown, "recorded steps": len(shown["loss"])}, {
            "state": "succeeded", "attempt": 1,
            "weights_sha256": self.normal["weights_sha256"],
            "recorded steps": self.normal["steps"]})
        return gaps_of(shown)

    def pause(self, what, gaps, begin, end):
        gap = longest_gap(gaps, begin, end)
        if gap is None:
            self.run.wrong.append(f"{what}: no step was recorded around it")
        elif gap > self.most_seconds:
            self.run.wrong.append(f"{what}: a step took {1e3 * gap:.0f} ms, at "
                                  f"most {1e3 * self.most_seconds:.0f}")
        return gap or 0


def kills(check, times, draw):
    number = check.begin()
    between = 0.9 * check.run.steps * check.step_seconds / times
    at = []
    for _ in range(times):
        at.append(check.mesh.coordinator.signal(signal.SIGKILL))
        time.sleep(check.mesh.pause / 2)
        complaint = check_database(check.mesh.state / "coordinator", number)
        if complaint:
            check.run.wrong.append(f"kill {len(at)}: {complaint}")
        time.sleep(draw.uniform(CALM_SECONDS,
                                max(CALM_SECONDS, 2 * between - CALM_SECONDS)))
    gaps = check.gaps("with kills", number)
    end = max(done for _, done in gaps)  # kills after it hit no job
    pauses = [max(0, check.pause(f"kill {i + 1}", gaps, moment,
                                 moment + CALM_SECONDS) - check.step_seconds)
              for i, moment in enumerate(at) if moment <= end]
    say(f"{len(pauses)} kills: the longest step around one is beyond the "
        f"median by {1e3 * statistics.median(pauses):.0f} ms (median), "
        f"{1e3 * max(pauses):.0f} ms (most)")


def hang(check, seconds):
    number = check.begin()
    begin = check.mesh.coordinator.signal(signal.SIGSTOP)
    time.sleep(seconds)
    end = check.mesh.coordinator.signal(signal.SIGCONT)
    gap = check.pause("the hang", check.gaps("with a hang", number), begin,
                      end + CALM_SECONDS)
    say(f"a hang of {seconds:.0f} s: the longest step {1e3 * gap:.0f} ms")


def main(run):
    with run.restarting_mesh(4) as mesh:
        check = Check(run, mesh)
        kills(check, run.times, random.Random(run.seed))
        hang(check, run.hang)
