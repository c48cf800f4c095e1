#!/usr/bin/env python3
"""A pipeline outlives the workers that it loses, and ends with the same bytes."""

import os
import signal

from mesh_case import MeshCase, eventually, main, stopped

JOB = """
model: {name: lenet}
data: {name: synthetic, train_samples: 512, test_samples: 64}
train:
  {steps: 400, batch: 64, micro_batch: 16, evaluate_every: 100,
   optimizer: {name: adamw}}
pipeline: {stages: 4}
"""


class Recovery(MeshCase):

    def setUp(self):
        super().setUp()
        self.start(4)

    def finished(self, job):
        self.assertTrue(eventually(
            lambda: self.job(job)["state"] not in ("queued", "running"), 120),
            self.client("job", "events", job).stdout)
        document = self.job(job)
        self.assertEqual(document["state"], "succeeded",
                         self.client("job", "events", job).stdout)
        return document

    def test_a_killed_worker_costs_neither_the_job_nor_a_byte(self):
        job = self.write(JOB)
        expected = self.submit(job)["weights_sha256"]

        for number, victim in enumerate(("w3", "w1"), 2):
            number = str(number)
            self.assertEqual(self.detach(job), number)
            self.await_step_after(60, number)
            os.kill(self.pid_of_worker(victim), signal.SIGKILL)

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
        self.await_step_after(60, "2")

        os.kill(self.pid_of_coordinator(), signal.SIGKILL)

        self.assertEqual(client.wait(120), 0, client.errors.read_text())
        document = self.job("2")
        self.assertEqual(document["weights_sha256"], expected)
        self.assertEqual(document["attempt"], 1, self.events("2"))

    def test_a_worker_that_stands_still_below_the_lease_is_the_one_it_was(self):
        self.detach(self.write(JOB), "train.steps=100000")
        self.await_step_after(20)

        with stopped(self.pid_of_worker("w2")):
            self.assertTrue(eventually(lambda: any(
                worker["state"] == "suspect" for worker in self.workers())))

        self.await_step_after(self.step())
        self.assertEqual(self.job()["attempt"], 1, self.events())
        self.stop()


if __name__ == "__main__":
    main()
