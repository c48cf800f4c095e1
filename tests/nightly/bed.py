"""Emulated machines for nightly measurements: deploy/testbed.sh, needs root."""

import os
import subprocess
import sys
from pathlib import Path

from mesh import Asked

ROOT = Path(__file__).resolve().parents[2]
TESTBED = ROOT / "deploy" / "testbed.sh"
NODES = 4
# A box whose host takes a core away for three seconds (seen here) has lost no
# node; nothing that runs on this bed is killed.
LEASE_SECONDS = 30

KERNELS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE")

# Takes what nobody else wants of one CPU, for as long as its parent lives.  On
# that CPU only: left to itself the kernel lets two of these share one, and the
# other idles.
SPIN = """
import os, sys
parent = os.getppid()
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == parent:
    for _ in range(10_000_000):
        pass
"""


def kernels_of_workers():
    """The variables by which a worker that runs here chose its instructions:
    those of its libraries that hold for what computes like it."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "exe").split("/")[-1] != "paceline-worker":
                continue
            words = (process / "environ").read_bytes().decode().split("\0")
        except OSError:  # it ended while it was looked at
            continue
        values = dict(word.split("=", 1) for word in words if "=" in word)
        if "PACELINE_CPU_CAPABILITY" in values:  # else it has yet to choose
            return {name: values[name] for name in KERNELS if name in values}
    return {}


class AwakeBox:
    """Keeps the CPUs from idling; a context manager.

    Machines of 0.4 core leave a box idle now and then, and a virtual one that
    idles may compute half as fast for half a minute afterwards (seen here with
    a fixed loop; never while something spun).

    filler: a command that takes what nobody else wants of one CPU, instead of a
    loop that does nothing.  With one that computes like the nodes do, with the
    same instructions too, a node shares caches, memory and the other half of
    its core with as much work when it is the only one as when all compute: real
    machines share nothing.
    """

    def __init__(self, filler=None):
        if filler and not os.access(filler[0], os.X_OK):
            raise FileNotFoundError(
                f"{filler[0]} keeps the box busy and is not there: "
                "build it with deploy/build.sh release")
        self._filler = filler
        self._spinners = []

    def __enter__(self):
        environment = {**os.environ, **kernels_of_workers()}
        for cpu in os.sched_getaffinity(0):
            command = [sys.executable, "-c", SPIN, str(cpu)]
            if self._filler:
                command = ["setpriv", "--pdeathsig", "KILL", "chrt", "--idle",
                           "0", "taskset", "--cpu-list", str(cpu), *self._filler]
            self._spinners.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                 env=environment))
        return self

    def __exit__(self, *_):
        for spinner in self._spinners:
            spinner.kill()
            spinner.wait()


class Bed(Asked):
    """Machines of 0.4 core each on a box that stays awake; a context
    manager."""

    def __init__(self, name, bin_folder, more=(), filler=None, nodes=NODES):
        self.name = name
        self._awake = AwakeBox(filler)
        self._up = ("--nodes", str(nodes), "--cpu", "0.4", "--rate", "1gbit",
                    "--lease", str(LEASE_SECONDS), "--bin", str(bin_folder),
                    *more)

    def __enter__(self):
        self.testbed("up", *self._up)
        self._awake.__enter__()
        return self

    def __exit__(self, failed, *_):
        self._awake.__exit__()
        if failed:
            self.show_logs()
        subprocess.run([TESTBED, "down", "--name", self.name], check=False,
                       stdout=sys.stderr)

    def testbed(self, word, *arguments):
        """What a command of the script prints."""
        return subprocess.run([TESTBED, word, *arguments, "--name", self.name],
                              check=True, stdout=subprocess.PIPE).stdout

    def show_logs(self):
        """The ends of what the daemons said, which goes with the bed."""
        logs = Path("/var/lib/paceline-testbed", self.name, "logs")
        for log in sorted(logs.glob("*.log")):
            print(f"--- {log.name}", *log.read_text().splitlines()[-15:],
                  sep="\n", file=sys.stderr)

    def command(self, *command, on=None):
        """The words that run a command beside the coordinator or on a node."""
        place = [] if on is None else ["--on", str(on)]
        return [str(TESTBED), "exec", "--name", self.name, *place, "--",
                *map(str, command)]

    def output(self, *command, on=None):
        """What such a command prints."""
        return subprocess.run(self.command(*command, on=on), text=True,
                              stdout=subprocess.PIPE, check=True).stdout

    def run(self, *arguments, timeout=None):
        """Runs the client beside the coordinator."""
        return subprocess.run(self.command("paceline", *arguments), text=True,
                              capture_output=True, check=False, timeout=timeout)

    def ask(self, *arguments):
        """Runs the client with -o json, which must succeed."""
        return self.document(self.run(*arguments, "-o", "json"))
