"""What each rule of aggregation withstands, on real processes.

Nine members train a multilayer perceptron on Fashion-MNIST: all honest; two,
then four of them sending ten times their gradient with the wrong sign; one
sending NaN.  One table of test accuracies after the same steps, and what must
hold: `mean` collapses; with two liars at least four rules are within 1.5 points
of the honest run; with four zeno is, and the table says whose assumptions are
violated; a NaN sender harms nobody.

Parts have 128 samples: rules that judge each coordinate for itself lose honest
values too, and the more the noisier these are.  The rate falls to a hundredth
by the end, since the noise of the last steps would cost as much as most rules
do.
"""

import json

from mesh import sets_of
from nightly import say

OPTIONS = {"steps": 600}
MEMBERS = 9
RULES = ("mean", "median", "trimmed-mean", "krum", "suspicion", "zeno")
JOB = "deploy/jobs/bad-members.yaml"
# Instead of what the job file says.
TRAINING = ("model.name=mlp", "train.batch=1152", "train.micro_batch=128",
            "train.learning_rate.base=0.1",
            "train.learning_rate.schedule=cosine",
            "train.learning_rate.minimum=0.001")
MOST_LOST = 0.015
COLLAPSED = 0.2  # so far below the honest run
GOOD_RULES = 4   # of those that withstand two liars
JOB_FAILED = 1   # exit code

# Of n members each rule withstands k liars if n >= line(k): core/round/README.
NEEDED = {"median": lambda k: 2 * k + 1, "trimmed-mean": lambda k: 2 * k + 1,
          "krum": lambda k: 2 * k + 3, "suspicion": lambda k: 2 * k + 1,
          "zeno": lambda k: k + 1}


def withstands(rule, liars):
    if liars == 0:
        return True
    return rule in NEEDED and MEMBERS >= NEEDED[rule](liars)


def faults(kind, count):
    """The value of --set faults=, for the last `count` members."""
    return json.dumps([{"worker": f"w{MEMBERS - i}", "step": 0, "steps": 0,
                        "kind": kind, "scale": 10} for i in range(count)])


def disturbances(mesh, job):
    """What makes a run unlike the others, for people; empty: nothing."""
    notes = [event["text"] for event in mesh.events(job["id"])
             if event["kind"] in ("lost", "evicted")]
    if job["skipped_steps"]:
        notes.append(f"{job['skipped_steps']} of {job['steps']} steps changed "
                     "nothing")
    return "; ".join(notes)


def train(mesh, rule, steps, k, script, min_parts=MEMBERS):
    """The test accuracy, 0 where the job failed; why it did, or what else was
    out of the ordinary.

    All parts are waited for: a round that closed without an honest one would
    have more liars among fewer than the table says.
    """
    selected = (f"aggregation.selected={max(1, MEMBERS - k - 2)}",)
    result = mesh.run("job", "submit", JOB, *sets_of((
        f"train.steps={steps}", f"aggregation.rule={rule}",
        f"aggregation.k={k}", f"aggregation.min_parts={min_parts}",
        f"faults={script}", *TRAINING,
        *(selected if rule == "krum" else ()))), "-o", "json")
    if result.returncode not in (0, JOB_FAILED):
        raise RuntimeError(f"{rule}: submit ended with {result.returncode}: "
                           f"{result.stderr.strip()}")
    job = json.loads(result.stdout)
    if result.returncode == JOB_FAILED:
        return 0.0, f"the job failed: {job['why']}"
    return job["test_accuracy"], disturbances(mesh, job)


def show(table, honest):
    print(f"\nhonest, mean: {honest:.4f} after the same steps\n")
    columns = ("honest", "2 liars", "4 liars", "NaN")
    print(f"{'rule':14}" + "".join(f"{name:>27}" for name in columns))
    for rule in RULES:
        cells = []
        for name, liars in zip(columns, (0, 2, 4, 0)):
            accuracy, _ = table[rule, name]
            note = "" if withstands(rule, liars) else " violated"
            cells.append(f"{accuracy:.4f} ({accuracy - honest:+.4f}){note}")
        print(f"{rule:14}" + "".join(f"{cell:>27}" for cell in cells))
    print("\nviolated: the rule's source promises nothing for so many liars of "
          f"{MEMBERS}")
    for (rule, name), (_, why) in table.items():
        if why:
            print(f"{rule}, {name}: {why}")


def judge(table, honest):
    """All that does not hold, a sentence each."""
    wrong = []

    def lost(rule, column):
        return honest - table[rule, column][0]

    if honest < 0.5:
        wrong.append(f"the honest run reached only {honest:.4f}")
    for column in ("2 liars", "4 liars"):
        if lost("mean", column) < COLLAPSED:
            wrong.append(f"mean does not collapse with {column}")
    good = [rule for rule in RULES if lost(rule, "2 liars") <= MOST_LOST]
    if len(good) < GOOD_RULES:
        wrong.append(f"with 2 liars only {', '.join(good) or 'no rule'} are "
                     f"within {MOST_LOST} of the honest run")
    if lost("zeno", "4 liars") > MOST_LOST:
        wrong.append("zeno does not hold with 4 liars")
    for rule in RULES:
        # Beside the rule's own honest run: what the rule costs is no harm.
        if lost(rule, "NaN") - lost(rule, "honest") > MOST_LOST:
            wrong.append(f"a NaN sender harms {rule}")
    return wrong


def main(run):
    table = {}
    with run.mesh(MEMBERS) as mesh:
        honest, why = train(mesh, "mean", run.steps, 0, "[]")
        say(f"honest  {honest:.4f}{'  ' if why else ''}{why}")
        for rule in RULES:
            for name, kind, count in (("honest", "sign-flip", 0),
                                      ("2 liars", "sign-flip", 2),
                                      ("4 liars", "sign-flip", 4),
                                      ("NaN", "nan", 1)):
                k = 0 if rule == "mean" else count
                # A part with NaN in it is refused, and so never there.
                parts = MEMBERS - (count if kind == "nan" else 0)
                table[rule, name] = train(mesh, rule, run.steps, k,
                                          faults(kind, count), parts)
                accuracy, why = table[rule, name]
                say(f"{rule}, {name}: {accuracy:.4f}{'  ' if why else ''}{why}")
    show(table, honest)
    run.wrong += judge(table, honest)
