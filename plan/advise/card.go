package advise

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// A card is plugged into one slot, with virtual functions, or is known only by name. It points into the host.
type card struct {
	functions []*topology.PCIDevice // by address; none if the host's source has no addresses
	virtual   []*topology.PCIDevice
	parts     []part
}

type part struct {
	id   string
	addr *topology.PCIAddr
	node **int
	gpu  *topology.GPU // nil for a NIC
}

func partsOf(h *topology.Host) []part {
	var all []part
	for i := range h.GPUs {
		g := &h.GPUs[i]
		all = append(all, part{g.ID(), g.Address, &g.NUMANode, g})
	}
	for i := range h.NICs {
		n := &h.NICs[i]
		all = append(all, part{n.ID(), n.Address, &n.NUMANode, nil})
	}
	return all
}

// cardOf returns nil if the host has no such device.
func cardOf(h *topology.Host, id string) *card {
	all := partsOf(h)
	k := slices.IndexFunc(all, func(p part) bool { return p.id == id })
	if k < 0 {
		return nil
	}
	if all[k].addr == nil { // the host's source has no addresses
		return &card{parts: all[k : k+1]}
	}
	at := *all[k].addr
	c := &card{}
	if d := h.Device(at); d != nil && d.PF != nil {
		at = *d.PF
	}
	for i := range h.PCI {
		if d := &h.PCI[i]; d.PF == nil && d.Address.SameDevice(at) {
			if d.IsBridge() {
				return nil
			}
			c.functions = append(c.functions, d)
		}
	}
	for i := range h.PCI {
		if d := &h.PCI[i]; c.function(d.PF) != nil {
			c.virtual = append(c.virtual, d)
		}
	}
	for _, p := range all {
		// A source without a PCI tree may still have addresses.
		if c.function(p.addr) != nil || len(c.functions) == 0 && p.addr != nil && p.addr.SameDevice(at) {
			c.parts = append(c.parts, p)
		}
	}
	return c
}

func (c *card) ids() []string { return lists.Map(c.parts, func(p part) string { return p.id }) }

// linked GPUs are modules on a board of their own or have a bridge, so they cannot be moved like a card.
func (c *card) linked(h *topology.Host) bool {
	bridged := func(p part) bool { return p.gpu != nil && p.gpu.NVLinks != nil && *p.gpu.NVLinks > 0 }
	ids := c.ids()
	return slices.ContainsFunc(c.parts, bridged) || slices.ContainsFunc(h.Reported, func(p topology.Path) bool {
		return p.Class == topology.PathNVLink && (slices.Contains(ids, p.A) || slices.Contains(ids, p.B))
	})
}

// inOneSlot is false for cards for two sockets, and for inconsistent reports.
func (c *card) inOneSlot() bool {
	return !slices.ContainsFunc(c.functions, func(d *topology.PCIDevice) bool {
		first := c.functions[0]
		return !equal(d.Parent, first.Parent) || d.Root != first.Root || !equal(d.NUMANode, first.NUMANode)
	})
}

func (c *card) numaNode() *int {
	nodes := lists.Map(c.functions, func(d *topology.PCIDevice) *int { return d.NUMANode })
	nodes = append(nodes, lists.Map(c.parts, func(p part) *int { return *p.node })...)
	return cmp.Or(nodes...)
}
