#!/usr/bin/env python3
"""Checkpoints of a pipeline: jobs go on from them elsewhere, to the same bytes."""

import hashlib
from pathlib import Path

from mesh_case import MeshCase, eventually, main

JOB = """
model: {name: lenet}
data: {name: synthetic, train_samples: 512, test_samples: 64}
train:
  {steps: 400, batch: 64, micro_batch: 16, evaluate_every: 0, checkpoint_every: 40,
   optimizer: {name: adamw}}
pipeline: {stages: 3}
"""


class Checkpoints(MeshCase):

    def setUp(self):
        super().setUp()
        self.start(3)

    def test_a_job_goes_on_from_a_checkpoint_on_other_stages_to_the_same_bytes(self):
        job = self.write(JOB)
        expected = self.submit(job, "pipeline.stages=1")["weights_sha256"]

        self.assertEqual(self.detach(job), "2")
        self.assertTrue(eventually(lambda: self.job("2")["checkpoints"], 60),
                        self.events("2"))
        exported = self.client("job", "export", "2", "-o",
                               str(self.folder / "now.safetensors"))
        self.stop("2")
        self.assertEqual(exported.returncode, 0, exported.stderr)
        step = exported.stderr.split("weights after step ")[1].split()[0]
        weights = Path(self.folder / "now.safetensors").read_bytes()
        self.assertEqual(
            hashlib.sha256(weights).hexdigest(),
            self.submit(job, f"train.steps={step}")["weights_sha256"])

        finished = self.client("job", "resume", "2", "--set", "pipeline.stages=2")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        resumed = self.job("4")
        self.assertEqual(resumed["weights_sha256"], expected, self.events("4"))
        self.assertEqual(resumed["stages"], 2)
        self.has(self.events("4"), "of job 2", "attempt 1 begins from step")


if __name__ == "__main__":
    main()
