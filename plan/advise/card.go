package advise

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// A card is what a hand takes out of a slot: all physical functions of one device with their
// virtual ones, or a device that is known by its name alone. Its parts point into the host.
type card struct {
	id        string                // as the edit calls it
	functions []*topology.PCIDevice // physical ones, by address; none if the host's source has no addresses
	virtual   []*topology.PCIDevice // virtual functions of these
	parts     []part
}

// A part is a GPU or NIC of a host, in what both have.
type part struct {
	id    string
	names []string // by which a user may call it
	addr  *topology.PCIAddr
	node  **int
	gpu   *topology.GPU // nil for a NIC
}

// partsOf returns the GPUs and NICs of a host.
func partsOf(h *topology.Host) []part {
	var all []part
	for g := range lists.Refs(h.GPUs) {
		all = append(all, part{g.ID(), []string{g.Name}, g.Address, &g.NUMANode, g})
	}
	for n := range lists.Refs(h.NICs) {
		all = append(all, part{n.ID(), append([]string{n.Name}, n.Netdevs...), n.Address, &n.NUMANode, nil})
	}
	return all
}

// card finds a device by the address of one of its functions, by the name of a GPU or NIC, or by
// that of a network device.
func (e Edit) card(h *topology.Host, name string) (*card, error) {
	at, err := topology.ParsePCIAddr(name)
	if err != nil {
		named := slices.DeleteFunc(partsOf(h), func(p part) bool { return !slices.Contains(p.names, name) })
		switch {
		case len(named) == 0:
			return nil, e.fail(name, "the host has no such device", devicesText(h))
		case len(named) > 1:
			return nil, e.fail(name, "several devices have this name", "use the address of one; "+devicesText(h))
		case named[0].addr == nil: // the host's source has no addresses
			return &card{id: name, parts: named}, nil
		}
		at = *named[0].addr
	}
	c := &card{id: name}
	// A virtual function stands for the card that it is a part of.
	if d := h.Device(at); d != nil && d.PF != nil {
		at = *d.PF
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
	for _, p := range partsOf(h) {
		// Sources without a PCI tree may still know addresses.
		if c.function(p.addr) != nil || len(c.functions) == 0 && p.addr != nil && p.addr.SameDevice(at) {
			c.parts = append(c.parts, p)
		}
	}
	if len(c.functions)+len(c.parts) == 0 {
		return nil, e.fail(name, "the host has no such device", devicesText(h))
	}
	return c, nil
}

// devicesText lists the GPUs and NICs of a host, for messages.
func devicesText(h *topology.Host) string {
	gpus := lists.Flat(h.GPUs, func(g topology.GPU) []string { return lists.If(g.Kind != topology.GPUDisplay, g.ID()) })
	nics := lists.Flat(h.NICs, func(n topology.NIC) []string { return lists.If(n.PF == nil, n.ID()) })
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
func (c *card) ids() []string { return lists.Map(c.parts, func(p part) string { return p.id }) }

// linked reports whether the card is joined to others by NVLink. Such a GPU is a module on a board
// of its own, or wears a bridge: it does not change places with a card.
func (c *card) linked(h *topology.Host) bool {
	bridged := func(p part) bool { return p.gpu != nil && words.ValueOr(p.gpu.NVLinks, 0) > 0 }
	ids := c.ids()
	return slices.ContainsFunc(c.parts, bridged) || slices.ContainsFunc(h.Reported, func(p topology.Path) bool {
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

// numaNode returns where the card is, nil if that is not known.
func (c *card) numaNode() *int {
	nodes := lists.Map(c.functions, func(d *topology.PCIDevice) *int { return d.NUMANode })
	nodes = append(nodes, lists.Map(c.parts, func(p part) *int { return *p.node })...)
	return cmp.Or(nodes...)
}
