"""A mesh whose daemons may die: each is started again after the same pause,
with a log of its own for each life.

`paceline up` waits longer after each death of a daemon, which is right for
people and wrong for a test that kills one daemon twenty times.
"""

import signal
import socket
import subprocess
import threading
import time

from mesh import READY_SECONDS, STOP_SECONDS, Mesh

ANY_PORT = "127.0.0.1:0"
ASK_SECONDS = 0.1


class Life:
    """One process of a daemon.  Times are those of time.time()."""

    def __init__(self, daemon, number, log):
        self.worker = daemon
        self.number = number
        self.log = log
        self.began = None  # just before the exec


def free_port():
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


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
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            process = self._process
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        self._thread.join()

    def _start(self):
        number = len(self.lives)
        life = Life(self.name, number, self._logs / f"{self.name}.{number}.log")
        with open(life.log, "wb") as log:
            life.began = time.time()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
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
    """A context manager, asked like a Mesh.

    pause: seconds from a death to the next exec.  The pid of a daemon's newest
    process, which may be dead: daemon("w1").pid(), daemon("coordinator").pid().
    tls: workers join by a token, and everybody has a certificate.
    """

    def __init__(self, bin_folder, workers, pause, log_level="info",
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
                self._join(f"w{i}", token)
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

    def _join(self, name, token):
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

    def _await(self, condition, why):
        deadline = time.monotonic() + READY_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{why} after {READY_SECONDS} s; see "
                                   f"{self.state}/logs")
            time.sleep(ASK_SECONDS)

    def daemon(self, name):
        return next(each for each in (self.coordinator, *self.daemons)
                    if each.name == name)

    def processes(self):
        """pid -> name of the daemons."""
        return {each.pid(): each.name
                for each in (self.coordinator, *self.daemons)}

    def coordinator_log(self):
        return self.coordinator.lives[-1].log

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

    def names_by_id(self):
        """As members of a view are ordered."""
        workers = self.ask("node", "list")["workers"]
        return [each["name"] for each in sorted(workers,
                                                key=lambda each: each["id"])]

    def lives(self):
        return [life for daemon in self.daemons for life in daemon.lives]
