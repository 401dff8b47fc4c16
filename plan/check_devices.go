package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/topology"
)

// devices checks who gets which: as asked, from those that may be given, each to one lab node, with all that cannot be taken apart.
func (c *checker) devices() {
	index := map[[2]string]int{}
	for d := range c.p.Devices {
		index[[2]string{c.p.Devices[d].Kind, c.p.Devices[d].ID}] = d
	}
	for i, n := range c.nodes {
		if n == nil {
			continue
		}
		c.cards(i, n, index)
		r, f := &c.p.Requests[i], &c.found[i]
		c.answer(i, "gpus", f.gpus, r.GPUs)
		c.answer(i, "nics", f.nics, r.NICs)
		c.answer(i, "vfs", f.vfs, r.VFs)
		c.functions(i, n)
		want := c.l.Nodes[i].NICs
		if !slices.Equal(n.NICs, want) {
			c.of(i, "nics: have %v, want %v as in the lab", n.NICs, want)
		}
		if ports := len(f.nics) + len(f.vfs); ports != len(n.NICs) {
			c.of(i, "nics: have names and addresses for %d ports, and %d cards", len(n.NICs), ports)
		}
	}
	c.exclusive()
	c.groups()
	c.virtual()
}

// cards reads the devices of a lab node, and checks each by itself.
func (c *checker) cards(i int, n *Node, index map[[2]string]int) {
	f := &c.found[i]
	order := []string{KindGPU, KindNIC, KindVF}
	last := 0
	for _, card := range n.Cards {
		rank := slices.Index(order, card.Kind)
		if rank < 0 {
			c.of(i, "cards: %q is a %q; want gpu, nic or vf", card.ID, card.Kind)
			continue
		}
		if rank < last {
			c.of(i, "cards: %s comes after a %s; want GPUs, NICs, then VFs", printable(card.ID), order[last])
		}
		last = max(last, rank)
		kind := card.Kind
		if kind == KindVF {
			kind = KindNIC
		}
		d, ok := index[[2]string{kind, card.ID}]
		if !ok {
			c.of(i, "cards: the problem has no %s %q", kind, card.ID)
			continue
		}
		dev := &c.p.Devices[d]
		c.onHost(i, dev)
		if card.Kind != KindVF && !dev.Whole {
			c.of(i, "cards: %s may not be given away: %s", dev.ID, dev.Refused)
		}
		if card.Kind != KindVF && card.VF != nil {
			c.of(i, "cards: %s is a %s and names virtual function %d", dev.ID, card.Kind, *card.VF)
		}
		if card.Kind == KindVF && card.VF == nil {
			c.of(i, "cards: a virtual function of %s has no index", dev.ID)
		}
		switch card.Kind {
		case KindGPU:
			f.gpus = append(f.gpus, d)
		case KindNIC:
			f.nics = append(f.nics, d)
		case KindVF:
			f.vfs = append(f.vfs, d)
		}
		c.place(i, n, &card, dev)
	}
	slices.Sort(f.gpus)
	slices.Sort(f.nics)
	slices.Sort(f.vfs)
}

// onHost checks that a device is on the host still, where the problem has it, and that the host does not live on it.
func (c *checker) onHost(i int, dev *Device) {
	found := false
	var node *int
	for k := range c.h.GPUs {
		if g := &c.h.GPUs[k]; dev.Kind == KindGPU && g.ID() == dev.ID {
			found, node = true, g.NUMANode
		}
	}
	for k := range c.h.NICs {
		if g := &c.h.NICs[k]; dev.Kind == KindNIC && g.ID() == dev.ID {
			found, node = true, g.NUMANode
		}
	}
	if !found {
		c.of(i, "cards: the host has no %s %s", dev.Kind, dev.ID)
	}
	if node != nil && len(c.m.nodes) > 1 && slices.Contains(c.m.nodes, *node) && (dev.NUMANode == nil || *dev.NUMANode != *node) {
		c.fault("problem: %s is on NUMA node %s, the host says %d", dev.ID, known(dev.NUMANode), *node)
	}
}

// place checks the NUMA nodes of a card, of the host and of the guest.
func (c *checker) place(i int, n *Node, card *NodeDevice, dev *Device) {
	if known(card.NUMANode) != known(dev.NUMANode) {
		c.of(i, "cards: %s: have NUMA node %s, want %s", card.ID, known(card.NUMANode), known(dev.NUMANode))
	}
	if dev.NUMANode == nil {
		if card.Cell != nil {
			c.of(i, "cards: %s: have cell %d, want none: its NUMA node is not known", card.ID, *card.Cell)
		}
		return
	}
	if card.Cell == nil || *card.Cell < 0 || *card.Cell >= len(n.Cells) {
		c.of(i, "cards: %s: have cell %s, want one of %d", card.ID, known(card.Cell), len(n.Cells))
		return
	}
	best := 0
	far := func(k int) int64 {
		d, ok := c.m.nearest(n.Cells[k].NUMANodes, *dev.NUMANode)
		if !ok {
			return 1 << 30
		}
		return d
	}
	for k := range n.Cells {
		if far(k) < far(best) {
			best = k
		}
	}
	if far(*card.Cell) > far(best) {
		c.of(i, "cards: %s is on NUMA node %d: have cell %d, want cell %d, which is nearer", card.ID, *dev.NUMANode, *card.Cell, best)
	}
}

func known(n *int) string {
	if n == nil {
		return "none"
	}
	return strconv.Itoa(*n)
}

// answer checks that devices are those that were asked for: as many, and each want with its own.
func (c *checker) answer(i int, what string, have []int, wants []Want) {
	var units []*Want // a want for each device
	for k := range wants {
		for range min(wants[k].Count, len(have)+1) {
			units = append(units, &wants[k])
		}
	}
	if len(units) != len(have) {
		asked := 0
		for k := range wants {
			asked += wants[k].Count
		}
		c.of(i, "%s: have %d, want %d", what, len(have), asked)
		return
	}
	// Kuhn's matching: a device that is in the way moves on to another want where it can.
	taker := make([]int, len(units))
	for k := range taker {
		taker[k] = -1
	}
	for d := range have {
		if !augment(d, have, units, taker, make([]bool, len(units))) {
			var texts []string
			for k := range wants {
				texts = append(texts, strconv.Quote(wants[k].Text))
			}
			c.of(i, "%s: %s is not among what was asked for: %s", what, c.p.Devices[have[d]].ID, strings.Join(texts, ", "))
			return
		}
	}
}

func augment(d int, have []int, units []*Want, taker []int, tried []bool) bool {
	for k, w := range units {
		if tried[k] || !slices.Contains(w.Any, have[d]) {
			continue
		}
		tried[k] = true
		if taker[k] < 0 || augment(taker[k], have, units, taker, tried) {
			taker[k] = d
			return true
		}
	}
	return false
}

// functionsOf returns the names of all that go to a lab node with a device.
func functionsOf(dev *Device) []string {
	if len(dev.Functions) == 0 {
		return []string{dev.ID}
	}
	return dev.Functions
}

// functions checks that Devices and Cards name the same functions: all of the bundles, none twice.
func (c *checker) functions(i int, n *Node) {
	want := map[string]string{} // function to the card that it is of
	for _, d := range slices.Concat(c.found[i].gpus, c.found[i].nics) {
		for _, fn := range functionsOf(&c.p.Devices[d]) {
			want[fn] = c.p.Devices[d].ID
		}
		want[c.p.Devices[d].ID] = c.p.Devices[d].ID
	}
	ofCards := map[string]bool{}
	for _, card := range n.Cards {
		if card.Kind == KindVF && card.VF != nil {
			want[c.vfName(card.ID, *card.VF)] = card.ID
		}
		name := card.ID
		if card.Kind == KindVF && card.VF != nil {
			name = c.vfName(card.ID, *card.VF)
		}
		if len(card.Functions) > 0 && card.Functions[0] != name {
			c.of(i, "cards: %s: the first function is %s, want %s itself", printable(card.ID), printable(card.Functions[0]), printable(name))
		}
		ofCards[name] = true
		for _, fn := range card.Functions {
			ofCards[fn] = true
		}
	}
	have := map[string]bool{}
	for _, fn := range n.Devices {
		if have[fn] {
			c.of(i, "devices: %s is there twice", printable(fn))
		}
		have[fn] = true
		if _, ok := want[fn]; !ok {
			c.of(i, "devices: %s is of none of its cards", printable(fn))
		}
	}
	for _, fn := range slices.Sorted(maps.Keys(want)) {
		switch {
		case !have[fn]:
			c.of(i, "devices: %s is missing; it goes with %s", printable(fn), printable(want[fn]))
		case !ofCards[fn]:
			c.of(i, "cards: none has function %s, which goes with %s", printable(fn), printable(want[fn]))
		}
	}
	for _, fn := range slices.Sorted(maps.Keys(ofCards)) {
		if !have[fn] {
			c.of(i, "devices: %s of its cards is missing", printable(fn))
		}
	}
	c.inOrder(i, n)
}

// inOrder checks that the devices themselves come in the order of the cards.
func (c *checker) inOrder(i int, n *Node) {
	at := -1
	for _, card := range n.Cards {
		name := card.ID
		if card.Kind == KindVF && card.VF != nil {
			name = c.vfName(card.ID, *card.VF)
		}
		k := slices.Index(n.Devices, name)
		if k >= 0 && k < at {
			c.of(i, "devices: %s does not come in the order of its cards", printable(name))
			return
		}
		at = max(at, k)
	}
}

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

// exclusive checks that nothing goes to two lab nodes: functions, devices and bundles.
func (c *checker) exclusive() {
	owner := map[string]int{}
	bundle := map[int]int{}  // lab node
	through := map[int]int{} // device by which it has the bundle
	for i, n := range c.nodes {
		if n == nil {
			continue
		}
		for _, fn := range n.Devices {
			if other, taken := owner[fn]; taken && other != i {
				c.of(i, "devices: %s goes to %s already", printable(fn), c.name(other))
			} else {
				owner[fn] = i
			}
		}
		whole := slices.Concat(c.found[i].gpus, c.found[i].nics)
		for k, d := range whole {
			if slices.Contains(whole[:k], d) {
				c.of(i, "cards: %s is there twice", c.p.Devices[d].ID)
			}
			b := c.p.Devices[d].Bundle
			if other, taken := bundle[b]; taken && other != i {
				c.of(i, "cards: %s can only go together with %s, which %s has", c.p.Devices[d].ID, c.p.Devices[through[b]].ID, c.name(other))
			} else {
				bundle[b], through[b] = i, d
			}
		}
	}
}

// groups checks against the host what cannot be taken apart or is somebody's: IOMMU groups, functions of a GPU, devices of tenants and of the host itself.
func (c *checker) groups() {
	owner := map[string]int{}
	for i, n := range c.nodes {
		if n == nil {
			continue
		}
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
				c.fault("devices: IOMMU group %d: %s goes to %s and %s to %s; a group is not taken apart", id, first, c.name(a), fn, c.name(b))
			}
		}
	}
	for k := range c.h.GPUs {
		g := &c.h.GPUs[k]
		for _, fn := range g.Functions {
			if a, b := of(g.ID()), of(fn.String()); a >= 0 && a != b {
				c.fault("devices: %s goes to %s and %s, a function of the same device, to %s", g.ID(), c.name(a), fn, c.name(b))
			}
		}
	}
	c.needed(of)
	if c.believesTenants() {
		c.tenantDevices(of)
	}
}

// iommuGroups returns the functions of each group without bridges, which stay with the host, and without virtual functions, which go with their NIC.
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
	for k := range c.h.PCI {
		d := &c.h.PCI[k]
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

// needed checks that the host keeps what it lives on.
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
			c.of(i, "devices: %s has disk %s of the host, mounted on %s", disk.PCI, disk.Name, strings.Join(disk.Mounts, " "))
		}
	}
}

// tenantDevices names the tenants that hold what a lab node is to get, or a virtual function of it.
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
				c.of(i, "devices: %s belongs to tenant %q", d.PCI, cmp.Or(t.Name, t.UUID, "without a name"))
			}
			if parent, ok := pf[d.PCI]; ok {
				if i := of(parent.String()); i >= 0 {
					c.of(i, "devices: %s has a virtual function, %s, that belongs to tenant %q", parent, d.PCI, cmp.Or(t.Name, t.UUID, "without a name"))
				}
			}
		}
	}
}

// virtual checks the virtual functions: no more than may be given, no index twice, none of a NIC that is given whole, and PFs that have to have enough of them.
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
			d := slices.IndexFunc(c.p.Devices, func(d Device) bool { return d.Kind == KindNIC && d.ID == card.ID })
			if card.Kind != KindVF || card.VF == nil || d < 0 {
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
		if u := byPF[dev.ID]; dev.Kind == KindNIC && u.count > dev.VFs {
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
