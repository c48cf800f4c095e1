"""What ways of computing and sending one job change of its result, and cost.

Parts:
  stages     {1, 2, 3, 4} stages x every synchronous schedule, for each model:
             one hash of the weights and one loss curve
  precision  fp32, bf16, and activations computed once more: time of a step, peak
             memory of the fullest worker beside what the planner predicted,
             accuracy.  A way of keeping activations changes no byte of the
             weights and saves memory; bf16 costs two points of accuracy at most
  codecs     each codec over four stages, three boundaries: at most one point of
             accuracy less than fp32

Times are for the reader: other work on the machine moves them.
"""

import itertools

from nightly import say

FASHION_MNIST = "deploy/jobs/fashion-mnist.yaml"
JOBS = {
    "lenet": (FASHION_MNIST,),
    # Dropout, AdamW and clipping; wide enough for products to count.
    "vit": ("deploy/jobs/vit-small.yaml", "model.width=192", "model.heads=3",
            "train.learning_rate.warmup_steps=50"),
}
SCHEDULES = ("gpipe", "1f1b", "zero-bubble", "interleaved-1f1b")
STAGE = "train.activation_checkpointing=stage"
VARIANTS = {
    "fp32": (),
    "bf16": ("precision=bf16",),
    "stage": (STAGE,),
    "every-2": ("train.activation_checkpointing=every-2",),
    "bf16, stage": ("precision=bf16", STAGE),
}


def stages(run):
    with run.mesh(4) as mesh:
        for model in run.model:
            first = None
            for count, schedule in itertools.product((1, 2, 3, 4), SCHEDULES):
                job = mesh.train(JOBS[model][0], f"pipeline.stages={count}",
                                 f"pipeline.schedule={schedule}",
                                 f"train.steps={run.steps}")
                job["curve"] = [(point["step"], point["value"])
                                for point in job["loss"]]
                first = first or job
                case = f"{model:6} stages={count} {schedule:16}"
                say(case, job["weights_sha256"], len(job["curve"]), "steps")
                run.same(case, job, {
                    "step": run.steps, "curve": first["curve"],
                    "weights_sha256": first["weights_sha256"]})


def of_fullest_worker(job, what):
    return max(worker[f"{what}_memory_bytes"]
               for worker in job["workers"]) / 2**20


def table(run, mesh, model):
    print(f"\n{model}, {run.steps} steps, 2 stages, gpipe\n"
          f"{'':12} {'ms a step':>10} {'of fp32':>8} {'peak MiB':>9} "
          f"{'planned':>8} {'accuracy':>9}  weights")
    jobs = {}
    for name, more in VARIANTS.items():
        job = jobs[name] = mesh.train(
            *JOBS[model], *more, f"train.steps={run.steps}",
            "pipeline.stages=2", "pipeline.schedule=gpipe")
        seconds = job["measured_step_seconds"]
        say(f"{name:12} {1e3 * seconds:10.2f} "
            f"{seconds / jobs['fp32']['measured_step_seconds']:8.2f} "
            f"{of_fullest_worker(job, 'peak'):9.1f} "
            f"{of_fullest_worker(job, 'predicted'):8.1f} "
            f"{job['test_accuracy']:9.4f}  {job['weights_sha256'][:12]}")
        run.same(f"{model}, {name}", job, {"step": run.steps})
    for name, than in (("stage", "fp32"), ("every-2", "fp32"),
                       ("bf16, stage", "bf16")):
        run.same(f"{model}, {name}", jobs[name],
                 {"weights_sha256": jobs[than]["weights_sha256"]})
        if (of_fullest_worker(jobs[name], "peak") >=
                of_fullest_worker(jobs[than], "peak")):
            run.wrong.append(f"{model}: {name} takes as much memory as {than}")
    run.at_most(f"{model}: accuracy that bf16 costs", 0.02,
                jobs["fp32"]["test_accuracy"] - jobs["bf16"]["test_accuracy"])


def precision(run):
    with run.mesh(2) as mesh:
        for model in run.model:
            table(run, mesh, model)


def codecs(run):
    accuracy = {}
    with run.mesh(4) as mesh:
        for codec in ("fp32", "bf16", "fp16", "int8"):
            job = mesh.train(FASHION_MNIST, "pipeline.stages=4",
                             f"pipeline.codec={codec}")
            accuracy[codec] = job["test_accuracy"]
            say(f"{codec}  test accuracy {accuracy[codec]:.4f}")
            run.at_most(f"accuracy that {codec} costs", 0.01,
                        accuracy["fp32"] - accuracy[codec])


PARTS = {"stages": stages, "precision": precision, "codecs": codecs}
OPTIONS = {"steps": 300, "model": JOBS}
