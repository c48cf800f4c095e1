"""What counts of a bench on a box that is not quiet: quiet_bench.py."""

import unittest
from unittest import mock

from beds import quiet_bench
from beds.quiet_bench import MOST_DRIFT, MOST_STOLEN, Try, medians

QUIET, NOISY = MOST_STOLEN / 2, MOST_STOLEN * 3
STEADY, DRIFTED = MOST_DRIFT / 2, MOST_DRIFT * 2


def row(speedup, drift=0.0, stages=4):
    return {"drift": drift, "speedup": speedup, "throughput": 2 * speedup,
            "stages": stages}


class FakeBed:
    """Runs a bench of one worker alone and of the stages that are asked for;
    the host takes such shares of the box."""

    def __init__(self, rounds):
        self.rounds = iter(rounds)  # (share, number of stages -> drift)
        self.times = [0, 0]
        self.commands = []

    def ask(self, *command):
        self.commands.append((command[3], "--no-profile" in command))
        share, drifts = next(self.rounds)
        self.times = [self.times[0] + 1000 * share, self.times[1] + 1000]
        return {"rows": [row(1.0, stages=1)] + [
            row(each / 2, drifts.get(each, 0), each)
            for each in map(int, command[3].split(",")) if each > 1]}


class QuietBench(unittest.TestCase):
    def test_counts_the_first_quiet_and_steady_tries_else_the_quietest(self):
        for tries, expected in (
                ([(NOISY, row(1)), (QUIET, row(5)), (QUIET, row(3)),
                  (QUIET, row(4)), (QUIET, row(9))], {"stolen": QUIET}),
                ([(2 * NOISY, row(1)), (QUIET, row(5)), (NOISY, row(3)),
                  (NOISY, row(4))], {"stolen": NOISY}),
                ([(0, row(1, DRIFTED)), (0, row(5, STEADY)), (0, row(3)),
                  (0, row(4)), (0, row(9))], {"stolen": 0, "drift": STEADY})):
            found, = medians([Try(share, [one]) for share, one in tries], 3)
            self.assertEqual(found, {**row(4), **expected})

    def test_tries_again_what_was_disturbed(self):
        quiet, drifted, noisy = ((QUIET, {4: STEADY}), (QUIET, {4: DRIFTED}),
                                 (NOISY, {}))
        for rounds, asked, stolen in (
                ([quiet, quiet], [], QUIET),
                ([drifted, quiet, quiet], ["4"], QUIET),
                ([quiet, noisy, quiet], ["2,4"], QUIET),
                (6 * [noisy], 4 * ["2,4"], NOISY)):  # as often as it may
            bed = FakeBed(rounds)
            with mock.patch.object(quiet_bench, "cpu_times",
                                   lambda bed=bed: bed.times):
                rows = quiet_bench.quiet_bench(bed, "infer", [1, 2, 4], 2)

            self.assertEqual([each["stages"] for each in rows], [1, 2, 4])
            self.assertAlmostEqual(rows[-1]["stolen"], stolen)
            self.assertLessEqual(rows[-1]["drift"], MOST_DRIFT)
            self.assertEqual(bed.commands, [
                ("1,2,4", False), ("1,2,4", True),
                *((words, True) for words in asked)])
