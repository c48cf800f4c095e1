#!/usr/bin/env python3
"""Explores models of the protocols with spin, to their last states.

    model_check.py round three | broken | progress | nightly
    model_check.py recover two | broken | nightly
    model_check.py round --trail NAME   the shortest run that breaks a case

A model (MODELS) is a file and groups of cases.  The protocol's cases must be
explored without an error, to the end unless they are searches of a swarm, and
without an action that never happens where the case says so.  Each other case
must yield a run that breaks the rule it is about, or one that ends well.  Exits
with 77 where spin or a C compiler is missing.
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

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
SAFE = "safe"
SWARM_BITS = 27  # of states that a search of a swarm remembers


class Case(NamedTuple):
    """One model, and how its exploration must end."""
    name: str
    flags: str
    expected: str = SAFE  # else the assertion that a run must violate
    # Every statement of these processes must be reached.
    all_reached: tuple = ()
    seed: int = 0  # of one search of a swarm


class Model(NamedTuple):
    file: str
    groups: dict  # name -> cases
    megabytes: int = 4000
    depth: int = 100_000


# What the assertions of a violation are about.
DIVERGES = "decided["
APPLIES_OUT_OF_TURN = "applied["
ROUND_ENDS = "i<"

THREE = "N=3 STEPS=3 VIEWS=3"
FOUR = "N=4 STEPS=3 VIEWS=3"
JOINS = THREE + " JOINER=0"


def protocol(name, flags):
    return Case(name, flags, all_reached=("coordinator", "member"))


ROUND = {
    "three": (
        protocol("3", THREE),
        protocol("3-joiner-first", THREE + " JOINER=0"),
        protocol("3-joiner-last", THREE + " JOINER=2"),
        protocol("3-min-parts", JOINS + " MIN_PARTS=2"),
        protocol("3-four-steps", "N=3 STEPS=4 VIEWS=3 JOINER=0"),
        Case("3-early-joiner", JOINS + " FIRST_FROM_STEP=1"),
        Case("3-lowest-view", JOINS + " LOWEST_VIEW_WINS"),
        Case("3-fenced-commits",
             JOINS + " PROOF_WITHOUT_HASH FENCE_NEWER_COMMITS"),
        Case("3-no-adopt", THREE + " NO_ADOPT_BEFORE_ANSWER"),
        Case("3-no-wait", THREE + " NO_WAIT_FOR_EVERY_MEMBER"),
    ),
    "nightly": (
        protocol("3-four-views", "N=3 STEPS=3 VIEWS=4 JOINER=0"),
        protocol("4-joiner-last", FOUR + " JOINER=3"),
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
        Case("3-ends", THREE + " REACH_THE_END", ROUND_ENDS),
        Case("3-joiner-ends", JOINS + " REACH_THE_END", ROUND_ENDS),
        Case("4-ends", FOUR + " REACH_THE_END", ROUND_ENDS),
        Case("4-joiner-ends", FOUR + " JOINER=3 REACH_THE_END", ROUND_ENDS),
    ),
}

# Three stages have too many states for one search: after an hour and a billion
# of them it had not ended.  Searches that choose their ways at random and
# remember states in 2^27 bits end after minutes, and each sees other states.
SWARM = range(1, 5)

LOSES = "lost_since"
STUCK = "invalid end state"
RECOVERY_ENDS = "0"

TWO = "W=2 S=2 T=2 A=3 "

RECOVER = {
    "two": (
        Case("death", TWO + "DEATHS=1 CRASHES=0 STOPS=0"),
        Case("ends", TWO + "DEATHS=1 CRASHES=1 STOPS=1 REACH_THE_END",
             RECOVERY_ENDS),
    ),
    "broken": (
        Case("stale-leave", TWO + "DEATHS=1 CRASHES=0 STOPS=0 STALE_LEAVE",
             LOSES),
        Case("stop-skips-leave",
             TWO + "DEATHS=1 CRASHES=0 STOPS=1 STOP_SKIPS_LEAVE", LOSES),
        Case("unequal-stop", TWO + "DEATHS=0 CRASHES=0 STOPS=1 UNEQUAL_STOP",
             STUCK),
        Case("stop-closes-gate",
             TWO + "DEATHS=0 CRASHES=0 STOPS=1 STOP_CLOSES_GATE", STUCK),
    ),
    "nightly": (
        Case("death-crash", TWO + "DEATHS=1 CRASHES=1 STOPS=0"),
        Case("death-stop", TWO + "DEATHS=1 CRASHES=0 STOPS=1"),
        Case("crash-stop", TWO + "DEATHS=0 CRASHES=1 STOPS=1"),
        # 38 million states, 7.2 GB, a quarter of an hour.
        Case("all", TWO + "DEATHS=1 CRASHES=1 STOPS=1"),
        *(Case(f"three-{seed}",
               "W=3 S=3 T=2 A=3 DEATHS=2 CRASHES=1 STOPS=1", seed=seed)
          for seed in SWARM),
    ),
}

MODELS = {
    "round": Model("core/round/model/round.pml", ROUND),
    "recover": Model("core/recover/model/recover.pml", RECOVER, megabytes=9000,
                     depth=200_000),
}


def run(arguments, folder):
    result = subprocess.run(arguments, cwd=folder, capture_output=True,
                            text=True, check=False)
    text = result.stdout + result.stderr
    if result.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: exit code {result.returncode}\n"
                 f"{text}")
    return text


def explore(model, case, folder, shortest=False):
    """What pan prints about the case; its trail, if any, is in `folder`."""
    defines = [f"-D{flag}" for flag in case.flags.split()]
    run(["spin", *defines, "-a", str(ROOT / model.file)], folder)
    # Depth first is sooner at any counter-example, and needs less memory;
    # breadth first comes to the shortest.
    search, size = (["-DBFS" if shortest else "-DCOLLAPSE"], ["-w22"])
    if case.seed:
        search = ["-DBITSTATE", "-DP_RAND", "-DT_RAND"]
        size = [f"-w{SWARM_BITS}", f"-RS{case.seed}"]
    # To compile takes longer than most explorations, and far longer than to
    # come to the first run that is looked for.
    level = "-O1" if case.expected == SAFE else "-O0"
    run(["cc", level, "-w", "-DSAFETY", f"-DMEMLIM={model.megabytes}", *search,
         "-o", "pan", "pan.c"], folder)
    return run(["./pan", f"-m{model.depth}", *size], folder)


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
    space = "Bit statespace" if case.seed else "Full statespace"
    if f"{space} search" not in text:
        return f"not a {space} search"
    return unreached_in(case, text) if case.all_reached else None


def unreached_in(case, text):
    """Statements that no run comes to; the ends of the loops are such."""
    sections = re.findall(r"^unreached in proctype (\w+)$", text, re.MULTILINE)
    if sorted(sections) != sorted(case.all_reached):
        return f"expected a report on {case.all_reached}, got {sections}"
    lines = [line.strip() for line in text.split("\n")
             if re.match(r"\s+\S+:\d+, state \d+,", line)]
    lines = [line for line in lines if not line.endswith('"-end-"')]
    return f"never happens: {'; '.join(lines)}" if lines else None


def found(pattern, text):
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else "?"


def check(model, case):
    """Explores and prints a line; true when it ended as it must."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        text = explore(model, case, folder)
    problem = problem_of(case, text)
    states = found(r"^ *(\S+) states, stored", text)
    seconds = found(r"elapsed time ([\d.]+)", text)
    size = found(r"([\d.]+)\s+total actual memory usage", text)
    print(f"{'FAILED' if problem else 'ok':6} {case.name:18} {states:>10} "
          f"states {seconds:>6} s of search "
          f"{time.monotonic() - began:6.1f} s in all {size:>9} MB  "
          f"{case.flags}", flush=True)
    if problem:
        print(f"       {problem}\n{text}")
    return problem is None


def tell(model, case):
    """The shortest run that breaks the case."""
    with tempfile.TemporaryDirectory() as folder:
        explore(model, case, folder, shortest=True)
        file = ROOT / model.file
        trail = Path(folder) / f"{file.name}.trail"
        if not trail.exists():
            sys.exit(f"{case.name} has no counter-example: it is safe")
        defines = [f"-D{flag}" for flag in case.flags.split()]
        text = run(["spin", *defines, "-t", "-k", str(trail), str(file)],
                   folder)
    for line in text.split("\n"):
        if re.match(r"\s*(member|view) \d|spin: text", line):
            print(line.strip())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("group", nargs="?")
    what.add_argument("--trail", metavar="NAME")
    arguments = parser.parse_args()
    for tool in ("spin", "cc"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed "
                  "(deploy/install-deps.sh --test)")
            sys.exit(SKIPPED)
    model = MODELS[arguments.model]
    if arguments.trail:
        cases = {case.name: case for group in model.groups.values()
                 for case in group}
        tell(model, cases[arguments.trail])
        return
    # All of them, so that one report shows every failure.
    good = [check(model, case) for case in model.groups[arguments.group]]
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
