#!/usr/bin/env python3
"""What spin.py takes for a success, and what it must not."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from model_check import APPLIES_OUT_OF_TURN, DIVERGES, protocol
from spin import SKIPPED, Case, problem_of

PROTOCOL = protocol("protocol", "N=3")
BROKEN = Case("broken", "N=3", DIVERGES)

EXPLORED = """
Full statespace search for:
State-vector 128 byte, depth reached 46, errors: 0
    17981 states, stored
unreached in proctype member
\tround.pml:373, state 263, "-end-"
\t(1 of 263 states)
unreached in proctype coordinator
\tround.pml:478, state 80, "-end-"
\t(1 of 80 states)
"""
VIOLATED = """pan:1: assertion violated ((decided[1]==0)||(decided[1]==2))
pan: wrote round.pml.trail
Warning: Search not completed
State-vector 128 byte, depth reached 27, errors: 1
"""


class Reading(unittest.TestCase):

    def test_accepts_a_search_without_errors(self):
        self.assertIsNone(problem_of(PROTOCOL, EXPLORED))

    def test_refuses_a_counter_example_of_the_protocol(self):
        self.assertIn("counter-example", problem_of(PROTOCOL, VIOLATED))

    def test_refuses_a_search_that_crashed(self):
        self.assertIn("did not end", problem_of(PROTOCOL, "Segmentation"))

    def test_refuses_a_search_cut_at_the_depth(self):
        text = "error: max search depth too small\n" + EXPLORED
        self.assertIn("not explored", problem_of(PROTOCOL, text))

    def test_refuses_a_search_cut_at_the_memory(self):
        text = "pan: reached -DMEMLIM bound\nout of memory\n" + EXPLORED
        self.assertIn("not explored", problem_of(PROTOCOL, text))

    def test_refuses_a_search_that_hashes_states_away(self):
        text = EXPLORED.replace("Full statespace", "Bit statespace")
        self.assertIn("not a Full statespace search", problem_of(PROTOCOL, text))

    def test_refuses_an_action_that_never_happens(self):
        text = EXPLORED.replace(
            "\t(1 of 263", '\tround.pml:9, state 4, "view[1] = 2"\n\t(2 of 263')
        self.assertIn("view[1] = 2", problem_of(PROTOCOL, text))

    def test_refuses_a_search_that_says_nothing_of_actions(self):
        text = EXPLORED.split("unreached", maxsplit=1)[0]
        self.assertIn("expected a report", problem_of(PROTOCOL, text))

    def test_accepts_the_counter_example_expected(self):
        self.assertIsNone(problem_of(BROKEN, VIOLATED))

    def test_refuses_a_broken_protocol_without_counter_example(self):
        self.assertIn("expected one", problem_of(BROKEN, EXPLORED))

    def test_refuses_another_counter_example_than_expected(self):
        case = BROKEN._replace(expected=APPLIES_OUT_OF_TURN)
        self.assertIn("expected another", problem_of(case, VIOLATED))


class Running(unittest.TestCase):

    def test_skips_with_a_reason_where_spin_is_missing(self):
        result = subprocess.run(
            [sys.executable, Path(__file__).with_name("model_check.py"),
             "three"], env={**os.environ, "PATH": "/nowhere"},
            capture_output=True, text=True, check=False)

        self.assertEqual(result.returncode, SKIPPED)
        self.assertIn("spin is not installed", result.stdout)


if __name__ == "__main__":
    unittest.main()
