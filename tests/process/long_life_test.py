"""A coordinator that has lived long: it is ready at once, shows all of its jobs,
and forgets one while it goes on answering."""

import json
import re
import sqlite3
import threading

from mesh_case import ProcessCase, Settings, get
from scale.long_store import LongCoordinator

JOBS = 2_000
STEPS = 200
READY_CPU_SECONDS = 1  # of 2 s for ten times as many
LONG = 30_000  # steps of job 2


class LongLife(ProcessCase):
    def setUp(self):
        super().setUp()
        self.coordinator = LongCoordinator(Settings.bin, self.folder)
        self.addCleanup(self.coordinator.stop)
        self.coordinator.begin()
        self.coordinator.fill(JOBS, STEPS)

    def database(self):
        return sqlite3.connect(self.coordinator.state / "coordinator.db")

    def rows(self, job):
        base = self.database()
        try:
            return base.execute("SELECT count(*) FROM records WHERE job=?",
                                (job,)).fetchone()[0]
        finally:
            base.close()

    def make_long(self, job):
        base = self.database()
        with base:
            base.execute(
                "INSERT INTO records SELECT ?, 1, ?+1+a.step+?*b.step, a.record "
                "FROM (SELECT * FROM records WHERE job=1) a CROSS JOIN (SELECT "
                "step FROM records WHERE job=1 AND step<=?) b",
                (job, STEPS, STEPS, LONG // STEPS))
        base.close()

    def listed(self, *words):
        finished = self.good(self.coordinator.client("job", "list", "-o",
                                                     "json", *words))
        return [job["id"] for job in json.loads(finished.stdout)["jobs"]]

    def test_it_is_ready_at_once_and_has_all_jobs(self):
        for _ in range(2):
            _, cpu = self.coordinator.start()
            self.assertLess(cpu, READY_CPU_SECONDS)
            self.assertEqual(self.listed(), list(range(JOBS, 0, -1)))
            self.assertEqual(self.listed("--limit", "3"),
                             [JOBS, JOBS - 1, JOBS - 2])
            self.assertEqual(self.listed("--state", "succeeded"), [])
            for job in ("1", "last"):
                shown = self.coordinator.client("job", "show", job)
                self.assertIn("stopped", shown.stdout, shown.stderr)
            self.coordinator.stop()

    def test_a_long_curve_is_thinned_and_a_deletion_stops_nobody(self):
        self.make_long(2)
        self.make_long(3)
        before = self.rows(2)
        self.assertGreater(before, 25_000)
        self.coordinator.start()
        self.soon(lambda: self.rows(2) <= 20_000, seconds=60)
        self.soon(lambda: self.rows(3) <= 20_000, seconds=60)
        report = self.coordinator.client("report", "2", "--format", "csv")
        self.assertRegex(report.stdout, "summary,curve stride,[248]")

        slow = []
        ended = threading.Event()

        def ask():
            while not ended.wait(0.05):
                answer = get(self.coordinator.address("http"), "/healthz")
                if answer != "ok\n":
                    slow.append(answer)
        thread = threading.Thread(target=ask)
        thread.start()
        self.good(self.coordinator.client("job", "delete", "3"))
        self.assertEqual(
            self.coordinator.client("job", "show", "3").returncode, 3)
        self.soon(lambda: self.rows(3) == 0, seconds=60)
        ended.set()
        thread.join()
        self.assertEqual(slow, [])
        wal = self.coordinator.state / "coordinator.db-wal"
        self.assertLess(wal.stat().st_size, 20 << 20)
        self.check_loop()

    def check_loop(self):
        """Nothing has taken a quarter of a second of CPU: a twentieth is
        meant, which a noisy host makes several of."""
        metrics = get(self.coordinator.address("http"), "/metrics")
        name = "paceline_coordinator_loop_cpu_seconds"
        short = dict(re.findall(
            name + r'_bucket\{work="(\w+)",le="0.25"\} (\d+)', metrics))
        every = dict(re.findall(name + r'_count\{work="(\w+)"\} (\d+)',
                                metrics))
        self.assertIn("upkeep", every)
        for work, count in every.items():
            self.assertEqual(short[work], count, work)
