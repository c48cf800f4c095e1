#!/usr/bin/env python3
"""Who may submit a job reads, through a worker, what its --data-dir allows and
nothing else: over plain connections and over TLS."""

import json
import shutil
import struct
import time

from mesh_case import (ROOT, ProcessCase, Settings, eventually, free_port, main,
                       program, run)

ANY = "127.0.0.1:0"
PATIENCE = 120  # seconds, on a busy box
UNREACHABLE = 4  # the client's exit code
SCRIPTS = ROOT / "tests" / "data" / "script"
INFER_TEXT = """
kind: infer
model: {name: gpt, depth: 1, width: 16, heads: 2}
data: {name: text, path: FILE, block: 16, test_fraction: 1}
infer: {micro_batch: 4}
"""


class Access(ProcessCase):
    """A coordinator and workers that are started by hand."""
    beside_others = True

    def begin(self, tls):
        self.tls = tls
        self.state = self.folder / "coordinator"
        self.address = f"127.0.0.1:{free_port()}"
        self.data = self.folder / "data"
        self.data.mkdir()
        self.secret = self.folder / "secret.txt"
        self.secret.write_text("do not tell anybody " * 20)
        self.start_coordinator()

    def start_coordinator(self):
        self.coordinator = self.start_process(
            program("paceline-coordinator"), "--state", self.state, "--listen",
            self.address, "--http", ANY, *(("--tls",) if self.tls else ()))
        self.assertTrue(eventually(
            lambda: self.client("node", "list").returncode == 0),
            self.coordinator.errors.read_text())

    def client(self, *arguments):
        """Again, where a busy box does not answer in the client's time."""
        trusted = ("--tls-dir", self.state / "tls/client") if self.tls else ()
        give_up = time.monotonic() + PATIENCE
        while True:
            answer = run(program("paceline"), "--coordinator", self.address,
                         *trusted, *arguments,
                         XDG_CONFIG_HOME=str(self.folder / "none"))
            if answer.returncode != UNREACHABLE or time.monotonic() > give_up:
                return answer

    def ask(self, *arguments):
        answer = self.client(*arguments, "-o", "json")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)

    def start_worker(self, name, *options):
        config = self.folder / f"{name}.toml"
        state = self.folder / name
        if self.tls:
            token = self.ask("token", "create")["token"]
            joined = run(program("paceline-worker"), "join", self.address, token,
                         "--name", name, "--state", state, "--config", config)
            self.assertEqual(joined.returncode, 0, joined.stderr)
        else:
            (state / "tls").mkdir(parents=True)
            (state / "tls/key.pem").write_text("a key of old times " * 20)
            config.write_text("")
        worker = self.start_process(
            program("paceline-worker"), "--coordinator", self.address, "--name",
            name, "--machine-id", name, "--config", config, "--state", state,
            "--listen", ANY, "--http", ANY, *options)
        self.assertTrue(eventually(lambda: any(
            each["name"] == name and each["state"] == "idle"
            for each in self.ask("node", "list")["workers"]),
            PATIENCE), worker.errors.read_text())
        return worker

    def write(self, text, name="job.yaml"):
        path = self.folder / name
        path.write_text(text)
        return path

    def try_submit(self, job, *sets):
        changes = [word for each in sets for word in ("--set", each)]
        return self.client("job", "submit", self.write(job), *changes)

    def predictions(self):
        """Of the last job: its bytes, and its labels."""
        path = self.folder / "predictions"
        exported = self.client("job", "export", "last", "-o", path)
        self.assertEqual(exported.returncode, 0, exported.stderr)
        content = path.read_bytes()
        length = struct.unpack_from("<Q", content)[0]
        begin, end = json.loads(
            content[8:8 + length])["labels"]["data_offsets"]
        return content, [each[0] for each in struct.iter_unpack(
            "<q", content[8 + length + begin:8 + length + end])]

    def refused(self, job, *sets):
        """What the client is told of a job that wants what it may not read."""
        submitted = self.try_submit(job, *sets)
        self.assertEqual(submitted.returncode, 2, submitted.stdout)
        self.has(submitted.stderr, "jobs may not read it", "--data-dir")
        return submitted.stderr

    def test_a_job_reads_what_data_dirs_allow_over_plain(self):
        self.reads_below_the_data_dirs_and_never_the_state(tls=False)

    def test_a_job_reads_what_data_dirs_allow_over_tls(self):
        self.reads_below_the_data_dirs_and_never_the_state(tls=True)

    def reads_below_the_data_dirs_and_never_the_state(self, tls):
        self.begin(tls)
        second = self.folder / "second"
        second.mkdir()
        # The worker's state is below a folder that jobs may read.
        self.start_worker("w1", "--data-dir", self.data, "--data-dir",
                          f"{second}:{self.folder / 'w1'}")
        for folder in (self.data, second):
            shutil.copy(self.secret, folder / "text.txt")
            done = self.try_submit(
                INFER_TEXT.replace("FILE", str(folder / "text.txt")))
            self.assertEqual(done.returncode, 0, done.stderr)
        content, labels = self.predictions()
        self.assertEqual(set(labels), {-100}, "they would be the text")
        self.assertNotIn(b"t\0\0\0\0\0\0\0e\0\0\0\0\0\0\0l\0\0\0\0\0\0\0l",
                         content)

        key = self.folder / "w1/tls/key.pem"
        self.has(self.try_submit(INFER_TEXT.replace("FILE", str(key))).stderr,
                 "own state")
        (self.data / "link.txt").symlink_to(key)
        (self.data / "folder").symlink_to(self.folder)
        (self.data / ".hidden").mkdir()
        shutil.copy(self.secret, self.data / ".hidden/text.txt")
        for path in (self.data / "link.txt", self.data / "folder/w1/tls/key.pem"):
            answer = self.try_submit(INFER_TEXT.replace("FILE", str(path)))
            self.assertEqual(answer.returncode, 2)
            self.has(answer.stderr, "own state")
        for path in (self.secret, self.folder / "missing.txt", "/etc/passwd",
                     self.data / "folder/secret.txt",
                     self.data / "../secret.txt",
                     self.data / ".hidden/text.txt"):
            self.refused(INFER_TEXT.replace("FILE", str(path)))

        # Without the client's question the worker itself says it.
        link = self.data / "later.txt"
        shutil.copy(self.secret, link)
        self.assertEqual(self.client("node", "drain", "w1").returncode, 0)
        job = self.write(INFER_TEXT.replace("FILE", str(link)))
        queued = self.client("job", "submit", job, "--detach")
        self.assertEqual(queued.returncode, 0, queued.stderr)
        link.unlink()
        link.symlink_to(self.secret)
        self.client("node", "undrain", "w1")

        self.assertEqual(self.client("job", "wait", "last").returncode, 1)
        self.has(self.ask("job", "show", "last")["why"], "jobs may not read it")

    def test_every_path_of_a_job_is_judged_over_plain(self):
        self.judges_every_path(tls=False)

    def test_every_path_of_a_job_is_judged_over_tls(self):
        self.judges_every_path(tls=True)

    def judges_every_path(self, tls):
        self.begin(tls)
        self.start_worker("w1", "--data-dir", self.data)
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
        self.begin(tls=True)
        self.start_worker("w1")
        told = self.refused(INFER_TEXT.replace("FILE", str(self.secret)))
        self.has(told, "not below /usr/share/datasets")
        shown = self.ask("node", "show", "w1")
        self.assertEqual(shown["data_dirs"], ["/usr/share/datasets"])

        doctor = self.client("doctor", "-o", "json")
        found = {each["check"]: each["what"]
                 for each in json.loads(doctor.stdout)["checks"]}
        self.has(found["jobs may read"], "/usr/share/datasets on w1")

    def test_a_worker_may_forbid_scripts_over_plain(self):
        self.forbids_scripts(tls=False)

    def test_a_worker_may_forbid_scripts_over_tls(self):
        self.forbids_scripts(tls=True)

    def forbids_scripts(self, tls):
        if not Settings.torch:
            self.skipTest("wants LibTorch")
        self.begin(tls)
        shutil.copy(SCRIPTS / "scripted.pt", self.data)
        job = ("model: {name: script, file: "
               f"{self.data / 'scripted.pt'}}}\n"
               "data: {name: synthetic, shape: [2, 4, 4], classes: 3,\n"
               "       train_samples: 64, test_samples: 32}\n"
               "train: {steps: 2, batch: 16, micro_batch: 4}\n")
        reads = ("--data-dir", self.data)
        self.start_worker("w1", *reads, "--no-scripts")
        self.assertFalse(self.ask("node", "show", "w1")["scripts"])
        refused = self.try_submit(job)
        self.assertNotEqual(refused.returncode, 0)
        self.has(refused.stderr, "--no-scripts")
        asked = self.client("profile", "--model", "script", "--set",
                            f"model.file={self.data / 'scripted.pt'}",
                            "--workers", "w1")
        self.assertNotEqual(asked.returncode, 0)

        allows = self.start_worker("w2", *reads)
        done = self.client("job", "submit", self.write(job), "-o", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([each["name"] for each in
                          json.loads(done.stdout)["workers"]], ["w2"])
        begun = self.client("job", "submit", self.write(job), "--detach",
                            "--set", "train.steps=1000000")
        self.assertEqual(begun.returncode, 0, begun.stderr)
        self.assertTrue(eventually(
            lambda: self.ask("job", "show", "last")["step"] > 0))
        allows.kill()
        self.assertTrue(eventually(
            lambda: "--no-scripts" in self.ask("job", "show", "last")["why"]),
            self.ask("job", "show", "last"))

    def test_the_name_of_a_live_worker_is_not_taken_over_plain(self):
        self.begin(tls=False)
        self.start_worker("w1")
        before = self.ask("node", "show", "w1")["pid"]
        other = self.start_process(
            program("paceline-worker"), "--coordinator", self.address, "--name",
            "w1", "--machine-id", "other", "--state", self.folder / "other",
            "--listen", ANY, "--http", ANY)
        self.assertEqual(other.wait(PATIENCE), 78,
                         other.errors.read_text())
        self.has(other.errors.read_text(), "--name")
        self.assertEqual(self.ask("node", "show", "w1")["pid"], before)


if __name__ == "__main__":
    main()
