#!/usr/bin/env python3
"""Predicted against measured step time, on emulated machines.

  bed_prediction.py --bin build/release/bin [--steps 40] [--cells PATTERN]
                    [--tries 3] [--name NAME]

Brings a bed up (deploy/testbed.sh, needs root), and for each model with 1 to 4
stages and both schedules profiles the model there and trains it; then all of it
again with one slow machine.  A cell is the median of some tries, each with a
profile of its own just before: the box may be shared, and its speed drifts.
Prints a table; exits 1 when a prediction is off by more than a tenth, 77 when
there cannot be a bed (not root).
"""

import argparse
import fnmatch
import os
import sys

from bed import NODES, ROOT, SKIPPED, Bed

MOST_OFF = 0.10

# model -> job file; the micro-batch is the file's own.
MODELS = {"lenet": ROOT / "deploy/jobs/fashion-mnist.yaml",
          "vit": ROOT / "deploy/jobs/vit-small.yaml"}
MICRO_BATCH = 32
SLOW_NODE = 3


def profile(bed, model):
    """One node after the other: what shares this box must not disturb them."""
    name, sets = model_settings(MODELS[model])
    for node in range(1, NODES + 1):
        bed.json("profile", "--model", name, "--batch", str(MICRO_BATCH),
                 "--worker", f"node-{node}", *sets)


def model_settings(job_file):
    """The model's name and its --set options, as the job file has them."""
    name, sets, section = "", [], ""
    for line in job_file.read_text(encoding="utf-8").splitlines():
        text = line.split("#")[0].rstrip()
        if not text:
            continue
        if not text.startswith(" "):
            section = text.rstrip(":")
            continue
        key, value = (part.strip() for part in text.split(":", 1))
        if section == "model" and key == "name":
            name = value
        elif section == "model":
            sets += ["--set", f"model.{key}={value}"]
        elif section == "optimizer":
            sets += ["--set", f"train.optimizer.{key}={value}"]
    return name, sets


def run_once(bed, model, stages, schedule, steps):
    """Predicted and measured seconds of a step."""
    profile(bed, model)
    job = bed.json("job", "submit", str(MODELS[model]),
                   "--set", f"pipeline.stages={stages}",
                   "--set", f"pipeline.schedule={schedule}",
                   "--set", f"train.steps={steps}",
                   "--set", "train.evaluate_every=0")
    return job["predicted_step_seconds"], job["measured_step_seconds"]


def run_cell(bed, cell, arguments):
    """The try whose deviation is the median one."""
    tries = [run_once(bed, *cell, arguments.steps)
             for _ in range(arguments.tries)]
    tries.sort(key=lambda each: each[0] / each[1])
    return tries[len(tries) // 2]


def cells_of(bed_name, pattern):
    cells = [(model, stages, schedule)
             for model in MODELS for stages in (1, 2, 3, 4)
             for schedule in ("gpipe", "1f1b")]
    return [cell for cell in cells if fnmatch.fnmatch(
        f"{bed_name}/{'/'.join(map(str, cell))}", pattern)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--name", default="p", help="begins the beds' names")
    parser.add_argument("--cells", default="*",
                        help="as in 'even/vit/4/1f1b' or '*/lenet/*'")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root: an emulated machine is a network namespace and a "
              "cgroup; skipped")
        return SKIPPED

    worst, missed, count = 0.0, 0, 0
    print(f"{'cell':24} {'predicted':>10} {'measured':>10} {'off':>7}")
    for bed_name, more in (
            ("even", ()), ("slow", ("--cpu-of", f"{SLOW_NODE}=0.2"))):
        cells = cells_of(bed_name, arguments.cells)
        if not cells:
            continue
        with Bed(arguments.name + bed_name, arguments.bin, more) as bed:
            for cell in cells:
                predicted, measured = run_cell(bed, cell, arguments)
                off = predicted / measured - 1
                worst = max(worst, abs(off))
                missed += abs(off) > MOST_OFF
                count += 1
                name = f"{bed_name}/{'/'.join(map(str, cell))}"
                print(f"{name:24} {predicted * 1e3:8.1f}ms "
                      f"{measured * 1e3:8.1f}ms {off:+6.1%}", flush=True)
    print(f"worst {worst:.1%}, {missed} of {count} missed (at most "
          f"{MOST_OFF:.0%} each)")
    if count == 0:
        print(f"no cell is called {arguments.cells}", file=sys.stderr)
        return 2
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
