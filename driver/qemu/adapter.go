package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// adapterArgs returns the arguments of a ConnectX adapter. Each is behind a root port of its own, with room for its
// registers. A template has the ports alone: the state of an adapter is its server's and not in a template, so clones
// find theirs when they look for it.
func adapterArgs(i int, n NIC) []string {
	port := fmt.Sprintf("cx%d", i)
	args := []string{"-device",
		fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,hotplug=off,power_controller_present=off,pref64-reserve=64M", port,
			i+1)}
	if n.Adapter == "" {
		return args
	}
	// Only JSON can say a socket's address here.
	device, err := json.Marshal(map[string]any{"driver": "vfio-user-pci", "id": fmt.Sprintf("nic%d", i), "bus": port,
		"socket": map[string]string{"type": "unix", "path": n.Adapter}})
	if err != nil { // strings
		panic(err)
	}
	return append(args, "-device", string(device))
}

// sharedMemory returns memory of a guest that another process can map: with the contents of a template's memory file,
// or empty. Only what holds data is copied.
func sharedMemory(template string, size int64) (_ *os.File, err error) {
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

// copyData copies what is not a hole.
func copyData(to, from *os.File, size int64) error {
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // a hole up to the end
			return nil
		}
		if err != nil {
			return fmt.Errorf("memory of the template: %w", err)
		}
		end, err := unix.Seek(int(from.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("memory of the template: %w", err)
		}
		if _, err := to.Seek(data, io.SeekStart); err != nil {
			return err
		}
		for at = data; at < end; {
			n, err := unix.Sendfile(int(to.Fd()), int(from.Fd()), &at, int(min(end-at, 1<<30)))
			if err != nil || n == 0 {
				return fmt.Errorf("copy the memory of the template: %d bytes, %w", n, err)
			}
		}
	}
	return nil
}
