#!/usr/bin/env python3
"""Strangers at a daemon's ports, some hundred of them: it holds little, goes on
answering, and recovers when they leave."""

import signal
import subprocess
import time

from mesh_case import (JOB, ProcessCase, Settings, eventually, main,
                       program)
from mesh import RestartingMesh, reading
from scale.strangers import (MOST_KIB, Memory, addresses_of, connect, kinds_of)

SECONDS = 1.5
CONNECTIONS = 1200  # more than a daemon keeps of strangers
BUSY_HOST = 3  # the listener looks later on one: the nightly run asks for 1


class Strangers(ProcessCase):
    beside_others = True

    def start(self, tls):
        self.mesh = RestartingMesh(Settings.bin, 1, 1, tls=tls)
        self.mesh.__enter__()  # pylint: disable=unnecessary-dunder-call
        self.addCleanup(self.mesh.__exit__, None)
        self.daemons = {name: self.mesh.daemon(name).pid()
                        for name in ("coordinator", "w1")}

    def check_answers(self):
        """A worker may be suspect for a moment: its heartbeats came late."""
        states = lambda: [each["state"] for each in
                          self.mesh.ask("node", "list")["workers"]]
        self.assertTrue(eventually(lambda: states() == ["idle"]), states())

    def check_all_kinds(self, tls):
        self.start(tls)
        targets, http = addresses_of(self.mesh)
        for name, attack in kinds_of(targets, http, tls, CONNECTIONS).items():
            with self.subTest(name), Memory(self.daemons.values()) as memory:
                print(name, attack(time.monotonic() + SECONDS))
                self.check_answers()
                for daemon, pid in self.daemons.items():
                    self.assertLess(memory.grown(pid), BUSY_HOST * MOST_KIB,
                                    daemon)

    def test_they_make_a_daemon_hold_little(self):
        self.check_all_kinds(tls=False)

    def test_they_make_a_daemon_with_tls_hold_little(self):
        self.check_all_kinds(tls=True)

    def test_a_daemon_with_few_files_serves_on_and_recovers(self):
        self.start(tls=False)
        pid = self.daemons["coordinator"]
        few = reading(pid)[1] + 90
        subprocess.run(["prlimit", "--pid", str(pid), f"--nofile={few}"],
                       check=True)

        held = [connect(self.mesh.addresses["coordinator"])
                for _ in range(100)]
        self.check_answers()

        for connection in held:
            connection.close()
        self.check_answers()
        self.assertLess(reading(pid)[1], few)


class Outsiders(ProcessCase):
    """A worker that is welcome, has no part in the job, and says of it what
    nobody gave out."""

    beside_others = True

    def check_ends_no_job(self, tls):
        mesh = RestartingMesh(Settings.bin, 2, 1, tls=tls)
        mesh.__enter__()  # pylint: disable=unnecessary-dunder-call
        self.addCleanup(mesh.__exit__, None)
        file = self.folder / "job.yaml"
        file.write_text(JOB)
        submit = ("job", "submit", str(file), "--set", "pipeline.stages=2",
                  "--set", "train.steps=400")
        expected = mesh.ask(*submit)["weights_sha256"]

        trust = ()
        if tls:
            mesh.join("w9", mesh.ask("token", "create")["token"])
            trust = (mesh.state / "w9" / "tls",)
        self.assertEqual(mesh.ask(*submit, "--detach")["id"], 2)
        hostile = self.start_process(
            program("hostile_worker"), mesh.addresses["coordinator"], "w9", "2",
            *trust)
        answers = lambda: hostile.out.read_text().split()
        self.assertTrue(eventually(lambda: len(answers()) == 4),
                        hostile.errors.read_text())
        self.assertEqual(set(answers()), {"ABORTED", "PERMISSION_DENIED"})
        mesh.daemon("w1").signal(signal.SIGKILL)

        mesh.run("job", "wait", "2")
        job = mesh.ask("job", "show", "2")
        story = mesh.run("job", "events", "2").stdout
        self.assertEqual(job["state"], "succeeded", story)
        self.assertEqual(job["weights_sha256"], expected, story)
        self.assertEqual((job["step"], job["steps"]), (400, 400))
        self.assertIn("attempt 2 begins", story)
        self.assertIsNone(hostile.poll(), hostile.errors.read_text())

    def test_a_worker_outside_of_a_job_does_not_end_it(self):
        self.check_ends_no_job(tls=False)

    def test_a_worker_outside_of_a_job_does_not_end_it_with_tls(self):
        self.check_ends_no_job(tls=True)


if __name__ == "__main__":
    main()
