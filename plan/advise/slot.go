package advise

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// A slot is represented by the device in it, including the port at the other end of the link.
type slot = topology.PCIDevice

// plugInto copies pointers so that functions never share one. The link keeps the card's speed and width, because the
// new slot's would be a guess.
func plugInto(s slot, d *topology.PCIDevice) {
	s = deepCopy(s)
	d.Parent, d.Root, d.ParentUnknown, d.Slot = s.Parent, s.Root, s.ParentUnknown, s.Slot
	d.NUMANode, d.NUMASource, d.LocalCPUs, d.IOMMUGroup = s.NUMANode, s.NUMASource, s.LocalCPUs, s.IOMMUGroup
	if d.Link != nil && d.Link.Port != nil && s.Link != nil && s.Link.Port != nil {
		d.Link.Port = s.Link.Port
	}
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// plug puts each function into the slot with its number, or else into the first.
func (c *card) plug(slots map[uint8]slot) {
	first := c.functions[0]
	base, ok := slots[first.Address.Function]
	if !ok { // the other card has no such function
		base = slots[slices.Min(slices.Collect(maps.Keys(slots)))]
	}
	group := deepCopy(first.IOMMUGroup)
	for _, d := range c.functions {
		s, ok := slots[d.Address.Function]
		if !ok {
			s = base
			// The number of an IOMMU group is only a name, and functions of a card go together anyway.
			if !equal(d.IOMMUGroup, group) {
				s.IOMMUGroup = d.IOMMUGroup
			}
		}
		plugInto(s, d)
	}
	for _, v := range c.virtual {
		s := *c.function(v.PF)
		s.IOMMUGroup, s.Slot = v.IOMMUGroup, v.Slot
		plugInto(s, v)
	}
	for _, p := range c.parts {
		if d := c.function(p.addr); d != nil {
			*p.node = deepCopy(d.NUMANode)
		}
	}
}

func (c *card) function(a *topology.PCIAddr) *topology.PCIDevice {
	return lists.Find(slices.Concat(c.functions, c.virtual),
		func(d *topology.PCIDevice) bool { return a != nil && d.Address == *a })
}

// A move is to a NUMA node, to the slot below a port, or a swap.
type move struct {
	device string
	node   int
	below  *topology.PCIAddr // nil if none is known
	other  string
}

// apply returns nil if the move is physically impossible.
func (m move) apply(h *topology.Host) *topology.Host {
	h = deepCopy(h)
	c := cardOf(h, m.device)
	if c == nil || c.linked(h) || !c.inOneSlot() {
		return nil
	}
	if m.other != "" {
		o := cardOf(h, m.other)
		if o == nil || o.linked(h) || !o.inOneSlot() || (len(c.functions) == 0) != (len(o.functions) == 0) ||
			slices.Equal(c.ids(), o.ids()) {
			return nil
		}
		swap(h, c, o)
		return h
	}
	c.forgetReported(h)
	switch {
	case len(c.functions) == 0:
		c.setNode(new(m.node))
		for _, p := range c.parts {
			if p.gpu != nil {
				p.gpu.CPUAffinity = nil
			}
		}
	case m.below != nil:
		c.plugBelow(h, h.Device(*m.below))
	default:
		s := slot{NUMANode: new(m.node), Root: rootOn(h, m.node, c)}
		s.ParentUnknown = s.Root == ""
		c.plugNew(h, s)
	}
	return h
}

// swap is its own inverse: a test checks that on every machine of the corpus, because a single swap would not reveal a
// forgotten field.
func swap(h *topology.Host, a, b *card) {
	swapReported(h, a, b)
	if len(a.functions) == 0 {
		swapNamed(a, b)
		return
	}
	slotsA, slotsB := a.slots(), b.slots()
	a.plug(slotsB)
	b.plug(slotsA)
	regroup(h)
	restore(h, a, b)
}

func (c *card) slots() map[uint8]slot {
	slots := make(map[uint8]slot, len(c.functions))
	for _, d := range c.functions {
		slots[d.Address.Function] = deepCopy(*d)
	}
	return slots
}

func swapNamed(a, b *card) {
	nodeA, nodeB := a.numaNode(), b.numaNode()
	a.setNode(nodeB)
	b.setNode(nodeA)
	if len(a.parts) == 1 && len(b.parts) == 1 && a.parts[0].gpu != nil && b.parts[0].gpu != nil {
		x, y := a.parts[0].gpu, b.parts[0].gpu
		x.CPUAffinity, y.CPUAffinity = y.CPUAffinity, x.CPUAffinity
	}
}

func (c *card) setNode(node *int) {
	for _, p := range c.parts {
		*p.node = deepCopy(node)
	}
}

// swapReported swaps reported paths, which belong to the slots.
func swapReported(h *topology.Host, a, b *card) {
	// A card with two parts, such as two ports, may replace a card with one.
	place := map[string]string{}
	pair := func(to, from []string) {
		for i, id := range to {
			if len(from) > 0 {
				place[id] = from[min(i, len(from)-1)]
			}
		}
	}
	pair(a.ids(), b.ids())
	pair(b.ids(), a.ids())
	at := func(id string) string { return cmp.Or(place[id], id) }
	old := map[[2]string]topology.Path{}
	for _, p := range h.Reported {
		old[[2]string{p.A, p.B}], old[[2]string{p.B, p.A}] = p, p
	}
	for i := range h.Reported {
		p := &h.Reported[i]
		if q, ok := old[[2]string{at(p.A), at(p.B)}]; ok {
			p.Class, p.Links, p.PCIe = q.Class, q.Links, q.PCIe
		}
	}
}

func regroup(h *topology.Host) {
	members := map[int][]topology.PCIAddr{}
	for i := range h.PCI {
		if d := &h.PCI[i]; d.IOMMUGroup != nil {
			members[*d.IOMMUGroup] = append(members[*d.IOMMUGroup], d.Address)
		}
	}
	groups := h.IOMMU.Groups[:0]
	for _, g := range h.IOMMU.Groups {
		if g.Devices = members[g.ID]; len(g.Devices) > 0 {
			groups = append(groups, g)
			delete(members, g.ID)
		}
	}
	for id, devices := range members {
		groups = append(groups, topology.IOMMUGroup{ID: id, Devices: devices})
	}
	slices.SortFunc(groups, func(x, y topology.IOMMUGroup) int { return cmp.Compare(x.ID, y.ID) })
	h.IOMMU.Groups = groups
}

func restore(h *topology.Host, cards ...*card) {
	for i := range h.Storage {
		disk := &h.Storage[i]
		for _, c := range cards {
			if d := c.function(disk.PCI); d != nil {
				disk.NUMANode = deepCopy(d.NUMANode)
			}
		}
	}
}

func (c *card) plugBelow(h *topology.Host, port *topology.PCIDevice) {
	s := slot{Parent: &port.Address, Root: topology.NewTree(h).RootOf(port.Address), NUMANode: port.NUMANode,
		NUMASource: "parent"}
	if l := port.Link; l != nil {
		s.Link = &topology.Link{Port: &topology.PortLink{Address: port.Address, SpeedGTs: l.SpeedGTs, Width: l.Width,
			MaxSpeedGTs: l.MaxSpeedGTs, MaxWidth: l.MaxWidth}}
	}
	c.plugNew(h, s)
}

// plugNew takes functions out of IOMMU groups that they share with other cards.
func (c *card) plugNew(h *topology.Host, s slot) {
	next := 0
	for i := range h.PCI {
		if g := h.PCI[i].IOMMUGroup; g != nil {
			next = max(next, *g+1)
		}
	}
	slots := map[uint8]slot{}
	for _, d := range c.functions {
		own := s
		own.IOMMUGroup = d.IOMMUGroup
		shared := slices.ContainsFunc(h.PCI, func(o topology.PCIDevice) bool {
			return o.IOMMUGroup != nil && equal(o.IOMMUGroup, d.IOMMUGroup) && c.function(&o.Address) == nil
		})
		if shared {
			own.IOMMUGroup = &next
		}
		slots[d.Address.Function] = own
	}
	c.plug(slots)
	regroup(h)
	restore(h, c)
}

// freePorts has the ones wide enough for the card first. An empty port may not lead to a slot at all, which only a look
// at the machine can tell.
func freePorts(h *topology.Host, node int, c *card) []*topology.PCIDevice {
	taken := map[topology.PCIAddr]bool{}
	for i := range h.PCI {
		if p := h.PCI[i].Parent; p != nil {
			taken[*p] = true
		}
	}
	lanes := 0
	if l := c.functions[0].Link; l != nil && l.MaxWidth != nil {
		lanes = *l.MaxWidth
	} else if l != nil && l.Width != nil {
		lanes = *l.Width
	}
	var wide, narrow []*topology.PCIDevice
	for i := range h.PCI {
		d := &h.PCI[i]
		port := d.Bridge != nil && (d.Bridge.Port == "root port" || d.Bridge.Port == "downstream port")
		width := 0
		if d.Link != nil && d.Link.MaxWidth != nil {
			width = *d.Link.MaxWidth
		}
		switch {
		case !port || taken[d.Address] || d.NUMANode == nil || *d.NUMANode != node:
		case d.Link != nil && width >= lanes:
			wide = append(wide, d)
		default:
			narrow = append(narrow, d)
		}
	}
	return append(wide, narrow...)
}

// rootOn prefers root buses with GPUs, then NICs: others lead to memory controllers and the chipset.
func rootOn(h *topology.Host, node int, c *card) string {
	best, rank := "", 0
	for i := range h.PCI {
		d := &h.PCI[i]
		if d.NUMANode == nil || *d.NUMANode != node || d.Root == "" || c.function(&d.Address) != nil {
			continue
		}
		r := 1
		switch {
		case d.IsGPU():
			r = 3
		case d.IsNIC():
			r = 2
		}
		if r > rank {
			best, rank = d.Root, r
		}
	}
	return best
}

func (c *card) forgetReported(h *topology.Host) {
	ids := c.ids()
	h.Reported = slices.DeleteFunc(h.Reported, func(p topology.Path) bool {
		return slices.Contains(ids, p.A) || slices.Contains(ids, p.B)
	})
}
