package search

import (
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// Lagrangian relaxation: each resource for which lab nodes compete has a price of 0 or more, and every column pays for
// its resources. The sum of all lab nodes' least reduced costs, minus the value of all available resources at these
// prices, is a lower bound on the cost of a placement.
//
// Most labs are proved before prices are needed, but prices also guide the search: without them 192em64t-24n8c2t with
// four lab nodes and whole NICs costs 40160 instead of 38530, and its bound is 10360 instead of 26460.

type vector struct {
	node   []int64
	bundle []int64
	vf     []int64
	nic    []int64
	card   []int64 // by first NIC of the card, see model.cards
}

func newVector(m *model) vector {
	return vector{node: make([]int64, len(m.nodes)), bundle: make([]int64, m.bundles),
		vf: make([]int64, len(m.devices)), nic: make([]int64, len(m.devices)), card: make([]int64, len(m.devices))}
}

func (v *vector) parts() [parts][]int64 { return [...][]int64{v.node, v.bundle, v.vf, v.nic, v.card} }

const parts = 5

// prices are in units of 1/scale, and never negative.
type prices struct {
	vector
	fixed int64
}

func newPrices(m *model) *prices { return &prices{vector: newVector(m)} }

func (p *prices) clone() *prices {
	q := prices{fixed: p.fixed}
	q.node, q.bundle = slices.Clone(p.node), slices.Clone(p.bundle)
	q.vf, q.nic, q.card = slices.Clone(p.vf), slices.Clone(p.nic), slices.Clone(p.card)
	return &q
}

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
	for k := range m.cardsOf(c) {
		sum += p.card[k]
	}
	return sum
}

type relaxation struct {
	price *prices
	least []leastColumn
	root  int64
}

func (t *tree) relaxation() relaxation {
	return relaxation{t.price.clone(), slices.Clone(t.least), t.root}
}

// restore keeps the root bound.
func (t *tree) restore(r relaxation) {
	t.price = r.price.clone()
	copy(t.least, r.least)
	t.applyPrices()
}

// applyPrices computes the value of the available resources: the sum of cores, and for each bundle the larger value of
// its two exclusive uses, whole or by virtual functions. A NIC with u users costs w*u*(u-1), because each shares it
// with u-1 others, and earns price*u. The table crowding has the least cost minus earnings by the present number of
// users; since this number only grows, it takes the minimum over all larger ones.
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
	// As with NICs, a card with u lab nodes costs w*u*(u-1) and earns price*u. The cost of the present ones is in
	// wired.
	s.onCard = s.onCard[:0]
	for k, ports := range m.cards {
		var table []int64
		if ports > 0 {
			w := scale * m.p.Weights.CardShared
			table = make([]int64, ports+1)
			for u := int64(ports); u >= 0; u-- {
				table[u] = w*u*(u-1) - p.card[k]*u
				if u < int64(ports) {
					table[u] = min(table[u], table[u+1])
				}
			}
			for u := range table {
				table[u] -= w * int64(u) * int64(u-1)
			}
			s.crowd += table[s.cardUsers[k]]
		}
		s.onCard = append(s.onCard, table)
	}
}

func (m *model) vfUsers() int {
	users := 0
	for i := range m.requests {
		if m.requests[i].ports > m.requests[i].nics {
			users++
		}
	}
	return users
}

func (s *state) bundleTerm(b int) int64 {
	switch {
	case s.owner[b] > 0:
		return -s.whole[b]
	case s.bundleVFs[b] > 0:
		return s.byVF[b]
	}
	return min(-s.whole[b], s.byVF[b])
}

func (t *tree) bound(least []leastColumn) int64 {
	sum := lists.Sum(least, func(l leastColumn) int64 { return l.reduced })
	return max(0, up(sum+t.s.crowd-t.price.fixed)+t.coverAll)
}

// raised computes the bound at changed prices, and raises the root bound to it. ok is false if the work ran out.
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

// commonPortPrice starts with the same price for all NICs, which is optimal if lab nodes are indifferent to the NIC.
//
// The case that needs it: 64 lab nodes with a virtual function each on largeShape of the tests. The common price alone
// proves 57600; without it the subgradient method does not get above 0.
func (t *tree) commonPortPrice() {
	defer func() { t.start = t.relaxation() }()
	m := t.m
	users, nics := int64(m.vfUsers()), int64(lists.Count(m.devices, func(d device) bool { return d.vfs > 0 }))
	if users == 0 || nics == 0 {
		return
	}
	best := t.relaxation()
	// If users are spread evenly, each NIC has users/nics of them or one more. One more price allows for unusable NICs.
	for k := int64(1); k <= min(users, users/nics+2); k++ {
		price := 2 * k * scale * m.p.Weights.NICShared
		clear(t.price.bundle)
		for d := range m.devices {
			if m.devices[d].vfs > 0 {
				t.price.nic[d] = price
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

// commonCardPrice tries the same price for all cards.
//
// The case that needs it: two lab nodes with a port each, of which one card alone has any with RDMA. 1000 is proved
// with it, 0 without.
func (t *tree) commonCardPrice() {
	m := t.m
	if !slices.ContainsFunc(m.cards, func(ports int) bool { return ports > 0 }) {
		return
	}
	best := t.relaxation()
	users := lists.Count(m.requests, func(r request) bool { return r.nics > 0 })
	for n := int64(1); n < int64(min(users, 4)); n++ {
		for k, ports := range m.cards {
			if ports > 0 {
				t.price.card[k] = 2 * n * scale * m.p.Weights.CardShared
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

func (t *tree) ascend() {
	if b := t.boundUnequal(quickSteps); b >= t.cost {
		t.root = b
		return
	}
	defer t.work.budget(ascendSteps)()
	if t.commonCardPrice(); t.proved() {
		return
	}
	if t.subgradient(); !t.proved() {
		t.roundPrices()
	}
	t.root = max(t.root, t.boundUnequal(equalSteps))
}

// ascendSteps limits the work of all price changes. subgradient gives up at once if that is not enough for fewRounds.
const (
	rounds      = 300
	ascendSteps = 5_000_000
	fewRounds   = 50
)

// subgradient raises the prices of overused resources and lowers others while the bound grows, with Polyak's step, in
// integers. Each direction keeps a part of the last one (Camerini, Fratta and Maffioli 1975), because otherwise equal
// lab nodes would all move back and forth.
func (t *tree) subgradient() {
	m := t.m
	best := t.relaxation()
	// A device with one lab node too many has an excess of one, but moves as much cost as all cores of a lab node. So
	// devices weigh as much as a lab node's mean number of cores.
	mean := int64(max(1, m.asked/len(m.requests)))
	weights := [parts]int64{1, mean, mean, mean, mean}
	excess, direction := newVector(m), newVector(m)
	high := t.bound(t.least)
	theta, since := int64(16), 0 // theta: step in sixteenths
	for n := range rounds {
		before := t.work.steps
		t.findExcess(&excess)
		direction.turn(&excess, t.price)
		// Polyak's step aims at the cost of the best placement. Before good ones are known that may be far too high, so
		// the aim stays near the bound.
		gap := scale * (min(t.cost, 2*t.root+1000) - t.bound(t.least))
		norm := direction.norm(weights)
		if norm == 0 || gap <= 0 {
			break
		}
		t.price.step(&direction, weights, theta*gap/16, norm)
		t.applyPrices()
		if !t.cheapest() || t.work.add(0) || n == 0 && (t.work.steps-before)*fewRounds > ascendSteps {
			break // too few to improve the prices
		}
		if b := t.bound(t.least); b > high {
			high, t.root = b, max(t.root, b)
			best, since = t.relaxation(), 0
			if t.proved() {
				return
			}
		} else if since++; since > 12 {
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

// roundPrices tries rounder prices: the best ones are usually differences of costs, which are round.
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
				round(t.price.card, ports)
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

// findExcess sets u to the resources used by the cheapest columns minus the available ones, which is a subgradient.
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
			k := 0
			for k+1 < len(table) && scale*m.p.Weights.NICShared*2*int64(k) < p.nic[d] && k < m.devices[d].vfs {
				k++
			}
			u.nic[d] = -int64(k)
		}
	}
	for k, ports := range m.cards {
		n := int64(0)
		for n < int64(ports) && scale*m.p.Weights.CardShared*2*n < p.card[k] {
			n++
		}
		u.card[k] = -n
	}
	for i := range t.least {
		c := t.least[i].column
		if c == nil {
			continue
		}
		for k := range m.cardsOf(c) {
			u.card[k]++
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

const turnScale = 16

func (v *vector) turn(u *vector, p *prices) {
	from := u.parts()
	for part, list := range v.parts() {
		for k := range list {
			list[k] = list[k]*11/16 + turnScale*from[part][k]
		}
	}
	v.clip(p)
}

// norm is squared, and divided by turnScale.
func (v *vector) norm(weights [parts]int64) int64 {
	var sum int64
	for part, list := range v.parts() {
		for _, g := range list {
			sum += g * g * weights[part] * weights[part]
		}
	}
	return sum / turnScale
}

func (p *prices) step(v *vector, weights [parts]int64, length, norm int64) {
	direction := v.parts()
	for part, price := range p.parts() {
		for k := range price {
			price[k] = max(0, price[k]+direction[part][k]*weights[part]*length/norm)
		}
	}
}
