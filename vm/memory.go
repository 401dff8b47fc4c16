package vm

import (
	"fmt"

	"github.com/prometheus/procfs"

	"github.com/rackless/rackless/lab"
)

// MemoryAvailable is the kernel's estimate of memory without swapping.
func MemoryAvailable() (lab.Bytes, error) { return memoryAvailable(procfs.DefaultMountPoint) }

func memoryAvailable(proc string) (lab.Bytes, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return 0, fmt.Errorf("memory available: %w", err)
	}
	m, err := fs.Meminfo()
	switch {
	case err != nil:
		return 0, fmt.Errorf("memory available: %w", err)
	case m.MemAvailableBytes == nil:
		return 0, fmt.Errorf("memory available: %s/meminfo has no MemAvailable", proc)
	}
	return lab.Bytes(*m.MemAvailableBytes), nil
}
