#!/usr/bin/env python3
"""Explores core/round/model/round.pml with spin, to its last state.

    model_check.py GROUP          three | four | broken | progress | nightly
    model_check.py --trail NAME   tells the shortest run that breaks a case

The protocol's cases must be explored to the end, without an error and
without an action that never happens.  Each broken case must yield a run that
breaks the rule it is about, and progress a run that ends well.
Exits with 77 where spin or a C compiler is missing.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

MODEL = Path(__file__).resolve().parents[3] / "core/round/model/round.pml"
SKIPPED = 77
MAX_DEPTH = 100_000
MAX_MEGABYTES = 4000

SAFE = "safe"
# What the assertions of a violation are about.
DIVERGES = "decided["
APPLIES_OUT_OF_TURN = "applied["
ENDS_WELL = "i<"


class Case(NamedTuple):
    """One model, and how its exploration must end."""
    name: str
    flags: str
    expected: str
    # Every statement of the model must be reached.
    all_reached: bool = False


THREE = "N=3 STEPS=3 VIEWS=3"
FOUR = "N=4 STEPS=3 VIEWS=3"
JOINS = THREE + " JOINER=0"


def protocol(name, flags):
    return Case(name, flags, SAFE, all_reached=True)


GROUPS = {
    "three": (
        protocol("3", THREE),
        protocol("3-joiner-first", THREE + " JOINER=0"),
        protocol("3-joiner-last", THREE + " JOINER=2"),
        protocol("3-min-parts", JOINS + " MIN_PARTS=2"),
        protocol("3-four-steps", "N=3 STEPS=4 VIEWS=3 JOINER=0"),
        protocol("3-four-views", "N=3 STEPS=3 VIEWS=4 JOINER=0"),
        Case("3-early-joiner", JOINS + " FIRST_FROM_STEP=1", SAFE),
        Case("3-lowest-view", JOINS + " LOWEST_VIEW_WINS", SAFE),
        Case("3-fenced-commits",
             JOINS + " PROOF_WITHOUT_HASH FENCE_NEWER_COMMITS", SAFE),
        Case("3-no-adopt", THREE + " NO_ADOPT_BEFORE_ANSWER", SAFE),
        Case("3-no-wait", THREE + " NO_WAIT_FOR_EVERY_MEMBER", SAFE),
    ),
    "four": (
        protocol("4-joiner-last", FOUR + " JOINER=3"),
    ),
    "nightly": (
        protocol("4", FOUR),
        protocol("4-joiner-first", FOUR + " JOINER=0"),
    ),
    "broken": (
        Case("no-hold", THREE + " NO_HOLD_BEFORE_COMMIT", DIVERGES),
        Case("no-adopt", JOINS + " NO_ADOPT_BEFORE_ANSWER", DIVERGES),
        Case("no-wait", JOINS + " NO_WAIT_FOR_EVERY_MEMBER", DIVERGES),
        Case("old-results", THREE + " ACCEPT_OLD_RESULTS", DIVERGES),
        Case("one-view-joiner", JOINS + " JOINER_FOR_ONE_VIEW", DIVERGES),
        Case("no-hash", JOINS + " PROOF_WITHOUT_HASH", DIVERGES),
        Case("duplicates", THREE + " APPLY_DUPLICATES", APPLIES_OUT_OF_TURN),
        Case("skips", JOINS + " LISTENER_SKIPS", APPLIES_OUT_OF_TURN),
    ),
    "progress": (
        Case("3-ends", THREE + " REACH_THE_END", ENDS_WELL),
        Case("3-joiner-ends", JOINS + " REACH_THE_END", ENDS_WELL),
        Case("4-ends", FOUR + " REACH_THE_END", ENDS_WELL),
        Case("4-joiner-ends", FOUR + " JOINER=3 REACH_THE_END", ENDS_WELL),
    ),
}


def run(arguments, folder):
    result = subprocess.run(arguments, cwd=folder, capture_output=True,
                            text=True, check=False)
    text = result.stdout + result.stderr
    if result.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: exit code {result.returncode}\n"
                 f"{text}")
    return text


def explore(case, folder, shortest=False):
    """What pan prints about the case; its trail, if any, is in `folder`."""
    defines = [f"-D{flag}" for flag in case.flags.split()]
    run(["spin", *defines, "-a", str(MODEL)], folder)
    # Depth first is sooner at any counter-example, and needs less memory;
    # breadth first comes to the shortest.
    search = "-DBFS" if shortest else "-DCOLLAPSE"
    # To compile with -O2 takes longer than most explorations.
    run(["cc", "-O1", "-w", "-DSAFETY", f"-DMEMLIM={MAX_MEGABYTES}", search,
         "-o", "pan", "pan.c"], folder)
    return run(["./pan", f"-m{MAX_DEPTH}", "-w22"], folder)


def problem_of(case, text):
    """Why `text` is not what the case must print; None when it is."""
    errors = re.findall(r"errors: (\d+)", text)
    if len(errors) != 1:
        return "no count of errors: the search did not end"
    violations = re.findall(r"^pan:\d+: (.*)$", text, re.MULTILINE)
    if case.expected != SAFE:
        if errors != ["1"] or len(violations) != 1:
            return f"expected one counter-example, got {violations}"
        about = violations[0].removeprefix("assertion violated ").lstrip("(")
        if not about.startswith(case.expected):
            return f"expected another counter-example than {violations[0]}"
        return None
    if errors != ["0"] or violations:
        return f"counter-example: {violations}"
    for bad in ("Search not completed", "max search depth too small",
                "memory limit", "out of memory", "error:"):
        if bad in text:
            return f"not explored to the end: {bad}"
    if "Full statespace search" not in text:
        return "not a full search"
    if case.all_reached:
        return unreached_in(text)
    return None


def unreached_in(text):
    """Statements that no run comes to; the ends of the loops are such."""
    sections = re.findall(r"^unreached in proctype (\w+)$", text, re.MULTILINE)
    if sorted(sections) != ["coordinator", "member"]:
        return f"expected a report on both processes, got {sections}"
    lines = [line.strip() for line in text.split("\n")
             if re.match(r"\s+\S+:\d+, state \d+,", line)]
    lines = [line for line in lines if not line.endswith('"-end-"')]
    return f"never happens: {'; '.join(lines)}" if lines else None


def states_of(text):
    match = re.search(r"^ *(\d+) states, stored", text, re.MULTILINE)
    return match[1] if match else "?"


def megabytes_of(text):
    match = re.search(r"([\d.]+)\s+total actual memory usage", text)
    return match[1] if match else "?"


def check(case):
    """Explores and prints a line; true when it ended as it must."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        text = explore(case, folder)
    problem = problem_of(case, text)
    seconds = re.search(r"elapsed time ([\d.]+)", text)
    print(f"{'FAILED' if problem else 'ok':6} {case.name:18} "
          f"{states_of(text):>9} states "
          f"{seconds[1] if seconds else '0':>6} s of search "
          f"{time.monotonic() - began:6.1f} s in all "
          f"{megabytes_of(text):>9} MB  {case.flags}", flush=True)
    if problem:
        print(f"       {problem}\n{text}")
    return problem is None


def tell(case):
    with tempfile.TemporaryDirectory() as folder:
        explore(case, folder, shortest=True)
        trail = Path(folder) / f"{MODEL.name}.trail"
        if not trail.exists():
            sys.exit(f"{case.name} has no counter-example: it is safe")
        defines = [f"-D{flag}" for flag in case.flags.split()]
        text = run(["spin", *defines, "-t", "-k", str(trail), str(MODEL)],
                   folder)
    for line in text.split("\n"):
        if re.match(r"\s*(member|view) \d|spin: text", line):
            print(line.strip())


def missing_tool():
    for tool, package in (("spin", "spin"), ("cc", "gcc")):
        if shutil.which(tool) is None:
            return (f"skipped: {tool} is not installed (package {package}; "
                    "deploy/install-deps.sh --test)")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("group", nargs="?", choices=GROUPS)
    cases = {case.name: case for group in GROUPS.values() for case in group}
    what.add_argument("--trail", choices=cases, metavar="NAME",
                      help=", ".join(cases))
    arguments = parser.parse_args()
    missing = missing_tool()
    if missing:
        print(missing)
        sys.exit(SKIPPED)
    if arguments.trail:
        tell(cases[arguments.trail])
        return
    # All of them, so that one report shows every failure.
    good = [check(case) for case in GROUPS[arguments.group]]
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
