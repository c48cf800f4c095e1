#!/usr/bin/env bash
# The quickstart and the suite on Debian 13: in a root that debootstrap makes,
# which stays in build/trixie, on a copy of this tree.  Needs root.
set -euo pipefail
cd "$(dirname "$0")/../../.."

readonly ROOT=$PWD/build/trixie
readonly COPY=$ROOT/paceline

# What is mounted below is seen in here only, and gone however this ends: who
# removes build/ removes nothing else.
if [[ ${1:-} != inside ]]; then
  [[ $EUID -eq 0 ]] || {
    echo "trixie.sh: debootstrap and chroot need root: run it with sudo" >&2
    exit 1
  }
  exec unshare --mount --pid --fork --kill-child "$0" inside
fi

# Where this machine has its own packages from; else debootstrap's default.
mirror() {
  # shellcheck disable=SC2016  # apt's variable
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
    'Label: Debian' | sed -n 1p
}

if [[ ! -d $ROOT ]]; then
  rm -rf --one-file-system "$ROOT.part"
  debootstrap --variant=minbase trixie "$ROOT.part" "$(mirror)"
  mv "$ROOT.part" "$ROOT"
fi
# `ip netns exec` wants the root to be a mount of its own.
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys"
mount --rbind /dev "$ROOT/dev"
cp /etc/resolv.conf "$ROOT/etc/resolv.conf"

mkdir -p "$COPY"
find "$COPY" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
tar -c --exclude=./build --exclude=./.git . | tar -x -C "$COPY"
env --unset=CCACHE_DIR --unset=TMPDIR HOME=/root LC_ALL=C.UTF-8 \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  chroot "$ROOT" bash -c \
  'cd /paceline && tests/run.sh --area quickstart && tests/run.sh'
