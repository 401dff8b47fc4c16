package host

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/rackless/rackless/host/change"
)

// Users returns the processes that have an IOMMU group open through VFIO, each with its groups:
// "qemu-system-x86 (1234): /dev/vfio/17". A function whose group is open cannot be taken from
// vfio-pci: the kernel waits until it is closed, and whoever asked for it waits with it. Processes
// of others are seen by root only.
func Users(s *change.System) []string {
	proc, err := procfs.NewFS(s.Path("/proc"))
	if err != nil {
		return nil // a machine of a test
	}
	all, err := proc.AllProcs()
	if err != nil {
		return nil
	}
	sort.Sort(all)
	var users []string
	for _, p := range all {
		files, err := p.FileDescriptorTargets()
		if err != nil {
			continue // gone, or somebody else's
		}
		slices.Sort(files)
		groups := slices.DeleteFunc(slices.Compact(files), func(file string) bool {
			// /dev/vfio/vfio alone is the container, which holds no device.
			return !strings.HasPrefix(file, "/dev/vfio/") || file == "/dev/vfio/vfio"
		})
		if len(groups) > 0 {
			name, _ := p.Comm() // empty where the process has ended meanwhile
			users = append(users, fmt.Sprintf("%s (%d): %s", name, p.PID, strings.Join(groups, " ")))
		}
	}
	return users
}
