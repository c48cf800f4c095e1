#!/usr/bin/env python3
"""How fast DeiT-S runs and trains on emulated machines.

  bed_speed.py --bin build/release/bin [--part NAME]... [--tries 3]
               [--name NAME] [--model MODEL] [--micro-batches 96]
               [--policy equal,min-cut,dp] [--stages 2,3,4,6]
               [--set KEY=VALUE]...

Parts:
  plain      one node against a plain LibTorch loop on the same node, and what
             of its time is not the layers'
  infer      1, 2, 3, 4 and 6 stages on four nodes; dp, equal, min-cut
  train      1f1b on four nodes
  pipedream  the same without a flush, after its first batch
  train-others  zero-bubble, and interleaved with 8 stages
  slow-node  one node half as fast: dp against equal
  codecs     20 Mbit/s: fp32, bf16 and int8 on the wire

`--set cpu_capability=avx2` has all nodes, the one alone too, compute at the
speed of a plain LibTorch loop on a CPU without AVX-512: a frame costs what it
costs, so the faster the layers, the more of the time is the frames'.

What nodes leave of the box is filled with such a loop at idle priority, one that
trains where nodes train, so that a node alone computes beside as busy neighbours
as one of four.

A try counts where the host took little of the box and left its speed alone
(quiet_bench.py); the last columns say how much that was in those that count.  Prints
the tables of `paceline bench` and what must be reached beside what was; exits 1
when something was not, 77 when there cannot be a bed (not root).
"""

import argparse
import os
import re
import sys

from bed import NODES, ROOT, SKIPPED, Bed
from quiet_bench import quiet_bench

PARTS = ("plain", "infer", "train", "pipedream", "train-others", "slow-node",
         "codecs")


class Report:
    """What is asked and what was measured."""

    def __init__(self):
        self.rows = []

    def at_least(self, what, asked, measured):
        self.rows.append((what, f">= {asked:g}", f"{measured:.3f}",
                          measured >= asked))

    def at_most(self, what, asked, measured):
        self.rows.append((what, f"<= {asked:g}", f"{measured:.3f}",
                          measured <= asked))

    def print(self):
        width = max((len(row[0]) for row in self.rows), default=0)
        for what, asked, measured, good in self.rows:
            print(f"{what:{width}}  asked {asked:9}  measured {measured:8}  "
                  f"{'ok' if good else 'SHORT'}", flush=True)
        return all(row[3] for row in self.rows)


def show(rows):
    for row in rows:
        losses = row["losses"]
        print(f"  {row['stages']} stages  {row['policy']:8} "
              f"{row['schedule'] or '':16} {row['throughput']:8.3f} samples/s  "
              f"{row['speedup']:5.2f}x  bound {row['bound']:5.2f}  "
              f"fill {100 * losses['fill']:5.1f} %  "
              f"imbalance {100 * losses['imbalance']:5.1f} %  "
              f"transfer {100 * losses['transfer']:5.1f} %  "
              f"slowdown {100 * losses['slowdown']:5.1f} %  "
              f"unexplained {100 * losses['unexplained']:5.1f} %  "
              f"host took {100 * row['stolen']:4.1f} %  "
              f"drift {100 * row['drift']:4.1f} %", flush=True)


def bench(bed, kind, arguments, stages, *more):
    sets = [word for each in arguments.set for word in ("--set", each)]
    rows = quiet_bench(bed, kind, stages, arguments.tries, "--model",
                       arguments.model, *sets, *more)
    show(rows)
    return rows


def row_of(rows, stages, policy=None, schedule=None):
    for row in rows:
        if (row["stages"] == stages and policy in (None, row["policy"])
                and schedule in (None, row["schedule"])):
            return row
    raise KeyError((stages, policy, schedule))


def own_share(bed):
    """What of the last job's run its only worker spent outside the layers:
    waiting, for data too, sending, handing predictions over, and what it cannot
    name.  Preparing the run came before its first micro-batch."""
    seconds = bed.json("job", "show", "last")["workers"][0]["seconds"]
    run = seconds["wall"] - seconds["orders"]
    return (run - seconds["forward"]) / run


def plain(bed, arguments, report):
    """Turn about, so that a box that slows down slows both."""
    ratios, shares = [], []
    for _ in range(arguments.tries):
        text = bed.run("bench_plain_vit", "16", on=1).decode()
        loop = float(re.match(r"([0-9.]+) samples/s", text).group(1))
        rows = bed.json("bench", "infer", "--model", "deit_small_patch16_224",
                        "--stages", "1", "--micro-batches", "16",
                        "--no-profile", "--keep-jobs")["rows"]
        shares.append(own_share(bed))
        print(f"  plain loop {loop:.3f}, worker {rows[0]['throughput']:.3f} "
              f"samples/s, of its time {100 * shares[-1]:.2f} % outside the layers",
              flush=True)
        ratios.append(rows[0]["throughput"] / loop)
    report.at_least("one node / plain loop", 0.97, sorted(ratios)[len(ratios) // 2])
    report.at_most("one node, outside the layers", 0.03, max(shares))


def explained(what, rows, report):
    """What no column explains is little, whatever the row."""
    report.at_most(f"{what}, unexplained, at most of any row", 0.03,
                   max(abs(row["losses"]["unexplained"]) for row in rows))


def infer(bed, arguments, report):
    wanted = [int(word) for word in arguments.stages.split(",")]
    rows = bench(bed, "infer", arguments, [1, *wanted],
                 "--paired", "24", "--policy", arguments.policy,
                 "--micro-batch", "4",
                 "--micro-batches", str(arguments.micro_batches))
    explained("infer", rows, report)
    for stages, least in ((2, 1.90), (3, 2.76), (4, 3.62), (6, 3.3)):
        if stages not in wanted or "dp" not in arguments.policy:
            continue
        row = row_of(rows, stages, "dp")
        report.at_least(f"infer, {stages} stages, of its bound",
                        0.95 if stages == 6 else 0.97,
                        row["speedup"] / row["bound"])
        report.at_least(f"infer, {stages} stages, speed-up", least, row["speedup"])


TRAINING = ("--micro-batch", "2", "--micro-batches", "32", "--paired", "2")


def train(bed, arguments, report):
    rows = bench(bed, "train", arguments, [NODES], *TRAINING,
                 "--schedule", "1f1b")
    explained("train, 1f1b", rows, report)
    row = row_of(rows, NODES, schedule="1f1b")
    report.at_least("train, 1f1b, of its bound", 0.95, row["speedup"] / row["bound"])


def pipedream(bed, arguments, report):
    # The first batch fills the pipeline; 128 micro-batches follow.
    rows = bench(bed, "train", arguments, [NODES], *TRAINING,
                 "--steps", "5", "--schedule", "pipedream")
    explained("train, pipedream", rows, report)
    row = row_of(rows, NODES)
    report.at_least("train, pipedream, of the balance bound", 0.95,
                    row["speedup"] / row["bound"])


def train_others(bed, arguments, _):
    """Beside 1f1b in the same rounds: what each gains is no figure of ours."""
    rows = bench(bed, "train", arguments, [NODES], *TRAINING,
                 "--schedule", "1f1b,zero-bubble")
    gain = (row_of(rows, NODES, schedule="zero-bubble")["speedup"]
            / row_of(rows, NODES, schedule="1f1b")["speedup"])
    print(f"  zero-bubble / 1f1b: {gain:.3f}", flush=True)
    bench(bed, "train", arguments, [2 * NODES], *TRAINING,
          "--schedule", "interleaved-1f1b")


def slow_node(bed, arguments, report):
    rows = bench(bed, "infer", arguments, [NODES],
                 "--policy", "equal,dp", "--micro-batch", "4",
                 "--micro-batches", str(arguments.micro_batches // 2))
    explained("half as fast a node", rows, report)
    report.at_least("half as fast a node: dp / equal", 1.5,
                    row_of(rows, NODES, "dp")["throughput"]
                    / row_of(rows, NODES, "equal")["throughput"])


def codecs(bed, arguments, report):
    speed = {}
    for codec in ("fp32", "bf16", "int8"):
        rows = bench(bed, "infer", arguments, [NODES],
                     "--micro-batch", "4",
                     "--micro-batches", str(arguments.micro_batches // 2),
                     "--set", f"pipeline.codec={codec}")
        explained(f"20 Mbit/s, {codec}", rows, report)
        speed[codec] = row_of(rows, NODES)["throughput"]
    report.at_least("20 Mbit/s: bf16 / fp32", 1.3, speed["bf16"] / speed["fp32"])
    report.at_least("20 Mbit/s: int8 / bf16", 0.97, speed["int8"] / speed["bf16"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--name", default="speed")
    parser.add_argument("--model", default="deit_small_patch16_224")
    parser.add_argument("--policy", default="equal,min-cut,dp")
    parser.add_argument("--stages", default="2,3,4,6")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--micro-batches", type=int, default=96)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: a bed needs root", file=sys.stderr)
        return SKIPPED
    wanted = arguments.part or PARTS
    report = Report()
    # What the nodes do, as they do it: samples, threads, what.
    infers = ("4", "1", "infer")
    trains = ("2", "1", "train")
    beds = (((), infers, ("plain", plain), ("infer", infer)),
            ((), trains, ("train", train), ("pipedream", pipedream),
             ("train-others", train_others)),
            (("--cpu-of", "3=0.2"), infers, ("slow-node", slow_node)),
            (("--rate", "20mbit"), infers, ("codecs", codecs)))
    for more, work, *parts in beds:
        if not any(name in wanted for name, _ in parts):
            continue
        # As much as a box can be kept busy with: for ever, whatever the number.
        filler = (f"{arguments.bin}/bench_plain_vit", "1000000000", *work)
        with Bed(arguments.name, arguments.bin, more, filler) as bed:
            for name, part in parts:
                if name not in wanted:
                    continue
                print(f"{name}:", flush=True)
                part(bed, arguments, report)
    return 0 if report.print() else 1


if __name__ == "__main__":
    sys.exit(main())
