"""Who may submit a job reads, through a worker, what its --data-dir allows and
nothing else: over plain connections and over TLS."""

import json
import shutil
from pathlib import Path

from mesh_case import ENDLESS, REFUSED, ROOT, DaemonsCase
from mesh import tensors_of

SCRIPTS = ROOT / "tests" / "data" / "script"


def infer(path):
    return f"""
kind: infer
model: {{name: gpt, depth: 1, width: 16, heads: 2}}
data: {{name: text, path: {path}, block: 16, test_fraction: 1}}
infer: {{micro_batch: 4}}
"""


class AccessCase(DaemonsCase):
    light = True
    tls = True

    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        self.data.mkdir()
        self.secret = self.folder / "secret.txt"
        self.secret.write_text("do not tell anybody " * 20)
        self.start_coordinator()

    def start_reader(self, name, *options):
        """A worker with these options; it is idle."""
        config = self.folder / f"{name}.toml"
        if self.tls:
            self.good(self.join(name, self.token()))
        else:
            (self.folder / name / "tls").mkdir(parents=True)
            (self.folder / name / "tls/key.pem").write_text(
                "a key of old times " * 20)
            config.write_text("")
        before = len(self.workers())
        worker = self.start_worker(name, "--coordinator", self.address,
                                   "--machine-id", name, "--config", config,
                                   *options)
        self.await_idle(before + 1)
        return worker

    def refused(self, job, *says):
        """A job that wants what it may not read."""
        self.ended(self.try_submit(job), 2, "jobs may not read it",
                   "--data-dir", *says)


class Access(AccessCase):
    def test_a_job_reads_below_the_data_dirs_and_never_the_state(self):
        second = self.folder / "second"
        second.mkdir()
        # The worker's state is below a folder that jobs may read.
        self.start_reader("w1", "--data-dir", self.data, "--data-dir",
                          f"{second}:{self.folder / 'w1'}")
        for folder in (self.data, second):
            shutil.copy(self.secret, folder / "text.txt")
            self.good(self.try_submit(infer(folder / "text.txt")))
        predictions = self.export()
        self.assertEqual(set(tensors_of(predictions)["labels"]), {-100},
                         "they would be the text")
        self.assertNotIn(b"t\0\0\0\0\0\0\0e\0\0\0\0\0\0\0l\0\0\0\0\0\0\0l",
                         Path(predictions).read_bytes())

        key = self.folder / "w1/tls/key.pem"
        (self.data / "link.txt").symlink_to(key)
        (self.data / "folder").symlink_to(self.folder)
        (self.data / ".hidden").mkdir()
        shutil.copy(self.secret, self.data / ".hidden/text.txt")
        for path in (key, self.data / "link.txt",
                     self.data / "folder/w1/tls/key.pem"):
            self.ended(self.try_submit(infer(path)), 2, "own state")
        for path in (self.secret, self.folder / "missing.txt", "/etc/passwd",
                     self.data / "folder/secret.txt",
                     self.data / "../secret.txt",
                     self.data / ".hidden/text.txt"):
            self.refused(infer(path))

        # Without the client's question the worker itself says it.
        link = self.data / "later.txt"
        shutil.copy(self.secret, link)
        self.good(self.client("node", "drain", "w1"))
        self.detach(infer(link))
        link.unlink()
        link.symlink_to(self.secret)
        self.client("node", "undrain", "w1")

        self.ended(self.client("job", "wait", "last"), 1)
        self.has(self.job()["why"], "jobs may not read it")

    def test_every_path_of_a_job_is_judged(self):
        self.start_reader("w1", "--data-dir", self.data)
        lenet = "model: {name: lenet}\n"
        synthetic = "data: {name: synthetic}\n"
        train = "train: {steps: 2, batch: 8, micro_batch: 4}\n"
        secret, folder = self.secret, self.folder
        for job in (
                f"model: {{name: lenet, weights: {secret}}}\n{synthetic}{train}",
                f"model: {{name: script, file: {secret}}}\n{synthetic}{train}",
                f"{lenet}{synthetic}train: {{steps: 2, batch: 8, micro_batch: 4,"
                f" distill: {{weights: {secret}}}}}\n",
                f"{lenet}data: {{name: imagefolder, path: {folder}}}\n{train}",
                f"{lenet}data: {{name: cifar10, path: {folder}}}\n{train}",
                f"{lenet}data: {{name: idx, path: {folder}}}\n{train}",
                "model: {name: gpt, depth: 1, width: 16, heads: 2}\n"
                f"data: {{name: text, tokens: uint16, path: {secret}}}\n{train}",
                "model: {name: bert, depth: 1, width: 16, heads: 2}\n"
                f"data: {{name: text-labels, path: {secret}}}\n{train}"):
            with self.subTest(job=job):
                self.refused(job + "pipeline: {stages: 1}\n")

    def test_a_worker_without_the_option_reads_public_data_alone(self):
        self.start_reader("w1")
        self.refused(infer(self.secret), "not below /usr/share/datasets")
        shown = self.ask("node", "show", "w1")
        self.assertEqual(shown["data_dirs"], ["/usr/share/datasets"])

        doctor = self.client("doctor", "-o", "json")
        found = {each["check"]: each["what"]
                 for each in json.loads(doctor.stdout)["checks"]}
        self.has(found["jobs may read"], "/usr/share/datasets on w1")


class Scripts(AccessCase):
    light = False

    def test_a_worker_may_forbid_them(self):
        self.needs_torch()
        shutil.copy(SCRIPTS / "scripted.pt", self.data)
        job = ("model: {name: script, file: " f"{self.data / 'scripted.pt'}}}\n"
               "data: {name: synthetic, shape: [2, 4, 4], classes: 3,\n"
               "       train_samples: 64, test_samples: 32}\n"
               "train: {steps: 2, batch: 16, micro_batch: 4}\n")
        reads = ("--data-dir", self.data)
        self.start_reader("w1", *reads, "--no-scripts")
        self.assertFalse(self.ask("node", "show", "w1")["scripts"])
        refused = self.try_submit(job)
        self.assertNotEqual(refused.returncode, 0)
        self.has(refused.stderr, "--no-scripts")
        asked = self.client("profile", "--model", "script", "--set",
                            f"model.file={self.data / 'scripted.pt'}",
                            "--workers", "w1")
        self.assertNotEqual(asked.returncode, 0)

        allows = self.start_reader("w2", *reads)
        self.assertEqual([each["name"] for each in self.submit(job)["workers"]],
                         ["w2"])
        self.detach(job, ENDLESS)
        self.await_step_after(0)
        allows.kill()
        self.soon(lambda: "--no-scripts" in self.job()["why"], self.job)


class AccessWithoutTls(Access):
    shared = True  # with the tests of another class, as one entry
    tls = False

    def test_the_name_of_a_live_worker_is_not_taken(self):
        self.start_reader("w1")
        before = self.ask("node", "show", "w1")["pid"]
        self.ends(self.start_worker("w1", "--coordinator", self.address,
                                    "--machine-id", "other",
                                    state=self.folder / "other"), REFUSED,
                  "--name")
        self.assertEqual(self.ask("node", "show", "w1")["pid"], before)
