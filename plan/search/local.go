package search

// greedy places the lab nodes one by one, each at what costs least beside those before it.
func (t *tree) greedy() {
	saved := t.cost
	for k, i := range t.order {
		c := t.insert(i)
		if c == nil {
			for ; k > 0; k-- {
				t.s.remove(t.order[k-1])
			}
			t.cost = saved
			return
		}
		t.s.place(i, c)
	}
	if cost, _ := t.s.leaf(); cost < t.cost && t.work.stopped == "" {
		t.keep(cost)
	}
	for k := len(t.order) - 1; k >= 0; k-- {
		t.s.remove(t.order[k])
	}
}

// insert returns where lab node i costs least beside those that are placed; nil where it fits nowhere.
func (t *tree) insert(i int) *config {
	var best *config
	cost := infinite
	e := t.enum(0)
	e.basic = true
	defer func() { e.basic = false }()
	base := scale * t.s.cost()
	e.run(i, t.price, infinite, func(c *config, _ int64) bool {
		if !t.s.fits(i, c) {
			return false
		}
		t.s.place(i, c)
		if now := scale * t.s.cost(); now < cost {
			cost = now
			if best == nil {
				best = &config{}
			}
			best.copyFrom(c)
			e.limit = cost - base
		}
		t.s.remove(i)
		return false
	})
	return best
}

// improve takes a few lab nodes off and places them again as well as possible beside the others, until no pair helps.
func (t *tree) improve() {
	if t.best == nil {
		return
	}
	n := len(t.order)
	for better := true; better && !t.proved() && t.work.stopped == ""; {
		better = false
		for a := range n {
			for b := range a {
				if t.again(t.order[b], t.order[a]) {
					better = true
				}
				if t.proved() || t.work.stopped != "" {
					return
				}
			}
		}
	}
}

// roundSteps bounds the work of placing a few lab nodes again.
const roundSteps = 20_000

// again places some lab nodes of the best placement again; it reports whether that helped.
func (t *tree) again(who ...int) bool {
	before := t.cost
	for _, i := range t.order {
		if !contains(who, i) {
			t.s.place(i, t.best[i])
		}
	}
	fixed := t.best
	t.best = nil
	t.work.soft = t.work.steps + roundSteps
	t.basic = true
	t.search(who)
	t.basic = false
	t.work.soft = 0
	if t.best == nil {
		t.best = fixed
	}
	for k := len(t.order) - 1; k >= 0; k-- {
		if i := t.order[k]; !contains(who, i) {
			t.s.remove(i)
		}
	}
	return t.cost < before
}

func contains(list []int, x int) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}
