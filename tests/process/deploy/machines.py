"""Machines for tests: systemd boots in containers (systemd-nspawn) on this
machine's own root.  Each has a writable layer over it, an address, a cgroup and
a machine id of its own; it sees none of this machine's services and settings.

A file of tests calls enter_world() first: it and its machines then live in
mount, PID and network namespaces of their own.  The kernel ends all of it with
the test, however that ends.  Only empty cgroups may stay, which the next run
removes.
"""

import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from mesh_case import ClientCase, eventually, put_packages, run

BOOT_SECONDS = 60
WORLD = "PACELINE_TEST_WORLD"  # set in the namespaces: a number of its own
UNSHARE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
           "--mount-proc")
# Nothing of the test's own environment.
ENVIRONMENT = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
               "LANG=C.UTF-8")

# Folders of this machine that a test must not see: what it starts, its own
# mesh, its logs.
HIDDEN = ("etc/avahi/services", "etc/init.d", "etc/paceline",
          "etc/systemd/network", "etc/systemd/system", "root",
          "var/lib/paceline-coordinator", "var/lib/paceline-worker",
          "var/lib/private", "var/log/journal")
FILES = {
    "etc/fstab": "",
    "etc/hostname": "{name}\n",
    "etc/hosts": "127.0.0.1 localhost\n{address} {name}\n",
    "etc/machine-id": "{machine_id}\n",
    # Before what systemd itself would do with it.
    "etc/systemd/network/10-host0.network":
        "[Match]\nName=host0\n[Network]\nAddress={address}/24\n"
        "LinkLocalAddressing=no\n",
    # An image of a container has one that lets packages start no service.
    "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 0\n",
}
ENABLED = ("multi-user.target.wants/systemd-networkd.service",
           "network-online.target.wants/systemd-networkd-wait-online.service")
MASKED = ("console-getty.service", "getty.target", "systemd-logind.service")


def cgroups(name):
    """The folders where systemd keeps a machine's services: in the hierarchy of
    version 2, or beside it in the one that version 1 has for systemd."""
    top = Path("/sys/fs/cgroup")
    both = [top / each for each in ("unified", "systemd")]
    return [root / name for root in ([top] if (top / "cgroup.procs").exists()
                                     else both) if root.is_dir()]


def remove_cgroups(name):
    """Those that are empty; False: some are not, yet."""
    for top in cgroups(name):
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    return not any(top.exists() for top in cgroups(name))


def why_no_world():
    """Why no machine can be started here; empty when one can."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("systemd-nspawn", "ip", "nsenter", "unshare"):
        if not shutil.which(tool):
            return f"needs {tool} (deploy/install-deps.sh --test)"
    probed = run(*UNSHARE, "true")
    return ("" if probed.returncode == 0 else
            f"no namespaces here: {probed.stderr.strip()}")


def enter_world():
    """Begins this program again in namespaces of its own, if that is possible;
    returns in there, or where it is not possible."""
    if WORLD in os.environ or why_no_world():
        return
    # In there no other process is seen: what has died is found out here.
    for folder in cgroups("."):
        for left in folder.glob("paceline-machines-*"):
            number = re.match(r"paceline-machines-(\d+)", left.name)[1]
            if not Path("/proc", number).exists():
                remove_cgroups(left.name)
    os.environ[WORLD] = str(os.getpid())
    os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, *sys.argv])


class NoMachines(Exception):
    """None boots on this host, with nothing of ours in it yet."""


def init_of(nspawn):
    """The machine's first process, once there is one."""
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{nspawn}/task/{nspawn}/children"
                        ).read_text().split():
            if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                return int(pid)
    return None


class Machine:
    """One of them; number 1 is `pl1` at 10.0.0.1."""

    def __init__(self, folder, number, shared):
        self.name = f"pl{number}"
        self.address = f"10.0.0.{number}"
        self.console = folder / f"{self.name}.console"
        self.init = None
        self._group = f"paceline-machines-{os.environ[WORLD]}-{self.name}"
        self._layers = folder / self.name
        self._process = None
        self._shared = shared  # /shared in there

    def power_on(self):
        for group in cgroups(self._group):
            try:
                group.mkdir(exist_ok=True)
            except OSError as error:
                raise NoMachines(f"no cgroup: {error}") from error
        # Machines in one cgroup would kill each other's services.
        join = "for i in $0; do echo 0 >$i/cgroup.procs; done; exec \"$@\""
        with open(self.console, "wb") as console:
            self._process = subprocess.Popen(
                ["bash", "-c", join, " ".join(map(str, cgroups(self._group))),
                 "systemd-nspawn", "--quiet", "--boot",
                 f"--directory={self._layers / 'root'}",
                 f"--machine={self.name}", f"--hostname={self.name}",
                 "--register=no", "--keep-unit", "--network-bridge=machines",
                 "--link-journal=no", "--resolv-conf=off", "--timezone=off",
                 f"--bind-ro={self._shared}:/shared", "--console=pipe"],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console)

    def make_root(self):
        """What differs from this machine's root, and layers of it all."""
        upper, work, root = (self._layers / name
                             for name in ("upper", "work", "root"))
        for folder in (upper, work, root):
            folder.mkdir(parents=True)
        own = {"name": self.name, "address": self.address,
               "machine_id": uuid.uuid4().hex}
        for hidden in HIDDEN:
            (upper / hidden).mkdir(parents=True)
            os.setxattr(upper / hidden, "trusted.overlay.opaque", b"y")
        for path, text in FILES.items():
            (upper / path).parent.mkdir(parents=True, exist_ok=True)
            (upper / path).write_text(text.format(**own))
        (upper / "usr/sbin/policy-rc.d").chmod(0o755)
        units = upper / "etc/systemd/system"
        for link in ENABLED:
            (units / link).parent.mkdir()
            (units / link).symlink_to(Path("/lib/systemd/system",
                                           Path(link).name))
        for unit in MASKED:
            (units / unit).symlink_to("/dev/null")
        mounted = run("mount", "-t", "overlay", "overlay", "-o",
                      f"lowerdir=/,upperdir={upper},workdir={work}", root)
        if mounted.returncode != 0:
            raise NoMachines(f"no overlay: {mounted.stderr}")

    def await_boot(self):
        def is_up():
            self.init = init_of(self._process.pid)
            return self._process.poll() is not None or self.init and self.run(
                "systemctl", "is-system-running").stdout.strip() in (
                    "running", "degraded")
        if not eventually(is_up, BOOT_SECONDS) or self._process.poll():
            raise NoMachines(f"{self.name} does not boot: "
                             f"{self.console.read_text()[-2000:]}")

    def run(self, *command, seconds=120):
        """Runs a command in there, as root."""
        return run("nsenter", "--target", self.init, "--all", "--",
                   *ENVIRONMENT, *command, seconds=seconds)

    def do(self, *command, seconds=120):
        """The output of a command that must succeed."""
        finished = self.run(*command, seconds=seconds)
        if finished.returncode != 0:
            raise AssertionError(f"{self.name}: {' '.join(map(str, command))} "
                                 f"ended with {finished.returncode}: "
                                 f"{finished.stdout}{finished.stderr}")
        return finished.stdout

    def _path(self, path):
        return Path(f"/proc/{self.init}/root{path}")

    def write(self, path, text):
        self._path(path).parent.mkdir(parents=True, exist_ok=True)
        self._path(path).write_text(text)

    def read(self, path):
        return self._path(path).read_text()

    def property(self, unit, name):
        return self.do("systemctl", "show", "--property", name, "--value",
                       unit).strip()

    def reboot(self):
        self.run("systemctl", "reboot")
        self._process.wait(BOOT_SECONDS)  # it asks its caller to begin again
        self.power_on()
        self.await_boot()

    def pull_the_plug(self):
        """Its neighbours hear nothing more of it, not even a goodbye."""
        run("ip", "link", "set", f"vb-{self.name}", "down")
        os.kill(self.init, signal.SIGKILL)
        self._process.wait()

    def stop(self):
        if self._process is not None:
            if self._process.poll() is None and self.init:
                os.kill(self.init, signal.SIGKILL)
            else:
                self._process.kill()
            self._process.wait()
        eventually(lambda: remove_cgroups(self._group), 10)


def on_all(machines, work):
    """Does the work on all at a time."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(work, machines))


class MachinesCase(ClientCase):
    """For tests of machines on one network, which nobody else reaches.  They
    install the packages: a coordinator on the first, a worker on each."""

    def boot(self, count):
        """Skips the test where no machine boots."""
        if why := why_no_world():
            self.skipTest(why)
        folder = self.folder / "machines"
        self.packages = self.folder / "packages"
        for each in (folder, self.packages):
            each.mkdir()
        made = run("bash", "-c", """
set -e
mount -t tmpfs tmpfs "$0"
mount -t tmpfs tmpfs /run
ip link show machines &>/dev/null || ip link add machines type bridge
ip link set machines up
""", folder)
        self.addCleanup(run, "umount", "--lazy", folder)
        self.machines = [Machine(folder, i, self.packages)
                         for i in range(1, count + 1)]
        self.first = self.machines[0]
        try:
            if made.returncode != 0:
                raise NoMachines(made.stderr)
            for machine in self.machines:
                self.addCleanup(machine.stop)
                machine.make_root()
                machine.power_on()
            for machine in self.machines:
                machine.await_boot()
        except NoMachines as why_not:
            self.skipTest(str(why_not))
        self.good(put_packages(self.packages))  # /shared of the machines

    def install(self):
        def install(machine):
            # Pages of manuals would be indexed for seconds.
            machine.do("sh", "-c", "dpkg --no-triggers -i " + " ".join(
                f"/shared/paceline-{each}_*.deb" for each in (
                    ["coordinator", "client", "worker"]
                    if machine is self.first else ["worker"])))
        on_all(self.machines, install)

    def start_coordinator(self):
        self.first.do("sed", "-i", "-e",
                      's|^# listen = .*|listen = "0.0.0.0:7400"|', "-e",
                      "s|^# tls = .*|tls = true|",
                      "/etc/paceline/coordinator.toml")
        self.first.do("systemctl", "restart", "paceline-coordinator")

    def join(self, machine):
        machine.do("paceline-worker", "join", f"{self.first.address}:7400",
                   self.first.do("paceline", "token", "create").strip())
        machine.do("systemctl", "restart", "paceline-worker")

    def run_client(self, *arguments):
        return self.first.run("paceline", *arguments)

    def idle(self):
        return [each["name"] for each in self.workers()
                if each["state"] == "idle"]
