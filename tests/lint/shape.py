"""STYLE: what can be read off a file's outside."""

import re

from include_rule import includes
from tree import Problem

MAX_FILE_LINES = 1000
MAX_FUNCTION_LINES = 80
MAX_FOLDER_FILES = 25
# Data, not code: nobody reads a folder of it from top to bottom.
MAY_BE_LARGE = ("tests/fuzz/corpus/",)

TOP_LEVEL = {
    "CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md",
    "client", "coordinator", "core", "dashboards", "deploy", "proto", "tests",
    "worker", ".ci",
}
REFUSED_FOLDERS = {"docs", "common", "utils", "util", "misc"}

SLEEP = re.compile(r"\b(sleep_for|sleep_until|SleepFor|usleep|nanosleep|"
                   r"sleep)\s*\(")
MAY_SLEEP = ("tests/cluster/", "tests/bench/",
             "tests/support/pipeline/fake_engine.cc")  # its pace

# Logic takes (state, policy, now).  core/base holds the clock, the
# threads and the locks that the rest is given.
PURE = ("core/job/", "core/data/", "core/model/", "core/plan/", "core/predict/", "core/schedule/",
        "core/simulate/", "core/cluster/", "core/round/", "core/recover/",
        "core/optim/", "client/study/")
IMPURE = re.compile(
    r"\babsl::Now\(|_clock::now\(|\b(SleepFor|sleep_for)\(|absl::Mutex\b|"
    r"std::(mutex|thread|jthread|random_device|cout|cerr)\b|"
    r"\b(getenv|printf|fprintf|rand|time)\(")

# The time of day may be set at any moment: what it says is for people and for
# certificates, and core/base/clock.h has it.  A wait that ends at a time of
# day lasts until that time, however long somebody makes that.
OF_DAY = re.compile(
    r"\babsl::Now\(|\bsystem_clock\b|\b(gettimeofday|time)\((nullptr|NULL)|"
    r"\b(CLOCK_REALTIME|pthread_cond_timedwait|sem_timedwait|timed_mutex)\b|"
    r"\b\w*(Await|When|Wait|Notification)With(Timeout|Deadline)\b|"
    r"\babsl::CondVar\b")
MAY_NAME_TIME_OF_DAY = ("core/base/clock.h", "core/rpc/grpc_waits.cc",
                        "tests/support/set_clock.cc", "tests/support/tsan/")
PYTHON_OF_DAY = re.compile(r"\btime\.time\(|\bdatetime\.now\(")
# They compare with times in records of the daemons.
MAY_NAME_TIME_OF_DAY_IN_PYTHON = (
    "tests/nightly/beds/moves.py", "tests/nightly/dashboards/proof.py",
    "tests/nightly/kills/chaos.py", "tests/nightly/mesh.py",
    "tests/nightly/scale/strangers.py", "tests/lint/")


def check_header(tree):
    """`#pragma once` in each header; a .cc includes its own header first."""
    for path in tree.sources():
        if path.endswith(".h"):
            if tree.text(path).count("#pragma once") != 1:
                yield Problem(path, 0, "needs `#pragma once`, once")
            continue
        own = path[:-len(".cc")] + ".h"
        if tree.exists(own):
            first = next(includes(tree, path), (1, "", "nothing"))
            if first[2] != own:
                yield Problem(path, first[0], f"includes {first[2]} before "
                              f"its own header {own}")


def functions(lines):
    """Yields (first line, length) of blocks that look like functions.

    Reads clang-format's layout: what opens at column 0 (or 2, in a class) is
    closed by a lone brace at the same column; classes and tables end in `};`
    and namespaces in `}  // namespace`.
    """
    for indent in ("", "  "):
        start = None
        for number, line in enumerate(lines, 1):
            if not line.startswith(indent) or line[len(indent):][:1] in (
                    "", " ", "#", "/", "*"):
                continue
            body = line[len(indent):]
            if not body.startswith("}"):
                start = number
            elif start is not None:
                if body == "}":
                    yield start, number - start + 1
                start = None


def check_length(tree):
    for path in tree.sources():
        lines = tree.lines(path)
        if len(lines) - 1 > MAX_FILE_LINES:
            yield Problem(path, 0, f"has {len(lines) - 1} lines, the wall is "
                          f"{MAX_FILE_LINES}")
        for start, length in functions(lines):
            if length > MAX_FUNCTION_LINES:
                yield Problem(path, start, f"a function of {length} lines, "
                              f"the wall is {MAX_FUNCTION_LINES}")


def found(tree, path, pattern):
    """Yields (line number, what matches) in what is no comment."""
    for number, line in enumerate(tree.lines(path), 1):
        code = (line.split("#")[0] if path.endswith(".py") else
                re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0])
        if match := pattern.search(code):
            yield number, match[0]


def check_purity(tree):
    """Logic reads no clock and holds no lock; tests do not sleep."""
    for path in tree.sources():
        in_test = path.startswith("tests/") and not path.startswith(MAY_SLEEP)
        if not in_test and not path.startswith(PURE):
            continue
        why = ("a test must not sleep: use a FakeClock or wait for the event"
               if in_test else "logic is given clock, threads and output")
        for number, words in found(tree, path, SLEEP if in_test else IMPURE):
            yield Problem(path, number, f"{words!r}: {why}")


def check_clocks(tree):
    """Durations, deadlines and waits are on the monotonic clock."""
    for path in [*tree.sources(), *tree.with_suffix(".py")]:
        allowed, pattern = ((MAY_NAME_TIME_OF_DAY_IN_PYTHON, PYTHON_OF_DAY)
                            if path.endswith(".py") else
                            (MAY_NAME_TIME_OF_DAY, OF_DAY))
        if path.startswith(allowed):
            continue
        for number, words in found(tree, path, pattern):
            yield Problem(path, number, f"{words!r} is a time of day, which "
                          "may be set: wait and measure on the monotonic clock "
                          "(core/os/thread.h, clock.h, core/rpc/status.h)")


def check_layout(tree):
    """The top level is fixed; every folder says what it is and stays small."""
    tops = {name.split("/")[0] for name in tree.files}
    for top in sorted(tops - TOP_LEVEL):
        if not top.startswith("."):
            yield Problem(top, 0, "is not in the fixed top level (TOP_LEVEL)")
    counts, sizes = {}, {}
    sources = set(tree.sources())
    for path in tree.files:
        folder, _, name = path.rpartition("/")
        for part in folder.split("/"):
            if part in REFUSED_FOLDERS:
                yield Problem(path, 0, f"no folder is called {part}/")
        if name.endswith(".md") and name != "README.md":
            yield Problem(path, 0, "documents are README.md files")
        if path in sources and not folder.startswith("tests/"):
            counts[folder] = counts.get(folder, 0) + 1
        sizes[folder] = sizes.get(folder, 0) + 1
    folders = {folder for folder, count in counts.items() if count > 2}
    folders |= {top for top in tops if "." not in top and top != "LICENSE"}
    for folder in sorted(folders):
        above, _, name = folder.rpartition("/")
        named = (f"{above}/README.md" in tree.files and
                 f"`{name}/`" in tree.text(f"{above}/README.md"))
        if f"{folder}/README.md" not in tree.files and not named:
            yield Problem(folder, 0, "has no README.md, and that of the folder "
                          f"above says nothing of `{name}/`")
    for folder, size in sizes.items():
        if size > MAX_FOLDER_FILES and not folder.startswith(MAY_BE_LARGE):
            yield Problem(folder, 0, f"has {size} files, the wall is "
                          f"{MAX_FOLDER_FILES}: give it an inner order")


def check_mutual_includes(tree):
    """No two folders include each other, but for a folder and one in it."""
    included = {}
    for path in tree.sources("core/", "coordinator/", "worker/", "client/"):
        folder, _, name = path.rpartition("/")
        for number, _, header in includes(tree, path):
            other = header.rpartition("/")[0]
            if (name.split(".")[0] in ("main", "options") or
                    not tree.exists(header) or
                    f"{folder}/".startswith(f"{other}/") or
                    f"{other}/".startswith(f"{folder}/")):
                continue
            included.setdefault((folder, other), (path, number))
    for (folder, other), (path, number) in sorted(included.items()):
        if folder < other and (other, folder) in included:
            back, at = included[other, folder]
            yield Problem(path, number, f"includes {other}/, and {back}:{at} "
                          f"includes {folder}/")
