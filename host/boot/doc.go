// Package boot adds kernel arguments through the boot loader of a machine, and removes them again.
//
// [Steps] looks which loader that is, by what the firmware says of the last boot and by what is on
// the disk, and never guesses:
//
//   - GRUB with menu entries in grub.cfg (Debian, Ubuntu, SUSE, Arch): a file in /etc/default/grub.d
//     where grub-mkconfig reads those, else the
//     assignments in /etc/default/grub; then a new grub.cfg, which takes the old one's place only
//     after it was read and found good.
//   - GRUB and systemd-boot with one file an entry (Fedora, RHEL; Boot Loader Specification, type 1):
//     the options of each, and /etc/kernel/cmdline.
//   - rpm-ostree: one new deployment.
//   - anything else: a step that is refused, and says what to write where. It counts as made once the
//     kernel runs with the arguments.
//
// Arguments of the user stay where they are. What sets one of ours to another value goes, because
// the kernel takes only one (see internal/cmdline), and comes back with rollback, which brings back
// every file byte for byte. What others have changed in the meantime stays: of an entry that
// somebody has edited, or of one for a kernel that was installed since, only our arguments are
// taken off, and what they had replaced is put back; a grub.cfg that was made again since is made
// again once more.
package boot
