"""For tests of real processes: a mesh as `paceline up` starts it, and its
client.

A file of tests ends with `main()`, which takes --bin FOLDER, --torch where the
programs have LibTorch, and unittest's names of classes and tests.  Whole meshes
take all cores, and most tests watch the clock too: ctest runs them one at a
time, but for classes with the line `beside_others = True`, which hold on a
busy box too.
"""

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests" / "nightly"))

# pylint: disable=wrong-import-position
from mesh import (PATIENCE_SECONDS, Mesh, eventually, free_port, sets_of,
                  tensors_of)

LONGEST_SECONDS = 600

# Plurals after 1 ("1 devices"), and punctuation of sentences that were put
# together; tests/support/well_said.h has the same.
ILL_SAID = re.compile(
    r"(?<![\w.,/:-])1 (attempt|block|class(?=es)|core|device|file|image|job|"
    r"layer|line|machine|member|micro-batch(?=es)|part|point|replica|row|"
    r"sample|shard|stage|step|tensor|thread|time|token|trial|worker)e?s\b"
    r"|[.;,:] ?;|; ?[.,;]|:\.")

# A pipeline's, of a few seconds.
JOB = """
model: {name: lenet}
data: {name: synthetic, train_samples: 512, test_samples: 64}
train:
  {steps: 160, batch: 32, micro_batch: 8, evaluate_every: 100,
   optimizer: {name: adamw}}
pipeline: {stages: 3}
"""
# A job that cannot end by itself, however long a test takes to disturb it.
# MeshCase.expect_undisturbed() compares its weights.
ENDLESS = "train.steps=1000000"


class Settings:
    """Where the programs are, and whether they have LibTorch."""
    bin = ROOT / "build" / "release" / "bin"
    torch = False


def program(name):
    return str(Settings.bin / name)


def run(*command, seconds=LONGEST_SECONDS, cwd=None, **environment):
    """Runs a command to its end; a subprocess.CompletedProcess with text."""
    return subprocess.run([str(word) for word in command], capture_output=True,
                          env={**os.environ, **environment}, check=False,
                          cwd=cwd, stdin=subprocess.DEVNULL, text=True,
                          timeout=seconds)


def get(address, path):
    """The body of http://ADDRESS/PATH, whatever the status."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}",
                                    timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


class ProcessCase(unittest.TestCase):
    """Gives each test a folder, removed at its end."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="paceline-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start_process(self, *command, **environment):
        """A process with its output in files `.out` and `.errors` of its
        attributes, killed at the test's end."""
        count = len(list(self.folder.glob("*.errors")))
        out = self.folder / f"{count}.out"
        errors = self.folder / f"{count}.errors"
        with open(out, "wb") as to_out, open(errors, "wb") as to_errors:
            process = subprocess.Popen([str(word) for word in command],
                                       env={**os.environ, **environment},
                                       stdin=subprocess.DEVNULL, stdout=to_out,
                                       stderr=to_errors)
        process.out, process.errors = out, errors

        def stop():
            process.kill()
            process.wait()
        self.addCleanup(stop)
        return process

    def has(self, text, *parts):
        for part in parts:
            self.assertIn(part, text)


class MeshCase(ProcessCase):
    """Gives each test a mesh of its own, and the client's commands in short."""

    def start(self, workers, *flags):
        self.mesh = Mesh(Settings.bin, workers, *flags)
        self.mesh.__enter__()  # pylint: disable=unnecessary-dunder-call
        self.addCleanup(self._stop)

    def _stop(self):
        self.mesh.__exit__(None)
        self.assertEqual(self.mesh.process.returncode, 0)

    @property
    def coordinator(self):
        return self.mesh.addresses["coordinator"]

    @property
    def http(self):
        return self.mesh.addresses["http"]

    def client(self, *arguments):
        """A command's end; what it says for people is well said.  A client that
        found no connection has done nothing: it tries again, since a busy box
        may take longer than its two seconds."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            finished = self.mesh.run(*arguments, timeout=LONGEST_SECONDS)
            if ("no answer within" not in finished.stderr or
                    time.monotonic() > give_up):
                break
        for text in (finished.stdout, finished.stderr):
            # A page has its style and entities beside its messages.
            if not text.startswith("<!DOCTYPE"):
                self.assertNotRegex(text, ILL_SAID)
        return finished

    def ask(self, *arguments):
        """The client's JSON document."""
        return self.mesh.ask(*arguments, timeout=LONGEST_SECONDS)

    def write(self, text, name="job.yaml"):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def try_submit(self, file, *sets, flags=()):
        changes = [word for each in sets for word in ("--set", each)]
        return self.client("job", "submit", file, *changes, *flags)

    def submit(self, file, *sets):
        """Waits for the job, which must succeed; its document."""
        finished = self.try_submit(file, *sets, flags=("-o", "json"))
        self.assertEqual(finished.returncode, 0, finished.stderr)
        job = json.loads(finished.stdout)
        self.assertEqual(job["state"], "succeeded", finished.stdout)
        return job

    def detach(self, file, *sets):
        """The job's number while it runs."""
        finished = self.try_submit(file, *sets, flags=("--detach", "-o", "json"))
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return str(json.loads(finished.stdout)["id"])

    def finished(self, job):
        """Waits for a job that runs, which must succeed; its document."""
        self.client("job", "wait", job)
        document = self.job(job)
        self.assertEqual(document["state"], "succeeded", self.events(job))
        return document

    def stop(self, job="1"):
        self.assertEqual(self.client("job", "stop", job).returncode, 0)

    def job(self, job="1"):
        return self.ask("job", "show", job)

    def step(self, job="1"):
        return self.job(job)["step"]

    def await_step_after(self, step, job="1"):
        self.assertTrue(eventually(lambda: self.step(job) > step),
                        self.events(job))

    def events(self, job="1"):
        return self.client("job", "events", job).stdout

    def await_event(self, text, job="1"):
        self.assertTrue(eventually(lambda: text in self.events(job)),
                        f"no '{text}' in {self.events(job)}")

    def export(self, job="last", name="weights.safetensors"):
        path = str(self.folder / name)
        finished = self.client("job", "export", job, "-o", path)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return path

    def weights_so_far(self, job):
        """Of a job that trains: the step that its export is of, and the hash
        of the weights.  None where it has none yet."""
        path = self.folder / f"so-far-{job}.safetensors"
        finished = self.client("job", "export", job, "-o", str(path))
        step = re.search(r"weights after step (\d+)", finished.stderr)
        if finished.returncode != 0 or not step:
            return None
        return int(step[1]), hashlib.sha256(path.read_bytes()).hexdigest()

    def expect_undisturbed(self, job, file, *sets):
        """Asserts that an endless job, beyond what has happened to it so far,
        has the weights that it would have otherwise; stops it.  Returns the
        number of the steps that were compared."""
        happened = self.step(job)
        found = []

        def beyond():
            found[:] = [self.weights_so_far(job)]
            return found[0] and found[0][0] > happened
        self.assertTrue(eventually(beyond), f"{found} {self.events(job)}")
        self.assertEqual(self.job(job)["state"], "running", self.events(job))
        self.stop(job)
        step, weights = found[0]
        alone = self.submit(file, *sets, f"train.steps={step}",
                            "train.evaluate_every=0")
        self.assertEqual(weights, alone["weights_sha256"], self.events(job))
        return step

    def background(self, *arguments):
        """A client that goes on beside the test."""
        return self.start_process(program("paceline"), *arguments,
                                  PACELINE_COORDINATOR=self.coordinator)

    def workers(self):
        return self.ask("node", "list")["workers"]

    def pid_of_worker(self, name):
        pid = {each["name"]: each["pid"] for each in self.workers()}[name]
        self.assertGreater(pid, 1)  # kill(-1) would end every process
        return pid

    def kill(self, *names):
        pids = {each["name"]: each["pid"] for each in self.workers()}
        for name in names:
            os.kill(pids[name], signal.SIGKILL)

    def pid_of_coordinator(self):
        return next(pid for pid, words in self.mesh.processes().items()
                    if words[0].endswith("paceline-coordinator"))

    def log(self, daemon):
        return (self.mesh.state / f"mesh/logs/{daemon}.log").read_text()

    def discovered(self):
        """HTTP addresses of all daemons that /sd finds."""
        return [target for group in json.loads(get(self.http, "/sd"))
                for target in group["targets"]]

    def sum_of_metric(self, name, targets=None):
        """Adds up lines as "paceline_worker_rounds_total{...} 12" over all
        labels, and daemons unless `targets` names them."""
        return sum(float(line.rsplit(" ", 1)[1])
                   for target in targets or self.discovered()
                   for line in get(target, "/metrics").splitlines()
                   if line.startswith(name))


@contextlib.contextmanager
def stopped(pid):
    """The process stands still meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    # A signal takes its time.
    stat = Path(f"/proc/{pid}/stat")
    eventually(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T")
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def throttled(pid, share):
    """The process gets that part of the time meanwhile, as under a quota."""
    period = 0.1
    ended = threading.Event()

    def throttle():
        while not ended.is_set():
            os.kill(pid, signal.SIGSTOP)
            ended.wait(period * (1 - share))
            os.kill(pid, signal.SIGCONT)
            ended.wait(period * share)
    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def frozen_thread(pid, name):
    """The process's thread of this name stands still meanwhile, and the others
    go on.  Skips the test where nobody may trace it."""
    seize, interrupt, detach, wait_all = 0x4206, 0x4207, 17, 0x40000000
    thread = next(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()
                  if (task / "comm").read_text().strip() == name)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p,
                            ctypes.c_void_p]
    if libc.ptrace(seize, thread, None, None) != 0:
        raise unittest.SkipTest(f"no tracing: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(interrupt, thread, None, None)
    os.waitpid(thread, wait_all)
    try:
        yield
    finally:
        libc.ptrace(detach, thread, None, None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, default=Settings.bin)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    Settings.bin = arguments.bin.resolve()
    Settings.torch = arguments.torch
    unittest.main(argv=[sys.argv[0], *arguments.tests], verbosity=2)
