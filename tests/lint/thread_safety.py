"""clang's -Wthread-safety: g++ does not read ABSL_GUARDED_BY."""

import json
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from include_rule import includes, kind_of
from tree import Problem

JOBS = 2
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
            kept += [word, words.pop(0)]
        elif word.startswith(("-I", "-D", "-std=")):
            kept.append(word)
    return kept


def complaints(entry):
    result = subprocess.run(
        ["clang++", "-fsyntax-only", "-Wno-everything", "-Wthread-safety",
         "-Werror=thread-safety", *flags_of(entry["command"]), entry["file"]],
        cwd=entry["directory"], capture_output=True, text=True, check=False)
    return result.stderr if result.returncode else ""


def check(tree, build):
    database = Path(build) / "compile_commands.json"
    if not database.exists():
        yield Problem(str(database), 0, "is missing: configure first")
        return
    entries = {}
    for entry in json.loads(database.read_text(encoding="utf-8")):
        file = Path(entry["file"])
        if file.is_relative_to(tree.root.resolve()):
            name = file.relative_to(tree.root.resolve()).as_posix()
            if name in tree.files and concerns(tree, name):
                entries[name] = entry
    with ThreadPoolExecutor(JOBS) as pool:
        for name, said in zip(entries, pool.map(complaints, entries.values())):
            if said:
                yield Problem(name, 0, f"clang says:\n{said}")
