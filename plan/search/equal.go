package search

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// Equal lab nodes with unequal costs pay for the difference, which the relaxation cannot see. So cases are
// distinguished: the cheapest lab node of a class costs v, for each possible own cost v. In such a case no lab node of
// the class has a cheaper column, which raises the separable bound, and the most expensive one costs at least as much
// as counting shows, which raises the term. The minimum over all cases is a bound.
//
// The case that needs this: examples/h20-vfs.yaml, eight equal lab nodes that no placement makes all equal. It is
// proved at 16150 in 51,000 steps; otherwise the bound stays at 14800.

// Without the counting (dearest), or without the prices of commonPortPrice (even), the same lab takes 15 million steps.

type classOption struct {
	own     int64
	reduced int64 // scaled, at the present prices
	even    int64 // scaled, at the prices of commonPortPrice
}

// equalSteps limits the work on all classes, and quickSteps the same before the final prices.
const (
	equalSteps = 100_000
	quickSteps = 15_000
)

// boundUnequal returns a bound that includes the term "unequal". It is at least the root bound.
func (t *tree) boundUnequal(steps int64) int64 {
	root := t.root
	w := t.m.p.Weights.Unequal
	if w == 0 || t.best == nil || t.start.price == nil || t.proved() {
		return root
	}
	defer t.work.budget(steps)()
	base := t.bound(t.least)
	var sum, single int64
	for _, members := range t.m.classes {
		r := &t.m.requests[members[0]]
		if slices.ContainsFunc(members, func(i int) bool { return t.m.requests[i].rep != r.rep }) {
			continue
		}
		options, dearest := t.classOptions(members)
		if len(options) == 0 {
			continue
		}
		n := int64(len(members))
		here, there := dearestOf(t.least, members), dearestOf(t.start.least, members)
		lifted, alone := infinite, infinite
		for k, v := range options {
			reduced, even := v.reduced, v.even
			for _, o := range options[k+1:] {
				reduced, even = min(reduced, o.reduced), min(even, o.even)
			}
			term := w * (max(0, dearest-v.own) / 100)
			now := (max(0, v.reduced-here) + (n-1)*max(0, reduced-here)) / scale
			then := (max(0, v.even-there) + (n-1)*max(0, even-there)) / scale
			lifted = min(lifted, now+term)
			alone = min(alone, max(now, t.start.root+then-base)+term)
		}
		sum += lifted
		single = max(single, alone)
	}
	// At the present prices (now) the gains of all classes add up. The prices of commonPortPrice (then) may suit a
	// class better, but only the best of these gains counts.
	return max(root, min(t.cost, base+max(sum, single)))
}

// classOptions lists, in ascending order, the own costs that lab nodes of a class can have in a placement cheaper than
// the best known, and the minimum cost of the most expensive one. It returns no options if there are too many columns.
func (t *tree) classOptions(members []int) (options []classOption, dearest int64) {
	i := members[0]
	// The limit is the whole gap between bound and cost.
	limit := dearestOf(t.least, members) + scale*(t.cost-t.bound(t.least))
	e := t.enum(0)
	// Each device must be seen at its exact cost.
	e.relaxed, e.breakSymmetry, e.basic = false, false, false
	at := map[int64]int{}
	use := &classUse{gpu: map[int]int64{}, nic: map[int]int64{}, vf: map[int]int64{}}
	if !e.run(i, t.price, limit, func(c *column, reduced int64) bool {
		even := scale*c.own + t.start.price.charge(t.m, c)
		k, ok := at[c.own]
		if !ok {
			k = len(options)
			at[c.own] = k
			options = append(options, classOption{c.own, reduced, even})
		}
		options[k].reduced, options[k].even = min(options[k].reduced, reduced), min(options[k].even, even)
		use.add(c)
		return len(options) > 4096
	}) || len(options) > 4096 {
		return nil, 0
	}
	slices.SortFunc(options, func(a, b classOption) int { return cmp.Compare(a.own, b.own) })
	return options, use.dearest(t.m, &t.m.requests[i], len(members))
}

// dearestOf returns the highest reduced cost. Results differ if an incomplete search proves less.
func dearestOf(least []leastColumn, members []int) int64 {
	return lists.Max(members, func(i int) int64 { return least[i].reduced })
}

type classUse struct{ gpu, nic, vf map[int]int64 }

func (u *classUse) add(c *column) {
	for _, d := range c.gpus {
		lower(u.gpu, d, c.own)
	}
	for _, d := range c.nics {
		lower(u.nic, d, c.own)
	}
	for _, v := range c.vfs {
		lower(u.vf, v.Device, c.own)
	}
}

func lower(least map[int]int64, device int, own int64) {
	if old, ok := least[device]; !ok || own < old {
		least[device] = own
	}
}

// dearest returns the minimum cost of the most expensive of n lab nodes like r: columns that cost less do not have
// enough devices for all. Counting cores in the same way raised no bound of 300 mixes and the examples.
func (u *classUse) dearest(m *model, r *request, n int) int64 {
	one := func(int) int { return 1 }
	return max(reach(u.gpu, n*r.gpus, one), reach(u.nic, n*r.nics, one),
		reach(u.vf, n*(r.ports-r.nics), func(d int) int { return m.devices[d].vfs }))
}

func reach(least map[int]int64, need int, count func(d int) int) int64 {
	if need <= 0 {
		return 0
	}
	devices := slices.SortedFunc(maps.Keys(least), func(a, b int) int { return cmp.Compare(least[a], least[b]) })
	for _, d := range devices {
		if need -= count(d); need <= 0 {
			return least[d]
		}
	}
	return 0 // no cheaper placement exists, as the search will find
}
