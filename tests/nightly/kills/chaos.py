"""Faults at random moments over jobs of all kinds: all jobs end as they do
undisturbed, and nothing piles up.

Five workers and a coordinator, each started again a second after its death, run
pipelines and round groups in turn.  With --bed they are emulated machines,
whose links can be cut; that needs root.  The faults, one every so many seconds,
are drawn from the seed (by default the clock's) and printed first, so that the
same ones come again.  The state of the coordinator lies on a small file system
of its own where root allows, so that its disk can be full.  Where a job's
newest checkpoint is corrupted, all workers are killed too, so that the job
would go on from it.

What must hold: every job succeeds; a pipeline's weights or predictions are
those of its undisturbed run, a group has no members whose states differ.  A
table says of each kind of fault in how many seconds it was seen, in how many
the job took its next first step, and how many steps it ran again; then the
goodput, which is the time that the jobs take undisturbed in that which they
took.  Last, how fast memory, files and threads of the daemons grew.
"""

import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import threading
import time
from collections import defaultdict

from bed import Bed
from kills.recoveries import Undisturbed, recovery_of, show
from mesh import RestartingMesh, eventually, flip_a_byte, reading
from nightly import say

OPTIONS = {"seed": 0, "minutes": 30.0, "every": 20.0, "steps": 600,
           "bed": False}
WORKERS = 5
PAUSE_SECONDS = 1
DISK = "64m"
SAMPLE_SECONDS = 5
# A process is level after so long; slopes are of what follows.  The last worker
# is killed only where all are, so that it lives long enough.
SETTLED_SECONDS = 60
LEAST_LIFE_SECONDS = 180
# A minute, of the median life.
MOST_GROWTH = {"resident KiB": 8 * 1024, "open files": 1, "threads": 0.5}

KINDS = ("kill", "kill two", "stop", "coordinator kill", "coordinator stop",
         "corrupt checkpoint and kill all")
# These hit no job that begins or ends: that may fail, with a reason.
IN_THE_MIDDLE = ("disk full", "corrupt checkpoint and kill all")
BED_KINDS = ("kill", "kill two", "stop", "link cut")
PIPELINE = ("data.name=synthetic", "data.train_samples=1024",
            "data.test_samples=64", "train.evaluate_every=0",
            "train.checkpoint_every=100", "pipeline.stages=4")
JOBS = {
    "lenet": ("deploy/jobs/fashion-mnist.yaml", *PIPELINE, "model.dropout=0.2",
              "train.optimizer.name=adamw", "train.learning_rate.base=0.001"),
    "vit": ("deploy/jobs/vit-small.yaml", *PIPELINE),
    "group": ("deploy/jobs/data-parallel.yaml", "data.name=synthetic",
              "data.train_samples=1024", "data.test_samples=64",
              "train.evaluate_every=0"),
    "inference": ("deploy/jobs/fashion-mnist.yaml", *PIPELINE, "kind=infer",
                  "data.test_samples=20000", "infer.micro_batch=4"),
}


class Fault:
    """One thing that goes wrong; `at` in seconds from the begin on."""

    def __init__(self, draw, at, kinds):
        self.at = at
        self.kind = draw.choice(kinds)
        workers = {"kill": 1, "stop": 1, "link cut": 1, "kill two": 2}
        self.victims = draw.sample(range(1, WORKERS), 2)[
            :workers.get(self.kind, 0)]
        self.seconds = draw.uniform(1, 6)
        self.hit = None  # when it came, as time.time() says

    def __str__(self):
        words = [self.kind, *(f"w{i}" for i in self.victims)]
        lasts = "" if "kill" in self.kind else f" for {self.seconds:.1f} s"
        return f"{self.at:7.1f} s  {' '.join(words)}{lasts}"


def draw_faults(seed, seconds, every, kinds):
    draw = random.Random(seed)
    count = int(seconds / every)
    return [Fault(draw, every * (i + draw.uniform(0.2, 0.8)), kinds)
            for i in range(count)]


class ChaosMesh(RestartingMesh):
    """Its coordinator keeps its state on a file system of its own."""

    def __init__(self, bin_folder, workers):
        super().__init__(bin_folder, workers, PAUSE_SECONDS)
        self.disk = self.state / "coordinator"
        self.has_disk = False

    def kinds(self):
        return (*KINDS, "disk full") if self.has_disk else KINDS

    def _start(self):
        self.disk.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs",
             str(self.disk)], capture_output=True, check=False)
        self.has_disk = mounted.returncode == 0
        super()._start()

    def _stop(self):
        super()._stop()
        if self.has_disk:
            subprocess.run(["umount", str(self.disk)], check=True)
            self.has_disk = False

    def fill_disk(self):
        try:
            with open(self.disk / "filler", "wb", buffering=0) as filler:
                while filler.write(bytes(1 << 16)):
                    pass
        except OSError:
            pass  # it is full

    def newest_checkpoint(self, job):
        # Not those that are being fetched, whose names end otherwise.
        files = self.disk.glob(f"checkpoints/{job}/step-*[0-9]/layers.*")
        return max(files, key=lambda file: int(file.parent.name[len("step-"):]),
                   default=None)


class Machine:
    """An emulated one with a worker, which is started again."""

    def __init__(self, bed, number):
        self.bed = bed
        self.number = number
        self.name = f"w{number}"

    def status(self):
        return self.bed.status()["nodes"][self.number - 1]

    def signal(self, number):
        if number != signal.SIGKILL:
            os.kill(self.status()["pid"], number)
            return
        self.bed.testbed("kill", str(self.number))
        threading.Timer(PAUSE_SECONDS, self.bed.testbed,
                        ("start", str(self.number))).start()

    def link(self, state):
        subprocess.run(["ip", "-n", self.status()["namespace"], "link", "set",
                        "dev", "eth0", state], check=True)


class ChaosBed(Bed):
    """Asked like a mesh."""

    def __init__(self, bin_folder, workers):
        super().__init__("chaos", bin_folder, ("--lease", "3"), nodes=workers)
        self.daemons = [Machine(self, i) for i in range(1, workers + 1)]

    def status(self):
        return json.loads(self.testbed("status", "-o", "json"))

    def kinds(self):
        return BED_KINDS

    def processes(self):
        status = self.status()
        return {each["pid"]: each["name"]
                for each in (status["coordinator"], *status["nodes"])
                if each["alive"]}


class Faults(threading.Thread):
    """Carries them out, each in its time."""

    def __init__(self, mesh, faults):
        super().__init__()
        self.mesh = mesh
        self.faults = faults
        self.over = threading.Event()
        self.middle_of = None  # the number of a job that does not begin or end

    def run(self):
        begin = time.monotonic()
        for fault in self.faults:
            if self.over.wait(begin + fault.at - time.monotonic()):
                return
            while fault.kind in IN_THE_MIDDLE and self.middle_of is None:
                if self.over.wait(0.05):
                    return
            fault.hit = time.time()
            self.carry_out(fault)

    def carry_out(self, fault):
        mesh, kind = self.mesh, fault.kind
        victims = ([mesh.coordinator] if "coordinator" in kind else
                   [mesh.daemons[i - 1] for i in fault.victims])
        if kind == "link cut":
            victims[0].link("down")
            self.over.wait(fault.seconds)
            victims[0].link("up")
        elif kind == "disk full":
            mesh.fill_disk()
            eventually(lambda: self.middle_of is None or self.over.is_set(),
                       fault.seconds)
            (mesh.disk / "filler").unlink(missing_ok=True)
        elif "stop" in kind:
            victims[0].signal(signal.SIGSTOP)
            self.over.wait(fault.seconds)
            victims[0].signal(signal.SIGCONT)
        else:
            if kind in IN_THE_MIDDLE:
                newest = mesh.newest_checkpoint(self.middle_of)
                if newest is None:
                    return
                flip_a_byte(newest)
                victims = mesh.daemons
            for victim in victims:
                victim.signal(signal.SIGKILL)


class Sizes(threading.Thread):
    """Reads memory, files and threads of each life of each daemon."""

    def __init__(self, mesh):
        super().__init__()
        self.mesh = mesh
        self.over = threading.Event()
        self.lives = defaultdict(list)  # (role, pid): (time, reading)

    def run(self):
        while not self.over.wait(SAMPLE_SECONDS):
            for pid, name in self.mesh.processes().items():
                try:
                    size = reading(pid)
                except (OSError, KeyError):  # it has just died
                    continue
                role = "coordinator" if name == "coordinator" else "worker"
                self.lives[role, pid].append((time.monotonic(), size))

    def judge(self, run):
        """Of the median life of each role."""
        for role in ("coordinator", "worker"):
            for i, (name, most) in enumerate(MOST_GROWTH.items()):
                slopes = []
                for (of, _), life in self.lives.items():
                    begin, end = life[0][0], life[-1][0]
                    if of == role and end - begin >= LEAST_LIFE_SECONDS:
                        level = [(at, size[i]) for at, size in life
                                 if at - begin >= SETTLED_SECONDS]
                        slopes.append(60 * statistics.linear_regression(
                            *zip(*level)).slope)
                if slopes:
                    print(f"{role}: {name} of {len(slopes)} lives grow by up to "
                          f"{max(slopes):.2f} a minute")
                    run.at_most(f"{role}: growth of {name} a minute", most,
                                statistics.median(slopes))


def again(ask, *arguments):
    """Asks until the coordinator answers."""
    for _ in range(120):
        try:
            return ask(*arguments)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            last = error
            time.sleep(0.5)
    raise last


class Jobs:
    """The jobs under the faults."""

    def __init__(self, run, mesh, faults):
        self.mesh = mesh
        self.jobs = {name: (*job, f"train.steps={run.steps}")
                     for name, job in JOBS.items()}
        self.normal = {name: Undisturbed(mesh, job)
                       for name, job in self.jobs.items()}
        self.faults = faults
        self.recoveries = []
        self.run = run
        self.wrong = run.wrong
        self.useful = 0.0

    def go(self, seconds):
        thread = Faults(self.mesh, self.faults)
        sizes = Sizes(self.mesh)
        thread.start()
        sizes.start()
        begin = time.monotonic()
        try:
            for name in itertools.cycle(self.jobs):
                if time.monotonic() - begin > seconds:
                    break
                self.one_job(name, thread)
        finally:
            thread.over.set()
            sizes.over.set()
            thread.join()
            sizes.join()
        wall = time.monotonic() - begin
        show(self.recoveries)
        print(f"goodput: {100 * self.useful / wall:.0f} % of {wall:.0f} s")
        sizes.judge(self.run)

    def one_job(self, name, thread):
        normal = self.normal[name]
        begin = time.time()
        number = again(self.mesh.submit, *self.jobs[name])
        while True:
            shown = again(self.mesh.show, number)
            middle = 0 < shown["step"] <= 0.6 * normal.steps
            thread.middle_of = number if middle else None
            if shown["state"] not in ("queued", "running"):
                break
            time.sleep(0.2)
        events = again(self.mesh.events, number)
        self.useful += normal.seconds
        self.judge(name, number, shown, events)
        self.measure(name, shown, events, begin)
        # The weights and checkpoints of many jobs would fill the small disk.
        again(self.mesh.delete, number)

    def judge(self, name, number, shown, events):
        what = f"job {number} ({name})"
        say(f"{what}: {shown['state']}, {shown['attempt']} attempts")
        if shown["state"] != "succeeded":
            self.wrong.append(f"{what} {shown['state']}: {shown['why']}")
        elif name == "group":
            self.wrong += [f"{what}: {event['text']}" for event in events
                           if event["kind"] == "mismatch"]
        elif shown["weights_sha256"] != self.normal[name].weights:
            self.wrong.append(f"{what} ended with other weights")

    def measure(self, name, shown, events, begin):
        if name == "group" or shown["state"] != "succeeded":
            return
        hits = [fault for fault in self.faults
                if fault.hit is not None and fault.hit >= begin]
        ends = [fault.hit for fault in hits[1:]] + [float("inf")]
        for fault, until in zip(hits, ends):
            self.recoveries.append(recovery_of(
                fault.kind, shown, events, fault.hit,
                self.normal[name].step_seconds, until))


def main(run):
    run.needs(root=run.bed)
    seed = run.seed or time.time_ns() // 10**9
    with run.mesh(WORKERS, ChaosBed if run.bed else ChaosMesh) as mesh:
        seconds = 60 * run.minutes
        faults = draw_faults(seed, seconds, run.every, mesh.kinds())
        say(f"seed {seed}", *map(str, faults), sep="\n")
        Jobs(run, mesh, faults).go(seconds)
    print(f"seed {seed}: {len(run.wrong)} things wrong")
