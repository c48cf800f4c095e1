#!/usr/bin/env python3
"""Checkpoints, exports and restores over a link of half a megabit per second,
which breaks in the middle: they take their time, and go on from the byte
reached."""

import hashlib
import json
import socket
import threading
import time
from pathlib import Path

from mesh_case import (ProcessCase, Settings, eventually, free_port, main,
                       program, run)

BYTES_PER_SECOND = 60_000
BUFFER = 32_768

# The state of its largest layer takes 13 s over such a link.
JOB = """
model: {name: mlp, hidden: [256, 16]}
data: {name: synthetic, train_samples: 512, test_samples: 64}
train: {steps: 1000000, batch: 32, micro_batch: 16}
pipeline: {stages: 1}
"""


class SlowLink:
    """Passes on what comes to a port, in both directions, as slowly as a link
    of that rate."""

    def __init__(self, target):
        host, port = target.split(":")
        self.target = (host, int(port))
        self.passed = 0  # bytes
        self._sockets = []
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Ends all connections; new ones come through."""
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended

    def close(self):
        self._listener.close()
        self.cut()

    def cut_after(self, size):
        """Cuts once so many more bytes have passed."""
        begin = self.passed

        def wait():
            while self.passed - begin < size:
                time.sleep(0.01)
            self.cut()
        threading.Thread(target=wait, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket()
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            try:
                far.connect(self.target)
            except OSError:
                near.close()
                continue
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink),
                                 daemon=True).start()

    def _pass_on(self, source, sink):
        free_at = time.monotonic()
        try:
            while data := source.recv(4096):
                free_at = max(free_at, time.monotonic()) + \
                    len(data) / BYTES_PER_SECOND
                time.sleep(max(0, free_at - time.monotonic()))
                sink.sendall(data)
                self.passed += len(data)
        except OSError:
            pass  # it was cut
        for each in (source, sink):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other direction has done so


class SlowLinks(ProcessCase):
    beside_others = True

    def start(self, *, slow_to_worker=False, slow_to_coordinator=False):
        self.address = f"127.0.0.1:{free_port()}"
        self.coordinator = self.start_process(
            program("paceline-coordinator"), "--state", self.folder / "state",
            "--listen", self.address, "--http", "127.0.0.1:0")
        self.assertTrue(eventually(
            lambda: self.client("node", "list").returncode == 0))
        port = free_port()
        where = self.address
        more = []
        if slow_to_coordinator:
            self.link = self.slow(self.address)
            where = self.link.address
        if slow_to_worker:
            self.link = self.slow(f"127.0.0.1:{port}")
            more = ["--advertise", self.link.address]
        self.start_process(
            program("paceline-worker"), "--name", "w1", "--state",
            self.folder / "w1", "--coordinator", where, "--listen",
            f"127.0.0.1:{port}", "--http", "127.0.0.1:0", *more)
        self.assertTrue(eventually(
            lambda: any(each["state"] == "idle" for each in
                        self.ask("node", "list")["workers"])))

    def slow(self, target):
        link = SlowLink(target)
        self.addCleanup(link.close)
        return link

    def client(self, *arguments, address=None):
        return run(program("paceline"), "--coordinator",
                   address or self.address, *arguments)

    def ask(self, *arguments):
        answer = self.client(*arguments, "-o", "json")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)

    def submit(self, *sets):
        file = self.folder / "job.yaml"
        file.write_text(JOB)
        changes = [word for each in sets for word in ("--set", each)]
        answer = self.client("job", "submit", file, "--detach", *changes)
        self.assertEqual(answer.returncode, 0, answer.stderr)

    def job(self, number):
        return self.ask("job", "show", number)

    def events(self, number):
        return self.client("job", "events", number).stdout

    def test_a_checkpoint_and_its_export_come_over_links_that_break(self):
        self.start(slow_to_worker=True)
        self.submit()
        self.assertTrue(eventually(lambda: self.job("1")["step"] > 20))
        to_coordinator = self.slow(self.address)
        self.link.cut_after(300_000)
        to_coordinator.cut_after(300_000)

        file = self.folder / "weights.safetensors"
        exported = self.client("job", "export", "1", "-o", str(file),
                               address=to_coordinator.address)

        self.assertEqual(exported.returncode, 0,
                         exported.stderr + self.events("1"))
        self.has(exported.stderr, "read back and checked")
        self.assertNotIn("checkpoint-failed", self.events("1"))
        again = self.folder / "again.safetensors"
        step = exported.stderr.split("weights after step ")[1].split()[0]
        self.client("job", "stop", "1")
        self.client("job", "export", "1", "-o", str(again))
        self.has(self.events("1"), f"step {step} is on the coordinator's disk")
        self.assertEqual(hashlib.sha256(file.read_bytes()).digest(),
                         hashlib.sha256(again.read_bytes()).digest())

    def test_a_job_is_resumed_over_a_link_that_breaks(self):
        self.start(slow_to_coordinator=True)
        self.submit("train.checkpoint_every=10")
        self.assertTrue(eventually(lambda: self.job("1")["checkpoints"], 60),
                        self.events("1"))
        self.client("job", "stop", "1")
        self.assertTrue(eventually(
            lambda: self.ask("node", "list")["workers"][0]["state"] == "idle"))

        resumed = self.client("job", "resume", "1", "--detach")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertTrue(eventually(lambda: self.job("2")["workers"]))
        self.link.cut_after(300_000)

        begin = self.job("2")["step"]
        self.assertTrue(eventually(lambda: self.job("2")["step"] > begin, 90),
                        self.events("2"))
        self.assertNotIn("attempt 2 begins", self.events("2"))
        self.assertNotIn("failed", self.events("2"))


if __name__ == "__main__":
    main()
