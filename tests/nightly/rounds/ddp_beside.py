"""A data-parallel step with default settings, beside PyTorch's DDP over Gloo.

Parts:
  bed       four machines of 0.4 core, links of 1 Gbit/s
  loopback  four processes on this box

Four members, 32 samples and one compute thread each.  A turn is a job and as
many steps of DDP; which is first alternates.  The median of the turns' ratios
counts.  DDP is that of python3-torch.
"""

import statistics
from pathlib import Path

from bed import NODES
from nightly import middle_step_seconds, say
from rounds.round_speed import Place, gloo_group

JOB = """
data: {{name: synthetic, train_samples: 4096}}
train:
  {{steps: {steps}, batch: 128, micro_batch: 32, evaluate_every: 0,
   optimizer: {{name: sgd, momentum: 0.9}}, learning_rate: {{base: 0.01}}}}
aggregation: {{mode: rolling, codec: {codec}, shards: {shards}}}
model: {model}
"""
MLP = "{name: mlp, hidden: [2048, 2048]}"
VIT = "{name: vit, depth: 4, width: 64, heads: 4, patch: 7}"
# Name, DDP's model, ours, codec, the most of DDP's step by part.
WAYS = (("lenet", "lenet", "{name: lenet}", "fp32",
         {"bed": 0.90, "loopback": 0.85}),
        ("mlp", "mlp", MLP, "fp32", {"bed": 0.55, "loopback": 0.85}),
        ("mlp-bf16", "mlp", MLP, "bf16", {"bed": 0.40}),
        ("vit", "vit", VIT, "fp32", {"bed": 0.90, "loopback": 0.85}))
STEPS = {"lenet": 200, "mlp": 40, "vit": 120}


def job_file(folder, model, codec, steps, shards=0):
    file = Path(folder) / "ddp_beside.yaml"
    file.write_text(JOB.format(model=model, codec=codec, steps=steps,
                               shards=shards), encoding="utf-8")
    return file


def job_seconds(asked, file):
    """Of a step, measured and predicted, by a profile of this moment."""
    asked.ask("profile", "-f", file)
    shown = asked.train(file)
    return middle_step_seconds(shown), shown["predicted_step_seconds"]


def judge_prediction(run, what, ratios):
    measured = statistics.median(ratios)
    run.at_most(f"{what}: measured / predicted", 1.15, measured)
    run.at_least(f"{what}: measured / predicted", 0.85, measured)


def predictions_by_shards(run, asked, folder, part):
    """Of the MLP, whose rounds are long."""
    if "mlp" not in run.model:
        return
    for shards in (1, 2, 4):
        what = f"{part}, mlp, {shards} shards"
        file = job_file(folder, MLP, "fp32", STEPS["mlp"] // 2, shards)
        times = [job_seconds(asked, file) for _ in range(run.turns)]
        for step, predicted in times:
            say(f"{what}: a step takes {1e3 * step:.1f} ms, predicted "
                f"{1e3 * predicted:.1f}")
        judge_prediction(run, what,
                         [step / predicted for step, predicted in times])


def compare(run, place, asked, folder, part):
    for name, model, ours, codec, most in WAYS:
        if part not in most or name not in run.model:
            continue
        what = f"{part}, {name}"
        steps = STEPS[model]
        file = job_file(folder, ours, codec, steps)
        group = gloo_group(place, model)
        predictions = []

        def measure(who, group=group, file=file, steps=steps,
                    predictions=predictions):
            if who == "ddp":
                return max(map(float, group.ask(str(steps))))
            seconds, predicted = job_seconds(asked, file)
            predictions.append(seconds / predicted)
            return seconds
        try:
            group.ask(str(steps // 4))  # warm
            ratio = run.compare(what, run.turns, ("job", "ddp"), measure)
        finally:
            group.end()
        run.at_most(f"{what}: of DDP's step", most[part], ratio)
        judge_prediction(run, what, predictions)
    predictions_by_shards(run, asked, folder, part)


OPTIONS = {"part": ("loopback", "bed"), "model": tuple(way[0] for way in WAYS),
           "turns": 5, "name": "ddp"}


def main(run):
    run.needs(root="bed" in run.part, torch=True)
    for part in run.part:
        if part == "loopback":
            with run.mesh(NODES) as mesh:
                compare(run, Place(), mesh, mesh.state, part)
        else:
            with run.bed() as bed:
                compare(run, Place(bed), bed,
                        f"/var/lib/paceline-testbed/{run.name}", part)
