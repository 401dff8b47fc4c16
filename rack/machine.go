package rack

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rackless/rackless/lab"
)

// NodeOverhead is the host memory that a QEMU takes besides the guest's own: measured 24 to 40 MiB
// a clone under TCG, translated code included.
const NodeOverhead = 40 * lab.MiB

// Room is what this machine has for nodes.
type Room struct {
	Available lab.Bytes // memory that can be used without swapping, by the kernel's estimate
	PerNode   lab.Bytes // what a node with the default memory is counted as
}

// Nodes is how many nodes with the default memory Up would start without Overcommit.
func (r Room) Nodes() int { return int(r.Available / r.PerNode) }

// ReadRoom reads the machine's memory.
func ReadRoom() (Room, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Room{}, fmt.Errorf("memory available: %w", err)
	}
	available, err := memAvailable(b)
	return Room{Available: available, PerNode: lab.DefaultMemory + NodeOverhead}, err
}

// memAvailable reads MemAvailable of /proc/meminfo: what can be used without swapping, by the kernel's own estimate.
func memAvailable(meminfo []byte) (lab.Bytes, error) {
	sc := bufio.NewScanner(bytes.NewReader(meminfo))
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/meminfo: %q: %w", sc.Text(), err)
			}
			return lab.Bytes(kib) * lab.KiB, nil
		}
	}
	return 0, fmt.Errorf("/proc/meminfo: no MemAvailable")
}

// Accelerator decides what executes the guests' instructions by what was asked for: "kvm", "tcg", or
// "auto" or "" for KVM where it works. reason says why it is not KVM. probe tells whether KVM works,
// and why not.
func Accelerator(want string, probe func() (usable bool, reason string, err error)) (accel, reason string, err error) {
	switch want {
	case "tcg":
		return "tcg", "asked for", nil
	case "kvm", "auto", "":
	default:
		return "", "", fmt.Errorf("accelerator %q: want auto, kvm or tcg", want)
	}
	usable, reason, err := probe()
	switch {
	case err != nil:
		return "", "", err
	case usable:
		return "kvm", "", nil
	case want == "kvm":
		return "", "", fmt.Errorf("KVM was asked for but cannot be used: %s", reason)
	}
	return "tcg", reason, nil
}
