package search

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/plan"
)

// The case that needs this: 16 cores of an empty EPYC 7763, whose L3 caches have 8 cores each. CPU 0 stays with the
// host, and the cores after it are in three caches (7, 8 and 1), although two whole ones cost the same.

const maxTidyTries = 32

type coreKind struct {
	node, pkg, threads int
	small              bool
}

func kindOf(c *plan.Core) coreKind { return coreKind{c.NUMANode, c.Package, len(c.CPUs), c.Efficiency} }

func (k coreKind) compare(o coreKind) int {
	return cmp.Or(cmp.Compare(k.node, o.node), cmp.Compare(k.pkg, o.pkg), cmp.Compare(k.threads, o.threads))
}

// A tidier moves cores of lab nodes within their NUMA nodes, without changing the cost.
type tidier struct {
	l     *plan.Layout
	p     *plan.Problem
	worth map[int]int // to the host, see worthToHost
	cost  int64
	tries int
}

// tidyCores gives the cores of each lab node on a NUMA node in as few L3 caches as possible, and then in as few ranges.
func tidyCores(l *plan.Layout, p *plan.Problem, pl *plan.Placement, cost int64, worth map[int]int) {
	t := &tidier{l: l, p: p, worth: worth, cost: cost}
	if torn := t.torn(pl); len(torn) > 0 {
		all := make([]int, len(pl.Nodes))
		for i := range all {
			all[i] = i
		}
		slices.SortStableFunc(all, func(a, b int) int {
			return cmp.Compare(len(pl.Nodes[b].Cores), len(pl.Nodes[a].Cores))
		})
		t.repack(pl, all)
		for _, i := range torn {
			t.repack(pl, []int{i})
		}
	}
	t.sortWithinCaches(pl)
}

func (t *tidier) torn(pl *plan.Placement) []int {
	type cache struct {
		kind coreKind
		l3   int
	}
	sizes, largest := map[cache]int{}, map[coreKind]int{}
	for i := range t.p.Cores {
		if c := &t.p.Cores[i]; c.L3 >= 0 && c.Tenant == "" {
			k := cache{kindOf(c), c.L3}
			sizes[k]++
			largest[k.kind] = max(largest[k.kind], sizes[k])
		}
	}
	var torn []int
	for i := range pl.Nodes {
		count, used := map[coreKind]int{}, map[cache]bool{}
		for _, id := range pl.Nodes[i].Cores {
			if c := t.l.Cores[id]; c.L3 >= 0 {
				k := cache{kindOf(c), c.L3}
				count[k.kind]++
				used[k] = true
			}
		}
		least := 0
		for k, n := range count {
			least += (n + largest[k] - 1) / largest[k]
		}
		if len(used) > least {
			torn = append(torn, i)
		}
	}
	return torn
}

func (t *tidier) pieces(pl *plan.Placement) (worth, caches int) {
	for i := range pl.Nodes {
		seen := map[int]bool{}
		for _, id := range pl.Nodes[i].Cores {
			worth += t.worth[id]
			if l3 := t.l.Cores[id].L3; l3 >= 0 {
				seen[l3] = true
			}
		}
		caches += len(seen)
	}
	return worth, caches
}

func (t *tidier) repack(pl *plan.Placement, who []int) {
	worth, caches := t.pieces(pl)
	for most := range 3 {
		if t.tries == maxTidyTries || most > 0 && worth == 0 {
			return
		}
		next := t.packed(pl, who, most)
		if next == nil {
			continue
		}
		w, c := t.pieces(next)
		if w > worth || w == worth && c >= caches {
			continue
		}
		if t.tries++; t.l.Fits(next) && t.l.Cost(next) == t.cost {
			*pl = *next
			return
		}
	}
}

// packed chooses cores of the same kinds, of at most so much worth to the host. It returns nil if there are too few.
func (t *tidier) packed(pl *plan.Placement, who []int, most int) *plan.Placement {
	next := pl.Exchangeable()
	counts := make([]map[coreKind]int, len(pl.Nodes))
	owner := map[int]int{} // by core
	for i := range next.Nodes {
		if !slices.Contains(who, i) {
			for _, id := range next.Nodes[i].Cores {
				owner[id] = i
			}
			continue
		}
		counts[i] = map[coreKind]int{}
		for _, id := range next.Nodes[i].Cores {
			counts[i][kindOf(t.l.Cores[id])]++
		}
		next.Nodes[i].Cores = nil
	}
	for _, i := range who {
		n := &next.Nodes[i]
		for _, k := range slices.SortedFunc(maps.Keys(counts[i]), coreKind.compare) {
			caches := t.caches(owner, i, k, most)
			for left := counts[i][k]; left > 0; {
				x := bestCache(caches, left)
				if x < 0 {
					return nil
				}
				give := caches[x].free[:min(left, len(caches[x].free))]
				for _, id := range give {
					owner[id] = i
				}
				n.Cores = append(n.Cores, give...)
				left -= len(give)
				caches = slices.Delete(caches, x, x+1)
			}
		}
		slices.Sort(n.Cores)
	}
	return next
}

type freeCache struct {
	free   []int
	shared bool
}

func (t *tidier) caches(owner map[int]int, i int, k coreKind, most int) []freeCache {
	var caches []freeCache
	at := map[int]int{} // by L3: index of caches
	for c := range t.p.Cores {
		core := &t.p.Cores[c]
		x, known := at[core.L3]
		if !known {
			x = len(caches)
			at[core.L3] = x
			caches = append(caches, freeCache{})
		}
		who, given := owner[core.ID]
		switch {
		case core.Tenant != "" || given && who != i:
			caches[x].shared = caches[x].shared || core.L3 >= 0
		case !given && kindOf(core) == k && t.worth[core.ID] <= most:
			caches[x].free = append(caches[x].free, core.ID)
		}
	}
	for x := range caches {
		slices.SortFunc(caches[x].free, func(a, b int) int {
			return cmp.Or(cmp.Compare(t.worth[a], t.worth[b]), cmp.Compare(a, b))
		})
	}
	return slices.DeleteFunc(caches, func(c freeCache) bool { return len(c.free) == 0 })
}

// bestCache is the smallest cache that holds all, else the largest; of these one without others. -1: no caches.
func bestCache(caches []freeCache, left int) int {
	best := -1
	better := func(a, b *freeCache) bool {
		x, y := len(a.free), len(b.free)
		if x >= left != (y >= left) {
			return x >= left
		}
		if a.shared != b.shared {
			return b.shared
		}
		if x != y {
			return x < y == (x >= left)
		}
		return a.free[0] < b.free[0]
	}
	for x := range caches {
		if best < 0 || better(&caches[x], &caches[best]) {
			best = x
		}
	}
	return best
}

// sortWithinCaches gives earlier lab nodes the lower of equal cores, and leaves no number out.
func (t *tidier) sortWithinCaches(pl *plan.Placement) {
	type alike struct {
		coreKind
		l3, worth int
	}
	of := func(c *plan.Core) alike { return alike{kindOf(c), c.L3, t.worth[c.ID]} }
	cores := map[alike][]int{}
	for i := range t.p.Cores {
		if c := &t.p.Cores[i]; c.Tenant == "" {
			cores[of(c)] = append(cores[of(c)], c.ID)
		}
	}
	for _, list := range cores {
		slices.Sort(list)
	}
	next := map[alike]int{}
	for i := range pl.Nodes {
		own := slices.Clone(pl.Nodes[i].Cores)
		for x, id := range own {
			k := of(t.l.Cores[id])
			own[x] = cores[k][next[k]]
			next[k]++
		}
		slices.Sort(own)
		pl.Nodes[i].Cores = own
	}
}
