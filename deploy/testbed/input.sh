# shellcheck shell=bash disable=SC2154  # names of testbed.sh
# Part of testbed.sh: what the command line and the machine have to offer.
set -euo pipefail

# parse_count OPTION TEXT MOST
parse_count() {
  if [[ ! $2 =~ ^[0-9]{1,4}$ ]] || ((10#$2 < 1 || 10#$2 > $3)); then
    refuse "$1 $2: need a whole number from 1 to $3"
  fi
  echo $((10#$2))
}

# Thousandths of a CPU.
parse_cpu() {
  local option=$1 text=$2 whole part milli
  [[ $text =~ ^([0-9]{0,4})(\.([0-9]{1,3}))?$ && $text == *[0-9]* ]] ||
    refuse "$option $text: need a number of CPUs as 0.4, at most three decimals"
  whole=${BASH_REMATCH[1]} part=${BASH_REMATCH[3]}000
  milli=$((10#${whole:-0} * 1000 + 10#${part:0:3}))
  ((milli >= 10)) ||
    refuse "$option $text: a node needs at least 0.01 of a CPU"
  ((milli <= $(nproc) * 1000)) ||
    refuse "$option $text: a node cannot get more than this machine's" \
      "$(nproc) CPUs"
  echo "$milli"
}

# Bits a second.
parse_rate() {
  local option=$1 text=${2,,} whole part unit bits
  [[ $text =~ ^([0-9]{1,12})(\.([0-9]{1,3}))?([kmg]?)bit$ ]] ||
    refuse "$option $2: need a rate as 1gbit, 20mbit or 500kbit"
  whole=$((10#${BASH_REMATCH[1]})) part=${BASH_REMATCH[3]}000
  case ${BASH_REMATCH[4]} in
    k) unit=1000 ;;
    m) unit=1000000 ;;
    g) unit=1000000000 ;;
    *) unit=1 ;;
  esac
  # The whole part alone first: the product below must not overflow.
  bits=$((whole > 100000000000 / unit ? 0 :
    (whole * 1000 + 10#${part:0:3}) * unit / 1000))
  ((bits >= 64000 && bits <= 100000000000)) ||
    refuse "$option $2: need 64kbit to 100gbit"
  echo "$bits"
}

# `3=0.2` into array[3]; array is cpu_of or rate_of.
remember_of() {
  local option=$1 text=$2
  local -n array=$3
  [[ $text =~ ^([0-9]{1,3}|coordinator)=(.+)$ ]] ||
    refuse "$option $text: need NODE=VALUE, as 3=0.2 or coordinator=0.5"
  local node=${BASH_REMATCH[1]}
  [[ $node == coordinator ]] || node=$((10#$node))
  # shellcheck disable=SC2034  # it is the caller's
  array["$node"]=${BASH_REMATCH[2]}
}

check_node() {
  local option=$1 node=$2 nodes=$3
  [[ $node == coordinator ]] || ((node >= 1 && node <= nodes)) ||
    refuse "$option: there is no node $node; this bed has 1 to $nodes"
}

# Puts --cpu-of and --rate-of into the record.
record_overrides() {
  local node
  for node in "${!cpu_of[@]}"; do
    check_node "--cpu-of $node=${cpu_of[$node]}" "$node" "${bed[nodes]}"
    bed[cpu.$node]=$(parse_cpu "--cpu-of" "${cpu_of[$node]}")
  done
  for node in "${!rate_of[@]}"; do
    check_node "--rate-of $node=${rate_of[$node]}" "$node" "${bed[nodes]}"
    bed[rate.$node]=$(parse_rate "--rate-of" "${rate_of[$node]}")
  done
}

check_name() {
  [[ $name =~ ^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$ ]] ||
    refuse "--name '$name': need 1 to 32 small letters, digits or dashes"
}

value_of() {
  [[ $# -gt 1 ]] || refuse "$1 needs a value"
  [[ $2 != *$'\n'* ]] || refuse "$1: a value has one line"
  echo "$2"
}

# --- What this machine has ------------------------------------------------

need_root() {
  [[ $EUID -eq 0 ]] || refuse "'$1' makes network namespaces and cgroups," \
    "and for that needs root: run it with sudo"
}

need_tools() {
  local tool missing=()
  for tool in ip tc nsenter setsid taskset flock; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  [[ ${#missing[@]} -eq 0 ]] ||
    refuse "missing: ${missing[*]}; install them: deploy/install-deps.sh --bed"
}

need_programs() {
  local program
  for program in paceline paceline-coordinator paceline-worker; do
    [[ -x $1/$program && -f $1/$program ]] || refuse \
      "there is no $program in $1: build it (deploy/build.sh release" \
      "paceline paceline-coordinator paceline-worker), or say with --bin DIR" \
      "where it is"
  done
}

# Prints `VERSION FOLDER` of the hierarchy that has the CPU controller.
find_cgroup() {
  local folder candidates=()
  if [[ -n ${PACELINE_CGROUP_ROOT:-} ]]; then
    candidates=("$PACELINE_CGROUP_ROOT")
  else
    mapfile -t candidates < <(awk '
      $3 == "cgroup" && $4 ~ /(^|,)cpu(,|$)/ { print $2 }
      $3 == "cgroup2" { print $2 }' /proc/self/mounts)
  fi
  for folder in ${candidates[@]+"${candidates[@]}"}; do
    if [[ -e $folder/cpu.cfs_quota_us && -e $folder/cgroup.procs ]]; then
      echo "1 $folder"
      return
    elif grep -qsw cpu "$folder/cgroup.controllers"; then
      echo "2 $folder"
      return
    fi
  done
  refuse "no cgroup with a CPU controller in: ${candidates[*]:-any mount}." \
    "A bed needs one to make machines slow: mount it" \
    "(mount -t cgroup2 none /sys/fs/cgroup), or name its folder in" \
    "PACELINE_CGROUP_ROOT"
}
