#!/usr/bin/env bash
# The part of memory_limit.sh that runs in the virtual machine: prints PASSED.
#
#   memory_limit_guest.sh PACKAGES
set -euo pipefail
set -x

# ask FIELD COMMAND...: a field of the client's document; empty where it does not
# answer in time.
ask() {
  local field=$1
  shift
  paceline "$@" -o json | python3 -c \
    "import json, sys; print(json.load(sys.stdin)$field)" || true
}

# until_is WANTED COMMAND...: asks until the command prints that.
until_is() {
  local wanted=$1
  shift
  until [[ $("$@") == "$wanted" ]]; do sleep 1; done
}

job() {
  cat <<'JOB'
model: {name: lenet}
data: {name: synthetic, train_samples: 64, test_samples: 64}
train: {steps: 200, batch: 16, micro_batch: 8}
pipeline: {stages: 1}
JOB
}

worker() { systemctl show --property "$1" --value paceline-worker; }

cd "$(mktemp -d)"
dpkg --no-triggers -i "$1"/paceline-{coordinator,client,worker}_*.deb
systemctl start paceline-worker
until_is idle ask '["workers"][0]["state"]' node list
[[ $(ask '["workers"][0]["memory_bytes"]' node list) == $((1 << 30)) ]]

: a large job is refused, a small one fits
job >job.yaml
paceline job submit job.yaml --set model.name=vgg16 --dry-run 2>&1 |
  grep 'has 1.0 GiB'
paceline job submit job.yaml
expected=$(ask '["weights_sha256"]' job show last)

: less than it holds
paceline job submit job.yaml --detach
until [[ $(ask '["step"]' job show last) -gt 0 ]]; do sleep 1; done
systemctl set-property --runtime paceline-worker MemoryMax=32M
until [[ $(worker NRestarts) -ge 1 ]]; do sleep 1; done
systemctl set-property --runtime paceline-worker MemoryMax=1G
journalctl -u paceline-worker | grep "Failed with result 'oom-kill'"
paceline job wait last
paceline job events last
[[ $(ask '["weights_sha256"]' job show last) == "$expected" ]]
[[ $(ask '["attempt"]' job show last) -gt 1 ]]
echo PASSED
