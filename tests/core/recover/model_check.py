#!/usr/bin/env python3
"""Explores core/recover/model/recover.pml with spin.

    model_check.py GROUP          two | broken | nightly

The protocol's cases must be explored without an error, and to the end unless
they are of `nightly`'s swarm.  Each broken case must yield a run that
breaks the rule it is about.  Exits with 77 where spin or a C compiler is
missing.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

MODEL = Path(__file__).resolve().parents[3] / "core/recover/model/recover.pml"
SKIPPED = 77
MAX_MEGABYTES = 9000
# Three stages have too many states for one search: after an hour and a billion
# of them it had not ended.  Searches that choose their ways at random and
# remember states in 2^27 bits end after minutes, and each sees other states.
SWARM = range(1, 5)
SWARM_BITS = 27

SAFE = "safe"
LOSES = "assertion violated ((lost_since"
STUCK = "invalid end state"
ENDS_WELL = "assertion violated 0"

TWO = "W=2 S=2 T=2 A=3 "


class Case(NamedTuple):
    """One model, and how its exploration must end."""
    name: str
    flags: str
    expected: str
    seed: int = 0  # of one search of a swarm


GROUPS = {
    "two": (
        Case("death-crash", TWO + "DEATHS=1 CRASHES=1 STOPS=0", SAFE),
        Case("death-stop", TWO + "DEATHS=1 CRASHES=0 STOPS=1", SAFE),
        Case("ends", TWO + "DEATHS=1 CRASHES=1 STOPS=1 REACH_THE_END",
             ENDS_WELL),
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
        Case("crash-stop", TWO + "DEATHS=0 CRASHES=1 STOPS=1", SAFE),
        # 38 million states, 7.2 GB, a quarter of an hour.
        Case("all", TWO + "DEATHS=1 CRASHES=1 STOPS=1", SAFE),
        *(Case(f"three-{seed}",
               "W=3 S=3 T=2 A=3 DEATHS=2 CRASHES=1 STOPS=1", SAFE, seed)
          for seed in SWARM),
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


def explore(case):
    """What pan prints about the case."""
    with tempfile.TemporaryDirectory() as folder:
        defines = [f"-D{flag}" for flag in case.flags.split()]
        run(["spin", *defines, "-a", str(MODEL)], folder)
        search = (["-DBITSTATE", "-DP_RAND", "-DT_RAND"] if case.seed
                  else ["-DCOLLAPSE"])
        # To compile with -O2 takes longer than most explorations.
        run(["cc", "-O1", "-w", "-DSAFETY", f"-DMEMLIM={MAX_MEGABYTES}",
             *search, "-o", "pan", "pan.c"], folder)
        size = ([f"-w{SWARM_BITS}", f"-RS{case.seed}"] if case.seed
                else ["-w22"])
        return run(["./pan", "-m200000", *size], folder)


def problem_of(case, text):
    """Why `text` is not what the case must print; None when it is."""
    errors = re.findall(r"errors: (\d+)", text)
    if len(errors) != 1:
        return "no count of errors: the search did not end"
    violations = re.findall(r"^pan:\d+: (.*)$", text, re.MULTILINE)
    if case.expected != SAFE:
        if errors != ["1"] or len(violations) != 1:
            return f"expected one counter-example, got {violations}"
        if not violations[0].startswith(case.expected):
            return f"expected another counter-example than {violations[0]}"
        return None
    if errors != ["0"] or violations:
        return f"counter-example: {violations}"
    for bad in ("Search not completed", "max search depth too small",
                "memory limit", "out of memory", "error:"):
        if bad in text:
            return f"not explored to the end: {bad}"
    space = "Bit statespace" if case.seed else "Full statespace"
    return None if f"{space} search" in text else f"not a {space} search"


def check(case):
    """Explores and prints a line; true when it ended as it must."""
    text = explore(case)
    problem = problem_of(case, text)
    states = re.search(r"^ *(\S+) states, stored", text, re.MULTILINE)
    seconds = re.search(r"elapsed time ([\d.]+)", text)
    print(f"{'FAILED' if problem else 'ok':6} {case.name:18} "
          f"{states[1] if states else '?':>10} states "
          f"{seconds[1] if seconds else '?':>6} s  {case.flags}", flush=True)
    if problem:
        print(f"       {problem}\n{text}")
    return problem is None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("group", choices=GROUPS)
    arguments = parser.parse_args()
    for tool in ("spin", "cc"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed "
                  "(deploy/install-deps.sh --test)")
            sys.exit(SKIPPED)
    # All of them, so that one report shows every failure.
    good = [check(case) for case in GROUPS[arguments.group]]
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
