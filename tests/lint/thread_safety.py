"""clang's -Wthread-safety: g++ does not read ABSL_GUARDED_BY."""

import json
import re
import shlex
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from include_rule import includes, kind_of
from tree import Problem

JOBS = 2
# Headers that clang reads once for all files: most of its time goes there.
PRECOMPILED = {"absl", "grpc", "generated", "gtest", "standard"}
# LibTorch's headers take clang half a minute a file, and its folder holds no
# lock of ours that another thread wants.
SKIPPED = re.compile(r"(worker/torch|tests/torch)/")
ANNOTATED = re.compile(r"\bABSL_(GUARDED_BY|EXCLUSIVE_LOCKS_REQUIRED|"
                       r"PT_GUARDED_BY|LOCKS_EXCLUDED)\b|absl::Mutex")


def concerns(tree, path):
    """True when the file, or a header of ours that it names, has a lock."""
    if SKIPPED.match(path):
        return False
    headers = [header for _, _, header in includes(tree, path)]
    if any(kind_of(h) == "torch" or h.startswith("worker/torch/")
           for h in headers):
        return False
    own = [h for h in headers if kind_of(h) == "own" and tree.exists(h)]
    return any(ANNOTATED.search(tree.text(name)) for name in [path, *own])


def flags_of(command):
    """The -I, -D and -isystem words of a g++ command line."""
    words, kept = shlex.split(command), []
    while words:
        word = words.pop(0)
        if word in ("-isystem", "-I", "-D"):
            kept.append(word + words.pop(0))
        elif word.startswith(("-I", "-D", "-std=")):
            kept.append(word)
    return kept


def clang(flags, *words):
    """What clang complains of."""
    result = subprocess.run(["clang++", "-Wno-everything", "-Wthread-safety",
                             "-Werror=thread-safety", *flags, *words],
                            capture_output=True, text=True, check=False)
    return result.stderr if result.returncode else ""


def library_headers(tree, names):
    """The headers of libraries that two of the files or more include."""
    count = Counter(header for name in names
                    for header in {h for _, _, h in includes(tree, name)}
                    if kind_of(header) in PRECOMPILED)
    return sorted(header for header, files in count.items() if files > 1)


def check(tree, build):
    database = Path(build) / "compile_commands.json"
    if not database.exists():
        yield Problem(str(database), 0, "is missing: configure first")
        return
    names, flags = [], {}
    for entry in json.loads(database.read_text(encoding="utf-8")):
        file = Path(entry["file"])
        if file.is_relative_to(tree.root.resolve()):
            name = file.relative_to(tree.root.resolve()).as_posix()
            if name in tree.files and concerns(tree, name):
                names.append(name)
                flags |= dict.fromkeys(flags_of(entry["command"]))
    # All files share the flags, so that they can share the parsed headers.
    with TemporaryDirectory() as folder, ThreadPoolExecutor(JOBS) as pool:
        header = Path(folder) / "headers.h"
        header.write_text("".join(f"#include <{name}>\n" for name in
                                  library_headers(tree, names)))
        said = clang(flags, "-x", "c++-header", str(header), "-o",
                     f"{header}.pch")
        if said:
            yield Problem(str(database), 0, f"clang says:\n{said}")
            return
        check_one = partial(clang, flags, "-fsyntax-only", "-include-pch",
                            f"{header}.pch")
        paths = [str(tree.root.resolve() / name) for name in names]
        for name, said in zip(names, pool.map(check_one, paths)):
            if said:
                yield Problem(name, 0, f"clang says:\n{said}")
