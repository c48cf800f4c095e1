"""Somebody sets the clock while a mesh works: an hour back, or ahead.

support/set_clock.cc says how, and why that is what setting a clock does.  Where
a wait goes by the time of day, what is asked for here comes an hour late: so a
busy box is given minutes.
"""

import os
import time
from pathlib import Path
from unittest import mock

from mesh_case import ENDLESS, SMALL, STOPPED, MeshCase, Settings, stopped
from mesh import UNREACHABLE

HOUR = 3600
LEASE_SECONDS = 3


class Clock(MeshCase):
    light = True

    def setUp(self):
        super().setUp()
        library = Settings.bin / "libset_clock.so"
        if not library.exists():
            self.skipTest("a sanitizer's build has no library to preload")
        self.ahead = self.folder / "ahead"
        self.set_clock(0)
        # Of all that this test starts, the client too.
        self.enterContext(mock.patch.dict(
            os.environ, LD_PRELOAD=str(library), SET_CLOCK=str(self.ahead)))

    def set_clock(self, seconds):
        """By how much the time of day is ahead of the true one.  Written in
        place: the programs have the file mapped."""
        with open(self.ahead, "r+b" if self.ahead.exists() else "wb") as file:
            file.write((seconds * 10**9).to_bytes(8, "little", signed=True))

    def steps_go_on(self):
        # Of an earlier attempt the newest step may be larger.
        seen = set()

        def one_more():
            job = self.job()
            seen.add((job["attempt"], job["step"]))
            return len(seen) > 1
        self.soon(one_more, "no step is done")

    def train(self, workers=4):
        self.start(workers)
        self.begin(SMALL, "train.evaluate_every=0", step=3)

    def test_set_back_by_an_hour_a_stopped_worker_is_missed_in_its_lease(self):
        self.train()
        self.set_clock(-HOUR)
        self.steps_go_on()
        self.assertEqual(self.job()["attempt"], 1, self.events())
        victim = self.holder(1)

        with stopped(self.pid_of_worker(victim)):
            begin = time.monotonic()
            self.soon(lambda: self.state_of(victim) == "lost", "never missed")
            self.assertGreater(time.monotonic() - begin, LEASE_SECONDS / 2)
            self.soon(lambda: self.job()["attempt"] == 2, "not placed anew")
            self.steps_go_on()

        self.soon(lambda: self.state_of(victim) != "lost", "never back")
        self.stop()

    def test_set_back_by_an_hour_deadlines_of_calls_stand(self):
        """A client asks a coordinator that does not answer."""
        self.train(3)
        with stopped(self.pid_of_coordinator()):
            asking = self.background("node", "list")
            # It waits, or is about to.
            self.soon(lambda: "paceline" in Path(
                f"/proc/{asking.pid}/comm").read_text())
            self.set_clock(-HOUR)
            self.ends(asking, UNREACHABLE)

        self.steps_go_on()
        self.stop()

    def test_set_back_by_an_hour_keepalive_and_backoff_stand(self):
        """A coordinator that stands still acknowledges what comes: only
        keepalive shows it.  One that was killed is dialled until it is back."""
        self.train(3)
        self.set_clock(-HOUR)
        with stopped(self.pid_of_coordinator()):
            self.soon(lambda: "no coordinator" in self.log("w1"))
        self.soon(lambda: self.state_of("w1") == "busy", "not attached again")

        self.kill_coordinator()

        for worker in ("w1", "w2", "w3"):
            self.soon(lambda name=worker: self.state_of(name) == "busy",
                      "not attached again")
        self.steps_go_on()
        self.assertEqual(self.job()["attempt"], 1, self.events())
        self.stop()

    def test_set_ahead_and_back_it_costs_nobody_a_lease(self):
        self.train(3)
        for seconds in (HOUR, -HOUR, 0):
            self.set_clock(seconds)
            self.steps_go_on()

        self.assertEqual(self.job()["attempt"], 1, self.events())
        self.assertNotIn("lost", self.events())
        self.stop()

    def test_set_back_by_an_hour_whoever_waits_for_a_job_is_told(self):
        self.start(3)
        waiting = self.background("job", "submit", self.write(SMALL), "--set",
                                  ENDLESS)
        self.soon(self.jobs)
        self.set_clock(-HOUR)
        self.stop("1")

        self.ends(waiting, STOPPED)
