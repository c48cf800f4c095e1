"""install-deps.sh --run names every library that the programs need."""

import subprocess
from pathlib import Path

from tree import Problem

PROGRAMS = ("paceline", "paceline-coordinator", "paceline-worker")
# On every Debian: g++'s and libc's own run-time libraries.
BASE = {"libc6", "libgcc-s1", "libstdc++6"}


def output(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True,
                          check=True).stdout


def needed(program):
    """Sonames that the program itself names (not what those need in turn)."""
    return [line.split("[")[1].rstrip("]")
            for line in output("readelf", "-d", str(program)).split("\n")
            if "(NEEDED)" in line]


def file_of(soname, program):
    for line in output("ldd", str(program)).split("\n"):
        words = line.split()
        if words[:2] == [soname, "=>"] and len(words) > 2:
            return words[2]
    return None


def package_of(file):
    """Debian keeps /lib as a link to /usr/lib; dpkg may know either name."""
    for name in (file, str(Path(file).resolve()),
                 "/usr" + file, file.removeprefix("/usr")):
        result = subprocess.run(["dpkg", "-S", name], capture_output=True,
                                text=True, check=False)
        if result.returncode == 0:
            return result.stdout.split(":")[0]
    return None


def check(tree, build):
    listed = set(output("bash", str(tree.root / "deploy/install-deps.sh"),
                        "--list", "--run").split())
    for name in PROGRAMS:
        program = Path(build) / "bin" / name
        if not program.exists():
            yield Problem(str(program), 0, "was not built")
            continue
        for soname in needed(program):
            file = file_of(soname, program)
            package = package_of(file) if file else None
            if package not in listed | BASE:
                yield Problem("deploy/install-deps.sh", 0, f"{name} needs "
                              f"{soname} of package {package}, which --run "
                              "does not install")
