// Package image makes the disk of an emulated host: a Debian system with systemd, GRUB, libvirt and
// QEMU, on which the programs that change hosts can be run and rebooted. Images are kept in a
// cache, by the hash of what they are made from.
//
// A disk is made in three steps, none of which needs root. mmdebstrap installs the packages, and
// what is in files/mnt/customize.sh makes the file system from inside. The system is then booted
// once by QEMU: grub-install and update-grub need the real disk to look at, so that no grub.cfg of
// our making is ever in it, and an image that does not boot does not get into the cache. Last, the
// disk is compressed.
//
// A host boots from an overlay of the disk, by SeaBIOS and GRUB in the disk's own boot sector, as a
// machine without UEFI does.
package image
