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

CHECKS = {
    "include_rule": include_rule.check,
    "header": shape.check_header,
    "length": shape.check_length,
    "purity": shape.check_purity,
    "clocks": shape.check_clocks,
    "layout": shape.check_layout,
    "parse": formats.check_parse,
    "configuration": formats.check_configuration,
    "shell": formats.check_shell,
    "clang_format": formats.check_clang_format,
    "systemd": formats.check_systemd,
    "metrics": dashboards.check_metrics,
    "promtool": dashboards.check_promtool,
    "generated": dashboards.check_generated,
    "openers": words.check_openers,
    "references": words.check_references,
}
BUILD_CHECKS = {
    "packages": packages.check,
    "thread_safety": thread_safety.check,
}


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
