"""What a job pays for being safe: the same one with and without, turn about.

Parts:
  snapshots  four workers on this box, steps of about 20 ms: a floor that came
             with heartbeats only would hold up every snapshot
  snapshots-bed  DeiT-S on four emulated machines at 1 Gbit/s
  tls        two meshes, one with TLS, of which one trains at a time.  A step of
             fashion-mnist is little but frames on one box: 10 MB in 27 ms;
             vit-small has frames of 1 MiB and more

A turn is a job of either kind; which is first alternates.  The middle three
quarters of a job's steps count.  Asked: the median of the turns' ratios is at
most 1.03 for snapshots, 1.10 for TLS.
"""

from nightly import middle_step_seconds

WORKERS = 4
SNAPSHOTS = {
    "loopback": ("deploy/jobs/fashion-mnist.yaml", "train.steps=400",
                 "train.evaluate_every=0", "train.optimizer.name=adamw",
                 "train.learning_rate.base=0.001"),
    "bed": ("deploy/jobs/deit-small.yaml", "train.steps=24"),
}
TLS = (("deploy/jobs/fashion-mnist.yaml", "train.steps=400",
        "train.evaluate_every=0"),
       ("deploy/jobs/vit-small.yaml", "train.batch=256",
        "train.micro_batch=64", "train.evaluate_every=0", "train.steps=150"))


def snapshots(run, part="loopback"):
    with run.bed() if part == "bed" else run.mesh(WORKERS) as asked:
        ratio = run.compare(
            f"snapshots, {part}", run.turns, (10, 0),
            lambda every: middle_step_seconds(asked.train(
                *SNAPSHOTS[part], f"pipeline.snapshot_every={every}")))
    run.at_most(f"snapshots, {part}", 1.03, ratio)


def snapshots_bed(run):
    run.needs(root=True)
    snapshots(run, "bed")


def tls(run):
    with run.restarting_mesh(WORKERS) as plain, \
            run.restarting_mesh(WORKERS, tls=True) as encrypted:
        for job in TLS:
            shown = []

            def train(mesh, job=job, shown=shown):
                shown.append(mesh.train(*job))
                run.same(f"{job[0]}, the same in each way", shown[-1], {
                    "attempt": 1,
                    "weights_sha256": shown[0]["weights_sha256"]})
                return middle_step_seconds(shown[-1])
            ratio = run.compare(f"tls, {job[0]}", run.turns,
                                (encrypted, plain), train)
            run.at_most(f"tls, {job[0]}", 1.10, ratio)


PARTS = {"snapshots": snapshots, "snapshots-bed": snapshots_bed, "tls": tls}
OPTIONS = {"turns": 8, "name": "snapshots"}
