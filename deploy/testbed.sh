#!/usr/bin/env bash
# Emulated machines on one Linux box: a network namespace and a CPU quota
# each, joined by links of a given rate, with a coordinator and workers in
# them.  README.md beside this file says what it makes and how it is ended.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE
# One folder a bed: its record (the file `bed`) and what its daemons keep.
readonly RECORDS=/var/lib/paceline-testbed
readonly NAMESPACES=/run/netns
readonly GRPC_COORDINATOR=7400 HTTP_COORDINATOR=7480
readonly GRPC_WORKER=7401 HTTP_WORKER=7481
readonly READY_SECONDS=180 LOCK_SECONDS=240 KILL_SECONDS=20

name=testbed
declare -A bed=()     # the record
declare -A cpu_of=()  # as on the command line
declare -A rate_of=()
declare -A launched=()  # pids of the daemons that this run started
lock=
killed=  # pids of what this run ended

usage() {
  cat <<'USAGE'
usage: deploy/testbed.sh up [--nodes N] [--cpu X] [--rate R] [--cpu-of N=X]...
                            [--rate-of N=R]... [--threads T] [--lease S]
                            [--state DIR] [--bin DIR] [--name NAME]
       deploy/testbed.sh exec [--on N] [--name NAME] [--] CMD...
       deploy/testbed.sh status [--name NAME] [-o table|json]
       deploy/testbed.sh set [--name NAME] [--cpu-of N=X]... [--rate-of N=R]...
       deploy/testbed.sh kill|start N [--name NAME]
       deploy/testbed.sh down [--name NAME]

  up      makes the machines, starts a coordinator and a worker in each
  exec    runs CMD beside the coordinator, with the programs on its PATH and
          PACELINE_COORDINATOR set; its exit code is CMD's.  --on N: on
          node N instead, sharing its CPU quota with the worker there
  status  the machines, and whether their daemons live
  set     changes speeds while everything runs
  kill    kill -9 of the worker of node N; start: starts it again
  down    ends everything and leaves nothing behind

  --nodes N      machines beside the coordinator's, 1 to 200 (default 4)
  --cpu X        CPUs' worth of time a node gets, from 0.01 (default 0.4)
  --rate R       of every link, each way: 64kbit to 100gbit (default 1gbit)
  --cpu-of N=X   of one node; N may be `coordinator` (unlimited otherwise)
  --rate-of N=R  of one node, or of the coordinator
  --threads T    cores that a node may use at a time (default: all there are)
  --lease S      seconds of silence after which a node counts as lost (default:
                 the coordinator's); longer where this machine stalls itself
  --state DIR    what the daemons keep, logs too; stays when the bed goes
  --bin DIR      the programs (default: build/release/bin)
  --name NAME    of the bed, so that several can stand (default: testbed)

Needs root, except for --help and status.
Exit codes: 0 ok, 1 failed, 2 wrong usage or machine, 3 no such bed.
USAGE
}

say() { echo "testbed.sh: $*" >&2; }
die() { say "$@"; exit 1; }
refuse() { say "$@"; exit 2; }

# shellcheck source-path=SCRIPTDIR source=testbed/input.sh
. "$HERE/testbed/input.sh"
# shellcheck source-path=SCRIPTDIR source=testbed/record.sh
. "$HERE/testbed/record.sh"
# shellcheck source-path=SCRIPTDIR source=testbed/machine.sh
. "$HERE/testbed/machine.sh"
# shellcheck source-path=SCRIPTDIR source=testbed/remove.sh
. "$HERE/testbed/remove.sh"
# shellcheck source-path=SCRIPTDIR source=testbed/status.sh
. "$HERE/testbed/status.sh"

on_exit_of_up() {
  local code=$?
  trap - EXIT
  trap '' INT TERM
  say "taking down what was made so far"
  if take_down; then
    forget_bed
  else
    say "run 'deploy/testbed.sh down --name $name' to try again"
  fi
  exit "$code"
}

# Of a bed that stands: refuses.  Of one whose maker was killed: takes it down.
clear_the_place() {
  read_record || true
  ! stands || refuse "bed '$name' stands already: take it down first" \
    "(deploy/testbed.sh down --name $name), or choose another --name"
  [[ -n ${bed[nodes]:-}$(cgroups_here)$(namespaces_here) ]] || return 0
  say "an earlier bed '$name' was broken off: removing what is left of it"
  take_down || die "cannot remove it all, see above"
}

refuse_taken_names() {
  local machine space
  for machine in net $(machines); do
    space=$(namespace "$machine")
    [[ ! -e $NAMESPACES/$space ]] || refuse \
      "the network namespace '$space' exists and no bed made it:" \
      "remove it (ip netns del $space), or choose another --name"
  done
}

warn_of_crowding() {
  local node sum=0
  for node in $(seq 1 "${bed[nodes]}"); do
    ((sum += ${bed[cpu.$node]}))
  done
  ((sum <= $(nproc) * 1000)) ||
    say "warning: the nodes want $(cpu_text "$sum" -) CPUs together and this" \
      "machine has $(nproc): they will slow each other down"
}

# Checks what can be checked as anybody, then fills the record.
plan_bed() {
  local nodes=$1 cpu=$2 rate=$3 threads=$4 lease=$5 node
  bed=([ready]=false [network]=$(network_of_name) [cpu.coordinator]=max)
  bed[nodes]=$(parse_count --nodes "$nodes" 200)
  bed[threads]=0
  [[ -z $threads ]] ||
    bed[threads]=$(parse_count --threads "$threads" "$(nproc)")
  bed[lease]=
  [[ -z $lease ]] || bed[lease]=$(parse_count --lease "$lease" 3600)
  cpu=$(parse_cpu --cpu "$cpu")
  rate=$(parse_rate --rate "$rate")
  bed[rate.coordinator]=$rate
  for node in $(seq 1 "${bed[nodes]}"); do
    bed[cpu.$node]=$cpu bed[rate.$node]=$rate
  done
  record_overrides
}

make_bed() {
  local node
  make_cgroup || refuse "cannot make the cgroup $(cgroup), see above"
  mkdir "$(cgroup client)"
  make_network
  mkdir -p "${bed[state]}/logs"
  for node in $(machines); do make_machine "$node"; done
  launch_daemon coordinator
  wait_ready coordinator
  # One after the other: the coordinator numbers workers as they come, and
  # plans break ties by that number.
  for node in $(seq 1 "${bed[nodes]}"); do
    launch_daemon "$node"
    wait_ready "$node"
  done
}

cmd_up() {
  local nodes=4 cpu=0.4 rate=1gbit threads='' lease='' state=''
  local bin=${HERE%/*}/build/release/bin
  while [[ $# -gt 0 ]]; do
    case $1 in
      --nodes) nodes=$(value_of "$@") ;;
      --cpu) cpu=$(value_of "$@") ;;
      --rate) rate=$(value_of "$@") ;;
      --threads) threads=$(value_of "$@") ;;
      --lease) lease=$(value_of "$@") ;;
      --state) state=$(realpath -m -- "$(value_of "$@")") ;;
      --bin) bin=$(realpath -m -- "$(value_of "$@")") ;;
      *) common_option "$@" ;;
    esac
    shift 2
  done
  check_name
  plan_bed "$nodes" "$cpu" "$rate" "$threads" "$lease"
  need_root up
  need_tools
  need_programs "$bin"
  local found
  found=$(find_cgroup)

  take_lock
  clear_the_place
  plan_bed "$nodes" "$cpu" "$rate" "$threads" "$lease"
  bed[cgroup_version]=${found%% *} bed[cgroup]=${found#* }
  bed[bin]=$bin bed[state]=${state:-$(record_folder)}
  refuse_taken_names
  warn_of_crowding
  trap on_exit_of_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  write_record
  make_bed
  bed[ready]=true
  write_record
  trap - EXIT INT TERM
  local option=''
  [[ $name == testbed ]] || option=" --name $name"
  say "bed '$name' stands: ${bed[nodes]} nodes. Next:
  deploy/testbed.sh exec$option paceline node list
  deploy/testbed.sh down$option"
}

cmd_exec() {
  local machine=coordinator group=client
  while [[ $# -gt 0 ]]; do
    case $1 in
      --) shift; break ;;
      --on) machine=$(value_of "$@") group=$machine; shift 2 ;;
      -*) common_option "$@"; shift 2 ;;
      *) break ;;
    esac
  done
  check_name
  [[ $# -gt 0 ]] || refuse "exec: which command?"
  need_root exec
  need_bed
  if [[ $machine != coordinator ]]; then
    [[ $machine =~ ^[0-9]{1,3}$ ]] || refuse "exec --on $machine: which node?"
    machine=$((10#$machine)) group=$((10#$machine))
    check_node "exec --on $machine" "$machine" "${bed[nodes]}"
  fi
  echo "$BASHPID" >"$(cgroup "$group")/cgroup.procs"
  PATH=${bed[bin]}:$PATH
  PACELINE_COORDINATOR=$(address coordinator):$GRPC_COORDINATOR
  export PATH PACELINE_COORDINATOR
  exec nsenter "--net=$NAMESPACES/$(namespace "$machine")" -- "$@"
}

cmd_set() {
  while [[ $# -gt 0 ]]; do common_option "$@"; shift 2; done
  check_name
  [[ $((${#cpu_of[@]} + ${#rate_of[@]})) -gt 0 ]] ||
    refuse "set: give --cpu-of N=X or --rate-of N=R"
  need_root set
  need_bed
  take_lock
  need_bed
  record_overrides
  local node
  for node in "${!cpu_of[@]}"; do set_cpu "$node"; done
  for node in "${!rate_of[@]}"; do set_rate "$node"; done
  write_record
  warn_of_crowding
}

# cmd_worker kill|start N [--name NAME]
cmd_worker() {
  local what=$1 node=''
  shift
  while [[ $# -gt 0 ]]; do
    case $1 in
      -*) common_option "$@"; shift ;;
      *) [[ -z $node ]] || refuse "$what: one node at a time"
         node=$1 ;;
    esac
    shift
  done
  check_name
  [[ $node =~ ^([0-9]{1,3}|coordinator)$ ]] ||
    refuse "$what: which node? A number, or coordinator"
  need_root "$what"
  need_bed
  take_lock
  need_bed
  [[ $node == coordinator ]] || node=$((10#$node))
  check_node "$what $node" "$node" "${bed[nodes]}"
  if [[ $what == kill ]]; then
    empty_cgroup "$(cgroup "$node")"
  elif [[ -n $(pid_of "$node") ]]; then
    say "$(daemon_name "$node") lives already"
  else
    launch_daemon "$node"
    wait_ready "$node"
  fi
}

cmd_down() {
  while [[ $# -gt 0 ]]; do common_option "$@"; shift 2; done
  check_name
  need_root down
  need_tools
  ! grep -q "/paceline-$name/" /proc/self/cgroup || refuse \
    "this shell was started by 'exec' and would end with the bed: leave it" \
    "first"
  take_lock
  read_record || true
  take_down || die "bed '$name' is not all gone, see above; try again"
  forget_bed
  await_collection
}

cmd_status() {
  local form=table
  while [[ $# -gt 0 ]]; do
    case $1 in
      -o | --output) form=$(value_of "$@") ;;
      *) common_option "$@" ;;
    esac
    shift 2
  done
  check_name
  [[ $form == table || $form == json ]] || refuse "-o $form: need table or json"
  need_record
  stands || say "bed '$name' is not whole: run 'deploy/testbed.sh down'"
  "print_$form"
}

# What several commands take; each has a value.
common_option() {
  local value
  case $1 in
    --name) value=$(value_of "$@") && name=$value ;;
    --cpu-of) value=$(value_of "$@") && remember_of "$1" "$value" cpu_of ;;
    --rate-of) value=$(value_of "$@") && remember_of "$1" "$value" rate_of ;;
    --help | -h) usage; exit 0 ;;
    *) say "unknown option '$1'"
       usage >&2
       exit 2 ;;
  esac
}

main() {
  local command=${1:-}
  [[ $# -eq 0 ]] || shift
  case $command in
    up | exec | set | status | down) "cmd_$command" "$@" ;;
    kill | start) cmd_worker "$command" "$@" ;;
    --help | -h | help) usage ;;
    *) [[ -z $command ]] || say "unknown command '$command'"
       usage >&2
       exit 2 ;;
  esac
}

main "$@"
