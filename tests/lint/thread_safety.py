"""clang's -Wthread-safety on the product: g++ does not read ABSL_GUARDED_BY."""

import json
import re
import shlex
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from include_rule import includes, kind_of
from tree import Problem

JOBS = 2
# Headers that clang reads once for all files: most of its time goes there.
PRECOMPILED = {"absl", "grpc", "generated", "gtest", "standard"}
PRODUCT = re.compile(r"(core|coordinator|worker|client)/")
ANNOTATED = re.compile(r"\bABSL_(GUARDED_BY|EXCLUSIVE_LOCKS_REQUIRED|"
                       r"PT_GUARDED_BY|LOCKS_EXCLUDED)\b|absl::Mutex")


# LibTorch's headers take clang half a minute a file, and its folder holds no
# lock of ours that another thread wants.
def has_torch(tree, path):
    """True when clang would read LibTorch's headers for the file."""
    return any(kind_of(h) == "torch" or h.startswith("worker/torch/")
               for _, _, h in includes(tree, path))


def concerns(tree, path):
    """True when the file, or a header of ours that it names, has a lock."""
    headers = [header for _, _, header in includes(tree, path)]
    own = [h for h in headers if kind_of(h) == "own" and tree.exists(h)]
    return any(ANNOTATED.search(tree.text(name)) for name in [path, *own])


def files_of(tree, path):
    """The files of ours in what is compiled: one, or those of a batch."""
    is_batch = path.parent.name == "Unity"
    text = path.read_text("utf-8") if is_batch else f'#include "{path}"'
    names = re.findall(f'#include "{re.escape(str(tree.root.resolve()))}/(.*)"',
                       text)
    return [name for name in names if name in tree.files]


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
    batches, flags = [], {}
    for entry in json.loads(database.read_text(encoding="utf-8")):
        locked = [name for name in files_of(tree, Path(entry["file"]))
                  if PRODUCT.match(name) and concerns(tree, name)
                  and not has_torch(tree, name)]
        if locked:
            batches.append(locked)
            flags |= dict.fromkeys(flags_of(entry["command"]))
    # All files share the flags, so that they can share the parsed headers.
    with TemporaryDirectory() as folder, ThreadPoolExecutor(JOBS) as pool:
        header = Path(folder) / "headers.h"
        header.write_text("".join(f"#include <{name}>\n" for name in
                                  library_headers(tree, sum(batches, []))))
        said = clang(flags, "-x", "c++-header", str(header), "-o",
                     f"{header}.pch")
        if said:
            yield Problem(str(database), 0, f"clang says:\n{said}")
            return

        def check_batch(batch):
            file = Path(folder) / f"{batch[0].replace('/', '_')}.cc"
            file.write_text("".join(f'#include "{tree.root.resolve()}/{name}"\n'
                                    for name in batch))
            return clang(flags, "-fsyntax-only", "-include-pch",
                         f"{header}.pch", str(file))
        for batch, said in zip(batches, pool.map(check_batch, batches)):
            if said:
                yield Problem(batch[0], 0, f"clang says:\n{said}")
