"""What the long scripts share: their options, how they start meshes and beds,
what was asked beside what was measured, complaints and exit codes.

A script is a module with main(run).  Its docstring is the help.  It may have

  OPTIONS  name -> default.  A type stands for an option without a default, a
           list for one that may be given several times, a tuple or a table for
           one that chooses some of its names (default: all)
  PARTS    name -> function of run, as --part chooses them; without a main() of
           its own a script runs them one after the other

and each of its options is an attribute of `run`.
"""

import argparse
import importlib.util
import os
import statistics
import sys
from pathlib import Path

from bed import Bed
from mesh import Mesh, RestartingMesh

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "build/release/bin"
SKIPPED = 77  # ctest's and automake's word for "cannot be done here"


class Skip(Exception):
    """What the script is for cannot be done here."""


class Run:
    """One run of a script."""

    def __init__(self):
        self.asked = []  # rows: what, asked, measured, verdict
        self.wrong = []  # sentences

    # --- where it runs

    def mesh(self, workers, kind=Mesh, **how):
        mesh = kind(self.bin, workers, **how)
        mesh.wrong = self.wrong
        return mesh

    def restarting_mesh(self, workers, **how):
        return self.mesh(workers, RestartingMesh, **how)

    def bed(self, *flags, **how):
        """Emulated machines; their name is the option --name."""
        return Bed(getattr(self, "name", "nightly"), self.bin, flags, **how)

    def needs(self, root=False, torch=False):
        if torch and importlib.util.find_spec("torch") is None:
            raise Skip("needs python3-torch")
        if root and os.geteuid() != 0:
            raise Skip("a bed needs root")

    # --- what came of it

    def at_least(self, what, asked, measured):
        self._ask(what, ">=", asked, measured, measured >= asked)

    def at_most(self, what, asked, measured):
        self._ask(what, "<=", asked, measured, measured <= asked)

    def _ask(self, what, sign, asked, measured, good):
        self.asked.append((what, f"{sign} {asked:g}", f"{measured:.3f}",
                           "ok" if good else "SHORT"))
        if not good:
            self.wrong.append(f"{what}: {measured:.3f}, asked {sign} {asked:g}")

    def same(self, what, found, wanted):
        """Both are documents, or tables, of which the keys of `wanted` count."""
        for key, value in wanted.items():
            if found[key] != value:
                self.wrong.append(f"{what}: {key} {found[key]}, not {value}; "
                                  f"{found.get('why', '')}")

    def compare(self, what, turns, ways, measure, before=None):
        """The median of measure(first way) / measure(second) of so many turns,
        in which either is the first one in turn."""
        ratios = []
        for turn in range(turns):
            if before is not None:
                before(turn)
            seconds = {way: measure(way)
                       for way in (ways[::-1] if turn % 2 else ways)}
            ratios.append(seconds[ways[0]] / seconds[ways[1]])
            say(f"{what}: a step takes {1e3 * seconds[ways[0]]:.2f} ms, "
                f"{1e3 * seconds[ways[1]]:.2f} to compare with: "
                f"{ratios[-1]:.4f}")
        return statistics.median(ratios)

    def end(self):
        """Shows it; the exit code."""
        width = max((len(row[0]) for row in self.asked), default=0)
        for what, asked, measured, verdict in self.asked:
            print(f"{what:{width}}  asked {asked:9}  measured {measured:8}  "
                  f"{verdict}")
        for sentence in self.wrong:
            print(f"WRONG: {sentence}")
        return int(bool(self.wrong))


def say(*words, **how):
    print(*words, flush=True, **how)


def curve_of(document):
    """step -> seconds, as the attempt that counts did it."""
    return {point["step"]: point["unix_ms"] / 1e3 for point in document["loss"]}


def gaps_of(document, begin=0, end=float("inf")):
    """[(seconds since the step before, when it was done)] of the steps that were
    begun and done between these times."""
    times = curve_of(document)
    return [(times[step] - times[step - 1], times[step]) for step in times
            if step - 1 in times and times[step - 1] >= begin
            and times[step] <= end]


def step_seconds(document, *between):
    """The median step: a recovery or an evaluation is no step."""
    return statistics.median(length for length, _ in
                             gaps_of(document, *between))


def middle_step_seconds(document):
    """Of the middle three quarters, so that no beginning or end counts."""
    times = curve_of(document)
    known = sorted(times)
    first, last = known[len(known) // 8], known[-len(known) // 8]
    return (times[last] - times[first]) / (last - first)


def median_and_most(values, digits):
    """Two columns of a table."""
    known = [value for value in values if value is not None]
    if not known:
        return f"{'-':>8}{'-':>8}"
    return f"{statistics.median(known):8.{digits}f}{max(known):8.{digits}f}"


def options_of(module, name):
    parser = argparse.ArgumentParser(
        prog=name, description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = getattr(module, "PARTS", None)
    kinds = {"bin": BIN, **({"part": parts} if parts else {}),
             **getattr(module, "OPTIONS", {})}
    for word, kind in kinds.items():
        flag = "--" + word.replace("_", "-")
        if kind is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(kind, type):
            parser.add_argument(flag, type=kind)
        elif isinstance(kind, (list, tuple, dict)):
            parser.add_argument(flag, action="append",
                                choices=list(kind) or None)
        else:
            parser.add_argument(flag, type=type(kind), default=kind,
                                help=f"default: {kind}")
    return parser, kinds


def main(module, name, words):
    """Runs it; its exit code."""
    parser, kinds = options_of(module, name)
    run = Run()
    # An option may have the name of a method.
    vars(run).update(vars(parser.parse_args(words)))
    for word, kind in kinds.items():
        if isinstance(kind, (list, tuple, dict)) and getattr(run, word) is None:
            setattr(run, word, list(kind))
        if isinstance(getattr(run, word), Path):
            setattr(run, word, getattr(run, word).resolve())
    os.chdir(ROOT)  # of the job files
    try:
        if hasattr(module, "main"):
            module.main(run)
        else:
            for part in run.part:
                module.PARTS[part](run)
    except Skip as why:
        print(f"skipped: {why}", file=sys.stderr)
        return run.end() or SKIPPED
    return run.end()
