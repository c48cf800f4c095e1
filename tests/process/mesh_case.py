"""For tests of real processes: a mesh as `paceline up` starts it, or daemons
that are started by hand, and the client.

Whole meshes take all cores, and some tests watch the clock too: ctest runs a
class with the line `alone = True` when nothing else runs; the others hold on a
busy box.  A class with the line `shared = N` is one entry of ctest: its tests
share a mesh of N workers, and leave every worker idle.  (So is one that takes
over the tests of another class.)  A class with the line
`light = True` is about no computing: its workers have the FakeEngine, and start
in a tenth of the time.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
import zlib
from pathlib import Path

from mesh import (ANY_PORT, PATIENCE_SECONDS, UNREACHABLE, Mesh, eventually,
                  free_port, sets_of)

ROOT = Path(__file__).resolve().parents[2]
LONGEST_SECONDS = 600
REFUSED = 78  # a daemon's exit code: starting it again is of no use
STOPPED = 6  # the client's, of a job that was

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
# One for classes that are `light`: convolutions take the FakeEngine long.
SMALL = JOB.replace("{name: lenet}", "{name: mlp, hidden: [16, 16]}")
# A job that cannot end by itself, however long a test takes to disturb it.
# MeshCase.expect_undisturbed() compares its weights.
ENDLESS = "train.steps=1000000"


class Settings:
    """Where the programs are, and whether they have LibTorch."""
    bin = ROOT / "build" / "release" / "bin"
    torch = False
    programs = bin  # those of the class that runs

    @classmethod
    def choose(cls, light):
        folder = cls.bin.parent / "light"
        made_of = {name: [cls.bin / name]
                   for name in ("paceline", "paceline-coordinator")}
        made_of["paceline-worker"] = [
            library for library in cls.bin.parent.glob("lib*.a")
            if library.name.startswith(("libcore", "libworker"))
            and "torch" not in library.name]

        def made(path):
            return path.stat().st_mtime if path.exists() else 0
        # Where only the programs proper were built, they are the newer ones.
        fresh = light and all(
            made(folder / name) >= max(map(made, parts), default=1)
            for name, parts in made_of.items())
        cls.programs = folder if fresh else cls.bin


def program(name):
    path = Settings.programs / name
    return str(path if path.exists() else Settings.bin / name)


def run(*command, seconds=LONGEST_SECONDS, cwd=None, **environment):
    """Runs a command to its end; a subprocess.CompletedProcess with text."""
    return subprocess.run([str(word) for word in command], capture_output=True,
                          env={**os.environ, **environment}, check=False,
                          cwd=cwd, stdin=subprocess.DEVNULL, text=True,
                          timeout=seconds)


def put_packages(folder):
    """Debian packages of the programs: ctest has made them, or they are made."""
    if made := os.environ.get("PACELINE_PACKAGES"):
        return run("cp", "-r", f"{made}/.", folder)
    return run(ROOT / "deploy" / "packages.sh", Settings.bin, folder,
               DPKG_DEB_COMPRESSOR_TYPE="gzip", DPKG_DEB_COMPRESSOR_LEVEL="1")


def get(address, path, host=None):
    """The body of http://ADDRESS/PATH, whatever the status, or of its `host`."""
    request = urllib.request.Request(f"http://{address}{path}",
                                     headers={"Host": host or address})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def png(width, height, pixel):
    """A picture; pixel(x, y) gives the grey of a place, or its three colours."""
    rows = b"".join(b"\0" + bytes(value % 256 for x in range(width)
                                  for value in pixel(x, y))
                    for y in range(height))

    def chunk(kind, content):
        return (struct.pack(">I", len(content)) + kind + content +
                struct.pack(">I", zlib.crc32(kind + content)))
    size = struct.pack(">IIBBBBB", width, height, 8,
                       2 if len(pixel(0, 0)) == 3 else 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class ProcessCase(unittest.TestCase):
    """Gives each test a folder, removed at its end."""
    light = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        Settings.choose(cls.light)

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

    def needs_torch(self):
        if not Settings.torch:
            self.skipTest("wants LibTorch")

    def has(self, text, *parts):
        for part in parts:
            self.assertIn(part, text)

    def ended(self, finished, code, *says):
        """A command that ended with `code`, and says so much on stderr."""
        if finished.returncode != code:
            self.fail(f"ended with {finished.returncode}, not {code}\n"
                      f"{finished.stdout[-2000:]}\n{finished.stderr}\n"
                      f"{self.story()}")
        self.has(finished.stderr, *says)
        return finished

    def good(self, finished):
        return self.ended(finished, 0)

    def ends(self, process, code, *says):
        """Waits for the end of a process that start_process() began."""
        self.assertEqual(process.wait(PATIENCE_SECONDS), code,
                         process.errors.read_text() + process.out.read_text())
        self.has(process.errors.read_text(), *says)

    def await_words(self, process, words):
        self.soon(lambda: words in process.errors.read_text(), process)

    def soon(self, condition, why="", seconds=PATIENCE_SECONDS):
        """Waits until it holds.  why: words, or what gives them, or the process
        that did not do it."""
        if not eventually(condition, seconds):
            if isinstance(why, subprocess.Popen):
                why = why.errors.read_text()
            self.fail(f"{why() if callable(why) else why}\n{self.story()}")

    def story(self):
        """What else a failure should tell."""
        return ""

    def write(self, text, name="job.yaml"):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def start_worker(self, name, *options, listen=ANY_PORT, state=None,
                     **environment):
        """A worker with a folder of its own, outside of any mesh of `up`."""
        return self.start_process(
            program("paceline-worker"), "--name", name, "--state",
            state or self.folder / name, "--listen", listen, "--http", ANY_PORT,
            *options, **environment)


class ClientCase(ProcessCase):
    """The client's commands in short, over run_client(words)."""
    number = "1"  # of the job that is meant, where none is named

    def client(self, *arguments):
        """A command's end; what it says for people is well said.  A client that
        found no connection has done nothing: it tries again, since a busy box
        may take longer than its two seconds."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            finished = self.run_client(*arguments)
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
        answer = []

        def answers():
            answer[:] = [self.run_client(*arguments, "-o", "json")]
            return answer[0].returncode != UNREACHABLE
        eventually(answers)
        return json.loads(self.good(answer[0]).stdout)

    def story(self):
        return self.run_client("job", "events", "last").stdout

    def try_submit(self, job, *sets, flags=()):
        """job: a file, or the text of one."""
        file = self.write(job) if "\n" in job else job
        return self.client("job", "submit", file, *sets_of(sets), *flags)

    def submit(self, job, *sets):
        """Waits for the job, which must succeed; its document."""
        finished = self.good(self.try_submit(job, *sets, flags=("-o", "json")))
        job = json.loads(finished.stdout)
        self.assertEqual(job["state"], "succeeded", finished.stdout)
        return job

    def detach(self, job, *sets):
        """The job's number while it runs."""
        self.number = str(json.loads(self.good(self.try_submit(
            job, *sets, flags=("--detach", "-o", "json"))).stdout)["id"])
        return self.number

    def begin(self, job, *sets, step=20):
        """The number of an endless job that has come so far."""
        number = self.detach(job, *sets, ENDLESS)
        self.await_step_after(step)
        return number

    def finished(self, job=None):
        """Waits for a job that runs, which must succeed; its document."""
        self.client("job", "wait", job or self.number)
        document = self.job(job)
        self.assertEqual(document["state"], "succeeded", self.events(job))
        return document

    def resume(self, job, *sets, flags=()):
        return self.client("job", "resume", job, *sets_of(sets), *flags)

    def stop(self, job=None):
        self.good(self.client("job", "stop", job or self.number))

    def job(self, job=None):
        return self.ask("job", "show", job or self.number)

    def jobs(self):
        return self.ask("job", "list", "--limit", "0")["jobs"]

    def step(self, job=None):
        return self.job(job)["step"]

    def await_step_after(self, step, job=None):
        self.soon(lambda: self.step(job) > step)

    def await_checkpoint(self):
        self.soon(lambda: self.job()["checkpoints"])

    def await_more_steps(self, count=0, job=None):
        self.await_step_after(self.step(job) + count, job)

    def events(self, job=None):
        return self.client("job", "events", job or self.number).stdout

    def await_event(self, text, job=None, count=1):
        self.soon(lambda: self.events(job).count(text) >= count,
                  f"no '{text}' in")

    def export(self, job="last", name="weights.safetensors"):
        path = str(self.folder / name)
        self.good(self.client("job", "export", job, "-o", path))
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

    def expect_undisturbed(self, job, *sets):
        """Asserts that the endless job that was begun last, beyond what has
        happened to it so far, has the weights that it would have otherwise;
        stops it."""
        happened = self.step()
        found = []

        def beyond():
            found[:] = [self.weights_so_far(self.number)]
            return found[0] and found[0][0] > happened
        self.soon(beyond, lambda: found)
        self.assertEqual(self.job()["state"], "running", self.events())
        self.stop()
        step, weights = found[0]
        alone = self.submit(job, *sets, f"train.steps={step}",
                            "train.evaluate_every=0")
        self.assertEqual(weights, alone["weights_sha256"], self.events())

    def workers(self):
        return self.ask("node", "list")["workers"]

    def worker(self, name):
        return next(each for each in self.workers() if each["name"] == name)

    def state_of(self, worker):
        return self.worker(worker)["state"]

    def holder(self, stage, job=None):
        """The worker that holds the stage."""
        return next(each["name"] for each in self.job(job)["workers"]
                    if stage in each["stages"])

    def await_idle(self, count):
        self.soon(lambda: sum(each["state"] == "idle"
                              for each in self.workers()) == count,
                  self.workers)


class MeshCase(ClientCase):
    """Gives each test a mesh of its own, which start() begins, or all tests of
    a class the same one."""
    shared = 0  # workers of the mesh that the tests of a class share
    flags = ()  # of `up`, for that mesh

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.shared:
            mesh = Mesh(Settings.programs, cls.shared, *cls.flags)

            def check():
                assert mesh.process.returncode == 0, mesh.process.returncode
            cls.addClassCleanup(check)
            cls.mesh = cls.enterClassContext(mesh)

    def setUp(self):
        super().setUp()
        if self.shared:
            self.number = "last"  # until detach()
            self.await_idle(self.shared)
            self.addCleanup(self._stop_jobs)

    def _stop_jobs(self):
        for job in self.jobs():
            if job["state"] in ("queued", "running"):
                self.stop(str(job["id"]))

    def start(self, workers, *flags):
        self.mesh = Mesh(Settings.programs, workers, *flags)
        self.mesh.__enter__()  # pylint: disable=unnecessary-dunder-call
        self.addCleanup(self._stop)

    def story(self):
        warnings = (line for log in self.mesh.state.glob("mesh/logs/*.log")
                    for line in log.read_text().splitlines()
                    if re.search(r" (warn|error) |attached", line))
        return "\n".join([super().story(), *warnings])[-6000:]

    def _stop(self):
        self.mesh.__exit__(None)
        self.assertEqual(self.mesh.process.returncode, 0)

    def run_client(self, *arguments):
        return self.mesh.run(*arguments, timeout=LONGEST_SECONDS)

    @property
    def address(self):
        return self.mesh.addresses["coordinator"]

    @property
    def http(self):
        return self.mesh.addresses["http"]

    def background(self, *arguments):
        """A client that goes on beside the test."""
        return self.start_process(program("paceline"), *arguments,
                                  PACELINE_COORDINATOR=self.address)

    def pid_of_worker(self, name):
        pid = self.worker(name)["pid"]
        self.assertGreater(pid, 1)  # kill(-1) would end every process
        return pid

    def kill(self, *names):
        pids = {each["name"]: each["pid"] for each in self.workers()}
        for name in names:
            os.kill(pids[name], signal.SIGKILL)

    def pid_of_coordinator(self):
        return next(pid for pid, words in self.mesh.processes().items()
                    if words[0].endswith("paceline-coordinator"))

    def kill_coordinator(self):
        """Waits until `up` has started it again."""
        os.kill(self.pid_of_coordinator(), signal.SIGKILL)
        self.soon(lambda: self.client("job", "list").returncode == 0)

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


class DaemonsCase(ClientCase):
    """A coordinator and workers that the test starts by hand."""
    tls = False

    def setUp(self):
        super().setUp()
        self.address = f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self.state = self.folder / "coordinator"
        self.known = ()  # what the client is told besides the address

    def run_client(self, *arguments, known=None, **environment):
        return run(program("paceline"), "--coordinator", self.address,
                   *(self.known if known is None else known), *arguments,
                   **{"XDG_CONFIG_HOME": str(self.folder / "none"),
                      **environment})

    def start_coordinator(self, *options):
        if self.tls:
            # What the coordinator makes for root on its own host.
            self.known = ("--tls-dir", self.state / "tls/client")
        self.begin_coordinator(*options)

    def begin_coordinator(self, *options):
        self.coordinator = self.start_process(
            program("paceline-coordinator"), *(("--tls",) if self.tls else ()),
            "--state", self.state, "--listen", self.address, "--http",
            self.http, *options)
        self.soon(lambda: self.run_client("node", "list").returncode == 0,
                  self.coordinator)

    def stop_coordinator(self):
        self.coordinator.terminate()
        self.coordinator.wait()

    def join(self, name, token, *options, wrapper=(), state=None):
        """Gets a machine its certificate; the command's end."""
        return run(*wrapper, program("paceline-worker"), "join", self.address,
                   token, "--name", name, "--state", state or self.folder / name,
                   "--config", self.folder / f"{name}.toml", *options)

    def token(self, *options):
        return self.ask("token", "create", *options)["token"]


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
def frozen_thread(pid, name):
    """The process's thread of this name stands still meanwhile, and the others
    go on.  Skips the test where nobody may trace it."""
    seize, interrupt, detach, wait_all = 0x4206, 0x4207, 17, 0x40000000
    threads = []

    def look():
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # another one ends meanwhile
                if (task / "comm").read_text().strip() == name:
                    threads.append(int(task.name))
        return threads

    assert eventually(look), f"process {pid} has no thread {name}"
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p,
                            ctypes.c_void_p]
    if libc.ptrace(seize, threads[0], None, None) != 0:
        raise unittest.SkipTest(f"no tracing: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(interrupt, threads[0], None, None)
    os.waitpid(threads[0], wait_all)
    try:
        yield
    finally:
        libc.ptrace(detach, threads[0], None, None)
