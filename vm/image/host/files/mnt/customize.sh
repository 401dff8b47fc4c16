#!/bin/sh
# Makes an installed Debian the system of an emulated host, and its disk in /mnt/out. mmdebstrap runs it inside that system, as root of its
# name space, which need not be root outside; everything that it calls comes with the system. None of /mnt is on the disk.
set -eu
export LC_ALL=C

passwd --quiet --delete root
echo rackless-host >/etc/hostname
printf '127.0.0.1 localhost rackless-host\n::1 localhost\n' >/etc/hosts
mkdir -p /opt/rackless
ln -s /opt/rackless/bin/rackless /usr/local/bin/rackless

# Work that an emulated host does not need at a boot, or never: hosts live for minutes. Users that packages want are there, logs and
# records of logins are not kept, and the kernel gets its first random numbers from the CPU.
systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
	fstrim.timer logrotate.timer getty@tty1.service systemd-journal-flush.service systemd-pstore.service systemd-random-seed.service \
	systemd-sysusers.service systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-user-sessions.service \
	modprobe@configfs.service modprobe@dm_mod.service modprobe@drm.service modprobe@fuse.service modprobe@loop.service \
	dev-mqueue.mount sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-tracing.mount systemd-binfmt.service \
	proc-sys-fs-binfmt_misc.automount
# logind, and the bus with it, comes when it is asked.
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -s /dev/null /etc/systemd/system/multi-user.target.wants/systemd-logind.service
# Every generator is a process at every boot: those for what the disk does not have.
mkdir -p /etc/systemd/system-generators
for name in cryptsetup gpt-auto hibernate-resume integritysetup rc-local run system-update sysv veritysetup; do
	ln -s /dev/null "/etc/systemd/system-generators/systemd-$name-generator"
done
# libvirtd comes when its socket is asked. Disabling the service disables its sockets too.
systemctl --quiet disable libvirtd.service libvirt-guests.service
systemctl --quiet enable libvirtd.socket libvirtd-ro.socket virtlogd.socket virtlockd.socket

# The mirrors of the machine that builds this, and how it reaches them, are its own.
rm -f /etc/apt/apt.conf.d/*mmdebstrap /etc/dpkg/dpkg.cfg.d/*mmdebstrap /etc/apt/preferences.d/rackless /etc/apt/sources.list
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /etc/resolv.conf
find /var/log -type f -delete

# What has nothing to say here (a background, Xen, other systems, UEFI) and takes seconds: update-grub starts all that is executable.
find /etc/grub.d -type f ! -name 00_header ! -name 10_linux ! -name '4?_custom' -exec chmod a-x {} +

for modules in /lib/modules/*; do update-initramfs -c -k "${modules##*/}"; done

# GRUB 2.06 loads a kernel that says it may run anywhere at 1 MiB, and moves it to 16 MiB byte by byte, with all the memory that it asks for: 64 MiB, which take an
# emulated CPU 4 to 8 seconds. This byte of the boot protocol's header (relocatable_kernel) says that it may not: then it is left where it is, and moves itself.
for kernel in /boot/vmlinuz-*; do
	[ "$(od -An -c -j $((0x202)) -N 4 "$kernel" | tr -d ' ')" = HdrS ] || { echo "$kernel: no header of the boot protocol" >&2; exit 1; }
	printf '\000' | dd of="$kernel" bs=1 seek=$((0x234)) conv=notrunc status=none
done

# One partition behind the gap of 1 MiB that GRUB's first stage wants, with the files of this system. Its /proc and the like are mounts,
# which the second view of the root directory does not have, and what is left in directories of the running system is covered.
out=/mnt/out size_mib=$RACKLESS_DISK_MIB
mkdir "$out"
cp /boot/vmlinuz-* "$out/vmlinuz"
cp /boot/initrd.img-* "$out/initrd"
truncate -s "${size_mib}M" "$out/disk.raw"
echo 'start=2048, type=83, bootable' | sfdisk --quiet --label dos "$out/disk.raw"
mkdir /mnt/root
# shellcheck disable=SC2016 # $1 and $2 are the inner shell's
unshare --mount --propagation unchanged sh -eu -c '
	mount --bind / /mnt/root
	for dir in dev mnt run; do mount -t tmpfs -o mode=0755 tmpfs /mnt/root/$dir; done
	mount -t tmpfs -o mode=1777 tmpfs /mnt/root/tmp
	mke2fs -q -t ext4 -L rackless-root -m 0 -E offset=1048576,lazy_itable_init=0,lazy_journal_init=0 -d /mnt/root "$1/disk.raw" "$2M"
' sh "$out" $((size_mib - 1))
qemu-img convert -O qcow2 "$out/disk.raw" "$out/disk.qcow2"
rm "$out/disk.raw"
