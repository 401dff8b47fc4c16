package verify

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

func (c *checker) devices() {
	// If a host is only known by a GPU matrix, IDs are names, and a GPU and a NIC may have the same.
	index := map[[2]string]int{}
	for d := range c.p.Devices {
		index[[2]string{c.p.Devices[d].Kind, c.p.Devices[d].ID}] = d
	}
	for i, n := range c.placed() {
		c.cards(i, n, index)
		r, f := &c.p.Requests[i], &c.found[i]
		c.answer(i, "gpus", f.gpus, r.GPUs)
		c.answer(i, "nics", f.nics, r.NICs)
		c.answer(i, "vfs", f.vfs, r.VFs)
		c.functions(i, n)
		if want := c.l.Nodes[i].NICs; !slices.Equal(n.NICs, want) {
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

func (c *checker) cards(i int, n *plan.Node, index map[[2]string]int) {
	f := &c.found[i]
	order := []string{plan.KindGPU, plan.KindNIC, plan.KindVF}
	lists := []*[]int{&f.gpus, &f.nics, &f.vfs}
	last := 0
	for _, card := range n.Cards {
		rank := slices.Index(order, card.Kind)
		if rank < 0 {
			c.of(i, "cards: %q is a %q; want gpu, nic or vf", card.ID, card.Kind)
			continue
		}
		if rank < last {
			c.of(i, "cards: %s comes after a %s; want GPUs, NICs, then VFs", words.Plain(card.ID), order[last])
		}
		last = max(last, rank)
		kind, virtual := card.Kind, card.Kind == plan.KindVF
		if virtual {
			kind = plan.KindNIC
		}
		d, ok := index[[2]string{kind, card.ID}]
		if !ok {
			c.of(i, "cards: the problem has no %s %q", kind, card.ID)
			continue
		}
		dev := &c.p.Devices[d]
		c.onHost(i, dev)
		if !virtual && !dev.Whole {
			c.of(i, "cards: %s may not be given away: %s", dev.ID, dev.Refused)
		}
		if !virtual && card.VF != nil {
			c.of(i, "cards: %s is a %s and names virtual function %d", dev.ID, card.Kind, *card.VF)
		}
		if virtual && card.VF == nil {
			c.of(i, "cards: a virtual function of %s has no index", dev.ID)
		}
		*lists[rank] = append(*lists[rank], d)
		c.place(i, n, &card, dev)
	}
	for _, list := range lists {
		slices.Sort(*list) // keep duplicates, which exclusive reports
	}
}

// onHost compares NUMA nodes if there are several: with one, the problem puts every device there.
func (c *checker) onHost(i int, dev *plan.Device) {
	found := false
	var node *int
	look := func(kind, id string, at *int) {
		if dev.Kind == kind && dev.ID == id {
			found, node = true, at
		}
	}
	for _, g := range c.h.GPUs {
		look(plan.KindGPU, g.ID(), g.NUMANode)
	}
	for _, n := range c.h.NICs {
		look(plan.KindNIC, n.ID(), n.NUMANode)
	}
	if !found {
		c.of(i, "cards: the host has no %s %s", dev.Kind, dev.ID)
	}
	if node != nil && len(c.m.nodes) > 1 && slices.Contains(c.m.nodes, *node) && known(dev.NUMANode) != known(node) {
		c.fault("problem: %s is on NUMA node %s, the host says %d", dev.ID, known(dev.NUMANode), *node)
	}
}

// place wants a card in the cell of its NUMA node, or else in a nearest cell.
func (c *checker) place(i int, n *plan.Node, card *plan.NodeDevice, dev *plan.Device) {
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
	far := func(k int) int64 {
		if d, ok := c.m.nearest(n.Cells[k].NUMANodes, *dev.NUMANode); ok {
			return d
		}
		return 1 << 30
	}
	best := 0
	for k := range n.Cells {
		if far(k) < far(best) {
			best = k
		}
	}
	if far(*card.Cell) > far(best) {
		c.of(i, "cards: %s is on NUMA node %d: have cell %d, want cell %d, which is nearer", card.ID, *dev.NUMANode,
			*card.Cell, best)
	}
}

func known(n *int) string {
	if n == nil {
		return "none"
	}
	return strconv.Itoa(*n)
}

// answer matches devices with wants instead of counting for each want, because a device that matches two wants must not
// be used for the one that other devices could satisfy.
func (c *checker) answer(i int, what string, have []int, wants []plan.Want) {
	var units []*plan.Want // one want per device
	for k := range wants {
		for range min(wants[k].Count, len(have)+1) {
			units = append(units, &wants[k])
		}
	}
	if len(units) != len(have) {
		asked := lists.Sum(wants, func(w plan.Want) int { return w.Count })
		c.of(i, "%s: have %d, want %d", what, len(have), asked)
		return
	}
	// Kuhn's algorithm.
	taker := make([]int, len(units))
	for k := range taker {
		taker[k] = -1
	}
	for d := range have {
		if !augment(d, have, units, taker, make([]bool, len(units))) {
			texts := lists.Map(wants, func(w plan.Want) string { return strconv.Quote(w.Text) })
			c.of(i, "%s: %s is not among what was asked for: %s", what, c.p.Devices[have[d]].ID,
				strings.Join(texts, ", "))
			return
		}
	}
}

func augment(d int, have []int, units []*plan.Want, taker []int, tried []bool) bool {
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

// functions compares Devices, bound to vfio-pci, with Cards, for readers. vfio would refuse a group if a function of
// the bundle stayed with the host.
func (c *checker) functions(i int, n *plan.Node) {
	want := map[string]string{} // function to its card
	for _, d := range slices.Concat(c.found[i].gpus, c.found[i].nics) {
		dev := &c.p.Devices[d]
		for _, fn := range dev.Functions {
			want[fn] = dev.ID
		}
		want[dev.ID] = dev.ID
	}
	ofCards := map[string]bool{}
	for _, card := range n.Cards {
		name := c.cardName(&card)
		if card.Kind == plan.KindVF && card.VF != nil {
			want[name] = card.ID
		}
		if len(card.Functions) > 0 && card.Functions[0] != name {
			c.of(i, "cards: %s: the first function is %s, want %s itself", words.Plain(card.ID),
				words.Plain(card.Functions[0]), words.Plain(name))
		}
		ofCards[name] = true
		for _, fn := range card.Functions {
			ofCards[fn] = true
		}
	}
	have := map[string]bool{}
	for _, fn := range n.Devices {
		if have[fn] {
			c.of(i, "devices: %s is there twice", words.Plain(fn))
		}
		have[fn] = true
		if _, ok := want[fn]; !ok {
			c.of(i, "devices: %s is of none of its cards", words.Plain(fn))
		}
	}
	for _, fn := range slices.Sorted(maps.Keys(want)) {
		switch {
		case !have[fn]:
			c.of(i, "devices: %s is missing; it goes with %s", words.Plain(fn), words.Plain(want[fn]))
		case !ofCards[fn]:
			c.of(i, "cards: none has function %s, which goes with %s", words.Plain(fn), words.Plain(want[fn]))
		}
	}
	for _, fn := range slices.Sorted(maps.Keys(ofCards)) {
		if !have[fn] {
			c.of(i, "devices: %s of its cards is missing", words.Plain(fn))
		}
	}
	c.inOrder(i, n)
}

// inOrder checks positions: ports are named by them, so another order would swap the addresses of two networks.
func (c *checker) inOrder(i int, n *plan.Node) {
	last := -1
	for _, card := range n.Cards {
		name := c.cardName(&card)
		k := slices.Index(n.Devices, name)
		if k >= 0 && k < last {
			c.of(i, "devices: %s does not come in the order of its cards", words.Plain(name))
			return
		}
		last = max(last, k)
	}
}

// exclusive checks rule 4.
func (c *checker) exclusive() {
	owner := map[string]int{}
	bundle := map[int]int{}  // bundle to lab node
	through := map[int]int{} // bundle to a device
	for i, n := range c.placed() {
		for _, fn := range n.Devices {
			if other, taken := owner[fn]; taken && other != i {
				c.of(i, "devices: %s goes to %s already", words.Plain(fn), c.name(other))
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
				c.of(i, "cards: %s can only go together with %s, which %s has", c.p.Devices[d].ID,
					c.p.Devices[through[b]].ID, c.name(other))
			} else {
				bundle[b], through[b] = i, d
			}
		}
	}
}
