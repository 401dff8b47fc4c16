package verify

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// cardName returns the first function of a card. A virtual function is named by its address where
// it exists, else after its NIC.
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
	for i := range c.h.NICs {
		if c.h.NICs[i].ID() == pf {
			return c.h.NICs[i].SRIOV
		}
	}
	return nil
}

// A vfUse is what lab nodes have of a NIC's virtual functions.
type vfUse struct{ count, last int }

// virtual checks the virtual functions: no more than may be given, no index twice, none of a NIC
// that is given whole, and PFs that have to have enough of them.
func (c *checker) virtual() {
	// To give away any device of a bundle takes the drivers off all its functions, and the virtual functions of a NIC
	// among them are gone then.
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

// pfCounts checks how many virtual functions the plan wants of each PF. The number that is written to
// sriov_numvfs is a count, not a set: to have function 5 it has to be 6 at least. It cannot be changed
// while functions exist without removing them all first, which is why no fewer than now may be asked for.
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
			least = max(least, u.last+1) // virtual functions are numbered from 0, and made in that order
		}
		s := c.hostSRIOV(pf.PF)
		if s != nil && s.Enabled != nil {
			least = max(least, *s.Enabled) // fewer would take some away that are in use
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
