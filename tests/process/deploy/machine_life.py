"""Machines from their first package to their last: set up over ssh, with two
workers on one, rebooted, and rid of the packages.

Needs root, systemd-nspawn, dropbear and the sftp server of OpenSSH; is skipped
without.
"""

import shutil
import unittest

from machines import MachinesCase, enter_world, on_all
from mesh_case import ROOT

CERTIFICATE = "/var/lib/paceline-worker/tls/certificate.pem"
SSH = """
set -e
mkdir -p /etc/dropbear /root/.ssh
cp /shared/key.pub /root/.ssh/authorized_keys
systemd-run --quiet --unit=dropbear dropbear -R -F
"""
OPERATOR = """
set -e
mkdir -p /root/.ssh
cp /shared/key /root/.ssh/id_ed25519
chmod 600 /root/.ssh/id_ed25519
echo StrictHostKeyChecking accept-new >/root/.ssh/config
"""


class MachineLife(MachinesCase):
    def await_names(self, *names):
        self.soon(lambda: sorted(self.idle()) == sorted(names), self.idle)

    def processes(self):
        return [(each.property("paceline-coordinator", "MainPID"),
                 each.property("paceline-worker", "MainPID"))
                for each in self.machines]

    @unittest.skipUnless(shutil.which("dropbear") and
                         shutil.which("ssh-keygen"), "needs dropbear, ssh")
    def test_machines_are_set_up_over_ssh_and_left_alone_the_second_time(self):
        self.boot(3)
        operator = self.machines.pop()
        shutil.copytree(ROOT / "deploy", self.packages / "deploy")
        operator.do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                    "/root/key")
        for name in ("key", "key.pub"):
            (self.packages / name).write_text(operator.read(f"/root/{name}"))
        operator.do("sh", "-c", OPERATOR)
        on_all(self.machines, lambda each: each.do("sh", "-c", SSH))
        set_up = ("/shared/deploy/machines.sh", "--packages", "/shared",
                  *(f"root@{each.address}" for each in self.machines))

        operator.do(*set_up)

        self.await_names("pl1", "pl2")
        before = self.processes()
        self.ended(operator.run(*set_up), 0,
                   f"{self.first.address}: has joined already")
        self.assertEqual(self.processes(), before)

    def test_services_come_back_after_a_reboot_and_go_with_a_purge(self):
        self.boot(2)
        self.install()
        self.start_coordinator()
        on_all(self.machines, self.join)
        second = self.machines[1]
        self.add_second_worker(second)
        self.await_names("pl1", "pl2", "pl2b")
        certificate = second.read(CERTIFICATE)

        on_all(self.machines, lambda each: each.reboot())

        for each in self.machines:
            self.soon(lambda one=each: one.property("paceline-worker",
                                                    "ActiveState") == "active")
        self.await_names("pl1", "pl2", "pl2b")
        self.assertEqual(second.read(CERTIFICATE), certificate)

        second.do("dpkg", "--no-triggers", "-P", "paceline-worker")

        left = second.run("pgrep", "-x", "paceline-worker").stdout
        self.assertEqual(left, "")
        self.assertEqual(second.do("sh", "-c", "ls -d /etc/paceline* "
                                   "/var/lib/paceline-worker* 2>&1 || true"
                                   ).count("No such file"), 2)
        self.await_names("pl1")

    def add_second_worker(self, machine):
        machine.write("/etc/paceline/worker2.toml",
                      'name = "pl2b"\nlisten = "0.0.0.0:7411"\n'
                      'http = "127.0.0.1:7491"\nmachine-workers = 2\n')
        machine.do("paceline-worker", "--config", "/etc/paceline/worker2.toml",
                   "--state", "/var/lib/paceline-worker2", "join",
                   f"{self.first.address}:7400",
                   self.first.do("paceline", "token", "create").strip())
        machine.do("systemctl", "enable", "--now", "paceline-worker@2")
