"""deploy/testbed.sh: emulated machines, as slow as asked for, and gone without
a trace.  What makes machines needs root, and is skipped without."""

import json
import os
import re
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

from mesh_case import (LONGEST_SECONDS, PATIENCE_SECONDS, ROOT, ProcessCase,
                       Settings, run)

SCRIPT = ROOT / "deploy" / "testbed.sh"
TCP = "/proc/sys/net/ipv4/tcp_"

# CPU seconds a second of a process that never rests.
BURN = """
import time
cpu, wall = time.process_time(), time.monotonic()
while time.monotonic() < wall + 1.2: pass
print((time.process_time() - cpu) / (time.monotonic() - wall))
"""

# Says "listening", takes what one sender sends, prints bits a second; not
# counting what came first, since a bucket full of tokens goes ahead of it.
RECEIVE = """
import socket, sys, time
listener = socket.create_server((sys.argv[1], 5555))
print("listening", flush=True)
peer, _ = listener.accept()
bits, begin = 0, None
while data := peer.recv(1 << 16):
    bits += 8 * len(data)
    if begin is None and bits > 1e6: bits, begin = 0, time.monotonic()
print(bits / (time.monotonic() - begin))
"""

SEND = """
import socket, sys
socket.create_connection((sys.argv[1], 5555)).sendall(bytes(int(sys.argv[2])))
"""


def testbed(*arguments, **environment):
    return run(SCRIPT, *arguments, **environment)


def start(*command):
    return subprocess.Popen([str(word) for word in command],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def text_of(path):
    """Of a file that may be gone."""
    try:
        return Path(path).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid):
    """A zombie is not alive: that it is collected is init's concern."""
    status = text_of(f"/proc/{pid}/status")
    return status != "" and "State:\tZ" not in status


def names_in(folder):
    return set(os.listdir(folder)) if Path(folder).exists() else set()


def left_of(bed):
    """Everything on this machine whose name a bed makes from its own."""
    of_bed = re.compile(rf"paceline-{bed}\.(net|coordinator|[0-9]+)")
    left = [f"{folder}/{name}"
            for folder in ("/run/netns", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu",
                           "/sys/fs/cgroup/cpu,cpuacct",
                           "/var/lib/paceline-testbed")
            for name in sorted(names_in(folder))
            if name in (bed, f"paceline-{bed}") or of_bed.fullmatch(name)]
    return left + [str(file) for file in Path("/proc").glob("[0-9]*/cmdline")
                   if f"paceline-{bed}." in text_of(file)]


def why_no_bed():
    """Why no bed can stand here; empty when one can."""
    if os.geteuid() != 0:
        return "needs root"
    space = f"paceline-probe{os.getpid()}"
    probed = run("bash", "-c", f"""
set -e
grep -qE ' cgroup2 | cgroup .*[, ]cpu[, ]' /proc/self/mounts
ip netns add {space}
trap 'ip netns del {space}' EXIT
ip -n {space} link add probe0 type veth peer name probe1
ip -n {space} link add probe2 type bridge
tc -n {space} qdisc add dev probe0 root tbf rate 1mbit burst 8k limit 8k
""")
    return ("" if probed.returncode == 0 else
            f"no network namespaces or cgroups here: {probed.stderr}")


class Bed(ProcessCase):
    """Gives each test a name for its bed, and looks for what it left."""
    light = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if why := why_no_bed():
            raise unittest.SkipTest(why)
        cls.name = f"t{os.getpid()}"
        cls.links = names_in("/sys/class/net")

    def tearDown(self):
        self.take_down()

    @classmethod
    def take_down(cls):
        down = testbed("down", "--name", cls.name)
        assert down.returncode == 0, down.stderr
        assert not left_of(cls.name), left_of(cls.name)
        assert names_in("/sys/class/net") == cls.links

    @classmethod
    def up_arguments(cls, *more):
        return ("up", "--name", cls.name, "--nodes", "2", "--bin",
                Settings.programs, "--rate", "1gbit", *more)

    def up(self, *more, code=0, says=()):
        return self.ended(testbed(*self.up_arguments(*more)), code, *says)

    def run_on_bed(self, command, *more, code=0, says=()):
        """`testbed.sh COMMAND --name NAME MORE...`"""
        return self.ended(testbed(command, "--name", self.name, *more), code,
                          *says)

    def status(self):
        return json.loads(self.run_on_bed("status", "-o", "json").stdout)

    def node(self, number):
        return self.status()["nodes"][number - 1]

    def on_node(self, number, program, *arguments):
        """A command that runs a Python program as if on node `number`."""
        node = self.node(number)
        return ("bash", "-c", 'echo $$ > "$0/cgroup.procs" && exec nsenter '
                '--net=/run/netns/"$1" python3 -c "${@:2}"', node["cgroup"],
                node["namespace"], program, *arguments)

    def address_of(self, number):
        return self.node(number)["address"].split(":")[0]


class SharedBed(Bed):
    """One bed, which the tests of a class leave as it was."""
    flags = ()  # of its `up`

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Another bed may be about to change what is allowed for a moment.
        cls.read_allowed = ("flock", TCP + "allowed_congestion_control", "cat",
                            TCP + "allowed_congestion_control")
        cls.allowed = run(*cls.read_allowed).stdout
        cls.said = testbed(*cls.up_arguments(*cls.flags))
        cls.addClassCleanup(cls.take_down)
        assert cls.said.returncode == 0, cls.said.stderr

    def tearDown(self):
        pass


class StandingBed(SharedBed):
    shared = 2

    def test_exec_runs_a_command_beside_a_worker_on_each_machine(self):
        workers = json.loads(self.run_on_bed(
            "exec", "--", "paceline", "node", "list", "-o",
            "json").stdout)["workers"]

        self.assertEqual([(worker["name"], worker["state"], worker["address"])
                          for worker in workers], [(f"node-{i}", "idle",
                                                    self.address_of(i)
                                                    + ":7401") for i in (1, 2)])
        self.run_on_bed("exec", "--", "bash", "-c", "exit 42", code=42)
        self.run_on_bed("exec", "paceline-no-such-command", code=127)

    def test_nodes_send_as_debian_does_whatever_the_host_does(self):
        available = Path(TCP + "available_congestion_control").read_text()
        can_be_had = "cubic" in available and os.access(
            TCP + "allowed_congestion_control", os.W_OK)

        seen = self.run_on_bed("exec", "--on", "1", "--", "cat",
                               TCP + "congestion_control").stdout

        self.assertEqual(run(*self.read_allowed).stdout, self.allowed)
        self.assertEqual(seen == "cubic\n", can_be_had, seen)
        self.assertEqual("no cubic" not in self.said.stderr, can_be_had,
                         self.said.stderr)

    def test_what_does_not_go_with_a_bed_that_stands_is_refused(self):
        before = self.status()

        self.up(code=2, says=("stands already", "down --name " + self.name))
        for command in (("kill", "3"), ("set", "--rate-of", "3=1gbit")):
            self.run_on_bed(*command, code=2,
                            says=["no node 3; this bed has 1 to 2"])

        self.assertEqual(self.status(), before)

    def test_a_killed_node_stays_down_until_it_is_started(self):
        before = self.node(1)["pid"]

        self.run_on_bed("kill", "1")

        self.assertFalse(is_alive(before))
        self.assertEqual([node["alive"] for node in self.status()["nodes"]],
                         [False, True])
        self.run_on_bed("start", "1")
        self.assertEqual(self.node(1)["alive"], True)
        self.assertNotEqual(self.node(1)["pid"], before)


class Testbed(Bed):
    def break_off_an_up(self):
        """As after a kill -9 of the script when all machines are made."""
        up = start(SCRIPT, *self.up_arguments())
        last = Path(f"/run/netns/paceline-{self.name}.2")
        self.soon(lambda: last.exists() or up.poll() is not None)
        up.kill()
        self.assertEqual(up.wait(LONGEST_SECONDS), -signal.SIGKILL)
        up.stdout.close()
        up.stderr.close()
        self.assertNotEqual(left_of(self.name), [])

    def test_status_tells_what_was_asked_for_and_a_state_folder_stays(self):
        self.up("--cpu-of", "2=0.25", "--rate-of", "2=20mbit", "--state",
                self.folder / "state")

        status = self.status()

        self.assertEqual(status["ready"], True)
        self.assertIsNone(status["coordinator"]["cpu"])
        self.assertEqual([(node["cpu"], node["rate"], node["alive"])
                          for node in status["nodes"]],
                         [(0.4, "1gbit", True), (0.25, "20mbit", True)])
        self.assertEqual(status["nodes"][1]["rate_bits_per_second"], 20_000_000)
        self.run_on_bed("down")
        self.assertIn("worker is ready",
                      (self.folder / "state/logs/node-2.log").read_text())

    def test_down_ends_exactly_what_the_bed_started(self):
        self.up()
        status = self.status()
        group = Path(status["nodes"][0]["cgroup"]).parent / "client"
        with start(SCRIPT, "exec", "--name", self.name, "sleep", "1000") as \
                inside, start("sleep", "1000") as outside:
            self.soon(lambda: (group / "cgroup.procs").read_text())

            self.run_on_bed("down")

            self.assertEqual(left_of(self.name), [])
            for each in (status["coordinator"], *status["nodes"]):
                self.assertFalse(is_alive(each["pid"]))
            # The script waits for it, and ends as a shell does.
            self.assertIn(inside.wait(PATIENCE_SECONDS),
                          (-signal.SIGKILL, 128 + signal.SIGKILL))
            self.assertIsNone(outside.poll())
            outside.kill()

    def test_after_a_killed_up_down_removes_what_it_left_and_up_begins_anew(self):
        for has_record in (True, False):
            self.break_off_an_up()
            if not has_record:
                shutil.rmtree(f"/var/lib/paceline-testbed/{self.name}")
                # Killed before a namespace had its mark: only the record would
                # know it.
                run("ip", "-n", f"paceline-{self.name}.2", "link", "set", "dev",
                    "lo", "alias", f"paceline-testbed:{self.name}")

            self.run_on_bed("down")
            self.assertEqual(left_of(self.name), [])

        self.break_off_an_up()
        self.assertIn("broken off", self.up().stderr)
        self.assertEqual(self.node(2)["alive"], True)

    def test_a_failing_up_takes_down_what_it_made(self):
        for program in ("paceline", "paceline-coordinator"):
            (self.folder / program).symlink_to(Settings.programs / program)
        worker = self.folder / "paceline-worker"
        worker.write_text("#!/bin/sh\necho broken\nexit 7")
        worker.chmod(0o755)

        self.up("--bin", self.folder, code=1, says=("node-1 ended", "broken"))

        self.assertEqual(left_of(self.name), [])

    def test_beds_stand_side_by_side(self):
        other = self.name + "-1"
        self.up()
        self.up("--name", other)

        self.good(testbed("down", "--name", other))

        self.assertEqual(left_of(other), [])
        self.run_on_bed("exec", "paceline", "node", "list")
        self.assertEqual(self.node(2)["alive"], True)

    def test_a_taken_namespace_is_named_and_left_alone(self):
        taken = f"paceline-{self.name}.2"
        self.good(run("ip", "netns", "add", taken))
        try:
            self.up(code=2, says=["ip netns del " + taken])
            self.run_on_bed("down")

            self.assertEqual(left_of(self.name), ["/run/netns/" + taken])
        finally:
            run("ip", "netns", "del", taken)

    def test_what_is_missing_is_named_with_what_to_do(self):
        self.ended(testbed(*self.up_arguments(),
                           PACELINE_CGROUP_ROOT=str(self.folder)), 2,
                   "no cgroup with a CPU controller", str(self.folder),
                   "mount -t cgroup2")
        self.up("--bin", self.folder, code=2,
                says=(str(self.folder), "deploy/build.sh release"))
        for command in (("exec", "true"), ("status",), ("kill", "1"),
                        ("set", "--cpu-of", "1=0.2")):
            self.run_on_bed(*command, code=3, says=[f"no bed '{self.name}'"])
        self.run_on_bed("down")


class Measured(SharedBed):
    """Speeds: nothing else may run meanwhile."""
    alone = True
    shared = 2
    flags = ("--threads", "1", "--cpu", "0.45", "--lease", "7", "--rate-of",
             "2=20mbit")

    def reaches(self, limit, off, measure):
        """Nobody gets more than the limit, ever.  On a machine that others use
        as well all of it must be reached once in some tries."""
        most = 0
        for _ in range(8):
            most = max(most, measure())
            if most >= limit - off:
                break
        self.assertAlmostEqual(most, limit, delta=off)

    def burn_on_node(self, number):
        burnt = self.good(run(*self.on_node(number, BURN)))
        return float(burnt.stdout)

    def test_a_node_computes_at_its_quota_and_at_the_next_one(self):
        self.reaches(0.45, 0.03, lambda: self.burn_on_node(1))

        self.run_on_bed("set", "--cpu-of", "1=0.15")
        self.reaches(0.15, 0.03, lambda: self.burn_on_node(1))
        self.assertEqual(self.node(1)["cpu"], 0.15)
        self.run_on_bed("set", "--cpu-of", "1=0.45")

    def test_nodes_on_one_core_do_not_slow_each_other(self):
        """Two that want all of one core between them: who has to wait for the
        other gets what it missed in the next period."""
        self.assertEqual(run("pgrep", "-f",
                             "paceline-coordinator .*--lease 7$").returncode, 0)

        def burn_both():
            nodes = [start("taskset", "-c", "0", *self.on_node(number, BURN))
                     for number in (1, 2)]
            return min(float(node.communicate(timeout=LONGEST_SECONDS)[0])
                       for node in nodes)

        self.reaches(0.45, 0.03, burn_both)

    def bits_per_second(self, sender, receiver, payload_bytes):
        address = self.address_of(receiver)
        with start(*self.on_node(receiver, RECEIVE, address)) as listener:
            self.assertEqual(listener.stdout.readline(), "listening\n")
            self.good(run(*self.on_node(sender, SEND, address, payload_bytes)))
            received, errors = listener.communicate(timeout=30)
            self.assertEqual(listener.returncode, 0, errors)
        return float(received)

    def test_a_link_is_shaped_both_ways_and_anew(self):
        for ends in ((1, 2), (2, 1)):
            self.reaches(20e6, 3e6,
                         lambda: self.bits_per_second(*ends, 2_500_000))

        self.run_on_bed("set", "--rate-of", "2=40mbit")
        self.reaches(40e6, 6e6, lambda: self.bits_per_second(1, 2, 5_000_000))


class Anybody(ProcessCase):
    """Needs no root: what is refused before anything is made, and parts of the
    script on their own."""

    def bash(self, script, *arguments, **environment):
        return self.good(run("bash", "-c", script, ROOT, *arguments,
                             **environment))

    def test_without_root_it_says_so(self):
        as_nobody = ()
        if os.geteuid() == 0:
            as_nobody = ("setpriv", "--reuid=65534", "--regid=65534",
                         "--clear-groups")
            if run(*as_nobody, "test", "-r", SCRIPT).returncode != 0:
                self.skipTest(f"nobody may read {SCRIPT}")

        self.ended(run(*as_nobody, "bash", SCRIPT, "up"), 2, "needs root",
                   "sudo")

    def test_without_cubic_it_says_so_and_goes_on(self):
        finished = self.bash("""
set -e; mark() { echo x; }; . "$0/deploy/testbed/machine.sh"
ip() { [[ $2 != exec ]]; }; add_namespace x""")

        self.assertIn("no cubic", finished.stderr)

    def test_quotas_of_version_two_have_its_form(self):
        """A version 2 kernel reads this form; the machine at hand may have
        version 1."""
        group = self.folder / "paceline-x"
        for node in ("1", "2", "3"):
            (group / node).mkdir(parents=True)
            (group / node / "cpu.max.burst").touch()

        self.bash("""
set -e
declare -A bed=([cgroup]=$1 [cgroup_version]=2 [cpu.1]=400 [cpu.2]=50
                [cpu.3]=max)
name=x; . "$0/deploy/testbed/record.sh"; . "$0/deploy/testbed/machine.sh"
set_cpu 1; set_cpu 2; set_cpu 3""", self.folder)

        for file, text in (("1/cpu.max", "2000 5000\n"),
                           ("1/cpu.max.burst", "2000\n"),
                           ("2/cpu.max", "1000 20000\n"),
                           ("3/cpu.max", "max 5000\n"),
                           ("3/cpu.max.burst", "0\n")):
            self.assertEqual((group / file).read_text(), text, file)

    def test_the_folder_with_the_cpu_controller_is_found(self):
        for version, files in (("1", {"cgroup.procs": "",
                                      "cpu.cfs_quota_us": "-1\n"}),
                               ("2", {"cgroup.controllers": "cpuset cpu io\n"})):
            folder = self.folder / version
            folder.mkdir()
            for name, text in files.items():
                (folder / name).write_text(text)

            found = self.bash('. "$0/deploy/testbed/input.sh"; find_cgroup',
                              PACELINE_CGROUP_ROOT=str(folder))

            self.assertEqual(found.stdout, f"{version} {folder}\n")

    def test_wrong_arguments_are_named(self):
        for arguments, complaint in (
                ("up --cpu 0", "--cpu 0: a node needs at least 0.01"),
                ("up --cpu -1", "--cpu -1: need a number"),
                ("up --cpu nan", "--cpu nan: need a number"),
                ("up --cpu .", "--cpu .: need a number"),
                ("up --cpu 9999", "--cpu 9999: a node cannot get more"),
                ("up --cpu-of 9=0.2", "no node 9; this bed has 1 to 4"),
                ("up --cpu-of 0=0.2", "no node 0; this bed has 1 to 4"),
                ("up --cpu-of 3", "--cpu-of 3: need NODE=VALUE"),
                ("up --cpu-of 3=0", "at least 0.01"),
                ("up --rate 10", "--rate 10: need a rate as 1gbit"),
                ("up --rate 0mbit", "--rate 0mbit: need 64kbit to 100gbit"),
                ("up --rate 999999999999gbit", "need 64kbit to 100gbit"),
                ("up --rate-of 9=1gbit", "no node 9; this bed has 1 to 4"),
                ("up --rate-of 1=fast", "--rate-of fast: need a rate"),
                ("up --nodes 0", "--nodes 0: need a whole number from 1 to 200"),
                ("up --nodes 2.5", "--nodes 2.5: need a whole number"),
                ("up --threads 0", "--threads 0: need a whole number from 1"),
                ("up --lease 0.5", "--lease 0.5: need a whole number from 1"),
                ("up --name ../x", "--name '../x': need 1 to 32"),
                ("up --nodes", "--nodes needs a value"),
                ("up --speed 1", "unknown option '--speed'"),
                ("exec", "which command?"),
                ("kill", "which node?"),
                ("start two", "which node?"),
                ("set", "give --cpu-of"),
                ("status -o xml", "-o xml: need table or json"),
                ("dance", "unknown command 'dance'")):
            with self.subTest(arguments):
                self.ended(testbed(*arguments.split()), 2, complaint)
