"""A coordinator's store after a long life: thousands of jobs that have ended, with
the records of their steps.  As a script: makes one, starts a coordinator on it,
and fails where that is not ready in two seconds.
"""

import json
import sqlite3
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from mesh import ANY_PORT, end, eventually, spawn

OPTIONS = {"jobs": 20_000, "steps": 200}
READY_SECONDS = 2
PATIENCE = 60


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def step_record(step):
    """StepRecord {step, loss, samples, learning_rate, gradient_norm, unix_ms}"""
    number = struct.Struct("<d").pack
    return (b"\x08" + varint(step) + b"\x11" + number(1 / step) + b"\x18\x10"
            + b"\x21" + number(0.01) + b"\x29" + number(0.5) + b"\x38"
            + varint(1_700_000_000_000 + step))


class LongCoordinator:
    """A coordinator on a state folder of its own; a context manager."""

    def __init__(self, bin_folder, folder):
        self.bin = Path(bin_folder)
        self.state = Path(folder) / "state"
        self.ports = Path(folder) / "ports"
        self.log = Path(folder) / "log"
        self.process = None

    def start(self):
        """The seconds until it is ready: of the clock, and of the CPU."""
        begin = time.monotonic()
        self.process = spawn(self.log, self.bin / "paceline-coordinator",
                             "--listen", ANY_PORT, "--http", ANY_PORT,
                             "--state", self.state, "--port-file", self.ports)
        eventually(lambda: self.ports.exists() or
                   self.process.poll() is not None, PATIENCE, 0.005)
        if not self.ports.exists():
            raise RuntimeError(self.log.read_text(encoding="utf-8"))
        took = time.monotonic() - begin
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(
            encoding="utf-8").rsplit(")", 1)[1].split()
        return took, (int(fields[11]) + int(fields[12])) / 100

    def stop(self):
        if self.process is not None:
            end(self.process)
            self.process = None

    def address(self, kind="grpc"):
        return json.loads(self.ports.read_text(encoding="utf-8"))[kind]

    def client(self, *arguments):
        return subprocess.run(
            [self.bin / "paceline", "--coordinator", self.address(),
             *arguments], capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=PATIENCE)

    def fill(self, jobs, steps):
        """Job 1, which has ended, becomes so many, with records of so many
        steps each, written as the first release did."""
        base = sqlite3.connect(self.state / "coordinator.db")
        with base:
            (job,) = base.execute("SELECT job FROM jobs WHERE id=1").fetchone()
            # The last value of a field counts.
            base.executemany(
                "INSERT INTO jobs VALUES (?,?)",
                ((number, job + b"\x08" + varint(number))
                 for number in range(2, jobs + 1)))
            base.execute("UPDATE kv SET value=? WHERE key='next_job'",
                         (jobs + 1,))
            base.execute("CREATE TEMP TABLE made (step INTEGER PRIMARY KEY, "
                         "record BLOB)")
            base.executemany("INSERT INTO made VALUES (?,?)", (
                (step, step_record(step)) for step in range(1, steps + 1)))
            base.execute("INSERT INTO records SELECT id, 1, step, record "
                         "FROM jobs CROSS JOIN made")
        base.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def begin(self):
        """Makes the job that fill() multiplies."""
        self.start()
        job = self.state.parent / "job.yaml"
        job.write_text("model: {name: lenet}\ndata: {name: synthetic}\n"
                       "train: {steps: 9}\n", encoding="utf-8")
        self.client("job", "submit", job, "--detach")
        self.client("job", "stop", "1")
        self.stop()


def main(run):
    with tempfile.TemporaryDirectory(prefix="paceline-long-") as folder, \
            LongCoordinator(run.bin, folder) as coordinator:
        coordinator.begin()
        coordinator.fill(run.jobs, run.steps)
        print(f"{run.jobs} jobs, {run.jobs * run.steps} steps")
        for life in ("first start on an earlier program's store", "restart",
                     "another restart"):
            took, cpu = coordinator.start()
            print(f"{life}: {cpu:.2f} s of CPU")
            run.at_most(f"{life}: seconds until it is ready", READY_SECONDS,
                        took)
            coordinator.stop()
