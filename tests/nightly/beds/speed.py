"""How fast DeiT-S runs and trains on emulated machines.

Parts:
  plain      one node against a plain LibTorch loop on the same node, and what
             of its time is not the layers'
  infer      1, 2, 3, 4 and 6 stages on four nodes; optimal, equal, min-cut
  train      1f1b on four nodes
  pipedream  the same without a flush, after its first batch
  train-others  zero-bubble, and interleaved with 8 stages
  slow-node  one node half as fast: optimal against equal
  codecs     20 Mbit/s: fp32, bf16 and int8 on the wire

`--set cpu_capability=avx2` has all nodes, the one alone too, compute at the
speed of a plain LibTorch loop on a CPU without AVX-512: a frame costs what it
costs, so the faster the layers, the more of the time is the frames'.

What nodes leave of the box is filled with such a loop at idle priority, one
that trains where nodes train, so that a node alone computes beside as busy
neighbours as one of four.

A try counts where the host took little of the box and left its speed alone
(quiet_bench.py); the last columns say how much that was in those that count.
"""

import re

from bed import NODES
from beds.quiet_bench import quiet_bench
from mesh import sets_of
from nightly import say

OPTIONS = {"tries": 3, "name": "speed", "model": "deit_small_patch16_224",
           "policy": "equal,min-cut,optimal", "stages": "2,3,4,6", "set": [],
           "micro_batches": 96}


def show(rows):
    for row in rows:
        losses = "  ".join(f"{name} {100 * row['losses'][name]:5.1f} %"
                           for name in ("fill", "imbalance", "transfer",
                                        "slowdown", "unexplained"))
        say(f"  {row['stages']} stages  {row['policy']:8} "
            f"{row['schedule'] or '':16} {row['throughput']:8.3f} samples/s  "
            f"{row['speedup']:5.2f}x  bound {row['bound']:5.2f}  {losses}  "
            f"host took {100 * row['stolen']:4.1f} %  "
            f"drift {100 * row['drift']:4.1f} %")


def bench(run, bed, kind, stages, *more):
    rows = quiet_bench(bed, kind, stages, run.tries, "--model", run.model,
                       *sets_of(run.set), *more)
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
    seconds = bed.show("last")["workers"][0]["seconds"]
    run = seconds["wall"] - seconds["orders"]
    return (run - seconds["forward"]) / run


def plain(run, bed):
    """Turn about, so that a box that slows down slows both."""
    ratios, shares = [], []
    for _ in range(run.tries):
        text = bed.output("bench_plain_vit", "16", on=1)
        loop = float(re.match(r"([0-9.]+) samples/s", text).group(1))
        rows = bed.ask("bench", "infer", "--model", "deit_small_patch16_224",
                        "--stages", "1", "--micro-batches", "16",
                        "--no-profile", "--keep-jobs")["rows"]
        shares.append(own_share(bed))
        say(f"  plain loop {loop:.3f}, worker {rows[0]['throughput']:.3f} "
            f"samples/s, of its time {100 * shares[-1]:.2f} % outside the layers")
        ratios.append(rows[0]["throughput"] / loop)
    run.at_least("one node / plain loop", 0.97, sorted(ratios)[len(ratios) // 2])
    run.at_most("one node, outside the layers", 0.03, max(shares))


def explained(run, what, rows):
    """What no column explains is little, whatever the row."""
    run.at_most(f"{what}, unexplained, at most of any row", 0.03,
                max(abs(row["losses"]["unexplained"]) for row in rows))


def infer(run, bed):
    wanted = [int(word) for word in run.stages.split(",")]
    rows = bench(run, bed, "infer", [1, *wanted], "--paired", "24", "--policy",
                 run.policy, "--micro-batch", "4", "--micro-batches",
                 str(run.micro_batches))
    explained(run, "infer", rows)
    for stages, least in ((2, 1.90), (3, 2.76), (4, 3.62), (6, 3.3)):
        if stages not in wanted or "optimal" not in run.policy:
            continue
        row = row_of(rows, stages, "optimal")
        run.at_least(f"infer, {stages} stages, of its bound", 0.95 if stages
                     == 6 else 0.97, row["speedup"] / row["bound"])
        run.at_least(f"infer, {stages} stages, speed-up", least, row["speedup"])


TRAINING = ("--micro-batch", "2", "--micro-batches", "32", "--paired", "2")


def train(run, bed):
    rows = bench(run, bed, "train", [NODES], *TRAINING, "--schedule", "1f1b")
    explained(run, "train, 1f1b", rows)
    row = row_of(rows, NODES, schedule="1f1b")
    run.at_least("train, 1f1b, of its bound", 0.95, row["speedup"] / row["bound"])


def pipedream(run, bed):
    # The first batch fills the pipeline; 128 micro-batches follow.
    rows = bench(run, bed, "train", [NODES], *TRAINING,
                 "--steps", "5", "--schedule", "pipedream")
    explained(run, "train, pipedream", rows)
    row = row_of(rows, NODES)
    run.at_least("train, pipedream, of the balance bound", 0.95,
                 row["speedup"] / row["bound"])


def train_others(run, bed):
    """Beside 1f1b in the same rounds: what each gains is no figure of ours."""
    rows = bench(run, bed, "train", [NODES], *TRAINING,
                 "--schedule", "1f1b,zero-bubble")
    gain = (row_of(rows, NODES, schedule="zero-bubble")["speedup"]
            / row_of(rows, NODES, schedule="1f1b")["speedup"])
    say(f"  zero-bubble / 1f1b: {gain:.3f}")
    bench(run, bed, "train", [2 * NODES], *TRAINING,
          "--schedule", "interleaved-1f1b")


def slow_node(run, bed):
    rows = bench(run, bed, "infer", [NODES],
                 "--policy", "equal,optimal", "--micro-batch", "4",
                 "--micro-batches", str(run.micro_batches // 2))
    explained(run, "half as fast a node", rows)
    run.at_least("half as fast a node: optimal / equal", 1.5,
                 row_of(rows, NODES, "optimal")["throughput"]
                 / row_of(rows, NODES, "equal")["throughput"])


def codecs(run, bed):
    speed = {}
    for codec in ("fp32", "bf16", "int8"):
        rows = bench(run, bed, "infer", [NODES], "--micro-batch", "4",
                     "--micro-batches", str(run.micro_batches // 2), "--set",
                     f"pipeline.codec={codec}")
        explained(run, f"20 Mbit/s, {codec}", rows)
        speed[codec] = row_of(rows, NODES)["throughput"]
    run.at_least("20 Mbit/s: bf16 / fp32", 1.3, speed["bf16"] / speed["fp32"])
    run.at_least("20 Mbit/s: int8 / bf16", 0.97, speed["int8"] / speed["bf16"])


PARTS = {"plain": plain, "infer": infer, "train": train,
         "pipedream": pipedream, "train-others": train_others,
         "slow-node": slow_node, "codecs": codecs}
# What a bed is made with, what the nodes do, as they do it (samples, threads,
# what), and the parts there.
INFERS, TRAINS = ("4", "1", "infer"), ("2", "1", "train")
BEDS = (((), INFERS, ("plain", "infer")),
        ((), TRAINS, ("train", "pipedream", "train-others")),
        (("--cpu-of", "3=0.2"), INFERS, ("slow-node",)),
        (("--rate", "20mbit"), INFERS, ("codecs",)))


def main(run):
    run.needs(root=True)
    for more, work, parts in BEDS:
        wanted = [name for name in parts if name in run.part]
        if not wanted:
            continue
        # As much as a box can be kept busy with: for ever, whatever the number.
        filler = (f"{run.bin}/bench_plain_vit", "1000000000", *work)
        with run.bed(*more, filler=filler) as bed:
            for name in wanted:
                say(f"{name}:")
                PARTS[name](run, bed)
