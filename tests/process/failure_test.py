"""A failure names the thing that failed, ends with the right exit code, and
crashes nobody; a wrong configuration too, and systemd does not start it again."""

import json
import signal
import socket

from mesh_case import (ANY_PORT, REFUSED, ROOT, SMALL, DaemonsCase, MeshCase,
                       get, program, run)

DAEMONS = ("paceline-coordinator", "paceline-worker")


class Unhurt(MeshCase):
    """Nobody dies of it."""
    light = True
    shared = 2

    def test_random_bytes_on_every_port_hurt_nobody(self):
        before = {worker["pid"] for worker in self.workers()}
        addresses = [self.address, self.http]
        for worker in self.workers():
            addresses += [worker["address"], worker["http_address"]]
        for address in addresses:
            port = address.rsplit(":", 1)[1]
            run("bash", "-c",
                f"head -c 100000 /dev/urandom > /dev/tcp/127.0.0.1/{port}")
            run("bash", "-c", "printf 'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'"
                              f" > /dev/tcp/127.0.0.1/{port}")

        self.submit(SMALL, "train.steps=2", "pipeline.stages=2")

        self.assertEqual({worker["pid"] for worker in self.workers()}, before,
                         "somebody died")


class ByHand(DaemonsCase):
    light = True

    def test_no_daemon_dies_with_the_reader_of_its_log(self):
        """`paceline-worker ... 2>&1 | head`: its next line finds no reader."""
        for name, *arguments in (
                ("paceline-coordinator", "--listen", ANY_PORT, "--http", ANY_PORT),
                ("paceline-worker", "--listen", ANY_PORT, "--http", ANY_PORT,
                 "--coordinator", "127.0.0.1:1"),
                ("paceline", "up", "--workers", "1", "--port", "0",
                 "--http-port", "0")):
            folder = self.folder / name
            folder.mkdir()
            # Every one says that it stops.
            ended = run("bash", "-c", 'mkfifo log; "$@" > log 2>&1 & pid=$!; '
                        "head -n 1 log; kill -TERM $pid; wait $pid", "bash",
                        program(name), *arguments, "--state", folder / "state",
                        seconds=60, cwd=folder)

            self.assertNotEqual(ended.stdout, "", name)
            self.assertNotEqual(ended.returncode, 128 + signal.SIGPIPE, name)

    def test_a_worker_without_a_coordinator_finds_it_when_it_comes(self):
        """It says once that there is none."""
        ports = self.folder / "ports.json"
        worker = self.start_worker("lonely", "--coordinator", self.address,
                                   "--log-level", "debug", "--port-file", ports)
        self.soon(lambda: ports.exists() and ports.read_text(), worker)
        http = json.loads(ports.read_text())["http"]
        self.await_words(worker, "no coordinator")
        self.assertEqual(get(http, "/healthz"), "ok\n")
        self.assertIn("not attached", get(http, "/readyz"))

        self.start_coordinator()

        self.soon(lambda: get(http, "/readyz") == "ready\n", worker)
        worker.terminate()
        self.ends(worker, 0)
        log = worker.errors.read_text()
        self.assertEqual(log.count("no coordinator"), 1, log)
        self.assertEqual(self.state_of("lonely"), "stopped")


class Configuration(DaemonsCase):
    """Both daemons with a file of their settings."""
    light = True

    def daemons(self):
        for name in DAEMONS:
            with self.subTest(name):
                yield name

    def run_with(self, daemon, text, *flags):
        self.file = self.folder / "daemon.toml"
        self.file.write_text(text)
        return run(program(daemon), "--config", self.file, "--state",
                   self.folder / "state", *flags)

    def test_a_mistake_in_the_file_is_named_and_not_tried_again(self):
        for daemon in self.daemons():
            for line, message in (
                    ('lisen = "h:1"', "lisen: there is no such key"),
                    ("http = ", "http: need one value"),
                    ("insecure = maybe", "insecure: Could not convert"),
                    ("log-level = loud", "log-level: loud not in"),
                    ("listen = 7400", "listen: '7400' is not HOST:PORT"),
                    ("http = h", "http: 'h' is not HOST:PORT"),
                    ("http = 0.0.0.0:0", "http: 0.0.0.0:0 is off loopback"),
                    ("listen = 0.0.0.0:0", "listen: refusing to listen")):
                other = "--listen" if line.startswith("http") else "--http"
                self.ended(self.run_with(daemon, f"# comment\n{line}\n", other,
                                         ANY_PORT), REFUSED,
                           f"{daemon}: {self.file}:2: {message}")

    def test_a_mistake_in_a_flag_is_not_tried_again_either(self):
        for flag, value in (("--coordinator", "nowhere"), ("--listen", "7400")):
            self.ended(self.run_with("paceline-worker", "", "--http", ANY_PORT,
                                     flag, value), REFUSED, flag)
        self.ended(run(program("paceline-coordinator"), "--state", ""), REFUSED,
                   "--state")
        self.ended(run(program("paceline"), "up", "--state", ""), 2, "--state")

    def supervised(self, daemon, *flags):
        """Starts it as systemd does; what it sends, in lines."""
        path = self.folder / f"{daemon}.socket"
        said = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(said.close)
        said.bind(str(path))
        said.settimeout(30)
        process = self.start_process(
            program(daemon), "--listen", ANY_PORT, "--http", ANY_PORT, "--state",
            self.folder / daemon, *flags, NOTIFY_SOCKET=str(path),
            WATCHDOG_USEC="200000")
        self.assertIn("READY=1\nSTATUS=", said.recv(200).decode())
        return process, said

    def test_a_daemon_feeds_the_watchdog_and_says_what_it_does(self):
        for daemon, flags, status in (
                ("paceline-coordinator", (),
                 "0 workers attached, 0 jobs running"),
                ("paceline-worker", ("--coordinator", self.address),
                 f"no coordinator at {self.address}; idle")):
            _, said = self.supervised(daemon, *flags)

            for _ in range(3):
                self.assertIn(f"WATCHDOG=1\nSTATUS={status}",
                              said.recv(200).decode())

    def test_a_hang_up_reads_the_log_level_again(self):
        file = self.folder / "daemon.toml"
        for daemon in self.daemons():
            file.write_text('log-level = "error"\n')
            process, said = self.supervised(daemon, "--config", file)
            said.close()  # a full socket would stop the daemon
            self.assertEqual(process.errors.read_text(), "")

            file.write_text('log-level = "info"\n')
            process.send_signal(signal.SIGHUP)
            self.await_words(process, "the log level is info")
            file.write_text('log-level = "loud"\n')
            process.send_signal(signal.SIGHUP)
            self.await_words(process, "not in")
            process.terminate()
            self.ends(process, 0)

    def test_a_port_in_use_is_tried_again(self):
        self.start_coordinator()
        for daemon in self.daemons():
            self.ended(self.run_with(daemon, "", "--listen", self.address,
                                     "--http", ANY_PORT), 1, "is in use")

    def test_the_unit_does_not_start_it_again(self):
        for daemon in self.daemons():
            unit = ROOT / "deploy" / "systemd" / f"{daemon}.service"
            self.assertIn("\nRestartPreventExitStatus=78\n", unit.read_text())
