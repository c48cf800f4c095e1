#!/usr/bin/env bash
# Installs what Paceline needs from the own archive of Debian 12 or 13, and
# nothing that is there already.  No network is touched when nothing is missing.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: deploy/install-deps.sh CLASS...

  --run      libraries that the three programs are linked against
  --build    --run, and compiler, headers and the quickstart's data set
  --package  --build, and what deploy/packages.sh uses
  --test     --package, and what tests/run.sh uses
  --nightly  --test, and what tests/run.sh --nightly uses
  --data     the Fashion-MNIST files, for a worker with --run only that reads data
  --bed      what deploy/testbed.sh calls (--test includes it)
  --list     print the packages of the classes named, install nothing
  --help     this text
USAGE
}

# What the linker found: tests/lint compares these lists with the programs.
RUN=(
  libjpeg62-turbo
  # The reference BLAS that LibTorch would settle for is 50 times slower.
  libopenblas0-pthread
  libprometheus-cpp-core1.0 libsqlite3-0 libsystemd0 libxxhash0 zlib1g
)
readonly RUN_BOOKWORM=(
  libabsl20220623 libcpp-httplib0.11 libgrpc++1.51 libgrpc29 libpng16-16
  libprotobuf32 libspdlog1.10 libssl3 libtorch1.13 libyaml-cpp0.7
)
readonly RUN_TRIXIE=(
  libabsl20240722 libcpp-httplib0.18 libgrpc++1.51t64 libgrpc29t64
  libpng16-16t64 libprotobuf32t64 libspdlog1.15 libssl3t64 libtorch2.6
  libyaml-cpp0.8
)
readonly DATA=(dataset-fashion-mnist)
# Links and namespaces; what else testbed.sh calls is on every Debian.
readonly BED=(iproute2)
readonly BUILD=(
  ccache cmake g++ git ninja-build pkg-config
  libabsl-dev libcli11-dev libcpp-httplib-dev libgrpc++-dev libjpeg-dev
  libopenblas-dev libpng-dev libprotobuf-dev libspdlog-dev libsqlite3-dev libssl-dev
  libsystemd-dev libtorch-dev
  libxxhash-dev libyaml-cpp-dev nlohmann-json3-dev prometheus-cpp-dev
  protobuf-compiler protobuf-compiler-grpc
  # It makes C++ of the keys of a job.
  python3 zlib1g-dev
)
readonly PACKAGE=(debhelper)
# libFuzzer is clang's run-time library, which clang only recommends.
TEST=(
  clang clang-format libbenchmark-dev libgmock-dev libgtest-dev
  # lintian reads the packages.
  lintian
  # promtool reads the dashboards' expressions and the daemons' /metrics.
  prometheus
  # Tests of the real programs fetch pages, look processes up, give one a clock
  # that is wrong, and show the coordinator's page in a browser.
  chromium chromium-driver curl faketime procps python3-selenium
  python3-yaml shellcheck systemd
  # Machines that boot, for tests of the services.
  systemd-container
  # spin explores the model of the rounds, core/round/model, to its last state.
  spin
)
# Python's torch writes the weights and scripts that ours are compared with;
# debootstrap makes the roots of the areas trixie and arm64.
# dropbear-bin is an ssh server that nobody starts, with OpenSSH's sftp.
# qemu-system-x86 is the machine whose memory is limited.
NIGHTLY=(
  cpio debootstrap dropbear-bin jq openssh-client openssh-sftp-server
  python3-torch python3-torchvision qemu-system-x86
  # A browser draws the dashboards.
  chromium chromium-driver python3-pil python3-selenium
)
# Other makers' nodejs brings an npm of its own, and refuses Debian's.
command -v npm >/dev/null || NIGHTLY+=(npm)
# An arm64 machine compiles for itself.
[[ $(uname -m) == aarch64 ]] ||
  NIGHTLY+=(g++-aarch64-linux-gnu qemu-user-static)

die() {
  echo "install-deps.sh: $*" >&2
  exit 1
}

os_release_value() {
  sed -n "s/^$1=//p" "${PACELINE_OS_RELEASE:-/etc/os-release}" 2>/dev/null |
    tr -d '"'
}

# Adds what is named otherwise in each release.
choose_release() {
  case $(os_release_value VERSION_CODENAME) in
    bookworm) RUN+=("${RUN_BOOKWORM[@]}") TEST+=(libclang-rt-14-dev) ;;
    trixie) RUN+=("${RUN_TRIXIE[@]}") TEST+=(libclang-rt-19-dev) ;;
    *) die "this system is '$(os_release_value PRETTY_NAME)'
  Paceline is built on the packages of Debian 12 or 13 (or Raspberry Pi OS
  bookworm or trixie), and knows their names only: use one of those." ;;
  esac
}

# A 64-bit kernel says nothing: Raspberry Pi OS runs 32-bit programs on one.
check_architecture() {
  local architecture
  architecture=$(dpkg --print-architecture)
  case $architecture in
    armhf | armel | i386)
      die "this system is 32-bit ($architecture), and LibTorch is not packaged for it
  Install a 64-bit system: of Raspberry Pi OS the one that is called 64-bit, which
  runs on a Raspberry Pi 3, 4, 5, 400, 500 and Zero 2 W." ;;
  esac
}

# Prints the words of "$@" that dpkg does not call installed, one a line.
missing_of() {
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" \
    2>/dev/null | sed -n 's/ installed$//p' || true)
  local package
  for package in "$@"; do
    grep -qxF -- "$package" <<<"$installed" || echo "$package"
  done
}

run_as_root() {
  if [[ $EUID -eq 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

check_can_install() {
  [[ $EUID -eq 0 ]] || command -v sudo >/dev/null ||
    die "missing: $*
  Installing them needs root, and there is no sudo here.  As root, run:
  apt-get install --no-install-recommends $*"
}

check_names_exist() {
  local package unknown=()
  for package in "$@"; do
    [[ -n $(apt-cache policy "$package" 2>/dev/null |
      sed -n '/Candidate: (none)/d; /Candidate:/p') ]] ||
      unknown+=("$package")
  done
  [[ ${#unknown[@]} -eq 0 ]] || die "apt does not know: ${unknown[*]}
  They are in section main of $(os_release_value PRETTY_NAME):
  do the sources in /etc/apt name it?"
}

# A test needs promtool out of the package, not a server on port 9090.
stop_prometheus_server() {
  [[ -d /run/systemd/system ]] || return 0
  echo "install-deps.sh: switching off the prometheus service just installed"
  run_as_root systemctl disable --now prometheus
}

main() {
  local wanted=() list_only=false class
  [[ $# -gt 0 ]] || { usage >&2; exit 2; }
  case " $* " in *" --help "* | *" -h "*) usage; exit ;; esac
  choose_release
  for class in "$@"; do
    case $class in
      --run) wanted+=("${RUN[@]}") ;;
      --data) wanted+=("${DATA[@]}") ;;
      --bed) wanted+=("${BED[@]}") ;;
      --build) wanted+=("${RUN[@]}" "${DATA[@]}" "${BUILD[@]}") ;;
      --package)
        wanted+=("${RUN[@]}" "${DATA[@]}" "${BUILD[@]}" "${PACKAGE[@]}")
        ;;
      --test)
        wanted+=("${RUN[@]}" "${DATA[@]}" "${BUILD[@]}" "${PACKAGE[@]}"
          "${BED[@]}" "${TEST[@]}")
        ;;
      --nightly)
        wanted+=("${RUN[@]}" "${DATA[@]}" "${BUILD[@]}" "${PACKAGE[@]}"
          "${BED[@]}" "${TEST[@]}" "${NIGHTLY[@]}")
        ;;
      --list) list_only=true ;;
      *) echo "install-deps.sh: unknown option '$class'" >&2
         usage >&2
         exit 2 ;;
    esac
  done
  [[ ${#wanted[@]} -gt 0 ]] || { usage >&2; exit 2; }
  mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | LC_ALL=C sort -u)
  if $list_only; then
    printf '%s\n' "${wanted[@]}"
    return
  fi

  command -v dpkg-query apt-get apt-cache >/dev/null ||
    die "needs dpkg and apt: Paceline is built on Debian's packages"
  check_architecture
  local missing
  mapfile -t missing < <(missing_of "${wanted[@]}")
  if [[ ${#missing[@]} -eq 0 ]]; then
    echo "install-deps.sh: all ${#wanted[@]} packages are there"
    return
  fi

  check_can_install "${missing[@]}"
  echo "install-deps.sh: installing ${missing[*]}"
  run_as_root apt-get update -q ||
    die "apt-get update failed; is there a network, are the sources right?"
  check_names_exist "${missing[@]}"
  run_as_root apt-get install -q -y --no-install-recommends "${missing[@]}" ||
    die "apt-get install failed; its last lines above say why"
  if [[ " ${missing[*]} " == *" prometheus "* ]]; then
    stop_prometheus_server
  fi
}

main "$@"
