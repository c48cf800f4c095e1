#!/usr/bin/env bash
# run.sh PROGRAM NAME [OPTION...]: fuzzes one parser, from the inputs that are
# kept.  New inputs are not kept; one that fails is written to the working
# folder.
set -euo pipefail
program=$1 name=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)

# The libraries that parsers call were built without sanitizers: what those do
# to a container's room is not known here.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_container_overflow=0:allocator_may_return_null=1:quarantine_size_mb=16
export UBSAN_OPTIONS=print_stacktrace=1
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
PACELINE_FUZZ=$name "$program" -rss_limit_mb=1024 -timeout=10 \
  -verbosity=0 -print_final_stats=1 "$@" "$found" "$here/corpus/$name"
