#!/usr/bin/env bash
# with_clang.sh COMPILER ARGUMENT...: clang++ in the place of COMPILER.
set -euo pipefail
shift
exec clang++ "$@"
