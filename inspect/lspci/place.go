package lspci

import (
	"cmp"
	"strings"

	"github.com/rackless/rackless/topology"
)

// maxDepth bounds a walk up the tree: there are 256 buses in a domain.
const maxDepth = 256

// place finds the bridge above each function that a drawing has not placed, from the buses that
// bridges say are behind them. The list is sorted by address.
//
// Bus 0 is always a root bus. Another bus is one if the bridges of its domain are there and none of
// them leads to it; where they are not, as in plain lists and lists of single functions, it is not
// known what is above, unless the text states paths.
func place(found []*device, paths bool) {
	leads := map[uint32]*[256]*device{} // by domain: the nearest bridge that leads to each bus
	unknown := map[uint32]bool{}        // domains with a bridge that does not tell
	byAddr := map[topology.PCIAddr]*device{}
	for _, d := range found {
		byAddr[d.Address] = d
		domain := d.Address.Domain
		switch {
		case d.Bridge != nil && d.Bridge.Secondary > 0:
			if leads[domain] == nil {
				leads[domain] = new([256]*device)
			}
			// A bridge leads to no bus below its own, whatever it says: that keeps a hostile text
			// from making a loop. Of several that lead to a bus the nearest is the one whose buses
			// start last.
			for bus := int(d.Bridge.Secondary); bus <= int(d.Bridge.Subordinate) &&
				d.Address.Bus < d.Bridge.Secondary; bus++ {
				if above := leads[domain][bus]; above == nil || d.Bridge.Secondary > above.Bridge.Secondary {
					leads[domain][bus] = d
				}
			}
		case d.IsBridge() && !d.drawn && !d.tellsBuses:
			unknown[domain] = true
		}
	}
	for _, d := range found {
		if d.drawn {
			continue
		}
		domain, bus := d.Address.Domain, d.Address.Bus
		lead := leads[domain]
		switch {
		case lead != nil && lead[bus] != nil:
			d.Parent = new(lead[bus].Address)
		case bus == 0, paths, lead != nil && !unknown[domain]:
			d.Root = rootName(d.Address)
		default:
			d.ParentUnknown = true
		}
	}
	for _, d := range found {
		top := d
		for range maxDepth {
			if top.Root != "" || top.Parent == nil || byAddr[*top.Parent] == nil {
				break
			}
			top = byAddr[*top.Parent]
		}
		d.Root = cmp.Or(d.Root, top.Root)
	}
}

// rootName names the root bus that a function stands on, as sysfs does.
func rootName(a topology.PCIAddr) string {
	s := topology.PCIAddr{Domain: a.Domain, Bus: a.Bus}.String()
	return "pci" + s[:strings.LastIndexByte(s, ':')]
}
