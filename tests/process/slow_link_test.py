"""Checkpoints, exports and restores over a link of half a megabit per second,
which breaks in the middle: they take their time, and go on from the byte
reached."""

import contextlib
import math
import socket
import threading
import time
from pathlib import Path

from mesh_case import (ENDLESS, SMALL, DaemonsCase, free_port, program,
                       run)

BYTES_PER_SECOND = 60_000
BUFFER = 32_768

# The state of its largest layer takes 13 s over such a link.
JOB = (SMALL, "model.hidden=[256,16]", "train.optimizer.name=sgd",
       "pipeline.stages=1", ENDLESS)


def end(*sockets):
    for each in sockets:
        with contextlib.suppress(OSError):  # it has ended
            each.shutdown(socket.SHUT_RDWR)


class SlowLink:
    """Passes on what comes to a port, in both directions, as slowly as a link
    of that rate."""

    def __init__(self, target):
        host, port = target.split(":")
        self.target = (host, int(port))
        self.passed = 0  # bytes
        self._cut_at = math.inf
        self._sockets = []
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Ends all connections; new ones come through."""
        end(*self._sockets)

    def close(self):
        self._listener.close()
        self.cut()

    def cut_after(self, size):
        """Cuts once so many more bytes have passed."""
        self._cut_at = self.passed + size

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
        with contextlib.suppress(OSError):  # it was cut
            while data := source.recv(4096):
                free_at = max(free_at, time.monotonic()) + \
                    len(data) / BYTES_PER_SECOND
                time.sleep(max(0, free_at - time.monotonic()))
                sink.sendall(data)
                self.passed += len(data)
                if self.passed >= self._cut_at:
                    self._cut_at = math.inf
                    self.cut()
        end(source, sink)


class SlowLinks(DaemonsCase):
    light = True

    def start(self, *, slow_to_worker=False, slow_to_coordinator=False):
        self.start_coordinator()
        port = free_port()
        where = self.address
        more = []
        if slow_to_coordinator:
            self.link = self.slow(self.address)
            where = self.link.address
        if slow_to_worker:
            self.link = self.slow(f"127.0.0.1:{port}")
            more = ["--advertise", self.link.address]
        self.start_worker("w1", "--coordinator", where, *more,
                          listen=f"127.0.0.1:{port}")
        self.await_idle(1)

    def slow(self, target):
        link = SlowLink(target)
        self.addCleanup(link.close)
        return link

    def test_a_checkpoint_and_its_export_come_over_links_that_break(self):
        self.start(slow_to_worker=True)
        self.detach(*JOB)
        self.await_step_after(20)
        to_coordinator = self.slow(self.address)
        self.link.cut_after(300_000)
        to_coordinator.cut_after(300_000)

        file = self.folder / "weights.safetensors"
        exported = self.ended(
            run(program("paceline"), "--coordinator", to_coordinator.address,
                "job", "export", "1", "-o", file), 0, "read back and checked")
        self.assertNotIn("checkpoint-failed", self.events())
        step = exported.stderr.split("weights after step ")[1].split()[0]
        self.stop()
        again = Path(self.export(name="again.safetensors"))
        self.has(self.events(), f"step {step} is on the coordinator's disk")
        self.assertTrue(file.read_bytes() == again.read_bytes())

    def test_a_job_is_resumed_over_a_link_that_breaks(self):
        self.start(slow_to_coordinator=True)
        self.detach(*JOB, "train.checkpoint_every=10")
        self.await_checkpoint()
        self.stop()
        self.await_idle(1)

        self.good(self.resume("1", flags=("--detach",)))
        self.soon(lambda: self.job("2")["workers"])
        self.link.cut_after(300_000)

        self.await_more_steps(job="2")
        # A busy box may miss w1 beyond its grace: another attempt is no failure.
        self.assertNotIn("failed", self.events("2"))
