#!/bin/sh
# Makes an installed Debian the system of full nodes, and its disk in /mnt/out. mmdebstrap runs it inside that system, as root of its name
# space, which need not be root outside; everything that it calls comes with the system. None of /mnt is on the disk.
set -eu
export LC_ALL=C

passwd --quiet --delete root
echo node >/etc/hostname
printf '127.0.0.1 localhost\n' >/etc/hosts
: >/etc/machine-id
chmod 0755 /usr/lib/rackless/* /usr/sbin/rackless-*

# Work that a node does not need at a boot, or never: nodes live for minutes. Units that are not there can be masked as well.
systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
	fstrim.timer logrotate.timer man-db.timer getty@tty1.service systemd-journal-flush.service systemd-pstore.service \
	systemd-random-seed.service systemd-sysusers.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
	systemd-logind.service systemd-timesyncd.service systemd-firstboot.service
mkdir -p /etc/systemd/system-generators
for name in cryptsetup gpt-auto hibernate-resume integritysetup rc-local run system-update sysv veritysetup; do
	ln -s /dev/null "/etc/systemd/system-generators/systemd-$name-generator"
done
# RDMA devices keep the names of their drivers, as in the small image: mlx5_0.
mkdir -p /etc/udev/rules.d
ln -s /dev/null /etc/udev/rules.d/60-rdma-persistent-naming.rules
# sshd is started for each connection, so that it takes the keys that the node has then.
systemctl --quiet disable ssh.service
systemctl --quiet enable ssh.socket rackless-node.service
rm -f /etc/ssh/ssh_host_*
# These read facts once and would be the lab's: the services of package sets are started by who configures them.
for unit in slurmctld.service slurmd.service munge.service; do
	[ ! -e "/lib/systemd/system/$unit" ] || systemctl --quiet disable "$unit"
done

# The mirrors of the machine that builds this, and how it reaches them, are its own.
rm -f /etc/apt/apt.conf.d/*mmdebstrap /etc/dpkg/dpkg.cfg.d/*mmdebstrap /etc/apt/preferences.d/rackless /etc/apt/sources.list
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /etc/resolv.conf
find /var/log -type f -delete

# Modules of hardware that no node has: they are half of the disk.
for dir in /lib/modules/*/kernel; do
	for sub in drivers/gpu drivers/media drivers/net/wireless drivers/staging drivers/isdn drivers/iio drivers/hid sound \
		net/wireless net/bluetooth drivers/bluetooth; do
		rm -rf "${dir:?}/$sub"
	done
done
for dir in /lib/modules/*; do depmod "${dir##*/}"; done
for modules in /lib/modules/*; do update-initramfs -c -k "${modules##*/}"; done

out=/mnt/out size_mib=$RACKLESS_DISK_MIB
mkdir "$out"
cp /boot/vmlinuz-* "$out/vmlinuz"
cp /boot/initrd.img-* "$out/initrd"
for dir in /lib/modules/*; do echo "${dir##*/}"; done >"$out/kernel"
dpkg-query --show --showformat '${Package}=${Version}\n' >"$out/packages"
# The kernel and its initial file system are given to the machine from outside.
rm -f /boot/vmlinuz-* /boot/initrd.img-* /vmlinuz* /initrd.img*

# The file system is made of the files of this system. Its /proc and the like are mounts, which the second view of the root directory does
# not have, and what is left in directories of the running system is covered. The archive keeps the holes of the disk.
truncate -s "${size_mib}M" "$out/disk.raw"
mkdir /mnt/root
# shellcheck disable=SC2016 # $1 is the inner shell's
unshare --mount --propagation unchanged sh -eu -c '
	mount --bind / /mnt/root
	for dir in dev mnt run; do mount -t tmpfs -o mode=0755 tmpfs /mnt/root/$dir; done
	mount -t tmpfs -o mode=1777 tmpfs /mnt/root/tmp
	mke2fs -q -t ext4 -L rackless-root -m 0 -E lazy_itable_init=0,lazy_journal_init=0 -d /mnt/root "$1/disk.raw"
' sh "$out"
tar --sparse --create --file "$out/disk.tar" --directory "$out" disk.raw
rm "$out/disk.raw"
