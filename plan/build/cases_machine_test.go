package build_test

import (
	"fmt"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/synthetic"
	"github.com/rackless/rackless/machine/topology"
)

// A machine is described to synthetic.Host, and then has properties that such a description lacks.
type machine struct {
	desc      string
	gib       []int   // memory of each NUMA node
	distances [][]int // nil means 10 and 20
	kinds     map[int]string
	devices   []device
	change    func(*topology.Host)
}

// A disk is one that the host needs; a NIC has 100 Gb/s.
type device struct {
	kind  string // "gpu", "nic" or "disk"
	node  int
	group int // 0 gives the device its own
	vfs   int
}

// Device k is behind its own root port on bus 0x10 + k.
func (m machine) host(t tester) *topology.Host {
	t.Helper()
	h, err := synthetic.Host(m.desc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range h.NUMANodes {
		n := &h.NUMANodes[i]
		if i < len(m.gib) {
			n.MemoryBytes = new(uint64(m.gib[i]) << 30)
		}
		if m.distances != nil {
			n.Distances = m.distances[i]
		}
		n.Kind = m.kinds[i]
	}
	for k, d := range m.devices {
		m.add(h, k, d)
	}
	h.Complete()
	if m.change != nil {
		m.change(h)
	}
	return h
}

func (m machine) add(h *topology.Host, k int, d device) {
	at := topology.PCIAddr{Bus: uint8(0x10 + k)}
	port := topology.PCIAddr{Device: uint8(1 + k%31), Function: uint8(k / 31)}
	root := fmt.Sprintf("pci0000:%02x", d.node)
	bridge, group := topology.ID24(0x060400), d.group
	if group == 0 {
		group = 100 + k
	}
	h.PCI = append(h.PCI, topology.PCIDevice{Address: port, Root: root, Class: &bridge, NUMANode: new(d.node),
		IOMMUGroup: new(group),
		Bridge:     &topology.Bridge{Secondary: at.Bus, Subordinate: at.Bus, Port: "root port"}})
	function := func(a topology.PCIAddr, class topology.ID24, vendor topology.ID16) *topology.PCIDevice {
		h.PCI = append(h.PCI, topology.PCIDevice{Address: a, Parent: &port, Root: root, Class: &class, Vendor: &vendor,
			NUMANode: new(d.node), IOMMUGroup: new(group)})
		return &h.PCI[len(h.PCI)-1]
	}
	switch d.kind {
	case "gpu":
		function(at, class3D, topology.VendorNVIDIA)
		audio := at
		audio.Function = 1
		function(audio, classAudio, topology.VendorNVIDIA)
	case "nic":
		f := function(at, classEthernet, topology.VendorMellanox)
		if d.vfs > 0 {
			f.SRIOV = &topology.SRIOV{Total: new(d.vfs), Enabled: new(0), Offset: new(2), Stride: new(1),
				VFs: []topology.VF{}}
		}
		h.NICs = append(h.NICs, topology.NIC{Address: &at, Netdevs: []string{fmt.Sprintf("p%d", k)},
			RDMA:     []string{fmt.Sprintf("mlx5_%d", k)},
			NUMANode: new(d.node), SpeedMbps: new(int64(100_000)), SRIOV: f.SRIOV})
	case "disk":
		function(at, classNVMe, 0x144d)
		h.Storage = append(h.Storage, topology.Disk{Name: fmt.Sprintf("nvme%dn1", k), PCI: &at, NUMANode: new(d.node),
			Mounts: []string{"/"}})
	}
}

func socketDistances(sockets, nodes, near, far int) [][]int {
	var all [][]int
	for i := range sockets * nodes {
		var row []int
		for j := range sockets * nodes {
			switch {
			case i == j:
				row = append(row, 10)
			case i/nodes == j/nodes:
				row = append(row, near)
			default:
				row = append(row, far)
			}
		}
		all = append(all, row)
	}
	return all
}

func workload(w lab.Workload) func(*lab.Lab) { return func(l *lab.Lab) { l.Workload = w } }

// reserve leaves no memory to the host, so that tests have exact amounts.
func reserve(cores int) func(*lab.Lab) {
	return func(l *lab.Lab) { l.Reserve.Cores, l.Reserve.Memory = &cores, new(lab.Bytes(0)) }
}
