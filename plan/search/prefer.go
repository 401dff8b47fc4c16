package search

import (
	"context"
	"slices"

	"github.com/rackless/rackless/plan"
)

// Preferences decide among placements of equal cost. They have no weight, because no source says how much they
// matter, so that bound and proof ignore them.
//
// The cases that need them: two lab nodes without devices on examples/hosts/h20.txt, both beside the memory controller
// of one socket with the other one idle; two virtual functions of one port of examples/hosts/r740.ttar, with its other
// port unused.

const (
	preferSteps  = 5_000  // least work on preferences
	preferShare  = 5      // or the search's own work divided by this
	preferColumn = 10_000 // most work on one lab node at a time
)

// A burden counts the disadvantages of a placement that have no cost, the most important first.
type burden struct {
	repeated int64 // virtual functions of the lab node beyond the first of each NIC, which share a link
	onNodes  int64 // sum over the NUMA nodes of the square of the cores in use, lower if lab nodes are spread
	onPkgs   int64 // the same over the packages
}

func (b burden) less(o burden) bool {
	return slices.Compare([]int64{b.repeated, b.onNodes, b.onPkgs}, []int64{o.repeated, o.onNodes, o.onPkgs}) < 0
}

// A preference places lab nodes of a finished placement again, at most at its cost.
type preference struct {
	*tree
	held    []int // by NUMA node: cores of tenants
	pkgOf   []int // by NUMA node: index of the package of its cores
	loads   []int64
	pkgLoad []int64
}

// prefer returns columns that cost no more than best, with a burden that no change of one lab node lightens, as far
// as the work allows. used is the work of the search so far.
func (m *model) prefer(ctx context.Context, best []*column, cost, used int64) []*column {
	t := newTree(m, &meter{ctx: ctx, limit: preferSteps + used/preferShare})
	t.best, t.cost = slices.Clone(best), cost
	p := &preference{tree: t, held: make([]int, len(m.nodes)), pkgOf: make([]int, len(m.nodes)),
		loads: make([]int64, len(m.nodes))}
	pkgs := numbering[int]{}
	for i := range m.p.Cores {
		c := &m.p.Cores[i]
		n, ok := m.index[c.NUMANode]
		if !ok {
			continue
		}
		p.pkgOf[n], _ = pkgs.of(c.Package)
		if c.Tenant != "" {
			p.held[n]++
		}
	}
	p.pkgLoad = make([]int64, len(pkgs))
	for again := true; again && t.work.stopped == ""; {
		again = false
		for _, i := range t.order {
			if t.work.stopped == "" && p.replace(i) {
				again = true
			}
		}
	}
	return t.best
}

// replace gives lab node i the column of the least burden beside the others, if it costs no more. It reports whether
// there was a better one.
func (p *preference) replace(i int) bool {
	var others []int
	for _, j := range p.order {
		if j != i {
			others = append(others, j)
			p.best[j].charge = 0
			p.s.place(j, p.best[j])
		}
	}
	defer p.removeAll(others)
	least := p.burdenOf(p.best[i])
	var better *column
	e := p.enum(0)
	e.relaxed, e.breakSymmetry, e.basic = false, true, true
	defer p.work.budget(preferColumn)()
	e.run(i, p.price, scale*(p.cost-p.s.cost())+1, func(c *column, _ int64) bool {
		b := p.burdenOf(c)
		if !b.less(least) || !p.s.fits(i, c) {
			return false
		}
		p.s.place(i, c)
		if cost, _ := p.s.leaf(); cost <= p.cost && p.work.stopped == "" {
			better, least = better.set(c), b
		}
		p.s.remove(i)
		return false
	})
	if better != nil {
		p.best[i] = better
	}
	return better != nil
}

// burdenOf returns the burden of a column beside the placed lab nodes.
func (p *preference) burdenOf(c *column) (b burden) {
	for _, v := range c.vfs {
		b.repeated += int64(v.Count - 1)
	}
	clear(p.pkgLoad)
	for n := range p.loads {
		p.loads[n] = int64(p.held[n] + p.m.nodes[n].free - p.s.nodeFree[n])
	}
	for _, pc := range c.cores {
		p.loads[p.m.pools[pc.pool].node] += int64(pc.n)
	}
	for n, load := range p.loads {
		b.onNodes += load * load
		p.pkgLoad[p.pkgOf[n]] += load
	}
	for _, load := range p.pkgLoad {
		b.onPkgs += load * load
	}
	return b
}

// preferred replaces a placement by one of no more cost that the preferences favour.
func (m *model) preferred(ctx context.Context, l *plan.Layout, t *tree, pl *plan.Placement) {
	better := m.prefer(ctx, t.best, t.cost, t.work.steps)
	if slices.Equal(better, t.best) {
		return
	}
	if next := m.emit(better); l.Cost(&next) <= l.Cost(pl) {
		*pl = next
	}
}
