package verify

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// vfName names a virtual function: by its address where it exists.
func (c *checker) vfName(pf string, index int) string {
	for _, v := range c.hostVFs(pf) {
		if v.Index == index && v.Address != nil {
			return v.Address.String()
		}
	}
	return fmt.Sprintf("%s/vf%d", pf, index)
}

func (c *checker) hostVFs(pf string) []topology.VF {
	if s := c.hostSRIOV(pf); s != nil {
		return s.VFs
	}
	return nil
}

func (c *checker) hostSRIOV(pf string) *topology.SRIOV {
	for i := range c.h.NICs {
		if c.h.NICs[i].ID() == pf {
			return c.h.NICs[i].SRIOV
		}
	}
	return nil
}

// virtual checks the virtual functions: no more than may be given, no index twice, none of a NIC
// that is given whole, and PFs that have to have enough of them.
func (c *checker) virtual() {
	whole := map[int]int{} // bundle to lab node
	for i := range c.found {
		for _, d := range slices.Concat(c.found[i].gpus, c.found[i].nics) {
			whole[c.p.Devices[d].Bundle] = i
		}
	}
	type use struct{ count, last int }
	byPF := map[string]use{}
	taken := map[string]int{}
	for i, n := range c.nodes {
		if n == nil {
			continue
		}
		for _, card := range n.Cards {
			d := slices.IndexFunc(c.p.Devices, func(d plan.Device) bool {
				return d.Kind == plan.KindNIC && d.ID == card.ID
			})
			if card.Kind != plan.KindVF || card.VF == nil || d < 0 {
				continue
			}
			dev := &c.p.Devices[d]
			u := byPF[dev.ID]
			byPF[dev.ID] = use{u.count + 1, max(u.last, *card.VF)}
			if !slices.Contains(dev.FreeVFs, *card.VF) {
				c.of(i, "cards: virtual function %d of %s is not one that may be given", *card.VF, dev.ID)
			}
			key := fmt.Sprintf("%s/vf%d", dev.ID, *card.VF)
			if other, ok := taken[key]; ok {
				c.of(i, "cards: virtual function %d of %s goes to %s already", *card.VF, dev.ID, c.name(other))
			}
			taken[key] = i
			if owner, given := whole[dev.Bundle]; given {
				c.of(i, "cards: a virtual function of %s, which goes to %s whole", dev.ID, c.name(owner))
			}
		}
	}
	for d := range c.p.Devices {
		dev := &c.p.Devices[d]
		if u := byPF[dev.ID]; dev.Kind == plan.KindNIC && u.count > dev.VFs {
			c.fault("devices: %d virtual functions of %s go to lab nodes, it can give %d", u.count, dev.ID, dev.VFs)
		}
	}
	listed := map[string]bool{}
	for _, pf := range c.pl.VFs {
		u, lab := byPF[pf.PF]
		if listed[pf.PF] {
			c.fault("vfs: %s is there twice", printable(pf.PF))
		}
		listed[pf.PF] = true
		if pf.Lab != u.count {
			c.fault("vfs: %s: have %d for the lab, the lab nodes have %d", printable(pf.PF), pf.Lab, u.count)
		}
		least := pf.Lab
		if lab {
			least = max(least, u.last+1) // virtual functions are numbered from 0, and made in that order
		}
		s := c.hostSRIOV(pf.PF)
		if s != nil && s.Enabled != nil {
			least = max(least, *s.Enabled) // fewer would take some away that are in use
		}
		if pf.Count < least {
			c.fault("vfs: %s: have %d in all, want %d at least", printable(pf.PF), pf.Count, least)
		}
		if s != nil && s.Total != nil && pf.Count > *s.Total {
			c.fault("vfs: %s: have %d in all, its firmware offers %d", printable(pf.PF), pf.Count, *s.Total)
		}
	}
	for _, pf := range slices.Sorted(maps.Keys(byPF)) {
		if !listed[pf] {
			c.fault("vfs: %s is missing, the lab nodes have %d of its virtual functions", printable(pf), byPF[pf].count)
		}
	}
}
