#!/usr/bin/env python3
"""A data-parallel step with default settings, beside PyTorch's DDP over Gloo.

  ddp_beside.py --bin build/release/bin [--part NAME]... [--model NAME]...
                [--turns 5] [--name NAME]

Parts:
  bed       four machines of 0.4 core, links of 1 Gbit/s
  loopback  four processes on this box

Four members, 32 samples and one compute thread each.  A turn is a job and as many
steps of DDP; which is first alternates.  The median of the turns' ratios counts.
Prints what must be reached beside what was; exits 1 when something was not, 77
when there cannot be a bed (not root) or no DDP (python3-torch).
"""

import argparse
import importlib.util
import os
import statistics
import sys
from pathlib import Path

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from bed import NODES, ROOT, SKIPPED, Bed
from bed_speed import Report
from mesh import Mesh
from recoveries import curve_of
from round_speed import Group, Place

PARTS = ("bed", "loopback")
DDP = Path(__file__).with_name("ddp_member.py")
JOB = """
data: {{name: synthetic, train_samples: 4096}}
train:
  {{steps: {steps}, batch: 128, micro_batch: 32, evaluate_every: 0,
   optimizer: {{name: sgd, momentum: 0.9}}, learning_rate: {{base: 0.01}}}}
aggregation: {{mode: rolling, codec: {codec}, shards: {shards}}}
model: {model}
"""
MLP = "{name: mlp, hidden: [2048, 2048]}"
VIT = "{name: vit, depth: 4, width: 64, heads: 4, patch: 7}"
# Name, DDP's model, ours, codec, the most of DDP's step by part.
WAYS = (("lenet", "lenet", "{name: lenet}", "fp32",
         {"bed": 0.90, "loopback": 0.85}),
        ("mlp", "mlp", MLP, "fp32", {"bed": 0.55, "loopback": 0.85}),
        ("mlp-bf16", "mlp", MLP, "bf16", {"bed": 0.40}),
        ("vit", "vit", VIT, "fp32", {"bed": 0.90, "loopback": 0.85}))
STEPS = {"lenet": 200, "mlp": 40, "vit": 120}


def job_file(folder, model, codec, steps, shards=0):
    file = Path(folder) / "ddp_beside.yaml"
    file.write_text(JOB.format(model=model, codec=codec, steps=steps,
                               shards=shards), encoding="utf-8")
    return file


def job_seconds(ask, file):
    """Of a step, in the middle three quarters of a job; and what was predicted."""
    shown = ask("job", "show", str(ask("job", "submit", str(file))["id"]))
    if shown["state"] != "succeeded":
        raise RuntimeError(f"job {shown['id']}: {shown['why']}")
    times = curve_of(shown)
    known = sorted(times)
    first, last = known[len(known) // 8], known[-len(known) // 8]
    return ((times[last] - times[first]) / (last - first),
            shown["predicted_step_seconds"])


def ddp_group(place, model):
    interface = "lo" if place.bed is None else "eth0"
    group = Group([
        place.command(i, "env", "OMP_NUM_THREADS=1",
                      f"GLOO_SOCKET_IFNAME={interface}", "/usr/bin/python3",
                      str(DDP), str(i), str(NODES), place.host(0), model)
        for i in range(NODES)])
    for member in group.members:
        member.hear()
    return group


def judge_prediction(report, what, ratios):
    measured = statistics.median(ratios)
    report.at_most(f"{what}: measured / predicted", 1.15, measured)
    report.at_least(f"{what}: measured / predicted", 0.85, measured)


def predictions_by_shards(ask, folder, part, arguments, report):
    """Of the MLP, whose rounds are long."""
    if "mlp" not in (arguments.model or ["mlp"]):
        return
    for shards in (1, 2, 4):
        file = job_file(folder, MLP, "fp32", STEPS["mlp"] // 2, shards)
        times = []
        for _ in range(arguments.turns):
            ask("profile", "-f", str(file))
            times.append(job_seconds(ask, file))
        for step, predicted in times:
            print(f"{part}, mlp, {shards} shards: a step takes "
                  f"{1e3 * step:.1f} ms, predicted {1e3 * predicted:.1f}",
                  flush=True)
        judge_prediction(report, f"{part}, mlp, {shards} shards",
                         [step / predicted for step, predicted in times])


def compare(place, ask, folder, part, arguments, report):
    for name, model, ours, codec, most in WAYS:
        if part not in most or name not in (arguments.model or [name]):
            continue
        steps = STEPS[model]
        file = job_file(folder, ours, codec, steps)
        group = ddp_group(place, model)
        ratios, predictions = [], []
        try:
            group.ask(str(steps // 4))  # warm
            for turn in range(arguments.turns):
                ask("profile", "-f", str(file))
                seconds = {}
                for who in ("job", "ddp") if turn % 2 else ("ddp", "job"):
                    if who == "job":
                        seconds[who], predicted = job_seconds(ask, file)
                    else:
                        seconds[who] = max(map(float, group.ask(str(steps))))
                ratios.append(seconds["job"] / seconds["ddp"])
                predictions.append(seconds["job"] / predicted)
                print(f"{part}, {name}: a step takes {1e3 * seconds['job']:.1f} "
                      f"ms, DDP's {1e3 * seconds['ddp']:.1f} ms: "
                      f"{ratios[-1]:.3f}", flush=True)
        finally:
            group.end()
        report.at_most(f"{part}, {name}: of DDP's step", most[part],
                       statistics.median(ratios))
        judge_prediction(report, f"{part}, {name}", predictions)
    predictions_by_shards(ask, folder, part, arguments, report)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--model", action="append",
                        choices=[way[0] for way in WAYS])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--name", default="ddp")
    arguments = parser.parse_args()
    parts = arguments.part or PARTS
    if importlib.util.find_spec("torch") is None:
        print("skipped: no DDP without python3-torch", file=sys.stderr)
        return SKIPPED
    if "bed" in parts and os.geteuid() != 0:
        print("skipped: a bed needs root", file=sys.stderr)
        return SKIPPED
    report = Report()
    if "loopback" in parts:
        with Mesh(arguments.bin, NODES) as mesh:
            compare(Place(), mesh.ask, mesh.state, "loopback", arguments, report)
    if "bed" in parts:
        with Bed(arguments.name, arguments.bin) as bed:
            folder = f"/var/lib/paceline-testbed/{arguments.name}"
            compare(Place(bed), bed.json, folder, "bed", arguments, report)
    return 0 if report.print() else 1


if __name__ == "__main__":
    sys.exit(main())
