#!/usr/bin/env python3
"""A pipeline outlives the workers that it loses, and ends with the same bytes."""

import os
import signal

from mesh_case import MeshCase, eventually, main

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


if __name__ == "__main__":
    main()
