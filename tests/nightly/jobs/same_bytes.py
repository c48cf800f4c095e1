"""Number of stages and schedule do not change a bit of the weights.

Over real processes, for 60 steps, both models: {1, 2, 3, 4} stages x every
synchronous schedule end with one hash and one loss curve.
"""

from nightly import say

OPTIONS = {"steps": 60}
SCHEDULES = ("gpipe", "1f1b", "zero-bubble", "interleaved-1f1b")
# Dropout, AdamW and clipping are switched on in the second file.
JOBS = {"lenet": "deploy/jobs/fashion-mnist.yaml",
        "vit": "deploy/jobs/vit-small.yaml"}


def outcome(mesh, file, *sets):
    job = mesh.train(file, *sets)
    curve = [(point["step"], point["value"]) for point in job["loss"]]
    if job["step"] != job["steps"] or len(curve) != job["steps"]:
        raise RuntimeError(f"job {job['id']} did {job['step']} steps, "
                           f"recorded {len(curve)}, need {job['steps']}")
    return job["weights_sha256"], curve


def main(run):
    with run.mesh(4) as mesh:
        for model, file in JOBS.items():
            first = None
            for stages in (1, 2, 3, 4):
                for schedule in SCHEDULES:
                    found = outcome(mesh, file, f"pipeline.stages={stages}",
                                    f"pipeline.schedule={schedule}",
                                    f"train.steps={run.steps}")
                    first = first or found
                    case = f"{model:6} stages={stages} {schedule:16}"
                    say(case, found[0])
                    if found[0] != first[0]:
                        run.wrong.append(f"{case} other weights")
                    if found[1] != first[1]:
                        at = next(a[0] for a, b in zip(found[1], first[1])
                                  if a != b)
                        run.wrong.append(f"{case} other loss from step {at}")
