#!/usr/bin/env python3
"""Half of a model's multiply-adds on four machines, against all of them on one.

  pruning.py --bin build/release/bin [--model vit|resnet18]... [--tries 3]
             [--keep FOLDER] [--part train|bed]... [--set KEY=VALUE]...

train  trains each model on Fashion-MNIST, prunes it to half and fine-tunes it:
       at most one point of accuracy is lost.  Half an hour
bed    four emulated machines: samples a second of the pruned pipeline against
       one machine with the whole model.  Needs root

`--set cpu_capability=avx2` has all machines, the one alone too, compute at the
speed of a CPU without AVX-512, `default` of one without AVX2.
`--set pipeline.codec=bf16` halves what goes between them: in a smaller model
frames take more of the time.

Files stay in FOLDER, where the bed takes the sizes from.  Exits 1 when something
fell short, 77 when the bed is asked for and cannot be.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from bed import ROOT, SKIPPED, Bed
from bed_speed import Report, show
from mesh import Mesh
from quiet_bench import quiet_bench

MODELS = {
    "vit": {"name": "vit", "depth": 12, "width": 192, "heads": 6},
    "resnet18": {"name": "resnet18", "width": 48},
}
# To train the whole model, and to fine-tune the pruned one.
STEPS = {"vit": (938, 469), "resnet18": (2814, 1876)}
LEAST_SPEEDUP = {"vit": 6.0, "resnet18": 5.0}


def job(model, steps, rate):
    return {
        "model": model,
        "data": {"name": "fashion-mnist"},
        "train": {"steps": steps, "batch": 64, "micro_batch": 64,
                  "evaluate_every": 0, "optimizer": {"name": "adamw"},
                  "learning_rate": {"base": rate, "schedule": "cosine",
                                    "warmup_steps": 50}},
        "pipeline": {"stages": 1},
    }


def write(mesh, *command):
    """Returns what a command prints as JSON that writes a file."""
    result = mesh.run(*command, "--output", "json")
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return json.loads(result.stdout)


def run(mesh, folder, name, spec):
    """Runs a job; its accuracy, and the file of its weights."""
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(spec))  # is YAML too
    number = mesh.submit(file)
    document = mesh.finish(number)
    if document["state"] != "succeeded":
        raise RuntimeError(f"{name}: {document}")
    weights = folder / f"{name}.safetensors"
    write(mesh, "job", "export", str(number), "-o", str(weights))
    return document["test_accuracy"], file, weights


def train(mesh, folder, name, report):
    steps, tune_steps = STEPS[name]
    whole, file, weights = run(mesh, folder, name,
                               job(MODELS[name], steps, 0.001))
    pruned = folder / f"{name}-pruned.safetensors"
    left = write(mesh, "model", "prune", str(weights), "-f", str(file),
                 "--target-macs", "0.5", "-o", str(pruned))
    (folder / f"{name}-sizes.json").write_text(json.dumps(left["sizes"]))

    def tune(kind, file, **more):
        spec = job({**MODELS[name], "weights": str(file)}, tune_steps, 0.0005)
        spec["train"].update(more)
        return run(mesh, folder, f"{name}-{kind}", spec)[0]
    tuned = tune("tuned", pruned)
    distilled = tune("distilled", pruned, distill={"weights": str(weights)})
    on = tune("on", weights)
    print(f"{name}: accuracy {whole:.4f}, after as many further steps {on:.4f};"
          f" pruned and fine-tuned {tuned:.4f}, with the whole one as teacher "
          f"{distilled:.4f}", flush=True)
    report.at_most(f"{name}, multiply-adds left", 0.5,
                   left["flops"] / left["flops_before"])
    report.at_most(f"{name}, points of accuracy lost", 1.0,
                   100 * (whole - tuned))


def time(bed, folder, name, arguments, report):
    sizes = json.loads((folder / f"{name}-sizes.json").read_text())
    model = {key: value for key, value in MODELS[name].items() if key != "name"}
    sets = [word for key, value in model.items()
            for word in ("--set", f"model.{key}={value}")]
    sets += [word for each in arguments.set for word in ("--set", each)]
    common = ["--model", name, "--micro-batch", "64", "--micro-batches", "200",
              "--set", "data.shape=[1,28,28]", "--set", "data.classes=10", *sets]
    # Turn about, so that a box that slows down slows both.
    ratios = []
    for _ in range(arguments.tries):
        whole = quiet_bench(bed, "infer", [1], 1, *common)
        pruned = quiet_bench(bed, "infer", [1, 4], 1, *common,
                             "--set", f"model.sizes={sizes}")
        show(whole + pruned)
        ratios.append(pruned[-1]["throughput"] / whole[0]["throughput"])
    report.at_least(f"{name}, four pruned / one whole", LEAST_SPEEDUP[name],
                    sorted(ratios)[len(ratios) // 2])


def measure(folder, parts, models, arguments):
    report = Report()
    if "train" in parts:
        with Mesh(arguments.bin, 1) as mesh:
            for name in models:
                train(mesh, folder, name, report)
    skipped = "bed" in parts and os.geteuid() != 0
    if "bed" in parts and not skipped:
        with Bed("pruning", arguments.bin) as bed:
            for name in models:
                time(bed, folder, name, arguments, report)
    good = report.print()
    if skipped:
        print("skipped: a bed needs root", file=sys.stderr)
    return 1 if not good else SKIPPED if skipped else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--model", action="append", choices=list(MODELS))
    parser.add_argument("--part", action="append", choices=("train", "bed"))
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    parts = arguments.part or ["train", "bed"]
    models = arguments.model or list(MODELS)
    if "train" not in parts and not arguments.keep:
        parser.error("--part bed needs the folder that --keep named before")
    with tempfile.TemporaryDirectory(prefix="paceline-pruning-") as own:
        folder = arguments.keep or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        return measure(folder, parts, models, arguments)


if __name__ == "__main__":
    sys.exit(main())
