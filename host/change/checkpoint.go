package change

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ext4Checkpoint is EXT4_IOC_CHECKPOINT of <linux/ext4.h>, _IOW('f', 43, __u32), since Linux 5.15:
// everything that is in the journal is written to its place.
const ext4Checkpoint = 0x4004662b

// Checkpoint has a directory's file system written as who does not read its journal sees it. Boot
// loaders are such: after a power cut GRUB reads an ext4 as it was before what is only in the
// journal yet, although all of it was forced to the disk. Only ext4 can be asked for more than a
// sync. It does nothing where the root is not that of this machine.
func (s *System) Checkpoint(dir string) (err error) {
	if s.Root != "/" {
		return nil
	}
	f, err := os.Open(s.Path(dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: f.Name(), Err: err}
	}
	// Other file systems and older kernels do not know it, and say so in several ways.
	_ = unix.IoctlSetPointerInt(int(f.Fd()), ext4Checkpoint, 0)
	return nil
}
