package advise

import (
	"cmp"
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
	at, err := topology.ParsePCIAddr(name)
	if err != nil {
		c := named(h, name)
		var addr *topology.PCIAddr
		switch {
		case len(c.gpus)+len(c.nics) > 1:
			return nil, e.fail(name, "several devices have this name", "use the address of one; "+devicesText(h))
		case len(c.gpus) == 1:
			addr = c.gpus[0].Address
		case len(c.nics) == 1:
			addr = c.nics[0].Address
		default:
			return nil, e.fail(name, "the host has no such device", devicesText(h))
		}
		if addr == nil {
			return c, nil // the host's source has no addresses
		}
		at = *addr
	}
	c := &card{id: name}
	// A virtual function stands for the card that it is a part of.
	for _, d := range h.PCI {
		if d.Address == at && d.PF != nil {
			at = *d.PF
		}
	}
	for i := range h.PCI {
		if d := &h.PCI[i]; d.PF == nil && d.Address.SameDevice(at) {
			if d.IsBridge() {
				return nil, e.fail(name, "is a bridge, not a card", devicesText(h))
			}
			c.functions = append(c.functions, d)
		}
	}
	for i := range h.PCI {
		if d := &h.PCI[i]; c.function(d.PF) != nil {
			c.virtual = append(c.virtual, d)
		}
	}
	// Sources without a PCI tree may still know addresses.
	part := func(a *topology.PCIAddr) bool {
		return a != nil && (c.function(a) != nil || len(c.functions) == 0 && a.SameDevice(at))
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

// named returns the GPUs and NICs of a name.
func named(h *topology.Host, name string) *card {
	c := &card{id: name}
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
	return c
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
	const most = 16
	if len(names) > most {
		names = append(slices.Clone(names[:most]), "...")
	}
	return cmp.Or(strings.Join(names, ", "), "none")
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
	return !slices.ContainsFunc(c.functions, func(d *topology.PCIDevice) bool {
		first := c.functions[0]
		return !equal(d.Parent, first.Parent) || d.Root != first.Root || !equal(d.NUMANode, first.NUMANode)
	})
}

// numaNode returns where the card is, nil where that is not known.
func (c *card) numaNode() *int {
	var nodes []*int
	for _, d := range c.functions {
		nodes = append(nodes, d.NUMANode)
	}
	for _, g := range c.gpus {
		nodes = append(nodes, g.NUMANode)
	}
	for _, n := range c.nics {
		nodes = append(nodes, n.NUMANode)
	}
	return cmp.Or(nodes...)
}
