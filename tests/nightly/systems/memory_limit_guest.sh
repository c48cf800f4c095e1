#!/usr/bin/env bash
# The part of memory_limit.sh that runs in the virtual machine: prints PASSED.
#
#   memory_limit_guest.sh PACKAGES
set -euo pipefail
set -x

readonly CGROUP=/sys/fs/cgroup/system.slice/paceline-worker.service

# The state and the memory of the worker; empty where nobody answers in time.
worker() {
  paceline node list -o json |
    jq -r '.workers[0] | "\(.state) \(.memory_bytes)"' || true
}

# until_is WANTED COMMAND...: asks until the command prints that.
until_is() {
  local wanted=$1
  shift
  until [[ $("$@") == "$wanted" ]]; do sleep 1; done
}

cat /proc/uptime
cd "$(mktemp -d)"
dpkg --no-triggers -i "$1"/paceline-{coordinator,client,worker}_*.deb
systemctl start paceline-coordinator paceline-worker
until_is "idle $((1 << 30))" worker

cat >job.yaml <<'JOB'
model: {name: lenet}
data: {name: synthetic, train_samples: 64, test_samples: 64}
train: {steps: 4, batch: 16, micro_batch: 8}
pipeline: {stages: 1}
JOB
: a job that fits the machine and not the limit is refused
{ paceline job submit job.yaml --set model.name=vgg16 --dry-run 2>&1 || true; } |
  grep 'has 1.0 GiB'

: what grows beyond the limit is killed, and the worker starts again
bash -c "echo \$\$ >$CGROUP/cgroup.procs; exec tail /dev/zero" || true
until_is 1 systemctl show --property NRestarts --value paceline-worker
until_is "idle $((1 << 30))" worker

: a job that fits trains
paceline job submit job.yaml
cat $CGROUP/memory.{max,peak} /proc/uptime
echo PASSED
