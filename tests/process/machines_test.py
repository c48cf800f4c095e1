"""Four machines with the packages: they join with tokens, and train with TLS
under systemd.  Needs root and systemd-nspawn, and is skipped without."""

import re

from machines import MachinesCase, enter_world, on_all
from mesh_case import ENDLESS, JOB

JOB = JOB.replace("stages: 3", "stages: 4")
MOST_EXPOSURE = 13  # tenths of what systemd-analyze says

# What a daemon would do that has been taken over, and the errors it gets.
PROBE = """
import errno, socket
def error_of(attempt):
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "allowed"
print(error_of(lambda: open("/home/loot", "w")),
      error_of(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
      file=open("/var/lib/paceline-{daemon}/probe", "w"))
"""


class FourMachines(MachinesCase):
    def test_train_confined_and_outlive_a_worker_and_a_machine(self):
        self.boot(4)
        self.make_packages()
        self.install()
        self.start_coordinator()
        on_all(self.machines, self.join)
        self.soon(lambda: len(self.idle()) == 4, lambda: self.idle())
        self.first.write("/root/job.yaml", JOB)
        self.ask("job", "submit", "/root/job.yaml")
        self.assert_confined(self.first)

        self.first.do("paceline", "job", "submit", "/root/job.yaml", "--set",
                      ENDLESS, "--detach")
        self.soon(lambda: self.job()["step"] > 30)
        _, _, third, fourth = self.machines
        third.do("systemctl", "kill", "--kill-who=main", "--signal=KILL",
                 "paceline-worker")
        self.await_event("attempt 2 begins from step")
        fourth.pull_the_plug()
        self.await_event("attempt 3 begins from step")
        self.has(self.events(), "pl3: ", "pl4: silent for")
        self.assert_trains_as_if_nothing_had_happened()
        self.soon(lambda: "pl3" in self.idle())
        self.assertEqual([each.property("paceline-worker", "NRestarts")
                          for each in self.machines[:3]], ["0", "0", "1"])

    def assert_trains_as_if_nothing_had_happened(self):
        happened = self.job()["step"]
        step = 0

        def beyond():
            nonlocal step
            exported = self.first.run("paceline", "job", "export", "last",
                                      "-o", "/root/weights")
            after = re.search(r"weights after step (\d+)", exported.stderr)
            step = int(after[1]) if after else 0
            return step > happened
        self.soon(beyond)
        events = self.events()
        weights = self.first.do("sha256sum", "/root/weights").split()[0]
        self.first.do("paceline", "job", "stop", "last")
        alone = self.ask("job", "submit", "/root/job.yaml", "--set",
                         f"train.steps={step}")
        self.assertEqual(weights, alone["weights_sha256"], events)

    def probe(self, machine, daemon):
        """The errors that the probe gets inside the unit that runs: another
        command of its reload is as confined as the daemon."""
        unit = f"paceline-{daemon}"
        machine.write("/usr/bin/probe.py", PROBE.format(daemon=daemon))
        machine.write(f"/etc/systemd/system/{unit}.service.d/probe.conf",
                      "[Service]\nExecReload=python3 /usr/bin/probe.py\n")
        machine.do("systemctl", "daemon-reload")
        machine.do("systemctl", "reload", unit)
        return machine.read(f"/var/lib/{unit}/probe").split()

    def assert_confined(self, machine):
        for daemon, home in (("coordinator", "EACCES"), ("worker", "EROFS")):
            unit = f"paceline-{daemon}"
            process = machine.property(unit, "MainPID")
            self.assertEqual(self.probe(machine, daemon), [home, "EPERM"])
            self.assertEqual(machine.property(unit, "MainPID"), process)
            # Outside of the unit both are possible.
            machine.do("python3", "/usr/bin/probe.py")
            self.assertEqual(machine.read(f"/var/lib/{unit}/probe").split(),
                             ["allowed", "allowed"])
            machine.do("systemd-analyze", "security", "--no-pager",
                       f"--threshold={MOST_EXPOSURE}", unit)
