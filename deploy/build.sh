#!/usr/bin/env bash
# Configures a preset if that was not done yet, and builds targets of it.
# Ninja notices by itself when a CMakeLists.txt or a folder has changed.
#
#   deploy/build.sh PRESET [TARGET...]     (no target: everything)
set -euo pipefail
cd "$(dirname "$0")/.."

# A batch of files takes the compiler up to 1.75 GB: a board with many cores
# and little memory must not start one a core.
jobs_that_fit() {
  local cores available_kib by_memory
  cores=$(nproc)
  available_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  by_memory=$((available_kib / (1792 * 1024)))
  local jobs=$((by_memory < cores ? by_memory : cores))
  echo $((jobs > 0 ? jobs : 1))
}

usage="usage: deploy/build.sh PRESET [TARGET...]    (presets: CMakePresets.json)"
case ${1:-} in
  --help | -h)
    echo "$usage"
    exit
    ;;
  '' | -*)
    echo "$usage" >&2
    exit 2
    ;;
esac
preset=$1
shift

# Two builds in one folder would write the same files at once, and a torn
# precompiled header breaks the compiler in the strangest places.
mkdir -p build
exec {lock}>"build/$preset.lock"
flock "$lock"

# Always configured anew: packages that were missing last time (GoogleTest)
# may be there now.  It takes a second or two.
configure_log=$(mktemp)
trap 'rm -f "$configure_log"' EXIT
if ! cmake --preset "$preset" >"$configure_log" 2>&1; then
  cat "$configure_log" >&2
  echo "build.sh: configuring '$preset' failed, see above" >&2
  exit 1
fi
cmake --build "build/$preset" -j "$(jobs_that_fit)" \
  ${1:+--target "$@"}
