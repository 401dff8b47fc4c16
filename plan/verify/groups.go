package verify

import (
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/topology"
)

// groups checks against the host what cannot be taken apart or is somebody's: IOMMU groups,
// functions of a GPU, devices of tenants and of the host itself.
//
// The problem says the same by bundles and by devices that are not whole. It is not believed here:
// a mistake in how bundles are made would give away half a group, or the disk of the host.
func (c *checker) groups() {
	// The first lab node counts as the owner. That a function goes to two is told by exclusive.
	owner := map[string]int{}
	for i, n := range c.placed() {
		for _, fn := range n.Devices {
			if _, ok := owner[fn]; !ok {
				owner[fn] = i
			}
		}
	}
	of := func(fn string) int {
		if i, ok := owner[fn]; ok {
			return i
		}
		return -1
	}
	groups := c.iommuGroups()
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		first := groups[id][0]
		for _, fn := range groups[id][1:] {
			if a, b := of(first), of(fn); a != b {
				c.fault("devices: IOMMU group %d: %s goes to %s and %s to %s; a group is not taken apart", id, first,
					c.name(a), fn, c.name(b))
			}
		}
	}
	for _, g := range c.h.GPUs {
		for _, fn := range g.Functions {
			if a, b := of(g.ID()), of(fn.String()); a >= 0 && a != b {
				c.fault("devices: %s goes to %s and %s, a function of the same device, to %s", g.ID(), c.name(a), fn,
					c.name(b))
			}
		}
	}
	c.needed(of)
	if c.believesTenants() {
		c.tenantDevices(of)
	}
}

// iommuGroups returns the functions of each group without bridges, which stay with the host, and
// without virtual functions, which go with their NIC.
func (c *checker) iommuGroups() map[int][]string {
	groups := map[int][]string{}
	if on := c.h.IOMMU.Enabled; on != nil && !*on {
		return groups
	}
	skip, done := map[topology.PCIAddr]bool{}, map[topology.PCIAddr]bool{}
	add := func(id int, a topology.PCIAddr) {
		if !skip[a] && !done[a] {
			done[a] = true
			groups[id] = append(groups[id], a.String())
		}
	}
	for _, d := range c.h.PCI {
		skip[d.Address] = d.IsBridge() || d.Class != nil && d.Class.Base() == topology.ClassBridge || d.PF != nil
		if d.IOMMUGroup != nil {
			add(*d.IOMMUGroup, d.Address)
		}
	}
	for _, g := range c.h.IOMMU.Groups {
		for _, a := range g.Devices {
			add(g.ID, a)
		}
	}
	return groups
}

// needed checks that the host keeps what it lives on: the NIC of its default route, and its disks.
func (c *checker) needed(of func(string) int) {
	for _, r := range c.h.Routes {
		for _, fn := range r.PCI {
			if i := of(fn); i >= 0 {
				c.of(i, "devices: %s carries the default route of the host, through %s", fn, r.Netdev)
			}
		}
	}
	for _, disk := range c.h.Storage {
		if disk.PCI == nil || len(disk.Mounts) == 0 {
			continue
		}
		if i := of(disk.PCI.String()); i >= 0 {
			c.of(i, "devices: %s has disk %s of the host, mounted on %s", disk.PCI, disk.Name,
				strings.Join(disk.Mounts, " "))
		}
	}
}

// tenantDevices names the tenants that hold what a lab node is to get, or a virtual function of it.
func (c *checker) tenantDevices(of func(string) int) {
	pf := map[topology.PCIAddr]topology.PCIAddr{}
	for k := range c.h.PCI {
		if d := &c.h.PCI[k]; d.PF != nil {
			pf[d.Address] = *d.PF
		}
	}
	for _, t := range c.h.Tenants {
		for _, d := range t.Devices {
			if i := of(d.PCI.String()); i >= 0 {
				c.of(i, "devices: %s belongs to tenant %q", d.PCI, tenantName(&t))
			}
			if parent, ok := pf[d.PCI]; ok {
				if i := of(parent.String()); i >= 0 {
					c.of(i, "devices: %s has a virtual function, %s, that belongs to tenant %q", parent, d.PCI,
						tenantName(&t))
				}
			}
		}
	}
}
