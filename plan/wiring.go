package plan

import "slices"

// A Wiring says which ports are on one card and, where the lab names links, which reach each other.
type Wiring struct {
	card []int // of a device: the first NIC of its card, -1 where it is alone there
	net  []int // of a device: the same number for ports that reach each other; nil without links
}

// Wiring returns how the ports of the problem hang together; nil where no card has two and no link is named.
func (p *Problem) Wiring() *Wiring {
	w := &Wiring{card: slices.Repeat([]int{-1}, len(p.Devices))}
	// A card counts only once a second of its ports is found: until then its first port is alone.
	cards, first, linked := false, map[string]int{}, false
	for d := range p.Devices {
		dev := &p.Devices[d]
		linked = linked || dev.Net > 0
		card := dev.Card()
		if dev.Kind != KindNIC || card == "" {
			continue
		}
		if o, known := first[card]; known {
			w.card[o], w.card[d], cards = o, o, true
		} else {
			first[card] = d
		}
	}
	for d := range p.Devices {
		if net := p.Devices[d].Net; linked && net > 0 {
			w.net = append(w.net, net)
		} else if linked {
			// Below 0, so that it is no number of a link; each port without one has its own.
			w.net = append(w.net, -d-1) // virtual functions of one port reach each other
		}
	}
	if !cards && !linked {
		return nil
	}
	return w
}

// Card returns what stands for the card of a device, -1 where it is the only NIC there.
func (w *Wiring) Card(d int) int {
	if w == nil {
		return -1
	}
	return w.card[d]
}

// Linked reports whether the lab names links.
func (w *Wiring) Linked() bool { return w != nil && w.net != nil }

// Between compares the ports of two lab nodes: cards counts those of which both have ports, but none in common;
// unlinked the ports of the one with fewer that have no port of the other to reach. It is symmetric. A port that both
// have counts for neither: both lab nodes are then on that card already.
func (w *Wiring) Between(a, b []int) (cards, unlinked int64) {
	// How many of the ports are of group k, in the sense of of.
	on := func(of, ports []int, k int) (n int64) {
		for _, d := range ports {
			if of[d] == k {
				n++
			}
		}
		return n
	}
	for x, d := range a {
		// Each card counts once, at its first port in a.
		k := w.card[d]
		if k < 0 || on(w.card, a[:x], k) > 0 || on(w.card, b, k) == 0 {
			continue
		}
		if !slices.ContainsFunc(a, func(o int) bool { return w.card[o] == k && slices.Contains(b, o) }) {
			cards++
		}
	}
	if w.net == nil {
		return cards, 0
	}
	// Among the ports that reach each other, as many pairs can be made as the node with fewer of them has. The ports of
	// the smaller node that are in no pair are unlinked.
	unlinked = int64(min(len(a), len(b)))
	for x, d := range a {
		if k := w.net[d]; on(w.net, a[:x], k) == 0 {
			unlinked -= min(on(w.net, a, k), on(w.net, b, k))
		}
	}
	return cards, unlinked
}
