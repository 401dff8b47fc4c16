package advise

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/topology"
)

// A slot is what a function has from where it is plugged in.
type slot struct {
	parent        *topology.PCIAddr
	root          string
	parentUnknown bool
	label         string
	node          *int
	nodeSource    string
	localCPUs     *topology.CPUSet
	group         *int
	port          *topology.PortLink // the other end of the link
}

func slotOf(d *topology.PCIDevice) slot {
	s := slot{d.Parent, d.Root, d.ParentUnknown, d.Slot, d.NUMANode, d.NUMASource, d.LocalCPUs, d.IOMMUGroup, nil}
	if d.Link != nil {
		s.port = d.Link.Port
	}
	return s
}

// into puts d into the slot. Pointers are copied, so that two functions never share one. What the
// link would come to there is not guessed: its speed and width stay those of the card. A port that
// is not known on one side is not passed on.
func (s slot) into(d *topology.PCIDevice) {
	s = deepCopySlot(s)
	d.Parent, d.Root, d.ParentUnknown, d.Slot = s.parent, s.root, s.parentUnknown, s.label
	d.NUMANode, d.NUMASource, d.LocalCPUs, d.IOMMUGroup = s.node, s.nodeSource, s.localCPUs, s.group
	if d.Link != nil && d.Link.Port != nil && s.port != nil {
		d.Link.Port = s.port
	}
}

func deepCopySlot(s slot) slot {
	s.parent, s.node, s.localCPUs, s.group, s.port = deepCopy(s.parent), deepCopy(s.node), deepCopy(s.localCPUs),
		deepCopy(s.group), deepCopy(s.port)
	return s
}

// equal compares optional values.
func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// plug puts the card into the slots that it finds by the number of a function; a function that has
// none goes where the first does. Virtual functions, GPUs and NICs follow, as far as they were
// where their function was.
func (c *card) plug(slots map[uint8]slot) {
	first := c.functions[0]
	base, ok := slots[first.Address.Function]
	if !ok { // the other card has no such function: then its first one
		for _, f := range slices.Sorted(maps.Keys(slots)) {
			base = slots[f]
			break
		}
	}
	group := deepCopy(first.IOMMUGroup)
	for _, d := range c.functions {
		s, ok := slots[d.Address.Function]
		if !ok {
			s = base
			// A function with a group of its own keeps one. The group's number is only a name, and
			// functions of a card go together anyway.
			if !equal(d.IOMMUGroup, group) {
				s.group = d.IOMMUGroup
			}
		}
		s.into(d)
	}
	for _, v := range c.virtual {
		for _, d := range c.functions {
			if *v.PF == d.Address {
				s := slotOf(d)
				s.group, s.label = v.IOMMUGroup, v.Slot
				s.into(v)
			}
		}
	}
	for _, g := range c.gpus {
		if d := c.function(g.Address); d != nil {
			g.NUMANode = deepCopy(d.NUMANode)
		}
	}
	for _, n := range c.nics {
		if d := c.function(n.Address); d != nil {
			n.NUMANode = deepCopy(d.NUMANode)
		}
	}
}

// function returns the card's function at a.
func (c *card) function(a *topology.PCIAddr) *topology.PCIDevice {
	if a == nil {
		return nil
	}
	for _, list := range [][]*topology.PCIDevice{c.functions, c.virtual} {
		for _, d := range list {
			if d.Address == *a {
				return d
			}
		}
	}
	return nil
}

// swap makes two cards change slots. Made twice, it changes nothing.
func (e Edit) swap(h *topology.Host, a, b *card) error {
	switch {
	case len(a.functions) > 0 && len(b.functions) > 0 && a.functions[0] == b.functions[0],
		len(a.gpus) > 0 && len(b.gpus) > 0 && a.gpus[0] == b.gpus[0], len(a.nics) > 0 && len(b.nics) > 0 &&
			a.nics[0] == b.nics[0]:
		return e.fail(b.id, "is the same card as "+a.id, "name two cards")
	case a.linked(h) != b.linked(h):
		linked := a
		if b.linked(h) {
			linked = b
		}
		return e.fail(linked.id, "is joined to other GPUs by NVLink, so it is no card that changes slots with one "+
			"that is not", "")
	case (len(a.functions) == 0) != (len(b.functions) == 0):
		return e.fail(b.id, "one of the two devices is in the host's PCI tree and the other is not", "")
	}
	for _, c := range []*card{a, b} {
		if !c.inOneSlot() {
			return e.fail(c.id, "has functions at different places: it is no card in one slot", "")
		}
	}
	e.swapReported(h, a, b)
	if len(a.functions) == 0 {
		swapNamed(a, b)
		return nil
	}
	slotsA, slotsB := a.slots(), b.slots()
	a.plug(slotsB)
	b.plug(slotsA)
	regroup(h)
	restore(h, a, b)
	return nil
}

// slots returns where the card's physical functions are, by their numbers.
func (c *card) slots() map[uint8]slot {
	slots := make(map[uint8]slot, len(c.functions))
	for _, d := range c.functions {
		slots[d.Address.Function] = slotOf(d)
	}
	return slots
}

// swapNamed makes two devices without addresses change NUMA nodes.
func swapNamed(a, b *card) {
	na, nb := a.numaNode(), b.numaNode()
	for _, x := range []struct {
		card *card
		node *int
	}{{a, nb}, {b, na}} {
		for _, g := range x.card.gpus {
			g.NUMANode = deepCopy(x.node)
		}
		for _, n := range x.card.nics {
			n.NUMANode = deepCopy(x.node)
		}
	}
	if len(a.gpus) == 1 && len(b.gpus) == 1 {
		a.gpus[0].CPUAffinity, b.gpus[0].CPUAffinity = b.gpus[0].CPUAffinity, a.gpus[0].CPUAffinity
	}
}

// swapReported gives the paths that a tool reported to the other card: they are those of the slot.
func (e Edit) swapReported(h *topology.Host, a, b *card) {
	idsA, idsB := a.ids(), b.ids()
	place := map[string]string{} // of each part: who was there before
	for i := range max(len(idsA), len(idsB)) {
		if i < len(idsA) && len(idsB) > 0 {
			place[idsA[i]] = idsB[min(i, len(idsB)-1)]
		}
		if i < len(idsB) && len(idsA) > 0 {
			place[idsB[i]] = idsA[min(i, len(idsA)-1)]
		}
	}
	at := func(id string) string {
		if p, ok := place[id]; ok {
			return p
		}
		return id
	}
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

// regroup lists the devices of each IOMMU group anew.
func regroup(h *topology.Host) {
	members := map[int][]topology.PCIAddr{}
	for i := range h.PCI {
		if d := &h.PCI[i]; d.IOMMUGroup != nil {
			members[*d.IOMMUGroup] = append(members[*d.IOMMUGroup], d.Address)
		}
	}
	kept := h.IOMMU.Groups[:0]
	for _, g := range h.IOMMU.Groups {
		if g.Devices = members[g.ID]; len(g.Devices) > 0 {
			kept = append(kept, g)
			delete(members, g.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		kept = append(kept, topology.IOMMUGroup{ID: id, Devices: members[id]})
	}
	slices.SortFunc(kept, func(x, y topology.IOMMUGroup) int { return x.ID - y.ID })
	h.IOMMU.Groups = kept
}

// restore gives disks on the cards the NUMA nodes of their functions.
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

// moveTo puts the card into a slot of a NUMA node: below the first free port whose link is wide
// enough; else, where no port of the node is known to be free, on a root bus of the node, as if
// there were one.
func (e Edit) moveTo(h *topology.Host, c *card) error {
	if n := c.numaNode(); n != nil && *n == e.Count {
		return e.fail(c.id, fmt.Sprintf("is on NUMA node %d already", e.Count), "")
	}
	if err := e.checkMove(h, c); err != nil {
		return err
	}
	if len(c.functions) == 0 {
		swapNamed(c, &card{gpus: []*topology.GPU{{NUMANode: new(e.Count)}}})
		return nil
	}
	if free := freePorts(h, e.Count, c); len(free) > 0 {
		c.plugBelow(h, free[0])
		return nil
	}
	s := slot{node: new(e.Count), root: rootOn(h, e.Count, c)}
	s.parentUnknown = s.root == ""
	c.plugNew(h, s)
	return nil
}

// moveBelow puts the card into the slot of a port.
func (e Edit) moveBelow(h *topology.Host, c *card) error {
	at, err := topology.ParsePCIAddr(e.Other)
	if err != nil {
		return e.fail(e.Other, err.Error(), "name the port by its address")
	}
	if err := e.checkMove(h, c); err != nil {
		return err
	}
	if len(c.functions) == 0 {
		return e.fail(c.id, "the host's source has no PCI tree", "move it to a NUMA node")
	}
	for i := range h.PCI {
		port := &h.PCI[i]
		if port.Address != at {
			continue
		}
		if !port.IsBridge() {
			return e.fail(e.Other, "is no port: nothing can be plugged in below it", "")
		}
		for j := range h.PCI {
			if d := &h.PCI[j]; d.Parent != nil && *d.Parent == at {
				return e.fail(e.Other, fmt.Sprintf("%s is below it already", d.Address),
					"name a free port, or swap the two")
			}
		}
		c.plugBelow(h, port)
		return nil
	}
	return e.fail(e.Other, "the host has no such port", "")
}

// checkMove refuses what has no slot, and forgets the paths that tools reported of the card.
func (e Edit) checkMove(h *topology.Host, c *card) error {
	if c.linked(h) {
		return e.fail(c.id, "is joined to other GPUs by NVLink, so it is no card that can be moved", "")
	}
	if !c.inOneSlot() {
		return e.fail(c.id, "has functions at different places: it is no card in one slot", "")
	}
	ids := c.ids()
	h.Reported = slices.DeleteFunc(h.Reported, func(p topology.Path) bool {
		return slices.Contains(ids, p.A) || slices.Contains(ids, p.B)
	})
	return nil
}

// plugBelow puts the card below a port.
func (c *card) plugBelow(h *topology.Host, port *topology.PCIDevice) {
	s := slot{parent: &port.Address, root: topology.NewTree(h).RootOf(port.Address), node: port.NUMANode,
		nodeSource: "parent"}
	if l := port.Link; l != nil {
		s.port = &topology.PortLink{Address: port.Address, SpeedGTs: l.SpeedGTs, Width: l.Width,
			MaxSpeedGTs: l.MaxSpeedGTs, MaxWidth: l.MaxWidth}
	}
	c.plugNew(h, s)
}

// plugNew puts the card into a slot where nothing was. Functions leave IOMMU groups that they shared with others.
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
		own.group = d.IOMMUGroup
		if d.IOMMUGroup != nil && sharedGroup(h, c, *d.IOMMUGroup) {
			own.group = &next
		}
		slots[d.Address.Function] = own
	}
	c.plug(slots)
	regroup(h)
	restore(h, c)
}

// sharedGroup reports whether the IOMMU group has functions of other cards.
func sharedGroup(h *topology.Host, c *card, group int) bool {
	for i := range h.PCI {
		if d := &h.PCI[i]; d.IOMMUGroup != nil && *d.IOMMUGroup == group && !c.has(d.Address) {
			return true
		}
	}
	return false
}

// freePorts returns the ports of a NUMA node that have nothing below them, those first that are
// wide enough for the card, then by address. A port that leads nowhere may be soldered to nothing:
// who moves a card looks.
func freePorts(h *topology.Host, node int, c *card) []*topology.PCIDevice {
	taken := map[topology.PCIAddr]bool{}
	for i := range h.PCI {
		if p := h.PCI[i].Parent; p != nil {
			taken[*p] = true
		}
	}
	lanes := 0
	if l := c.functions[0].Link; l != nil {
		lanes = valueOr(l.MaxWidth, valueOr(l.Width, 0))
	}
	var wide, narrow []*topology.PCIDevice
	for i := range h.PCI {
		d := &h.PCI[i]
		if d.Bridge == nil || d.Bridge.Port != "root port" && d.Bridge.Port != "downstream port" || taken[d.Address] ||
			d.NUMANode == nil || *d.NUMANode != node {
			continue
		}
		if d.Link != nil && valueOr(d.Link.MaxWidth, 0) >= lanes {
			wide = append(wide, d)
		} else {
			narrow = append(narrow, d)
		}
	}
	return append(wide, narrow...)
}

func valueOr[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

// rootOn returns a root bus of a NUMA node: one that a GPU stands below, else a NIC, else any; the first by address.
func rootOn(h *topology.Host, node int, c *card) string {
	best, rank := "", 0
	for i := range h.PCI {
		d := &h.PCI[i]
		if d.NUMANode == nil || *d.NUMANode != node || d.Root == "" || c.has(d.Address) {
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

// remove takes the card out of the host.
func (e Edit) remove(h *topology.Host, c *card) error {
	for _, disk := range h.Storage {
		if disk.PCI != nil && c.has(*disk.PCI) && len(disk.Mounts) > 0 {
			return e.fail(c.id, fmt.Sprintf("the host lives on it: disk %s has %s", disk.Name, someText(disk.Mounts)),
				"")
		}
	}
	ids := c.ids()
	gone := map[topology.PCIAddr]bool{}
	for _, list := range [][]*topology.PCIDevice{c.functions, c.virtual} {
		for _, d := range list {
			gone[d.Address] = true
		}
	}
	isGone := func(a *topology.PCIAddr) bool { return a != nil && gone[*a] }
	h.PCI = slices.DeleteFunc(h.PCI, func(d topology.PCIDevice) bool { return gone[d.Address] })
	h.GPUs = slices.DeleteFunc(h.GPUs, func(g topology.GPU) bool {
		return isGone(g.Address) || slices.Contains(ids, g.ID())
	})
	h.NICs = slices.DeleteFunc(h.NICs, func(n topology.NIC) bool {
		return isGone(n.Address) || slices.Contains(ids, n.ID())
	})
	h.Storage = slices.DeleteFunc(h.Storage, func(d topology.Disk) bool { return isGone(d.PCI) })
	h.Reported = slices.DeleteFunc(h.Reported, func(p topology.Path) bool {
		return slices.Contains(ids, p.A) || slices.Contains(ids, p.B)
	})
	for i := range h.Tenants {
		t := &h.Tenants[i]
		t.Devices = slices.DeleteFunc(t.Devices, func(d topology.TenantDevice) bool { return gone[d.PCI] })
	}
	regroup(h)
	return nil
}
