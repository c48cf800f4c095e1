"""Strangers at a daemon's ports, some hundred of them: it holds little, goes on
answering, and recovers when they leave."""

import signal
import subprocess
import time

from mesh_case import SMALL, ClientCase, Settings, program
from mesh import RestartingMesh, reading
from scale.strangers import (MOST_KIB, Memory, addresses_of, connect, kinds_of)

SECONDS = 1.5
CONNECTIONS = 1200  # more than a daemon keeps of strangers
BUSY_HOST = 3  # the listener looks later on one: the nightly run asks for 1


class RestartingCase(ClientCase):
    light = True

    def start(self, workers, tls):
        self.mesh = self.enterContext(RestartingMesh(Settings.programs, workers,
                                                     tls=tls))
        self.run_client = self.mesh.run


class Strangers(RestartingCase):
    def check_all_kinds(self, tls):
        self.start(1, tls)
        daemons = {name: self.mesh.daemon(name).pid()
                   for name in ("coordinator", "w1")}
        targets, http = addresses_of(self.mesh)
        for name, attack in kinds_of(targets, http, tls, CONNECTIONS).items():
            with self.subTest(name), Memory(daemons.values()) as memory:
                print(name, attack(time.monotonic() + SECONDS))
                # It may be suspect for a moment: its heartbeats came late.
                self.await_idle(1)
                for daemon, pid in daemons.items():
                    self.assertLess(memory.grown(pid), BUSY_HOST * MOST_KIB,
                                    daemon)

    def test_they_make_a_daemon_hold_little(self):
        self.check_all_kinds(tls=False)

    def test_they_make_a_daemon_with_tls_hold_little(self):
        self.check_all_kinds(tls=True)

    def test_a_daemon_with_few_files_serves_on_and_recovers(self):
        self.start(1, tls=False)
        pid = self.mesh.coordinator.pid()
        few = reading(pid)[1] + 90
        subprocess.run(["prlimit", "--pid", str(pid), f"--nofile={few}"],
                       check=True)

        held = [connect(self.mesh.addresses["coordinator"]) for _ in range(100)]
        self.await_idle(1)

        for connection in held:
            connection.close()
        self.await_idle(1)
        self.assertLess(reading(pid)[1], few)


class Outsiders(RestartingCase):
    """A worker that is welcome, has no part in the job, and says of it what
    nobody gave out."""

    def check_ends_no_job(self, tls):
        self.start(2, tls)
        job = (SMALL, "pipeline.stages=2")
        trust = ()
        if tls:
            self.mesh.join("w9", self.ask("token", "create")["token"])
            trust = (self.mesh.state / "w9" / "tls",)
        number = self.begin(*job)
        hostile = self.start_process(
            program("hostile_worker"), self.mesh.addresses["coordinator"], "w9",
            number, *trust)

        def answers():
            return hostile.out.read_text().split()
        self.soon(lambda: len(answers()) == 4, hostile)
        self.assertEqual(set(answers()), {"ABORTED", "PERMISSION_DENIED"})
        self.mesh.daemon("w1").signal(signal.SIGKILL)

        self.await_event("attempt 2 begins")
        self.assertIsNone(hostile.poll(), hostile.errors.read_text())
        hostile.kill()
        self.expect_undisturbed(*job)

    def test_a_worker_outside_of_a_job_does_not_end_it(self):
        self.check_ends_no_job(tls=False)

    def test_a_worker_outside_of_a_job_does_not_end_it_with_tls(self):
        self.check_ends_no_job(tls=True)
