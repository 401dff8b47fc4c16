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
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/rdma/vfiouser"
)

// A VFIOUser is a PCI device of another process, which maps the guest's memory for DMA: it must be shared.
type VFIOUser struct {
	ID, Bus  string
	Function int    // of device 0
	Multi    bool   // the device has more functions
	Socket   string // socket of the process
}

// Device returns the value of QEMU's option -device.
func (d VFIOUser) Device() string {
	// QEMU drops the device if it waits for less time than a busy process may take.
	const timeout = uint32(vfiouser.ReplyTimeout / time.Millisecond)
	type address struct {
		Type string `json:"type"`
		Path string `json:"path"`
	}
	// Only JSON can contain a socket address here.
	b, err := json.Marshal(struct {
		Driver  string  `json:"driver"`
		ID      string  `json:"id"`
		Bus     string  `json:"bus"`
		Addr    string  `json:"addr,omitempty"`
		Multi   bool    `json:"multifunction,omitempty"`
		Timeout uint32  `json:"x-msg-timeout"` // milliseconds
		Socket  address `json:"socket"`
	}{"vfio-user-pci", d.ID, d.Bus, fmt.Sprintf("0x0.%d", d.Function), d.Multi, timeout, address{"unix", d.Socket}})
	if err != nil { // only strings and numbers
		panic(err)
	}
	return string(b)
}

// NewSharedMemory returns memory that another process can map, with the data of a template's file, or empty.
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
	// Unwritten memory takes no space.
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

// eachData calls f for the parts up to size that are not holes. A file system without holes has only data.
func eachData(file *os.File, size int64, f func(begin, end int64) error) error {
	for end := int64(0); end < size; {
		begin, err := unix.Seek(int(file.Fd()), end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // a hole to the end
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

func copyData(to, from *os.File, size int64) error {
	return eachData(from, size, func(at, end int64) error {
		// sendfile writes at the target's position, and copies at most 0x7ffff000 bytes (sendfile(2)).
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

// MakeOverlay makes an overlay of the image below. Size 0 means that image's size.
func MakeOverlay(ctx context.Context, path, below string, size int64) error {
	args := []string{"create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, path}
	if size > 0 {
		args = append(args, strconv.FormatInt(size, 10))
	}
	return RunTool(ctx, "qemu-img", "qemu-utils", args...)
}

// RunTool runs a program. If it is missing, the error names the Debian package pkg.
func RunTool(ctx context.Context, name, pkg string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		// mke2fs is in sbin, which may not be in PATH.
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
