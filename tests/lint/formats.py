"""Files that a tool can read: does the tool accept them?"""

import json
import os
import re
import subprocess
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from tree import Problem


def run(arguments, silent_when_good=False):
    """The tool's complaints, or "" when it accepts."""
    result = subprocess.run(arguments, capture_output=True, text=True,
                            check=False)
    said = (result.stdout + result.stderr).strip()
    if result.returncode == 0:
        return said if silent_when_good else ""
    return said or f"exit code {result.returncode}"


def parse_yaml(text):
    list(yaml.safe_load_all(text))


PARSERS = {".json": json.loads, ".yaml": parse_yaml, ".yml": parse_yaml,
           ".toml": tomllib.loads}


def check_parse(tree):
    for path in tree.with_suffix(*PARSERS):
        try:
            PARSERS[Path(path).suffix](tree.text(path))
        except (ValueError, yaml.YAMLError) as error:
            yield Problem(path, 0, f"does not parse: {error}")


def check_configuration(tree):
    """Keys of deploy/systemd/DAEMON.toml, commented or not, are its flags."""
    for path in tree.with_suffix(".toml"):
        options = f"{Path(path).stem}/options.cc"
        if not path.startswith("deploy/systemd/") or not tree.exists(options):
            continue
        flags = re.findall(r'"(?:-\w,)?--([a-z-]+)"', tree.text(options))
        for number, line in enumerate(tree.lines(path), 1):
            match = re.match(r"(?:# )?([a-z-]+) = ", line)
            if match and match[1] not in flags:
                yield Problem(path, number, f"{options} has no --{match[1]}")


# debhelper makes whole scripts of these.
PARTS_OF_SCRIPTS = (".postinst", ".prerm", ".postrm")


def is_script(tree, path):
    if path.endswith((".sh", *PARTS_OF_SCRIPTS)):
        return True
    if "." in Path(path).name:
        return False
    with open(tree.root / path, "rb") as file:
        return re.match(rb"#!.*\b(ba)?sh\b", file.read(64)) is not None


def check_shell(tree):
    for path in tree.files:
        if not is_script(tree, path):
            continue
        file = tree.root / path
        for tool in (["bash", "-n"], ["shellcheck", "-x"]):
            complaint = run([*tool, str(file)])
            if complaint:
                yield Problem(path, 0, f"{' '.join(tool)}: {complaint}")
        if path.endswith(PARTS_OF_SCRIPTS):
            continue
        if not file.stat().st_mode & 0o100:
            yield Problem(path, 0, "is not executable")
        if "exec " not in tree.text(path) and \
                "set -euo pipefail" not in tree.text(path):
            yield Problem(path, 0, "needs `set -euo pipefail`")


def clang_format_decides():
    """Debian 12's version does: later ones break some lines otherwise."""
    return " 14." in subprocess.run(["clang-format", "--version"],
                                    capture_output=True, text=True,
                                    check=True).stdout


def check_clang_format(tree):
    if not clang_format_decides():
        print("clang_format: skipped, since only version 14 decides")
        return
    files = [str(tree.root / name) for name in tree.sources()]
    batches = [files[begin:begin + 25] for begin in range(0, len(files), 25)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = pool.map(lambda batch: run(
            ["clang-format", "--dry-run", "-Werror", *batch]), batches)
        for line in "\n".join(said).split("\n"):
            match = re.match(r"(.*?):(\d+):\d+: error: ", line)
            if match:
                name = Path(match[1]).relative_to(tree.root).as_posix()
                yield Problem(name, int(match[2]), "clang-format disagrees")


MOST_EXPOSURE = 13  # tenths of what systemd-analyze says


def check_systemd(tree):
    """As if installed: the programs of the units are looked for by systemd."""
    # Avahi gives its files the same suffix.
    units = [path for path in tree.with_suffix(".service")
             if not path.startswith("deploy/avahi/")]
    with tempfile.TemporaryDirectory() as folder:
        for path in units:
            text = re.sub(r"^(Exec\w+=[-+!:]*)\S+", r"\1/bin/true",
                          tree.text(path), flags=re.M)
            copy = Path(folder) / Path(path).name
            copy.write_text(text, encoding="utf-8")
            # An unknown key is complained of, and still ends with 0.
            complaint = run(["systemd-analyze", "verify", "--man=no",
                             "--generators=no", str(copy)],
                            silent_when_good=True)
            if complaint:
                yield Problem(path, 0, complaint)
            elif said := run(["systemd-analyze", "security", "--offline=true",
                              f"--threshold={MOST_EXPOSURE}", str(copy)]):
                yield Problem(path, 0, said.splitlines()[-1] +
                              f": at most {MOST_EXPOSURE / 10} is asked")
