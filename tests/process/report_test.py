"""A report of a job that lost a worker, beside one that was stopped."""

import csv
import json
from html.parser import HTMLParser

from mesh_case import SMALL, MeshCase

FILE = "name: <b>first</b> & co\n" + SMALL
STEPS = 1000  # so many that it is still there to be disturbed


class Page(HTMLParser):
    """Fails where elements do not close in the order in which they opened;
    counts them, and keeps what would be fetched."""
    void = ("meta", "br", "img", "link", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.count, self.fetches = [], {}, []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.fetches += [value for name, value in attrs
                         if name in ("src", "href", "srcset", "data")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()


class Report(MeshCase):
    light = True

    def report(self, *arguments):
        finished = self.good(self.client("report", *arguments))
        return finished.stdout

    def test_has_all_forms_of_a_recovered_and_of_a_stopped_job(self):
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
        text = self.report(job, other, "--format", "latex")
        for name in ("table", "tabular"):
            self.assertGreater(text.count(f"\\begin{{{name}}}"), 3)
            self.assertEqual(text.count(f"\\begin{{{name}}}"),
                             text.count(f"\\end{{{name}}}"))
        self.has(text, r"\texttt{\symbol{60}}b", r"\& co", "tab:recoveries")
        self.assertTrue(json.loads(self.report(job, other, "--format",
                                               "perfetto"))["traceEvents"])

    def check_page(self, *jobs):
        path = self.folder / "report.html"
        self.assertEqual(self.report(*jobs, "-o", path), "")
        text = path.read_text()
        page = Page(text)
        # Loss, accuracy, time split, and a step of each job, twice.
        self.assertGreaterEqual(page.count["svg"], 6)
        self.assertNotIn("b", page.count)
        self.assertNotIn("script", page.count)
        self.assertEqual(page.fetches, [])
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
