package search

import (
	"slices"
)

// Symmetry breaking: of placements that differ only in the names of interchangeable lab nodes or devices, only one is
// tried.
//
// The case that needs it for devices: four lab nodes with whole NICs on a machine with mostly equal NICs
// (openshift-must-gather, bare metal). It is proved at 21190; otherwise the search is stopped at 25150.

// findRepresentatives verifies classes, so that a wrong one cannot make the search wrong.
func (m *model) findRepresentatives() {
	for i := range m.requests {
		m.requests[i].rep = i
	}
	for _, members := range m.classes {
		for k, i := range members {
			for _, j := range members[:k] {
				if m.requests[j].rep == j && m.requests[i].interchangeable(&m.requests[j]) {
					m.requests[i].rep = j
					break
				}
			}
		}
	}
}

func (r *request) interchangeable(o *request) bool {
	return len(r.peers) == 0 && len(o.peers) == 0 && r.cores == o.cores && r.threads == o.threads &&
		r.pages == o.pages && r.w == o.w &&
		slices.EqualFunc(r.wants, o.wants, func(x, y want) bool {
			return x.kind == y.kind && x.count == y.count && slices.Equal(x.any, y.any)
		})
}

// symmetryWork is in comparisons.
const symmetryWork = 20_000_000

// findSymmetries finds interchangeable devices: alone in their bundles, with equal properties, wanted by the same lab
// nodes, and with the same paths to all other devices. The relation is transitive, so each device only stores the last
// one before it.
func (m *model) findSymmetries() {
	n := len(m.devices)
	m.symmetric = slices.Repeat([]int{-1}, n)
	size := make([]int, m.bundles)
	for d := range m.devices {
		size[m.devices[d].bundle]++
	}
	wanted := make([][]bool, n)
	for i := range m.requests {
		if m.requests[i].rep != i {
			continue
		}
		for _, w := range m.requests[i].wants {
			for d := range m.devices {
				_, found := slices.BinarySearch(w.any, d)
				wanted[d] = append(wanted[d], found)
			}
		}
	}
	work := 0
	for d := range m.devices {
		if work > symmetryWork {
			break // a missed symmetry only costs time
		}
		if size[m.devices[d].bundle] > 1 {
			continue
		}
		for o := d - 1; o >= 0; o-- {
			work++
			if m.devices[o].home == m.devices[d].home {
				work += n
			}
			if size[m.devices[o].bundle] == 1 && m.alike(o, d) && slices.Equal(wanted[o], wanted[d]) {
				m.symmetric[d] = o
				break
			}
		}
	}
	m.partCards()
}

// partCards drops the symmetry of ports of two cards unless the cards are of one size, with all ports alike.
func (m *model) partCards() {
	m.onCard = make([][]int, len(m.devices))
	uniform, alike := map[int]bool{}, slices.Clone(m.symmetric)
	for d := range m.devices {
		if k := m.devices[d].card; k >= 0 {
			m.onCard[k] = append(m.onCard[k], d)
			uniform[k] = k == d || uniform[k] && alike[d] >= 0 && m.devices[alike[d]].card == k
		}
	}
	for d := range m.devices {
		o := alike[d]
		for a := m.devices[d].card; o >= 0; o = alike[o] {
			b := m.devices[o].card
			if a == b || a >= 0 && b >= 0 && uniform[a] && uniform[b] && len(m.onCard[a]) == len(m.onCard[b]) {
				break
			}
		}
		m.symmetric[d] = o
	}
}

func (m *model) alike(a, b int) bool {
	x, y := m.devices[a], m.devices[b]
	x.bundle, x.card = y.bundle, y.card
	if x != y {
		return false
	}
	for d := range m.devices {
		if d != a && d != b && (m.pair(a, d) != m.pair(b, d) || m.gpuPair(a, d) != m.gpuPair(b, d)) {
			return false
		}
	}
	return true
}

func (e *enumerator) redundant(d int) bool {
	t := e.s.m.symmetric[d]
	if !e.breakSymmetry || t < 0 || !e.untouched(t) || !e.s.untouched(d) {
		return false
	}
	card := e.s.m.devices[d].card
	if other := e.s.m.devices[t].card; card != other {
		touched := func(o int) bool { return !e.untouched(o) }
		return !slices.ContainsFunc(e.s.m.onCard[card], touched) && !slices.ContainsFunc(e.s.m.onCard[other], touched)
	}
	return true
}

func (e *enumerator) untouched(d int) bool {
	return e.s.untouched(d) && !e.picked[d] && e.count[d] == 0
}
