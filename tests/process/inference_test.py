"""Inference jobs on real processes, of pictures too, and the bench of them."""

import os
import re

from mesh_case import ROOT, MeshCase, png
from mesh import tensors_of

DATA = ("data: {name: synthetic, shape: [1, 28, 28], classes: 10, "
        "train_samples: 64, test_samples: 50}\n")


class Inference(MeshCase):
    shared = 3

    def infer_file(self, model, more=""):
        """An inference job of this model on DATA, with `more` lines."""
        return (f"kind: infer\nmodel: {model}\n{DATA}"
                f"infer: {{micro_batch: 4}}\n{more}")

    def test_writes_the_predictions_of_trained_weights(self):
        trained = self.submit(f"model: {{name: lenet}}\n{DATA}train: {{steps: "
                              "3, batch: 16, micro_batch: 4}\n")

        infer = self.infer_file(f"{{name: lenet, weights: {self.export()}}}")
        one = self.submit(infer, "pipeline.stages=1")
        three = self.submit(infer, "pipeline.stages=3")

        self.assertEqual(one["kind"], "infer")
        self.assertEqual(one["test_accuracy"], trained["test_accuracy"])
        self.assertEqual(one["steps"], 13, "micro-batches")
        self.assertEqual(three["weights_sha256"], one["weights_sha256"])
        self.assertGreater(three["latency_seconds"]["p50"], 0)
        for worker in three["workers"]:
            self.assertEqual(worker["flow"]["samples"], 50, worker)
            self.assertGreater(worker["flow"]["compute"], 0)

        inspected = self.client("model", "inspect",
                                self.export(name="predictions.safetensors"))
        self.has(inspected.stdout, "classes", "[50, 10]")
        self.assertIn("predictions:", self.client("job", "show", "last").stdout)

    def test_gives_the_same_predictions_where_replicas_share_a_stage(self):
        """Stages of one and of two workers, unevenly shared; then fewer
        micro-batches than turns."""
        infer = self.infer_file(
            "{name: lenet}", "pipeline: {cuts: [3], workers: [w3, w1, w2], "
                             "replicas: [1, 2], shares: [1, 1, 3]}\n")
        one = self.submit(infer, "pipeline.cuts=", "pipeline.workers=",
                          "pipeline.replicas=", "pipeline.shares=",
                          "pipeline.stages=1")
        shared = self.submit(infer)

        for key in ("weights_sha256", "test_accuracy"):
            self.assertEqual(shared[key], one[key])
        self.assertEqual(shared["step"], 13)
        # Turns 2 1 2 2 and so on.
        self.assertEqual({worker["name"]: worker["flow"]["micro_batches"]
                          for worker in shared["workers"]},
                         {"w3": 13, "w1": 3, "w2": 10})

        self.submit(infer, "infer.samples=4")

    def test_gives_the_same_predictions_with_more_stages_than_workers(self):
        """A worker then runs several stages that do not follow each other."""
        infer = self.infer_file("{name: lenet}", "pipeline: {policy: equal}\n")
        self.good(self.client("node", "drain", "w3"))
        one = self.submit(infer, "pipeline.stages=1")
        five = self.submit(infer, "pipeline.stages=5")
        self.good(self.client("node", "undrain", "w3"))

        self.assertEqual(five["stages"], 5)
        self.assertEqual(len(five["workers"]), 2, five)
        for key in ("weights_sha256", "test_accuracy"):
            self.assertEqual(five[key], one[key])


class DeadStage(MeshCase):
    def test_goes_on_without_the_blocks_of_a_dead_stage_where_it_may(self):
        """The rows before are those of the whole model, the rows after those
        of a model without block 1, and the result says which are which."""
        self.start(2)
        # Nobody starts it again.
        middle = self.start_worker("w9", "--coordinator", self.address)
        self.await_idle(3)
        infer = ("kind: infer\nmodel: {name: vit, depth: 3, width: 32}\n"
                 "data: {name: synthetic, test_samples: 6000}\n"
                 "infer: {micro_batch: 4, tolerate: skip}\n"
                 "pipeline: {cuts: [3, 5], workers: [w1, w9, w2]}\n")
        job = self.detach(infer)
        self.await_step_after(40, job)
        middle.kill()

        document = self.finished(job)
        events = self.events(job)
        self.has(events, "without block 1")
        self.assertEqual(document["skipped_blocks"], [1], events)
        self.has(self.client("job", "show", job).stdout, "without blocks")
        rows, classes = self.result(job)
        since = rows.index((0, 1, 0))
        self.assertGreater(since, 40, events)
        self.assertEqual(set(rows[:since]), {(0, 0, 0)})
        self.assertEqual(set(rows[since:]), {(0, 1, 0)})

        sets = ["pipeline.cuts=", "pipeline.workers=", "pipeline.stages=1"]
        _, whole = self.result(str(self.submit(infer, *sets)["id"]))
        _, without = self.result(str(self.submit(
            infer + "faults: [{kind: skip-stage, block: 1}]\n", *sets)["id"]))
        self.assertEqual(classes, whole[:since] + without[since:])

    def result(self, job):
        """Its rows of skipped blocks, and its classes."""
        tensors = tensors_of(self.export(job))
        skipped = tensors["skipped"]
        return ([tuple(skipped[at:at + 3]) for at in range(0, len(skipped), 3)],
                tensors["classes"].tolist())


class ImageFolder(MeshCase):
    """Training and inference on real pictures, some of which are none."""
    light = True
    shared = 3

    JOB = """
name: pictures
model: {name: lenet}
data: {name: imagefolder, classes: 2, shape: [3, 24, 24],
       crop: random-resized, flip: 0.5}
train: {epochs: 2, batch: 10, micro_batch: 3}
pipeline: {stages: 2}
"""

    def begin(self, damaged):
        """Two classes of twelve, and a test split of five; the first `damaged`
        of each class are cut short."""
        self.pictures = self.folder / "pictures"
        for folder, count, cut in (("train/flat", 12, damaged),
                                   ("train/steep", 12, damaged),
                                   ("val/steep", 5, 0)):
            (self.pictures / folder).mkdir(parents=True)
            for i in range(count):
                content = png(40 + i, 30 + 2 * i,
                              lambda x, y: (4 * x, 5 * y, 3 * (x + y)))
                (self.pictures / folder / f"{i}.png").write_bytes(
                    content[:len(content) // 2] if i < cut else content)

    def train(self, *sets):
        return self.submit(self.JOB, f"data.path={self.pictures}", *sets)

    def test_a_corrupt_picture_is_named_in_the_log_and_the_job_goes_on(self):
        self.begin(damaged=1)

        one = self.train("data.workers=1")
        logs = self.client("job", "logs", "last").stdout
        events = self.events("last")
        three = self.train("data.workers=3")
        whole = self.train("pipeline.stages=1")

        self.assertEqual(one["step"], 6)
        self.assertEqual(one["evaluations"][-1]["samples"], 5)
        self.has(logs, "image skipped", "train/flat/0.png", "train/steep/0.png")
        self.assertNotIn("/1.png", logs)
        self.assertIn("could not read 2 samples, which were left out",
                      one["why"])
        self.assertIn("cannot read all samples", events)
        for same in (three, whole):
            self.assertEqual(same["weights_sha256"], one["weights_sha256"])

    def test_pictures_of_no_class_are_inferred_one_of_them_corrupt(self):
        self.begin(damaged=1)
        self.train("data.workers=1")
        weights = self.export()

        job = self.submit(self.JOB, "kind=infer", "infer.micro_batch=5",
                          f"data.path={self.pictures}/train/flat",
                          f"model.weights={weights}")
        out = self.export(name="predictions.safetensors")

        self.assertEqual(job["steps"], 3, "micro-batches")
        self.assertIn("could not read 1 sample, which was left out", job["why"])
        self.assertIsNone(job["test_accuracy"], "nobody knows")
        self.assertIn("[12, 2]", self.client("model", "inspect", out).stdout)
        tensors = tensors_of(out)
        classes = tensors["classes"].tolist()
        self.assertEqual(len(classes), 12)
        self.assertEqual(classes[0], -1, "flat/0.png cannot be read")
        self.assertEqual(classes.count(-1), 1)
        files = tensors["files"].tobytes().decode().splitlines()
        self.assertEqual(files, sorted(f"{i}.png" for i in range(12)))

    def test_predictions_carry_the_names_of_files_and_classes(self):
        self.begin(damaged=0)

        self.train("kind=infer", "infer.micro_batch=2")
        tensors = {name: values.tobytes() for name, values in tensors_of(
            self.export(name="predictions.safetensors")).items()}

        self.assertEqual(tensors["files"].decode(),
                         "".join(f"steep/{i}.png\n" for i in range(5)))
        self.assertEqual(tensors["class_names"], b"flat\nsteep\n")
        readme = (ROOT / "worker/data/README.md").read_text()
        snippet, = re.findall(r"```\n(names = .*?)```", readme, re.DOTALL)
        read = {"os": os, "tensors": tensors}
        exec(snippet, read)
        self.assertEqual(read["names"], [f"steep/{i}.png" for i in range(5)])
        self.assertEqual(read["classes"], ["flat", "steep"])

    def test_too_many_corrupt_pictures_fail_the_job(self):
        self.begin(damaged=2)

        self.ended(self.try_submit(self.JOB, f"data.path={self.pictures}"), 2,
                   "3 of 24 images cannot be read")


class Bench(MeshCase):
    shared = 2

    def test_compares_stages_with_one_worker_and_says_where_the_rest_goes(self):
        rows = self.ask("bench", "infer", "--model", "lenet", "--stages", "1,2",
                        "--policy", "optimal,equal", "--micro-batch", "8",
                        "--micro-batches", "40")["rows"]

        self.assertEqual(len(rows), 3, rows)
        self.assertEqual((rows[0]["stages"], rows[0]["speedup"]), (1, 1.0))
        self.assertAlmostEqual(rows[0]["bound"], 1, places=9)
        self.assertEqual(rows[2]["policy"], "equal")
        for row in rows:
            losses = row["losses"]
            lost = sum(losses[each] for each in
                       ("fill", "imbalance", "transfer", "slowdown",
                        "unexplained"))
            self.assertAlmostEqual(row["speedup"] / row["workers"] + lost, 1,
                                   delta=1e-6, msg=row)
            self.assertGreater(row["throughput"], 0)
            # Below 1 where the second worker measured itself as that much
            # slower.
            self.assertGreater(row["bound"], 0, row)
            for each in ("fill", "imbalance", "transfer"):
                self.assertGreaterEqual(losses[each], 0)
        # What ran for a bench is no one's job.
        self.assertEqual(self.ask("job", "list")["jobs"], [])

    def test_that_cannot_be_finished_is_not_begun(self):
        self.ended(self.client("bench", "train", "--model", "lenet", "--stages",
                               "2,4", "--schedule", "1f1b,interleaved-1f1b",
                               "--micro-batch", "4", "--micro-batches", "3",
                               "--steps", "2", "--no-profile", "--keep-jobs"), 2,
                   "nothing was run: 4 stages, optimal, interleaved-1f1b: ",
                   "a multiple of 2")
        self.assertEqual(self.ask("job", "list")["jobs"], [])
