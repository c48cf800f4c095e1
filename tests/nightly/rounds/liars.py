"""What each rule of aggregation withstands, on real processes.

Nine members train a multilayer perceptron on Fashion-MNIST, as one study: all
honest; two, then four of them sending ten times their gradient with the wrong
sign; one sending NaN.  What must hold of the accuracies: `mean` collapses; with
two liars at least four rules are within 1.5 points of the honest run; with four
zeno is, and the table says whose assumptions are violated; a NaN sender harms
nobody.

Parts have 128 samples: rules that judge each coordinate for itself lose honest
values too, and the more the noisier these are.  The rate falls to a hundredth
by the end, since the noise of the last steps would cost as much as most rules
do.  All parts are waited for: a round that closed without an honest one would
have more liars among fewer than the table says.
"""

import json

from beds.studies import study
from nightly import ROOT

OPTIONS = {"steps": 600}
MEMBERS = 9
RULES = ("mean", "median", "trimmed-mean", "krum", "suspicion", "zeno")
JOB = ROOT / "deploy/jobs/bad-members.yaml"
# Instead of what the job file says.
TRAINING = ("model.name=mlp", "train.batch=1152", "train.micro_batch=128",
            "train.learning_rate.base=0.1",
            "train.learning_rate.schedule=cosine",
            "train.learning_rate.minimum=0.001")
MOST_LOST = 0.015
COLLAPSED = 0.2  # so far below the honest run
GOOD_RULES = 4   # of those that withstand two liars

# Of n members each rule withstands k liars if n >= line(k): core/round/README.
NEEDED = {"mean": lambda k: MEMBERS + k, "median": lambda k: 2 * k + 1,
          "trimmed-mean": lambda k: 2 * k + 1, "krum": lambda k: 2 * k + 3,
          "suspicion": lambda k: 2 * k + 1, "zeno": lambda k: k + 1}
# Name, kind of fault, members that have it.
SITUATIONS = (("honest", "sign-flip", 0), ("2 liars", "sign-flip", 2),
              ("4 liars", "sign-flip", 4), ("NaN", "nan", 1))


def trial(rule, name, kind, count):
    """Of the study."""
    violated = kind != "nan" and MEMBERS < NEEDED[rule](count)
    faults = [{"worker": f"w{MEMBERS - i}", "step": 0, "steps": 0, "kind": kind,
               "scale": 10} for i in range(count)]
    keys = {"label": f"{rule}, {name}{', violated' if violated else ''}",
            "aggregation.rule": rule, "faults": json.dumps(faults),
            "aggregation.k": 0 if rule == "mean" else count,
            # A part with NaN in it is refused, and so never there.
            "aggregation.min_parts": MEMBERS - (kind == "nan") * count}
    if rule == "krum":
        keys["aggregation.selected"] = max(1, MEMBERS - count - 2)
    return keys


def judge(run, found):
    """found: accuracies by label."""
    honest = found["mean, honest"]

    def lost(rule, name):
        """0 accuracy where the job failed."""
        return honest - max((value for label, value in found.items()
                             if label.startswith(f"{rule}, {name}")), default=0)

    run.at_least("the honest run's accuracy", 0.5, honest)
    for name in ("2 liars", "4 liars"):
        run.at_least(f"mean, {name}: accuracy lost", COLLAPSED,
                     lost("mean", name))
    run.at_least("rules that withstand 2 liars", GOOD_RULES, sum(
        lost(rule, "2 liars") <= MOST_LOST for rule in RULES))
    run.at_most("zeno, 4 liars: accuracy lost", MOST_LOST,
                lost("zeno", "4 liars"))
    for rule in RULES:
        # Beside the rule's own honest run: what the rule costs is no harm.
        run.at_most(f"{rule}, NaN: accuracy lost", MOST_LOST,
                    lost(rule, "NaN") - lost(rule, "honest"))


def main(run):
    with run.mesh(MEMBERS) as mesh:
        file = mesh.state / "liars.yaml"
        file.write_text(json.dumps({
            "name": "liars", "base": str(JOB), "measure": ["accuracy"],
            "exclusive": True, "trials": [trial(rule, *situation)
                                          for rule in RULES
                                          for situation in SITUATIONS]}))
        found = study(mesh, file, *TRAINING, f"train.steps={run.steps}")
    judge(run, {label: row["accuracy"] for label, row in found.items()
                if "accuracy" in row})
