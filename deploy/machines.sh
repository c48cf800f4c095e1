#!/usr/bin/env bash
# Brings machines into a mesh over ssh: installs the packages, joins with a
# token, starts the services.  A machine that has joined is left alone.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE
readonly PORT=7400
readonly SSH_OPTIONS=(-o BatchMode=yes -o ForwardAgent=no -o ConnectTimeout=10)

packages=${HERE%/*}/build/packages
coordinator=  # HOST:PORT, as the machines call it
first=        # where the coordinator is ours to start; else empty
sudo=         # before what root does on the machine at hand
first_sudo=   # and on the first one

usage() {
  cat <<'USAGE'
usage: deploy/machines.sh [--packages DIR] USER@HOST...
       deploy/machines.sh [--packages DIR] --coordinator HOST:PORT USER@HOST...

  Each HOST gets a worker.  The first HOST gets the coordinator too, with TLS.
  Others join it at the name or address by which ssh reaches it.  Run it again
  with the same first HOST and more machines to add them.

  --coordinator HOST:PORT  the machines join this coordinator.  The tokens are
                           made here, with `paceline`: log in first
                           (`paceline login`)
  --packages DIR           the .deb files (default: build/packages)

USER is root, or may use sudo without a password.  ssh must know the hosts' keys
and needs a key of yours that asks nothing.
Exit codes: 0 all machines are in the mesh, 1 some are not, 2 wrong usage.
USAGE
}

say() { echo "machines.sh: $*" >&2; }
die() { say "$@"; exit 1; }
refuse() { say "$@"; usage >&2; exit 2; }

# Shows a command as one would type it, then runs it.
run() {
  local word text=+
  for word; do
    [[ $word =~ ^[a-zA-Z0-9@%+=:,./_-]+$ ]] || word=${word@Q}
    text+=" $word"
  done
  echo "$text" >&2
  "$@"
}

# on HOST COMMAND: a line for the shell there.
on() { run ssh "${SSH_OPTIONS[@]}" "$@"; }

# May we be root there, and how?
reach() {
  local user
  user=$(on "$1" 'id -u') || return
  sudo=
  [[ $user == 0 ]] || sudo='sudo -n '
}

# install HOST PACKAGE...
install() {
  local host=$1 package folder files=()
  shift
  for package; do files+=("$packages/${package}"_*.deb); done
  local make="folder=\$(mktemp -d) && chmod 755 \$folder && echo \$folder"
  folder=$(on "$host" "$make") &&
    run scp -q "${SSH_OPTIONS[@]}" "${files[@]}" "$host:$folder/" || return
  # The lists of a machine may be old; one without a network needs none.
  local get="${sudo}env DEBIAN_FRONTEND=noninteractive apt-get -q -y"
  get+=" -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
  local line="$get install $folder/*.deb"
  on "$host" "$line || { $get update && $line; }" &&
    on "$host" "rm -r $folder"
}

# configure HOST FILE KEY=VALUE...: sets what the file shows as a comment.
configure() {
  local host=$1 file=/etc/paceline/$2 pair edits=''
  shift 2
  for pair; do
    edits+=" -e 's|^# *${pair%%=*} = .*|${pair%%=*} = ${pair#*=}|'"
  done
  on "$host" "${sudo}sed -i$edits $file"
}

# A package may have started it with the configuration of before.
start() {
  on "$1" "${sudo}systemctl enable $2 && ${sudo}systemctl restart $2"
}

start_coordinator() {
  reach "$first" || return
  first_sudo=$sudo
  local has_tls="grep -qs '^tls *= *true' /etc/paceline/coordinator.toml"
  if on "$first" "$has_tls && systemctl is-active -q paceline-coordinator"; then
    say "$first: the coordinator runs already"
    return
  fi
  install "$first" paceline-coordinator paceline-client &&
    configure "$first" coordinator.toml "listen=\"0.0.0.0:$PORT\"" tls=true &&
    start "$first" paceline-coordinator
}

# Good once, and soon over.
make_token() {
  local create='token create --role worker --ttl 10m'
  if [[ -n $first ]]; then
    on "$first" "${first_sudo}paceline $create"
  else
    # shellcheck disable=SC2086
    run paceline --coordinator "$coordinator" $create
  fi
}

join() {
  local host=$1 token
  token=$(make_token) || return
  # Through standard input: no list of processes shows it here, and the one
  # there for a moment only.
  local line="${sudo}paceline-worker join $coordinator \"\$token\""
  on "$host" "read -r token && $line" <<<"$token"
}

bring_in() {
  local host=$1
  reach "$host" || return
  local certificate=/var/lib/paceline-worker/tls/certificate.pem
  if on "$host" "${sudo}test -s $certificate"; then
    on "$host" "grep -qF '\"$coordinator\"' /etc/paceline/worker.toml" || {
      say "$host: has joined another mesh; to leave it: sudo rm -r ${certificate%/*}"
      return 1
    }
    say "$host: has joined already"
    on "$host" "${sudo}systemctl enable --now paceline-worker"
    return
  fi
  install "$host" paceline-worker && join "$host" && start "$host" paceline-worker
}

main() {
  local hosts=() host failed=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --coordinator)
        coordinator=${2:-}
        [[ $coordinator =~ ^[][a-zA-Z0-9._:-]+:[0-9]+$ ]] ||
          refuse "--coordinator '$coordinator': need HOST:PORT"
        shift
        ;;
      --packages)
        [[ -n ${2:-} ]] || refuse "--packages needs a folder"
        packages=$2
        shift
        ;;
      --help | -h) usage; return ;;
      -*) refuse "unknown option '$1'" ;;
      *) hosts+=("$1") ;;
    esac
    shift
  done
  [[ ${#hosts[@]} -gt 0 ]] || refuse "which machines?"
  local found=("$packages"/paceline-worker_*.deb)
  [[ ${#found[@]} -eq 1 && -e ${found[0]} ]] ||
    die "need the packages of one release in $packages: make them, or name" \
      "their folder with --packages"
  exec </dev/null
  if [[ -z $coordinator ]]; then
    first=${hosts[0]}
    host=$(ssh -G "$first" | sed -n 's/^hostname //p')
    [[ $host != *:* ]] || host=[$host]
    coordinator=$host:$PORT
    start_coordinator ||
      die "$first: the coordinator does not run, see above; nothing was joined"
  fi
  for host in "${hosts[@]}"; do
    bring_in "$host" || {
      say "$host: is not in the mesh, see above"
      failed+=("$host")
    }
  done
  [[ ${#failed[@]} -eq 0 ]] ||
    die "not in the mesh: ${failed[*]}; the others are"
  say "in the mesh of $coordinator: ${hosts[*]}"
}

main "$@"
