package emulated

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/driver/qemu"
	"github.com/rackless/rackless/lab"
)

// ensureHome makes the directory that the full nodes of the lab share, unless it is there. It goes with the lab.
func (u *upRun) ensureHome() error {
	if !u.emulator.Has("virtio-9p-pci") {
		return fmt.Errorf("lab %s: QEMU %s has no virtio-9p-pci, by which nodes share /home: leave home out, or "+
			"install a QEMU with virtfs", u.Lab.Name, u.emulator.Version)
	}
	dir := u.HomeDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	u.home = qemu.Home{Dir: dir, Security: securityModel(dir)}
	return nil
}

// securityModel chooses where QEMU keeps the owners and modes that guests give to files: in attributes of each file, or
// where the file system has none, as a tmpfs had before Linux 6.6, in files beside it. A guest's root makes no file of
// this machine's root, no device and no program with another user's rights, either way.
func securityModel(dir string) string {
	if err := unix.Setxattr(dir, "user.rackless", nil, 0); err != nil {
		return "mapped-file"
	}
	_ = unix.Removexattr(dir, "user.rackless") // it means nothing
	return "mapped-xattr"
}

// mountHome mounts the directory, and has the system do so when it starts again. Directories that users of the system
// have already are copied into it first, where it has none of their names.
const mountHome = `options=trans=virtio,version=9p2000.L,msize=262144
grep -q "^home /home 9p " /proc/mounts && exit
modprobe 9pnet_virtio && modprobe 9p || exit
set -- /home/*
if [ -e "$1" ]; then
	mkdir -p /run/home && mount -t 9p -o $options home /run/home || exit
	cp -an /home/. /run/home/
	umount /run/home
fi
grep -q "^home /home 9p " /etc/fstab || echo "home /home 9p $options,nofail 0 0" >>/etc/fstab
mkdir -p /home && mount -t 9p -o $options home /home`

// shareHome mounts the lab's directory in a node that runs.
func (u *upRun) shareHome(ctx context.Context, n lab.Node) error {
	agent, err := u.Agent(ctx, n.Name)
	if err != nil {
		return err
	}
	if _, err := agent.Output(ctx, "sh", "-c", mountHome); err != nil {
		return fmt.Errorf("mount the shared /home: %w; its kernel needs the module 9p, or leave home out of the lab "+
			"file", err)
	}
	return nil
}
