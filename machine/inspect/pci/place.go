package pci

import (
	"cmp"

	"github.com/rackless/rackless/machine/pciids"
	"github.com/rackless/rackless/machine/topology"
)

// A domain has at most 256 buses.
const maxDepth = 256

// Place sets the parent of each function without root bus or parent, from the bus numbers of bridges, and the root bus
// of functions below a known one. If no bridge leads to a bus, onRoot tells whether it is a root bus; if not, the
// parent is unknown.
func Place(found []*topology.PCIDevice, onRoot func(d *topology.PCIDevice) bool) {
	leads := map[uint32]*[256]*topology.PCIDevice{} // by domain: the nearest bridge to each bus
	byAddr := map[topology.PCIAddr]*topology.PCIDevice{}
	for _, d := range found {
		byAddr[d.Address] = d
		if d.Bridge == nil {
			continue
		}
		buses := leads[d.Address.Domain]
		if buses == nil {
			buses = new([256]*topology.PCIDevice)
			leads[d.Address.Domain] = buses
		}
		// A bridge's claim to buses at or below its own number is ignored, so that a hostile dump cannot make a loop.
		// The nearest bridge has the highest first bus. Virtual functions may be on a bus that no bridge leads to
		// directly.
		first, last := int(d.Bridge.Secondary), int(d.Bridge.Subordinate)
		for bus := first; bus <= last && int(d.Address.Bus) < first; bus++ {
			if above := buses[bus]; above == nil || d.Bridge.Secondary > above.Bridge.Secondary {
				buses[bus] = d
			}
		}
	}
	for _, d := range found {
		if d.Root != "" || d.Parent != nil {
			continue
		}
		buses := leads[d.Address.Domain]
		switch {
		case buses != nil && buses[d.Address.Bus] != nil:
			d.Parent = new(buses[d.Address.Bus].Address)
		case onRoot(d):
			d.Root = RootName(d.Address)
		default:
			d.ParentUnknown = true
		}
	}
	for _, d := range found {
		top := d
		for n := 0; n < maxDepth && top.Root == "" && top.Parent != nil && byAddr[*top.Parent] != nil; n++ {
			top = byAddr[*top.Parent]
		}
		d.Root = cmp.Or(d.Root, top.Root)
	}
}

// RootName returns sysfs's name of a root bus: "pci0000:40".
func RootName(a topology.PCIAddr) string {
	s := a.String()
	return "pci" + s[:len(s)-len(":00.0")]
}

// AddressOf takes a routing identifier: bus, device and function in 16 bits.
func AddressOf(domain uint32, rid uint16) topology.PCIAddr {
	return topology.PCIAddr{
		Domain: domain, Bus: uint8(rid >> 8), Device: uint8(rid >> 3 & 31), Function: uint8(rid & 7),
	}
}

// VirtualFunctions returns the enabled virtual functions of the physical one at a, if s has offset and stride:
// identifier n is the physical function's plus offset plus n times stride.
//
// Source: Single Root I/O Virtualization and Sharing Specification 1.1, 2.1.2.
func VirtualFunctions(a topology.PCIAddr, s *topology.SRIOV) []topology.VF {
	if s.Enabled == nil || s.Offset == nil || s.Stride == nil {
		return nil
	}
	var out []topology.VF
	rid := int(a.Bus)<<8 | int(a.Device)<<3 | int(a.Function)
	for n := range *s.Enabled {
		vf := rid + *s.Offset + n**s.Stride
		if vf >= 1<<16 || *s.Stride == 0 && n > 0 {
			break
		}
		out = append(out, topology.VF{Index: n, Address: new(AddressOf(a.Domain, uint16(vf)))})
	}
	return out
}

// Name sets the names that pci.ids has.
func Name(d *topology.PCIDevice) {
	if d.Class != nil {
		d.ClassName = cmp.Or(pciids.Class(uint32(*d.Class)), d.ClassName)
	}
	if d.Vendor == nil {
		return
	}
	d.VendorName = cmp.Or(pciids.Vendor(uint16(*d.Vendor)), d.VendorName)
	if d.Device != nil {
		d.DeviceName = cmp.Or(pciids.Device(uint16(*d.Vendor), uint16(*d.Device)), d.DeviceName)
	}
}
