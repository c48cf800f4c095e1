"""Plain words: how comments begin, and what they must not lean on."""

import re

from tree import Problem

COMMENT = re.compile(r"\s*//")
VERBLESS = re.compile(r"\s*// (Of|Who|What)\b")
# Built from parts, so that this file does not find itself.
REFERENCE = re.compile("DESIGN" r" \d|\b[Ii]ssue" r" \d")
READ_FOR_REFERENCES = (".h", ".cc", ".proto", ".md", ".py", ".sh", ".txt",
                       ".yml", ".yaml", ".toml", ".pml")


def check_openers(tree):
    """No comment begins with a verbless `Of ...`, `Who ...` or `What ...`."""
    for path in tree.sources():
        before = ""
        for number, line in enumerate(tree.lines(path), 1):
            if VERBLESS.match(line) and not COMMENT.match(before):
                yield Problem(path, number,
                              "a comment begins with Of, Who or What: begin "
                              "with a subject and a verb")
            before = line


def check_references(tree):
    """The tree explains itself: nothing names a page that is not in it."""
    for path in tree.with_suffix(*READ_FOR_REFERENCES):
        for number, line in enumerate(tree.lines(path), 1):
            if REFERENCE.search(line):
                yield Problem(path, number,
                              "names a part of the design or an issue: say the "
                              "rule here, or in the folder's README.md")
