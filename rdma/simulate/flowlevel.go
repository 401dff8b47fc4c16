package simulate

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/roce"
)

// Levels of a simulation: all packets, or rates of flows that are computed from the links that they share.
const (
	PacketLevel = "packet"
	FlowLevel   = "flow"
)

// A stream is what has a rate at flow level: a flow, or the flows of a ring, which wait for each other and so have the
// same rate.
type stream struct {
	flows  []*flow
	links  []use   // of all flows
	left   float64 // bytes of each flow
	rate   float64 // bytes/ns of each flow
	lag    int64   // time in which its links are idle: delays, headers, the last acknowledgement
	solved bool    // it has its rate, while those of others are computed

	place map[int32]int32 // of a ring: where its links are
	lost  bool            // of a ring: a flow has no path
}

// A use is a link of a stream, and how many of its flows take it.
type use struct{ link, n int32 }

// A sharing computes rates instead of sending packets. Each stream has its max-min fair rate (Bertsekas and Gallager,
// Data Networks, 1992, 6.5.2): it could have more only at the cost of a stream that has no more than itself. A link
// that several flows share is used as far as packets use it.
type sharing struct {
	net     *network
	now     float64
	used    []Usage
	payload float64 // share of the bytes on a cable that is payload
	active  []*stream
	rings   map[int32]*stream

	on   []int32   // flows on each link
	open []int32   // those whose rate is not known yet, while rates are computed
	load []float64 // bytes/ns of the others

	end int64
}

func newSharing(c *Config, n *network, used []Usage) *sharing {
	mtu := float64(c.NIC.MTU)
	return &sharing{net: n, used: used, payload: mtu / (mtu + headData + float64(n.overWire)),
		rings: map[int32]*stream{}, on: make([]int32, len(n.links)), open: make([]int32, len(n.links)),
		load: make([]float64, len(n.links)), end: math.MaxInt64}
}

// share runs a simulation at flow level until all flows have ended, or to the end.
func (n *network) share(c *Config, used []Usage, end int64, stop func() bool) {
	s := newSharing(c, n, used)
	s.end = end
	order := make([]int, len(n.faults))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(n.faults[a].At, n.faults[b].At) })
	for n.open > 0 {
		if stop() {
			n.stats.Stopped = true
			return
		}
		limit := end
		if len(order) > 0 {
			limit = min(limit, int64(n.faults[order[0]].At))
		}
		s.solve()
		s.advance(float64(limit))
		if n.open > 0 && s.now >= float64(end) {
			n.now = end
			return
		}
		for ; len(order) > 0 && float64(n.faults[order[0]].At) <= s.now; order = order[1:] {
			n.fail(int32(order[0]))
			s.detour()
		}
	}
}

// capacity returns the bytes/ns of payload that a number of flows gets through a link.
func (s *sharing) capacity(link, flows int32) float64 {
	return s.net.links[link].rate / 8e9 * s.payload * usageOf(s.used, float64(flows))
}

// rounding is less than a byte, and more than what floating-point times lose in an hour.
const rounding = 0.5

// few streams have new rates whenever one starts or ends.
const few = 100

// advance lets the streams go on until one of them ends or a flow starts. If there are many, they go on for a hundredth
// of their mean completion on an empty network after that, since new rates for each would take too long.
func (s *sharing) advance(limit float64) {
	n := s.net
	mean, next := 0.0, math.Inf(1)
	for _, t := range s.active {
		mean += float64(t.flows[0].best) / float64(len(s.active))
		if t.rate > 0 {
			next = min(next, s.now+t.left/t.rate)
		}
	}
	if n.starts < len(n.flows) {
		next = min(next, float64(n.flows[n.starts].start))
	}
	until := min(next, limit)
	if len(s.active) >= few {
		until = max(s.now, min(next+mean/100, limit))
	}
	for n.starts < len(n.flows) && float64(n.flows[n.starts].start) <= until {
		s.start(n.flows[n.starts])
		n.starts++
	}
	s.active = slices.DeleteFunc(s.active, func(t *stream) bool {
		begin := max(s.now, float64(t.flows[0].start))
		if rest := t.left - t.rate*(until-begin); rest > rounding {
			t.left = rest
			return false
		}
		s.leave(t)
		end := int64(math.Round(begin+t.left/t.rate)) + t.lag
		if end > s.end {
			return true // its last acknowledgement comes too late
		}
		for _, f := range t.flows {
			f.end = end
			n.open--
		}
		n.now = max(n.now, end)
		return true
	})
	s.now = until
}

// start adds a flow, with the share of its links for one more flow until all rates are computed again.
func (s *sharing) start(f *flow) {
	f.from.qpn++
	f.to.qpn++
	f.sourcePort = roce.SourcePort(f.from.qpn, f.to.qpn)
	path, t := f.route(), s.rings[f.ring]
	if path == nil && f.ring != 0 && t == nil {
		t = &stream{}
		s.rings[f.ring] = t
	}
	if path == nil && t != nil {
		s.loseRing(t)
	}
	if path == nil || t != nil && t.lost {
		s.lose(f)
		return
	}
	if t == nil {
		t = &stream{left: float64(f.bytes), rate: math.Inf(1)}
		s.active = append(s.active, t)
		if f.ring != 0 {
			s.rings[f.ring] = t
		}
	}
	t.flows = append(t.flows, f)
	s.enter(t, path)
	alone := math.Inf(1)
	for _, l := range path {
		alone = min(alone, s.capacity(l.index, 1))
	}
	t.lag = max(t.lag, int64(f.best)-int64(float64(f.bytes)/alone))
	for _, l := range path {
		t.rate = min(t.rate, s.capacity(l.index, s.on[l.index])/float64(s.on[l.index]))
	}
}

// loseRing ends all flows of a ring, since none goes on without the one that has no path.
func (s *sharing) loseRing(t *stream) {
	if t.lost {
		return
	}
	t.lost = true
	s.leave(t)
	for _, f := range t.flows {
		s.lose(f)
	}
	s.active = slices.DeleteFunc(s.active, func(o *stream) bool { return o == t })
}

// enter adds the links of a flow to those of its stream.
func (s *sharing) enter(t *stream, path []*link) {
	for _, l := range path {
		s.on[l.index]++
		if i, has := t.place[l.index]; has {
			t.links[i].n++
			continue
		}
		if t.flows[0].ring != 0 {
			if t.place == nil {
				t.place = map[int32]int32{}
			}
			t.place[l.index] = int32(len(t.links))
		}
		t.links = append(t.links, use{l.index, 1})
	}
}

// leave takes a stream off its links.
func (s *sharing) leave(t *stream) {
	for _, u := range t.links {
		s.on[u.link] -= u.n
	}
	t.links = t.links[:0]
	clear(t.place)
}

// lose ends a flow that has no path, as its NIC does after its retries.
func (s *sharing) lose(f *flow) {
	f.failed = roce.RetryExceeded
	s.net.open--
}

// detour finds the paths again after a link has changed.
func (s *sharing) detour() {
	s.active = slices.DeleteFunc(s.active, func(t *stream) bool {
		s.leave(t)
		for _, f := range t.flows {
			path := f.route()
			if path == nil {
				s.leave(t)
				for _, f := range t.flows {
					s.lose(f)
				}
				return true
			}
			s.enter(t, path)
		}
		return false
	})
}

// A bottleneck is a link with the rate that each of its flows would have if it were the slowest one of all of them.
type bottleneck struct {
	rate float64
	link int32
}

// bottlenecks are a heap, the slowest first.
type bottlenecks []bottleneck

func (b bottlenecks) Len() int { return len(b) }
func (b bottlenecks) Less(i, j int) bool {
	return b[i].rate < b[j].rate || b[i].rate == b[j].rate && b[i].link < b[j].link
}
func (b bottlenecks) Swap(i, j int) { b[i], b[j] = b[j], b[i] }
func (b *bottlenecks) Push(v any)   { *b = append(*b, v.(bottleneck)) }
func (b *bottlenecks) Pop() any {
	last := len(*b) - 1
	v := (*b)[last]
	*b = (*b)[:last]
	return v
}

// fair returns the rate of each flow of a link whose rate is not known yet, if this link is what limits them.
func (s *sharing) fair(link int32) float64 {
	n := s.open[link]
	return max(0, s.capacity(link, n)-s.load[link]) / float64(n)
}

// solve computes the rates of all streams: those of the slowest link first, which leaves the rest of their other links
// to the others.
func (s *sharing) solve() {
	by := s.byLink()
	copy(s.open, s.on)
	clear(s.load)
	queue := make(bottlenecks, 0, len(by))
	for link, n := range s.on {
		if n > 0 {
			queue = append(queue, bottleneck{s.fair(int32(link)), int32(link)})
		}
	}
	heap.Init(&queue)
	for len(queue) > 0 {
		b := &queue[0]
		if s.open[b.link] == 0 {
			heap.Pop(&queue)
			continue
		}
		// It may have become faster, since streams that are slower elsewhere left it some of their share. It never
		// becomes slower, whatever was measured for fewer flows.
		if now := s.fair(b.link); now > b.rate {
			b.rate = now
			heap.Fix(&queue, 0)
			continue
		}
		rate := b.rate
		for _, t := range by[b.link] {
			if t.solved {
				continue
			}
			t.solved, t.rate = true, rate
			for _, u := range t.links {
				s.open[u.link] -= u.n
				s.load[u.link] += rate * float64(u.n)
			}
		}
		heap.Pop(&queue)
	}
}

// byLink returns the streams of each link that has some, none of which has its rate.
func (s *sharing) byLink() [][]*stream {
	by := make([][]*stream, len(s.on))
	for _, t := range s.active {
		t.solved = false
		for _, u := range t.links {
			if by[u.link] == nil {
				by[u.link] = make([]*stream, 0, s.on[u.link])
			}
			by[u.link] = append(by[u.link], t)
		}
	}
	return by
}

// route returns the links of the path that switches choose for the packets of the flow, or nil if there is none.
func (f *flow) route() []*link {
	five := fabric.FlowOfRoCE(address(f.from.index), address(f.to.index), f.sourcePort)
	k := packet{to: f.to.index, hash: five.Hash()}
	if f.from.out.down {
		return nil
	}
	links := []*link{f.from.out}
	for l := f.from.out; l.host == nil; {
		out := l.port.sw.next(&k)
		if out == nil || out.out.down {
			return nil
		}
		l = out.out
		links = append(links, l)
	}
	return links
}

// A Usage says how much of a link flows get that share it, as measured on packets.
type Usage struct {
	Flows int     `json:"flows"`
	Share float64 `json:"share"` // of its payload
}

// Bounds of the messages with which usages are measured, in bytes.
const (
	leastSample = 64 << 10
	mostSample  = 4 << 20
)

// usages simulates 2, 4 and so on up to a number of hosts that send to one, packet by packet, with the switches and
// NICs of a configuration and messages of a size. The last of them to end says how much of the link they used.
func (c *Config) usages(bytes int64, most int, stop func() bool) (list []Usage) {
	for flows := 2; flows <= most; flows *= 2 {
		one := &Config{Level: PacketLevel, NIC: c.NIC, Switch: c.Switch, Seed: c.Seed, Until: time.Second,
			Topology: Topology{Form: star, Hosts: flows + 1, Rate: c.Topology.Rate, Delay: c.Topology.Delay},
			Traffic: []Traffic{{Pattern: incast, To: "h0", Senders: flows, QPs: 1, Times: 1,
				Bytes: lab.Bytes(min(max(bytes, leastSample), mostSample))}}}
		one.Switch.Buffer = max(c.Switch.Buffer, lab.Bytes((flows+1)*c.needOf(c.Topology.Rate, c.Topology.Delay)))
		r := Run(one, stop)
		if r.Unfinished == 0 {
			f := r.Flows[0]
			alone := float64(f.Bytes) / (float64(c.Topology.Rate) / 8e9 * float64(c.NIC.MTU) /
				float64(c.NIC.MTU+headData+c.NIC.overWire))
			busy := r.Completion.Most - (float64(f.Ideal) - alone)
			list = append(list, Usage{flows, min(1, float64(flows)*alone/busy)})
		}
	}
	return list
}

// usageOf returns the share of a link that a number of flows uses: as measured for the next number, and between two on
// a line over the logarithm.
func usageOf(list []Usage, flows float64) float64 {
	below := Usage{1, 1}
	for _, u := range list {
		if flows <= float64(u.Flows) {
			part := math.Log2(flows/float64(below.Flows)) / math.Log2(float64(u.Flows)/float64(below.Flows))
			return below.Share + max(0, part)*(u.Share-below.Share)
		}
		below = u
	}
	return below.Share
}

// meanMessage returns the mean size of a message of all flows.
func (n *network) meanMessage() int64 {
	sum, count := int64(0), int64(0)
	for _, f := range n.flows {
		messages := (f.bytes + f.message - 1) / f.message
		if f.part != nil {
			messages = f.part.messages
		}
		sum, count = sum+f.bytes, count+messages
	}
	return sum / max(1, count)
}

// Numbers of flows for which usages are measured: up to as many as end at one host, within these.
const (
	leastSharers = 16
	mostSharers  = 256
)

// mostSenders returns the largest number of flows that end at one host, within bounds.
func (n *network) mostSenders() int {
	to, most := make([]int, len(n.hosts)), leastSharers
	for _, f := range n.flows {
		to[f.to.index]++
		most = max(most, to[f.to.index])
	}
	return min(most, mostSharers)
}
