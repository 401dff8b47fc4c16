#!/bin/sh
# Makes a cloud image of Debian for tests, of what Debian's genericcloud is made of: the cloud kernel, cloud-init,
# netplan and systemd-networkd, a boot loader in the disk; no RDMA, no guest agent, and nothing of rackless. It takes
# root or user name spaces, mmdebstrap and qemu-img.
#
#   hack/cloud-image.sh FILE.qcow2 [RELEASE]
set -eu
out=$(realpath "$1") release=${2:-bookworm}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2016 # $1 is that of mmdebstrap's shell
mmdebstrap --quiet --variant=minbase --format=null --skip=cleanup \
	--aptopt='APT::Install-Recommends "false";' --dpkgopt=force-unsafe-io \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
	--include=cloud-init,e2fsprogs,fdisk,grub-pc-bin,initramfs-tools,iproute2,kmod,linux-image-cloud-amd64,netplan.io,openssh-server,sudo,systemd-sysv,udev \
	--customize-hook="copy-in $(dirname "$(realpath "$0")")/cloud-image-inside.sh /mnt" \
	--customize-hook='chroot "$1" sh /mnt/cloud-image-inside.sh' \
	--customize-hook="download /mnt/disk.tar $work/disk.tar" \
	"$release" /dev/null
tar --extract --file "$work/disk.tar" --directory "$work"
qemu-img convert -f raw -O qcow2 -c -o compression_type=zstd "$work/disk.raw" "$out"
