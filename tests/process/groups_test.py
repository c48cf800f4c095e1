"""The rolling server and gossip over real processes: whoever dies, hangs or
sends nonsense costs its own part, and nobody diverges."""

import math
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

from mesh_case import SMALL, MeshCase, frozen_thread, stopped
from mesh import tensors_of

MEMBERS = 5
# Nobody is lost there on a busy box, which would make a round void.
PATIENT = ("--lease", "20s")
HALF_A_LEASE_SECONDS = 1.5  # of the coordinator's default, `--lease`


def slow(members):
    """Faults that leave the cores to others: a job without an end takes all
    that there are, else."""
    return "".join(f"  - {{worker: w{i}, step: 0, steps: 0, kind: delay, "
                   "seconds: 0.05}\n" for i in range(1, members + 1))


class GroupCase(MeshCase):
    def kinds_of_events(self):
        return {event["kind"] for event in
                self.ask("job", "events", self.number)["events"]}

    def train_on(self, members):
        """Begins a group's job that has no end."""
        self.detach(self.job_text(
            1_000_000,
            f"aggregation: {{mode: rolling}}\nfaults:\n{slow(members)}"))
        self.await_step_after(5)

    def job_text(self, steps, more="aggregation: {mode: rolling}\n",
                 test_samples=64):
        model = "name: mlp, hidden: [16, 16]" if self.light else "name: lenet"
        return f"""
name: group
model: {{{model}}}
data: {{name: synthetic, train_samples: 1024, test_samples: {test_samples}}}
train: {{steps: {steps}, batch: 40, micro_batch: 4, evaluate_every: 0}}
{more}"""

    def gossip_text(self, steps, *faults):
        lines = "".join(f"  - {{{fault}}}\n" for fault in faults)
        return self.job_text(
            steps, f"aggregation: {{mode: gossip}}\nfaults:\n{lines}", 256)


class Watched(GroupCase):
    """Collects what members say of their states while a job runs."""

    def setUp(self):
        super().setUp()
        self.hashes = defaultdict(set)  # by step

    def look(self):
        """The job as it is now."""
        job = self.job()
        for worker in job["workers"]:
            if (member := worker["member"]) and member["state_step"]:
                self.hashes[member["state_step"]].add(member["state_hash"])
        return job

    def await_sight(self, condition):
        self.soon(lambda: condition(self.look()))

    def end_undiverged(self):
        """Every state that somebody named is the only one of its step."""
        self.assertEqual(self.look()["attempt"], 1)
        self.await_sight(lambda _: len(self.hashes) > 2)
        for step, hashes in self.hashes.items():
            self.assertEqual(len(hashes), 1, f"after step {step}")
        self.stop()


class KilledServer(Watched):
    """Each phase kills another worker: `up` waits longer after each death."""
    light = True
    shared = MEMBERS

    def step_served_by(self, name, first):
        """The first step from `first` on that this worker serves, with all
        there: in turn, by id."""
        ids = sorted((worker["id"], worker["name"])
                     for worker in self.workers())
        self.assertEqual(len(ids), MEMBERS)
        place = [worker for _, worker in ids].index(name)
        return first + (place - first) % MEMBERS

    def test_costs_its_part_and_comes_back_whenever_it_is_killed(self):
        for phase, victim in (("computing", "w2"), ("gathering", "w3"),
                              ("spreading", "w4"), ("committing", "w5")):
            with self.subTest(phase):
                self.await_idle(MEMBERS)
                self.costs_its_part_and_comes_back(phase, victim)

    def costs_its_part_and_comes_back(self, phase, victim):
        self.hashes.clear()
        self.detach(self.job_text(
            100_000,
            "aggregation: {mode: rolling}\nfaults:\n"
            f"  - {{worker: {victim}, kind: kill, phase: {phase}, "
            f"step: {self.step_served_by(victim, 20)}}}\n{slow(MEMBERS)}"))

        # Lost, and a member again, with the others' state.
        self.await_event(f"worker {victim} joined")
        joined_at = max(worker["member"]["steps"]
                        for worker in self.look()["workers"])
        self.await_sight(
            lambda job: sum(worker["member"]["steps"] > joined_at + 10
                            for worker in job["workers"]) == MEMBERS)

        self.has(self.events(), f"member {victim} lost",
                 f"server {victim} lost")
        # It never began anew, nor left a step out.
        self.assertEqual(self.look()["skipped_steps"], 0)
        self.end_undiverged()


class KeptGroups(GroupCase):
    """A group's state outlives its members, as a pipeline's does."""
    light = True
    shared = 3
    ALL = f"aggregation: {{mode: rolling, min_parts: 3}}\nfaults:\n{slow(3)}"

    def goes_on(self, job, *sets):
        """What becomes of it, as another job."""
        self.good(self.resume(job, *sets))
        return self.job("last")

    def test_one_that_was_stopped_goes_on_to_the_same_bytes(self):
        text = self.job_text(100_000, self.ALL)
        job = self.detach(text, "train.checkpoint_every=20")
        self.await_checkpoint()
        self.stop()
        steps = f"train.steps={self.step() + 30}"
        expected = self.submit(text, steps)

        resumed = self.goes_on(job, steps)

        story = self.events("last")
        self.has(story, f"of job {job}", "attempt 1 begins from step")
        self.assertEqual(resumed["weights_sha256"],
                         expected["weights_sha256"], story)

    def test_a_pipeline_goes_on_as_a_group_and_a_group_as_a_pipeline(self):
        job = self.submit(self.job_text(40, "pipeline: {stages: 2}\n"),
                          "train.checkpoint_every=40")["id"]

        # With another number of members the second time.
        for step, members, *sets in (
                (40, 3, "aggregation.mode=rolling", "pipeline.stages=0"),
                (80, 2, "aggregation.members=2"),
                (120, None, "aggregation.mode=none")):
            document = self.goes_on(job, f"train.steps={step + 40}", *sets)

            self.assertEqual(document["state"], "succeeded")
            if members is not None:
                self.assertEqual(len(document["workers"]), members)
            self.has(self.events("last"), f"begins from step {step}")
            job = document["id"]

    def test_every_mode_is_exported_while_it_runs_and_resumed(self):
        for mode in ("rolling", "central", "gossip"):
            job = self.detach(self.job_text(
                100_000, f"aggregation: {{mode: {mode}}}\n"))
            self.await_step_after(5)

            content = Path(self.export(job, f"{mode}.safetensors")).read_bytes()

            self.assertGreater(len(content), 50_000)
            self.stop()
            self.goes_on(job, f"train.steps={self.step() + 20}",
                         "aggregation.members=2")
            self.has(self.events("last"), "attempt 1 begins from step")

    def test_it_goes_on_from_a_checkpoint_when_all_were_killed(self):
        text = self.job_text(100_000, self.ALL)
        self.detach(text, "train.checkpoint_every=20")
        self.await_checkpoint()

        self.kill("w1", "w2", "w3")

        self.await_event("attempt 2 begins from step")
        self.expect_undisturbed(text, "faults=[]")

    def test_it_goes_on_from_the_furthest_state_when_all_stood_still(self):
        """Longer than the lease, and there is no checkpoint."""
        text = self.job_text(100_000, self.ALL)
        self.detach(text)
        self.await_step_after(30)
        pids = [self.pid_of_worker(name) for name in ("w1", "w2", "w3")]
        with stopped(pids[0]), stopped(pids[1]), stopped(pids[2]):
            self.await_event("attempt 1 ends")
            reached = self.step()

        self.await_event("attempt 2 begins from step")
        began = self.events().split("attempt 2 begins from step ")[1]
        self.assertGreaterEqual(int(began.split()[0]), reached)
        self.assertNotIn("begins from the beginning",
                         self.events().split("attempt 1 ends")[1])
        self.expect_undisturbed(text, "faults=[]")


class ByTheClock(GroupCase):
    """A process that stands still for less than its time is the one it was."""
    alone = True
    light = True
    shared = 3

    def test_a_member_stopped_for_half_a_lease_only_makes_the_run_slower(self):
        """min_parts is the whole group, so that each round waits for every
        part: both runs sum the same parts, and end with the same bytes."""
        undisturbed = self.submit(self.job_text(100),
                                  "aggregation.min_parts=3")
        pid = self.pid_of_worker("w2")

        # A delay changes no byte: the run takes five seconds or more.
        self.detach(self.job_text(100, """
aggregation: {mode: rolling, min_parts: 3}
faults: [{worker: w1, step: 0, steps: 0, kind: delay, seconds: 0.05}]
"""))
        self.await_step_after(2)
        with stopped(pid):
            time.sleep(HALF_A_LEASE_SECONDS)
            meanwhile = self.job()
        disturbed = self.finished()

        self.assertLess(meanwhile["step"], 100, "it was stopped too late")
        self.assertEqual(disturbed["skipped_steps"], 0)
        self.assertEqual(disturbed["weights_sha256"],
                         undisturbed["weights_sha256"])
        # The first view to the end: another process would have made another.
        self.assertEqual(self.kinds_of_events() & {
            "lost", "evicted", "joining", "left", "takeover", "paused", "void",
            "again", "joined"}, set())
        self.assertEqual(self.pid_of_worker("w2"), pid)

    def test_a_stage_that_stands_still_below_the_lease_ends_no_attempt(self):
        self.begin(SMALL)

        with stopped(self.pid_of_worker("w2")):
            self.soon(lambda: self.state_of("w2") == "suspect")

        self.await_more_steps()
        self.assertEqual(self.job()["attempt"], 1, self.events())

    def test_a_coordinator_stopped_beyond_the_lease_accuses_nobody(self):
        """As one on a laptop that was shut for a while."""
        self.begin(SMALL, step=0)

        with stopped(self.pid_of_coordinator()):
            time.sleep(3 * HALF_A_LEASE_SECONDS)

        self.await_more_steps()
        self.assertEqual(self.job()["state"], "running")
        self.assertEqual(self.job()["attempt"], 1)
        for worker in self.workers():
            self.assertNotEqual(worker["state"], "lost", worker)


class StarvedGroup(Watched):
    alone = True
    light = True

    def test_a_starved_group_throws_nobody_out_and_goes_on(self):
        """Busy loops beside it, and each member stands still most of the time,
        for less than half a lease."""
        self.start(3, "--lease", "6s")
        self.train_on(3)
        pids = [self.pid_of_worker(name) for name in ("w1", "w2", "w3")]
        for _ in range(2 * os.cpu_count()):
            self.start_process(sys.executable, "-c", "while True: pass")

        begin = time.monotonic()
        while time.monotonic() - begin < 12:
            for i, pid in enumerate(pids):
                with stopped(pid), stopped(pids[(i + 1) % 3]):
                    time.sleep(0.8)
            time.sleep(0.4)

        self.await_more_steps()
        self.assertEqual(self.kinds_of_events() & {
            "lost", "evicted", "joining", "again"}, set(), self.events())
        self.assertEqual(pids, [self.pid_of_worker(name)
                                for name in ("w1", "w2", "w3")])
        self.end_undiverged()


class Rounds(Watched):
    shared = 3
    flags = PATIENT

    def test_a_test_set_of_fewer_micro_batches_than_members_has_an_accuracy(self):
        job = self.submit(self.job_text(10, test_samples=4))  # one of them

        self.assertEqual(job["evaluations"][-1]["samples"], 4)
        self.assertIsNotNone(job["test_accuracy"])
        self.assertNotIn("incomplete", self.events())

    def test_a_drained_member_leaves_without_a_loss_and_comes_back(self):
        self.train_on(3)
        self.good(self.client("node", "drain", "w2"))
        self.await_event("w2 left")
        self.good(self.client("node", "undrain", "w2"))
        self.await_event("worker w2 joined")
        self.end_undiverged()

    def test_need_no_coordinator_while_every_member_answers(self):
        self.train_on(3)
        worker = [self.workers()[0]["http_address"]]

        def rounds():
            return self.sum_of_metric("paceline_worker_rounds_total", worker)

        with stopped(self.pid_of_coordinator()):
            before = rounds()
            self.assertGreater(before, 0)
            self.soon(lambda: rounds() > before + 20)

        self.await_more_steps(5)
        self.end_undiverged()

    def test_shards_and_modes_end_with_the_same_bytes_and_every_rule_trains(
            self):
        """Each round waits for all three, so that all sum the same parts."""
        def train(*sets):
            job = self.submit(self.job_text(40), *sets,
                              "aggregation.min_parts=3")
            self.assertEqual(job["skipped_steps"], 0)
            return job["weights_sha256"], job["evaluations"][-1]["loss"]

        plain, loss = train()
        for same in ("aggregation.shards=3", "aggregation.mode=central"):
            self.assertEqual(train(same)[0], plain, same)
        narrow, narrow_loss = train("aggregation.codec=bf16")
        self.assertNotEqual(narrow, plain)
        self.assertLess(narrow_loss, 2 * loss)
        untrained = math.log(10)  # guesses among ten classes
        for rule in ("trimmed-mean", "median", "suspicion", "zeno"):
            other, rule_loss = train(f"aggregation.rule={rule}",
                                     "aggregation.k=1")
            self.assertNotEqual(other, plain, rule)
            self.assertLess(rule_loss, 0.9 * untrained, rule)

    def test_uneven_shares_train_as_one_process_with_all_samples(self):
        text = self.job_text(12)
        single = self.submit(text, "aggregation.mode=none", "pipeline.stages=1")
        shared = self.submit(text, "aggregation.workers=[w1,w2,w3]",
                             "aggregation.shares=[5,3,2]",
                             "aggregation.min_parts=3")

        self.assertAlmostEqual(shared["evaluations"][-1]["loss"],
                               single["evaluations"][-1]["loss"], delta=1e-5)
        # The loss of a step is that of all samples, wherever it is shown.
        self.assertEqual(len(shared["loss"]), 12)
        for one, other in zip(shared["loss"], single["loss"]):
            self.assertAlmostEqual(one["value"], other["value"], delta=1e-4)
        expected, got = (tensors_of(self.export(str(job["id"])))
                         for job in (single, shared))
        self.assertGreater(sum(map(len, expected.values())), 40_000)
        self.assertEqual(got.keys(), expected.keys())
        self.assertLess(max(abs(a - b) for name, values in expected.items()
                            for a, b in zip(got[name], values)), 1e-5)


class Liars(GroupCase):
    shared = MEMBERS
    flags = PATIENT

    def test_liars_are_outvoted_and_nobody_is_harmed_by_nan(self):
        # Every round has all parts but the one that is refused.
        good = self.submit(self.job_text(120, """
aggregation: {mode: rolling, min_parts: 4}
faults:
  - {worker: w1, step: 0, steps: 0, kind: sign-flip, scale: 10}
  - {worker: w4, step: 0, steps: 0, kind: nan}
"""), "aggregation.rule=median", "aggregation.k=1")

        self.assertGreater(good["evaluations"][-1]["accuracy"], 0.9)
        self.assertIn("part of w4 skipped", self.events())

    def test_one_that_offers_nan_harms_nobody_and_is_named(self):
        done = self.submit(self.gossip_text(
            120, "worker: w2, step: 0, steps: 0, kind: nan"))

        self.assertGreater(done["evaluations"][-1]["accuracy"], 0.9)
        self.assertIn("part of w2 skipped (not-finite)", self.events())


class Gossip(GroupCase):
    def test_members_learn_while_one_is_killed_and_comes_back(self):
        self.start(4)
        self.detach(self.gossip_text(
            1_000_000, "worker: w3, step: 20, kind: kill",
            "worker: w1, step: 0, steps: 0, kind: delay, seconds: 0.04"),
            "train.evaluate_every=2")

        self.await_event("member w3 lost")
        self.await_event("worker w3 joined")
        back = self.step()

        def learned():
            """Each of the four has evaluated its share."""
            newest = self.job()["evaluations"][-1:]
            return any(each["step"] > back and each["samples"] == 256 and
                       each["accuracy"] > 0.9 for each in newest)
        self.soon(learned, lambda: self.job()["evaluations"])
        self.export()
        self.stop()


class HungMembers(GroupCase):
    light = True

    def test_a_hung_trainer_is_taken_out_though_rounds_wait_for_all(self):
        """Its I/O threads answer, and no deadline closes a round that waits
        for all."""
        self.start(3)
        self.detach(self.job_text(1_000_000, """
aggregation: {mode: rolling, min_parts: 3}
faults: [{worker: w2, step: 20, kind: delay, seconds: 3600}]
"""))

        self.await_event("member w2 evicted (it answers, but has finished no "
                         "instruction")
        self.await_event("worker w2 joined")
        self.await_more_steps(5)
        self.stop()

    def test_a_member_whose_rounds_thread_hangs_is_taken_out(self):
        self.start(3)
        self.train_on(3)

        with frozen_thread(self.pid_of_worker("w2"), "rounds"):
            self.await_event("member w2 evicted (owes an answer")
            self.await_more_steps(5)

        self.assertIn("and has handled nothing for", self.events())
        self.assertEqual(self.job()["attempt"], 1)
        self.stop()

    def test_others_that_gossip_go_on_while_one_is_stopped(self):
        self.start(4)
        self.detach(self.gossip_text(
            1_000_000, "worker: w4, step: 999999, kind: duplicate"))
        self.await_step_after(5)

        with stopped(self.pid_of_worker("w2")):
            self.await_event("member w2 lost")
            self.await_more_steps(20)

        self.await_event("worker w2 joined")
        self.await_more_steps(20)
        self.stop()
