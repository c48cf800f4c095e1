#!/usr/bin/env python3
"""A pipeline outlives the workers that it loses, and ends with the same bytes."""

import json
import os
import signal
from unittest import mock

from mesh_case import (JOB, MeshCase, ProcessCase, Settings, eventually, main,
                       stopped)
# mesh_case says where these are.
from coordinator_kills import check_database
from restarting_mesh import RestartingMesh

JOB = JOB.replace("stages: 3", "stages: 4").replace("steps: 160", "steps: 180")


class Recovery(MeshCase):
    beside_others = True

    def setUp(self):
        super().setUp()
        self.start(4)

    def test_a_killed_worker_costs_neither_the_job_nor_a_byte(self):
        job = self.write(JOB)
        expected = self.submit(job)["weights_sha256"]

        for number, victim in enumerate(("w3", "w1"), 2):
            number = str(number)
            self.assertEqual(self.detach(job), number)
            self.await_step_after(20, number)
            self.kill_in(number, victim)

            document = self.finished(number)
            events = self.client("job", "events", number).stdout
            self.assertEqual(document["weights_sha256"], expected, events)
            self.has(events, f"{victim}", "attempt 2 begins from step")

    def test_a_coordinator_killed_in_training_costs_no_step(self):
        job = self.write(JOB)
        expected = self.submit(job)["weights_sha256"]
        client = self.background("job", "submit", job, "-o", "json")
        self.assertTrue(eventually(
            lambda: len(self.ask("job", "list")["jobs"]) == 2))
        self.await_step_after(30, "2")
        self.assertEqual(self.job("2")["state"], "running")

        os.kill(self.pid_of_coordinator(), signal.SIGKILL)

        self.assertEqual(client.wait(120), 0, client.errors.read_text())
        document = self.job("2")
        self.assertEqual(len(document["loss"]), document["steps"])
        self.assertEqual(document["weights_sha256"], expected)
        self.assertEqual(document["attempt"], 1, self.events("2"))

    def kill_in(self, job, *names):
        self.kill(*names)
        self.assertEqual(self.job(job)["state"], "running", "it was too fast")

    def disturb(self, *sets):
        """The weights that a job ends with, and the number of the same job
        when it has begun to train."""
        job = self.write(JOB)
        expected = self.submit(job, *sets)["weights_sha256"]
        number = self.detach(job, *sets)
        self.await_step_after(20, number)
        return expected, number

    def test_two_that_are_killed_at_once_cost_no_more_than_one(self):
        expected, job = self.disturb()

        self.kill_in(job, "w2", "w4")

        self.assertEqual(self.finished(job)["weights_sha256"], expected)
        self.assertIn("begins from step", self.events(job))

    def test_one_that_is_killed_while_another_is_recovered_from(self):
        expected, job = self.disturb("train.steps=400")

        self.kill_in(job, "w2")
        self.assertTrue(eventually(
            lambda: "attempt 2 begins" in self.events(job)))
        self.kill_in(job, "w3")

        self.assertEqual(self.finished(job)["weights_sha256"], expected)
        self.assertIn("attempt 3 begins", self.events(job))

    def test_a_worker_that_stands_still_costs_its_lease(self):
        expected, job = self.disturb()

        with stopped(self.pid_of_worker("w3")):
            self.assertTrue(eventually(
                lambda: "attempt 2 begins from step" in self.events(job)))

        self.assertEqual(self.finished(job)["weights_sha256"], expected)

    def test_a_worker_that_has_other_data_takes_no_first_stage(self):
        """The file of the same name is another one when the first stage
        moves; those that have it open still read the one before."""
        text = self.write("the line closes up. " * 400, "text.txt")
        job = self.write(f"""
model: {{name: gpt, depth: 2, width: 16, heads: 2}}
data: {{name: text, path: {text}, block: 16}}
train: {{steps: 100000, batch: 8, micro_batch: 2}}
pipeline: {{stages: 3}}
""")
        self.detach(job)
        self.await_step_after(20)
        first = next(each["name"] for each in self.job()["workers"]
                     if 0 in each["stages"])

        os.replace(self.write("a gap opens up, now. " * 400, "other.txt"), text)
        self.kill(first)

        self.await_event("holds no first stage from now on")
        self.has(self.events(), f"data.path {text} has fingerprint",
                 "put the same on every worker")
        self.assertEqual(self.job()["state"], "running")
        self.stop()

    def test_the_last_of_two_machines_goes_on_alone(self):
        for name in ("w3", "w4"):
            self.assertEqual(self.client("node", "drain", name).returncode, 0)
        expected, job = self.disturb("pipeline.stages=2")

        self.kill_in(job, "w1")

        self.assertEqual(self.finished(job)["weights_sha256"], expected)
        self.assertIn("begins from step", self.events(job))


# Without kinks, at which sums that round otherwise would part.
VIT = "{name: vit, depth: 2, width: 16, heads: 2, patch: 7}"


class Replicas(MeshCase):
    """Stage 0 on w1, stage 1 on w2 and w3."""

    def setUp(self):
        super().setUp()
        self.start(3)
        self.file = self.write(
            JOB.replace("{name: lenet}", VIT).replace("pipeline: {stages: 4}", "pipeline: {cuts: [3], "
                        "workers: [w1, w2, w3], replicas: [1, 2]}"))
        self.one = self.submit(self.file, "pipeline.cuts=", "pipeline.stages=1",
                               "pipeline.workers=", "pipeline.replicas=")

    def expect_as_one_process(self, document):
        self.assertEqual(len(document["loss"]), len(self.one["loss"]))
        for ours, theirs in zip(document["loss"], self.one["loss"]):
            self.assertEqual(ours["step"], theirs["step"])
            self.assertAlmostEqual(ours["value"], theirs["value"], delta=1e-5)
        self.assertEqual(document["test_accuracy"], self.one["test_accuracy"])

    def test_train_as_one_process_and_do_without_one_of_them(self):
        self.expect_as_one_process(self.submit(self.file))

        job = self.detach(self.file)
        self.await_step_after(30, job)
        self.kill("w3")

        self.expect_as_one_process(self.finished(job))
        events = self.events(job)
        self.has(events, "attempt 2 begins from step", "run 0 steps again",
                 "(3+3) on 2 workers", "w3: ", "one of 2 replicas of stage 1")
        self.assertNotIn("paused", events)


class RecoveryByTheClock(MeshCase):
    def test_a_worker_that_stands_still_below_the_lease_is_the_one_it_was(self):
        self.start(4)
        self.detach(self.write(JOB), "train.steps=100000")
        self.await_step_after(20)

        with stopped(self.pid_of_worker("w2")):
            self.assertTrue(eventually(lambda: any(
                each["name"] == "w2" and each["state"] == "suspect"
                for each in self.workers())))

        self.await_step_after(self.step())
        self.assertEqual(self.job()["attempt"], 1, self.events())
        self.stop()


class CommitPoints(ProcessCase):
    beside_others = True

    def test_a_coordinator_killed_at_any_commit_loses_and_doubles_no_job(self):
        kills = Settings.bin / "libkill_at_commit.so"
        if not kills.exists():
            self.skipTest("a sanitizer's build has no library to preload")
        count = self.folder / "count"
        self.enterContext(mock.patch.dict(os.environ, LD_PRELOAD=str(kills),
                                          KILL_AT_COMMIT=str(count)))
        mesh = self.enterContext(RestartingMesh(Settings.bin, 2, pause=0.05))
        file = self.folder / "job.yaml"
        file.write_text(JOB)

        sets = ("--set", "train.steps=20", "--set", "pipeline.stages=2")
        jobs = []

        def all_ended():
            listed = mesh.run("job", "list", "-o", "json")
            if listed.returncode == 0:
                jobs[:] = json.loads(listed.stdout)["jobs"]
            return listed.returncode == 0 and all(
                each["state"] not in ("queued", "running") for each in jobs)

        most = 100  # commits of one job, far more than there are
        for n in range(1, most):
            before = len(jobs)
            count.write_text(str(n))
            submitted = mesh.run("job", "submit", str(file), *sets, "--detach")
            self.assertTrue(eventually(all_ended), jobs)
            # Who is not answered does not know whether it was stored.
            self.assertIn(len(jobs) - before,
                          (1,) if submitted.returncode == 0 else (0, 1))
            with stopped(mesh.coordinator.pid()):
                self.assertEqual(
                    check_database(mesh.state / "coordinator", len(jobs)), "")
            if count.exists():  # the job ended before commit n
                break

        self.assertLess(n, most - 1, "the coordinator is killed for ever")
        self.assertGreater(n, 5, "the coordinator was not killed")
        self.assertEqual({each["state"] for each in jobs}, {"succeeded"})
        self.assertEqual(len({mesh.show(each["id"])["weights_sha256"]
                              for each in jobs}), 1)


if __name__ == "__main__":
    main()
