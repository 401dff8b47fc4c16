package render

import (
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// The guest's PCI tree. Bus 0 is the machine's own, with root ports for emulated devices and for devices of unknown
// location. If the guest sees NUMA nodes, each node with devices gets an expander bus: a separate root bus that the
// firmware's tables (_PXM) place on that node. Without it the guest reads numa_node = -1 for every device, and NCCL and
// MPI guess. Each device there has its own root port, because drivers are not tested with devices passed through below
// an emulated switch, or with two below one port.
//
//	slot of bus 0   content
//	0x00            the host bridge
//	0x01            root ports of the emulated devices, one a function
//	0x02 to 0x09    root ports of devices of no known place, eight a slot
//	0x0a to 0x1a    expander buses
//	0x1b to 0x1f    left to the machine: Q35 has its own devices at 0x1f, and customary places above 0x1a
const (
	emulatedSlot  = 0x01
	plainSlot     = 0x02
	plainSlots    = 8
	expanderSlot  = 0x0a
	maxExpanders  = 17
	portsPerSlot  = 8
	slotsPerBus   = 32 // of an expander bus or within a switch
	emulatedPorts = 4  // disk, network, serial, random numbers

	// The guest's firmware numbers buses depth first, starting at the number of their root bus. So the buses behind bus
	// 0 must end below the first expander bus, and the buses of an expander below the next: 32 for bus 0, and equal
	// shares of the rest for the expanders. The shares depend only on the number of expanders, so a change of devices
	// on one node does not renumber the others.
	allBuses   = 256
	plainBuses = 32
)

type tree struct {
	controllers []libvirtxml.DomainController
	devices     []placed // in the order of slots
	why         map[int]string
}

const (
	pcieRoot        = "pcie-root"
	pcieRootPort    = "pcie-root-port"    // a slot for one device
	pcieExpanderBus = "pcie-expander-bus" // another root bus, with a NUMA node
	pcieUpstream    = "pcie-switch-upstream-port"
	pcieDownstream  = "pcie-switch-downstream-port"
)

type placed struct {
	slot
	bus int
}

// A group holds one slot behind a root port, or several behind the switch below it.
type group []slot

func buses(groups []group) (n int) {
	for _, g := range groups {
		n += len(g)
		if len(g) > 1 {
			n += 2
		}
	}
	return n
}

// layOut numbers controllers from 0, each after the one above it, as libvirt requires. emulated is the number of ports
// for emulated devices.
func layOut(n *plan.Node, groups []group, emulated int) (*tree, error) {
	t := &tree{why: map[int]string{}}
	t.add(pcieRoot, nil, nil)
	for i := range emulated {
		t.add(pcieRootPort, nil, portAddress(0, emulatedSlot, i, emulated))
	}
	var plain []group
	byCell := make([][]group, len(n.Cells))
	for _, g := range groups {
		if cell := g[0].cell; cell == nil || len(n.Cells) < 2 {
			plain = append(plain, g)
		} else {
			byCell[*cell] = append(byCell[*cell], g)
		}
	}
	if most := plainSlots * portsPerSlot; len(plain) > most {
		return nil, fmt.Errorf("%d devices on bus 0 of the guest; at most %d fit", len(plain), most)
	}
	for i, g := range plain {
		t.port(g, 0, plainSlot, i, len(plain))
	}
	return t, t.expanders(byCell, 1+emulated+buses(plain))
}

func (t *tree) expanders(byCell [][]group, used int) error {
	count := lists.Count(byCell, func(groups []group) bool { return len(groups) > 0 })
	if count == 0 {
		return nil
	}
	if count > maxExpanders {
		return fmt.Errorf("devices on %d NUMA nodes of the guest; at most %d can have a bus of their own: give the "+
			"lab node fewer devices, or set guest_numa: off", count, maxExpanders)
	}
	first := (used + plainBuses - 1) / plainBuses * plainBuses
	share := (allBuses - first) / count
	var at []int // indexes of controllers
	for cell, groups := range byCell {
		if len(groups) == 0 {
			continue
		}
		if most := min(share-1, slotsPerBus*portsPerSlot); buses(groups) > most {
			return fmt.Errorf("%d devices on NUMA node %d of the guest; at most %d fit: give the lab node fewer "+
				"devices, or set guest_numa: off", buses(groups), cell, most)
		}
		k := len(at)
		at = append(at, t.add(pcieExpanderBus,
			&libvirtxml.DomainControllerPCITarget{BusNr: new(uint(first + k*share)), NUMANode: new(uint(cell))},
			pciAddress(0, 0, expanderSlot+k, 0)))
		t.why[at[k]] = fmt.Sprintf("a root bus on the guest's NUMA node %d, so that the guest sees where "+
			"its devices are", cell)
	}
	k := 0
	for _, groups := range byCell {
		for i, g := range groups {
			t.port(g, at[k], 0, i, len(groups))
		}
		if len(groups) > 0 {
			k++
		}
	}
	return nil
}

func (t *tree) add(model string, target *libvirtxml.DomainControllerPCITarget,
	address *libvirtxml.DomainAddressPCI) int {
	index := len(t.controllers)
	c := libvirtxml.DomainController{Type: "pci", Index: new(uint(index)), Model: model,
		PCI: &libvirtxml.DomainControllerPCI{Target: target}}
	if address != nil {
		c.Address = &libvirtxml.DomainAddress{PCI: address}
	}
	t.controllers = append(t.controllers, c)
	return index
}

// port adds a root port for g, number i of count on the bus, in slots from from on.
func (t *tree) port(g group, bus, from, i, count int) {
	root := t.add(pcieRootPort, nil, portAddress(bus, from, i, count))
	if len(g) == 1 {
		t.devices = append(t.devices, placed{g[0], root})
		return
	}
	within := t.add(pcieUpstream, nil, pciAddress(0, root, 0, 0))
	t.why[within] = "GPUs and NICs that are below one switch of the host: the guest sees that, and NCCL uses " +
		"GPUDirect RDMA between them. The speed of an emulated switch is made up: the node's nccl-topology.xml has " +
		"that of the host"
	for k, s := range g {
		t.devices = append(t.devices, placed{s, t.add(pcieDownstream, nil, pciAddress(0, within, k, 0))})
	}
}

func alone(slots []slot) []group {
	groups := make([]group, len(slots))
	for i, s := range slots {
		groups[i] = group{s}
	}
	return groups
}

// groups groups GPUs and NICs of one guest NUMA node below one switch of the host. Each other slot is alone.
func (m *machine) groups(slots []slot) []group {
	at := make([]int, len(slots)) // first slot of its group
	size := make([]int, len(slots))
	pci := topology.NewTree(m.host)
	join := func(i, j int) bool {
		a, b := slots[i], slots[j]
		if (a.kind == plan.KindGPU) == (b.kind == plan.KindGPU) || a.kind == "" || b.kind == "" ||
			a.cell != b.cell && (a.cell == nil || b.cell == nil || *a.cell != *b.cell) {
			return false
		}
		class := pci.Between(a.card, b.card)
		return class == topology.PathPIX || class == topology.PathPXB
	}
	for i := range slots {
		at[i], size[i] = i, 1
		for j := range i {
			first, other := min(at[i], at[j]), max(at[i], at[j])
			if first == other || size[first]+size[other] > slotsPerBus || !join(i, j) {
				continue
			}
			size[first] += size[other]
			for k := range i + 1 {
				if at[k] == other {
					at[k] = first
				}
			}
		}
	}
	byFirst := make([]group, len(slots))
	for i, s := range slots {
		byFirst[at[i]] = append(byFirst[at[i]], s)
	}
	return slices.DeleteFunc(byFirst, func(g group) bool { return g == nil })
}

func portAddress(bus, from, i, count int) *libvirtxml.DomainAddressPCI {
	a := pciAddress(0, bus, from+i/portsPerSlot, i%portsPerSlot)
	if i%portsPerSlot == 0 && count-i > 1 {
		a.MultiFunction = "on"
	}
	return a
}

// pciAddress is of the host for a source, or otherwise of the guest, with a controller's index as bus.
func pciAddress(domain, bus, slot, function int) *libvirtxml.DomainAddressPCI {
	return &libvirtxml.DomainAddressPCI{Domain: new(uint(domain)), Bus: new(uint(bus)), Slot: new(uint(slot)),
		Function: new(uint(function))}
}
