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

import re

# Of all CPUs' time, during a case and the workers alone beside it.
MOST_STOLEN = 0.02
# Between the time of a worker alone before and after.
MOST_DRIFT = 0.03
# Rounds at most, as a multiple of those that are asked for.
PATIENCE = 3

STARTS = re.compile(r"job (\d+)  (?!queued)")
NOTES = re.compile(r"(\d+) stages?, .*samples/s")


def cpu_times():
    """(taken by the host, all), of all CPUs since they were started."""
    with open("/proc/stat", encoding="ascii") as stat:
        times = [int(word) for word in stat.readline().split()[1:9]]
    return times[7], sum(times)


class StolenShare:
    """What of the box was taken while a case ran, and what it is compared with,
    from what a bench says meanwhile."""

    def __init__(self, paired):
        self._paired = paired
        self._begin = cpu_times()
        self._starts = {}

    def read(self, line):
        """The share, where the line ends a case; else None."""
        if start := STARTS.match(line):
            self._starts.setdefault(int(start[1]), cpu_times())
        note = NOTES.match(line)
        if not note:
            return None
        starts = [self._starts[job] for job in sorted(self._starts)]
        # Of a pair there is a worker alone before and after; else one is the
        # first of all.
        if int(note[1]) == 1:
            starts = starts[-1:]
        elif self._paired:
            starts = starts[-3:]
        stolen, all_times = starts[0] if starts else self._begin
        stolen_now, all_now = cpu_times()
        return (stolen_now - stolen) / max(1, all_now - all_times)


def run_once(bed, command):
    """[(share stolen, row)] of one round of cases."""
    shares = []
    share = StolenShare("--paired" in command)

    def listen(line):
        taken = share.read(line)
        if taken is not None:
            shares.append(taken)
            line = f"{line} (the host took {100 * taken:.1f} %)"
        print(line, flush=True)

    rows = bed.ask(*command, "--tries", "1", listen=listen)["rows"]
    if len(rows) != len(shares):
        raise RuntimeError(f"{len(rows)} rows of which {len(shares)} were timed")
    return list(zip(shares, rows))


def unrest(share, row):
    """How far a try is from one that counts: at most 1 does."""
    return max(share / MOST_STOLEN, row["drift"] / MOST_DRIFT)


def median(tries, count):
    """The row in the middle of the first `count` quiet tries, or where those are
    missing of the quietest ones; with `stolen` and `drift`, the most of a try
    that counts."""
    quiet = [each for each in tries if unrest(*each) <= 1][:count]
    if len(quiet) < count:
        quiet = sorted(tries, key=lambda each: unrest(*each))[:count]
    ordered = sorted(quiet, key=lambda each: (each[1]["speedup"],
                                              each[1]["throughput"]))
    row = dict(ordered[(len(ordered) - 1) // 2][1])
    row["stolen"] = max(share for share, _ in quiet)
    row["drift"] = max(each["drift"] for _, each in quiet)
    return row


def quiet_bench(bed, kind, stages, count, *more):
    """The rows of `paceline bench KIND --stages STAGES ...`, each the median of
    `count` tries."""
    tries = {}  # (stages, policy, schedule) -> [(share stolen, row)]
    missing = list(stages)
    for turn in range(count * PATIENCE):
        # The profile of the first round is good for all.
        known = ["--no-profile"] if turn > 0 else []
        for share, row in run_once(bed, [
                "bench", kind, "--stages", ",".join(map(str, missing)), *more,
                *known]):
            key = (row["stages"], row["policy"], row["schedule"])
            tries.setdefault(key, []).append((share, row))
        if turn + 1 < count:
            continue
        missing = [each for each in stages if any(
            sum(unrest(*each) <= 1 for each in found) < count
            for key, found in tries.items() if key[0] == each and each > 1)]
        if not missing:
            break
    return [median(found, count) for found in tries.values()]
