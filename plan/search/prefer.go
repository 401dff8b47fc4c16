package search

import (
	"cmp"
	"context"
	"slices"

	"github.com/rackless/rackless/plan"
)

// Preferences decide among placements of equal cost. They have no weight, because no source says how much they matter,
// so that bound and proof ignore them.
//
// The cases that need them: two lab nodes without devices on examples/hosts/h20.txt, both beside one memory controller
// with the other one idle; two virtual functions of one port of examples/hosts/r740.ttar, with its other port unused.

const (
	preferSteps  = 1_000 // at least
	preferShare  = 10
	preferColumn = 10_000
)

// A burden counts the disadvantages that have no cost, the most important first.
type burden struct {
	repeated int64 // virtual functions beyond the lab node's first of each NIC, which share a link
	onNodes  int64 // sum over the NUMA nodes of the square of the cores in use
	onPkgs   int64 // the same over the packages
}

func (b burden) less(o burden) bool {
	return cmp.Or(cmp.Compare(b.repeated, o.repeated), cmp.Compare(b.onNodes, o.onNodes),
		cmp.Compare(b.onPkgs, o.onPkgs)) < 0
}

type preference struct {
	*tree
	best    []*column
	pkgOf   []int
	loads   []int64
	pkgLoad []int64
}

// prefer returns columns that cost no more than best, with a burden that no change of one lab node lightens, as far as
// the work allows, or nil if best is as good. used is the work so far.
func (m *model) prefer(ctx context.Context, best []*column, cost, used int64) []*column {
	p := &preference{best: best, pkgOf: make([]int, len(m.nodes)), loads: make([]int64, len(m.nodes))}
	pkgs := numbering[int]{}
	for i := range m.p.Cores {
		c := &m.p.Cores[i]
		n, ok := m.index[c.NUMANode]
		if !ok {
			continue
		}
		p.pkgOf[n], _ = pkgs.of(c.Package)
		if c.Tenant != "" {
			p.loads[n]++
		}
	}
	p.pkgLoad = make([]int64, len(pkgs))
	for n, load := range p.loads {
		p.pkgLoad[p.pkgOf[n]] += load
	}
	for _, c := range best {
		p.load(m, c, 1)
	}
	better := false
	for again := true; again; {
		again = false
		for i := range best {
			if !p.mayHelp(m, i) {
				continue
			}
			if p.tree == nil {
				p.tree = newTree(m, &meter{ctx: ctx, limit: max(preferSteps, used/preferShare)})
				p.tree.cost = cost
				p.best = slices.Clone(best)
			}
			if p.work.stopped != "" {
				break
			}
			if p.replace(i) {
				again, better = true, true
			}
		}
	}
	if !better {
		return nil
	}
	return p.best
}

func (p *preference) load(m *model, c *column, sign int) {
	for _, pc := range c.cores {
		n := m.pools[pc.pool].node
		p.loads[n] += int64(sign * pc.n)
		p.pkgLoad[p.pkgOf[n]] += int64(sign * pc.n)
	}
}

// mayHelp reports whether lab node i has two virtual functions of one NIC, or another NUMA node or package would have
// fewer cores in use.
func (p *preference) mayHelp(m *model, i int) bool {
	c := p.best[i]
	if slices.ContainsFunc(c.vfs, func(v plan.VFCount) bool { return v.Count > 1 }) {
		return true
	}
	for _, pc := range c.cores {
		here, n := m.pools[pc.pool].node, int64(pc.n)
		for other, load := range p.loads {
			a, b := p.pkgOf[here], p.pkgOf[other]
			if load+n < p.loads[here] || load+n == p.loads[here] && p.pkgLoad[b]+n < p.pkgLoad[a] && a != b {
				return true
			}
		}
	}
	return false
}

// replace gives lab node i the column of the least burden, if it costs no more.
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
	old := p.best[i]
	p.load(p.m, old, -1)
	least := p.burdenOf(old)
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
	p.load(p.m, p.best[i], 1)
	return better != nil
}

func (p *preference) burdenOf(c *column) (b burden) {
	for _, v := range c.vfs {
		b.repeated += int64(v.Count - 1)
	}
	p.load(p.m, c, 1)
	for _, load := range p.loads {
		b.onNodes += load * load
	}
	for _, load := range p.pkgLoad {
		b.onPkgs += load * load
	}
	p.load(p.m, c, -1)
	return b
}
