# shellcheck shell=bash disable=SC2154  # names of testbed.sh
# Part of testbed.sh: a bed's names, its record and its lock.
set -euo pipefail

record_folder() { echo "$RECORDS/$name"; }
namespace() { echo "paceline-$name.$1"; }  # of a node, coordinator, net
cgroup() { echo "${bed[cgroup]}/paceline-$name${1:+/$1}"; }
mark() { echo "paceline-testbed:$name"; }
machines() { echo coordinator && seq 1 "${bed[nodes]}"; }
daemon_name() { [[ $1 == coordinator ]] && echo coordinator || echo "node-$1"; }

address() {
  [[ $1 == coordinator ]] && echo "${bed[network]}.254" ||
    echo "${bed[network]}.$1"
}

# Nothing outside the bed's own namespaces knows these addresses, so that no
# network of this machine can clash with them; by name, so that two beds
# differ in what they log.
network_of_name() {
  local sum
  sum=$(cksum <<<"$name")
  sum=${sum%% *}
  echo "10.$((sum % 256)).$((sum / 256 % 256))"
}

# --- The record -----------------------------------------------------------

write_record() {
  local file key
  file=$(record_folder)/bed
  for key in "${!bed[@]}"; do
    echo "$key=${bed[$key]}"
  done | LC_ALL=C sort >"$file.part"
  mv "$file.part" "$file"
}

# False when there is none, or none that was written to its end.
read_record() {
  local key value
  bed=()
  [[ -r $(record_folder)/bed ]] || return 1
  while IFS='=' read -r key value; do
    bed["$key"]=$value
  done <"$(record_folder)/bed"
}

stands() { [[ ${bed[ready]:-} == true && -e $NAMESPACES/$(namespace net) ]]; }

need_record() {
  read_record && return
  say "there is no bed '$name'; 'deploy/testbed.sh up' makes one"
  exit 3
}

need_bed() {
  need_record
  stands || die "bed '$name' is not whole (its 'up' was broken off, or the" \
    "machine was restarted): run 'deploy/testbed.sh down', then 'up'"
}

# One at a time works on a bed.  The lock is the folder itself: it goes with
# the folder, so that who gets it looks whether the folder is still that one.
# What this script starts inherits the lock, and a daemon lets it go only when
# it is in its cgroup: who has the lock finds there all that was ever started.
take_lock() {
  local folder
  folder=$(record_folder)
  while true; do
    mkdir -p "$folder"
    exec {lock}<"$folder" || continue
    flock -n "$lock" || {
      say "waiting for another testbed.sh that works on bed '$name'"
      flock -w "$LOCK_SECONDS" "$lock" ||
        die "it still works after $LOCK_SECONDS s; 'fuser -v $folder' says who"
    }
    [[ ! /dev/fd/$lock -ef $folder ]] || return 0
    exec {lock}<&-
  done
}
