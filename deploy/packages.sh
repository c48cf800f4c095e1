#!/usr/bin/env bash
# Makes the Debian packages of this tree, for the release of Debian that it runs
# on: build/packages/*.deb, from a release build.
#
#   deploy/packages.sh            builds the programs first
#   deploy/packages.sh BIN OUT    takes the programs in BIN, writes to OUT
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  --help | -h) sed -n '2,/^set/{s/^# \?//p}' "$0"; exit ;;
  -*) echo "packages.sh: unknown option '$1'" >&2; exit 2 ;;
esac
command -v dh_install >/dev/null || {
  echo "packages.sh: debhelper is missing: deploy/install-deps.sh --package" >&2
  exit 1
}
[[ $# -gt 0 ]] ||
  deploy/build.sh release paceline paceline-coordinator paceline-worker
bin=$(realpath "${1:-build/release/bin}")
out=${2:-build/packages}
mkdir -p "$out"
rm -f "$out"/paceline-*.deb
out=$(realpath "$out")

# debhelper works in a folder that holds debian/ and the files to install.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r deploy/debian "$work"
ln -s "$bin" "$work/bin"
ln -s "$PWD/deploy" "$PWD/dashboards" "$work"
# One unit serves the worker of a machine, and more of them: %i is empty or not.
for unit in paceline-coordinator paceline-worker{,@}; do
  cp "deploy/systemd/${unit%@}.service" "$work/debian/$unit.service"
done
version=$("$bin/paceline" --version)
version=${version##* }-1+deb$(sed -n 's/^VERSION_ID="\(.*\)"/\1/p' /etc/os-release)
maintainer=$(sed -n 's/^Maintainer: //p' deploy/debian/control)
cat >"$work/debian/changelog" <<CHANGELOG
paceline ($version) unstable; urgency=medium

  * Paceline ${version%%-*}.

 -- $maintainer  $(date -R -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}")
CHANGELOG
mkdir -p "$work"/completion/{bash,zsh,fish}
"$bin/paceline" completion bash >"$work/completion/bash/paceline"
"$bin/paceline" completion zsh >"$work/completion/zsh/_paceline"
"$bin/paceline" completion fish >"$work/completion/fish/paceline.fish"

for program in paceline paceline-coordinator paceline-worker; do
  deploy/man_page.py "$bin/$program" >"$work/$program.1"
done

cd "$work"
dh_install
dh_installdocs
dh_installchangelogs
dh_installman -ppaceline-client paceline.1
dh_installman -ppaceline-coordinator paceline-coordinator.1
dh_installman -ppaceline-worker paceline-worker.1
dh_installsysusers
dh_installtmpfiles
dh_installsystemd -ppaceline-coordinator
# A worker that has not joined yet has nothing to do.
dh_installsystemd -ppaceline-worker --no-start --restart-after-upgrade
dh_compress
dh_fixperms
dh_strip --no-automatic-dbgsym
dh_shlibdeps
dh_installdeb
dh_gencontrol
dh_md5sums
dh_builddeb --destdir="$out"
