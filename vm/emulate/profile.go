package emulate

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

// A Profile is a machine that QEMU can emulate.
type Profile struct {
	Name        string `yaml:"name" json:"name"`
	Description string `yaml:"description" json:"description,omitempty"`

	// Packages are the sockets. NUMA nodes are assigned in order: of 4 nodes in 2 packages, 0 and 1 are in package 0.
	Packages int `yaml:"packages" json:"packages"`
	// ThreadsPerCore is 1 or 2. QEMU numbers the threads of a core consecutively.
	ThreadsPerCore int        `yaml:"threads_per_core" json:"threads_per_core"`
	NUMANodes      []NUMANode `yaml:"numa_nodes" json:"numa_nodes"`
	// Distances is the SLIT: one row per node, 10 for the node itself. It may be omitted for one node.
	Distances [][]int `yaml:"distances" json:"distances,omitempty"`

	// Screen adds the VGA device of a BMC. Firmware and kernel show their console there, and on no GPU.
	Screen bool `yaml:"screen" json:"screen,omitempty"`

	// Disk is the size of the root disk in bytes.
	Disk lab.Bytes `yaml:"disk" json:"disk_bytes"`

	GPUs     []GPU    `yaml:"gpus" json:"gpus,omitempty"`
	NICs     []NIC    `yaml:"nics" json:"nics,omitempty"`
	Switches []Switch `yaml:"switches" json:"switches,omitempty"`
	Bridges  []Bridge `yaml:"bridges" json:"bridges,omitempty"`
}

// A NUMANode is a memory node. QEMU requires the same number of cores in all.
type NUMANode struct {
	Cores  int       `yaml:"cores" json:"cores"`
	Memory lab.Bytes `yaml:"memory" json:"memory_bytes"`
}

// A device's address is the one shown by the machine's kernel. A device with its own root complex is device 0 on its
// bus, below a root port on the previous bus. A device behind a switch or bridge names that by its address.

// A GPU computes nothing.
type GPU struct {
	Address  topology.PCIAddr  `yaml:"address" json:"address"`
	NUMANode int               `yaml:"numa_node" json:"numa_node"` // that of the switch or bridge above, if any
	Behind   *topology.PCIAddr `yaml:"behind" json:"behind,omitempty"`
	Audio    bool              `yaml:"audio" json:"audio,omitempty"` // controller as function 1
	// Model is one of gpu.Models. "display", or "" for short, is a display controller of QEMU's, without VRAM.
	Model string `yaml:"model" json:"model,omitempty"`
	// Memory is the size of the VRAM in bytes, 0 for a display.
	Memory lab.Bytes `yaml:"memory" json:"memory_bytes,omitempty"`
}

// A NIC is a ConnectX if Model is set, else an Intel card: an 82576 if it has virtual functions.
type NIC struct {
	Address  topology.PCIAddr  `yaml:"address" json:"address"`
	NUMANode int               `yaml:"numa_node" json:"numa_node"` // that of the switch or bridge above, if any
	Behind   *topology.PCIAddr `yaml:"behind" json:"behind,omitempty"`
	// Model is a ConnectX model known to connectx.Rate, or "".
	Model string `yaml:"model" json:"model,omitempty"`
	Ports int    `yaml:"ports" json:"ports"` // 1 or 2; 0 in the file means 1
	// VFs is the number of virtual functions per port: 0, or MaxVFs for Intel's card. A ConnectX has them from the
	// start, as far as its firmware settings allow.
	VFs int `yaml:"vfs" json:"vfs"`
	// Wires names the cable of each port. Two ports with the same name are back to back, more on a switch; a port
	// without a name has no link.
	Wires []string `yaml:"wires" json:"wires,omitempty"`
}

// A Switch is named by its upstream port. Buses behind it come after the bus of its downstream ports.
type Switch struct {
	Address  topology.PCIAddr `yaml:"address" json:"address"`
	NUMANode int              `yaml:"numa_node" json:"numa_node"`
}

// A Bridge leads to a conventional PCI bus, whose devices the IOMMU cannot distinguish: they form one group.
type Bridge struct {
	Address  topology.PCIAddr `yaml:"address" json:"address"`
	NUMANode int              `yaml:"numa_node" json:"numa_node"`
}

// MaxVFs is per port. Of the 82576's eight, the driver igb keeps one for the port itself
// (drivers/net/ethernet/intel/igb/igb_main.c, igb_probe).
const MaxVFs = 7

// Cores returns the sum of the nodes' cores.
func (p *Profile) Cores() int {
	return lists.Sum(p.NUMANodes, func(node NUMANode) int { return node.Cores })
}

// CPUs returns the number that the kernel sees.
func (p *Profile) CPUs() int { return p.Cores() * p.ThreadsPerCore }

// Memory returns the sum of all nodes.
func (p *Profile) Memory() lab.Bytes {
	return lists.Sum(p.NUMANodes, func(n NUMANode) lab.Bytes { return n.Memory })
}

// Scale keeps one core of n (at least 1), but one per NUMA node. Memory and devices stay.
func (p *Profile) Scale(n int) *Profile {
	q := *p
	q.NUMANodes = slices.Clone(p.NUMANodes)
	for i := range q.NUMANodes {
		q.NUMANodes[i].Cores = max(1, q.NUMANodes[i].Cores/n)
	}
	return &q
}

// WithMemory spreads about this much memory over the nodes as in p, in multiples of memoryStep. It returns an error if
// the machine could not boot with so little.
func (p *Profile) WithMemory(total lab.Bytes) (*Profile, error) {
	q := *p
	q.NUMANodes = slices.Clone(p.NUMANodes)
	all := p.Memory()
	for i := range q.NUMANodes {
		share := float64(p.NUMANodes[i].Memory) / float64(all)
		q.NUMANodes[i].Memory = lab.Bytes(float64(total)*share) / memoryStep * memoryStep
	}
	return &q, q.checkMemory(total)
}

// A device has exactly one of sw, bridge, gpu and nic set.
type device struct {
	path    string // "gpus[1]"
	address topology.PCIAddr
	node    *int              // set from the switch or bridge above
	up      *topology.PCIAddr // switch or bridge; nil below its own root port
	sw      *Switch
	bridge  *Bridge
	gpu     *GPU
	nic     *NIC
}

func (p *Profile) devices() []device {
	var all []device
	add := func(kind string, i int, d device) {
		d.path = fmt.Sprintf("%s[%d]", kind, i)
		all = append(all, d)
	}
	for i := range p.Switches {
		s := &p.Switches[i]
		add("switches", i, device{address: s.Address, node: &s.NUMANode, sw: s})
	}
	for i := range p.Bridges {
		b := &p.Bridges[i]
		add("bridges", i, device{address: b.Address, node: &b.NUMANode, bridge: b})
	}
	for i := range p.GPUs {
		g := &p.GPUs[i]
		add("gpus", i, device{address: g.Address, node: &g.NUMANode, up: g.Behind, gpu: g})
	}
	for i := range p.NICs {
		n := &p.NICs[i]
		add("nics", i, device{address: n.Address, node: &n.NUMANode, up: n.Behind, nic: n})
	}
	return all
}

// A root is a device below a root port, with the devices behind it.
type root struct {
	device
	last   int      // highest bus number below it
	behind []device // by address
}

func (p *Profile) roots() []root {
	devices := p.devices()
	slices.SortStableFunc(devices, func(x, y device) int { return x.address.Compare(y.address) })
	var all []root
	for _, d := range devices {
		if d.up != nil {
			continue
		}
		r := root{device: d, last: int(d.address.Bus)}
		r.behind = append(r.behind, lists.Filter(devices,
			func(b device) bool { return b.up != nil && *b.up == d.address && (d.sw != nil || d.bridge != nil) })...)
		switch {
		case d.sw != nil: // one bus for its downstream ports, and one below each of them
			r.last += 1 + len(r.behind)
		case d.bridge != nil:
			r.last++
		}
		all = append(all, r)
	}
	return all
}
