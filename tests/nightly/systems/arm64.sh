#!/usr/bin/env bash
# Cross-compiles the programs and some unit tests for arm64, and runs them in an
# emulator.  Debian's arm64 packages are unpacked into build/arm64-root, which
# later runs use again.  Needs root, for debootstrap.
set -euo pipefail
cd "$(dirname "$0")/../../.."

readonly ROOT=$PWD/build/arm64-root
readonly PROGRAMS=(paceline paceline-coordinator paceline-worker)
readonly TESTS=(core_base_tests core_plan_tests core_rpc_tests)

[[ $(uname -m) != aarch64 ]] || {
  echo "arm64.sh: this machine is an arm64 one: tests/run.sh is what to run"
  exit
}

# Where this machine has its own packages from; else debootstrap's default.
mirror() {
  # shellcheck disable=SC2016  # apt's variable
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
    'Label: Debian' | sed -n 1p
}

# make_sysroot PACKAGE,...: nothing is run in there, so nothing is configured.
make_sysroot() {
  local part=$ROOT.part package link target
  rm -rf "$ROOT" "$part"
  debootstrap --foreign --arch=arm64 --variant=minbase --include="$1" \
    "$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" "$part" "$(mirror)"
  for package in "$part"/var/cache/apt/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" |
      tar -x -C "$part" --keep-directory-symlink
  done
  find "$part" -type l -lname '/*' -printf '%p %l\n' |
    while read -r link target; do ln -sfn "$ROOT$target" "$link"; done
  # The links that the packages' scripts would make.
  (cd "$part/usr/lib/aarch64-linux-gnu" && ln -s openblas-pthread/lib*.so.[03] .)
  # The build runs one of these; CMake wants to see all of them.
  cp /usr/bin/grpc_*_plugin "$part/usr/bin/"
  echo "$1" >"$part/packages"
  mv "$part" "$ROOT"
}

emulate() { qemu-aarch64-static -L "$ROOT" "build/arm64/bin/$1" "${@:2}"; }

headers=$(deploy/install-deps.sh --list --test | grep -e '-dev$' | paste -sd,)
[[ $(cat "$ROOT/packages" 2>/dev/null) == "$headers" ]] ||
  make_sysroot "$headers"
deploy/build.sh arm64 "${PROGRAMS[@]}" "${TESTS[@]}"
for program in "${PROGRAMS[@]}"; do emulate "$program" --version; done
# A suite a process, as ctest does it.  The emulator answers TCP_INFO with four
# bytes, so that the listener counts nothing there: its suite is left out.
for program in "${TESTS[@]}"; do
  for suite in $(emulate "$program" --gtest_list_tests |
    sed -n 's/^\([^ ]*\.\).*/\1/p' | grep -v ListenerTest); do
    emulate "$program" --gtest_brief=1 --gtest_filter="$suite*"
  done
done
