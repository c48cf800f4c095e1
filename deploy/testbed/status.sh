# shellcheck shell=bash disable=SC2154  # names of testbed.sh
# Part of testbed.sh: a bed as table and as JSON.
set -euo pipefail

cpu_text() {
  [[ $1 != max ]] || { echo "$2"; return; }
  local text
  text=$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))
  while [[ $text == *0 && $text != *.0 ]]; do text=${text%0}; done
  echo "$text"
}

rate_text() {
  local bits=$1 unit
  for unit in '' k m g; do
    if ((bits % 1000 != 0)) || [[ $unit == g ]]; then break; fi
    bits=$((bits / 1000))
  done
  echo "$bits${unit}bit"
}

json_text() {
  local text=${1//\\/\\\\}
  echo "\"${text//\"/\\\"}\""
}

# One machine as JSON.
json_machine() {
  local node=$1 pid grpc=$GRPC_WORKER http=$HTTP_WORKER at alive=true
  [[ $node != coordinator ]] || grpc=$GRPC_COORDINATOR http=$HTTP_COORDINATOR
  pid=$(pid_of "$node") at=$(address "$node")
  [[ -n $pid ]] || alive=false
  printf '{"name": "%s", "alive": %s, "pid": %s, "address": "%s", ' \
    "$(daemon_name "$node")" "$alive" "${pid:-null}" "$at:$grpc"
  printf '"http": "%s", "cpu": %s, "rate": "%s", ' "$at:$http" \
    "$(cpu_text "${bed[cpu.$node]}" null)" "$(rate_text "${bed[rate.$node]}")"
  printf '"rate_bits_per_second": %s, "namespace": "%s", "cgroup": %s}' \
    "${bed[rate.$node]}" "$(namespace "$node")" \
    "$(json_text "$(cgroup "$node")")"
}

print_json() {
  local node comma='' ready=false
  ! stands || ready=true
  printf '{"name": "%s", "ready": %s, "state": %s, "bin": %s,\n' "$name" \
    "$ready" "$(json_text "${bed[state]}")" "$(json_text "${bed[bin]}")"
  printf ' "coordinator": %s,\n "nodes": [' "$(json_machine coordinator)"
  for node in $(seq 1 "${bed[nodes]}"); do
    printf '%s\n  %s' "$comma" "$(json_machine "$node")"
    comma=,
  done
  printf ']}\n'
}

print_table() {
  local node pid row='%-12s %-21s %6s %10s %8s %s\n' alive
  # shellcheck disable=SC2059  # the format is ours
  printf "$row" NAME ADDRESS CPU RATE PID ALIVE
  for node in $(machines); do
    pid=$(pid_of "$node") alive=yes
    [[ -n $pid ]] || alive=no
    local port=$GRPC_WORKER
    [[ $node != coordinator ]] || port=$GRPC_COORDINATOR
    # shellcheck disable=SC2059
    printf "$row" "$(daemon_name "$node")" "$(address "$node"):$port" \
      "$(cpu_text "${bed[cpu.$node]}" -)" "$(rate_text "${bed[rate.$node]}")" \
      "${pid:--}" "$alive"
  done
}
