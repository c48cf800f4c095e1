"""deploy/install-deps.sh: which systems it serves.  Installs nothing."""

import os

from mesh_case import ROOT, ProcessCase, run


class InstallDeps(ProcessCase):
    def run_script(self, *arguments, os_release):
        """Runs the script as on a system with these lines in its os-release,
        and with the programs of the test's folder before others."""
        file = self.folder / "os-release"
        file.write_text(os_release)
        return run(ROOT / "deploy" / "install-deps.sh", *arguments, seconds=60,
                   PACELINE_OS_RELEASE=str(file),
                   PATH=f"{self.folder}:{os.environ['PATH']}")

    def test_names_the_packages_of_both_releases(self):
        for release, wanted, other in (
                ("bookworm", "libtorch1.13\n", "libtorch2"),
                ('"trixie"', "libtorch2.6\n", "libtorch1")):
            finished = self.run_script(
                "--list", "--run", os_release=f"VERSION_CODENAME={release}\n")

            self.assertEqual(finished.returncode, 0, finished.stderr)
            self.assertIn(wanted, finished.stdout)
            self.assertNotIn(other, finished.stdout)

    def test_refuses_a_release_whose_names_it_does_not_know(self):
        self.ended(self.run_script("--run",
                                   os_release='VERSION_CODENAME=noble\n'
                                   'PRETTY_NAME="Ubuntu 24.04"\n'), 1,
                   "'Ubuntu 24.04'", "Debian 12 or 13")

    def test_refuses_a_system_of_32_bits_whatever_its_kernel(self):
        (self.folder / "dpkg").write_text("#!/bin/sh\necho armhf\n")
        (self.folder / "dpkg").chmod(0o700)

        self.ended(self.run_script("--run",
                                   os_release="VERSION_CODENAME=bookworm\n"), 1,
                   "armhf", "64-bit system")
