package rack

import (
	"fmt"

	"github.com/prometheus/procfs"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm"
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
func ReadRoom() (Room, error) { return readRoom(procfs.DefaultMountPoint) }

func readRoom(proc string) (Room, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return Room{}, fmt.Errorf("memory available: %w", err)
	}
	m, err := fs.Meminfo()
	switch {
	case err != nil:
		return Room{}, fmt.Errorf("memory available: %w", err)
	case m.MemAvailableBytes == nil:
		return Room{}, fmt.Errorf("memory available: %s/meminfo has no MemAvailable", proc)
	}
	return Room{Available: lab.Bytes(*m.MemAvailableBytes), PerNode: lab.DefaultMemory + NodeOverhead}, nil
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

// Memory returns the bytes that the nodes of the lab and its daemon take of this machine now; ok is false where that
// cannot be read.
func (r *Rack) Memory() (bytes int64, ok bool) {
	all := lists.Map(r.State.Nodes, func(n *Node) vm.Process { return n.Process })
	if r.State.Daemon != nil {
		all = append(all, *r.State.Daemon)
	}
	for _, p := range all {
		m, err := p.Memory()
		if err != nil {
			return 0, false
		}
		bytes += m
	}
	return bytes, true
}
