// Package boot adds kernel arguments through the boot loader of a machine, and removes them again.
//
// [Steps] never guesses the boot loader: it reads the firmware's record of the last boot and the files on the disk. It
// refuses any boot loader but GRUB, systemd-boot and rpm-ostree, with instructions for the user.
//
// The user's own arguments stay in place. Other values of our arguments are removed, because the kernel takes only one
// (see machine/cmdline), and rollback puts them back. Rollback restores every file byte for byte, unless others have
// changed it: then it removes only our arguments, and generates a new grub.cfg.
package boot
