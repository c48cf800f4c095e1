#!/usr/bin/env python3
"""Explores core/round/model/round.pml (../spin.py says how).

    model_check.py GROUP          three | four | broken | progress | nightly
    model_check.py --trail NAME   tells the shortest run that breaks a case
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# pylint: disable=wrong-import-position
from spin import Case, Model, main

# What the assertions of a violation are about.
DIVERGES = "decided["
APPLIES_OUT_OF_TURN = "applied["
ENDS_WELL = "i<"

THREE = "N=3 STEPS=3 VIEWS=3"
FOUR = "N=4 STEPS=3 VIEWS=3"
JOINS = THREE + " JOINER=0"


def protocol(name, flags):
    return Case(name, flags, all_reached=("coordinator", "member"))


GROUPS = {
    "three": (
        protocol("3", THREE),
        protocol("3-joiner-first", THREE + " JOINER=0"),
        protocol("3-joiner-last", THREE + " JOINER=2"),
        protocol("3-min-parts", JOINS + " MIN_PARTS=2"),
        protocol("3-four-steps", "N=3 STEPS=4 VIEWS=3 JOINER=0"),
        protocol("3-four-views", "N=3 STEPS=3 VIEWS=4 JOINER=0"),
        Case("3-early-joiner", JOINS + " FIRST_FROM_STEP=1"),
        Case("3-lowest-view", JOINS + " LOWEST_VIEW_WINS"),
        Case("3-fenced-commits",
             JOINS + " PROOF_WITHOUT_HASH FENCE_NEWER_COMMITS"),
        Case("3-no-adopt", THREE + " NO_ADOPT_BEFORE_ANSWER"),
        Case("3-no-wait", THREE + " NO_WAIT_FOR_EVERY_MEMBER"),
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

if __name__ == "__main__":
    main(Model("core/round/model/round.pml", GROUPS), __doc__)
