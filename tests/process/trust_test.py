#!/usr/bin/env python3
"""A mesh with TLS: machines and people join with tokens, whoever has no
certificate is refused, and certificates are renewed while jobs run."""

import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.request

from mesh_case import (ENDLESS, JOB, PATIENCE_SECONDS, MeshCase, ProcessCase,
                       Settings, eventually, free_port, main, program, run)
from scale.strangers import HEALTH_CHECK, HEALTH_WATCH, status_of

UNAUTHENTICATED = 16  # gRPC's number
UNREACHABLE = 4  # the client's exit code
LIFE_SECONDS = 45  # of a certificate


class Trust(ProcessCase):
    beside_others = True

    def start_coordinator(self, *options):
        self.state = self.folder / "coordinator"
        self.address = f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self.coordinator = self.start_process(
            program("paceline-coordinator"), "--tls", "--state", self.state,
            "--listen", self.address, "--http", self.http, *options)
        # What the coordinator made for root on its own host.
        self.root = self.state / "tls" / "client"
        self.assertTrue(eventually(
            lambda: self.client("node", "list").returncode == 0),
            self.coordinator.errors.read_text())

    def client(self, *arguments, tls=None, home=None):
        """A client with the certificate in `tls`, or of that home."""
        chosen = [] if home else ["--tls-dir", tls or self.root]
        return run(program("paceline"), "--coordinator", self.address, *chosen,
                   *arguments, XDG_CONFIG_HOME=str(home or self.folder / "none"))

    def ask(self, *arguments):
        answer = None

        def answers():
            nonlocal answer
            answer = self.client(*arguments, "-o", "json")
            return answer.returncode != UNREACHABLE  # a busy box
        eventually(answers)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)

    def token(self, *options):
        return self.ask("token", "create", *options)["token"]

    def join(self, name, token, *wrapper):
        return run(*wrapper, program("paceline-worker"), "join", self.address,
                   token, "--name", name, "--state", self.folder / name,
                   "--config", self.folder / f"{name}.toml")

    def start_worker(self, name, **environment):
        return self.start_process(
            program("paceline-worker"), "--name", name, "--machine-id", name,
            "--config", self.folder / f"{name}.toml", "--state",
            self.folder / name, "--listen", "127.0.0.1:0", "--http",
            "127.0.0.1:0", **environment)

    def start_workers(self, count):
        token = self.token("--uses", str(count))
        self.workers = []
        for i in range(1, count + 1):
            joined = self.join(f"w{i}", token)
            self.assertEqual(joined.returncode, 0, joined.stderr)
            self.workers.append(self.start_worker(f"w{i}"))
        self.assertTrue(eventually(lambda: sum(
            each["state"] == "idle"
            for each in self.ask("node", "list")["workers"]) == count))

    def submit(self, *sets, flags=(), **caller):
        file = self.folder / "job.yaml"
        file.write_text(JOB)
        changes = [word for each in sets for word in ("--set", each)]
        return self.client("job", "submit", file, *changes, *flags, "-o",
                           "json", **caller)

    def get(self, path, tls=None):
        """The page over https, and the certificate that was shown."""
        context = ssl.create_default_context(cafile=self.root / "ca.pem")
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python 3.13's default
        if tls is not None:
            context.load_cert_chain(tls / "certificate.pem", tls / "key.pem")
        host, port = self.http.split(":")
        with socket.create_connection((host, port)) as plain, \
                context.wrap_socket(plain, server_hostname="paceline") as secure:
            shown = secure.getpeercert(binary_form=True)
            secure.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            return secure.makefile("rb").read().decode(), shown

    def test_two_commands_bring_a_machine_and_a_person_into_the_mesh(self):
        self.start_coordinator()
        self.start_workers(3)
        home = self.folder / "home"

        nowhere = self.client("login", "first", "token", home=home)
        self.assertEqual(nowhere.returncode, 2, nowhere.stderr)
        login = self.client("login", self.address, self.token("--role", "client"),
                            "--user", "kim", home=home)
        self.assertEqual(login.returncode, 0, login.stderr)
        self.assertEqual(oct(os.stat(next(
            home.glob("paceline/tls/*/key.pem"))).st_mode)[-3:], "600")
        checked = self.client("tls", "check", home=home)
        self.assertIn("client kim", checked.stdout, checked.stderr)
        doctor = self.client("doctor", "-o", "json", home=home)
        found = {each["check"]: each
                 for each in json.loads(doctor.stdout)["checks"]}
        for check in ("certificate", "coordinator", "version", "clock",
                      "workers"):
            self.assertEqual(found[check]["state"], "ok", found)

        finished = self.submit(home=home)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual(json.loads(finished.stdout)["state"], "succeeded")

    def test_who_has_no_certificate_or_another_role_is_told_so(self):
        self.start_coordinator("--http-tls")
        token = self.token()
        self.assertEqual(self.join("w1", token).returncode, 0)

        page, _ = self.get("/metrics", self.root)
        self.has(page, "200 OK", "paceline_coordinator_")
        self.has(self.get("/sd", self.root)[0], '"__scheme__":"https"')
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            self.get("/metrics")
        # A client without a certificate speaks no TLS; one with a worker's does.
        stranger = self.client("node", "list", home=self.folder / "nobody")
        self.assertEqual(stranger.returncode, 4, stranger.stderr)
        self.has(stranger.stderr, "paceline tls check")
        checked = self.client("tls", "check", home=self.folder / "nobody")
        self.assertEqual(checked.returncode, 3)
        self.has(checked.stderr, "there is no certificate", "paceline login")
        worker = self.client("node", "list", tls=self.folder / "w1" / "tls")
        self.assertEqual(worker.returncode, 7, worker.stderr)
        self.has(worker.stderr, "needs the certificate of a client",
                 "w1 is a worker")
        # Nor does a worker take the name of another.
        (self.folder / "w2").mkdir()
        os.rename(self.folder / "w1" / "tls", self.folder / "w2" / "tls")
        os.rename(self.folder / "w1.toml", self.folder / "w2.toml")
        impostor = self.start_worker("w2")
        self.assertEqual(impostor.wait(PATIENCE_SECONDS), 78, impostor.errors.read_text())
        self.has(impostor.errors.read_text(), "the certificate of worker w1")

    def test_a_file_that_is_damaged_ends_the_daemon_for_good(self):
        self.start_coordinator()
        self.assertEqual(self.join("w1", self.token()).returncode, 0)
        (self.folder / "w1" / "tls" / "key.pem").write_text("no key")
        worker = self.start_worker("w1")
        self.assertEqual(worker.wait(PATIENCE_SECONDS), 78)
        self.has(worker.errors.read_text(), "tls-dir", "private key")

        self.coordinator.terminate()
        self.coordinator.wait()
        (self.state / "tls" / "ca.key").write_text("no key")
        again = run(program("paceline-coordinator"), "--tls", "--state",
                    self.state, "--listen", self.address)
        self.assertEqual(again.returncode, 78, again.stderr)
        self.has(again.stderr, str(self.state / "tls"), "private key")

    def test_a_token_is_good_once_until_it_is_revoked_and_in_its_mesh_only(self):
        self.start_coordinator()
        token = self.token()
        kept = self.ask("token", "list")["tokens"]
        self.assertEqual([each["id"] for each in kept], [token.split(".")[0]])
        self.assertNotIn(token.split(".")[1],
                         (self.state / "coordinator.db").read_bytes().decode(
                             "latin-1"))

        self.assertEqual(self.join("w1", token).returncode, 0)
        again = self.join("w1", token)
        self.assertEqual(again.returncode, 0, "the same key may ask again")
        renamed = run(program("paceline-worker"), "join", self.address, token,
                      "--name", "w9", "--tls-dir", self.folder / "w1" / "tls",
                      "--config", self.folder / "w9.toml")
        self.has(renamed.stderr, "used up")
        other = self.join("w2", token)
        self.assertEqual(other.returncode, 78, other.stderr)
        self.has(other.stderr, "used up")
        revoked = self.token()
        self.assertEqual(self.client("token", "revoke",
                                     revoked.split(".")[0]).returncode, 0)
        self.has(self.join("w2", revoked).stderr, "revoked")
        wrong_role = self.join("w2", self.token("--role", "client"))
        self.has(wrong_role.stderr, "makes a client, not a worker")
        foreign = self.token()[:-4] + "0000"
        self.has(self.join("w2", foreign).stderr, "of another mesh")
        self.has(self.join("w2", "what").stderr, "no join token")

    def test_a_name_that_is_taken_goes_to_another_machine_by_its_own_token(self):
        self.start_coordinator()
        self.start_workers(1)
        ours = self.ask("node", "show", "w1")["pid"]
        many = self.token("--uses", "5")
        (self.folder / "thief").mkdir()

        def join(name, token):
            """From another machine, which keeps its key."""
            state = self.folder / "thief"
            return run(program("paceline-worker"), "join", self.address, token,
                       "--name", name, "--state", state, "--config",
                       state / "worker.toml")
        for name in ("w1", "W1"):
            refused = join(name, many)
            self.assertEqual(refused.returncode, 78, refused.stderr)
            self.has(refused.stderr, f"the name {name} is taken",
                     f"paceline token create --for {name}")
        self.assertFalse((self.folder / "thief/tls/certificate.pem").exists())
        self.assertEqual(self.ask("node", "show", "w1")["pid"], ours)
        self.assertEqual(self.join("w1", many).returncode, 0, "its own key")

        # So is a name that has joined and not attached yet, after a restart too.
        self.assertEqual(self.join("w2", many).returncode, 0)
        self.restart_coordinator()
        self.has(join("w2", many).stderr, "the name w2 is taken")

        given = self.token("--for", "w1")
        self.has(join("w2", given).stderr, "it is for w1, not w2")
        joined = join("w1", given)
        self.assertEqual(joined.returncode, 0, joined.stderr)
        self.assertEqual(self.workers[0].wait(30), 78)
        self.has(self.workers[0].errors.read_text(), "another machine")
        moved = self.start_process(
            program("paceline-worker"), "--state", self.folder / "thief",
            "--config", self.folder / "thief/worker.toml", "--machine-id",
            "thief", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        self.assertTrue(eventually(
            lambda: self.ask("node", "show", "w1")["pid"] == moved.pid),
            moved.errors.read_text())
        # What the old one still has is of no use.
        again = self.start_worker("w1")
        self.assertEqual(again.wait(30), 78, again.errors.read_text())
        self.has(again.errors.read_text(), "the name w1 is taken")
        self.assertEqual(self.ask("node", "show", "w1")["pid"], moved.pid)

    def restart_coordinator(self):
        self.coordinator.terminate()
        self.coordinator.wait()
        self.coordinator = self.start_process(
            program("paceline-coordinator"), "--tls", "--state", self.state,
            "--listen", self.address, "--http", "127.0.0.1:0")
        self.assertTrue(eventually(
            lambda: self.client("node", "list").returncode == 0),
            self.coordinator.errors.read_text())

    def test_a_join_waits_for_a_coordinator_that_is_away(self):
        self.start_coordinator()
        token = self.token()
        self.coordinator.terminate()
        self.coordinator.wait()

        joining = self.start_process(
            program("paceline-worker"), "join", self.address, token, "--state",
            self.folder / "w1", "--config", self.folder / "w1.toml")
        self.assertTrue(eventually(
            lambda: "trying again" in joining.errors.read_text()))
        self.start_process(
            program("paceline-coordinator"), "--tls", "--state", self.state,
            "--listen", self.address, "--http", "127.0.0.1:0")

        self.assertEqual(joining.wait(PATIENCE_SECONDS), 0, joining.errors.read_text())
        self.has((self.folder / "w1.toml").read_text(),
                 f'coordinator = "{self.address}"', "name = ")

    def test_a_join_without_a_configuration_file_says_how_to_start(self):
        self.start_coordinator()
        # Linux takes 0.0.0.0 for this machine; to us it is not loopback.
        joined = run(program("paceline-worker"), "join",
                     self.address.replace("127.0.0.1", "0.0.0.0"), self.token(),
                     "--state", self.folder / "w1", "--config",
                     self.folder / "no" / "folder.toml")
        self.assertEqual(joined.returncode, 0, joined.stderr)
        self.has(joined.stdout, "start it with: paceline-worker",
                 "--listen 0.0.0.0:7401")

    def test_a_clock_that_is_ten_minutes_off_is_what_a_refusal_names(self):
        if not (Settings.bin / "libkill_at_commit.so").exists():
            self.skipTest("nothing can be preloaded into a sanitizer's build")
        self.start_coordinator()
        token = self.token()
        for shift, where in (("+10m", "ahead of"), ("-10m", "behind")):
            faked = ("faketime", "-m", "-f", shift)
            joined = self.join("w1", token, *faked)
            self.assertEqual(joined.returncode, 1, joined.stderr)
            self.has(joined.stderr, "this machine's clock is", where)
            checked = run(*faked, program("paceline"), "--tls-dir", self.root,
                          "tls", "check", self.address)
            self.assertNotEqual(checked.returncode, 0, checked.stdout)
            self.has(checked.stderr, "this machine's clock")
        # The token is as good as before.
        self.assertEqual(self.join("w1", token).returncode, 0)

    def test_certificates_of_a_clock_that_was_ahead_are_of_use_and_replaced(self):
        if not (Settings.bin / "libkill_at_commit.so").exists():
            self.skipTest("nothing can be preloaded into a sanitizer's build")
        ahead = ("faketime", "-m", "-f", "+40d")
        folder = self.folder / "coordinator" / "tls"
        first = run(*ahead, "timeout", "20", program("paceline-coordinator"),
                    "--tls", "--state", folder.parent, "--listen",
                    "127.0.0.1:0", "--http", "127.0.0.1:0", "--port-file",
                    "/proc/nowhere")
        self.assertTrue((folder / "certificate.pem").exists(), first.stderr)
        before = (folder / "certificate.pem").read_text()
        authority = (folder / "ca.pem").read_text()

        self.start_coordinator()
        self.start_workers(1)

        self.assertEqual((folder / "ca.pem").read_text(), authority)
        self.assertNotEqual((folder / "certificate.pem").read_text(), before)

    def test_auto_is_the_only_coordinator_that_avahi_finds(self):
        self.start_coordinator()
        browse = self.folder / "avahi-browse"
        host, port = self.address.split(":")
        line = f"=;lo;IPv4;Paceline;_paceline._tcp;local;{{}};{host};{port};"

        def find(*hosts):
            browse.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(
                line.format(each) for each in hosts) + "\nEND\n")
            browse.chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        home = str(self.folder / "home")

        def ask(*words):
            return run(program("paceline"), *words, PATH=path,
                       XDG_CONFIG_HOME=home)

        find("first.local")
        # Whoever answers there is not believed: the token's authority is.
        stranger = ask("--coordinator", "auto", "node", "list")
        self.assertEqual(stranger.returncode, 2, stranger.stderr)
        self.has(stranger.stderr, "needs a certificate")
        login = ask("login", "auto", self.token("--role", "client"))
        self.assertEqual(login.returncode, 0, login.stderr)
        joined = run(program("paceline-worker"), "join", "auto", self.token(),
                     "--name", "w1", "--state", self.folder / "w1", "--config",
                     self.folder / "w1.toml", PATH=path)
        self.assertEqual(joined.returncode, 0, joined.stderr)
        self.has((self.folder / "w1.toml").read_text(), 'coordinator = "auto"')
        self.start_worker("w1", PATH=path)
        self.assertTrue(eventually(
            lambda: "idle" in ask("node", "list").stdout))

        find("first.local", "second.local")
        both = ask("node", "list")
        self.assertEqual(both.returncode, 1, both.stderr)
        self.has(both.stderr, "several", "first.local", "second.local")
        browse.write_text("#!/bin/sh\necho Daemon not running; exit 1\n")
        missing = ask("node", "list")
        self.assertEqual(missing.returncode, 4, missing.stderr)
        self.has(missing.stderr, "Daemon not running", "avahi-utils")

    def test_certificates_are_renewed_while_a_job_runs_and_no_step_is_lost(self):
        """A certificate lives long enough for a busy box to join and attach
        with it; of a renewed one a third is left."""
        self.start_coordinator("--certificate-hours", str(LIFE_SECONDS / 3600),
                               "--http-tls")
        self.start_workers(3)
        _, first = self.get("/healthz", self.root)
        submitted = self.submit(ENDLESS, flags=("--detach",))
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        begin = time.monotonic()

        shown = {path: path.read_text()
                 for path in self.folder.glob("w?/tls/certificate.pem")}
        self.assertEqual(len(shown), 3)
        self.assertTrue(eventually(lambda: all(
            path.read_text() != text for path, text in shown.items())))
        # The first ones expire.
        self.assertTrue(eventually(
            lambda: time.monotonic() - begin > LIFE_SECONDS))

        self.assertNotEqual(self.get("/healthz", self.root)[1], first)
        step = self.ask("job", "show", "1")["step"]
        self.assertTrue(eventually(
            lambda: self.ask("job", "show", "1")["step"] > step))
        # A job may move to a better plan meanwhile, but loses nobody.
        events = self.client("job", "events", "1")
        self.assertEqual(events.returncode, 0, events.stderr)
        self.assertIn(" running ", events.stdout)
        self.assertNotIn(" lost ", events.stdout)
        # New connections show the new ones: the first are long expired.
        attempt = self.ask("job", "show", "1")["attempt"]
        self.workers[0].kill()
        self.assertTrue(eventually(
            lambda: self.ask("job", "show", "1")["attempt"] > attempt))
        step = self.ask("job", "show", "1")["step"]
        self.assertTrue(eventually(
            lambda: self.ask("job", "show", "1")["step"] > step))

    def test_a_revoked_machine_is_out_until_it_joins_with_a_new_token(self):
        self.start_coordinator()
        self.start_workers(3)
        self.submit(ENDLESS, flags=("--detach",))
        self.assertTrue(eventually(
            lambda: self.ask("job", "show", "1")["step"] > 0))
        stolen = next(int(each["name"][1:])
                      for each in self.ask("node", "list")["workers"]
                      if each["job"])

        revoked = self.ask("tls", "revoke", f"w{stolen}")

        self.assertTrue(revoked["known"])
        gone = self.workers[stolen - 1]
        self.assertEqual(gone.wait(PATIENCE_SECONDS), 78, gone.errors.read_text())
        self.has(gone.errors.read_text(), "revoked")
        self.assertTrue(eventually(
            lambda: self.ask("job", "show", "1")["attempt"] > 1))
        step = self.ask("job", "show", "1")["step"]
        self.assertTrue(eventually(
            lambda: self.ask("job", "show", "1")["step"] > step))

        # The coordinator remembers, and a new token is a new beginning.
        self.coordinator.terminate()
        self.coordinator.wait()
        self.start_process(
            program("paceline-coordinator"), "--tls", "--state", self.state,
            "--listen", self.address, "--http", "127.0.0.1:0")
        again = self.start_worker(f"w{stolen}")
        self.assertEqual(again.wait(PATIENCE_SECONDS), 78, again.errors.read_text())
        self.has(again.errors.read_text(), "was revoked")
        joined = self.join(f"w{stolen}", self.token())
        self.assertEqual(joined.returncode, 0, joined.stderr)
        self.start_worker(f"w{stolen}")
        self.assertTrue(eventually(lambda: not any(
            each["state"] in ("stopped", "lost")
            for each in self.ask("node", "list")["workers"])))


def another_user():
    """Words in front of a command that another user is to run."""
    return ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


class Secret(MeshCase):
    """Other users of the machine are strangers, where the mesh has a secret."""
    beside_others = True

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or run(
                *another_user(), program("paceline"), "--version").returncode != 0:
            self.skipTest("needs root, and programs that others may run")
        self.address = f"127.0.0.1:{free_port()}"
        self.secret = self.folder / "secret"
        self.secret.write_text("0123456789abcdef0123456789abcdef\n")
        self.secret.chmod(0o600)

    def refused(self, *arguments, wrapper=(), **environment):
        """The words to a client that is not let in."""
        answer = run(*wrapper, program("paceline"), *arguments,
                     **{"HOME": "/nonexistent", **environment})
        self.assertEqual(answer.returncode, 7, answer.stderr + answer.stdout)
        self.has(answer.stderr, "secret", "--secret-file")
        return answer.stderr

    def test_another_user_asks_the_mesh_of_up_for_nothing_but_its_health(self):
        self.start(1)
        worker = self.workers()[0]["address"]
        for command in (("node", "list"), ("job", "stop", "1"), ("job", "list"),
                        ("token", "create")):
            self.refused("--coordinator", self.coordinator, *command,
                         wrapper=another_user())
        secret = self.mesh.state / "mesh" / "secret"
        self.assertEqual(oct(secret.stat().st_mode)[-3:], "600")
        for address, calls in (
                (self.coordinator, ("Control/SubmitJob", "Coordinator/Attach",
                                    "Stage/Pieces", "Trust/Join")),
                (worker, ("Stage/ReportStep", "Stage/Exchange", "Stage/Pieces",
                          "Stage/Probe", "Round/Exchange"))):
            self.assertEqual(status_of(address, False, HEALTH_CHECK), 0)
            for path in (HEALTH_WATCH, "/paceline.v1.New/Do",
                         *(f"/paceline.v1.{call}" for call in calls)):
                self.assertEqual(status_of(address, False, path),
                                 UNAUTHENTICATED, path)
        # Its own user's commands, of which the mesh's start was one, work.
        doctor = self.client("doctor")
        self.has(doctor.stdout, "calls without the mesh's secret are refused")
        self.submit(self.write(JOB), "pipeline.stages=1", "train.steps=3")

    def start_daemons(self, *tls):
        self.start_process(
            program("paceline-coordinator"), *tls, "--state",
            self.folder / "coordinator", "--listen", self.address, "--http",
            "127.0.0.1:0", "--secret-file", self.secret)
        self.root = ("--tls-dir", self.folder / "coordinator/tls/client")
        self.known = ("--coordinator", self.address, *(self.root if tls else ()),
                      "--secret-file", self.secret)
        self.assertTrue(eventually(lambda: self.answer("node", "list") == 0))

    def answer(self, *arguments):
        return run(program("paceline"), *self.known, *arguments,
                   HOME=str(self.folder)).returncode

    def start_worker(self, *options, **environment):
        return self.start_process(
            program("paceline-worker"), "--name", "w1", "--coordinator",
            self.address, "--state", self.folder / "w1", "--listen",
            "127.0.0.1:0", "--http", "127.0.0.1:0", *options, **environment)

    def check_all(self, *tls):
        """A job runs over daemons that were started by hand; nobody without the
        secret takes part."""
        own = ("--coordinator", self.address, *(self.root if tls else ()))
        self.refused(*own, "node", "list")
        wrong = self.folder / "wrong"
        wrong.write_text("f" * 32)
        wrong.chmod(0o600)
        self.assertIn("another one was shown", self.refused(
            *own, "node", "list", PACELINE_SECRET_FILE=str(wrong)))
        stranger = self.start_worker()
        self.assertEqual(stranger.wait(60), 78, stranger.errors.read_text())
        self.has(stranger.errors.read_text(), "secret", "--secret-file")
        self.start_worker(PACELINE_WORKER_SECRET_FILE=str(self.secret))
        job = self.write(JOB)
        self.assertEqual(self.answer(
            "job", "submit", job, "--set", "pipeline.stages=1", "--set",
            "train.steps=3"), 0)
        (self.folder / "paceline.yaml").write_text(
            f"coordinator: {self.address}\nsecret-file: {self.secret}\n")
        listed = run(program("paceline"), *(self.root if tls else ()), "node",
                     "list", cwd=self.folder, HOME=str(self.folder))
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual(status_of(self.address, bool(tls), HEALTH_CHECK), 0)

    def test_daemons_by_hand_take_a_secret(self):
        self.start_daemons()
        self.check_all()
        for path in ("Control/SubmitJob", "Trust/GetAuthority"):
            self.assertEqual(status_of(self.address, False,
                                       f"/paceline.v1.{path}"), UNAUTHENTICATED)

    def test_daemons_with_tls_take_a_secret_besides(self):
        self.start_daemons("--tls")
        token = json.loads(run(
            program("paceline"), *self.known, "token", "create", "-o",
            "json").stdout)["token"]
        join = (program("paceline-worker"), "join", self.address, token, "--name",
                "w1", "--state", self.folder / "w1", "--config",
                self.folder / "w1.toml")
        self.assertIn("needs the secret", run(*join).stderr)
        joined = run(*join, "--secret-file", self.secret)
        self.assertEqual(joined.returncode, 0, joined.stderr)
        self.check_all("--tls")
        for path in ("Control/SubmitJob", "Trust/GetAuthority"):
            self.assertEqual(status_of(self.address, True,
                                       f"/paceline.v1.{path}"), UNAUTHENTICATED)

    def test_a_file_that_holds_no_secret_is_a_wrong_configuration(self):
        self.secret.chmod(0o644)
        for daemon in ("paceline-coordinator", "paceline-worker"):
            ended = run(program(daemon), "--secret-file", self.secret, "--state",
                        self.folder / daemon, "--listen", "127.0.0.1:0", "--http",
                        "127.0.0.1:0", seconds=60)
            self.assertEqual(ended.returncode, 78, ended.stderr)
            self.has(ended.stderr, "--secret-file", "chmod 600")
        self.secret.chmod(0o600)
        self.start_daemons()
        self.secret.unlink()
        self.assertEqual(self.answer("node", "list"), 2)

    def test_a_mesh_without_a_secret_says_so(self):
        self.start_process(
            program("paceline-coordinator"), "--state", self.folder / "c",
            "--listen", self.address, "--http", "127.0.0.1:0")
        self.assertTrue(eventually(lambda: run(
            *another_user(), program("paceline"), "--coordinator", self.address,
            "node", "list", HOME="/nonexistent").returncode == 0))
        doctor = run(program("paceline"), "--coordinator", self.address, "doctor")
        self.has(doctor.stdout, "every user who reaches the coordinator may",
                 "--secret-file")


class HttpNames(MeshCase):
    """The HTTP ports answer to names that no stranger can have."""
    beside_others = True

    def status(self, address, path, host):
        request = urllib.request.Request(f"http://{address}{path}",
                                         headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def test_both_daemons_answer_to_their_own_names_only(self):
        self.start(1)
        worker = self.workers()[0]["http_address"]
        for address, paths in ((self.http, ("/", "/metrics", "/sd", "/watch",
                                            "/page.js")),
                               (worker, ("/metrics",))):
            for path in paths:
                self.assertEqual(self.status(address, path, "evil.example"), 421)
                self.assertEqual(
                    self.status(address, path, "localhost:1"), 200, path)
            for path in ("/healthz", "/readyz"):
                self.assertEqual(self.status(address, path, "evil.example"), 200)

    def test_a_daemon_takes_more_names(self):
        http = f"127.0.0.1:{free_port()}"
        self.start_process(
            program("paceline-coordinator"), "--state", self.folder / "c",
            "--listen", "127.0.0.1:0", "--http", http, "--http-host",
            "first.example,second.example", "--http-host", "third.example")
        self.assertTrue(eventually(lambda: self.answers(http)))
        for name in ("first", "second", "third"):
            self.assertEqual(self.status(http, "/metrics", f"{name}.example"),
                             200)
        self.assertEqual(self.status(http, "/metrics", "fourth.example"), 421)

    def answers(self, http):
        try:
            return self.status(http, "/healthz", "any") == 200
        except OSError:
            return False


if __name__ == "__main__":
    main()
