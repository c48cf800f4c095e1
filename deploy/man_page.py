#!/usr/bin/env python3
"""Prints the man page of a program, made from its help and that of all its
commands:  man_page.py FOLDER/PROGRAM"""

import os
import re
import subprocess
import sys
from pathlib import Path

OPTION = re.compile(r"  (\S.*?)(?:  +(.*))?")
# Names no person's folder.
ENVIRONMENT = {**os.environ, "HOME": "~"}


def output(*words):
    return subprocess.run(words, env=ENVIRONMENT, check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def roff(text):
    """Text as a line of its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def commands_of(lines):
    """The words under 'Subcommands:'."""
    if "Subcommands:" not in lines:
        return []
    words = []
    for line in lines[lines.index("Subcommands:") + 1:]:
        if not line:
            break
        words.append(line.split()[0])
    return words


def body(lines):
    """Options become tagged paragraphs; what follows a heading without them
    (examples, exit codes) stays as it is."""
    verbatim = False
    for line in lines:
        option = OPTION.fullmatch(line)
        if line.endswith(":") and not line.startswith(" "):
            verbatim = line in ("Example:", "Examples:")
            yield f".PP\n.B {roff(line)}"
        elif not line:
            yield ".PP"
        elif verbatim:
            yield f".br\n{roff(line)}"
        elif line.startswith(" " * 10):  # of the option above
            yield roff(line.strip())
        elif option:
            yield f".TP\n.B {roff(option[1])}"
            if option[2]:
                yield roff(option[2])
        else:
            yield roff(line)


def page_of(program, words=()):
    """The lines about one command, and those about the commands below it."""
    what, usage, *lines = output(program, *words, "--help").split("\n")
    usage = usage.removeprefix("Usage: ")
    if words:
        yield f".SS {roff(usage)}\n{roff(what)}"
    else:
        name = Path(program).name
        version = output(program, "--version").split()[-1]
        yield f'.TH {name.upper()} 1 "" "Paceline {version}"'
        yield f".SH NAME\n{name} \\- {roff(what.rstrip('.'))}"
        yield f".SH SYNOPSIS\n.B {roff(usage)}\n.SH DESCRIPTION"
    yield from body(lines)
    for number, word in enumerate(commands_of(lines)):
        if not words and number == 0:
            yield ".SH COMMANDS"
        yield from page_of(program, (*words, word))


print("\n".join(page_of(sys.argv[1])))
