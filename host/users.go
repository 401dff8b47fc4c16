package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
)

// Users returns the processes that have an IOMMU group open through VFIO, each with its groups:
// "qemu-system-x86 (1234): /dev/vfio/17". A function whose group is open cannot be taken from
// vfio-pci: the kernel waits until it is closed, and whoever asked for it waits with it. Processes
// of others are seen by root only.
func Users(s *change.System) []string {
	dirs, err := filepath.Glob(s.Path("/proc/[0-9]*"))
	if err != nil { // a pattern that is wrong
		panic(err)
	}
	var all []string
	for _, dir := range dirs {
		files, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // gone, or somebody else's
		}
		var groups []string
		for _, f := range files {
			to, err := os.Readlink(filepath.Join(dir, "fd", f.Name()))
			// /dev/vfio/vfio alone is the container, which holds no device.
			if err == nil && strings.HasPrefix(to, "/dev/vfio/") && to != "/dev/vfio/vfio" && !slices.Contains(groups,
				to) {
				groups = append(groups, to)
			}
		}
		if len(groups) == 0 {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(dir, "comm")) // empty where the process has ended meanwhile
		all = append(all, fmt.Sprintf("%s (%s): %s", strings.TrimSpace(string(name)), filepath.Base(dir),
			strings.Join(groups, " ")))
	}
	return all
}
