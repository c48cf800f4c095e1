#!/usr/bin/env python3
"""Workers of a pipeline are killed, and the job ends with the same bytes.

  pipeline_kills.py --bin build/release/bin [--part NAME]... [--times 20]
                    [--seed 1]

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

import argparse
import itertools
import math
import random
import signal
import statistics
import sys
import time

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from recoveries import recovery_of, show, step_seconds
from restarting_mesh import RestartingMesh

WORKERS = 4
PAUSE_SECONDS = 1
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


class Undisturbed:
    """A job as it is when nothing happens."""

    def __init__(self, mesh, job):
        self.job = job
        shown = mesh.finish(mesh.submit(*job))
        if shown["state"] != "succeeded":
            raise RuntimeError(f"{job}: {shown['why']}")
        self.weights = shown["weights_sha256"]
        self.steps = shown["steps"]
        self.step_seconds = step_seconds(shown)


class Report:
    """All recoveries, and what is wrong."""

    def __init__(self):
        self.recoveries = []
        self.wrong = []

    def judge(self, recovery, what):
        self.recoveries.append(recovery)
        for name, value, most in (
                ("seen after (s)", recovery.detected, MOST_DETECTED_SECONDS),
                ("first step after (s)", recovery.first_step,
                 MOST_FIRST_STEP_SECONDS),
                ("steps run again", recovery.replayed, MOST_REPLAYED)):
            if value is None:
                self.wrong.append(f"{what}: nothing tells '{name}'")
            elif value > most:
                self.wrong.append(f"{what}: {name} {value:.3f}, asked {most}")

    def judge_replays(self):
        """The worst replay is at most three times the median one."""
        replays = [each.replay for each in self.recoveries
                   if each.kind == "each" and each.replay]
        if replays and max(replays) > 3 * statistics.median(replays):
            self.wrong.append(
                f"the worst replay took {max(replays):.2f} s, the median one "
                f"{statistics.median(replays):.2f} s")


class Disturber:
    """Runs jobs, and hits workers meanwhile."""

    def __init__(self, mesh, seed, report):
        self.mesh = mesh
        self.random = random.Random(seed)
        self.report = report

    def await_step(self, number, step):
        while self.mesh.show(number)["step"] < step:
            time.sleep(0.05)

    def run(self, kind, normal, victims, second=None, signals=signal.SIGKILL):
        """One job of which `victims` are hit at a random moment.

        second: (victim, seconds after the first ones).
        """
        self.mesh.await_all_idle()
        number = self.mesh.submit(*normal.job)
        self.await_step(number, normal.steps // 10)
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
        events = self.mesh.events(number)
        what = f"{kind}, job {number}, {' '.join(victims)}"
        if shown["weights_sha256"] != normal.weights:
            self.report.wrong.append(
                f"{what}: {shown['state']} with {shown['weights_sha256']}, "
                f"undisturbed {normal.weights}: {shown['why']}")
        recovery = recovery_of(kind, shown, events, hit[0], math.inf,
                               normal.step_seconds)
        print(f"{what}: {text_of(recovery)}, {shown['attempt']} attempts",
              flush=True)
        return recovery, what


def text_of(recovery):
    if recovery.first_step is None:
        return "no step tells how it went on"
    return (f"seen after {recovery.detected:.3f} s, first step after "
            f"{recovery.first_step:.2f} s, {recovery.replayed} steps again in "
            f"{recovery.replay:.2f} s")


NAMES = [f"w{i}" for i in range(1, WORKERS + 1)]


def each(disturber, arguments):
    normal = Undisturbed(disturber.mesh, VIT)
    for i in range(arguments.times):
        disturber.report.judge(
            *disturber.run("each", normal, [NAMES[i % WORKERS]]))


def models(disturber, _):
    for name, job in MODELS.items():
        normal = Undisturbed(disturber.mesh, job)
        for victim in NAMES:
            recovery, what = disturber.run(name, normal, [victim])
            if name == "interleaved-1f1b":
                # Three workers do not divide eight stages: it waits for the
                # fourth one.
                disturber.report.recoveries.append(recovery)
            else:
                disturber.report.judge(recovery, what)


def pairs(disturber, _):
    normal = Undisturbed(disturber.mesh, VIT)
    for pair in itertools.combinations(NAMES, 2):
        disturber.report.judge(*disturber.run("pairs", normal, pair))


def phases(disturber, _):
    normal = Undisturbed(disturber.mesh, VIT)
    for after in SECOND_KILL_AFTER:
        first, second = disturber.random.sample(NAMES, 2)
        recovery, _ = disturber.run("phases", normal, [first], (second, after))
        disturber.report.recoveries.append(recovery)


def stopped(disturber, _):
    normal = Undisturbed(disturber.mesh, VIT)
    for victim in NAMES:
        recovery, _ = disturber.run("stopped", normal, [victim],
                                    signals=signal.SIGSTOP)
        disturber.report.recoveries.append(recovery)


def two(disturber, _):
    normal = Undisturbed(disturber.mesh, (*VIT, "pipeline.stages=2"))
    for victim in NAMES[:2]:
        disturber.report.judge(*disturber.run("two", normal, [victim]))


def inference(disturber, _):
    """Judged by the file of predictions alone: it has no steps that are run
    again."""
    mesh = disturber.mesh
    normal = mesh.finish(mesh.submit(*INFERENCE))
    for victim in NAMES:
        mesh.await_all_idle()
        number = mesh.submit(*INFERENCE)
        disturber.await_step(number, disturber.random.randint(
            SAMPLES // 10, SAMPLES // 3))
        mesh.daemon(victim).signal(signal.SIGKILL)
        shown = mesh.finish(number)
        what = f"inference, job {number}, {victim}"
        print(f"{what}: {shown['step']} micro-batches, {shown['attempt']} "
              f"attempts", flush=True)
        if shown["attempt"] < 2:
            disturber.report.wrong.append(f"{what}: it was not disturbed")
        for key in ("state", "step", "weights_sha256"):
            if shown[key] != normal[key]:
                disturber.report.wrong.append(
                    f"{what}: {key} {shown[key]}, undisturbed {normal[key]}: "
                    f"{shown['why']}")


PARTS = {"each": each, "models": models, "pairs": pairs, "phases": phases,
         "stopped": stopped, "two": two, "inference": inference}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    report = Report()
    for name in arguments.part or PARTS:
        workers = 2 if name == "two" else WORKERS
        with RestartingMesh(arguments.bin, workers, PAUSE_SECONDS) as mesh:
            before = len(report.wrong)
            PARTS[name](Disturber(mesh, arguments.seed, report), arguments)
            mesh.keep = len(report.wrong) > before
    report.judge_replays()
    show(report.recoveries)
    for sentence in report.wrong:
        print(f"WRONG: {sentence}")
    return int(bool(report.wrong))


if __name__ == "__main__":
    sys.exit(main())
