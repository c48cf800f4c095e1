#!/usr/bin/env python3
"""Runs one of the long scripts:

  run.py FOLDER/NAME [OPTION...]

`run.py FOLDER/NAME --help` says what it does; nightly.py what all of them
share.
"""

import importlib
import sys

sys.dont_write_bytecode = True

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    from nightly import main
    sys.exit(main(importlib.import_module(sys.argv[1].replace("/", ".")),
                  sys.argv[1], sys.argv[2:]))
