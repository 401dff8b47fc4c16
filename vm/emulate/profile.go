package emulate

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

// A Profile is a machine as its file describes it. ParseProfile makes it, and checks that QEMU can make such a machine.
type Profile struct {
	Name        string `yaml:"name" json:"name"`
	Description string `yaml:"description" json:"description,omitempty"`

	// Packages are what sits in sockets. NUMA nodes belong to them in order: of 4 nodes and 2
	// packages, nodes 0 and 1 are of package 0.
	Packages int `yaml:"packages" json:"packages"`
	// ThreadsPerCore is 1 or 2. QEMU numbers the threads of a core next to each other.
	ThreadsPerCore int        `yaml:"threads_per_core" json:"threads_per_core"`
	NUMANodes      []NUMANode `yaml:"numa_nodes" json:"numa_nodes"`
	// Distances is the SLIT: a row for each node, 10 for itself. It may be left out where there is one node.
	Distances [][]int `yaml:"distances" json:"distances,omitempty"`

	// Screen is the VGA of a BMC, as servers have: firmware and kernel show their console there, and on no GPU.
	Screen bool `yaml:"screen" json:"screen,omitempty"`

	// Disk is the size of the root disk in bytes.
	Disk lab.Bytes `yaml:"disk" json:"disk_bytes"`

	GPUs     []GPU    `yaml:"gpus" json:"gpus,omitempty"`
	NICs     []NIC    `yaml:"nics" json:"nics,omitempty"`
	Switches []Switch `yaml:"switches" json:"switches,omitempty"`
	Bridges  []Bridge `yaml:"bridges" json:"bridges,omitempty"`
}

// A NUMANode is a memory node with its cores. QEMU makes all of a machine's nodes with the same number of cores.
type NUMANode struct {
	Cores  int       `yaml:"cores" json:"cores"`
	Memory lab.Bytes `yaml:"memory" json:"memory_bytes"`
}

// Every device has the address that the machine's kernel shows: a device of its own root complex is
// device 0 on its bus, below a root port on the bus before. A device behind a switch or a bridge
// names that by its address.

// A GPU is a display controller that stands in for a GPU.
type GPU struct {
	Address  topology.PCIAddr  `yaml:"address" json:"address"`
	NUMANode int               `yaml:"numa_node" json:"numa_node"` // as its switch or bridge, where it is behind one
	Behind   *topology.PCIAddr `yaml:"behind" json:"behind,omitempty"`
	Audio    bool              `yaml:"audio" json:"audio,omitempty"` // has an audio controller as its function 1
}

// A NIC is a network card: a ConnectX where Model says so, else an Intel 82576 where it has virtual functions, and a
// card without where it has none.
type NIC struct {
	Address  topology.PCIAddr  `yaml:"address" json:"address"`
	NUMANode int               `yaml:"numa_node" json:"numa_node"` // as its switch or bridge, where it is behind one
	Behind   *topology.PCIAddr `yaml:"behind" json:"behind,omitempty"`
	// Model is that of a ConnectX, of which connectx.Rate knows the rate, or "".
	Model string `yaml:"model" json:"model,omitempty"`
	Ports int    `yaml:"ports" json:"ports"` // 1 or 2: functions 0 and 1; 0 in the file means 1
	// VFs is how many virtual functions each port has: 0, or all that Intel's card has, MaxVFs. Those of a ConnectX are
	// further functions of its device from the start, as long as the settings of its firmware allow them.
	VFs int `yaml:"vfs" json:"vfs"`
	// Wires name the cable in each port, in order. Two ports with the same name are joined back to
	// back, more by a switch; a port without one has no link.
	Wires []string `yaml:"wires" json:"wires,omitempty"`
}

// A Switch is a PCI Express switch, by the address of its upstream port. Devices behind it come on
// the buses after that of its downstream ports.
type Switch struct {
	Address  topology.PCIAddr `yaml:"address" json:"address"`
	NUMANode int              `yaml:"numa_node" json:"numa_node"`
}

// A Bridge leads to a conventional PCI bus. The IOMMU cannot tell the devices on it apart: they are one group.
type Bridge struct {
	Address  topology.PCIAddr `yaml:"address" json:"address"`
	NUMANode int              `yaml:"numa_node" json:"numa_node"`
}

// MaxVFs is the number of virtual functions of an emulated SR-IOV port: the driver igb keeps one of
// the eight that the 82576 has for the port itself (drivers/net/ethernet/intel/igb/igb_main.c,
// igb_probe).
const MaxVFs = 7

// Cores is the number of cores of the machine.
func (p *Profile) Cores() int {
	return lists.Sum(p.NUMANodes, func(node NUMANode) int { return node.Cores })
}

// CPUs is the number of CPUs that the machine's kernel sees.
func (p *Profile) CPUs() int { return p.Cores() * p.ThreadsPerCore }

// Memory is the memory of all nodes.
func (p *Profile) Memory() lab.Bytes {
	return lists.Sum(p.NUMANodes, func(n NUMANode) lab.Bytes { return n.Memory })
}

// Scale returns the same machine with fewer cores: one for every n, but at least one in each NUMA
// node. Memory and devices stay. n is at least 1.
func (p *Profile) Scale(n int) *Profile {
	q := *p
	q.NUMANodes = slices.Clone(p.NUMANodes)
	for i := range q.NUMANodes {
		q.NUMANodes[i].Cores = max(1, q.NUMANodes[i].Cores/n)
	}
	return &q
}

// WithMemory returns the same machine with about this much memory in all, spread over its nodes as
// in p, each in whole multiples of memoryStep. Too little for the machine to boot is an error.
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

// A device is what its file lists as a switch, bridge, GPU or NIC: one of the four is set.
type device struct {
	path    string // where the file has it: "gpus[1]"
	address topology.PCIAddr
	node    *int              // the NUMA node, which follows from what the device is behind
	up      *topology.PCIAddr // of the switch or bridge; nil below a root port of its own
	sw      *Switch
	bridge  *Bridge
	gpu     *GPU
	nic     *NIC
}

// devices returns all devices, in the order switches, bridges, GPUs, NICs.
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

// A root is a device below a root port of its own, with what is behind it if it is a switch or bridge.
type root struct {
	device
	last   int      // highest bus number below it
	behind []device // by address
}

// roots returns what stands below root ports, by bus.
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
		case d.sw != nil: // the bus of its downstream ports, and one for each of them
			r.last += 1 + len(r.behind)
		case d.bridge != nil:
			r.last++
		}
		all = append(all, r)
	}
	return all
}
