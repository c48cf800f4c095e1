"""What proof.py takes for a panel that shows something."""

import unittest

from dashboards.proof import Kill, Panel, events, filled_in, panels

NAN = float("nan")


class FakePrometheus:
    """Answers each expression with the lines it was given."""

    def __init__(self, **answers):
        self.answers = answers

    def series(self, expression, _begin, _end):
        return [({"worker": name}, list(enumerate(values)))
                for name, values in self.answers[expression].items()]


def panel(*expressions, title="T", **answers):
    made = Panel("D", title, [("{{worker}}", each) for each in expressions])
    made.ask(FakePrometheus(**answers), 0, 9)
    return made


class Verdict(unittest.TestCase):
    def test_a_panel_needs_a_line_that_changes_and_answers_to_all(self):
        flat = {"w1": [3, 3, NAN], "w2": [7]}
        for shown, good, words in (
                (panel("a", a={"w1": [1, 1], "w2": [1, 2]}), True, "1 of 2"),
                (panel("a", a=flat), False, "CONSTANT: [3, 7]"),
                (panel("a", title="Versions of the weights", a=flat), True,
                 "come and go"),
                (panel("a", "b", a={"w1": [1, 2]}, b={}), False, "EMPTY: b")):
            self.assertEqual(shown.verdict()[0], good)
            self.assertIn(words, shown.verdict()[1])

    def test_nothing_is_left_for_grafana_to_fill_in(self):
        for each in (*panels(), *events()):
            for _, expression in each.targets:
                self.assertNotIn("$", filled_in(expression), each.title)


class SeenKill(unittest.TestCase):
    def unseen(self, lines):
        kill = Kill(None)
        kill.worker, kill.at = "w2", 5
        shown = Panel("Mesh", "State of each worker", [])
        shown.lines = lines
        return [each for each in kill.unseen([shown], seconds=4)
                if "State of each worker" in each]

    def test_a_state_right_after_it_counts(self):
        self.assertEqual(self.unseen([("w2", [(4, 2), (6, 4)])]), [])

    def test_a_state_long_after_it_or_of_another_worker_does_not(self):
        self.assertEqual(len(self.unseen([("w2", [(4, 2), (12, 4)]),
                                          ("w1", [(6, 4)])])), 1)

    def test_panels_of_the_kill_exist(self):
        titles = {each.title for each in (*panels(), *events())}
        kill = Kill(None)
        for title, _, _ in kill.sees():
            self.assertIn(title, titles)
