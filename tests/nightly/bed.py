"""Emulated machines for nightly measurements: deploy/testbed.sh, needs root."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTBED = ROOT / "deploy" / "testbed.sh"
SKIPPED = 77  # ctest's and automake's word for "cannot be done here"
NODES = 4


class Bed:
    """Four machines of 0.4 core each; a context manager."""

    def __init__(self, name, bin_folder, more=()):
        self.name = name
        self.arguments = ["up", "--name", name, "--nodes", str(NODES), "--cpu", "0.4",
                          "--rate", "1gbit", "--bin", str(bin_folder), *more]

    def __enter__(self):
        subprocess.run([TESTBED, *self.arguments], check=True,
                       stdout=sys.stderr)
        return self

    def __exit__(self, *_):
        subprocess.run([TESTBED, "down", "--name", self.name], check=False,
                       stdout=sys.stderr)

    def run(self, *command, on=None, check=True):
        """What a command prints, run beside the coordinator or on a node."""
        place = [] if on is None else ["--on", str(on)]
        return subprocess.run(
            [TESTBED, "exec", "--name", self.name, *place, "--", *command],
            stdout=subprocess.PIPE, check=check).stdout

    def json(self, *command, check=True):
        """One command of the client beside the coordinator."""
        return json.loads(self.run("paceline", *command, "-o", "json",
                                   check=check))
