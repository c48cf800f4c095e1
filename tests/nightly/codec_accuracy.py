#!/usr/bin/env python3
"""What each codec on the wire costs in accuracy.

Trains the quickstart's job over four stages, three boundaries, once a codec,
and prints the test accuracies beside each other; fails when one is more than
a hundredth below that of fp32.
"""

import argparse
import sys

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from mesh import Mesh

CODECS = ("fp32", "bf16", "fp16", "int8")
JOB = "deploy/jobs/fashion-mnist.yaml"
MOST_LOST = 0.01


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/release/bin")
    arguments = parser.parse_args()
    accuracy = {}
    with Mesh(arguments.bin, workers=4) as mesh:
        for codec in CODECS:
            job = mesh.ask("job", "submit", JOB,
                           "--set", "pipeline.stages=4",
                           "--set", f"pipeline.codec={codec}")
            accuracy[codec] = job["test_accuracy"]
            print(f"{codec}  test accuracy {accuracy[codec]:.4f}  "
                  f"({accuracy[codec] - accuracy['fp32']:+.4f})", flush=True)
    return int(min(accuracy.values()) < accuracy["fp32"] - MOST_LOST)


if __name__ == "__main__":
    sys.exit(main())
