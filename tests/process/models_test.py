"""Models of every kind, somebody's own script too, and their weights, which
leave a mesh as a file that the client itself can read and judge."""

import os
import signal
import time

from mesh_case import ROOT, MeshCase, ProcessCase, program, run


def script_job(name):
    return (f"model: {{name: script, file: {ROOT}/tests/data/script/{name}}}\n"
            "data: {name: synthetic, shape: [2, 4, 4], classes: 3, "
            "train_samples: 64, test_samples: 32}\n"
            "train: {steps: 4, batch: 16, micro_batch: 4}\n")


PICTURES = ("{name: synthetic, shape: [3, 32, 32], classes: 4, "
            "train_samples: 24, test_samples: 4}")
PHRASES = ("{name: synthetic-labels, block: 12, vocabulary: 40, classes: 4, "
           "train_samples: 24, test_samples: 4}")


class Models(MeshCase):
    shared = 4

    def same_bytes_on(self, file, *stages):
        """Trains on so many stages each; the first job."""
        jobs = [self.submit(file, f"pipeline.stages={count}")
                for count in stages]
        for count, job in zip(stages, jobs):
            self.assertEqual(job["stages"], count)
            self.assertEqual(job["weights_sha256"], jobs[0]["weights_sha256"],
                             job)
        return jobs[0]

    def test_a_script_trains_with_the_same_bytes_on_any_number_of_stages(self):
        self.needs_torch()
        one = self.same_bytes_on(script_job("scripted.pt"), 1, 4)

        self.assertIsNotNone(one["test_accuracy"])

    def test_a_script_infers_with_the_weights_that_it_was_trained_to(self):
        self.needs_torch()
        file = script_job("scripted.pt")
        trained = self.submit(file)
        weights = self.export()

        def infer(stages, source):
            return self.submit(file, "kind=infer", f"model.weights={source}",
                               f"pipeline.stages={stages}")
        one, four, untrained = infer(1, weights), infer(4, weights), infer(1, "")

        self.assertEqual(one["test_accuracy"], trained["test_accuracy"])
        # The predictions.
        self.assertEqual(one["weights_sha256"], four["weights_sha256"])
        self.assertNotEqual(one["weights_sha256"], untrained["weights_sha256"])

    def test_a_script_that_cannot_be_used_is_a_usage_error_that_says_why(self):
        self.needs_torch()
        for name, why in (("traced.pt", "it was traced"),
                          ("nowhere.pt", "nowhere.pt: No such file or "
                           "directory on w1")):
            self.ended(self.try_submit(script_job(name)), 2, why)

    def test_a_gnmt_ends_with_the_same_bytes_on_any_number_of_stages(self):
        """Over a wire between processes, several tensors both ways."""
        job = self.write("""
model: {name: gnmt, width: 8}
data: {name: synthetic-pairs, block: 6, train_samples: 24, test_samples: 10}
train: {steps: 3, batch: 8, micro_batch: 2}
""")

        one = self.same_bytes_on(job, 1, 4)
        weights = self.export()
        coded = self.submit(job, "pipeline.stages=4", "pipeline.codec=bf16")
        infer = self.submit(job, "kind=infer", f"model.weights={weights}",
                            "pipeline.stages=3")

        self.assertNotEqual(one["weights_sha256"], coded["weights_sha256"])
        self.assertEqual(infer["test_accuracy"], one["test_accuracy"])

    def test_a_gnmt_is_profiled_and_planned(self):
        sizes = ("--batch", "2", "--model", "gnmt")

        measured = self.ask("profile", "--all", *sizes)
        planned = self.ask("plan", "--stages", "2", "--no-replicas", *sizes)

        self.assertEqual(len(measured["profiles"][0]["layers"]), 8, measured)
        self.assertEqual(len(planned["stages"]), 2, planned)
        self.assertIn("measured on", planned["source"])

    def test_other_models_end_with_the_same_bytes(self):
        """Those above cross a wire as well."""
        labels = self.write("0\tin the bunch, out of the wind\n1\tpull\n" * 20,
                            "labels.txt")
        text = self.write("the line closes up. " * 200, "text.txt")
        for model, data in (("mlp, hidden: [16, 12, 8]", PICTURES),
                            ("resnet18, width: 4", PICTURES),
                            ("resnet50, width: 4", PICTURES),
                            ("vgg11, width: 4", PICTURES),
                            ("bert, depth: 2, width: 16, heads: 2", PHRASES),
                            ("roberta, depth: 2, width: 16, heads: 2",
                             f"{{name: text-labels, path: {labels}, block: 12}}"),
                            ("gpt, depth: 2, width: 16, heads: 2",
                             f"{{name: text, path: {text}, block: 16}}")):
            with self.subTest(model):
                one = self.same_bytes_on(f"""
model: {{name: {model}}}
data: {data}
train: {{steps: 2, batch: 8, micro_batch: 2, optimizer: {{name: adamw}}}}
""", 1, 2, 4)
                self.assertIsNotNone(one["test_accuracy"])

    def test_weights_are_pruned_by_steps_on_the_mesh_and_learn_from_the_whole_model(
            self):
        job = self.write("""
model: {name: vit, depth: 2, width: 16, heads: 2}
data: {name: synthetic, train_samples: 64, test_samples: 8}
train: {steps: 2, batch: 16, micro_batch: 4, optimizer: {name: adamw}}
pipeline: {stages: 2}
""")
        self.submit(job)
        whole = self.export()
        pruned = str(self.folder / "pruned.safetensors")
        before = self.ask("job", "list")

        pruning = self.client("model", "prune", whole, "-f", job, "-o", pruned,
                              "--target-macs", "0.6", "--score", "taylor",
                              "--batches", "2")
        tuned = self.submit(job, f"model.weights={pruned}",
                            f"train.distill.weights={whole}",
                            "pipeline.stages=1")
        again = self.submit(job, f"model.weights={self.export(name='t.safetensors')}",
                            "pipeline.stages=1")
        group = self.submit(job, f"model.weights={pruned}",
                            f"train.distill.weights={whole}",
                            "pipeline.stages=1", "aggregation.mode=rolling")
        too_many = self.try_submit(job, f"train.distill.weights={whole}")

        self.ended(pruning, 0, "take a step each")
        jobs = {each["id"] for each in self.ask("job", "list")["jobs"]}
        self.assertEqual(jobs, {each["id"] for each in before["jobs"]}
                         | {tuned["id"], again["id"], group["id"]})
        self.ended(too_many, 2, "train.distill.weights")


class EndlessScript(MeshCase):
    def test_without_an_end_costs_neither_the_timeout_nor_the_worker(self):
        self.needs_torch()
        self.start(1)
        stuck = self.pid_of_worker("w1")

        begin = time.monotonic()
        submitted = self.try_submit(script_job("endless.pt"),
                                    flags=("--timeout", "2s"))

        self.assertLess(time.monotonic() - begin, 60)
        self.ended(submitted, 124, "gave up after 2s (--timeout)")
        self.assertEqual(self.workers()[0]["state"], "measuring")

        # `paceline up` starts it again.
        os.kill(stuck, signal.SIGTERM)
        self.soon(lambda: self.workers()[0]["pid"] not in (0, stuck),
                  lambda: self.log("w1"))
        self.assertIn("what it computes does not end", self.log("w1"))


class WeightsFiles(ProcessCase):
    def test_that_are_cut_short_or_missing_are_errors_with_their_exit_codes(
            self):
        file = self.folder / "w.safetensors"
        file.write_bytes(b"\x40\0\0\0\0\0\0\0{")
        for path, code, why, *more in (
                (file, 2, "cut short: a header of 64 bytes"),
                (f"{file}x.safetensors", 3, "No such file"),
                (self.folder, 2, "no regular file"),
                (file, 2, "", "--set", "model.depth=2")):
            finished = run(program("paceline"), "model", "inspect", path, *more)

            self.assertEqual(finished.returncode, code, path)
            self.assertIn(why, finished.stderr)
            self.assertEqual(finished.stdout, "")
