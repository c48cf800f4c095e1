# shellcheck shell=bash disable=SC2154  # names of testbed.sh
# Part of testbed.sh: cgroups, links and daemons of the machines.
set -euo pipefail

# Short, so that a micro-batch of a few milliseconds sees an even speed.
readonly PERIOD_US=5000
readonly LEAST_QUOTA_US=1000  # the kernel's own bound

set_cpu() {
  local group milli=${bed[cpu.$1]} period quota
  group=$(cgroup "$1")
  if [[ $milli == max ]]; then
    period=$PERIOD_US quota=-1
  else
    # A short period of a slow machine would hold less than the least quota.
    period=$(((LEAST_QUOTA_US * 1000 + milli - 1) / milli))
    period=$((period > PERIOD_US ? period : PERIOD_US))
    quota=$((milli * period / 1000))
  fi
  # What a node could not use since others had the core, it may use in the next
  # period; else it is lost.  Four nodes of 0.4 on two cores, all busy, get
  # 0.34 to 0.38 without, 0.397 to 0.400 with it (measured, Linux 6.18).
  local burst=$group/cpu.cfs_burst_us
  [[ ${bed[cgroup_version]} == 1 ]] || burst=$group/cpu.max.burst
  [[ ! -e $burst ]] || echo 0 >"$burst"  # it bounds what the quota may be
  if [[ ${bed[cgroup_version]} == 2 ]]; then
    echo "${quota/#-1/max} $period" >"$group/cpu.max"
  else
    echo -1 >"$group/cpu.cfs_quota_us"  # any period goes with no quota
    echo "$period" >"$group/cpu.cfs_period_us"
    echo "$quota" >"$group/cpu.cfs_quota_us"
  fi
  [[ $quota == -1 || ! -e $burst ]] || echo "$quota" >"$burst"
}

# Shapes both ends: what the machine sends, and what it is sent.
set_rate() {
  local bits=${bed[rate.$1]} burst limit
  # Less where that would be a sizeable part of a second, more where the timer is
  # too slow for it.
  burst=$((bits / 8 / 40))
  burst=$((burst < 65536 ? burst : 65536))
  burst=$((burst > 8192 ? burst : 8192))
  burst=$((burst > bits / 8 / 2000 ? burst : bits / 8 / 2000))
  limit=$((bits / 8 / 20))  # 50 ms of queue
  limit=$((burst + (limit > 32768 ? limit : 32768)))
  local shape=(root tbf rate "${bits}bit" burst "$burst" limit "$limit")
  tc -n "$(namespace net)" qdisc replace dev "to-$1" "${shape[@]}"
  tc -n "$(namespace "$1")" qdisc replace dev eth0 "${shape[@]}"
}

# A namespace may choose only what its host allows to everybody: the host allows
# cubic for this moment, of one bed at a time.
choose_cubic() (
  allowed_file=/proc/sys/net/ipv4/tcp_allowed_congestion_control
  exec {lock}<"$allowed_file"
  flock "$lock"
  allowed=$(<"$allowed_file")
  trap 'echo "$allowed" >"$allowed_file"' EXIT
  echo "$allowed cubic" >"$allowed_file"
  ip netns exec "$1" sh -c \
    'echo cubic >/proc/sys/net/ipv4/tcp_congestion_control'
)

add_namespace() {
  ip netns add "$1"
  # What Debian's kernels do unless told otherwise, so that figures of two beds
  # do not differ by what their hosts were told.
  choose_cubic "$1" 2>/dev/null ||
    echo "testbed.sh: no cubic here: TCP does as on this host" >&2
  ip -n "$1" link set dev lo alias "$(mark)" up
}

make_machine() {
  local node=$1 space net
  space=$(namespace "$node") net=$(namespace net)
  add_namespace "$space"
  ip -n "$net" link add "to-$node" type veth \
    peer name eth0 netns "$space"
  ip -n "$net" link set dev "to-$node" master bridge up
  ip -n "$space" addr add "$(address "$node")/24" dev eth0
  # A bucket of 64 KiB takes none of the kernel's largest packets whole: it cuts
  # each of them in software, at the cost of the node that sends.
  ip -n "$space" link set dev eth0 gso_max_size 61440
  ip -n "$space" link set dev eth0 up
  set_rate "$node"
  mkdir "$(cgroup "$node")"
  set_cpu "$node"
}

# The bridge has a namespace of its own: the host gets no interface, no route
# and no address, and its firewall sees nothing (Docker's drops what crosses a
# bridge of the host).
make_network() {
  local net
  net=$(namespace net)
  add_namespace "$net"
  ip -n "$net" link add bridge type bridge mcast_snooping 0
  ip -n "$net" link set dev bridge up
}

make_cgroup() {
  local group
  group=$(cgroup)
  if [[ ${bed[cgroup_version]} == 2 ]]; then
    echo +cpu >"${bed[cgroup]}/cgroup.subtree_control" || return 1
  fi
  mkdir "$group" || return 1
  # Eighty times what a group or a process weighs by default: whatever else this
  # machine does, the nodes get what they were promised.
  if [[ ${bed[cgroup_version]} == 1 ]]; then
    echo 81920 >"$group/cpu.shares"
  else
    echo +cpu >"$group/cgroup.subtree_control" || return 1
    echo 8000 >"$group/cpu.weight"
  fi
}

# The cores that node N may use: T of those that we may use, in turn.
cores_of() {
  local allowed range cores=() picked i
  allowed=$(awk '/^Cpus_allowed_list:/ { print $2 }' /proc/self/status)
  for range in ${allowed//,/ }; do
    mapfile -t -O "${#cores[@]}" cores < <(seq "${range%-*}" "${range#*-}")
  done
  for ((i = 0; i < bed[threads]; ++i)); do
    picked+=,${cores[(($1 - 1) * bed[threads] + i) % ${#cores[@]}]}
  done
  echo "${picked#,}"
}

close_inherited() {
  local fd
  for fd in "/proc/$BASHPID/fd/"*; do
    fd=${fd##*/}
    ((fd <= 2 || fd == 255)) || eval "exec $fd>&-"
  done
}

# launch MACHINE PROGRAM ARGUMENT...
launch() {
  local node=$1 enter log
  shift
  log=${bed[state]}/logs/$(daemon_name "$node").log
  enter=(setsid nsenter "--net=$NAMESPACES/$(namespace "$node")")
  if [[ $node != coordinator && ${bed[threads]} -gt 0 ]]; then
    enter+=(taskset -c "$(cores_of "$node")")
  fi
  (
    echo "$BASHPID" >"$(cgroup "$node")/cgroup.procs" || exit 1
    close_inherited
    unset "${!PACELINE_@}"
    cd /
    exec "${enter[@]}" "$@"
  ) </dev/null >>"$log" 2>&1 &
  launched["$node"]=$!
  disown
}

launch_daemon() {
  local node=$1 at folder
  at=$(address "$node")
  folder=${bed[state]}/$(daemon_name "$node")
  mkdir -p "$folder" "${bed[state]}/logs"
  # Not the configuration of daemons that may be installed here as well.
  : >"${bed[state]}/none.toml"
  local common=(--config "${bed[state]}/none.toml" --state "$folder" --insecure)
  if [[ $node == coordinator ]]; then
    launch "$node" "${bed[bin]}/paceline-coordinator" "${common[@]}" \
      --listen "$at:$GRPC_COORDINATOR" --http "$at:$HTTP_COORDINATOR" \
      ${bed[lease]:+--lease "${bed[lease]}"}
  else
    launch "$node" "${bed[bin]}/paceline-worker" "${common[@]}" \
      --coordinator "$(address coordinator):$GRPC_COORDINATOR" \
      --name "node-$node" --machine-id "paceline-$name.$node" \
      --listen "$at:$GRPC_WORKER" --advertise "$at:$GRPC_WORKER" \
      --http "$at:$HTTP_WORKER" --data-dir / --data-hidden
  fi
}

pid_of() { head -n 1 "$(cgroup "$1")/cgroup.procs" 2>/dev/null || true; }

# A worker is ready when it is attached to the coordinator.
is_ready() {
  local port=$HTTP_WORKER
  [[ $1 != coordinator ]] || port=$HTTP_COORDINATOR
  # shellcheck disable=SC2016  # for the inner shell
  timeout 5 nsenter "--net=$NAMESPACES/$(namespace coordinator)" bash -c '
    exec 3<>"/dev/tcp/$1/$2" && printf "GET /readyz HTTP/1.0\r\n\r\n" >&3 &&
      read -r _ code _ <&3 && [[ $code == 200 ]]' \
    _ "$(address "$1")" "$port" 2>/dev/null
}

wait_ready() {
  local node=$1 until=$((SECONDS + READY_SECONDS)) daemon
  daemon=$(daemon_name "$node")
  until is_ready "$node"; do
    kill -0 "${launched[$node]}" 2>/dev/null || {
      tail -n 15 "${bed[state]}/logs/$daemon.log" >&2 || true
      die "the daemon of $daemon ended, see above"
    }
    ((SECONDS < until)) || {
      tail -n 15 "${bed[state]}/logs/$daemon.log" >&2 || true
      die "$daemon is not ready after $READY_SECONDS s, see above"
    }
    sleep 0.05
  done
}
