#!/usr/bin/env python3
"""What model_check.py takes for a success, and what it must not."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from model_check import (APPLIES_OUT_OF_TURN, DIVERGES, SKIPPED, Case,
                         problem_of, protocol)

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
    def test_accepts_a_search_that_ends_as_it_must(self):
        self.assertIsNone(problem_of(PROTOCOL, EXPLORED))
        self.assertIsNone(problem_of(BROKEN, VIOLATED))

    def test_refuses_every_other_one_and_says_why(self):
        for case, text, why in (
                (PROTOCOL, VIOLATED, "counter-example"),
                (PROTOCOL, "Segmentation", "did not end"),
                (PROTOCOL, "error: max search depth too small\n" + EXPLORED,
                 "not explored"),
                (PROTOCOL, "pan: reached -DMEMLIM bound\nout of memory\n"
                 + EXPLORED, "not explored"),
                (PROTOCOL, EXPLORED.replace("Full statespace", "Bit statespace"),
                 "not a Full statespace search"),
                (PROTOCOL, EXPLORED.replace(
                    "\t(1 of 263",
                    '\tround.pml:9, state 4, "view[1] = 2"\n\t(2 of 263'),
                 "view[1] = 2"),
                (PROTOCOL, EXPLORED.split("unreached", maxsplit=1)[0],
                 "expected a report"),
                (BROKEN, EXPLORED, "expected one"),
                (BROKEN._replace(expected=APPLIES_OUT_OF_TURN), VIOLATED,
                 "expected another")):
            with self.subTest(why=why, text=text[:40]):
                self.assertIn(why, problem_of(case, text))


class Running(unittest.TestCase):

    def test_skips_with_a_reason_where_spin_is_missing(self):
        result = subprocess.run(
            [sys.executable, Path(__file__).with_name("model_check.py"),
             "round", "three"], env={**os.environ, "PATH": "/nowhere"},
            capture_output=True, text=True, check=False)

        self.assertEqual(result.returncode, SKIPPED)
        self.assertIn("spin is not installed", result.stdout)


if __name__ == "__main__":
    unittest.main()
