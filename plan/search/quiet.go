package search

import "slices"

// A lab node is quiet when it shares no L3 cache, and loud otherwise; a loud one costs at least the
// weight of one share. To be quiet it needs caches of its own, and the idle cores under them are
// lost to others. So counting caches and idle cores bounds how many lab nodes can be quiet,
// whatever the placement.

// quietness is what is known of the lab nodes from a position of an order on.
type quietness struct {
	labs   int
	byIdle int   // how many can be quiet for the idle cores that there are
	caches []int // how many caches the 1, 2, 3 ... least demanding ones of them need together
}

// measureL3 finds the sizes of the L3 caches and what follows for all lab nodes together.
func (t *tree) measureL3() {
	m := t.m
	if m.p.Weights.L3Shared == 0 {
		return
	}
	t.coverAll = m.cover() * m.p.Weights.L3Shared
	t.loudAll = t.coverAll
	most := 0
	for i := range m.requests {
		most = max(most, m.requests[i].cores)
	}
	t.widest = 0
	var sizes []int
	for _, l := range m.l3s {
		size := 0
		for _, c := range l.cells {
			size += len(m.cells[c].cores)
		}
		if size > 0 && !l.tenant {
			t.widest = max(t.widest, size)
			sizes = append(sizes, size)
		}
	}
	for _, c := range m.cells {
		if c.l3 < 0 {
			t.waste = nil // cores under no known cache make nobody loud
			return
		}
	}
	// reach[n] says that some caches have n cores together; only those that a lab node could need count.
	reach := make([]bool, most+t.widest+1)
	reach[0] = true
	top := 0
	for _, size := range sizes {
		for n := min(len(reach)-1, top+size); n >= size; n-- {
			reach[n] = reach[n] || reach[n-size]
		}
		top = min(len(reach)-1, top+size)
		if t.work.add(int64(top) / 16) {
			return
		}
	}
	t.waste = make([]int, most+1)
	next := -1
	for n := len(reach) - 1; n >= 0; n-- {
		if reach[n] {
			next = n
		}
		if n <= most {
			t.waste[n] = -1
			if next >= 0 {
				t.waste[n] = next - n
			}
		}
	}
	t.count(t.order)
	t.loudAll = max(t.loudAll, t.loud(0))
}

// count prepares the bound for an order of lab nodes.
func (t *tree) count(order []int) {
	t.quiet = zero(t.quiet, len(order)+1)
	if t.waste == nil {
		return
	}
	m := t.m
	var idle, caches []int
	for k := len(order) - 1; k >= 0; k-- {
		cores := m.requests[order[k]].cores
		q := &t.quiet[k]
		q.labs = len(order) - k
		if w := t.waste[cores]; w >= 0 {
			at, _ := slices.BinarySearch(idle, w)
			idle = slices.Insert(idle, at, w)
			need := (cores + t.widest - 1) / t.widest
			at, _ = slices.BinarySearch(caches, need)
			caches = slices.Insert(caches, at, need)
		}
		left := m.free - m.asked
		for _, w := range idle {
			if left -= w; left < 0 {
				break
			}
			q.byIdle++
		}
		sum := 0
		for _, n := range caches {
			sum += n
			q.caches = append(q.caches, sum)
		}
	}
}

// loud returns what the lab nodes from position k of the order on cost at least for sharing caches,
// beside what those already placed cost.
func (t *tree) loud(k int) int64 {
	if t.waste == nil || t.quiet[k].labs == 0 {
		return 0
	}
	q := &t.quiet[k]
	fresh := t.s.freshL3s()
	byCaches, _ := slices.BinarySearch(q.caches, fresh+1)
	quiet := min(q.byIdle, byCaches)
	return int64(q.labs-quiet) * t.m.p.Weights.L3Shared
}

// freshL3s returns how many L3 caches can still be without an owner, at most.
func (s *state) freshL3s() int {
	m := s.m
	fresh := 0
	for k := range m.comps {
		comp := &m.comps[k]
		given := 0
		for _, q := range s.compAt[k] {
			given += q.n
		}
		for x, l := range comp.l3s {
			if m.l3s[l].tenant {
				given -= comp.sizes[x]
				continue
			}
			fresh++
		}
		// Those given cores fill the largest caches first.
		for _, size := range comp.large {
			if given <= 0 {
				break
			}
			given -= size
			fresh--
		}
	}
	return fresh
}
