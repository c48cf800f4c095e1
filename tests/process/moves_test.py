"""Pipelines other than those of recovery_test.py go on elsewhere: off a worker
that is drained, inference, and one without flushes."""

import math
import os
import re
import signal

from mesh_case import ENDLESS, SMALL, MeshCase


class Moves(MeshCase):
    light = True
    shared = 3

    def test_a_drained_worker_hands_its_stage_over_and_may_be_ended(self):
        number = self.begin(SMALL)
        replayed = self.replayed()

        said = self.client("node", "drain", "w2").stdout
        self.has(said, "w2 is draining", f"its part in job {number}")
        self.soon(lambda: self.state_of("w2") == "drained")
        self.kill("w2")

        self.await_event("attempt 2 begins from step")
        self.expect_undisturbed(SMALL, "pipeline.stages=2")
        # Nobody missed it, and no step was run twice.
        self.assertEqual(self.job()["attempt"], 2, self.events())
        self.assertEqual(self.replayed(), replayed)
        self.soon(lambda: self.client("node", "undrain", "w2").returncode == 0)

    def replayed(self):
        return self.sum_of_metric("paceline_coordinator_steps_replayed_total",
                                  [self.http])

    def test_a_worker_that_is_asked_to_end_hands_its_stage_over_first(self):
        self.begin(SMALL)

        os.kill(self.pid_of_worker("w2"), signal.SIGTERM)

        self.await_event("attempt 2 begins from step")
        self.soon(lambda: "worker w2 is stopped" in self.log("coordinator"))
        self.expect_undisturbed(SMALL)
        self.has(self.events(), "worker w2 gets no new work")
        self.assertNotIn("lost", self.events())

    def kill_after(self, step, stage):
        """The worker that holds the stage."""
        self.await_step_after(step)
        self.assertEqual(self.job()["state"], "running", "it was too fast")
        self.kill(self.holder(stage))

    def test_inference_goes_on_after_the_predictions_that_are_stored(self):
        infer = """
kind: infer
model: {name: mlp, hidden: [16, 16]}
data: {name: synthetic, test_samples: 40000}
infer: {micro_batch: 4}
pipeline: {stages: 3}
"""
        expected = self.submit(infer, "pipeline.stages=1")
        self.detach(infer)
        self.kill_after(100, stage=1)

        document = self.finished()

        events = self.events()
        for key in ("weights_sha256", "test_accuracy", "steps", "step"):
            self.assertEqual(document[key], expected[key], events)
        base = int(events.split("attempt 2 begins from step ")[1].split()[0])
        self.assertGreater(base, 0, events)

    def test_a_stream_goes_on_from_a_batch_end(self):
        self.detach(SMALL, "pipeline.schedule=pipedream", "pipeline.stages=2",
                    ENDLESS)
        self.kill_after(40, stage=1)
        self.await_event("attempt 2 begins from step")
        self.await_more_steps(20)
        self.stop()

        events = self.events()
        curve = self.job()["loss"]
        # What the worker had not told of when it died is named.
        lost = re.search(r"records of steps (\d+) to (\d+) are missing", events)
        missing = range(int(lost[1]), int(lost[2]) + 1) if lost else ()
        self.assertEqual([each["step"] for each in curve],
                         [step for step in range(1, curve[-1]["step"] + 1)
                          if step not in missing])
        self.assertTrue(all(math.isfinite(each["value"]) for each in curve))
