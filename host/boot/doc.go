// Package boot adds kernel arguments through the boot loader of a machine, and removes them again.
//
// [Steps] detects the boot loader from the firmware's record of the last boot and from the files on the disk, and
// never guesses:
//
//   - GRUB with menu entries in grub.cfg (Debian, Ubuntu, SUSE, Arch): Steps writes a file in /etc/default/grub.d if
//     grub-mkconfig reads that directory, else it edits the assignments in /etc/default/grub. Then it generates a new
//     grub.cfg, which replaces the old one only after it has been parsed and checked.
//   - GRUB and systemd-boot with one file per entry (Fedora, RHEL; Boot Loader Specification, type 1): Steps edits
//     the options of each entry, and /etc/kernel/cmdline.
//   - rpm-ostree: Steps makes one new deployment.
//   - any other boot loader: the step is refused, with instructions for the user. It counts as done once the kernel
//     runs with the arguments.
//
// The user's own arguments stay in place. Other values of our arguments are removed, because the kernel takes only
// one (see machine/cmdline), and rollback puts them back. Rollback restores every file byte for byte, unless others
// have changed it in the meantime:
//
//   - from an entry that somebody has edited, or an entry of a kernel that was installed since, rollback removes only
//     our arguments and restores the values that they replaced;
//   - a grub.cfg that was regenerated since is generated again.
package boot
