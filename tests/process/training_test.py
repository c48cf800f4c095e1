"""A mesh of real processes trains, and its numbers do not depend on how."""

from pathlib import Path

from mesh_case import MeshCase

# Twelve steps; the fifth batch of each epoch is a short one.
LENET_JOB = """
name: small-lenet
model: {name: lenet}
data: {name: synthetic, train_samples: 300, test_samples: 100}
train: {steps: 12, batch: 64, micro_batch: 12,
        optimizer: {name: sgd, momentum: 0.9}, learning_rate: {base: 0.01}}
pipeline: {stages: 1, schedule: 1f1b}
"""
VIT_JOB = """
name: small-vit
model: {name: vit, depth: 2, width: 16, heads: 2, dropout: 0.1}
data: {name: synthetic, train_samples: 100, test_samples: 30}
train: {steps: 6, batch: 24, micro_batch: 7, clip_norm: 0.5,
        optimizer: {name: adamw, weight_decay: 0.01},
        learning_rate: {base: 0.003, schedule: cosine, warmup_steps: 2}}
pipeline: {stages: 1, schedule: 1f1b}
"""
PIPEDREAM_JOB = """
name: streamed-lenet
model: {name: lenet}
data: {name: synthetic, train_samples: 600, test_samples: 200}
train: {epochs: 4, batch: 60, micro_batch: 12,
        optimizer: {name: sgd, momentum: 0.5},
        learning_rate: {base: 0.01, schedule: cosine, warmup_steps: 20}}
pipeline: {stages: 4, schedule: pipedream}
"""


class Training(MeshCase):
    shared = 4

    def at_any_number_of_stages_in_every_synchronous_schedule(self, text):
        hashes, curves = set(), set()
        # Every one with every other: tests/nightly/jobs/variants.py.
        for stages, schedule in (
                (1, "1f1b"), (2, "gpipe"), (2, "interleaved-1f1b"),
                (3, "1f1b"), (3, "zero-bubble"), (4, "gpipe"),
                (4, "zero-bubble"), (4, "interleaved-1f1b")):
            job = self.submit(text, f"pipeline.stages={stages}",
                              f"pipeline.schedule={schedule}")
            self.assertEqual(job["step"], job["steps"])
            self.assertEqual(len(job["weights_sha256"]), 64)
            hashes.add(job["weights_sha256"])
            curves.add(str([each["value"] for each in job["loss"]]))

        self.assertEqual(len(hashes), 1)
        self.assertEqual(len(curves), 1)

    def test_lenet_ends_with_the_same_bytes(self):
        self.at_any_number_of_stages_in_every_synchronous_schedule(LENET_JOB)

    def test_a_vit_ends_with_the_same_bytes(self):
        self.at_any_number_of_stages_in_every_synchronous_schedule(VIT_JOB)

    def test_pipedream_learns_and_shows_how_stale_its_gradients_are(self):
        """One stage updates after every micro-batch too, and has nothing to be
        late with: four stages learn about as well."""
        one = self.submit(PIPEDREAM_JOB, "pipeline.stages=1")
        for vertical_sync in (False, True):
            job = self.submit(PIPEDREAM_JOB, "pipeline.vertical_sync="
                              f"{str(vertical_sync).lower()}")

            self.assertEqual(job["step"], 40)
            loss = [each["value"] for each in job["loss"]]
            self.assertEqual(len(loss), 40)
            self.assertLess(loss[39], 0.5 * loss[0])
            self.assertGreater(job["test_accuracy"], one["test_accuracy"] - 0.1)
            self.assertEqual(len(job["evaluations"]), 4)
            self.assertEqual(len(job["versions"]), 4, job)
            for stage, versions in enumerate(job["versions"]):
                ahead = 3 if vertical_sync else 3 - stage
                self.assertEqual(versions["updates"], 200)
                self.assertEqual(versions["versions"], ahead + 1)
                # A stream an epoch, each of 50 updates; it begins fresh.
                late = ahead * (ahead - 1) / 2 + (50 - ahead) * ahead
                self.assertAlmostEqual(versions["staleness"], late / 50,
                                       places=9)
            # A stage may have no weights.
            self.assertGreater(sum(versions["version_bytes"]
                                   for versions in job["versions"]), 0)
        self.assertIn("staleness", self.client("job", "show", "last").stdout)

    def test_a_codec_sends_fewer_bytes_and_trains_nearly_the_same(self):
        sent = 'paceline_worker_frame_bytes_total{direction="sent"'
        size, loss, hashes = {}, {}, set()
        for codec in ("fp32", "bf16", "fp16", "int8"):
            before = self.sum_of_metric(sent)
            job = self.submit(VIT_JOB, "pipeline.stages=2",
                              f"pipeline.codec={codec}")
            size[codec] = self.sum_of_metric(sent) - before
            loss[codec] = job["loss"][-1]["value"]
            hashes.add(job["weights_sha256"])
            error = self.sum_of_metric("paceline_worker_codec_error_ratio")
            self.assertEqual(error > 0, codec != "fp32", codec)
            self.assertLess(error, 0.05, codec)

        self.assertEqual(len(hashes), 4)
        # Labels are never made smaller, and int8 has its scales.
        self.assertLess(size["bf16"], 0.51 * size["fp32"])
        self.assertEqual(size["bf16"], size["fp16"])
        self.assertLess(size["int8"], 0.55 * size["bf16"])
        for codec, value in loss.items():
            self.assertAlmostEqual(value, loss["fp32"],
                                   delta=0.02 * loss["fp32"], msg=codec)

    def test_executes_itself_anew_for_another_cpu_capability(self):
        """Between jobs a worker becomes another process image under the same
        pid."""
        before = self.pid_of_worker("w2")
        low, alone = (self.submit(LENET_JOB, "cpu_capability=default",
                                  f"pipeline.stages={stages}")
                      for stages in (4, 1))

        self.assertEqual(low["cpu_capability"], "default")
        # Before the first attempt, which the end of a process would end.
        self.assertEqual(low["attempt"], 1)
        self.assertEqual(low["weights_sha256"], alone["weights_sha256"])
        self.assertEqual((low["threads"], len(low["loss"])), (1, 12))
        self.assertEqual(self.jobs()[0]["test_accuracy"],
                         alone["test_accuracy"])
        self.assertEqual(self.pid_of_worker("w2"), before)
        self.assertEqual(Path(f"/proc/{before}/comm").read_text(),
                         "paceline-worker\n")
