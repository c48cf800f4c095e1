#!/usr/bin/env python3
"""What a job reads: weights and data that are not what they seem are refused
before it is queued, and what is left out of them is said."""

import json
import struct
import zlib
from pathlib import Path

from mesh_case import MeshCase, eventually, main

VIT = """
model: {name: vit, depth: 1, width: 16, heads: 4}
data: {name: synthetic, train_samples: 64, test_samples: 32}
train: {steps: 4, batch: 16, micro_batch: 4}
"""


def png(grey):
    """A picture of 8 x 8 pixels."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(
            ">I", zlib.crc32(body))
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress((b"\0" + bytes([grey]) * 8) * 8))
            + chunk(b"IEND", b""))


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
    beside_others = True

    def setUp(self):
        super().setUp()
        self.start(1)

    def refuse(self, file, *sets, says):
        """Refused by a dry run and a submission; nothing is queued."""
        before = len(self.ask("job", "list")["jobs"])
        for flags in (("--dry-run",), ()):
            refused = self.try_submit(file, *sets, flags=flags)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.has(refused.stderr, "nothing was submitted", *says)
        self.assertEqual(len(self.ask("job", "list")["jobs"]), before)

    def test_weights_say_what_they_were_made_with(self):
        job = self.write(VIT)
        self.submit(job)
        weights = self.export()
        made = self.ask("model", "inspect", weights)["metadata"]
        self.assertEqual(made["model.heads"], "4")
        self.assertIn("gelu", made["operations"])

        self.submit(job, f"model.weights={weights}")
        for kind in ("train", "infer"):
            self.refuse(job, f"model.weights={weights}", "model.heads=8",
                        f"kind={kind}",
                        says=["model.heads 4, and the job has 8"])
        foreign = self.try_submit(
            job, f"model.weights={without_metadata(weights)}", "model.heads=8")
        self.assertEqual(foreign.returncode, 0, foreign.stderr)
        self.has(foreign.stderr, "does not say with what it was made",
                 "model.heads 8")
        self.has(self.events("last"), "does not say with what it was made")
        pruned = self.client("model", "prune", weights, "--model", "vit",
                             "--set", "model.depth=1", "--set",
                             "model.width=16", "--set", "model.heads=2",
                             "--target-macs", "0.5", "-o",
                             str(self.folder / "pruned.safetensors"))
        self.assertEqual(pruned.returncode, 2, pruned.stderr)
        self.has(pruned.stderr, "model.heads 4, and the job has 2")

    def test_what_is_no_weights_or_does_not_fit_is_named_before_the_queue(self):
        job = self.write(VIT)
        pointer = self.write("version https://git-lfs.github.com/spec/v1\n"
                             "oid sha256:0\nsize 1\n", "w.safetensors")
        self.refuse(job, f"model.weights={pointer}",
                    says=["a Git LFS pointer", pointer])
        self.submit(job)
        weights = self.export()
        self.refuse(job, f"model.weights={weights}", "data.classes=7",
                    says=["class head", "model.reset_head: true"])

    def test_data_that_changed_is_not_gone_on_from(self):
        lines = [f"{i % 2}\tnumber {i}\n" for i in range(200)]
        text = self.write("".join(lines), "texts.txt")
        job = self.write(f"""
model: {{name: bert, depth: 1, width: 8, heads: 2}}
data: {{name: text-labels, path: {text}, block: 16}}
train: {{steps: 1000000, batch: 8, micro_batch: 4, checkpoint_every: 5,
         evaluate_every: 0}}
""")
        self.detach(job)
        self.assertTrue(eventually(lambda: self.job()["checkpoints"], 60),
                        self.events())
        self.stop()
        step = self.job()["checkpoints"][-1]
        lines[101] = "0\tnumber 101\n"  # one label, between any samples
        self.write("".join(lines), "texts.txt")

        resume = ("job", "resume", "1", "--set", f"train.steps={step + 2}")
        refused = self.client(*resume)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.has(refused.stderr, f"data.path {text}", "nothing was submitted",
                 "--accept-changed-data")
        accepted = self.client(*resume, "--accept-changed-data")
        self.assertEqual(accepted.returncode, 0, accepted.stderr)
        self.write("".join(lines).replace("0\tnumber 0\n", "1\tnumber 0\n"),
                   "texts.txt")
        self.assertEqual(self.client("job", "resume", "2", "--set",
                                     f"train.steps={step + 4}").returncode, 2)

    def test_what_is_left_out_is_said_at_submit_and_by_the_job(self):
        for name in ("cat", "dog"):
            for i in range(4):
                path = self.folder / "pictures" / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(png(40 * i))
        (self.folder / "pictures" / "dog" / "a.webp").write_text("RIFF")
        job = self.write(f"""
model: {{name: mlp, hidden: [8]}}
data: {{name: imagefolder, path: {self.folder}/pictures, shape: [1, 8, 8],
        classes: 2}}
train: {{steps: 2, batch: 4, micro_batch: 2}}
""")
        submitted = self.try_submit(job)

        note = "1 file is not used, for example"
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        self.has(submitted.stderr, note, "a.webp")
        self.has(self.events("last"), note)
        self.has(self.client("job", "show", "last").stdout, note)
        self.assertIn(note, self.job("last")["notes"][0])
        weights = self.export()
        self.assertEqual(
            self.ask("model", "inspect", weights)["metadata"]["classes"],
            "cat\ndog")
        (self.folder / "pictures" / "cat").rename(
            self.folder / "pictures" / "eel")
        self.refuse(job, f"model.weights={weights}", "kind=infer",
                    says=["number 0 is 'cat' there, and 'dog' here"])


if __name__ == "__main__":
    main()
