"""Half of a model's multiply-adds on four machines, against all of them on one.

train  trains each model on Fashion-MNIST, prunes it to half and fine-tunes it:
       at most one point of accuracy is lost.  Half an hour
bed    four emulated machines: samples a second of the pruned pipeline against
       one machine with the whole model.  Needs root

`--set cpu_capability=avx2` has all machines, the one alone too, compute at the
speed of a CPU without AVX-512, `default` of one without AVX2.
`--set pipeline.codec=bf16` halves what goes between them: in a smaller model
frames take more of the time.

Files stay in the folder --keep, where the bed takes the sizes from.
"""

import json
import statistics
import tempfile
from pathlib import Path

from beds.quiet_bench import quiet_bench
from beds.speed import show
from mesh import sets_of
from nightly import say

MODELS = {
    "vit": {"name": "vit", "depth": 12, "width": 192, "heads": 6},
    "resnet18": {"name": "resnet18", "width": 48},
}
# To train the whole model, and to fine-tune the pruned one.
STEPS = {"vit": (938, 469), "resnet18": (2814, 1876)}
LEAST_SPEEDUP = {"vit": 6.0, "resnet18": 5.0}


def job(model, steps, rate):
    return {"model": model, "data": {"name": "fashion-mnist"},
            "train": {"steps": steps, "batch": 64, "micro_batch": 64,
                      "evaluate_every": 0, "optimizer": {"name": "adamw"},
                      "learning_rate": {"base": rate, "schedule": "cosine",
                                        "warmup_steps": 50}},
            "pipeline": {"stages": 1},}


def run_job(mesh, folder, name, spec):
    """Runs a job; its accuracy, and the file of its weights."""
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(spec))  # is YAML too
    shown = mesh.train(file)
    weights = folder / f"{name}.safetensors"
    mesh.export(shown["id"], weights)
    return shown["test_accuracy"], file, weights


def train(run, mesh, name):
    folder, (steps, tune_steps) = run.keep, STEPS[name]
    whole, file, weights = run_job(mesh, folder, name,
                                   job(MODELS[name], steps, 0.001))
    pruned = folder / f"{name}-pruned.safetensors"
    left = mesh.document(mesh.run(
        "model", "prune", weights, "-f", file, "--target-macs", "0.5", "-o",
        pruned, "--output", "json"))
    (folder / f"{name}-sizes.json").write_text(json.dumps(left["sizes"]))

    def tune(kind, file, **more):
        spec = job({**MODELS[name], "weights": str(file)}, tune_steps, 0.0005)
        spec["train"].update(more)
        return run_job(mesh, folder, f"{name}-{kind}", spec)[0]
    tuned = tune("tuned", pruned)
    distilled = tune("distilled", pruned, distill={"weights": str(weights)})
    on = tune("on", weights)
    say(f"{name}: accuracy {whole:.4f}, after as many further steps {on:.4f};"
        f" pruned and fine-tuned {tuned:.4f}, with the whole one as teacher "
        f"{distilled:.4f}")
    run.at_most(f"{name}, multiply-adds left", 0.5,
                left["flops"] / left["flops_before"])
    run.at_most(f"{name}, points of accuracy lost", 1.0, 100 * (whole - tuned))


def time(run, bed, name):
    sizes = json.loads((run.keep / f"{name}-sizes.json").read_text())
    sets = [f"model.{key}={value}" for key, value in MODELS[name].items()
            if key != "name"]
    common = ["--model", name, "--micro-batch", "64", "--micro-batches", "200",
              *sets_of(["data.shape=[1,28,28]", "data.classes=10", *sets,
                        *run.set])]
    # Turn about, so that a box that slows down slows both.
    ratios = []
    for _ in range(run.tries):
        whole = quiet_bench(bed, "infer", [1], 1, *common)
        pruned = quiet_bench(bed, "infer", [1, 4], 1, *common,
                             *sets_of([f"model.sizes={sizes}"]))
        show(whole + pruned)
        ratios.append(pruned[-1]["throughput"] / whole[0]["throughput"])
    run.at_least(f"{name}, four pruned / one whole", LEAST_SPEEDUP[name],
                 statistics.median(ratios))


OPTIONS = {"part": ("train", "bed"), "model": MODELS, "tries": 3, "keep": Path,
           "set": [], "name": "pruning"}


def main(run):
    if "train" not in run.part and not run.keep:
        raise SystemExit("--part bed needs the folder that --keep named before")
    with tempfile.TemporaryDirectory(prefix="paceline-pruning-") as own:
        run.keep = run.keep or Path(own)
        run.keep.mkdir(parents=True, exist_ok=True)
        if "train" in run.part:
            with run.mesh(1) as mesh:
                for name in run.model:
                    train(run, mesh, name)
        if "bed" in run.part:
            run.needs(root=True)
            with run.bed() as bed:
                for name in run.model:
                    time(run, bed, name)
