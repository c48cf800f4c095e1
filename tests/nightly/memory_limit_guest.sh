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

cd "$(mktemp -d)"
dpkg --no-triggers -i "$1"/paceline-{coordinator,client,worker}_*.deb
systemctl start paceline-coordinator paceline-worker
until_is idle ask '["workers"][0]["state"]' node list
[[ $(ask '["workers"][0]["memory_bytes"]' node list) == $((1 << 30)) ]]

: a job that fits the machine and not the limit is refused
cat >job.yaml <<'JOB'
model: {name: vgg16}
data: {name: synthetic, train_samples: 64, test_samples: 64}
train: {steps: 1, batch: 16, micro_batch: 8}
pipeline: {stages: 1}
JOB
{ paceline job submit job.yaml --dry-run 2>&1 || true; } | grep 'has 1.0 GiB'
echo PASSED
