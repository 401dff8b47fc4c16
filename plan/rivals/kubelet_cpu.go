package rivals

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

// A cpu is a logical CPU with what it is part of.
type cpu struct{ id, core, socket, node int }

// A cpuTopology is what the CPU manager knows of the machine: all CPUs, reserved ones as well.
type cpuTopology []cpu

// cpuTopology makes the CPU manager's view. If packages are not known, each NUMA node counts as one.
func (h *host) cpuTopology() cpuTopology {
	unknown := slices.ContainsFunc(h.p.Cores, func(c plan.Core) bool { return c.Package < 0 })
	var t cpuTopology
	for _, c := range h.p.Cores {
		socket := words.Either(unknown, c.NUMANode, c.Package)
		for _, id := range c.CPUs {
			t = append(t, cpu{id, c.ID, socket, c.NUMANode})
		}
	}
	slices.SortFunc(t, func(a, b cpu) int { return cmp.Compare(a.id, b.id) })
	return t
}

// A level groups CPUs.
type level func(cpu) int

func byCore(c cpu) int   { return c.core }
func bySocket(c cpu) int { return c.socket }
func byNode(c cpu) int   { return c.node }

// count counts CPUs by group, of those that free has; of all for nil.
func (t cpuTopology) count(by level, free map[int]bool) map[int]int {
	n := map[int]int{}
	for _, c := range t {
		if free == nil || free[c.id] {
			n[by(c)]++
		}
	}
	return n
}

// perCore and perSocket are averages, rounded down: the CPU manager takes all cores and all sockets for equal.
func (t cpuTopology) perCore() int { return max(1, len(t)/max(1, len(t.count(byCore, nil)))) }

// order sorts the free CPUs, so that parts of the machine that are broken already are used up before
// others are broken: by groups of the first level, the ones with the fewest free CPUs
// first, then the lowest; inside each by the next level. The last level is the CPU's number.
func (t cpuTopology) order(free map[int]bool, levels ...level) []cpu {
	list := lists.Filter(t, func(c cpu) bool { return free[c.id] })
	counts := make([]map[int]int, len(levels))
	for k, by := range levels {
		counts[k] = t.count(by, free)
	}
	slices.SortStableFunc(list, func(a, b cpu) int {
		for k, by := range levels {
			x, y := by(a), by(b)
			if d := cmp.Or(cmp.Compare(counts[k][x], counts[k][y]), cmp.Compare(x, y)); d != 0 {
				return d
			}
		}
		return cmp.Compare(a.id, b.id)
	})
	return list
}

// packed takes n of the free CPUs, as few parts of the machine as possible broken:
// takeByTopologyNUMAPacked. It returns them ascending; nil if there are too few.
func (t cpuTopology) packed(free map[int]bool, n int) []int {
	if n == 0 || len(free) < n {
		return nil
	}
	// What is higher goes first: a NUMA node that holds sockets, or a socket that holds NUMA nodes.
	nodeSize := t.count(byNode, nil)
	high, highSize := level(bySocket), func(int) int { return len(t) / max(1, len(t.count(bySocket, nil))) }
	low, lowSize := level(byNode), func(g int) int { return nodeSize[g] }
	if len(t.count(bySocket, nil)) >= len(nodeSize) {
		high, low, highSize, lowSize = low, high, lowSize, highSize
	}
	left := maps.Clone(free)
	var got []int
	// whole takes groups that are free as a whole and not larger than what is still needed. size is
	// what a whole group has.
	whole := func(by level, size func(group int) int, levels ...level) {
		have := t.count(by, left)
		var groups []int
		for _, c := range t.order(left, levels...) {
			if g := by(c); !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
		for _, g := range groups {
			if have[g] != size(g) || have[g] > n-len(got) {
				continue
			}
			for _, c := range t {
				if by(c) == g && left[c.id] {
					got = append(got, c.id)
					delete(left, c.id)
				}
			}
		}
	}
	whole(high, highSize, high)
	whole(low, lowSize, high, low)
	whole(byCore, func(int) int { return t.perCore() }, high, low, byCore)
	for _, c := range t.order(left, high, low, byCore) {
		if len(got) == n {
			break
		}
		got = append(got, c.id)
	}
	slices.Sort(got)
	return got
}

// allocate takes n of the free CPUs, aligned ones first: allocateCPUs of the static policy. What is
// taken from the rest is packed by itself, so that a core may be broken on each side.
func (t cpuTopology) allocate(free map[int]bool, n int, aligned func(cpu) bool) []int {
	near := map[int]bool{}
	for _, c := range t {
		if free[c.id] && aligned(c) {
			near[c.id] = true
		}
	}
	got := t.packed(near, min(n, len(near)))
	rest := maps.Clone(free)
	for _, id := range got {
		delete(rest, id)
	}
	return append(got, t.packed(rest, n-len(got))...)
}
