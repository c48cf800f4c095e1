#!/usr/bin/env python3
"""Runs one lint check over the tree; prints what is wrong, ends with 1."""

import argparse
import sys
from pathlib import Path

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import dashboards
import formats
import include_rule
import packages
import shape
import thread_safety
import words
from tree import Tree

# Each check_NAME of the first ones; what needs a configured build folder.
CHECKS = {"include_rule": include_rule.check, **{
    name.removeprefix("check_"): check
    for module in (dashboards, formats, shape, words)
    for name, check in vars(module).items() if name.startswith("check_")}}
BUILD_CHECKS = {"packages": packages.check,
                "thread_safety": thread_safety.check}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=[*CHECKS, *BUILD_CHECKS])
    parser.add_argument("--root", type=Path,
                        default=Path(__file__).resolve().parents[2])
    parser.add_argument("--build", type=Path, help="a configured build folder")
    options = parser.parse_args()

    tree = Tree(options.root)
    if options.check in CHECKS:
        problems = list(CHECKS[options.check](tree))
    else:
        problems = list(BUILD_CHECKS[options.check](tree, options.build))
    for problem in problems:
        print(problem)
    print(f"{options.check}: {len(problems)} problems, "
          f"{len(tree.files)} files in the tree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
