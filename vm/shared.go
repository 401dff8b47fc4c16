package vm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/trace"
)

// A VFIOUser is a PCI device that another process emulates. That process maps the guest's memory and so does DMA by
// itself: a guest with such a device needs shared memory.
type VFIOUser struct {
	ID, Bus  string
	Function int    // of device 0 on the bus
	Multi    bool   // whether the device has more functions
	Socket   string // of the process
}

// Device returns the value of QEMU's option -device.
func (d VFIOUser) Device() string {
	type address struct {
		Type string `json:"type"`
		Path string `json:"path"`
	}
	// Only JSON can say a socket's address here.
	b, err := json.Marshal(struct {
		Driver string  `json:"driver"`
		ID     string  `json:"id"`
		Bus    string  `json:"bus"`
		Addr   string  `json:"addr,omitempty"`
		Multi  bool    `json:"multifunction,omitempty"`
		Socket address `json:"socket"`
	}{"vfio-user-pci", d.ID, d.Bus, fmt.Sprintf("0x0.%d", d.Function), d.Multi, address{"unix", d.Socket}})
	if err != nil { // strings
		panic(err)
	}
	return string(b)
}

// NewSharedMemory returns memory of a guest that another process can map: with the contents of a
// template's memory file, or empty. Only what holds data is copied.
func NewSharedMemory(template string, size int64) (_ *os.File, err error) {
	fd, err := unix.MemfdCreate("rackless-memory", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory of the guest: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory of the guest")
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// Memory takes no space before it is written: what is not copied is zero.
	if err := f.Truncate(size); err != nil || template == "" {
		return f, err
	}
	from, err := os.Open(template)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return f, copyData(f, from, size)
}

// eachData calls f for what is not a hole of a file, from its beginning to size. A file system that knows no holes says
// that all is data.
func eachData(file *os.File, size int64, f func(begin, end int64) error) error {
	for end := int64(0); end < size; {
		begin, err := unix.Seek(int(file.Fd()), end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // a hole up to the end
			return nil
		}
		if err == nil {
			end, err = unix.Seek(int(file.Fd()), begin, unix.SEEK_HOLE)
		}
		if err == nil {
			err = f(begin, end)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file.Name(), err)
		}
	}
	return nil
}

// copyData copies what is not a hole.
func copyData(to, from *os.File, size int64) error {
	return eachData(from, size, func(at, end int64) error {
		// sendfile writes where the target is, and reads at its own position, which it moves. One call copies at most
		// 0x7ffff000 bytes (sendfile(2)).
		if _, err := to.Seek(at, io.SeekStart); err != nil {
			return err
		}
		for at < end {
			n, err := unix.Sendfile(int(to.Fd()), int(from.Fd()), &at, int(min(end-at, 1<<30)))
			if err != nil || n == 0 {
				return fmt.Errorf("copied %d bytes into the guest's memory: %w", n, cmp.Or(err, io.ErrUnexpectedEOF))
			}
		}
		return nil
	})
}

// MakeOverlay makes a disk whose contents are those of the image below until they are written to. A
// size of 0 is that of the image.
func MakeOverlay(ctx context.Context, path, below string, size int64) error {
	args := []string{"create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, path}
	if size > 0 {
		args = append(args, strconv.FormatInt(size, 10))
	}
	return RunTool(ctx, "qemu-img", "qemu-utils", args...)
}

// RunTool runs a program of the Debian package.
func RunTool(ctx context.Context, name, pkg string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		// mke2fs is in sbin, which is not in every user's PATH.
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			return fmt.Errorf("%s is not in PATH: install Debian package %s", name, pkg)
		}
	}
	trace.Runs("", append([]string{path}, args...))
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
