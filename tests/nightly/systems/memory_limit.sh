#!/usr/bin/env bash
# MemoryMax= of the worker's unit: the worker counts on no more than that, a job
# that needs more is refused, and systemd starts the worker again after the
# kernel has killed at the limit.
#
# In a virtual machine, since containers cannot limit memory everywhere: Debian's
# kernel boots this machine's root, read-only below a layer in memory.  Its
# processors are emulated.  Needs root, and an archive for the kernel.
set -euo pipefail
cd "$(dirname "$0")/../../.."

readonly VIRTIOFSD=/usr/lib/qemu/virtiofsd
readonly MODULES=(virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev
  virtio_pci fuse virtiofs overlay)
readonly TREE=$PWD FOLDER=$PWD/build/memory-limit
readonly BOOT_AND_RUN_SECONDS=700

[[ $EUID -eq 0 && -x $VIRTIOFSD ]] || {
  echo "memory_limit.sh: needs root, and $VIRTIOFSD of Debian 12" >&2
  exit 1
}
# What it starts ends with it.
[[ ${1:-} == inside ]] ||
  exec unshare --mount --pid --fork --kill-child --mount-proc \
    tests/nightly/systems/memory_limit.sh inside

get_kernel() {
  rm -rf kernel.part
  apt-get update -q
  apt-get download -q busybox-static "$(apt-cache depends \
    linux-image-cloud-amd64 | sed -n 's/.*Depends: //p')"
  for package in *.deb; do dpkg-deb -x "$package" kernel.part; done
  rm ./*.deb
  mv kernel.part kernel
}

# The first file system: mounts the root, without the services that this machine
# starts and without its mesh.
make_first() {
  local module
  rm -rf first
  mkdir -p first/{bin,proc,dev,lower,layer,root}
  cp kernel/bin/busybox first/bin
  for module in "${MODULES[@]}"; do
    find kernel -name "$module.ko" -exec cp {} first \;
  done
  cat >first/init <<INIT
#!/bin/busybox sh
export PATH=/bin
for tool in mount insmod mkdir rm cp ln poweroff switch_root; do
  /bin/busybox ln -s busybox /bin/\$tool
done
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in ${MODULES[*]}; do insmod /\$module.ko; done
mount -t virtiofs root /lower || poweroff -f
mount -t tmpfs tmpfs /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work \\
  overlay /root || poweroff -f
cd /root
for folder in etc/systemd/system etc/init.d etc/paceline \\
  var/lib/paceline-coordinator var/lib/paceline-worker; do
  rm -rf \$folder
  mkdir -p \$folder
done
echo >etc/fstab
cp -r /lower$FOLDER/units/* etc/systemd/system
exec switch_root /root /lib/systemd/systemd
INIT
  chmod +x first/init
  (cd first && find . | cpio --quiet -o -H newc) >first.cpio
}

# What runs in there, instead of a login.
make_units() {
  local wants=units/multi-user.target.wants
  rm -rf units
  mkdir -p $wants units/paceline-{worker,coordinator}.service.d
  ln -s /dev/null units/getty.target
  ln -s ../limit.service $wants/
  cat >units/limit.service <<UNIT
[Service]
Type=oneshot
ExecStart=$TREE/tests/nightly/systems/memory_limit_guest.sh $FOLDER/packages
TimeoutStartSec=600
ExecStopPost=systemctl poweroff --no-block
StandardOutput=file:/dev/ttyS0
StandardError=file:/dev/ttyS0
UNIT
  # Emulated processors are slow.
  cat >units/paceline-worker.service.d/limit.conf <<UNIT
[Service]
MemoryMax=1G
TimeoutStartSec=300
UNIT
  cat >units/paceline-coordinator.service.d/slow.conf <<UNIT
[Service]
Environment=PACELINE_COORDINATOR_LEASE=60
TimeoutStartSec=300
UNIT
}

mkdir -p "$FOLDER"
cd "$FOLDER"
[[ -d kernel ]] || get_kernel
rm -rf packages socket log
"$TREE/deploy/packages.sh" "$TREE/build/release/bin" "$FOLDER/packages"
make_first
make_units
"$VIRTIOFSD" --socket-path=socket -o source=/ -o cache=always \
  -o sandbox=chroot &
timeout 10 bash -c 'until [[ -S socket ]]; do sleep 0.1; done'
timeout $BOOT_AND_RUN_SECONDS qemu-system-x86_64 -accel tcg,thread=multi \
  -cpu max -smp 2 -m 3G -nodefaults -nographic -no-reboot -serial stdio \
  -object memory-backend-memfd,id=memory,size=3G,share=on \
  -numa node,memdev=memory -chardev socket,id=root,path=socket \
  -device vhost-user-fs-pci,chardev=root,tag=root \
  -kernel kernel/boot/vmlinuz-* -initrd first.cpio \
  -append "console=ttyS0 panic=-1 quiet systemd.show_status=0" \
  </dev/null | tee log
grep -aq PASSED log
