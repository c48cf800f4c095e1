#!/usr/bin/python3
"""Runs tests of real processes, with Debian's Python, which is the one that has
selenium:

  run.py FILE [--bin FOLDER] [--torch] [CLASS[.TEST]]...

--torch: the programs of FOLDER have LibTorch.
"""

import argparse
import importlib
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
# The helpers of the long scripts are those of these tests too.
sys.path[1:1] = [str(HERE / "deploy"), str(HERE.parent / "nightly")]

# pylint: disable=wrong-import-position
from mesh_case import Settings


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--bin", type=Path, default=Settings.bin)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_intermixed_args()
    Settings.bin = arguments.bin.resolve()
    Settings.torch = arguments.torch
    module = importlib.import_module(arguments.file.stem)
    if hasattr(module, "enter_world"):  # of machines that boot
        module.enter_world()
    unittest.main(module, argv=[sys.argv[0], *arguments.tests], verbosity=2)


if __name__ == "__main__":
    main()
