package advise

import (
	"slices"
	"strings"

	"github.com/rackless/rackless/topology"
)

// A card is what a hand takes out of a slot: all physical functions of one device with their
// virtual ones, or a device that is known by its name alone. Its parts point into the host.
type card struct {
	id        string                // as the edit calls it
	functions []*topology.PCIDevice // physical ones, by address; none where the host's source has no addresses
	virtual   []*topology.PCIDevice // virtual functions of these
	gpus      []*topology.GPU
	nics      []*topology.NIC
}

// card finds a device by the address of one of its functions, by the name of a GPU or NIC, or by
// that of a network device.
func (e Edit) card(h *topology.Host, name string) (*card, error) {
	c := &card{id: name}
	at, err := topology.ParsePCIAddr(name)
	addressed := err == nil
	if !addressed {
		for i := range h.GPUs {
			if g := &h.GPUs[i]; g.Name == name {
				c.gpus = append(c.gpus, g)
			}
		}
		for i := range h.NICs {
			if n := &h.NICs[i]; n.Name == name || slices.Contains(n.Netdevs, name) {
				c.nics = append(c.nics, n)
			}
		}
		switch {
		case len(c.gpus)+len(c.nics) == 0:
			return nil, e.fail(name, "the host has no such device", devicesText(h))
		case len(c.gpus)+len(c.nics) > 1:
			return nil, e.fail(name, "several devices have this name", "use the address of one; "+devicesText(h))
		case len(c.gpus) == 1 && c.gpus[0].Address == nil || len(c.nics) == 1 && c.nics[0].Address == nil:
			return c, nil
		case len(c.gpus) == 1:
			at = *c.gpus[0].Address
		default:
			at = *c.nics[0].Address
		}
		c.gpus, c.nics = nil, nil
	}
	// A virtual function stands for the card that it is a part of.
	for i := range h.PCI {
		if d := &h.PCI[i]; d.Address == at && d.PF != nil {
			at = *d.PF
		}
	}
	own := map[topology.PCIAddr]bool{}
	for i := range h.PCI {
		if d := &h.PCI[i]; d.PF == nil && d.Address.SameDevice(at) {
			if d.IsBridge() {
				return nil, e.fail(name, "is a bridge, not a card", devicesText(h))
			}
			c.functions = append(c.functions, d)
			own[d.Address] = true
		}
	}
	for i := range h.PCI {
		if d := &h.PCI[i]; d.PF != nil && own[*d.PF] {
			c.virtual = append(c.virtual, d)
			own[d.Address] = true
		}
	}
	// Sources without a PCI tree may still know addresses.
	part := func(a *topology.PCIAddr) bool {
		return a != nil && (own[*a] || len(c.functions) == 0 && a.SameDevice(at))
	}
	for i := range h.GPUs {
		if part(h.GPUs[i].Address) {
			c.gpus = append(c.gpus, &h.GPUs[i])
		}
	}
	for i := range h.NICs {
		if part(h.NICs[i].Address) {
			c.nics = append(c.nics, &h.NICs[i])
		}
	}
	if len(c.functions)+len(c.gpus)+len(c.nics) == 0 {
		return nil, e.fail(name, "the host has no such device", devicesText(h))
	}
	return c, nil
}

// devicesText lists the GPUs and NICs of a host, for messages.
func devicesText(h *topology.Host) string {
	var gpus, nics []string
	for i := range h.GPUs {
		if h.GPUs[i].Kind != topology.GPUDisplay {
			gpus = append(gpus, h.GPUs[i].ID())
		}
	}
	for i := range h.NICs {
		if h.NICs[i].PF == nil {
			nics = append(nics, h.NICs[i].ID())
		}
	}
	return "its GPUs: " + someText(gpus) + "; its NICs: " + someText(nics)
}

// someText joins up to 16 names.
func someText(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > 16:
		return strings.Join(names[:16], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// ids returns what paths call the parts of the card.
func (c *card) ids() []string {
	var ids []string
	for _, g := range c.gpus {
		ids = append(ids, g.ID())
	}
	for _, n := range c.nics {
		ids = append(ids, n.ID())
	}
	return ids
}

// has reports whether a is a function of the card.
func (c *card) has(a topology.PCIAddr) bool {
	is := func(d *topology.PCIDevice) bool { return d.Address == a }
	return slices.ContainsFunc(c.functions, is) || slices.ContainsFunc(c.virtual, is)
}

// linked reports whether the card is joined to others by NVLink. Such a GPU is a module on a board
// of its own, or wears a bridge: it does not change places with a card.
func (c *card) linked(h *topology.Host) bool {
	for _, g := range c.gpus {
		if g.NVLinks != nil && *g.NVLinks > 0 {
			return true
		}
	}
	ids := c.ids()
	return slices.ContainsFunc(h.Reported, func(p topology.Path) bool {
		return p.Class == topology.PathNVLink && (slices.Contains(ids, p.A) || slices.Contains(ids, p.B))
	})
}

// inOneSlot reports whether all functions of the card are at one place. A card for two sockets has
// functions at two, and firmware and users say strange things.
func (c *card) inOneSlot() bool {
	for _, d := range c.functions[min(1, len(c.functions)):] {
		if first := c.functions[0]; !equal(d.Parent, first.Parent) || d.Root != first.Root ||
			!equal(d.NUMANode, first.NUMANode) {
			return false
		}
	}
	return true
}

// numaNode returns where the card is, nil where that is not known.
func (c *card) numaNode() *int {
	for _, d := range c.functions {
		if d.NUMANode != nil {
			return d.NUMANode
		}
	}
	for _, g := range c.gpus {
		if g.NUMANode != nil {
			return g.NUMANode
		}
	}
	for _, n := range c.nics {
		if n.NUMANode != nil {
			return n.NUMANode
		}
	}
	return nil
}
