#!/bin/sh
# The part of cloud-image.sh that runs in the new system: its settings, its boot loader and its disk.
set -eu
echo 'datasource_list: [NoCloud, None]' >/etc/cloud/cloud.cfg.d/99_sources.cfg
echo '/dev/vda1 / ext4 rw,noatime 0 0' >/etc/fstab
echo cloud >/etc/hostname
printf 'network: {version: 2, ethernets: {all: {match: {name: "e*"}, dhcp4: true}}}\n' >/etc/netplan/90-default.yaml
chmod 600 /etc/netplan/90-default.yaml
systemctl --quiet enable systemd-networkd.service
: >/etc/machine-id
rm -f /etc/ssh/ssh_host_* /etc/apt/apt.conf.d/*mmdebstrap /etc/dpkg/dpkg.cfg.d/*mmdebstrap
rm -rf /var/cache/apt/* /var/lib/apt/lists/*
mkdir -p /boot/grub
cat >/boot/grub/grub.cfg <<'CFG'
serial --unit=0 --speed=115200
terminal_output serial
linux (hd0,msdos1)/vmlinuz root=/dev/vda1 rw console=ttyS0 no_timer_check cryptomgr.notests mitigations=off audit=0
initrd (hd0,msdos1)/initrd.img
boot
CFG
ln -sf boot/vmlinuz-* /vmlinuz
ln -sf boot/initrd.img-* /initrd.img
# The boot loader's first part is in the first sector, and its second part follows it, up to the partition.
cd /mnt
truncate -s 2560M disk.raw
printf '2048,,83,*\n' | sfdisk --quiet disk.raw
grub-mkimage --format=i386-pc --prefix='(hd0,msdos1)/boot/grub' --output=core.img biosdisk part_msdos ext2 normal configfile \
	serial terminal linux gzio
dd if=/usr/lib/grub/i386-pc/boot.img of=disk.raw bs=440 count=1 conv=notrunc status=none
dd if=core.img of=disk.raw bs=512 seek=1 conv=notrunc status=none
mkdir root
# shellcheck disable=SC2016 # $dir is the inner shell's
unshare --mount --propagation unchanged sh -euc '
	mount --bind / /mnt/root
	for dir in dev mnt run tmp; do mount -t tmpfs tmpfs /mnt/root/$dir; done
	mke2fs -q -t ext4 -m 0 -E offset=1048576,lazy_itable_init=0,lazy_journal_init=0 -d /mnt/root /mnt/disk.raw 2559M
'
tar --sparse --create --file disk.tar disk.raw # the archive keeps the holes of the disk
