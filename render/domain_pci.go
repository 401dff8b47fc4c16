package render

import (
	"fmt"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/render/libvirtxml"
)

// The guest's PCI tree. Bus 0 is the machine's own. Emulated devices and devices of no known place
// hang on root ports of it. Of a guest that sees NUMA nodes, each node that has devices gets an
// expander bus: a root bus of its own, which the firmware's tables (_PXM) place on that node.
// Without it the guest reads numa_node = -1 for every device, and NCCL and MPI guess. Behind it
// each device has a root port, because passing a device through below the port of an emulated
// switch, or two below one port, is not what drivers are tested with.
//
//	slot of bus 0   what is there
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
	portsPerSlot  = 8  // functions of a slot, a root port each
	slotsPerBus   = 32 // of an expander bus, whose slots are all free
	emulatedPorts = 4  // disk, network, serial, random numbers

	// Buses are numbered by the guest's firmware, depth first, from the number of their root bus
	// on. So the buses behind bus 0 have to end below the first expander bus, and those behind an
	// expander below the next: 32 for bus 0 and equal shares of the rest for the expanders. With
	// shares by the number of expanders alone, a device more or less on one node does not renumber
	// the others.
	allBuses   = 256
	plainBuses = 32
)

// A tree is the controllers of a guest and where its devices are.
type tree struct {
	controllers []libvirtxml.Controller
	devices     []placed // in the order of slots
}

// placed is a slot with the index of the controller that it is behind.
type placed struct {
	slot
	bus int
}

// layOut builds the tree. Controllers are numbered from 0 in an order in which each stands behind
// one before it, as libvirt demands.
func layOut(n *plan.Node, slots []slot) (*tree, error) {
	t := &tree{}
	t.add(libvirtxml.PCIeRoot, nil, nil)
	for i := range emulatedPorts {
		t.add(libvirtxml.PCIeRootPort, nil, portAddress(0, emulatedSlot, i, emulatedPorts))
	}
	var plain []slot
	byCell := make([][]slot, len(n.Cells))
	for _, s := range slots {
		if s.cell == nil || len(n.Cells) < 2 {
			plain = append(plain, s)
		} else {
			byCell[*s.cell] = append(byCell[*s.cell], s)
		}
	}
	if most := plainSlots * portsPerSlot; len(plain) > most {
		return nil, fmt.Errorf("%d devices on bus 0 of the guest; at most %d fit", len(plain), most)
	}
	for i, s := range plain {
		t.port(s, 0, plainSlot, i, len(plain))
	}
	return t, t.expanders(byCell, 1+emulatedPorts+len(plain))
}

// expanders adds the expander buses, each with its root ports. used is how many buses there are already.
func (t *tree) expanders(byCell [][]slot, used int) error {
	count := 0
	for _, slots := range byCell {
		if len(slots) > 0 {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	if count > maxExpanders {
		return fmt.Errorf("devices on %d NUMA nodes of the guest; at most %d can have a bus of their own: give the "+
			"lab node fewer devices, or set guest_numa: off",
			count, maxExpanders)
	}
	first := (used + plainBuses - 1) / plainBuses * plainBuses
	share := (allBuses - first) / count
	var at []int // indexes of controllers
	for cell, slots := range byCell {
		if len(slots) == 0 {
			continue
		}
		// One bus for the expander itself.
		if most := min(share-1, slotsPerBus*portsPerSlot); len(slots) > most {
			return fmt.Errorf("%d devices on NUMA node %d of the guest; at most %d fit: give the lab node fewer "+
				"devices, or set guest_numa: off", len(slots), cell, most)
		}
		k := len(at)
		at = append(at, t.add(libvirtxml.PCIeExpanderBus,
			&libvirtxml.ControllerTarget{BusNr: new(first + k*share), Node: new(cell)},
			&libvirtxml.PCIAddress{Type: "pci", Slot: libvirtxml.Hex(expanderSlot + k)}))
		t.controllers[at[k]].Why = fmt.Sprintf("a root bus on the guest's NUMA node %d, so that the guest sees where "+
			"its devices are", cell)
	}
	k := 0
	for _, slots := range byCell {
		for i, s := range slots {
			t.port(s, at[k], 0, i, len(slots))
		}
		if len(slots) > 0 {
			k++
		}
	}
	return nil
}

// add appends a controller and returns its index.
func (t *tree) add(model string, target *libvirtxml.ControllerTarget, address *libvirtxml.PCIAddress) int {
	index := len(t.controllers)
	t.controllers = append(t.controllers, libvirtxml.Controller{Type: "pci", Index: new(index), Model: model,
		Target: target, Address: address})
	return index
}

// port adds a root port for s: number i of count on the bus, from a slot on.
func (t *tree) port(s slot, bus, from, i, count int) {
	index := t.add(libvirtxml.PCIeRootPort, nil, portAddress(bus, from, i, count))
	t.devices = append(t.devices, placed{s, index})
}

// portAddress packs root ports eight to a slot.
func portAddress(bus, from, i, count int) *libvirtxml.PCIAddress {
	a := &libvirtxml.PCIAddress{
		Type: "pci", Bus: libvirtxml.Hex(bus), Slot: libvirtxml.Hex(from + i/portsPerSlot),
		Function: libvirtxml.Hex(i % portsPerSlot),
	}
	if i%portsPerSlot == 0 && count-i > 1 {
		a.Multifunction = "on"
	}
	return a
}
