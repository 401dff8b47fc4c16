package search

// Packing lab nodes one after another is quick if each takes the caches that cost it least and that it fills best, a
// knapsack problem. The result depends on the order, so many are tried, each slightly different from the best so far.
//
// The case that needs this: eight lab nodes on a machine of 16 L3 caches (AMD-19h-Zen3-2xEpyc-7763), each with some
// cores of a tenant. It is proved at 1500; the branch and bound of pack.go finds 1700 in its time.

const repackTries = 200

func (p *packer) repack() {
	order := make([]int, len(p.items))
	for x := range order {
		order[x] = x
	}
	draw := newDraw()
	least := 1 << 30
	for try := 0; try < repackTries && p.high > p.low; try++ {
		a, b := draw(len(order)), draw(len(order))
		if try > 0 {
			order[a], order[b] = order[b], order[a]
		}
		shares, ok := p.packInOrder(order, draw(len(p.m.cells)))
		if p.work.addHard(int64(len(order))) {
			return
		}
		if !ok || shares > least {
			order[a], order[b] = order[b], order[a]
			continue
		}
		if least = shares; shares < p.high {
			p.high = shares
			p.best = append(p.best[:0], p.give...)
		}
	}
}

// packInOrder prefers equal caches from index from on.
func (p *packer) packInOrder(order []int, from int) (shares int, ok bool) {
	p.reset()
	for _, x := range order {
		more, ok := p.packItem(x, from)
		if !ok {
			return 0, false
		}
		shares += more
	}
	return shares, true
}

// packItem gives an item the caches that cost least, and of equal ones the caches with the least left over.
func (p *packer) packItem(x, from int) (shares int, ok bool) {
	m := p.m
	cells, n := m.pools[p.items[x].pool].cells, p.items[x].n
	who := p.items[x].who
	const none = 1 << 40
	// rows[k][j] is the least cost of j cores in the first k caches. Only the last cache may have cores left over.
	rows := make([][]int, len(cells)+1)
	for k := range rows {
		rows[k] = make([]int, n+1)
		for j := range rows[k] {
			rows[k][j] = none
		}
	}
	rows[0][0] = 0
	cell := func(k int) int { return cells[(k+from)%len(cells)] }
	for k := range cells {
		c := cell(k)
		copy(rows[k+1], rows[k])
		if p.left[c] == 0 {
			continue
		}
		cost := p.more(c, x, who) << 20
		for j := range n {
			to, over := j+p.left[c], 0
			if to > n {
				to, over = n, to-n
			}
			rows[k+1][to] = min(rows[k+1][to], rows[k][j]+cost+over)
		}
	}
	if rows[len(cells)][n] >= none {
		return 0, false
	}
	for k, j := len(cells)-1, n; k >= 0; k-- {
		if rows[k+1][j] == rows[k][j] {
			continue
		}
		c := cell(k)
		cost := p.more(c, x, who) << 20
		for i := max(0, j-p.left[c]); i < j; i++ {
			if i < j-p.left[c] || j < n && i != j-p.left[c] {
				continue
			}
			if rows[k][i]+cost+max(0, i+p.left[c]-j) == rows[k+1][j] {
				shares += cost >> 20
				p.occupy(c, x, j-i)
				j = i
				break
			}
		}
	}
	return shares, true
}

func (p *packer) more(c, x, who int) int {
	l := p.m.cells[c].l3
	if l < 0 || p.has[l] == who+1 || p.holds(l, who, x) {
		return 0
	}
	return p.joining(l)
}

func (p *packer) holds(l, who, x int) bool {
	for y := range p.items {
		if y == x || p.items[y].who != who {
			continue
		}
		for _, c := range p.m.l3s[l].cells {
			if p.give[y*len(p.m.cells)+c] > 0 {
				return true
			}
		}
	}
	return false
}

func (p *packer) occupy(c, x, n int) {
	who := p.items[x].who
	if l := p.m.cells[c].l3; l >= 0 && p.has[l] != who+1 && !p.holds(l, who, x) {
		p.own[l]++
		p.has[l] = who + 1
	}
	p.left[c] -= n
	p.give[x*len(p.m.cells)+c] = n
}
