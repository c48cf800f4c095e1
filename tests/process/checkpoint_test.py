"""Checkpoints of a pipeline: jobs go on from them elsewhere, to the same bytes."""

import math
import os
import signal
import tempfile
from pathlib import Path
from unittest import mock

from mesh_case import (ANY_PORT, ENDLESS, JOB, REFUSED, SMALL, DaemonsCase,
                       MeshCase, program, stopped)
from mesh import flip_a_byte, tensors_of

JOB = JOB.replace("train:\n  {", "train:\n  {checkpoint_every: 40, ")


class OwnDisk(MeshCase):
    """The coordinator's checkpoints are in a folder that tests look into."""

    @classmethod
    def setUpClass(cls):
        cls.disk = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        with mock.patch.dict(os.environ, PACELINE_COORDINATOR_CHECKPOINT_DIR=
                             str(cls.disk)):
            super().setUpClass()

    def files_of(self, job):
        return sorted((self.disk / job).glob("step-*[0-9]/layers.safetensors"))


class Checkpoints(OwnDisk):
    shared = 3

    def test_a_job_goes_on_from_a_checkpoint_on_other_stages_to_the_same_bytes(self):
        number = self.detach(JOB, ENDLESS)
        self.await_checkpoint()
        # Stops it.
        self.expect_undisturbed(JOB)
        steps = f"train.steps={self.step() + 30}"
        expected = self.submit(JOB, "pipeline.stages=1", steps)

        self.ended(self.resume(number, "model.name=mlp", "pipeline.stages=2"),
                   2, "the job's model has")

        self.good(self.resume(number, "pipeline.stages=2", steps))
        resumed, story = self.job("last"), self.events("last")
        self.assertEqual(resumed["weights_sha256"], expected["weights_sha256"],
                         story)
        self.assertEqual(resumed["stages"], 2)
        self.has(story, f"of job {number}", "attempt 1 begins from step")

    def test_a_job_goes_on_from_its_checkpoint_when_all_workers_were_killed(self):
        number = self.detach(JOB, ENDLESS)
        self.await_checkpoint()
        self.assertTrue(self.files_of(number), list(self.disk.iterdir()))

        self.kill("w1", "w2", "w3")

        self.await_event("waits for")
        self.await_event("attempt 2 begins from step")
        self.expect_undisturbed(JOB)

    def test_a_job_that_diverges_ends_soon_and_keeps_what_was_good(self):
        """The learning rate of a resumed job ruins its weights."""
        number = str(self.submit(JOB)["id"])
        good = self.weights_of(number)

        self.ended(self.resume(number, "train.learning_rate.base=1e18",
                               "train.steps=100000", "train.checkpoint_every=1"),
                   1)
        document, story = self.job("last"), self.events("last")
        self.assertEqual(document["state"], "failed", story)
        # From step 160 on: a few that ruin it, and twenty that are skipped.
        self.assertLess(document["step"], 160 + 60, story)
        self.assertLessEqual(document["skipped_steps"], 21)
        self.has(document["why"], "diverged", "train.learning_rate.base",
                 f"paceline job resume {document['id']}")
        kept = self.weights_of("last")
        self.assertEqual(len(kept), len(good))
        self.assertTrue(all(math.isfinite(value) for value in kept))

    def weights_of(self, job):
        """All parameters, side by side."""
        return [value for tensor in tensors_of(self.export(job)).values()
                for value in tensor]


class DamagedCheckpoint(OwnDisk):
    light = True
    shared = 3

    def test_one_that_the_disk_changed_is_noticed_and_not_gone_on_from(self):
        # None is on its way when the first one is there.
        number = self.detach(SMALL, ENDLESS, "train.checkpoint_every=800")
        workers = [each["pid"] for each in self.workers()]
        self.await_checkpoint()

        # The coordinator finishes no other one meanwhile.
        with stopped(self.pid_of_coordinator()):
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            for file in self.files_of(number):
                flip_a_byte(file)

        # An attempt may begin from it before its damage is seen.
        self.soon(lambda: self.events().count("begins from the beginning") == 2)
        self.has(self.events(), "is not the one in its manifest")
        self.expect_undisturbed(SMALL)


class CheckpointFolder(DaemonsCase):
    light = True

    def coordinator_of(self, state, *options):
        return self.start_process(
            program("paceline-coordinator"), "--state", self.folder / state,
            "--checkpoint-dir", self.folder / "checkpoints", "--listen",
            self.address, "--http", ANY_PORT, *options)

    def test_it_belongs_to_one_state_and_its_files_stay(self):
        first = self.coordinator_of("first")
        self.await_words(first, "coordinator is ready")
        kept = self.folder / "checkpoints" / "7" / "step-3" / "manifest.json"
        kept.parent.mkdir(parents=True)
        kept.write_text("{}")

        here, self.address = self.address, ANY_PORT
        self.ends(self.coordinator_of("second", "--adopt-checkpoints"), 1,
                  "another paceline-coordinator runs on")
        first.terminate()
        self.ends(first, 0)
        self.address = here

        self.ends(self.coordinator_of("second"), REFUSED,
                  str(self.folder / "first"), str(self.folder / "second"),
                  "--adopt-checkpoints")

        self.await_words(self.coordinator_of("second", "--adopt-checkpoints"),
                         "coordinator is ready")
        self.assertEqual(self.detach(SMALL), "8")
        self.assertTrue(kept.exists())
