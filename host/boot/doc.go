// Package boot adds kernel arguments through the boot loader of a machine, and removes them again.
//
// [Steps] detects the boot loader from the firmware's record of the last boot and from the files on the disk, and never
// guesses:
//
//   - GRUB with menu entries in grub.cfg (Debian, Ubuntu, SUSE, Arch)
//   - GRUB and systemd-boot with one file per entry (Fedora, RHEL; Boot Loader Specification, type 1)
//   - rpm-ostree
//   - any other boot loader: the step is refused, with instructions for the user. It counts as done once the kernel
//     runs with the arguments.
//
// The user's own arguments stay in place. Other values of our arguments are removed, because the kernel takes only one
// (see machine/cmdline), and rollback puts them back. Rollback restores every file byte for byte, unless others have
// changed it: then it removes only our arguments, and generates a regenerated grub.cfg again.
package boot
