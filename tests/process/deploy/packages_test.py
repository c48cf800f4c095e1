"""deploy/packages.sh: what the Debian packages hold, what lintian says, and
what dpkg does with them, on a copy of this system that nobody else sees."""

import os
import re

from mesh_case import ProcessCase, put_packages, run

# Below /usr or not: Debian 12 has units in /lib, Debian 13 in /usr/lib.
FILES = {
    "paceline-coordinator": {
        "/bin/paceline-coordinator", "/etc/paceline/coordinator.toml",
        "/lib/systemd/system/paceline-coordinator.service",
        "/lib/sysusers.d/paceline-coordinator.conf",
        "/lib/tmpfiles.d/paceline-coordinator.conf",
        "/share/man/man1/paceline-coordinator.1.gz"},
    "paceline-worker": {
        "/bin/paceline-worker", "/etc/paceline/worker.toml",
        "/lib/systemd/system/paceline-worker.service",
        "/lib/systemd/system/paceline-worker@.service",
        "/lib/sysusers.d/paceline-worker.conf",
        "/lib/tmpfiles.d/paceline-worker.conf",
        "/share/man/man1/paceline-worker.1.gz"},
    "paceline-client": {
        "/bin/paceline", "/share/man/man1/paceline.1.gz",
        "/share/bash-completion/completions/paceline",
        "/share/zsh/vendor-completions/_paceline",
        "/share/fish/vendor_completions.d/paceline.fish",
        "/share/doc/paceline-client/examples/fashion-mnist.yaml"},
    "paceline-dashboards": {
        "/share/paceline/dashboards/faults.json",
        "/share/paceline/dashboards/mesh.json",
        "/share/paceline/dashboards/pipeline.json",
        "/share/paceline/dashboards/prometheus.yml"},
}

# The copy is gone with the namespace that mounts it.
COPY = """
set -euxo pipefail
cd "$1"
mount -t tmpfs none copy
mkdir copy/{upper,work,root}
mount -t overlay -o lowerdir=/,upperdir=copy/upper,workdir=copy/work none copy/root
mount --rbind /dev copy/root/dev
mount -t proc none copy/root/proc
mkdir copy/root/debs
mount --bind . copy/root/debs
exec chroot copy/root bash -euxc "$2"
"""

# No systemd runs in there.  Triggers only rebuild indexes of the whole system.
LIFE = """
cd /debs
dpkg --no-triggers -i *.deb
[[ $(stat -c %U:%a /var/lib/paceline-worker) == paceline-worker:700 ]]
[[ $(stat -c %U:%a /srv/paceline) == root:755 ]]
[[ $(stat -c %U:%a /var/lib/paceline-coordinator) == paceline-coordinator:700 ]]
links=/etc/systemd/system/multi-user.target.wants
[[ -L $links/paceline-worker.service ]]
[[ -L $links/paceline-coordinator.service ]]
paceline --version
bash -c '. /usr/share/bash-completion/completions/paceline; complete -p paceline'

: what a machine that has joined looks like
echo 'name = "kept"' >>/etc/paceline/worker.toml
cp /etc/paceline/worker{,2}.toml
cp /etc/paceline/worker{,-gpu}.toml
mkdir /var/lib/paceline-worker/tls /var/lib/paceline-worker{2,3,-gpu}
ln -s /lib/systemd/system/paceline-worker@.service $links/paceline-worker@2.service

: folders of a person, under names alike
mkdir /var/lib/paceline-{worker,coordinator}-data /var/lib/paceline-worker2.old
touch /etc/paceline/notes

: a later release
dpkg --no-triggers --force-confold -i later/*.deb
[[ $(dpkg-query -Wf '${Version}' paceline-worker) == 9-1 ]]
grep kept /etc/paceline/worker.toml
grep later /etc/paceline/coordinator.toml
[[ -d /var/lib/paceline-worker/tls ]]

: remove, then purge
packages=(paceline-{coordinator,worker,client,dashboards})
dpkg --no-triggers -r "${packages[@]}"
[[ ! -e /usr/bin/paceline-worker && ! -e /usr/share/paceline ]]
[[ -d /var/lib/paceline-worker/tls && -e /etc/paceline/coordinator.toml ]]
grep kept /etc/paceline/worker.toml
dpkg --no-triggers -P "${packages[@]}"
left=$(find /etc /usr /var/lib/systemd /var/lib/dpkg/info \
  /var/lib/paceline-{worker,coordinator}* -xdev \
  -name 'paceline*' 2>/dev/null || true)
[[ $(LC_ALL=C sort <<<"$left") == "$(printf '%s\n' /etc/paceline \
  /var/lib/paceline-{coordinator-data,worker-data,worker2.old})" ]]
[[ $(ls /etc/paceline) == notes ]]
"""


def later_release(package, out):
    """The same package with a higher version and other default files."""
    folder = out.parent / package.stem
    run("dpkg-deb", "-R", package, folder)
    control = folder / "DEBIAN" / "control"
    control.write_text(re.sub("(?m)^Version: .*", "Version: 9-1",
                              control.read_text()))
    for file in folder.glob("etc/paceline/*.toml"):
        file.write_text(file.read_text() + "# later\n")
    run("dpkg-deb", "-b", "-Zgzip", "-z1", folder, out / package.name)


def can_mount():
    return os.geteuid() == 0 and run(
        "unshare", "-m", "bash", "-c", "mount -t tmpfs none /mnt && cd /mnt && "
        "mkdir u w r && mount -t overlay -o lowerdir=/,upperdir=u,workdir=w "
        "none r").returncode == 0


class Packages(ProcessCase):
    def setUp(self):
        super().setUp()
        self.good(put_packages(self.folder))
        self.packages = {file.name.split("_")[0]: file
                         for file in self.folder.glob("*.deb")}

    def test_are_right_and_keep_what_is_a_persons_until_they_are_purged(self):
        self.check_files()
        self.good(run("lintian", "--fail-on", "error", *self.packages.values()))
        if not can_mount():
            self.skipTest("needs root and overlay mounts to install them")
        self.check_life()

    def check_files(self):
        self.assertEqual(self.packages.keys(), FILES.keys())
        for name, file in self.packages.items():
            listing = run("dpkg-deb", "-c", file).stdout
            held = {path.removeprefix("/usr")
                    for path in re.findall(r" \.(/\S+)\n", listing)}
            doc = f"/share/doc/{name}/"
            self.assertLessEqual({*FILES[name], doc + "copyright", doc
                                  + "changelog.Debian.gz"}, held)

    def check_life(self):
        (self.folder / "later").mkdir()
        (self.folder / "copy").mkdir()
        for file in self.packages.values():
            later_release(file, self.folder / "later")

        self.good(run("unshare", "-m", "bash", "-c", COPY, "copy", self.folder,
                      LIFE))
