"""Workers of a pipeline are killed, and the job ends with the same bytes.

Parts:
  each      kill -9 of each of four workers in turn, at a random moment
  models    the same once a worker with other models and schedules
  pairs     two at once, every pair
  phases    another one while the first recovery is under way
  stopped   SIGSTOP: only the lease tells
  two       two machines only, copies for two: it goes on with one
  inference DeiT-S infers: each worker is killed in turn, and every prediction
            is there once

A worker that is killed is started again a second later.  Every job must end
with the weights of its undisturbed run.  Asked of a process that dies: seen in
200 ms; the first step of the new attempt is done within 2 s; at most 10 steps
are run again.  A worker that is stopped costs the lease, and is printed.  A
first step is counted whole, so that the first forward came earlier.
"""

import itertools
import random
import signal
import statistics
import time

from kills.recoveries import Undisturbed, recovery_of, show
from nightly import say

WORKERS = 4
NAMES = [f"w{i}" for i in range(1, WORKERS + 1)]
STOPPED_SECONDS = 10
MOST_DETECTED_SECONDS = 0.2
MOST_FIRST_STEP_SECONDS = 2.0
MOST_REPLAYED = 10
# From the first kill to the second: while all leave, while a new attempt is
# chosen, fetched, built, and while it runs again.
SECOND_KILL_AFTER = (0.01, 0.05, 0.15, 0.4, 0.8, 1.5)

VIT = ("deploy/jobs/vit-small.yaml", "train.steps=200", "pipeline.stages=4",
       "train.evaluate_every=0")
MODELS = {
    "lenet": ("deploy/jobs/fashion-mnist.yaml", "train.steps=300",
              "train.optimizer.name=adamw", "train.learning_rate.base=0.001",
              "model.dropout=0.2", "train.evaluate_every=0"),
    "resnet": ("deploy/jobs/fashion-mnist.yaml", "model.name=resnet18",
               "model.width=8", "data.name=synthetic", "data.shape=3,32,32",
               "data.train_samples=1024", "data.test_samples=64",
               "train.steps=150", "train.batch=32", "train.micro_batch=8",
               "train.evaluate_every=0"),
    "gpt": ("deploy/jobs/gpt-text.yaml", "data.name=synthetic-tokens",
            "data.block=32", "model.width=64", "train.batch=32",
            "train.steps=150", "train.evaluate_every=0"),
    "interleaved-1f1b": (*VIT, "pipeline.schedule=interleaved-1f1b",
                         "pipeline.stages=8"),
    "zero-bubble": (*VIT, "pipeline.schedule=zero-bubble"),
}
SAMPLES = 400
INFERENCE = ("deploy/jobs/deit-small.yaml", "kind=infer", "infer.micro_batch=2",
             f"data.test_samples={SAMPLES}")


class Disturber:
    """Runs jobs, and hits workers meanwhile."""

    def __init__(self, run, mesh):
        self.run = run
        self.mesh = mesh
        self.random = random.Random(run.seed)

    def judge(self, recovery, what):
        for name, value, most in (
                ("seen after (s)", recovery.detected, MOST_DETECTED_SECONDS),
                ("first step after (s)", recovery.first_step,
                 MOST_FIRST_STEP_SECONDS),
                ("steps run again", recovery.replayed, MOST_REPLAYED)):
            if value is None:
                self.run.wrong.append(f"{what}: nothing tells '{name}'")
            elif value > most:
                self.run.wrong.append(f"{what}: {name} {value:.3f}, asked {most}")

    def hit(self, kind, normal, victims, second=None, signals=signal.SIGKILL,
            judged=True):
        """One job of which `victims` are hit at a random moment.

        second: (victim, seconds after the first ones).
        """
        self.mesh.await_all_idle()
        number = self.mesh.submit(*normal.job)
        self.mesh.await_step(number, normal.steps // 10)
        time.sleep(self.random.uniform(0, 0.5) * normal.steps *
                   normal.step_seconds)
        hit = [self.mesh.daemon(name).signal(signals) for name in victims]
        if second is not None:
            time.sleep(second[1])
            self.mesh.daemon(second[0]).signal(signals)
        if signals == signal.SIGSTOP:
            time.sleep(STOPPED_SECONDS)
            for name in victims:
                self.mesh.daemon(name).signal(signal.SIGCONT)
        shown = self.mesh.finish(number)
        what = f"{kind}, job {number}, {' '.join(victims)}"
        self.run.same(what, shown, {"weights_sha256": normal.weights})
        recovery = recovery_of(kind, shown, self.mesh.events(number), hit[0],
                               normal.step_seconds)
        say(f"{what}: {recovery}, {shown['attempt']} attempts")
        self.run.recoveries.append(recovery)
        if judged:
            self.judge(recovery, what)


def hits_of(part, run, draw):
    """What is done in a part: (kind, job, arguments of Disturber.hit)."""
    if part == "each":
        for i in range(run.times):
            yield part, VIT, {"victims": [NAMES[i % WORKERS]]}
    elif part == "models":
        for name, job in MODELS.items():
            for victim in NAMES:
                # Three workers do not divide eight stages: it waits for the
                # fourth one.
                yield name, job, {"victims": [victim],
                                  "judged": name != "interleaved-1f1b"}
    elif part == "pairs":
        for pair in itertools.combinations(NAMES, 2):
            yield part, VIT, {"victims": pair}
    elif part == "phases":
        for after in SECOND_KILL_AFTER:
            first, second = draw.sample(NAMES, 2)
            yield part, VIT, {"victims": [first], "second": (second, after),
                              "judged": False}
    elif part == "stopped":
        for victim in NAMES:
            yield part, VIT, {"victims": [victim], "judged": False,
                              "signals": signal.SIGSTOP}
    else:
        for victim in NAMES[:2]:
            yield part, (*VIT, "pipeline.stages=2"), {"victims": [victim]}


def inference(disturber):
    """Judged by the file of predictions alone: it has no steps that are run
    again."""
    mesh, run = disturber.mesh, disturber.run
    normal = mesh.train(*INFERENCE)
    for victim in NAMES:
        mesh.await_all_idle()
        number = mesh.submit(*INFERENCE)
        mesh.await_step(number, disturber.random.randint(SAMPLES // 10,
                                                         SAMPLES // 3))
        mesh.daemon(victim).signal(signal.SIGKILL)
        shown = mesh.finish(number)
        what = f"inference, job {number}, {victim}"
        say(f"{what}: {shown['step']} micro-batches, {shown['attempt']} attempts")
        if shown["attempt"] < 2:
            run.wrong.append(f"{what}: it was not disturbed")
        run.same(what, shown, {key: normal[key] for key in
                               ("state", "step", "weights_sha256")})


OPTIONS = {"part": ("each", "models", "pairs", "phases", "stopped", "two",
                    "inference"), "times": 20, "seed": 1}


def main(run):
    run.recoveries = []
    for name in run.part:
        with run.restarting_mesh(2 if name == "two" else WORKERS) as mesh:
            disturber, normal = Disturber(run, mesh), {}
            if name == "inference":
                inference(disturber)
                continue
            for kind, job, how in hits_of(name, run, disturber.random):
                if job not in normal:
                    normal[job] = Undisturbed(mesh, job)
                disturber.hit(kind, normal[job], **how)
    # The worst replay is at most three times the median one.
    replays = [recovery.replay for recovery in run.recoveries
               if recovery.kind == "each" and recovery.replay]
    if replays and max(replays) > 3 * statistics.median(replays):
        run.wrong.append(f"the worst replay took {max(replays):.2f} s, the "
                         f"median one {statistics.median(replays):.2f} s")
    show(run.recoveries)
