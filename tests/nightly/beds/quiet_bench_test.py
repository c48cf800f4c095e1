"""What counts of a bench on a box that is not quiet: quiet_bench.py."""

import unittest
from unittest import mock

from beds import quiet_bench
from beds.quiet_bench import MOST_DRIFT, MOST_STOLEN, StolenShare, median

QUIET, NOISY = MOST_STOLEN / 2, MOST_STOLEN * 3
STEADY, DRIFTED = MOST_DRIFT / 2, MOST_DRIFT * 2


def row(speedup, stages=4, policy="optimal", drift=0):
    return {"stages": stages, "policy": policy, "schedule": "", "drift": drift,
            "speedup": speedup, "throughput": 2 * speedup}


class FakeBed:
    """Runs a bench whose cases take what `shares` says, a round each."""

    def __init__(self, shares, drifts=()):
        self.shares = shares
        self.drifts = list(drifts)
        self.commands = []

    def ask(self, *command, listen):
        self.commands.append(command)
        stages = command[command.index("--stages") + 1].split(",")
        shares = self.shares.pop(0)
        drift = self.drifts.pop(0) if self.drifts else 0
        times = [(0, 0)]
        rows = []
        with mock.patch.object(quiet_bench, "cpu_times", lambda: times[-1]):
            for job, count in enumerate(stages, start=1):
                listen(f"job {job}  preparing")
                listen(f"job {job}  micro-batch 3/8")
                stolen, total = times[-1]
                times.append((stolen + 1000 * shares[int(count)], total + 1000))
                listen(f"{count} stage{'' if count == '1' else 's'}, optimal: "
                       "2.5 samples/s, 1.00x")
                rows.append(row(float(count), int(count),
                            drift=drift if int(count) > 1 else 0))
        return {"rows": rows}


class Median(unittest.TestCase):
    def test_is_of_the_first_quiet_and_steady_tries_else_of_the_quietest(self):
        for tries, expected in (
                ([(NOISY, row(1)), (QUIET, row(5)), (QUIET, row(3)),
                  (QUIET, row(4)), (QUIET, row(9))], {"stolen": QUIET}),
                ([(2 * NOISY, row(1)), (QUIET, row(5)), (NOISY, row(3)),
                  (NOISY, row(4))], {"stolen": NOISY}),
                ([(0, row(1, drift=DRIFTED)), (0, row(5, drift=STEADY)),
                  (0, row(3)), (0, row(4)), (0, row(9))],
                 {"stolen": 0, "drift": STEADY})):
            self.assertEqual(median(tries, 3), {**row(4), **expected})


class Share(unittest.TestCase):
    def shares(self, paired):
        share = StolenShare(paired)
        found = []
        lines = [((0, 0), "job 1  preparing"),
                 ((100, 1000), "1 stage, optimal: 2.5 samples/s, 1.00x"),
                 ((100, 1000), "job 2  micro-batch 0/8"),
                 ((100, 2000), "job 2  micro-batch 3/8  2 samples/s"),
                 ((100, 3000), "job 3  preparing"),
                 ((500, 4000), "4 stages, optimal: 9.3 samples/s, 3.71x")]
        for times, line in lines:
            with mock.patch.object(quiet_bench, "cpu_times", lambda: times):
                found.append(share.read(line))
        return [each for each in found if each is not None]

    def test_is_of_a_case_and_the_workers_alone_beside_it_or_before(self):
        for paired in (True, False):
            self.assertEqual(self.shares(paired), [0.1, 500 / 4000])

    def test_needs_no_word_of_the_beginning(self):
        with mock.patch.object(quiet_bench, "cpu_times", lambda: (0, 0)):
            share = StolenShare(False)
        self.assertIsNone(share.read("job 1  queued"))
        with mock.patch.object(quiet_bench, "cpu_times", lambda: (9, 90)):
            self.assertEqual(share.read("1 stage, optimal: 2.5 samples/s"), 0.1)


class Rounds(unittest.TestCase):
    def run_bench(self, *shares, drifts=()):
        bed = FakeBed(list(shares), drifts)
        with mock.patch("builtins.print"):
            rows = quiet_bench.quiet_bench(bed, "infer", [1, 2, 4], 2)
        return bed, rows

    def test_go_on_for_what_had_no_quiet_tries(self):
        bed, rows = self.run_bench({1: 0, 2: QUIET, 4: QUIET},
                                   {1: 0, 2: QUIET, 4: NOISY},
                                   {1: 0, 2: QUIET, 4: QUIET})

        self.assertEqual([each["stages"] for each in rows], [1, 2, 4])
        self.assertTrue(all(each["stolen"] <= MOST_STOLEN for each in rows))
        words = [command[command.index("--stages") + 1]
                 for command in bed.commands]
        self.assertEqual(words, ["1,2,4", "1,2,4", "4"])
        self.assertEqual(["--no-profile" in each for each in bed.commands],
                         [False, True, True])

    def test_go_on_where_the_speed_changed(self):
        bed, rows = self.run_bench(*3 * [{1: 0, 2: QUIET, 4: QUIET}],
                                   drifts=[DRIFTED, STEADY, 0])

        self.assertEqual(len(bed.commands), 3)
        self.assertTrue(all(each["drift"] <= MOST_DRIFT for each in rows))

    def test_end_on_a_box_that_is_never_quiet(self):
        bed, rows = self.run_bench(*6 * [{1: 0, 2: QUIET, 4: NOISY}])

        self.assertEqual(len(bed.commands), 6)
        self.assertGreater(rows[2]["stolen"], MOST_STOLEN)
