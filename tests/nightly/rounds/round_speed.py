"""How fast four members agree on a gradient: rounds against Gloo's all-reduce.

Parts:
  bed       four machines of 0.4 core, links of 1 Gbit/s
  loopback  four processes on this box

Every way is timed from all ready to all applied, by one clock, the ways taking
turns; only ratios within one run are judged.  `bare` is gRPC alone: everybody
sends everybody else as many bytes as sharded rounds do, out of as much memory.
Gloo is that of python3-torch.
"""

import contextlib
import re
import statistics
import subprocess
import time
from pathlib import Path

from bed import NODES
from nightly import say

MIB = 1 << 20
LINK_BYTES = 1e9 / 8  # a second each way of a bed's link, headers included
GLOO = Path(__file__).with_name("gloo_member.py")
# From the word to the start, so that it has reached everybody.
LEAD_SECONDS = 0.1
# Until memory is used again from round to round.
WARM_UP = 5
# The rounds' ways: name, shards, mode.
ROUNDS = (("shards: 4", NODES, "rolling"), ("one server", 1, "rolling"),
          ("central", 1, "central"))


class Member:
    """A process that answers each line with one."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a member ended: {self.process.args}")
        return line.strip()

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Group:
    """Members of one kind, asked all at once."""

    def __init__(self, commands):
        self.members = [Member(command) for command in commands]

    def ask(self, line):
        for member in self.members:
            member.say(line)
        return [member.hear() for member in self.members]

    def time(self):
        """Seconds of one go, until the last one is done."""
        begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        begin += int(LEAD_SECONDS * 1e9)
        ends = [int(line.split()[1]) for line in self.ask(f"go {begin}")]
        return (max(ends) - begin) / 1e9

    def end(self):
        for member in self.members:
            member.end()


class Place:
    """Where members run, and what they may be reached at."""

    def __init__(self, bed=None):
        self.bed = bed

    def command(self, index, *command):
        if self.bed is None:
            return list(command)
        return self.bed.command(*command, on=index + 1)

    def host(self, index):
        if self.bed is None:
            return "127.0.0.1"
        text = self.bed.output("ip", "-o", "-4", "addr", "show", "eth0",
                               on=index + 1)
        return re.search(r"inet ([0-9.]+)/", text).group(1)


def rounds_group(place, program):
    group = Group([place.command(i, program, str(i), place.host(i))
                   for i in range(NODES)])
    addresses = [member.hear() for member in group.members]
    group.ask("peers " + " ".join(addresses))
    return group


def gloo_group(place, *model):
    interface = "lo" if place.bed is None else "eth0"
    group = Group([
        place.command(i, "env", "OMP_NUM_THREADS=1",
                      f"GLOO_SOCKET_IFNAME={interface}", "/usr/bin/python3",
                      str(GLOO), str(i), str(NODES), place.host(0), *model)
        for i in range(NODES)])
    for member in group.members:
        member.hear()
    return group


def measure(rounds, gloo, count_bytes, tries):
    """Seconds by way, [tries] each, after some goes that are not counted."""
    times = {}

    def go(name, group, word):
        group.ask(word)
        for _ in range(WARM_UP):
            group.time()
            group.ask("again")
        times.setdefault(name, []).append(group.time())

    for _ in range(tries):
        # To each other member what two phases of n shards send it.
        go("bare", rounds, f"bare {2 * count_bytes // NODES}")
        for name, shards, mode in ROUNDS:
            go(name, rounds, f"reduce {count_bytes} {shards} {mode}")
        if gloo is not None:
            go("gloo", gloo, f"reduce {count_bytes}")
    return times


def cost(name):
    """Steps one after the other, and gradients through the busiest member in
    both together; the two words of hold and commit come on top.  One server
    takes all parts in before it can send the result to all."""
    if name in ("shards: 4", "bare", "gloo"):
        return 2, 2 * (NODES - 1) / NODES
    return 2, 2 * (NODES - 1)


def show(times, count_bytes):
    rate = (2 * (NODES - 1) / NODES * count_bytes
            / statistics.median(times["bare"]))
    print(f"  bare gRPC: {rate / 1e6:.0f} MB/s each way of every member")
    for name, values in times.items():
        steps, gradients = cost(name)
        bound = gradients * count_bytes / rate
        median = statistics.median(values)
        say(f"  {name:12} {1e3 * median:9.1f} ms  (least "
              f"{1e3 * min(values):.1f}, most {1e3 * max(values):.1f})  "
              f"{steps} steps of {gradients / steps:.2f} gradients: "
              f"{1e3 * bound:.1f} ms at that rate, {median / bound:.2f} of it")


def ratio(times, above, below):
    """Median over turns, of which each saw the box alike."""
    return statistics.median(a / b for a, b in zip(times[above], times[below]))


def judge(run, part, times, mib):
    what = f"{part}, {mib} MiB, shards: 4"
    # On the bed a small gradient is not judged by the link: latency rules.
    if part == "loopback" or mib >= 100:
        run.at_most(f"{what} / bare gRPC", 1.25,
                       ratio(times, "shards: 4", "bare"))
    # Bare gRPC may be slower than the link: that one's bound, too.
    if part == "bed" and mib >= 100:
        gradients = cost("shards: 4")[1]
        link = gradients * mib * MIB / LINK_BYTES
        run.at_most(f"{what} / {1e3 * link:.0f} ms, the link's own bound",
                       1.25, statistics.median(times["shards: 4"]) / link)
    if part == "bed" and "gloo" in times:
        run.at_most(f"{what} / Gloo", 0.6 if mib >= 100 else 0.7,
                       ratio(times, "shards: 4", "gloo"))


def compare(run, place, part):
    rounds = rounds_group(place, f"{run.bin}/bench_round_exchange")
    gloo = None if run.no_gloo else gloo_group(place)
    try:
        for mib in map(int, run.mib.split(",")):
            say(f"{part}, {mib} MiB of float32, {NODES} members")
            times = measure(rounds, gloo, mib * MIB, run.tries)
            show(times, mib * MIB)
            judge(run, part, times, mib)
    finally:
        rounds.end()
        if gloo is not None:
            gloo.end()


OPTIONS = {"part": ("loopback", "bed"), "tries": 5, "mib": "100,4",
           "name": "rounds", "no_gloo": False}


def main(run):
    run.needs(root="bed" in run.part, torch=not run.no_gloo)
    for part in run.part:
        with run.bed() if part == "bed" else contextlib.nullcontext() as bed:
            compare(run, Place(bed), part)
