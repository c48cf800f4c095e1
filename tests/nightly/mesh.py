"""Meshes of real processes, for tests of the programs and for the long ones."""

import array
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

READY_SECONDS = 130
STOP_SECONDS = 30
# A busy box may take long; whoever waits for what never comes is told so late.
PATIENCE_SECONDS = 120
UNREACHABLE = 4  # the client's exit code
ANY_PORT = "127.0.0.1:0"


def eventually(condition, seconds=PATIENCE_SECONDS, pause=0.05):
    """Asks until `condition` holds; False after `seconds`.  To ask costs a
    third of the first pause in a core's time: the longer it waits, the longer
    the pauses."""
    begin = time.monotonic()
    while not condition():
        waited = time.monotonic() - begin
        if waited > seconds:
            return False
        time.sleep(max(pause, min(0.4, waited / 15)))
    return True


def free_port():
    """A port that was free a moment ago, for programs that cannot choose."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def spawn(log, *command, **how):
    """A process that writes to the end of a log."""
    with open(log, "ab") as out:
        return subprocess.Popen([str(word) for word in command],
                                stdin=subprocess.DEVNULL, stdout=out,
                                stderr=out, **how)


def end(process):
    """Asks it to stop, and kills it where it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"process {process.pid} did not stop within {STOP_SECONDS} s")
        process.kill()
        process.wait()


def sets_of(changes):
    """The client's words for changes of a job, as `train.steps=3`."""
    return [word for each in changes for word in ("--set", str(each))]


def reading(pid):
    """(resident KiB, open files, threads) of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    values = dict(line.split(":", 1) for line in status.splitlines())
    return (int(values["VmRSS"].split()[0]),
            len(os.listdir(f"/proc/{pid}/fd")), int(values["Threads"]))


def flip_a_byte(path):
    """Changes one in the file's middle, as a disk might."""
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def tensors_of(path):
    """name -> values of a safetensors file, which is a length, a header in
    JSON, and the bytes of all tensors."""
    content = Path(path).read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    return {name: array.array({"F32": "f", "I64": "q"}.get(entry["dtype"], "B"),
                              content[begin + entry["data_offsets"][0]: begin
                                      + entry["data_offsets"][1]]) for name,
            entry in header.items()}


class Asked:
    """What is asked of a mesh, over run(words), the client's ended process, and
    ask(words), its document."""

    def submit(self, file, *sets):
        """Begins a job; its number."""
        return self.document(self.run("job", "submit", file, *sets_of(sets),
                                      "--detach", "-o", "json"))["id"]

    def finish(self, number, timeout=1800):
        """Waits for the job's end; its document."""
        # A job that failed is a document, too.
        self.run("job", "wait", number, timeout=timeout)
        return self.show(number)

    def train(self, file, *sets):
        """The document of a job that must succeed."""
        shown = self.finish(self.submit(file, *sets))
        if shown["state"] != "succeeded":
            raise RuntimeError(f"job {shown['id']}, {file}: {shown['state']} "
                               f"after {shown['step']} steps: {shown['why']}")
        return shown

    def show(self, number):
        return self.ask("job", "show", number)

    def events(self, number):
        return self.ask("job", "events", number)["events"]

    def stop_job(self, number):
        self.ask("job", "stop", number)

    def export(self, number, path):
        """Its weights or predictions in that file; a document."""
        return self.document(self.run("job", "export", number, "-o", path,
                                      "--output", "json"))

    def delete(self, number):
        self.ask("job", "delete", number)

    def await_step(self, number, step):
        if not eventually(lambda: self.show(number)["step"] >= step, 600):
            raise RuntimeError(f"job {number} does not come to step {step}: "
                               f"{self.show(number)['why']}; "
                               f"{self.events(number)[-5:]}")

    @staticmethod
    def document(ended):
        if ended.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, ended.args))} ended with "
                               f"{ended.returncode}: {ended.stderr.strip()}")
        return json.loads(ended.stdout)


class Mesh(Asked):
    """`paceline up` in a process group of its own; a context manager."""

    def __init__(self, bin_folder, workers, *flags):
        self.flags = flags  # of `up`, besides
        self.program = str(Path(bin_folder).resolve() / "paceline")
        self.workers = workers
        self.state = Path(tempfile.mkdtemp(prefix="paceline-mesh-"))
        self.process = None
        self.addresses = {}
        self.environment = {}  # of the client, besides
        self.wrong = []  # complaints: state and logs are kept

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind, *_):
        self._stop()
        if kind is None and not self.wrong:
            shutil.rmtree(self.state)
        else:
            print(f"state and logs are kept in {self.state}")

    def _start(self):
        ready = self.state / "ready.json"
        self.process = spawn(
            self.state / "up.log", self.program, "up", "--workers",
            self.workers, "--port", "0", "--http-port", "0", "--state",
            self.state / "mesh", "--ready-file", ready, *self.flags,
            start_new_session=True)
        self._await(lambda: ready.exists() and ready.read_text() or
                    self.process.poll() is not None, "the mesh is not ready")
        if self.process.poll() is not None:
            raise RuntimeError("the mesh ended before it was ready; see "
                               f"{self.state}/up.log")
        self.addresses = json.loads(ready.read_text(encoding="utf-8"))

    def _await(self, condition, why):
        if not eventually(condition, READY_SECONDS):
            raise RuntimeError(f"{why} after {READY_SECONDS} s; see the logs "
                               f"in {self.state}")

    def _stop(self):
        if self.process is None:
            return
        end(self.process)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def run(self, *arguments, timeout=1800):
        """Runs the client; a subprocess.CompletedProcess."""
        environment = {**os.environ,
                       "PACELINE_COORDINATOR": self.addresses["coordinator"],
                       **self.environment}
        return subprocess.run([self.program, *map(str, arguments)],
                              env=environment, capture_output=True, text=True,
                              check=False, timeout=timeout)

    def ask(self, *arguments, timeout=1800):
        """Runs the client with -o json, which must succeed; again, where a busy
        box does not answer in the client's two seconds."""
        deadline = time.monotonic() + STOP_SECONDS
        while True:
            result = self.run(*arguments, "-o", "json", timeout=timeout)
            if result.returncode != UNREACHABLE or time.monotonic() > deadline:
                return self.document(result)

    def processes(self):
        """pid -> command line words of the daemons, whose session `up` leads."""
        listed = subprocess.run(
            ["ps", "--no-headers", "-ww", "-o", "pid,args", "--sid",
             str(self.process.pid)], stdout=subprocess.PIPE, text=True,
            check=False).stdout
        return {int(pid): words for pid, *words in map(str.split,
                                                       listed.splitlines())}


class Life(NamedTuple):
    """One process of a daemon."""
    worker: str
    number: int
    log: Path


class Daemon:
    """A program that is started again whenever it dies; one thread looks after
    it."""

    def __init__(self, name, command, logs, pause):
        self.name = name
        self.lives = []
        self._command = command
        self._logs = logs
        self._pause = pause
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._process = None
        self._start()
        self._thread = threading.Thread(target=self._look_after)
        self._thread.start()

    def pid(self):
        with self._lock:
            return self._process.pid

    def signal(self, number):
        """The time at which its process had it."""
        with self._lock:
            moment = time.time()
            self._process.send_signal(number)
        return moment

    def end(self):
        self._ending.set()
        with self._lock:
            process = self._process
            process.send_signal(signal.SIGCONT)
        end(process)
        self._thread.join()

    def _start(self):
        number = len(self.lives)
        life = Life(self.name, number, self._logs / f"{self.name}.{number}.log")
        self._process = spawn(life.log, *self._command, start_new_session=True)
        self.lives.append(life)

    def _look_after(self):
        while True:
            self._process.wait()
            if self._ending.wait(self._pause):
                return
            with self._lock:
                if self._ending.is_set():
                    return
                self._start()


class RestartingMesh(Mesh):
    """A mesh whose daemons may die: each is started again after the same pause,
    with a log of its own for each life.  `paceline up` waits longer after each
    death, which is wrong for a test that kills one daemon twenty times.

    pause: seconds from a death to the next exec.  The pid of a daemon's newest
    process, which may be dead: daemon("w1").pid(), daemon("coordinator").pid().
    tls: workers join by a token, and everybody has a certificate.
    """

    def __init__(self, bin_folder, workers, pause=1, log_level="info",
                 tls=False):
        super().__init__(bin_folder, workers)
        self.pause = pause
        self.log_level = log_level
        self.tls = tls
        self.daemons = []  # workers
        self.coordinator = None

    def _start(self):
        (self.state / "logs").mkdir()
        # The same address for each life.
        self.addresses["coordinator"] = f"127.0.0.1:{free_port()}"
        self.addresses["http"] = f"127.0.0.1:{free_port()}"
        self.coordinator = self._daemon(
            "coordinator", ["--listen", self.addresses["coordinator"],
                            "--http", self.addresses["http"],
                            *(["--tls"] if self.tls else [])])
        self.environment["PACELINE_TLS_DIR"] = str(
            self.state / "coordinator/tls/client")
        self._await(lambda: self.run("node", "list").returncode == 0,
                    "the coordinator does not listen")
        token = self.tls and self.ask("token", "create", "--uses",
                                      str(self.workers))["token"]
        for i in range(1, self.workers + 1):
            if self.tls:
                self.join(f"w{i}", token)
            self.daemons.append(self._daemon(f"w{i}", [
                "--name", f"w{i}", "--machine-id", f"mesh-w{i}",
                "--coordinator", self.addresses["coordinator"],
                "--listen", ANY_PORT, "--http", ANY_PORT,
                "--log-level", self.log_level]))
        self.await_all_idle()

    def _daemon(self, name, arguments):
        kind = "-coordinator" if name == "coordinator" else "-worker"
        command = [self.program + kind, "--state", str(self.state / name),
                   *arguments]
        return Daemon(name, command, self.state / "logs", self.pause)

    def join(self, name, token):
        subprocess.run(
            [self.program + "-worker", "join", self.addresses["coordinator"],
             token, "--name", name, "--state", str(self.state / name),
             "--config", str(self.state / f"{name}.toml")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)

    def _stop(self):
        for daemon in self.daemons:
            daemon.end()
        if self.coordinator is not None:
            self.coordinator.end()

    def daemon(self, name):
        return next(each for each in (self.coordinator, *self.daemons)
                    if each.name == name)

    def processes(self):
        """pid -> name of the daemons."""
        return {each.pid(): each.name
                for each in (self.coordinator, *self.daemons)}

    def await_all_idle(self):
        """Until the newest process of every worker has registered, without a
        job."""
        def idle():
            pids = {worker["name"]: worker["pid"]
                    for worker in self.ask("node", "list")["workers"]
                    if worker["state"] == "idle"}
            return all(pids.get(daemon.name) == daemon.pid()
                       for daemon in self.daemons)
        self._await(idle, "not all workers are there")

    def lives(self):
        return [life for daemon in self.daemons for life in daemon.lives]
