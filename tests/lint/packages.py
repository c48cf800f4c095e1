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
    """{soname: file} of those that the program itself names."""
    named = {line.split("[")[1].rstrip("]")
             for line in output("readelf", "-d", str(program)).split("\n")
             if "(NEEDED)" in line}
    lines = [line.split() for line in output("ldd", str(program)).split("\n")]
    return {words[0]: words[2] for words in lines
            if len(words) > 2 and words[0] in named}


def names_of(file):
    """Debian keeps /lib as a link to /usr/lib; dpkg may know either name."""
    return {file, str(Path(file).resolve()), "/usr" + file,
            file.removeprefix("/usr")}


def packages_of(files):
    """{name: package} of all names of these files that dpkg knows."""
    names = sorted(set().union(*map(names_of, files)))
    # It fails where it does not know one of them, and prints the others.
    lines = subprocess.run(["dpkg", "-S", *names], capture_output=True,
                           text=True, check=False).stdout.split("\n")
    return {line.split(": ", 1)[1]: line.split(":")[0]
            for line in lines if ": " in line}


def check(tree, build):
    listed = set(output("bash", str(tree.root / "deploy/install-deps.sh"),
                        "--list", "--run").split())
    programs = [Path(build) / "bin" / name for name in PROGRAMS]
    for program in programs:
        if not program.exists():
            yield Problem(str(program), 0, "was not built")
            return
    libraries = {program.name: needed(program) for program in programs}
    packages = packages_of({file for files in libraries.values()
                            for file in files.values()})
    for name, files in libraries.items():
        for soname, file in files.items():
            owners = {packages.get(each) for each in names_of(file)} - {None}
            if not owners & (listed | BASE):
                yield Problem("deploy/install-deps.sh", 0, f"{name} needs "
                              f"{soname} of package {owners or 'unknown'}, "
                              "which --run does not install")
