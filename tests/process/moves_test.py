#!/usr/bin/env python3
"""A pipeline moves on purpose: off a worker that is drained."""

import os
import signal

from mesh_case import MeshCase, eventually, main

JOB = """
model: {name: lenet}
data: {name: synthetic, train_samples: 512, test_samples: 64}
train:
  {steps: 400, batch: 64, micro_batch: 16, evaluate_every: 100,
   optimizer: {name: adamw}}
pipeline: {stages: 3}
"""


class Moves(MeshCase):

    def setUp(self):
        super().setUp()
        self.start(3)

    def state_of(self, worker):
        return {each["name"]: each["state"] for each in self.workers()}[worker]

    def test_a_drained_worker_hands_its_stage_over_and_may_be_ended(self):
        job = self.write(JOB)
        expected = self.submit(job)["weights_sha256"]
        self.assertEqual(self.detach(job), "2")
        self.await_step_after(60, "2")

        said = self.client("node", "drain", "w2").stdout
        self.has(said, "w2 is draining", "its part in job 2 first")
        self.assertTrue(eventually(lambda: self.state_of("w2") == "drained"),
                        self.events("2"))
        self.assertEqual(self.job("2")["state"], "running")
        os.kill(self.pid_of_worker("w2"), signal.SIGKILL)
        self.assertTrue(eventually(
            lambda: self.job("2")["state"] != "running", 120), self.events("2"))

        document = self.job("2")
        events = self.events("2")
        self.assertEqual(document["state"], "succeeded", events)
        self.assertEqual(document["weights_sha256"], expected, events)
        self.has(events, "attempt 2 begins from step")
        # Nobody missed it, and no step was run twice: both jobs have the last
        # stage on a worker that counts 400 of each.
        self.assertEqual(document["attempt"], 2, events)
        steps = [self.sum_of_metric("paceline_worker_steps_total", [target])
                 for target in self.discovered_workers()]
        self.assertEqual(max(steps), 800, steps)

    def discovered_workers(self):
        return [each["http_address"] for each in self.workers()
                if each["name"] != "w2"]


if __name__ == "__main__":
    main()
