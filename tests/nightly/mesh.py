"""A mesh of real processes, for tests of the programs and for the long ones."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

READY_SECONDS = 130
STOP_SECONDS = 30
UNREACHABLE = 4  # the client's exit code


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


class Mesh:
    """`paceline up` in a process group of its own; a context manager."""

    def __init__(self, bin_folder, workers, *flags):
        self.flags = flags  # of `up`, besides
        self.program = str(Path(bin_folder).resolve() / "paceline")
        self.workers = workers
        self.state = Path(tempfile.mkdtemp(prefix="paceline-mesh-"))
        self.process = None
        self.addresses = {}
        self.environment = {}  # of the client, besides
        self.keep = False  # state and logs, though nothing was raised

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind, *_):
        self._stop()
        if kind is None and not self.keep:
            shutil.rmtree(self.state)
        else:
            print(f"state and logs are kept in {self.state}")

    def _start(self):
        ready = self.state / "ready.json"
        with open(self.state / "up.log", "wb") as log:
            self.process = subprocess.Popen(
                [self.program, "up", "--workers", str(self.workers),
                 "--port", "0", "--http-port", "0",
                 "--state", str(self.state / "mesh"),
                 "--ready-file", str(ready), *self.flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
        deadline = time.monotonic() + READY_SECONDS
        while not ready.exists() or not ready.read_text(encoding="utf-8"):
            if self.process.poll() is not None:
                raise RuntimeError("the mesh ended before it was ready; see "
                                   f"{self.state}/up.log")
            if time.monotonic() > deadline:
                raise RuntimeError(f"no mesh after {READY_SECONDS} s; see "
                                   f"{self.state}/up.log")
            time.sleep(0.05)
        self.addresses = json.loads(ready.read_text(encoding="utf-8"))

    def _stop(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"the mesh did not stop within {STOP_SECONDS} s")
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def run(self, *arguments, timeout=1800):
        """Runs the client; a subprocess.CompletedProcess."""
        environment = {**os.environ,
                       "PACELINE_COORDINATOR": self.addresses["coordinator"],
                       **self.environment}
        return subprocess.run([self.program, *arguments], env=environment,
                              capture_output=True, text=True, check=False,
                              timeout=timeout)

    def ask(self, *arguments, timeout=1800):
        """Runs the client with -o json, which must succeed; again, where a busy
        box does not answer in the client's two seconds."""
        deadline = time.monotonic() + STOP_SECONDS
        while True:
            result = self.run(*arguments, "-o", "json", timeout=timeout)
            if result.returncode != UNREACHABLE or time.monotonic() > deadline:
                return self._document(result)

    def _document(self, result):
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(result.args)} ended with "
                               f"{result.returncode}: {result.stderr.strip()}")
        return json.loads(result.stdout)

    def submit(self, file, *sets):
        """Begins a job; its number."""
        changes = [word for each in sets for word in ("--set", each)]
        return self._document(self.run("job", "submit", str(file), *changes,
                                       "--detach", "-o", "json"))["id"]

    def finish(self, number, timeout=1800):
        """Waits for the job's end; its document."""
        # A job that failed is a document, too.
        self.run("job", "wait", str(number), timeout=timeout)
        return self.show(number)

    def show(self, number):
        return self.ask("job", "show", str(number))

    def events(self, number):
        return self.ask("job", "events", str(number))["events"]

    def delete(self, number):
        self.ask("job", "delete", str(number))

    def processes(self):
        """pid -> command line words of the daemons."""
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                words = (folder / "cmdline").read_bytes().decode().split("\0")
                session = (folder / "stat").read_text().rsplit(")", 1)[1]
            except OSError:
                continue
            # Field 6 of stat(5): the session, which `up` leads.
            if int(session.split()[3]) == self.process.pid:
                found[int(folder.name)] = words
        return found
