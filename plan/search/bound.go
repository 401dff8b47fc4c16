package search

import "slices"

// settle works out what follows from the prices. What there is comes back at its price: cores as a
// sum, and of each bundle the dearer of two uses, whole or by virtual functions. A NIC with u users
// costs w*u*(u-1) and earns price*u; once it has some users it can only get more.
func (t *tree) applyPrices() {
	m, p := t.m, t.price
	p.fixed = 0
	for n := range m.nodes {
		p.fixed += p.node[n] * int64(max(0, m.nodes[n].free-m.nodes[n].reserve))
	}
	users := 0
	for i := range m.requests {
		for _, w := range m.requests[i].wants {
			if w.kind == wantVF {
				users++
				break
			}
		}
	}
	s := t.s
	s.crowding = s.crowding[:0]
	s.byVF, s.whole = zero(s.byVF, m.bundles), p.bundle
	for d := range m.devices {
		if m.devices[d].vfs == 0 {
			s.crowding = append(s.crowding, nil)
			continue
		}
		table := make([]int64, users+1)
		most := min(users, m.devices[d].vfs)
		for u := users; u >= 0; u-- {
			table[u] = scale*m.p.Weights.NICShared*int64(u)*int64(u-1) - p.nic[d]*int64(u) - p.vf[d]*int64(
				m.devices[d].vfs)
			if u < most {
				table[u] = min(table[u], table[u+1])
			}
		}
		s.byVF[m.devices[d].bundle] += table[0]
		s.crowding = append(s.crowding, table)
	}
	s.crowd = 0
	for b := range m.bundles {
		s.crowd += s.bundleTerm(b)
	}
}

// bundleTerm is what a bundle adds to the bound, as it is used so far.
func (s *state) bundleTerm(b int) int64 {
	switch {
	case s.owner[b] > 0:
		return -s.whole[b]
	case s.bundleVFs[b] > 0:
		return s.byVF[b]
	}
	return min(-s.whole[b], s.byVF[b])
}

// bound is what the relaxation proves with the cheapest columns of all lab nodes.
func (t *tree) bound(least []leastColumn) int64 {
	sum := t.s.crowd - t.price.fixed
	for i := range least {
		sum += least[i].reduced
	}
	return max(0, up(sum)+t.coverAll)
}

// The prices of a relaxation prove little by themselves where most labs are proved before them, but
// they steer: without them 192em64t-24n8c2t with four lab nodes and whole NICs costs 40160 in place
// of 38530, and its bound is 10360 in place of 26460.

// rounds is how often ascend changes the prices.
const rounds = 300

// ascend raises the prices of what too many lab nodes want and lowers those of what is left, as
// long as the bound grows: the subgradient method with Polyak's step towards the best placement
// known, in whole numbers. Each direction keeps a part of the last one (Camerini, Fratta and
// Maffioli 1975), since equal lab nodes would all run back and forth otherwise.
func (t *tree) ascend() {
	if b := t.boundUnequal(quickSteps); b >= t.cost {
		t.root = b
		return
	}
	t.subgradient()
	if !t.proved() {
		t.roundPrices()
	}
	t.root = max(t.root, t.boundUnequal(equalSteps))
}

// climb is the work of ascend.
func (t *tree) subgradient() {
	m := t.m
	best, bestLeast := t.price.clone(), slices.Clone(t.least)
	mean := int64(max(1, m.asked/len(m.requests)))
	way := usage{}
	var u usage
	high := t.bound(t.least)
	theta, since := int64(16), 0 // in sixteenths
	stuck := false               // the prices are about as good as steps of this length make them
	for range rounds {
		if stuck {
			stuck = false
			// Is it proved already? If not, round prices are no good place to go on from.
			now, nowLeast, root := t.price, slices.Clone(t.least), t.root
			t.price = best.clone()
			copy(t.least, bestLeast)
			t.applyPrices()
			t.roundPrices()
			if t.root = max(t.root, t.boundUnequal(quickSteps)); t.proved() {
				return
			}
			t.price, t.root = now, root
			copy(t.least, nowLeast)
			t.applyPrices()
		}
		u.count(m, t.least, t.price, t)
		way.turn(&u, t.price)
		gap := scale * (min(t.cost, 2*t.root+1000) - t.bound(t.least))
		norm := way.norm(mean)
		if norm == 0 || gap <= 0 {
			break
		}
		t.price.step(&way, theta*gap/16, norm, mean)
		t.applyPrices()
		if !t.cheapest() || t.work.stopped != "" {
			break
		}
		if b := t.bound(t.least); b > high {
			high, t.root = b, max(t.root, b)
			best, since = t.price.clone(), 0
			bestLeast = append(bestLeast[:0], t.least...)
			if t.proved() {
				return
			}
		} else if since++; since > 12 {
			since, stuck = 0, true
			theta = theta * 2 / 3
			t.price, way = best.clone(), usage{}
			t.applyPrices()
			copy(t.least, bestLeast)
			if theta == 0 {
				break
			}
		}
	}
	t.price = best
	t.applyPrices()
	copy(t.least, bestLeast)
}

// snap tries rounder prices. The best prices are mostly differences of costs, and those are round;
// the subgradient method comes close to them and no further.
func (t *tree) roundPrices() {
	round := func(list []int64, unit int64) {
		for k, v := range list {
			list[k] = (v + unit/2) / unit * unit
		}
	}
	from := t.price.clone()
	best, bestLeast := from, slices.Clone(t.least)
	for _, ports := range []int64{1000, 500, 100} {
		for _, bundles := range []int64{100, 50, 10} {
			for _, cores := range []int64{10, 1} {
				t.price = from.clone()
				round(t.price.nic, ports*scale)
				round(t.price.vf, ports*scale)
				round(t.price.bundle, bundles*scale)
				round(t.price.node, cores*scale)
				t.applyPrices()
				if !t.cheapest() || t.work.stopped != "" {
					break
				}
				if b := t.bound(t.least); b > t.root {
					t.root = b
					best, bestLeast = t.price, slices.Clone(t.least)
				}
			}
		}
	}
	t.price = best
	t.applyPrices()
	copy(t.least, bestLeast)
}

// The case that needs it: 64 lab nodes with a virtual function each on planfixture.Large. The common
// price alone proves 57600; without it the subgradient method does not get above 0.
//
// even starts with the same price for all NICs, the best of what a user more may cost: where lab
// nodes do not care which one they get, that is the answer.
func (t *tree) commonPortPrice() {
	defer func() { t.start = start{t.price.clone(), slices.Clone(t.least), t.root} }()
	m := t.m
	users, nics := int64(0), int64(0)
	for i := range m.requests {
		if m.requests[i].ports > m.requests[i].nics {
			users++
		}
	}
	for d := range m.devices {
		if m.devices[d].vfs > 0 {
			nics++
		}
	}
	if users == 0 || nics == 0 {
		return
	}
	best, bestLeast := t.price.clone(), slices.Clone(t.least)
	for k := int64(1); k <= min(users, users/nics+2); k++ {
		price := 2 * k * scale * m.p.Weights.NICShared
		clear(t.price.bundle)
		for d := range m.devices {
			if m.devices[d].vfs > 0 {
				t.price.nic[d] = price
				// What the relaxation earns with k or k+1 users is what a whole NIC has to bring.
				t.price.bundle[m.devices[d].bundle] += k*price - scale*m.p.Weights.NICShared*k*(k-1)
			}
		}
		t.applyPrices()
		if !t.cheapest() || t.work.stopped != "" {
			break
		}
		if b := t.bound(t.least); b > t.root {
			t.root = b
			best, bestLeast = t.price.clone(), slices.Clone(t.least)
		}
	}
	t.price = best
	t.applyPrices()
	copy(t.least, bestLeast)
}

// usage is how much more the cheapest columns take than there is.
type usage struct {
	node, bundle, vf, nic []int64
}

func (u *usage) count(m *model, least []leastColumn, p *prices, t *tree) {
	u.node, u.bundle = zero(u.node, len(m.nodes)), zero(u.bundle, m.bundles)
	u.vf, u.nic = zero(u.vf, len(m.devices)), zero(u.nic, len(m.devices))
	for n := range m.nodes {
		u.node[n] = -int64(max(0, m.nodes[n].free-m.nodes[n].reserve))
	}
	byVF := func(b int) bool { return t.s.byVF[b] < -p.bundle[b] }
	for b := range u.bundle {
		if !byVF(b) {
			u.bundle[b] = -1
		}
	}
	for d := range m.devices {
		if table := t.s.crowding[d]; table != nil && byVF(m.devices[d].bundle) {
			u.vf[d] = -int64(m.devices[d].vfs)
			// How many users the relaxation would have at this price.
			k := 0
			for k+1 < len(table) && scale*m.p.Weights.NICShared*2*int64(k) < p.nic[d] && k < m.devices[d].vfs {
				k++
			}
			u.nic[d] = -int64(k)
		}
	}
	for i := range least {
		c := least[i].column
		if c == nil {
			continue
		}
		for _, pc := range c.cores {
			u.node[m.pools[pc.pool].node] += int64(pc.n)
		}
		seen := -1
		for _, list := range [][]int{c.gpus, c.nics} {
			for _, d := range list {
				if b := m.devices[d].bundle; b != seen {
					u.bundle[b]++
					seen = b
				}
			}
		}
		for _, v := range c.vfs {
			u.vf[v.Device] += int64(v.Count)
			u.nic[v.Device]++
		}
	}
	// A price that is 0 already cannot be lowered.
	drop := func(g, price []int64) {
		for k := range g {
			if price[k] == 0 && g[k] < 0 {
				g[k] = 0
			}
		}
	}
	drop(u.node, p.node)
	drop(u.bundle, p.bundle)
	drop(u.vf, p.vf)
	drop(u.nic, p.nic)
}

// turnScale is the unit of a direction that is made of several.
const turnScale = 16

// turn adds the usage to what is left of the direction so far. A price that is 0 already cannot be lowered.
func (u *usage) turn(g *usage, p *prices) {
	mix := func(to *[]int64, from, price []int64) {
		if *to == nil {
			*to = make([]int64, len(from))
		}
		for k := range from {
			(*to)[k] = (*to)[k]*11/16 + turnScale*from[k]
			if price[k] == 0 && (*to)[k] < 0 {
				(*to)[k] = 0
			}
		}
	}
	mix(&u.node, g.node, p.node)
	mix(&u.bundle, g.bundle, p.bundle)
	mix(&u.vf, g.vf, p.vf)
	mix(&u.nic, g.nic, p.nic)
}

// norm is the square of the length, devices weighed as many cores as a lab node has.
func (u *usage) norm(mean int64) int64 {
	var sum int64
	for _, g := range u.node {
		sum += g * g
	}
	for _, list := range [][]int64{u.bundle, u.vf, u.nic} {
		for _, g := range list {
			sum += g * g * mean * mean
		}
	}
	return sum / turnScale
}

func (p *prices) step(u *usage, length, norm, mean int64) {
	move := func(price, g []int64, by int64) {
		for k := range price {
			price[k] = max(0, price[k]+g[k]*by*length/norm)
		}
	}
	move(p.node, u.node, 1)
	move(p.bundle, u.bundle, mean)
	move(p.vf, u.vf, mean)
	move(p.nic, u.nic, mean)
}

func (p *prices) clone() *prices {
	q := &prices{fixed: p.fixed}
	q.node, q.bundle = append(q.node, p.node...), append(q.bundle, p.bundle...)
	q.vf, q.nic = append(q.vf, p.vf...), append(q.nic, p.nic...)
	return q
}

// charge returns what a column pays at these prices.
func (p *prices) charge(m *model, c *column) int64 {
	var sum int64
	for _, pc := range c.cores {
		sum += int64(pc.n) * p.node[m.pools[pc.pool].node]
	}
	var seen []int
	for _, list := range [][]int{c.gpus, c.nics} {
		for _, d := range list {
			if b := m.devices[d].bundle; !slices.Contains(seen, b) {
				seen = append(seen, b)
				sum += p.bundle[b]
			}
		}
	}
	for _, v := range c.vfs {
		sum += p.nic[v.Device] + int64(v.Count)*p.vf[v.Device]
	}
	return sum
}
