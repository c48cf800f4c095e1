"""Plain words: how comments begin, and what they must not lean on."""

import re
from collections import defaultdict

from tree import Problem

COMMENT = re.compile(r"\s*//")
VERBLESS = re.compile(r"\s*// (Of|Who|What)\b")
# Built from parts, so that this file does not find itself.
REFERENCE = re.compile("DESIGN" r" \d|\b[Ii]ssue" r" \d")
READ_FOR_REFERENCES = (".h", ".cc", ".proto", ".md", ".py", ".sh", ".txt",
                       ".yml", ".yaml", ".toml", ".pml")

# How many comments of a folder may still begin so.  A number only ever falls;
# a folder that is not named has none left.
VERBLESS_ALLOWED = {
    "tests": 35,
}


def folder_of(path):
    """The part of the tree that is counted as one: `core/plan`, `worker`."""
    folders = path.split("/")[:-1]
    return "/".join(folders[:2 if folders[:1] == ["core"] else 1]) or "."


def over(found, allowed, why):
    """Yields a problem for each folder with more finds than it may have."""
    for folder, places in sorted(found.items()):
        most = allowed.get(folder, 0)
        if len(places) > most:
            path, number = places[-1]
            yield Problem(path, number,
                          f"{why}; {folder} has {len(places)}, at most {most}")


def check_openers(tree):
    """No comment begins with a verbless `Of ...`, `Who ...` or `What ...`."""
    found = defaultdict(list)
    for path in tree.sources():
        before = ""
        for number, line in enumerate(tree.lines(path), 1):
            if VERBLESS.match(line) and not COMMENT.match(before):
                found[folder_of(path)].append((path, number))
            before = line
    yield from over(found, VERBLESS_ALLOWED,
                    "a comment begins with Of, Who or What: begin with a "
                    "subject and a verb")


def check_references(tree):
    """The tree explains itself: nothing names a page that is not in it."""
    for path in tree.with_suffix(*READ_FOR_REFERENCES):
        for number, line in enumerate(tree.lines(path), 1):
            if REFERENCE.search(line):
                yield Problem(path, number,
                              "names a part of the design or an issue: say the "
                              "rule here, or in the folder's README.md")
