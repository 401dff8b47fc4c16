package search

import (
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// Lagrangian relaxation. Each thing that lab nodes compete for gets a price, a Lagrange multiplier.
// Every column pays the prices of what it takes, and what there is comes back at its price. In a
// placement nobody takes more than there is, so for any prices of 0 or more the least reduced costs
// of all lab nodes, less what comes back, are a lower bound of its cost. Good prices make it high.
//
// The prices prove little by themselves where most labs are proved before them, but they steer:
// without them 192em64t-24n8c2t with four lab nodes and whole NICs costs 40160 in place of 38530,
// and its bound is 10360 in place of 26460.

// A vector has an entry for each thing that lab nodes compete for.
type vector struct {
	node   []int64 // cores of a NUMA node
	bundle []int64 // a bundle, taken whole
	vf     []int64 // virtual functions of a NIC
	nic    []int64 // being one more lab node with virtual functions of a NIC
}

func newVector(m *model) vector {
	return vector{node: make([]int64, len(m.nodes)), bundle: make([]int64, m.bundles),
		vf: make([]int64, len(m.devices)), nic: make([]int64, len(m.devices))}
}

func (v *vector) parts() [4][]int64 { return [...][]int64{v.node, v.bundle, v.vf, v.nic} }

// prices are in parts of 1/scale, and never negative.
type prices struct {
	vector
	fixed int64 // what the cores come to
}

func newPrices(m *model) *prices { return &prices{vector: newVector(m)} }

func (p *prices) clone() *prices {
	q := prices{fixed: p.fixed}
	q.node, q.bundle = slices.Clone(p.node), slices.Clone(p.bundle)
	q.vf, q.nic = slices.Clone(p.vf), slices.Clone(p.nic)
	return &q
}

// charge returns what a column pays at these prices.
func (p *prices) charge(m *model, c *column) int64 {
	var sum int64
	for _, pc := range c.cores {
		sum += int64(pc.n) * p.node[m.pools[pc.pool].node]
	}
	var seen []int
	for d := range c.whole {
		if b := m.devices[d].bundle; !slices.Contains(seen, b) {
			seen = append(seen, b)
			sum += p.bundle[b]
		}
	}
	for _, v := range c.vfs {
		sum += p.nic[v.Device] + int64(v.Count)*p.vf[v.Device]
	}
	return sum
}

// A relaxation is what is known at some prices.
type relaxation struct {
	price *prices
	least []leastColumn
	root  int64
}

func (t *tree) relaxation() relaxation {
	return relaxation{t.price.clone(), slices.Clone(t.least), t.root}
}

// restore goes back to prices that were left. What is proved stays proved.
func (t *tree) restore(r relaxation) {
	t.price = r.price.clone()
	copy(t.least, r.least)
	t.applyPrices()
}

// applyPrices works out what comes back at the prices: cores as a sum, and of each bundle the
// dearer of two uses, whole or by virtual functions, since a bundle is used in one way only. A NIC
// with u users costs w*u*(u-1), as each of them sees u-1 others, and earns price*u. crowding has the
// least of cost minus earnings by the number of users so far: once a NIC has some it can only get
// more, so that the tree takes the least of what is still possible.
func (t *tree) applyPrices() {
	m, p, s := t.m, t.price, t.s
	p.fixed = 0
	for n := range m.nodes {
		p.fixed += p.node[n] * int64(m.nodes[n].most())
	}
	users := m.vfUsers()
	s.crowding = s.crowding[:0]
	s.byVF, s.whole = zero(s.byVF, m.bundles), p.bundle
	for d := range m.devices {
		vfs := m.devices[d].vfs
		if vfs == 0 {
			s.crowding = append(s.crowding, nil)
			continue
		}
		table := make([]int64, users+1)
		for u := users; u >= 0; u-- {
			table[u] = scale*m.p.Weights.NICShared*int64(u)*int64(u-1) - p.nic[d]*int64(u) - p.vf[d]*int64(vfs)
			if u < min(users, vfs) {
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

// vfUsers returns how many requests ask for virtual functions.
func (m *model) vfUsers() int {
	users := 0
	for i := range m.requests {
		if m.requests[i].ports > m.requests[i].nics {
			users++
		}
	}
	return users
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
	sum := lists.Sum(least, func(l leastColumn) int64 { return l.reduced })
	return max(0, up(sum+t.s.crowd-t.price.fixed)+t.coverAll)
}

// raised evaluates the relaxation: it finds the bound at prices that were just changed. It reports
// false where work ran out, and raises the root bound where it can.
func (t *tree) raised() (higher, ok bool) {
	t.applyPrices()
	if !t.cheapest() || t.work.add(0) {
		return false, false
	}
	b := t.bound(t.least)
	if b <= t.root {
		return false, true
	}
	t.root = b
	return true, true
}

// commonPortPrice starts with the same price for all NICs, the best of what a user more may cost:
// where lab nodes do not care which one they get, that is the answer.
//
// The case that needs it: 64 lab nodes with a virtual function each on largeShape of the tests. The common
// price alone proves 57600; without it the subgradient method does not get above 0.
func (t *tree) commonPortPrice() {
	defer func() { t.start = t.relaxation() }()
	m := t.m
	users, nics := int64(m.vfUsers()), int64(lists.Count(m.devices, func(d device) bool { return d.vfs > 0 }))
	if users == 0 || nics == 0 {
		return
	}
	best := t.relaxation()
	// Spread evenly, each NIC has users/nics of them or one more. One price beyond these leaves room for NICs that
	// cannot be used.
	for k := int64(1); k <= min(users, users/nics+2); k++ {
		// What the users of a NIC cost each other grows by this much from k to k+1 users.
		price := 2 * k * scale * m.p.Weights.NICShared
		clear(t.price.bundle)
		for d := range m.devices {
			if m.devices[d].vfs > 0 {
				t.price.nic[d] = price
				// What the relaxation earns with k or k+1 users is what a whole NIC has to bring.
				t.price.bundle[m.devices[d].bundle] += k*price - scale*m.p.Weights.NICShared*k*(k-1)
			}
		}
		higher, ok := t.raised()
		if !ok {
			break
		}
		if higher {
			best = t.relaxation()
		}
	}
	t.restore(best)
}

// ascend raises the root bound by better prices, and by what equal lab nodes cost.
func (t *tree) ascend() {
	if b := t.boundUnequal(quickSteps); b >= t.cost {
		t.root = b
		return
	}
	defer t.work.budget(ascendSteps)()
	if t.subgradient(); !t.proved() {
		t.roundPrices()
	}
	t.root = max(t.root, t.boundUnequal(equalSteps))
}

// rounds is how often subgradient changes the prices, ascendSteps bounds the work on all
// prices, and where it does not last for fewRounds there is none.
const (
	rounds      = 300
	ascendSteps = 5_000_000
	fewRounds   = 50
)

// subgradient raises the prices of what too many lab nodes want and lowers those of what is left,
// as long as the bound grows: the subgradient method with Polyak's step towards the best placement
// known, in whole numbers. Each direction keeps a part of the last one (Camerini, Fratta and
// Maffioli 1975), since equal lab nodes would all run back and forth otherwise.
func (t *tree) subgradient() {
	m := t.m
	best := t.relaxation()
	// Devices weigh as many cores as a lab node has.
	// A device that one lab node too many wants counts one, and that moves as much cost as all cores of a lab node.
	mean := int64(max(1, m.asked/len(m.requests)))
	weights := [4]int64{1, mean, mean, mean}
	excess, direction := newVector(m), newVector(m)
	high := t.bound(t.least)
	theta, since := int64(16), 0 // theta is the length of a step in sixteenths
	for n := range rounds {
		before := t.work.steps
		t.findExcess(&excess)
		direction.turn(&excess, t.price)
		// Polyak's step aims at the cost of the best placement. That may be far too high before good
		// placements are known, so the aim is kept near the bound.
		gap := scale * (min(t.cost, 2*t.root+1000) - t.bound(t.least))
		norm := direction.norm(weights)
		if norm == 0 || gap <= 0 {
			break
		}
		t.price.step(&direction, weights, theta*gap/16, norm)
		t.applyPrices()
		if !t.cheapest() || t.work.add(0) || n == 0 && (t.work.steps-before)*fewRounds > ascendSteps {
			break // with so few rounds the prices get no better than they were
		}
		if b := t.bound(t.least); b > high {
			high, t.root = b, max(t.root, b)
			best, since = t.relaxation(), 0
			if t.proved() {
				return
			}
		} else if since++; since > 12 {
			// The steps are too long: they jump over the best prices. Go back there, and on with shorter ones.
			since = 0
			theta = theta * 2 / 3
			direction = newVector(m)
			t.restore(best)
			if theta == 0 {
				break
			}
		}
	}
	t.restore(best)
}

// roundPrices tries rounder prices. The best prices are usually differences of costs, and those are
// round; the subgradient method comes close to them and no further.
func (t *tree) roundPrices() {
	round := func(list []int64, unit int64) {
		unit *= scale
		for k, v := range list {
			list[k] = (v + unit/2) / unit * unit
		}
	}
	from := t.price.clone()
	best := t.relaxation()
	for _, ports := range []int64{1000, 500, 100} {
		for _, bundles := range []int64{100, 50, 10} {
			for _, cores := range []int64{10, 1} {
				t.price = from.clone()
				round(t.price.nic, ports)
				round(t.price.vf, ports)
				round(t.price.bundle, bundles)
				round(t.price.node, cores)
				higher, ok := t.raised()
				if !ok {
					break
				}
				if higher {
					best = t.relaxation()
				}
			}
		}
	}
	t.restore(best)
}

// findExcess sets u to how much more the cheapest columns take than there is: a subgradient.
func (t *tree) findExcess(u *vector) {
	m, p := t.m, t.price
	for _, list := range u.parts() {
		clear(list)
	}
	for n := range m.nodes {
		u.node[n] = -int64(m.nodes[n].most())
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
	for i := range t.least {
		c := t.least[i].column
		if c == nil {
			continue
		}
		for _, pc := range c.cores {
			u.node[m.pools[pc.pool].node] += int64(pc.n)
		}
		last := -1
		for d := range c.whole {
			if b := m.devices[d].bundle; b != last {
				u.bundle[b]++
				last = b
			}
		}
		for _, v := range c.vfs {
			u.vf[v.Device] += int64(v.Count)
			u.nic[v.Device]++
		}
	}
	u.clip(p)
}

// clip takes off a vector what would make prices negative: one that is 0 already cannot be lowered.
func (v *vector) clip(p *prices) {
	price := p.parts()
	for part, list := range v.parts() {
		for k := range list {
			if price[part][k] == 0 {
				list[k] = max(0, list[k])
			}
		}
	}
}

// turnScale is the unit of a direction that is made of several.
const turnScale = 16

// turn adds a subgradient to what is left of the direction so far.
func (v *vector) turn(u *vector, p *prices) {
	from := u.parts()
	for part, list := range v.parts() {
		for k := range list {
			list[k] = list[k]*11/16 + turnScale*from[part][k]
		}
	}
	v.clip(p)
}

// norm is the square of the length.
func (v *vector) norm(weights [4]int64) int64 {
	var sum int64
	for part, list := range v.parts() {
		for _, g := range list {
			sum += g * g * weights[part] * weights[part]
		}
	}
	return sum / turnScale
}

// step moves the prices along a direction.
func (p *prices) step(v *vector, weights [4]int64, length, norm int64) {
	direction := v.parts()
	for part, price := range p.parts() {
		for k := range price {
			price[k] = max(0, price[k]+direction[part][k]*weights[part]*length/norm)
		}
	}
}
