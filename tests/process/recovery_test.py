"""A pipeline outlives the workers that it loses, and ends with the same bytes."""

import json
import os
from unittest import mock

from mesh_case import (ENDLESS, JOB, SMALL, STOPPED, MeshCase, ProcessCase,
                       Settings, stopped)
from kills.coordinator import check_database
from mesh import RestartingMesh

FOUR = SMALL.replace("16, 16", "16, 16, 16").replace("stages: 3", "stages: 4")


class Recovery(MeshCase):
    """Each test kills other workers: `up` waits longer after each death."""
    light = True
    shared = 4

    def recovers(self, strike):
        """The job goes on from a step, and all workers come back."""
        attempt = self.job()["attempt"]
        strike()
        self.await_event(f"attempt {attempt + 1} begins from step")
        self.await_more_steps()
        self.soon(lambda: {each["state"] for each in self.workers()} <=
                  {"idle", "busy"}, self.workers)

    def test_workers_that_die_or_stand_still_cost_neither_the_job_nor_a_byte(
            self):
        self.begin(FOUR)

        for victims in (("w3",), ("w1",), ("w2", "w4")):
            self.recovers(lambda names=victims: self.kill(*names))
            self.has(self.events(), *victims)

        def one_while_another_is_recovered_from():
            attempt = self.job()["attempt"]
            self.kill("w3")
            self.await_event(f"attempt {attempt + 1} begins")
            self.kill("w4")
            self.await_event(f"attempt {attempt + 2} begins from step")
        self.recovers(one_while_another_is_recovered_from)

        def one_stands_still_beyond_its_lease():
            attempt = self.job()["attempt"]
            with stopped(self.pid_of_worker(self.holder(1))):
                self.await_event(f"attempt {attempt + 1} begins from step")
        self.recovers(one_stands_still_beyond_its_lease)

        self.expect_undisturbed(FOUR)

    def test_a_job_pauses_while_its_data_differ_and_no_longer(self):
        """The file of the same name is another one when the first stage
        moves; those that have it open still read the one before."""
        words = "the line closes up. " * 400
        text = self.write(words, "text.txt")
        self.detach(f"""
model: {{name: gpt, depth: 2, width: 16, heads: 2}}
data: {{name: text, path: {text}, block: 16}}
train: {{steps: 1000000, batch: 8, micro_batch: 2,
  learning_rate: {{base: 1.0e-6}}}}
pipeline: {{stages: 3}}
""")
        self.await_step_after(20)
        first = self.holder(0)

        os.replace(self.write("a gap opens up, now. " * 400, "other.txt"), text)
        self.kill(first)

        # The killed one comes back, and differs too.
        self.await_event("holds no first stage from now on", count=4)
        self.has(self.events(), f"data.path {text} has fingerprint",
                 "put the same on every worker")
        self.soon(lambda: self.job()["phase"] == "paused")
        before = self.step()

        os.replace(self.write(words, "again.txt"), text)

        self.await_step_after(before + 1)
        self.has(self.events(), "may hold stages again")
        self.stop()

    def test_a_coordinator_killed_in_training_costs_no_step(self):
        before = len(self.jobs())
        client = self.background("job", "submit", self.write(FOUR), "--set",
                                 ENDLESS, "-o", "json")
        self.soon(lambda: len(self.jobs()) > before)
        self.number = str(self.jobs()[0]["id"])
        self.await_step_after(20)

        self.kill_coordinator()

        self.expect_undisturbed(FOUR)
        self.ends(client, STOPPED)
        document = self.job()
        steps = [each["step"] for each in document["loss"]]
        self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)))
        self.assertEqual(document["attempt"], 1, self.events())


class Replicas(MeshCase):
    """Stage 0 on w1, stage 1 on w2 and w3."""

    JOB = JOB.replace(
        # Without kinks, at which sums that round otherwise would part.
        "{name: lenet}", "{name: vit, depth: 2, width: 16, heads: 2, patch: 7}"
    ).replace("stages: 3",
              "cuts: [3], workers: [w1, w2, w3], replicas: [1, 2]")

    def expect_as_one_process(self, document):
        """As far as it got."""
        one = self.submit(self.JOB, "pipeline.cuts=", "pipeline.stages=1",
                          "pipeline.workers=", "pipeline.replicas=",
                          f"train.steps={document['step']}")
        expected = {each["step"]: each["value"] for each in one["loss"]}
        self.assertGreater(len(document["loss"]), 50)
        for ours in document["loss"]:
            self.assertAlmostEqual(ours["value"], expected[ours["step"]],
                                   delta=1e-5)
        return one

    def test_train_as_one_process_and_do_without_one_of_them(self):
        self.start(3)
        whole = self.submit(self.JOB)
        one = self.expect_as_one_process(whole)
        self.assertEqual(whole["test_accuracy"], one["test_accuracy"])

        job = self.begin(self.JOB, step=30)
        self.kill("w3")
        self.await_event("attempt 2 begins")
        self.await_more_steps(20)
        self.stop()

        self.expect_as_one_process(self.job(job))
        events = self.events(job)
        self.has(events, "attempt 2 begins from step", "run 0 steps again",
                 "(3+3) on 2 workers", "w3: ", "one of 2 replicas of stage 1")
        self.assertNotIn("paused", events)


class CommitPoints(ProcessCase):
    light = True

    def test_a_coordinator_killed_at_any_commit_loses_and_doubles_no_job(self):
        kills = Settings.bin / "libkill_at_commit.so"
        if not kills.exists():
            self.skipTest("a sanitizer's build has no library to preload")
        count = self.folder / "count"
        self.enterContext(mock.patch.dict(os.environ, LD_PRELOAD=str(kills),
                                          KILL_AT_COMMIT=str(count)))
        mesh = self.enterContext(RestartingMesh(Settings.programs, 2, pause=0.05))
        file = self.write(SMALL)
        sets = ("--set", "train.steps=5", "--set", "pipeline.stages=2")
        jobs = []

        def all_ended():
            listed = mesh.run("job", "list", "-o", "json")
            if listed.returncode == 0:
                jobs[:] = json.loads(listed.stdout)["jobs"]
            return listed.returncode == 0 and all(
                each["state"] not in ("queued", "running") for each in jobs)

        def is_whole():
            try:
                with stopped(mesh.coordinator.pid()):
                    self.assertEqual(check_database(
                        mesh.state / "coordinator", len(jobs)), "")
            except (ProcessLookupError, FileNotFoundError):  # just killed
                return False
            return True

        most = 100  # commits of one job, far more than there are
        for n in range(1, most):
            before = len(jobs)
            count.write_text(str(n))
            submitted = mesh.run("job", "submit", file, *sets, "--detach")
            self.soon(all_ended, jobs)
            # Who is not answered does not know whether it was stored.
            self.assertIn(len(jobs) - before,
                          (1,) if submitted.returncode == 0 else (0, 1))
            self.soon(is_whole)
            if count.exists():  # the job ended before commit n
                break

        self.assertLess(n, most - 1, "the coordinator is killed for ever")
        self.assertGreater(n, 5, "the coordinator was not killed")
        self.assertEqual({each["state"] for each in jobs}, {"succeeded"})
        self.assertEqual(len({mesh.show(each["id"])["weights_sha256"]
                              for each in jobs}), 1)
