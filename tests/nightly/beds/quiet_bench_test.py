"""What counts of a bench on a box that is not quiet: quiet_bench.py."""

import unittest
from unittest import mock

from beds import quiet_bench
from beds.quiet_bench import MOST_DRIFT, MOST_STOLEN, Try, medians

QUIET, NOISY = MOST_STOLEN / 2, MOST_STOLEN * 3
STEADY, DRIFTED = MOST_DRIFT / 2, MOST_DRIFT * 2


def row(speedup, drift=0.0):
    return {"drift": drift, "speedup": speedup, "throughput": 2 * speedup}


class FakeBed:
    """Runs a bench of two rows; the host takes such shares of the box."""

    def __init__(self, tries):
        self.tries = iter(tries)  # (share, drift)
        self.times = [0, 0]
        self.commands = []

    def ask(self, *command):
        self.commands.append(command)
        share, drift = next(self.tries)
        self.times = [self.times[0] + 1000 * share, self.times[1] + 1000]
        return {"rows": [row(1.0), row(2.0, drift)]}


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

    def test_tries_a_number_of_stages_again_until_enough_tries_are_quiet(self):
        quiet = (QUIET, STEADY)
        for second, count, stolen in (
                ([quiet, quiet], 4, QUIET),
                ([quiet, (NOISY, STEADY), quiet], 5, QUIET),
                ([(QUIET, DRIFTED), quiet, quiet], 5, QUIET),
                (6 * [(NOISY, STEADY)], 8, NOISY)):  # as often as it may
            bed = FakeBed([quiet, quiet, *second])
            with mock.patch.object(quiet_bench, "cpu_times",
                                   lambda bed=bed: bed.times):
                rows = quiet_bench.quiet_bench(bed, "infer", [2, 4], 2)

            self.assertEqual(len(rows), 4)
            self.assertAlmostEqual(rows[-1]["stolen"], stolen)
            words = [(command[3], "--no-profile" in command)
                     for command in bed.commands]
            self.assertEqual(words, [("2", False), ("2", True)] +
                             (count - 2) * [("4", True)])


if __name__ == "__main__":
    unittest.main()
