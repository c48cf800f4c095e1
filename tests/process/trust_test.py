"""A mesh with TLS: machines and people join with tokens, whoever has no
certificate is refused, and certificates are renewed while jobs run."""

import json
import os
import socket
import ssl
import time

from mesh_case import (ENDLESS, REFUSED, SMALL, ClientCase,
                       DaemonsCase, MeshCase, Settings, get, program, run)
from scale.strangers import HEALTH_CHECK, HEALTH_WATCH, status_of

UNAUTHENTICATED = 16  # gRPC's number
LIFE_SECONDS = 24  # of a certificate


class Trust(DaemonsCase):
    light = True
    tls = True

    def client(self, *arguments, tls=None, home=None):
        """A client with the certificate in `tls`, or of that home."""
        known = () if home else ("--tls-dir", tls) if tls else None
        return self.run_client(*arguments, known=known, XDG_CONFIG_HOME=str(
            home or self.folder / "none"))

    def start_worker(self, name, machine=None, **how):
        return super().start_worker(
            name, "--machine-id", machine or name, "--config",
            self.folder / f"{name}.toml", **how)

    def start_workers(self, count):
        token = self.token("--uses", str(count))
        self.processes = []
        for i in range(1, count + 1):
            self.good(self.join(f"w{i}", token))
            self.processes.append(self.start_worker(f"w{i}"))
        self.await_idle(count)

    def get(self, path, tls=None):
        """The page over https, and the certificate that was shown."""
        context = ssl.create_default_context(cafile=self.known[1] / "ca.pem")
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

        self.ended(self.client("login", "first", "token", home=home), 2)
        self.good(self.client("login", self.address,
                                      self.token("--role", "client"), "--user",
                                      "kim", home=home))
        self.assertEqual(oct(os.stat(next(
            home.glob("paceline/tls/*/key.pem"))).st_mode)[-3:], "600")
        checked = self.client("tls", "check", home=home)
        self.assertIn("client kim", checked.stdout, checked.stderr)
        doctor = json.loads(self.client("doctor", "-o", "json",
                                        home=home).stdout)
        found = {each["check"]: each for each in doctor["checks"]}
        for check in ("certificate", "coordinator", "version", "clock",
                      "workers"):
            self.assertEqual(found[check]["state"], "ok", found)

        finished = self.good(self.client("job", "submit", self.write(SMALL), "-o",
                                         "json", home=home))
        self.assertEqual(json.loads(finished.stdout)["state"], "succeeded")

    def test_who_has_no_certificate_or_another_role_is_told_so(self):
        self.start_coordinator("--http-tls")
        token = self.token()
        self.good(self.join("w1", token))

        page, _ = self.get("/metrics", self.known[1])
        self.has(page, "200 OK", "paceline_coordinator_")
        self.has(self.get("/sd", self.known[1])[0], '"__scheme__":"https"')
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            self.get("/metrics")
        # A client without a certificate speaks no TLS; one with a worker's does.
        self.ended(self.client("node", "list", home=self.folder / "nobody"), 4,
                   "paceline tls check")
        self.ended(self.client("tls", "check", home=self.folder / "nobody"), 3,
                   "there is no certificate", "paceline login")
        self.ended(self.client("node", "list", tls=self.folder / "w1" / "tls"),
                   7, "needs the certificate of a client", "w1 is a worker")
        # Nor does a worker take the name of another.
        (self.folder / "w2").mkdir()
        os.rename(self.folder / "w1" / "tls", self.folder / "w2" / "tls")
        os.rename(self.folder / "w1.toml", self.folder / "w2.toml")
        self.ends(self.start_worker("w2"), REFUSED, "the certificate of worker w1")

    def test_a_token_is_good_once_until_it_is_revoked_and_in_its_mesh_only(self):
        self.start_coordinator()
        token = self.token()
        kept = self.ask("token", "list")["tokens"]
        self.assertEqual([each["id"] for each in kept], [token.split(".")[0]])
        self.assertNotIn(token.split(".")[1],
                         (self.state / "coordinator.db").read_bytes().decode(
                             "latin-1"))

        self.good(self.join("w1", token))
        self.good(self.join("w1", token))  # the same key may ask again
        revoked = self.token()
        self.good(self.client("token", "revoke", revoked.split(".")[0]))
        for refused, why in ((token, "used up"), (revoked, "revoked"),
                             (self.token()[:-4] + "0000", "of another mesh"),
                             (self.token("--role", "client"),
                              "makes a client, not a worker"),
                             ("what", "no join token")):
            self.has(self.join("w2", refused).stderr, why)

    def test_a_name_that_is_taken_goes_to_another_machine_by_its_own_token(self):
        self.start_coordinator()
        self.start_workers(1)
        ours = self.ask("node", "show", "w1")["pid"]
        (self.folder / "thief").mkdir()

        def join(token):
            """From another machine, which keeps its key."""
            return self.join("w1", token, state=self.folder / "thief")
        self.ended(join(self.token()), REFUSED, "the name w1 is taken",
                   "paceline token create --for w1")
        self.assertFalse((self.folder / "thief/tls/certificate.pem").exists())
        self.assertEqual(self.ask("node", "show", "w1")["pid"], ours)

        self.good(join(self.token("--for", "w1")))
        self.ends(self.processes[0], REFUSED, "another machine")
        moved = self.start_worker("w1", "thief", state=self.folder / "thief")
        self.soon(lambda: self.ask("node", "show", "w1")["pid"] == moved.pid,
                  moved)
        # What the old one still has is of no use.
        self.ends(self.start_worker("w1"), REFUSED, "the name w1 is taken")
        self.assertEqual(self.ask("node", "show", "w1")["pid"], moved.pid)

    def test_a_join_waits_for_a_coordinator_that_is_away(self):
        self.start_coordinator()
        token = self.token()
        self.stop_coordinator()

        joining = self.start_process(
            program("paceline-worker"), "join", self.address, token, "--state",
            self.folder / "w1", "--config", self.folder / "w1.toml")
        self.await_words(joining, "trying again")
        self.start_coordinator()

        self.ends(joining, 0)
        self.has((self.folder / "w1.toml").read_text(),
                 f'coordinator = "{self.address}"', "name = ")

    def test_a_join_without_a_configuration_file_says_how_to_start(self):
        self.start_coordinator()
        # Linux takes 0.0.0.0 for this machine; to us it is not loopback.
        joined = self.good(run(program("paceline-worker"), "join",
                               self.address.replace("127.0.0.1", "0.0.0.0"),
                               self.token(), "--state", self.folder / "w1",
                               "--config", self.folder / "no" / "folder.toml"))
        self.has(joined.stdout, "start it with: paceline-worker",
                 "--listen 0.0.0.0:7401")

    def test_a_clock_that_is_ten_minutes_off_is_what_a_refusal_names(self):
        if not (Settings.bin / "libkill_at_commit.so").exists():
            self.skipTest("nothing can be preloaded into a sanitizer's build")
        self.start_coordinator()
        token = self.token()
        for shift, where in (("+10m", "ahead of"), ("-10m", "behind")):
            faked = ("faketime", "-m", "-f", shift)
            self.ended(self.join("w1", token, wrapper=faked), 1,
                       "this machine's clock is", where)
            checked = run(*faked, program("paceline"), "--tls-dir", self.known[1],
                          "tls", "check", self.address)
            self.assertNotEqual(checked.returncode, 0, checked.stdout)
            self.has(checked.stderr, "this machine's clock")
        # The token is as good as before.
        self.good(self.join("w1", token))

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
        self.ended(ask("--coordinator", "auto", "node", "list"), 2,
                   "needs a certificate")
        self.good(ask("login", "auto", self.token("--role", "client")))
        self.good(run(program("paceline-worker"), "join", "auto", self.token(),
                      "--name", "w1", "--state", self.folder / "w1", "--config",
                      self.folder / "w1.toml", PATH=path))
        self.has((self.folder / "w1.toml").read_text(), 'coordinator = "auto"')
        self.start_worker("w1", PATH=path)
        self.soon(lambda: "idle" in ask("node", "list").stdout)

        find("first.local", "second.local")
        self.ended(ask("node", "list"), 1, "several", "first.local",
                   "second.local")
        browse.write_text("#!/bin/sh\necho Daemon not running; exit 1\n")
        self.ended(ask("node", "list"), 4, "Daemon not running", "avahi-utils")

    def test_certificates_are_renewed_while_a_job_runs_and_no_step_is_lost(self):
        """A certificate lives long enough for a busy box to join and attach
        with it; of a renewed one a third is left."""
        self.start_coordinator("--certificate-hours", str(LIFE_SECONDS / 3600),
                               "--http-tls")
        self.start_workers(3)
        _, first = self.get("/healthz", self.known[1])
        self.detach(SMALL, ENDLESS)
        begin = time.monotonic()

        shown = {path: path.read_text()
                 for path in self.folder.glob("w?/tls/certificate.pem")}
        self.assertEqual(len(shown), 3)
        self.soon(lambda: all(path.read_text() != text
                              for path, text in shown.items()))
        # The first ones expire.
        self.soon(lambda: time.monotonic() - begin > LIFE_SECONDS)

        self.assertNotEqual(self.get("/healthz", self.known[1])[1], first)
        self.await_more_steps()
        # A job may move to a better plan meanwhile, but loses nobody.
        events = self.events()
        self.assertIn(" running ", events)
        self.assertNotIn(" lost ", events)
        # New connections show the new ones: the first are long expired.
        attempt = self.job()["attempt"]
        self.processes[0].kill()
        self.soon(lambda: self.job()["attempt"] > attempt)
        self.await_more_steps()

    def test_a_revoked_machine_is_out_until_it_joins_with_a_new_token(self):
        self.start_coordinator()
        self.start_workers(3)
        self.detach(SMALL, ENDLESS)
        self.await_step_after(0)
        stolen = next(int(each["name"][1:]) for each in self.workers()
                      if each["job"])

        revoked = self.ask("tls", "revoke", f"w{stolen}")

        self.assertTrue(revoked["known"])
        self.ends(self.processes[stolen - 1], REFUSED, "revoked")
        self.soon(lambda: self.job()["attempt"] > 1)
        self.await_more_steps()

        # The coordinator remembers, and a new token is a new beginning.
        self.stop_coordinator()
        self.start_coordinator()
        self.ends(self.start_worker(f"w{stolen}"), REFUSED, "was revoked")
        self.good(self.join(f"w{stolen}", self.token()))
        self.start_worker(f"w{stolen}")
        self.soon(lambda: not any(each["state"] in ("stopped", "lost")
                                  for each in self.workers()))


# Words in front of a command that another user is to run.
ANOTHER_USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


class SecretCase(ClientCase):
    """Other users of the machine are strangers, where the mesh has a secret."""
    light = True

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or run(
                *ANOTHER_USER, program("paceline"), "--version").returncode != 0:
            self.skipTest("needs root, and programs that others may run")

    def refused(self, *arguments, wrapper=(), says=(), **environment):
        """A client is not let in."""
        self.ended(run(*wrapper, program("paceline"), "--coordinator",
                       self.address, *arguments,
                       **{"HOME": "/nonexistent", **environment}), 7, "secret",
                   "--secret-file", *says)

    def asks_for_health_only(self, address, calls, tls=False):
        self.assertEqual(status_of(address, tls, HEALTH_CHECK), 0)
        for call in calls:
            path = f"/paceline.v1.{call}"
            self.assertEqual(status_of(address, tls, path), UNAUTHENTICATED,
                             path)


class SecretOfUp(SecretCase, MeshCase):
    def test_another_user_asks_the_mesh_of_up_for_nothing_but_its_health(self):
        self.start(1)
        worker = self.workers()[0]["address"]
        for command in (("node", "list"), ("job", "stop", "1"), ("job", "list"),
                        ("token", "create")):
            self.refused(*command, wrapper=ANOTHER_USER)
        secret = self.mesh.state / "mesh" / "secret"
        self.assertEqual(oct(secret.stat().st_mode)[-3:], "600")
        for address, calls in (
                (self.address, ("Control/SubmitJob", "Coordinator/Attach",
                                "Stage/Pieces", "Trust/Join", "New/Do")),
                (worker, ("Stage/ReportStep", "Stage/Exchange", "Stage/Pieces",
                          "Stage/Probe", "Round/Exchange", "New/Do"))):
            self.asks_for_health_only(address, calls)
            self.assertEqual(status_of(address, False, HEALTH_WATCH),
                             UNAUTHENTICATED)
        # Its own user's commands, of which the mesh's start was one, work.
        self.has(self.client("doctor").stdout,
                 "calls without the mesh's secret are refused")
        self.submit(SMALL, "pipeline.stages=1", "train.steps=3")


class Secret(SecretCase, DaemonsCase):
    def setUp(self):
        super().setUp()
        self.secret = self.folder / "secret"
        self.secret.write_text("0123456789abcdef0123456789abcdef\n")
        self.secret.chmod(0o600)
        self.known = ("--secret-file", self.secret)

    def start_coordinator(self, *options):
        if self.tls:
            self.trusted = ("--tls-dir", self.state / "tls/client")
            self.known += self.trusted
        self.begin_coordinator("--secret-file", self.secret, *options)

    def check_all(self):
        """A job runs over daemons that were started by hand; nobody without the
        secret takes part."""
        trusted = self.trusted if self.tls else ()
        self.refused(*trusted, "node", "list")
        wrong = self.folder / "wrong"
        wrong.write_text("f" * 32)
        wrong.chmod(0o600)
        self.refused(*trusted, "node", "list", PACELINE_SECRET_FILE=str(wrong),
                     says=["another one was shown"])
        worker = ("w1", "--coordinator", self.address)
        self.ends(self.start_worker(*worker), REFUSED, "secret",
                  "--secret-file")
        self.start_worker(*worker, PACELINE_WORKER_SECRET_FILE=str(self.secret))
        self.submit(SMALL, "pipeline.stages=1", "train.steps=3")
        (self.folder / "paceline.yaml").write_text(
            f"coordinator: {self.address}\nsecret-file: {self.secret}\n")
        self.good(run(program("paceline"), *trusted, "node", "list",
                      cwd=self.folder, HOME=str(self.folder)))
        self.asks_for_health_only(
            self.address, ("Control/SubmitJob", "Trust/GetAuthority"), self.tls)

    def test_daemons_by_hand_take_a_secret(self):
        self.start_coordinator()
        self.check_all()

    def test_daemons_with_tls_take_a_secret_besides(self):
        self.tls = True
        self.start_coordinator()
        token = self.token()
        self.assertIn("needs the secret", self.join("w1", token).stderr)
        self.good(self.join("w1", token, "--secret-file", self.secret))
        self.check_all()

    def test_a_mesh_without_a_secret_says_so(self):
        self.known = ()
        self.begin_coordinator()
        self.good(run(*ANOTHER_USER, program("paceline"), "--coordinator",
                      self.address, "node", "list", HOME="/nonexistent"))
        self.has(self.client("doctor").stdout,
                 "every user who reaches the coordinator may", "--secret-file")


class HttpNames(DaemonsCase):
    """The HTTP ports answer to names that no stranger can have."""
    light = True

    def test_both_daemons_answer_to_their_own_names_and_to_given_ones(self):
        self.start_coordinator("--http-host", "first.example,second.example",
                               "--http-host", "third.example")
        self.start_worker("w1", "--coordinator", self.address)
        self.await_idle(1)
        worker = self.workers()[0]["http_address"]
        refusal = "this host has another name"
        self.has(get(self.http, "/watch", "evil.example"), refusal)
        for address, paths in ((self.http, ("/", "/metrics", "/sd", "/page.js")),
                               (worker, ("/metrics",))):
            for path in paths:
                self.has(get(address, path, "evil.example"), refusal)
                self.assertNotIn(refusal, get(address, path, "localhost:1"))
            for path in ("/healthz", "/readyz"):
                self.assertNotIn(refusal, get(address, path, "evil.example"))
        for name in ("first", "second", "third"):
            self.has(get(self.http, "/metrics", f"{name}.example"), "# HELP")
