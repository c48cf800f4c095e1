#!/usr/bin/env python3
"""Explores core/recover/model/recover.pml (../spin.py says how).

    model_check.py GROUP          two | broken | nightly
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# pylint: disable=wrong-import-position
from spin import Case, Model, main

# Three stages have too many states for one search: after an hour and a billion
# of them it had not ended.  Searches that choose their ways at random and
# remember states in 2^27 bits end after minutes, and each sees other states.
SWARM = range(1, 5)

LOSES = "lost_since"
STUCK = "invalid end state"
ENDS_WELL = "0"

TWO = "W=2 S=2 T=2 A=3 "

GROUPS = {
    "two": (
        Case("death-crash", TWO + "DEATHS=1 CRASHES=1 STOPS=0"),
        Case("death-stop", TWO + "DEATHS=1 CRASHES=0 STOPS=1"),
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
        Case("crash-stop", TWO + "DEATHS=0 CRASHES=1 STOPS=1"),
        # 38 million states, 7.2 GB, a quarter of an hour.
        Case("all", TWO + "DEATHS=1 CRASHES=1 STOPS=1"),
        *(Case(f"three-{seed}",
               "W=3 S=3 T=2 A=3 DEATHS=2 CRASHES=1 STOPS=1", seed=seed)
          for seed in SWARM),
    ),
}

if __name__ == "__main__":
    main(Model("core/recover/model/recover.pml", GROUPS, megabytes=9000,
               depth=200_000), __doc__)
