"""What a job reads: weights and data that are not what they seem are refused
before it is queued, and what is left out of them is said."""

import json
from pathlib import Path

from mesh_case import MeshCase, png

VIT = """
model: {name: vit, depth: 1, width: 16, heads: 4}
data: {name: synthetic, train_samples: 64, test_samples: 32}
train: {steps: 4, batch: 16, micro_batch: 4}
"""


def without_metadata(path):
    """The file as another program would have written it."""
    data = Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    header["__metadata__"] = {"format": "pt"}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    foreign = path + ".foreign"
    Path(foreign).write_bytes(len(text).to_bytes(8, "little") + text
                              + data[8 + length:])
    return foreign


class Inputs(MeshCase):
    shared = 1

    def test_data_that_changed_is_not_gone_on_from(self):
        lines = [f"{i % 2}\tnumber {i}\n" for i in range(200)]
        text = self.write("".join(lines), "texts.txt")
        self.detach(f"""
model: {{name: bert, depth: 1, width: 8, heads: 2}}
data: {{name: text-labels, path: {text}, block: 16}}
train: {{steps: 1000000, batch: 8, micro_batch: 4, checkpoint_every: 5,
         evaluate_every: 0}}
""")
        self.await_checkpoint()
        self.stop()
        step = self.job()["checkpoints"][-1]
        lines[101] = "0\tnumber 101\n"  # one label, between any samples
        self.write("".join(lines), "texts.txt")

        more = (self.number, f"train.steps={step + 2}")
        self.ended(self.resume(*more), 2, f"data.path {text}",
                   "nothing was submitted", "--accept-changed-data")
        self.good(self.resume(*more, flags=("--accept-changed-data",)))

    def refuse(self, job, *sets, says):
        """Refused by a dry run and a submission; nothing is queued."""
        before = self.jobs()
        for flags in (("--dry-run",), ()):
            self.ended(self.try_submit(job, *sets, flags=flags), 2,
                       "nothing was submitted", *says)
        self.assertEqual(self.jobs(), before)

    def test_weights_say_what_they_were_made_with(self):
        self.submit(VIT)
        weights = self.export()
        made = self.ask("model", "inspect", weights)["metadata"]
        self.assertEqual(made["model.heads"], "4")
        self.assertIn("gelu", made["operations"])

        self.submit(VIT, f"model.weights={weights}")
        for kind in ("train", "infer"):
            self.refuse(VIT, f"model.weights={weights}", "model.heads=8",
                        f"kind={kind}",
                        says=["model.heads 4, and the job has 8"])
        self.ended(self.try_submit(VIT, "model.heads=8", "model.weights="
                                   f"{without_metadata(weights)}"), 0,
                   "does not say with what it was made", "model.heads 8")
        self.has(self.events("last"), "does not say with what it was made")
        self.ended(self.client(
            "model", "prune", weights, "--model", "vit", "--set",
            "model.depth=1", "--set", "model.width=16", "--set",
            "model.heads=2", "--target-macs", "0.5", "-o",
            self.folder / "pruned.safetensors"), 2,
                   "model.heads 4, and the job has 2")

    def test_what_is_no_weights_or_does_not_fit_is_named_before_the_queue(self):
        pointer = self.write("version https://git-lfs.github.com/spec/v1\n"
                             "oid sha256:0\nsize 1\n", "w.safetensors")
        self.refuse(VIT, f"model.weights={pointer}",
                    says=["a Git LFS pointer", pointer])
        self.submit(VIT)
        weights = self.export()
        self.refuse(VIT, f"model.weights={weights}", "data.classes=7",
                    says=["class head", "model.reset_head: true"])
        self.submit(VIT, f"model.weights={weights}", "data.classes=7",
                    "model.reset_head=true")

    def test_what_is_left_out_is_said_at_submit_and_by_the_job(self):
        for name in ("cat", "dog"):
            for i in range(4):
                path = self.folder / "pictures" / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(png(8, 8, lambda *_: (40 * i,)))
        (self.folder / "pictures" / "dog" / "a.webp").write_text("RIFF")
        job = f"""
model: {{name: mlp, hidden: [8]}}
data: {{name: imagefolder, path: {self.folder}/pictures, shape: [1, 8, 8],
        classes: 2}}
train: {{steps: 2, batch: 4, micro_batch: 2}}
"""
        submitted = self.try_submit(job)

        note = "1 file is not used, for example"
        self.ended(submitted, 0, note, "a.webp")
        self.has(self.events("last"), note)
        self.has(self.client("job", "show", "last").stdout, note)
        self.assertIn(note, self.job("last")["notes"][0])
        weights = self.export()
        self.assertEqual(self.ask("model", "inspect",
                                  weights)["metadata"]["classes"], "cat\ndog")
        (self.folder / "pictures" / "cat").rename(
            self.folder / "pictures" / "eel")
        self.refuse(job, f"model.weights={weights}", "kind=infer",
                    says=["number 0 is 'cat' there, and 'dog' here"])
