#!/usr/bin/env python3
"""Number of stages and schedule do not change a bit of the weights.

Over real processes, for 60 steps, both models: {1, 2, 3, 4} stages x every
synchronous schedule end with one hash and one loss curve.
"""

import argparse
import sys

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from mesh import Mesh

STAGES = (1, 2, 3, 4)
SCHEDULES = ("gpipe", "1f1b", "zero-bubble", "interleaved-1f1b")
JOBS = {
    "lenet": "deploy/jobs/fashion-mnist.yaml",
    # Dropout, AdamW and clipping are switched on in the file.
    "vit": "deploy/jobs/vit-small.yaml",
}


def outcome(mesh, file, stages, schedule, steps):
    job = mesh.ask("job", "submit", file,
                   "--set", f"pipeline.stages={stages}",
                   "--set", f"pipeline.schedule={schedule}",
                   "--set", f"train.steps={steps}")
    # Submit shows what it waited for; show has the whole curve.
    job = mesh.ask("job", "show", str(job["id"]))
    curve = [(point["step"], point["value"]) for point in job["loss"]]
    if job["step"] != steps or len(curve) != steps:
        raise RuntimeError(f"job {job['id']} did {job['step']} steps, "
                           f"recorded {len(curve)}, need {steps}")
    return job["weights_sha256"], curve


def compare(mesh, model, file, steps):
    """Number of cases that differ from the first."""
    first, different = None, 0
    for stages in STAGES:
        for schedule in SCHEDULES:
            found = outcome(mesh, file, stages, schedule, steps)
            first = first or found
            verdict = []
            if found[0] != first[0]:
                verdict.append("other weights")
            if found[1] != first[1]:
                at = next(a[0] for a, b in zip(found[1], first[1]) if a != b)
                verdict.append(f"other loss from step {at}")
            different += bool(verdict)
            print(f"{model:6} stages={stages} {schedule:16} {found[0]} "
                  f"{', '.join(verdict) or 'same'}", flush=True)
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()

    different = 0
    with Mesh(options.bin, workers=4) as mesh:
        for model, file in JOBS.items():
            different += compare(mesh, model, file, options.steps)
    print(f"{different} cases differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
