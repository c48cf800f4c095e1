"""A mesh of real processes measures itself, plans by that, and takes the memory
that was predicted, in each precision."""

import json
import os

from mesh_case import MeshCase, free_port

JOB = """
name: planned
model: {name: lenet}
data: {name: synthetic, train_samples: 256, test_samples: 64}
train: {steps: 8, batch: 64, micro_batch: 16}
pipeline: {schedule: 1f1b}
"""

LENET = """
model: {name: lenet}
data: {name: synthetic, train_samples: 512, test_samples: 64}
train: {steps: 4, batch: 256, micro_batch: 32, optimizer: {name: adamw}}
pipeline: {stages: 2, schedule: gpipe}
"""
VIT = LENET.replace("{name: lenet}",
                    "{name: vit, depth: 4, width: 64, heads: 4}")


class Planning(MeshCase):
    shared = 3

    def plan(self, file, *more):
        return self.ask("plan", "-f", file, "--stages", "2", "--no-replicas",
                        *more)

    def test_measures_every_layer_of_every_worker_and_their_links(self):
        profile = self.ask("profile", "--model", "lenet", "--batch", "16",
                           "--all", "--set", "precision=bf16")

        self.assertEqual(len(profile["profiles"]), 3, profile)
        for one in profile["profiles"]:
            self.assertEqual((one["micro_batch"], one["dtype"]), (16, "bf16"))
            self.assertGreater(len(one["layers"]), 3)
            self.assertGreater(one["layers"][0]["forward_seconds"], 0)
            self.assertGreater(one["layers"][-1]["backward_seconds"], 0)
            self.assertGreater(one["frame_seconds"], 0)
        self.assertEqual(len(profile["links"]), 6, profile)
        self.assertGreater(profile["links"][0]["bytes_per_second"], 1e6)

    def test_workers_of_one_machine_share_its_memory(self):
        """Each once counted on all of it."""
        memory = sum(worker["memory_bytes"] for worker in self.workers())

        self.assertGreater(memory, 0)
        self.assertLessEqual(
            memory, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"))

    def test_plans_and_runs_by_what_was_measured(self):
        file = self.write(JOB)
        self.ask("profile", "-f", file, "--all")

        plan = self.plan(file)
        job = self.submit(file, "pipeline.stages=2")

        self.assertEqual(len(plan["stages"]), 2, plan)
        self.assertGreaterEqual(plan["step_seconds"],
                                plan["lower_bound_seconds"] * (1 - 1e-9))
        self.assertIn("measured on", plan["source"])
        self.assertGreater(job["predicted_step_seconds"], 0)
        self.assertGreater(job["measured_step_seconds"], 0)
        self.assertEqual(len(job["drift"]), 2)
        self.assertGreater(job["drift"][1]["predicted_seconds"], 0)
        self.assertGreater(job["drift"][1]["measured_seconds"], 0)

    def test_a_plan_file_decides_who_holds_which_stage(self):
        file = self.write(JOB)
        path = self.folder / "plan.json"
        self.plan(file, "--save", str(path))
        # The last worker first: what the order of the workers would not give.
        plan = json.loads(path.read_text())
        for stage, device in ((0, 2), (1, 0)):
            plan["placement"][stage]["devices"] = [device]
        path.write_text(json.dumps(plan))

        overruled = self.try_submit(file, "pipeline.stages=3",
                                    flags=("--plan", str(path), "--dry-run"))
        self.ended(overruled, 0,
                   "--set pipeline.stages has no effect: --plan says")

        job = self.ask("job", "submit", file, "--plan", str(path))

        self.assertEqual(len(job["workers"]), 2)
        devices = plan["problem"]["devices"]
        names = {worker["id"]: worker["name"] for worker in self.workers()}
        for worker in job["workers"]:
            device = devices[2 if worker["stages"][0] == 0 else 0]["name"]
            self.assertEqual(names[worker["id"]], device, job)

    def test_bf16_ends_with_the_same_bytes_in_one_stage_and_two(self):
        one, two = (self.submit(VIT, "precision=bf16",
                                f"pipeline.stages={stages}")
                    for stages in (1, 2))

        for key in ("weights_sha256", "cpu_capability"):
            self.assertEqual(two[key], one[key], two)

    def test_bf16_begins_at_the_weights_of_a_file_and_infers_with_them(self):
        """The file's float32 weights are the master weights of the run."""
        trained = self.submit(VIT)
        weights = f"model.weights={self.export()}"

        def first_loss(job):
            return self.job(str(job["id"]))["loss"][0]["value"]

        def test_loss(job):
            return job["evaluations"][-1]["loss"]

        anew = self.submit(VIT, "precision=bf16")
        on = self.submit(VIT, "precision=bf16", weights)
        fp32 = self.submit(VIT, "kind=infer", weights)
        bf16 = self.submit(VIT, "kind=infer", weights, "precision=bf16")
        alone = self.submit(VIT, "kind=infer", weights, "precision=bf16",
                            "pipeline.stages=1")

        self.assertLess(first_loss(on), first_loss(anew), "it begins anew")
        self.assertAlmostEqual(test_loss(fp32), test_loss(trained), delta=1e-5)
        self.assertAlmostEqual(test_loss(bf16), test_loss(fp32), delta=0.02)
        self.assertNotEqual(bf16["weights_sha256"], fp32["weights_sha256"])
        self.assertEqual(bf16["weights_sha256"], alone["weights_sha256"])


class Unprofiled(MeshCase):
    light = True

    def test_a_worker_that_cannot_be_dialled_is_named_and_works_alone(self):
        """It dials the others, and nobody reaches what it advertises."""
        self.start(1)
        closed = f"127.0.0.1:{free_port()}"
        worker = self.start_worker("w9", "--advertise", closed,
                                   "--coordinator", self.address)
        self.soon(lambda: len(self.workers()) == 2, worker)
        named = f"w1 cannot dial w9 ({closed})"
        self.soon(lambda: named in self.client("doctor", "-o", "json").stdout)

        job = self.detach(JOB, "pipeline.cuts=[3]", "pipeline.workers=[w1, w9]")
        self.soon(lambda: named in self.job(job)["why"], lambda: self.job(job))
        self.stop(job)
        self.submit(JOB, "pipeline.stages=0")

    def test_a_dry_run_assumes_layers_and_links_were_probed_at_the_start(self):
        """Nobody asked for a profile."""
        self.start(2)
        file = self.write(JOB)

        estimate = self.ask("job", "submit", file, "--dry-run")["estimate"]

        self.assertGreater(estimate["step_seconds"], 0)
        self.assertIn("assumed from FLOPs", estimate["source"])
        self.soon(lambda: "links that were not" not in self.ask(
            "plan", "-f", file, "--stages", "2", "--no-replicas")["source"])


class Memory(MeshCase):
    """Of workers that have run nothing before."""

    def submit_within_a_factor(self, text, checkpointing):
        """Predicted and measured peaks lie within twice of each other."""
        job = self.submit(text, f"train.activation_checkpointing={checkpointing}")
        for worker in job["workers"]:
            predicted = worker["predicted_memory_bytes"]
            peak = worker["peak_memory_bytes"]
            self.assertLess(peak, 2 * predicted, worker)
            self.assertGreater(peak, predicted / 2, worker)
        return job

    def test_peak_of_every_worker_is_about_what_the_planner_predicted(self):
        self.needs_torch()
        self.start(2)
        for text in (LENET, VIT):
            none = self.submit_within_a_factor(text, "none")
            stage = self.submit_within_a_factor(text, "stage")

            self.assertEqual(stage["weights_sha256"], none["weights_sha256"])
            for less, more in zip(stage["workers"], none["workers"]):
                self.assertLess(less["peak_memory_bytes"],
                                more["peak_memory_bytes"])
