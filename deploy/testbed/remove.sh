# shellcheck shell=bash disable=SC2154  # names of testbed.sh
# Part of testbed.sh: finding and removing what a bed left.
set -euo pipefail

# The killed leave their cgroup before init has collected them, which may take
# it two seconds.  One that never does (a container's) is no reason to fail.
await_collection() {
  local pid until=$((SECONDS + 4))
  for pid in $killed; do
    while [[ -d /proc/$pid ]] && ((SECONDS < until)); do sleep 0.02; done
  done
}

# Every cgroup that a bed of this name has, deepest first.
cgroups_here() {
  local folder found
  found=$(find_cgroup 2>/dev/null) || found=
  for folder in "${bed[cgroup]:-}" "${found#* }"; do
    [[ -n $folder && -d $folder/paceline-$name ]] || continue
    find "$folder/paceline-$name" -depth -type d
  done | awk '!seen[$0]++'
}

# kill -9 until nobody is left: who is killed may just have forked.
empty_cgroup() {
  local pids until=$((SECONDS + KILL_SECONDS))
  while true; do
    pids=$(cat "$1/cgroup.procs" 2>/dev/null) || return 0
    [[ -n $pids ]] || return 0
    # shellcheck disable=SC2086  # words are what is wanted
    kill -KILL $pids 2>/dev/null || true
    killed+=" $pids"
    ((SECONDS < until)) || {
      say "cannot end process ${pids//$'\n'/ } of $1"
      return 1
    }
    sleep 0.02
  done
}

remove_cgroup() {
  local until=$((SECONDS + KILL_SECONDS))
  until rmdir "$1" 2>/dev/null; do
    [[ -d $1 ]] || return 0
    ((SECONDS < until)) || {
      say "cannot remove cgroup $1"
      return 1
    }
    sleep 0.02
  done
}

# The namespaces that this bed made: its record says so, or their own mark.
namespaces_here() {
  local file space suffix
  for file in "$NAMESPACES/paceline-$name."*; do
    space=${file##*/}
    suffix=${space#"paceline-$name."}
    [[ -e $file && $suffix =~ ^(net|coordinator|[0-9]+)$ ]] || continue
    if [[ -n ${bed[nodes]:-} ]] &&
      { [[ $suffix =~ ^(net|coordinator)$ ]] ||
        ((suffix >= 1 && suffix <= bed[nodes])); }; then
      echo "$space"
    elif [[ $(ip -n "$space" link show dev lo 2>/dev/null) == \
    *"alias $(mark)"* ]]; then
      echo "$space"
    fi
  done
}

# Works from what is on the machine, whatever state that is in.  The record
# goes last: what could not be removed can be tried again.
take_down() {
  local failed=false groups one
  groups=$(cgroups_here)
  for one in $groups; do empty_cgroup "$one" || failed=true; done
  for one in $(namespaces_here); do
    ip netns del "$one" || failed=true
  done
  for one in $groups; do remove_cgroup "$one" || failed=true; done
  ! $failed || return 1
  # Before the folder, whose end is the end of the lock.
  find "$(record_folder)" -mindepth 1 -delete
}

forget_bed() {
  rmdir "$(record_folder)"
  rmdir "$RECORDS" 2>/dev/null || true
}
