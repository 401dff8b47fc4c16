package search

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

type request struct {
	cores, threads int
	pages          int64
	class          int
	rep            int // the first interchangeable request
	w              plan.NodeWeights
	wants          []want
	devices        int // total number of devices
	gpus, ports    int // of all devices
	nics           int // whole NICs of the ports
	*pairing
	peers   []peer // affinities to other requests
	pools   []bool
	apart   *apartness // see shares.go; may be nil
	outlook bool       // see ahead.go

	// Lower bounds on the cost of memory, see pages.go. Each is nil if it is zero.
	alone     []int64 // by NUMA node
	aloneSpan []int64 // by number of NUMA nodes
	memory    *pageCost
}

type want struct {
	kind  wantKind
	count int
	any   []int // ascending
}

type wantKind int

const (
	wantGPU wantKind = iota
	wantNIC
	wantVF
)

type peer struct {
	other     int
	numa, nic string
}

func (m *model) addRequests() error {
	m.requests = make([]request, len(m.p.Requests))
	classes := numbering[int]{}
	for i := range m.p.Requests {
		if err := m.addRequest(i); err != nil {
			return err
		}
		m.asked += m.requests[i].cores
		c, isNew := classes.of(m.requests[i].class)
		if isNew {
			m.classes = append(m.classes, nil)
		}
		m.classes[c] = append(m.classes[c], i)
	}
	m.classes = slices.DeleteFunc(m.classes, func(members []int) bool { return len(members) == 1 })
	return nil
}

func (m *model) addRequest(i int) error {
	q, r := &m.p.Requests[i], &m.requests[i]
	if q.Cores < 1 || q.Cores > 1<<20 || q.Threads < 1 || q.Pages < 0 {
		return fmt.Errorf("problem: request %q has %d cores, %d threads a core, %d pages: want at least 1, 1 and 0",
			q.Name, q.Cores, q.Threads, q.Pages)
	}
	*r = request{cores: q.Cores, threads: q.Threads, pages: q.Pages, class: q.Class, w: m.p.Weights.Of(q)}
	var asked [wantVF + 1]int
	for kind, wants := range [][]plan.Want{q.GPUs, q.NICs, q.VFs} {
		for _, w := range wants {
			if w.Count < 0 || w.Count > 1<<20 {
				return fmt.Errorf("problem: request %q wants %d devices (%q)", q.Name, w.Count, w.Text)
			}
			x := want{kind: wantKind(kind), count: w.Count}
			for _, d := range w.Any {
				if d < 0 || d >= len(m.devices) {
					return fmt.Errorf("problem: request %q wants device %d, of which there are %d", q.Name, d,
						len(m.devices))
				}
				if m.devices[d].serves(x.kind) {
					x.any = append(x.any, d)
				}
			}
			x.any = lists.Distinct(x.any)
			asked[kind] += w.Count
			if w.Count > 0 {
				r.wants = append(r.wants, x)
			}
		}
	}
	r.gpus, r.nics, r.ports = asked[wantGPU], asked[wantNIC], asked[wantNIC]+asked[wantVF]
	r.devices = r.gpus + r.ports
	for k := range m.pools {
		r.pools = append(r.pools, m.pools[k].threads >= r.threads)
	}
	return m.addPairing(r, q.Name)
}

func (v *device) serves(kind wantKind) bool {
	if kind == wantVF {
		return v.vfs > 0
	}
	return v.whole && v.nic == (kind == wantNIC)
}

func (m *model) addAffinity() error {
	for k, a := range m.p.Affinity {
		for _, i := range a.Requests {
			if i < 0 || i >= len(m.requests) {
				return fmt.Errorf("problem: affinity %d names request %d, of which there are %d", k, i, len(m.requests))
			}
		}
		for _, i := range a.Requests {
			for _, j := range a.Requests {
				if i != j {
					m.requests[i].peers = append(m.requests[i].peers, peer{j, a.NUMA, a.NIC})
				}
			}
		}
	}
	return nil
}

// A pairing holds lower bounds on the cost of paths for requests that choose the same number of GPUs, and ports, from
// the same devices.
type pairing struct {
	count    int   // GPUs per lab node
	gpuList  []int // possible GPUs, ascending
	portList []int // possible NICs, by want

	minPair    []int64 // by GPU or NIC: cheapest path to the other kind, or 0
	leastPair  int64
	secondPair int64     // of a GPU's second best port; see helpPaths
	half       [][]int64 // by index of gpuList: sums of the k cheapest paths to other GPUs, at k; see gpusAhead
}

// addPairing returns an error if a needed path is missing.
func (m *model) addPairing(r *request, name string) error {
	q := &pairing{count: r.gpus}
	for _, w := range r.wants {
		if w.kind == wantGPU {
			q.gpuList = append(q.gpuList, w.any...)
		} else {
			q.portList = append(q.portList, w.any...)
		}
	}
	q.gpuList = lists.Distinct(q.gpuList)
	// Without sharing, a lab of 64 equal requests would examine all pairs of devices 64 times.
	k := slices.IndexFunc(m.pairings, func(o *pairing) bool {
		return o.count == q.count && slices.Equal(o.gpuList, q.gpuList) && slices.Equal(o.portList, q.portList)
	})
	if k >= 0 {
		r.pairing = m.pairings[k]
		return nil
	}
	r.pairing = q
	m.pairings = append(m.pairings, q)
	return m.pricePaths(q, name)
}

func (m *model) pricePaths(q *pairing, name string) error {
	noPath := func(a, b int) error {
		return fmt.Errorf("problem: request %q: no path between devices %q and %q", name, m.p.Devices[a].ID,
			m.p.Devices[b].ID)
	}
	q.minPair = slices.Repeat([]int64{infinite}, len(m.devices))
	q.leastPair, q.secondPair = infinite, infinite
	for _, g := range q.gpuList {
		best, second := infinite, infinite
		for _, d := range q.portList {
			c := m.pair(g, d)
			switch {
			case c < 0:
				return noPath(g, d)
			case c < best:
				best, second = c, best
			case c < second:
				second = c
			}
			q.minPair[d] = min(q.minPair[d], c)
		}
		q.minPair[g] = best
		q.leastPair = min(q.leastPair, best)
		q.secondPair = min(q.secondPair, second)
		for _, h := range q.gpuList {
			if g != h && q.count > 1 && m.gpuPair(g, h) < 0 {
				return noPath(g, h)
			}
		}
	}
	for _, v := range []*int64{&q.leastPair, &q.secondPair} {
		*v = finite(*v)
	}
	for d, v := range q.minPair {
		q.minPair[d] = finite(v)
	}
	if len(q.gpuList)*q.count <= outlookDevices {
		m.priceGPUs(q)
	}
	return nil
}

func finite(least int64) int64 {
	if least == infinite {
		return 0
	}
	return least
}

func (m *model) priceGPUs(q *pairing) {
	var costs []int64
	for _, g := range q.gpuList {
		costs = costs[:0]
		for _, h := range q.gpuList {
			if g != h && q.count > 1 {
				costs = append(costs, m.gpuPair(g, h))
			}
		}
		q.half = append(q.half, cheapest(costs, q.count-1))
	}
}

// cheapest sorts costs and returns the sums of the cheapest 0, 1, ... up to k, or of all if there are fewer.
func cheapest(costs []int64, k int) []int64 {
	slices.Sort(costs)
	sums := []int64{0}
	for n := range k {
		sums = append(sums, sums[n])
		if n < len(costs) {
			sums[n+1] += costs[n]
		}
	}
	return sums
}

// prepareLookahead leaves out requests with a single device: each choice is examined anyway.
func (m *model) prepareLookahead() {
	n := len(m.nodes)
	if n > outlookNodes {
		return
	}
	for i := range m.requests {
		r := &m.requests[i]
		total := lists.Sum(r.wants, func(w want) int { return len(w.any) })
		r.outlook = r.devices >= 2 && total <= outlookDevices && len(r.gpuList)*r.gpus <= outlookDevices
		if r.outlook {
			m.findApart(r)
		}
		if !r.outlook || m.near != nil {
			continue
		}
		m.near = make([][]int, n)
		for a := range n {
			m.near[a] = m.orderedNodes(func(x, y int) int { return cmp.Compare(m.far(a, x), m.far(a, y)) })
		}
	}
}

func (m *model) orderedNodes(compare func(x, y int) int) []int {
	order := make([]int, len(m.nodes))
	for b := range order {
		order[b] = b
	}
	slices.SortStableFunc(order, compare)
	return order
}
