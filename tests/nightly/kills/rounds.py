"""The server of a round is killed, again and again: training does not stop.

Five workers train LeNet on Fashion-MNIST as one group.  The job's `faults` kill
-9 the worker that serves a step in each phase: computing, gathering, spreading,
committing (between the hold of all and anybody's commit), --times each.  It is
started again after --pause seconds, by default those of the systemd unit.

What is shown, beside what is asked:
- every job ends, in its first attempt, without a step that is left out;
- after every round all members' states have one hash, also that of the one that
  came back;
- the stall: how much longer the round that was hit took than the median round
  of its job, until the last survivor had applied it;
- how long a process takes from its registration to its first part in a result.

Times are of this machine's one clock: the workers' logs (a line for each round
that was applied, in ms), the coordinator's events and log, and the script's own
for the exec.
"""

import json
import math
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from nightly import median_and_most, say

MEMBERS = 5
PHASES = ("computing", "gathering", "spreading", "committing")
MOST_STALL_MS = 300       # median
MOST_RETURN_SECONDS = 2   # each
WARM_UP_STEPS = 150
# From a kill to the next one, beyond the pause before the restart: an exec, a
# registration, a copy of the state, and rounds without anything.
CALM_SECONDS = 4
MOST_JOBS_EXTRA = 4

# A part of a batch is one micro-batch, so that a round takes tens of ms with
# five processes on two cores.
JOB = """\
name: rounds-kill
model: {{name: lenet}}
data: {{name: fashion-mnist}}
threads: 1
train:
  steps: {steps}
  batch: 40
  micro_batch: 8
  seed: 1
  optimizer: {{name: sgd, momentum: 0.9}}
  learning_rate: {{base: 0.02}}
  evaluate_every: 0
aggregation: {{mode: rolling, members: 5}}
faults: {faults}
"""

LINE = re.compile(r"(\S+)Z \S+ (\w+) (.*)")
FIELD = re.compile(r"(\w+)=(\S+)")
TAKEOVER = re.compile(r"step (\d+): server (\S+) lost, (\S+) took over in "
                      r"(\d+) ms")


def seconds_of(stamp):
    return datetime.fromisoformat(stamp + "+00:00").timestamp()


@dataclass(eq=False)
class Kill:
    """One death on purpose, as the job's file has it."""
    worker: str
    step: int  # updates done before
    phase: str
    life: object = None  # that ended
    takeover_ms: int = None
    stall_ms: float = None
    exec_to_registration: float = None
    registration_to_view: float = None
    registration_to_part: float = None
    why_not: str = ""  # it does not count

    def fault(self):
        return {"worker": self.worker, "step": self.step, "kind": "kill",
                "phase": self.phase}


class Applied:
    """A round as one process applied it."""

    def __init__(self, time, life, fields):
        self.time = time
        self.life = life
        self.step = int(fields["step"])
        self.state = fields["state"]
        self.used = fields["part"] == "used"


class Tail:
    """A log, of which each call gives what is new."""

    def __init__(self, path):
        self.path = path
        self.at = 0

    def lines(self):
        """Whole lines: (time, text after the level)."""
        with open(self.path, "rb") as log:
            log.seek(self.at)
            whole = log.read().rpartition(b"\n")[0]
        self.at += len(whole) + bool(whole)
        for line in whole.decode(errors="replace").split("\n"):
            if "instruction done" in line:
                continue
            match = LINE.match(line)
            if match is not None:
                yield seconds_of(match[1]), match[3]


class Logs:
    """What all workers wrote, and when each process registered."""

    def __init__(self, mesh):
        self.applied = defaultdict(lambda: defaultdict(list))  # [job][step]
        self.deaths = {}  # (job, worker): (time, life, fields)
        self.registered = defaultdict(list)  # worker: times
        self._mesh = mesh
        self._tails = {}
        self._jobs = {}  # what each life runs
        self._coordinator = Tail(mesh.coordinator.lives[-1].log)

    def read(self):
        """What is new since the last time."""
        for life in self._mesh.lives():
            tail = self._tails.setdefault(life, Tail(life.log))
            for time, text in tail.lines():
                self._take(life, time, text)
        for time, text in self._coordinator.lines():
            found = re.match(r"worker (\S+) attached", text)
            if found:
                self.registered[found[1]].append(time)

    def _take(self, life, time, text):
        fields = dict(FIELD.findall(text))
        if text.startswith("run begins"):
            self._jobs[life] = int(fields["job"])
        elif text.startswith("dies on purpose"):
            self.deaths[self._jobs[life], life.worker] = (time, life, fields)
        elif text.startswith("applied a round"):
            applied = Applied(time, life, fields)
            self.applied[self._jobs[life]][applied.step].append(applied)


@dataclass
class Job:
    """One job with its kills, and what became of it."""
    number: int
    shown: dict
    events: list
    kills: list
    normal: float = None  # seconds of its median round
    longest: float = None

    def events_of(self, kind):
        return [event for event in self.events if event["kind"] == kind]


def submit(mesh, steps, kills):
    file = mesh.state / "job.yaml"
    faults = json.dumps([kill.fault() for kill in kills])
    file.write_text(JOB.format(steps=steps, faults=faults), encoding="utf-8")
    number = mesh.submit(file)
    return Job(number, mesh.finish(number), mesh.events(number), kills)


# --- reading one job ---------------------------------------------------------


def round_ends(rounds):
    """step: when the last one that had a part in the result had applied it."""
    ends = {}
    for step, applied in rounds.items():
        members = [each for each in applied if each.used] or applied
        ends[step] = max(each.time for each in members)
    return ends


def measure_stalls(job, ends):
    hit = {kill.step + 1 for kill in job.kills}
    lengths = {step: ends[step] - ends[step - 1]
               for step in ends if step - 1 in ends}
    if not lengths:
        raise RuntimeError(f"job {job.number} {job.shown['state']}, and no log "
                           f"tells of its rounds: {job.shown['why']}")
    job.normal = statistics.median(
        length for step, length in lengths.items() if step not in hit)
    job.longest = max(lengths.values())
    for kill in job.kills:
        if kill.step + 1 in lengths:
            kill.stall_ms = 1e3 * (lengths[kill.step + 1] - job.normal)


def find_death(job, kill, logs):
    """Fills in what the dead and those who went on say of it."""
    death = logs.deaths.get((job.number, kill.worker))
    if death is None:
        kill.why_not = "it was not killed"
        return
    _, kill.life, fields = death
    # Of the first step from its own on that it serves.
    kill.step = int(fields["step"])
    if fields["phase"] != kill.phase:
        kill.why_not = f"it died {fields['phase']}"
    for event in job.events_of("takeover"):
        match = TAKEOVER.match(event["text"])
        if match and match[2] == kill.worker:
            kill.takeover_ms = int(match[4])
            if int(match[1]) != kill.step + 1:
                kill.why_not = f"taken over in step {match[1]}"
    if kill.takeover_ms is None:
        kill.why_not = kill.why_not or "it was not the server"


def find_return(job, kill, logs, lives):
    """Times of the process that came after the one that was killed."""
    number = kill.life.number + 1
    life = lives.get((kill.worker, number))
    if life is None:
        return
    registered = [time for time in logs.registered[kill.worker]
                  if time >= life.began]
    # The same moment, told before it was stored.
    registered += [event["unix_ms"] / 1e3 for event in job.events_of("joining")
                   if f"worker {kill.worker} " in event["text"]
                   and event["unix_ms"] / 1e3 >= life.began]
    if not registered:
        return
    begin = min(registered)
    kill.exec_to_registration = begin - life.began
    for event in job.events_of("joined"):
        time = event["unix_ms"] / 1e3
        if f"worker {kill.worker} " in event["text"] and time >= begin:
            kill.registration_to_view = time - begin
            break
    own = [each.time for applied in logs.applied[job.number].values()
           for each in applied if each.life is life and each.used]
    if own:
        kill.registration_to_part = min(own) - begin


def diverged(job, logs):
    """Sentences about steps after which members' states differ."""
    wrong = []
    for step, applied in sorted(logs.applied[job.number].items()):
        states = {each.state for each in applied}
        if len(states) > 1:
            wrong.append(f"job {job.number}: {len(states)} states after step "
                         f"{step}")
    return wrong


def check_job(job, logs):
    """All that does not hold, whatever was killed."""
    wrong = diverged(job, logs)
    shown = job.shown
    if shown["state"] != "succeeded" or shown["step"] != shown["steps"]:
        wrong.append(f"job {job.number} {shown['state']} at step "
                     f"{shown['step']} of {shown['steps']}: {shown['why']}")
    if shown["attempt"] != 1:
        wrong.append(f"job {job.number} began again: {shown['attempt']} "
                     "attempts")
    if shown["skipped_steps"]:
        wrong.append(f"job {job.number} left {shown['skipped_steps']} steps "
                     "out")
    rounds = logs.applied[job.number]
    missing = [step for step in range(1, shown["steps"] + 1)
               if len({each.life.worker for each in rounds.get(step, [])}) < 2]
    if missing:
        wrong.append(f"job {job.number}: {len(missing)} steps of which fewer "
                     "than two members told their state, the first is "
                     f"{missing[0]}")
    return wrong


# --- placing the kills -------------------------------------------------------


class Planner:
    """Kills for job after job, until enough of each phase count."""

    def __init__(self, names, times):
        self.names = names  # by id: names[t % n] serves step t
        self.missing = {phase: times for phase in PHASES}
        self.jobs = 0

    def next(self, gap):
        """The kills of the next job: each worker once at most, since a process
        that comes later than its job is not killed by it."""
        kills, step = [], gap
        for i in range(MEMBERS):
            planned = [kill.phase for kill in kills]
            left = {phase: count - planned.count(phase)
                    for phase, count in self.missing.items()}
            phase = max(PHASES, key=lambda each: left[each])
            if left[phase] <= 0:
                break
            at = (self.jobs + i) % MEMBERS
            step += (at - step) % MEMBERS
            kills.append(Kill(self.names[at], step, phase))
            step += gap
        self.jobs += 1
        return kills, step + gap  # the last one has time to come back, too

    def count(self, kills):
        for kill in kills:
            self.missing[kill.phase] -= not kill.why_not

    def done(self):
        return all(count <= 0 for count in self.missing.values())


def normal_round(mesh, logs):
    job = submit(mesh, WARM_UP_STEPS, [])
    mesh.await_all_idle()
    logs.read()
    measure_stalls(job, round_ends(logs.applied[job.number]))
    say(f"a round takes {1e3 * job.normal:.1f} ms (median of "
        f"{WARM_UP_STEPS}), the longest {1e3 * job.longest:.1f}")
    return job.normal


def run_jobs(run, mesh):
    logs = Logs(mesh)
    gap = math.ceil((run.pause + CALM_SECONDS) / normal_round(mesh, logs))
    # As members of a view are ordered.
    by_id = sorted(mesh.ask("node", "list")["workers"],
                   key=lambda each: each["id"])
    planner = Planner([each["name"] for each in by_id], run.times)
    most = math.ceil(len(PHASES) * run.times / MEMBERS) + MOST_JOBS_EXTRA
    jobs = []
    while not planner.done() and len(jobs) < most:
        kills, steps = planner.next(gap)
        job = submit(mesh, steps, kills)
        mesh.await_all_idle()
        logs.read()
        lives = {(life.worker, life.number): life for life in mesh.lives()}
        for kill in kills:
            find_death(job, kill, logs)
        measure_stalls(job, round_ends(logs.applied[job.number]))
        for kill in kills:
            if kill.life is not None:
                find_return(job, kill, logs, lives)
        planner.count(kills)
        run.wrong += check_job(job, logs)
        jobs.append(job)
        show_job(job)
    if not planner.done():
        run.wrong.append(f"after {len(jobs)} jobs there were too few kills: "
                         f"{planner.missing} are missing")
    return jobs


# --- what came of it ---------------------------------------------------------


def text_of(value, digits=0):
    return "-" if value is None else f"{value:.{digits}f}"


def show_job(job):
    print(f"job {job.number}: {job.shown['steps']} steps, median round "
          f"{1e3 * job.normal:.1f} ms, longest {1e3 * job.longest:.1f} ms")
    for kill in job.kills:
        say(f"  step {kill.step + 1:5} {kill.worker} {kill.phase:10} "
            f"stall {text_of(kill.stall_ms):>5} ms, taken over in "
            f"{text_of(kill.takeover_ms):>5} ms, exec to registration "
            f"{text_of(kill.exec_to_registration, 2)} s, to the view "
            f"{text_of(kill.registration_to_view, 2)} s, to its first part "
            f"{text_of(kill.registration_to_part, 2)} s"
            f"{', does not count: ' if kill.why_not else ''}{kill.why_not}")


TIMES = {"stall_ms": ("stall ms", 0), "takeover_ms": ("takeover ms", 0),
         "exec_to_registration": ("exec to reg. s", 2),
         "registration_to_view": ("reg. to view s", 2),
         "registration_to_part": ("reg. to part s", 2)}


def show(kills):
    print(f"\n{'phase':12}{'kills':>6}" +
          "".join(f"  {title:^16}" for title, _ in TIMES.values()))
    print(" " * 18 + f"  {'median':>8}{'most':>8}" * len(TIMES))
    for phase in (*PHASES, "all"):
        own = [kill for kill in kills if phase in (kill.phase, "all")]
        print(f"{phase:12}{len(own):6}" + "".join(
            "  " + median_and_most([getattr(kill, name) for kill in own], digits)
            for name, (_, digits) in TIMES.items()))


def judge(kills):
    """What is asked of the times and does not hold, a sentence each."""
    wrong = []
    for phase in PHASES:
        stalls = [kill.stall_ms for kill in kills
                  if kill.phase == phase and kill.stall_ms is not None]
        if not stalls:
            wrong.append(f"{phase}: no stall could be measured")
        elif statistics.median(stalls) > MOST_STALL_MS:
            wrong.append(f"{phase}: the median stall is "
                         f"{statistics.median(stalls):.0f} ms, asked "
                         f"{MOST_STALL_MS}")
    for kill in kills:
        back = kill.registration_to_part
        if back is None:
            wrong.append(f"{kill.worker}, killed {kill.phase} in step "
                         f"{kill.step + 1}, did not take part again")
        elif back > MOST_RETURN_SECONDS:
            wrong.append(f"{kill.worker}, killed {kill.phase} in step "
                         f"{kill.step + 1}, took {back:.2f} s from its "
                         f"registration, asked {MOST_RETURN_SECONDS}")
    return wrong


OPTIONS = {"times": 20, "pause": 2.0}


def main(run):
    # Each round's line has the hash of the state behind it.
    with run.restarting_mesh(MEMBERS, pause=run.pause,
                             log_level="debug") as mesh:
        jobs = run_jobs(run, mesh)
        kills = [kill for job in jobs for kill in job.kills if not kill.why_not]
        diverged = sum(" states after step " in each for each in run.wrong)
        run.wrong += judge(kills)
    show(kills)
    normal = [1e3 * job.normal for job in jobs]
    rounds = sum(job.shown["step"] for job in jobs)
    print(f"\nnormal rounds: medians of jobs {min(normal):.1f} to "
          f"{max(normal):.1f} ms; the longest round of all "
          f"{1e3 * max(job.longest for job in jobs):.0f} ms; {rounds} rounds, "
          f"{diverged} after which states differed")
