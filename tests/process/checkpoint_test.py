"""Checkpoints of a pipeline: jobs go on from them elsewhere, to the same bytes."""

import math

from mesh_case import (ANY_PORT, ENDLESS, REFUSED, SMALL, DaemonsCase,
                       MeshCase, program)
from mesh import tensors_of

JOB = SMALL.replace("train:\n  {", "train:\n  {checkpoint_every: 40, ")


class Checkpoints(MeshCase):
    light = True
    shared = 3

    def test_a_job_goes_on_from_a_checkpoint_on_other_stages_to_the_same_bytes(self):
        number = self.detach(JOB, ENDLESS)
        self.await_checkpoint()
        # Stops it.
        self.expect_undisturbed(JOB)
        steps = f"train.steps={self.step() + 30}"
        expected = self.submit(JOB, "pipeline.stages=1", steps)

        self.ended(self.resume(number, "model.name=lenet", "pipeline.stages=2"),
                   2, "the job's model has")

        self.good(self.resume(number, "pipeline.stages=2", steps))
        resumed, story = self.job("last"), self.events("last")
        self.assertEqual(resumed["weights_sha256"], expected["weights_sha256"],
                         story)
        self.assertEqual(resumed["stages"], 2)
        self.has(story, f"of job {number}", "attempt 1 begins from step")

    def test_a_job_goes_on_from_its_checkpoint_when_all_workers_were_killed(self):
        self.detach(JOB, ENDLESS)
        self.await_checkpoint()

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


class CheckpointFolder(DaemonsCase):
    light = True

    def coordinator_of(self, state, *options):
        return self.start_process(
            program("paceline-coordinator"), "--state", self.folder / state,
            "--checkpoint-dir", self.folder / "checkpoints", "--listen",
            self.address, "--http", ANY_PORT, *options)

    def test_it_belongs_to_one_state_and_numbers_with_files_stay_taken(self):
        """The database was moved away, or the state is another one."""
        for state, kept, number in (("first", "checkpoints/7/step-3", "8"),
                                    ("second", "second/jobs/11", "12")):
            file = self.folder / kept / "manifest.json"
            file.parent.mkdir(parents=True)
            file.write_text("{}")
            if state == "second":
                self.ends(self.coordinator_of(state), REFUSED,
                          "--adopt-checkpoints")
            coordinator = self.coordinator_of(state, "--adopt-checkpoints")
            self.await_words(coordinator, "coordinator is ready")
            self.assertEqual(self.detach(SMALL), number)
            self.assertTrue(file.exists())
            coordinator.terminate()
            self.ends(coordinator, 0)
