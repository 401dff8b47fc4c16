package search

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// The case that needs this: examples/h20-vfs.yaml, eight equal lab nodes that no placement makes all
// equal. It is proved at 16150 in 51,000 steps; without these cases the bound stays at 14800.
//
// Equal lab nodes that cost unequal amounts pay for that, and the relaxation of prices looks at
// each alone and cannot see it. So the cases are told apart: the cheapest lab node of a class costs
// v, for each v that a column can cost. Then none of them has a cheaper column, which lifts the
// separable bound, and the dearest one costs at least what counting says, which lifts the term. The
// least of the cases is a bound.

// Both parts are needed: without what counting says (dearest), or without the prices of commonPortPrice (even), the
// same lab takes 15 million steps.

// classOption is the cheapest way, prices included, of a lab node to have an own cost.
type classOption struct {
	own     int64
	reduced int64 // scaled, at the present prices
	even    int64 // likewise at the prices of commonPortPrice
}

// equalSteps bounds the work on all classes together, and quickSteps where the prices are not the last ones.
const (
	equalSteps = 100_000
	quickSteps = 15_000
)

// boundUnequal returns a bound that knows of the term "unequal", as good as the root bound at least.
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
			// Of the options from here on, the cheapest at either prices.
			reduced, even := v.reduced, v.even
			for _, o := range options[k+1:] {
				reduced, even = min(reduced, o.reduced), min(even, o.even)
			}
			term := w * (max(0, dearest-v.own) / 100)
			// One of them has this very option.
			now := (max(0, v.reduced-here) + (n-1)*max(0, reduced-here)) / scale
			then := (max(0, v.even-there) + (n-1)*max(0, even-there)) / scale
			lifted = min(lifted, now+term)
			alone = min(alone, max(now, t.start.root+then-base)+term)
		}
		sum += lifted
		single = max(single, alone)
	}
	// now is at the present prices, where the gains of all classes add up. then is at those of
	// commonPortPrice, which may fit one class better: only the best one of these counts.
	return max(root, min(t.cost, base+max(sum, single)))
}

// classOptions lists the own costs that lab nodes of a class can have in a placement that is
// cheaper than the best one known, ascending, and what the dearest of them costs at least. It
// returns none where there are too many columns to look at.
func (t *tree) classOptions(members []int) (options []classOption, dearest int64) {
	i := members[0]
	// A column at or above the limit would use up all that there is between bound and cost: no
	// placement that is cheaper than the best one has it.
	limit := dearestOf(t.least, members) + scale*(t.cost-t.bound(t.least))
	e := t.enum(0)
	// Not relaxed, for exact own costs; and with all names of devices, since each device has to be seen at its cost.
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

// dearestOf returns what was found for interchangeable lab nodes: the highest, since a search
// that was cut short proves less.
func dearestOf(least []leastColumn, members []int) int64 {
	return lists.Max(members, func(i int) int64 { return least[i].reduced })
}

// classUse says at what own cost, at least, a lab node can have a device.
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

// dearest returns what the dearest of n lab nodes like r costs at least: columns that cost less do
// not have enough devices among them for all. Cores could be counted likewise; that has raised no
// bound of 300 mixes and the examples.
func (u *classUse) dearest(m *model, r *request, n int) int64 {
	one := func(int) int { return 1 }
	return max(reach(u.gpu, n*r.gpus, one), reach(u.nic, n*r.nics, one),
		reach(u.vf, n*(r.ports-r.nics), func(d int) int { return m.devices[d].vfs }))
}

// reach returns the least own cost at which the devices that can be had come to what is needed.
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
	return 0 // not enough in any of them: nothing cheaper exists, and the search will find that out
}
