package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// groups does not trust the problem's bundles: a mistake would give away half a group, or the host's disk.
func (c *checker) groups() {
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

// iommuGroups leaves out bridges, which stay with the host, and virtual functions, which belong to their NIC.
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
				c.of(i, "devices: %s belongs to VM %q", d.PCI, tenantName(&t))
			}
			if parent, ok := pf[d.PCI]; ok {
				if i := of(parent.String()); i >= 0 {
					c.of(i, "devices: %s has a virtual function, %s, that belongs to VM %q", parent, d.PCI,
						tenantName(&t))
				}
			}
		}
	}
}

// cardName names a virtual function by its address if it exists, or else after its NIC.
func (c *checker) cardName(card *plan.NodeDevice) string {
	if card.Kind != plan.KindVF || card.VF == nil {
		return card.ID
	}
	if s := c.hostSRIOV(card.ID); s != nil {
		for _, v := range s.VFs {
			if v.Index == *card.VF && v.Address != nil {
				return v.Address.String()
			}
		}
	}
	return fmt.Sprintf("%s/vf%d", card.ID, *card.VF)
}

func (c *checker) hostSRIOV(pf string) *topology.SRIOV {
	return lists.Find(c.h.NICs, func(n topology.NIC) bool { return n.ID() == pf }).SRIOV
}

type vfUse struct{ count, last int }

func (c *checker) virtual() {
	// Giving away any device of a bundle unbinds the drivers of all its functions.
	whole := map[int]int{} // bundle to lab node
	for i := range c.found {
		for _, d := range slices.Concat(c.found[i].gpus, c.found[i].nics) {
			whole[c.p.Devices[d].Bundle] = i
		}
	}
	nics := map[string]*plan.Device{}
	for d := range c.p.Devices {
		if dev := &c.p.Devices[d]; dev.Kind == plan.KindNIC && nics[dev.ID] == nil {
			nics[dev.ID] = dev
		}
	}
	used := map[string]vfUse{}
	type function struct {
		pf    string
		index int
	}
	taken := map[function]int{}
	for i, n := range c.placed() {
		for _, card := range n.Cards {
			dev := nics[card.ID]
			if card.Kind != plan.KindVF || card.VF == nil || dev == nil {
				continue
			}
			u := used[dev.ID]
			used[dev.ID] = vfUse{u.count + 1, max(u.last, *card.VF)}
			if !slices.Contains(dev.FreeVFs, *card.VF) {
				c.of(i, "cards: virtual function %d of %s is not one that may be given", *card.VF, dev.ID)
			}
			key := function{dev.ID, *card.VF}
			if other, ok := taken[key]; ok {
				c.of(i, "cards: virtual function %d of %s goes to %s already", *card.VF, dev.ID, c.name(other))
			}
			taken[key] = i
			if owner, given := whole[dev.Bundle]; given {
				c.of(i, "cards: a virtual function of %s, which goes to %s whole", dev.ID, c.name(owner))
			}
		}
	}
	for _, dev := range c.p.Devices {
		if u := used[dev.ID]; dev.Kind == plan.KindNIC && u.count > dev.VFs {
			c.fault("devices: %d virtual functions of %s go to lab nodes, it can give %d", u.count, dev.ID, dev.VFs)
		}
	}
	c.pfCounts(used)
}

// pfCounts checks sriov_numvfs, a count and not a set, so function 5 needs at least 6. It can only be changed after all
// functions are removed, so it must not be lower than now.
func (c *checker) pfCounts(used map[string]vfUse) {
	listed := map[string]bool{}
	for _, pf := range c.pl.VFs {
		name := words.Plain(pf.PF)
		u, lab := used[pf.PF]
		if listed[pf.PF] {
			c.fault("vfs: %s is there twice", name)
		}
		listed[pf.PF] = true
		if pf.Lab != u.count {
			c.fault("vfs: %s: have %d for the lab, the lab nodes have %d", name, pf.Lab, u.count)
		}
		least := pf.Lab
		if lab {
			least = max(least, u.last+1) // numbered from 0 and created in this order
		}
		s := c.hostSRIOV(pf.PF)
		if s != nil && s.Enabled != nil {
			least = max(least, *s.Enabled)
		}
		if pf.Count < least {
			c.fault("vfs: %s: have %d in all, want %d at least", name, pf.Count, least)
		}
		if s != nil && s.Total != nil && pf.Count > *s.Total {
			c.fault("vfs: %s: have %d in all, its firmware offers %d", name, pf.Count, *s.Total)
		}
	}
	for _, pf := range slices.Sorted(maps.Keys(used)) {
		if !listed[pf] {
			c.fault("vfs: %s is missing, the lab nodes have %d of its virtual functions", words.Plain(pf),
				used[pf].count)
		}
	}
}
