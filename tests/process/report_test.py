"""A report of a job that lost a worker, beside one that was stopped."""

import csv
import re

from mesh_case import SMALL, MeshCase

FILE = "name: <b>first</b> & co\n" + SMALL
STEPS = 1000  # so many that it is still there to be disturbed


class Report(MeshCase):
    light = True

    def report(self, *arguments):
        return self.good(self.client("report", *arguments)).stdout

    def test_has_a_recovered_and_a_stopped_job_side_by_side(self):
        self.start(4)
        job = self.detach(FILE, f"train.steps={STEPS}",
                          "train.evaluate_every=2")
        self.await_step_after(3)
        self.kill(self.holder(1))
        self.finished()
        other = self.begin(FILE, step=3)
        self.stop()

        self.check_page(job, other)
        self.check_tables(job, other)

    def check_page(self, *jobs):
        path = self.folder / "report.html"
        self.assertEqual(self.report(*jobs, "-o", path), "")
        text = path.read_text()
        # Elements close in the order in which they opened.
        opened = []
        for closes, tag, alone in re.findall(r"<(/?)(\w+)[^<>]*?(/?)>", text):
            if closes:
                self.assertEqual(opened.pop(), tag)
            elif not alone and tag not in ("meta", "br"):
                opened.append(tag)
        self.assertEqual(opened, [])
        # Loss, accuracy, time split, and a step of each job, twice.
        self.assertGreaterEqual(text.count("<svg"), 6)
        # Nothing is fetched.
        self.assertNotRegex(text, r"<(b|script|img|link)\b|\s(src|href)=")
        self.has(text, f"job {jobs[0]}, attempt 2", "of 3 stages took")

    def check_tables(self, job, other):
        tables = {}
        for name, *cells in csv.reader(
                self.report(job, other, "--format", "csv").splitlines()):
            tables.setdefault(name, []).append(cells)

        def rows(name):
            titles, *lines = tables[name]
            return [dict(zip(titles, line)) for line in lines if line[0] == job]
        summary = {row[0]: row[1:] for row in tables["summary"]}
        self.assertEqual(summary["state"], ["succeeded", "stopped"])
        self.assertEqual(summary["name"], ["<b>first</b> & co"] * 2)
        self.assertEqual(summary["recoveries"], ["1", ""])
        self.assertEqual(len(rows("loss")), STEPS)
        self.assertGreater(len(rows("accuracy")), 2)
        self.assertIn("lost", [row["kind"] for row in rows("faults")])
        self.assertGreater(float(rows("recoveries")[0]["build"]), 0)
        for table in ("step", "measured-step"):
            self.assertEqual({row["stage"] for row in rows(table)},
                             {"0", "1", "2"})
        for table, columns in (
                ("predicted", ("predicted seconds", "measured seconds")),
                ("resources", ("cores",))):
            for row in rows(table):
                for column in columns:
                    self.assertGreater(float(row[column]), 0, row)
        split = [row for row in rows("time-split") if row["stages"] != "[]"]
        self.assertGreater(len(split), 1)
        for row in split:
            wall = float(row["wall"])
            parts = sum(float(value) for title, value in row.items() if title
                        not in ("job", "name", "stages", "wall"))
            self.assertAlmostEqual(parts, wall, delta=1e-3 * wall, msg=row)
            self.assertGreater(float(row["evaluation"]), 0, row)
