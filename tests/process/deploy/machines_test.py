"""Four machines with the packages: they join with tokens, and train with TLS
under systemd.  Needs root and systemd-nspawn, and is skipped without."""

import re

from machines import MachinesCase, enter_world, on_all
from mesh_case import JOB

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
        self.install()
        self.start_coordinator()
        on_all(self.machines, self.join)
        self.await_idle(4)
        job = "/root/job.yaml"
        self.first.write(job, JOB)
        self.submit(job)
        self.assert_confined(self.first)

        self.begin(job, step=30)
        _, _, third, fourth = self.machines
        third.do("systemctl", "kill", "--kill-who=main", "--signal=KILL",
                 "paceline-worker")
        self.await_event("attempt 2 begins from step")
        fourth.pull_the_plug()
        self.await_event("attempt 3 begins from step")
        self.has(self.events(), "pl3: ", "pl4: silent for")
        self.expect_undisturbed(job)
        self.soon(lambda: "pl3" in self.idle())
        self.assertEqual([each.property("paceline-worker", "NRestarts")
                          for each in self.machines[:3]], ["0", "0", "1"])

    def weights_so_far(self, job):
        """Of a file that is in the first machine."""
        exported = self.client("job", "export", job, "-o", "/root/weights")
        step = re.search(r"weights after step (\d+)", exported.stderr)
        if exported.returncode != 0 or not step:
            return None
        return int(step[1]), self.first.do("sha256sum",
                                           "/root/weights").split()[0]

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
