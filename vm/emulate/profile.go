package emulate

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

// A Profile is a machine described by a file. ParseProfile reads it, and checks that QEMU can emulate the machine.
type Profile struct {
	Name        string `yaml:"name" json:"name"`
	Description string `yaml:"description" json:"description,omitempty"`

	// Packages is the number of processor packages (sockets). NUMA nodes are assigned in order: with 4 nodes and 2
	// packages, nodes 0 and 1 are in package 0.
	Packages int `yaml:"packages" json:"packages"`
	// ThreadsPerCore is 1 or 2. QEMU numbers the threads of a core consecutively.
	ThreadsPerCore int        `yaml:"threads_per_core" json:"threads_per_core"`
	NUMANodes      []NUMANode `yaml:"numa_nodes" json:"numa_nodes"`
	// Distances is the SLIT: one row per node, 10 for the node itself. It may be omitted if there is one node.
	Distances [][]int `yaml:"distances" json:"distances,omitempty"`

	// Screen adds the VGA device of a BMC, as in servers. Firmware and kernel show their console there, and on no
	// GPU.
	Screen bool `yaml:"screen" json:"screen,omitempty"`

	// Disk is the size of the root disk in bytes.
	Disk lab.Bytes `yaml:"disk" json:"disk_bytes"`

	GPUs     []GPU    `yaml:"gpus" json:"gpus,omitempty"`
	NICs     []NIC    `yaml:"nics" json:"nics,omitempty"`
	Switches []Switch `yaml:"switches" json:"switches,omitempty"`
	Bridges  []Bridge `yaml:"bridges" json:"bridges,omitempty"`
}

// A NUMANode is a memory node with its cores. QEMU requires the same number of cores in all nodes.
type NUMANode struct {
	Cores  int       `yaml:"cores" json:"cores"`
	Memory lab.Bytes `yaml:"memory" json:"memory_bytes"`
}

// A device's address is the one shown by the machine's kernel. A device with its own root complex is device 0 on its
// bus, below a root port on the previous bus. A device behind a switch or bridge names that by its address.

// A GPU is a display controller that stands in for a GPU.
type GPU struct {
	Address  topology.PCIAddr  `yaml:"address" json:"address"`
	NUMANode int               `yaml:"numa_node" json:"numa_node"` // the switch's or bridge's node, if it is behind one
	Behind   *topology.PCIAddr `yaml:"behind" json:"behind,omitempty"`
	Audio    bool              `yaml:"audio" json:"audio,omitempty"` // adds an audio controller as function 1
}

// A NIC is a network card: a ConnectX if Model is set, else an Intel card, which is an 82576 if it has virtual
// functions.
type NIC struct {
	Address  topology.PCIAddr  `yaml:"address" json:"address"`
	NUMANode int               `yaml:"numa_node" json:"numa_node"` // the switch's or bridge's node, if it is behind one
	Behind   *topology.PCIAddr `yaml:"behind" json:"behind,omitempty"`
	// Model is a ConnectX model known to connectx.Rate, or "".
	Model string `yaml:"model" json:"model,omitempty"`
	Ports int    `yaml:"ports" json:"ports"` // 1 or 2: functions 0 and 1; 0 in the file means 1
	// VFs is the number of virtual functions per port: 0, or MaxVFs for Intel's card. A ConnectX has them as further
	// functions of its device from the start, as far as its firmware settings allow.
	VFs int `yaml:"vfs" json:"vfs"`
	// Wires names the cable of each port, in order. Two ports with the same name are connected back to back, more by
	// a switch; a port without a name has no link.
	Wires []string `yaml:"wires" json:"wires,omitempty"`
}

// A Switch is a PCI Express switch, named by the address of its upstream port. The buses of devices behind it come
// after the bus of its downstream ports.
type Switch struct {
	Address  topology.PCIAddr `yaml:"address" json:"address"`
	NUMANode int              `yaml:"numa_node" json:"numa_node"`
}

// A Bridge leads to a conventional PCI bus. Its devices form one IOMMU group, because the IOMMU cannot distinguish
// them.
type Bridge struct {
	Address  topology.PCIAddr `yaml:"address" json:"address"`
	NUMANode int              `yaml:"numa_node" json:"numa_node"`
}

// MaxVFs is the number of virtual functions of an emulated SR-IOV port. Of the 82576's eight, the driver igb keeps
// one for the port itself (drivers/net/ethernet/intel/igb/igb_main.c, igb_probe).
const MaxVFs = 7

// Cores returns the machine's number of cores.
func (p *Profile) Cores() int {
	return lists.Sum(p.NUMANodes, func(node NUMANode) int { return node.Cores })
}

// CPUs returns the number of CPUs that the machine's kernel sees.
func (p *Profile) CPUs() int { return p.Cores() * p.ThreadsPerCore }

// Memory returns the memory of all nodes.
func (p *Profile) Memory() lab.Bytes {
	return lists.Sum(p.NUMANodes, func(n NUMANode) lab.Bytes { return n.Memory })
}

// Scale returns the same machine with one core for every n, but at least one per NUMA node. Memory and devices stay;
// n is at least 1.
func (p *Profile) Scale(n int) *Profile {
	q := *p
	q.NUMANodes = slices.Clone(p.NUMANodes)
	for i := range q.NUMANodes {
		q.NUMANodes[i].Cores = max(1, q.NUMANodes[i].Cores/n)
	}
	return &q
}

// WithMemory returns the same machine with about this much memory, spread over its nodes as in p in multiples of
// memoryStep. It returns an error if the machine could not boot with so little.
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

// A device is a switch, bridge, GPU or NIC of a profile. Exactly one of the four is set.
type device struct {
	path    string // its path in the file: "gpus[1]"
	address topology.PCIAddr
	node    *int              // the NUMA node, set from the switch or bridge above it
	up      *topology.PCIAddr // address of the switch or bridge; nil below its own root port
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

// A root is a device below its own root port, with the devices behind it if it is a switch or bridge.
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
