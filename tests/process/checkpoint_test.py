#!/usr/bin/env python3
"""Checkpoints of a pipeline: jobs go on from them elsewhere, to the same bytes."""

import json
import math
import os
import signal
from array import array
from pathlib import Path
from unittest import mock

from mesh_case import (ENDLESS, JOB, MeshCase, ProcessCase, eventually,
                       free_port, main, program, run, stopped)
from mesh import flip_a_byte  # mesh_case says where it is

JOB = JOB.replace("train:\n  {", "train:\n  {checkpoint_every: 40, ")


class Checkpoints(MeshCase):
    beside_others = True

    def setUp(self):
        super().setUp()
        self.disk = self.folder / "checkpoints"
        with mock.patch.dict(os.environ, PACELINE_COORDINATOR_CHECKPOINT_DIR=
                             str(self.disk)):
            self.start(3)

    def await_checkpoint(self, job):
        self.assertTrue(eventually(lambda: self.job(job)["checkpoints"]),
                        self.events(job))

    def files_of(self, job):
        return sorted((self.disk / job).glob("step-*[0-9]/layers.safetensors"))

    def test_a_job_goes_on_from_a_checkpoint_on_other_stages_to_the_same_bytes(self):
        job = self.write(JOB)
        self.assertEqual(self.detach(job, ENDLESS), "1")
        self.await_checkpoint("1")
        # Stops it.
        self.expect_undisturbed("1", job)
        steps = f"train.steps={self.step('1') + 30}"
        expected = self.submit(job, "pipeline.stages=1", steps)
        self.assertEqual(expected["id"], 3)

        other = self.client("job", "resume", "1", "--set", "model.name=mlp",
                            "--set", "pipeline.stages=2")
        self.assertEqual(other.returncode, 2, other.stderr)
        self.has(other.stderr, "the job's model has")

        finished = self.client("job", "resume", "1", "--set",
                               "pipeline.stages=2", "--set", steps)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        resumed = self.job("4")
        self.assertEqual(resumed["weights_sha256"], expected["weights_sha256"],
                         self.events("4"))
        self.assertEqual(resumed["stages"], 2)
        self.has(self.events("4"), "of job 1", "attempt 1 begins from step")

    def test_a_job_goes_on_from_its_checkpoint_when_all_workers_were_killed(self):
        job = self.write(JOB)
        self.assertEqual(self.detach(job, ENDLESS), "1")
        self.await_checkpoint("1")
        self.assertTrue(self.files_of("1"), list(self.disk.iterdir()))

        self.kill("w1", "w2", "w3")

        self.await_event("attempt 2 begins from step")
        self.expect_undisturbed("1", job)

    def test_a_job_that_diverges_ends_soon_and_keeps_what_was_good(self):
        """The learning rate of a resumed job ruins its weights."""
        job = self.write(JOB)
        self.submit(job)
        good = array("f", self.weights_of("1"))

        resumed = self.client(
            "job", "resume", "1", "--set", "train.learning_rate.base=1e18",
            "--set", "train.steps=100000", "--set", "train.checkpoint_every=1")

        self.assertEqual(resumed.returncode, 1, resumed.stderr)
        document = self.job("2")
        self.assertEqual(document["state"], "failed", self.events("2"))
        # From step 160 on: a few that ruin it, and twenty that are skipped.
        self.assertLess(document["step"], 160 + 60, self.events("2"))
        self.assertLessEqual(document["skipped_steps"], 21)
        self.has(document["why"], "diverged", "train.learning_rate.base",
                 "paceline job resume 2")
        kept = array("f", self.weights_of("2"))
        self.assertEqual(len(kept), len(good))
        self.assertTrue(all(math.isfinite(value) for value in kept))

    def weights_of(self, job):
        """The bytes of all parameters, side by side."""
        content = Path(self.export(job, f"{job}.safetensors")).read_bytes()
        return content[8 + int.from_bytes(content[:8], "little"):]

    def test_one_that_the_disk_changed_is_noticed_and_not_gone_on_from(self):
        job = self.write(JOB)
        # None is on its way when the first one is there.
        self.assertEqual(
            self.detach(job, ENDLESS, "train.checkpoint_every=500"), "1")
        workers = [each["pid"] for each in self.workers()]
        self.await_checkpoint("1")

        # The coordinator finishes no other one meanwhile.
        with stopped(self.pid_of_coordinator()):
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            for file in self.files_of("1"):
                flip_a_byte(file)

        # An attempt may begin from it before its damage is seen.
        self.assertTrue(eventually(lambda: self.events().count(
            "begins from the beginning") == 2), self.events())
        self.has(self.events(), "is not the one in its manifest")
        self.expect_undisturbed("1", job)


class CheckpointFolder(ProcessCase):
    beside_others = True

    def coordinator(self, name, *options):
        address = f"127.0.0.1:{free_port()}"
        process = self.start_process(
            program("paceline-coordinator"), "--state", self.folder / name,
            "--checkpoint-dir", self.folder / "checkpoints", "--listen",
            address, "--http", "127.0.0.1:0", *options)
        self.assertTrue(eventually(
            lambda: process.poll() is not None or
            "coordinator is ready" in process.errors.read_text()))
        process.address = address
        return process

    def test_it_belongs_to_one_state_and_its_files_stay(self):
        first = self.coordinator("first")
        self.assertIsNone(first.poll(), first.errors.read_text())
        kept = self.folder / "checkpoints" / "7" / "step-3" / "manifest.json"
        kept.parent.mkdir(parents=True)
        kept.write_text("{}")

        beside = self.coordinator("second", "--adopt-checkpoints")
        self.assertEqual(beside.poll(), 1, beside.errors.read_text())
        self.has(beside.errors.read_text(),
                 "another paceline-coordinator runs on")
        first.terminate()
        self.assertEqual(first.wait(30), 0)

        second = self.coordinator("second")
        self.assertEqual(second.poll(), 78, second.errors.read_text())
        self.has(second.errors.read_text(), str(self.folder / "first"),
                 str(self.folder / "second"), "--adopt-checkpoints")

        third = self.coordinator("second", "--adopt-checkpoints")
        self.assertIsNone(third.poll(), third.errors.read_text())
        job = self.folder / "job.yaml"
        job.write_text(JOB)
        submitted = run(program("paceline"), "--coordinator", third.address,
                        "job", "submit", job, "--detach", "-o", "json")
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        self.assertEqual(json.loads(submitted.stdout)["id"], 8)
        self.assertTrue(kept.exists())


if __name__ == "__main__":
    main()
