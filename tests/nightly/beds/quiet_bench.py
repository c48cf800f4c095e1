"""`paceline bench` on a box whose host takes its CPUs away now and then.

What the host takes (steal) is missing on a node alone and on four at once in
other parts: of two runs one after the other, a few percent decide about more
than what is looked for (seen here: rows of 1 to 13 % in one quarter of an
hour, and with them 1.93x to 1.85x on two nodes).  A CPU of which nothing is
taken changes its speed too, by what runs beside it on the host (seen here: a
fixed loop from 2.4 to 1.8 samples/s in four minutes).  So a try counts where
little was taken and a node alone was as fast before the nodes together as after
them, whatever these measured.
"""

from typing import NamedTuple

# Of all CPUs' time, in a round of cases.
MOST_STOLEN = 0.02
# Between the time of a worker alone before and after.
MOST_DRIFT = 0.03
# Tries at most, as a multiple of those that are asked for.
PATIENCE = 3


class Try(NamedTuple):
    """The rows of one number of stages in one round of cases."""
    stolen: float  # the part of the box that the host took in that round
    rows: list

    def unrest(self):
        """How far it is from one that counts: at most 1 does."""
        drift = max(row["drift"] for row in self.rows)
        return max(self.stolen / MOST_STOLEN, drift / MOST_DRIFT)


def cpu_times():
    """(taken by the host, all), of all CPUs since they were started."""
    with open("/proc/stat", encoding="ascii") as stat:
        times = [int(word) for word in stat.readline().split()[1:9]]
    return times[7], sum(times)


def run_round(bed, command):
    """number of stages -> Try."""
    stolen, every = cpu_times()
    rows = bed.ask(*command, "--tries", "1")["rows"]
    stolen_now, every_now = cpu_times()
    share = (stolen_now - stolen) / max(1, every_now - every)
    return {stages: Try(share, [row for row in rows if row["stages"] == stages])
            for stages in dict.fromkeys(row["stages"] for row in rows)}


def medians(tries, count):
    """Each row in the middle of the first `count` quiet tries, or where those
    are missing of the quietest ones; with `stolen` and `drift`, the most of a
    try that counts."""
    quiet = [each for each in tries if each.unrest() <= 1][:count]
    if len(quiet) < count:
        quiet = sorted(tries, key=Try.unrest)[:count]
    found = []
    for rows in zip(*(each.rows for each in quiet)):
        ordered = sorted(rows, key=lambda row: (row["speedup"],
                                                row["throughput"]))
        found.append({**ordered[(len(ordered) - 1) // 2],
                      "stolen": max(each.stolen for each in quiet),
                      "drift": max(row["drift"] for row in rows)})
    return found


def quiet_bench(bed, kind, stages, count, *more):
    """The rows of `paceline bench KIND --stages STAGES ...`, each the median of
    `count` tries.  What has not enough quiet ones then is tried again."""
    tries = {}  # number of stages -> its tries
    missing, known = stages, []
    for turn in range(count * PATIENCE):
        found = run_round(bed, ["bench", kind, "--stages",
                                ",".join(map(str, missing)), *more, *known])
        # The profile of the first round is good for all.
        known = ["--no-profile"]
        for each, one in found.items():
            tries.setdefault(each, []).append(one)
        if turn + 1 >= count:
            missing = [each for each in stages if each > 1 and sum(
                one.unrest() <= 1 for one in tries[each]) < count]
            if not missing:
                break
    return [row for each in tries.values() for row in medians(each, count)]
