"""A mesh whose workers may die: each is started again after the same pause,
with a log of its own for each life.

`paceline up` waits longer after each death of a daemon, which is right for
people and wrong for a test that kills one daemon twenty times.
"""

import json
import subprocess
import threading
import time

from mesh import READY_SECONDS, STOP_SECONDS, Mesh

ANY_PORT = "127.0.0.1:0"
ASK_SECONDS = 0.1


class Life:
    """One process of a worker.  Times are those of time.time()."""

    def __init__(self, worker, number, log):
        self.worker = worker
        self.number = number
        self.log = log
        self.began = None  # just before the exec


class Worker:
    """A daemon, started again whenever it dies; one thread looks after it."""

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

    def end(self):
        self._ending.set()
        with self._lock:
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
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
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
    """A context manager, asked like a Mesh."""

    def __init__(self, bin_folder, workers, pause):
        super().__init__(bin_folder, workers)
        self.pause = pause
        self.daemons = []

    def _start(self):
        (self.state / "logs").mkdir()
        ports = self.state / "coordinator.json"
        with open(self.coordinator_log(), "wb") as log:
            self.process = subprocess.Popen(
                [self.program + "-coordinator", "--listen", ANY_PORT,
                 "--http", ANY_PORT, "--state", str(self.state / "coordinator"),
                 "--port-file", str(ports)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
        self._await(lambda: ports.exists() and ports.stat().st_size > 0,
                    "the coordinator does not listen")
        self.addresses["coordinator"] = json.loads(
            ports.read_text(encoding="utf-8"))["grpc"]
        for i in range(1, self.workers + 1):
            self.daemons.append(self._worker(f"w{i}"))
        self.await_all_idle()

    def _worker(self, name):
        command = [self.program + "-worker", "--name", name,
                   "--coordinator", self.addresses["coordinator"],
                   "--machine-id", f"mesh-{name}", "--listen", ANY_PORT,
                   "--http", ANY_PORT, "--state", str(self.state / name),
                   # Each round's line has the hash of the state behind it.
                   "--log-level", "debug"]
        return Worker(name, command, self.state / "logs", self.pause)

    def _stop(self):
        for daemon in self.daemons:
            daemon.end()
        super()._stop()

    def _await(self, condition, why):
        deadline = time.monotonic() + READY_SECONDS
        while not condition():
            if self.process.poll() is not None:
                raise RuntimeError("the coordinator ended; see "
                                   f"{self.coordinator_log()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{why} after {READY_SECONDS} s; see "
                                   f"{self.state}/logs")
            time.sleep(ASK_SECONDS)

    def coordinator_log(self):
        return self.state / "logs" / "coordinator.log"

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
