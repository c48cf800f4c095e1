#!/usr/bin/env python3
"""One job in fp32, in bf16, and with activations computed once more.

A table a model: time of a step, peak memory of the fullest worker beside what
the planner predicted, test accuracy.  Fails when a way of keeping activations
changes a byte of the weights, saves no memory, or when bf16 costs accuracy.
Times are for the reader: other work on the machine moves them.
"""

import argparse
import sys

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from mesh import Mesh

JOBS = {
    "lenet": ("deploy/jobs/fashion-mnist.yaml", []),
    # Wide enough for products to count.
    "vit": ("deploy/jobs/vit-small.yaml",
            ["model.width=192", "model.heads=3",
             "train.learning_rate.warmup_steps=50"]),
}
VARIANTS = {
    "fp32": [],
    "bf16": ["precision=bf16"],
    "stage": ["train.activation_checkpointing=stage"],
    "every-2": ["train.activation_checkpointing=every-2"],
    "bf16, stage": ["precision=bf16",
                    "train.activation_checkpointing=stage"],
}
WORST_ACCURACY_LOSS = 0.02
HEADER = (f"{'':12} {'ms a step':>10} {'of fp32':>8} {'peak MiB':>9} "
          f"{'planned':>8} {'accuracy':>9}  weights")


def run(mesh, file, sets, steps):
    words = ["job", "submit", file, "--set", f"train.steps={steps}",
             "--set", "pipeline.stages=2", "--set", "pipeline.schedule=gpipe"]
    for each in sets:
        words += ["--set", each]
    job = mesh.ask(*words)
    if job["state"] != "succeeded" or job["step"] != steps:
        raise RuntimeError(f"job {job['id']} is {job['state']} after "
                           f"{job['step']} of {steps} steps: {job['why']}")
    return job


def of_fullest_worker(job, what):
    return max(worker[f"{what}_memory_bytes"]
               for worker in job["workers"]) / 2**20


def table(mesh, model, steps):
    """Complaints about what the rows show."""
    file, sets = JOBS[model]
    print(f"\n{model}, {steps} steps, 2 stages, gpipe\n{HEADER}", flush=True)
    jobs, complaints = {}, []
    for name, more in VARIANTS.items():
        job = jobs[name] = run(mesh, file, sets + more, steps)
        seconds = job["measured_step_seconds"]
        print(f"{name:12} {1e3 * seconds:10.2f} "
              f"{seconds / jobs['fp32']['measured_step_seconds']:8.2f} "
              f"{of_fullest_worker(job, 'peak'):9.1f} "
              f"{of_fullest_worker(job, 'predicted'):8.1f} "
              f"{job['test_accuracy']:9.4f}  {job['weights_sha256'][:12]}",
              flush=True)

    def peak(name):
        return of_fullest_worker(jobs[name], "peak")

    for name, than in (("stage", "fp32"), ("every-2", "fp32"),
                       ("bf16, stage", "bf16")):
        if jobs[name]["weights_sha256"] != jobs[than]["weights_sha256"]:
            complaints.append(f"{model}: {name} ends with other weights than "
                              f"{than}")
        if peak(name) >= peak(than):
            complaints.append(f"{model}: {name} takes as much memory as {than}")
    lost = jobs["fp32"]["test_accuracy"] - jobs["bf16"]["test_accuracy"]
    if lost > WORST_ACCURACY_LOSS:
        complaints.append(f"{model}: bf16 costs {lost:.4f} of accuracy, at "
                          f"most {WORST_ACCURACY_LOSS} is meant")
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--models", nargs="+", default=list(JOBS),
                        choices=list(JOBS))
    options = parser.parse_args()

    complaints = []
    with Mesh(options.bin, workers=2) as mesh:
        for model in options.models:
            complaints += table(mesh, model, options.steps)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
