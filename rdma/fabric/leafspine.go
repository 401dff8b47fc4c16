package fabric

import (
	"fmt"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxLeaves and MaxSpines limit a topology, because each turn of the loop looks at all links between switches.
const (
	MaxLeaves = 16
	MaxSpines = 16
)

// A Topology joins several switches in one process: nodes are at leaves, and each leaf has a link to each spine. The
// zero value is one switch.
type Topology struct {
	Leaves, Spines int
	Rate           int64 // of each link between switches, in bits a second; 0 means no limit
}

func (t Topology) validate() error {
	rate := Link{Rate: t.Rate}
	switch {
	case t == Topology{}:
		return nil
	case t.Leaves < 1 || t.Leaves > MaxLeaves:
		return fmt.Errorf("start switch: %d leaves: want 1 to %d", t.Leaves, MaxLeaves)
	case t.Spines < 1 || t.Spines > MaxSpines:
		return fmt.Errorf("start switch: %d spines: want 1 to %d", t.Spines, MaxSpines)
	}
	if err := rate.Validate(); err != nil {
		return fmt.Errorf("start switch: %w", err)
	}
	return nil
}

// LeafName and SpineName are the names of switches. A link is a port of each of its switches, named by its own switch
// and the other: leaf0-spine1 and spine1-leaf0.
func LeafName(i int) string { return "leaf" + strconv.Itoa(i) }

// SpineName returns the name of a spine.
func SpineName(i int) string { return "spine" + strconv.Itoa(i) }

// A leafSpine has the ports between switches. Where stations are is known to all switches in common (bridge.table), as
// in a fabric whose leaves tell each other addresses. So no switch learns from links to others, and frames go up to a
// spine at most once and down from it once: there are no loops.
type leafSpine struct {
	Topology
	up    [][]*port   // of leaves, by spine
	paths [][][]*port // by leaf and other leaf: ports of the first one to spines whose links to both are up
	salts []uint32    // of leaves
	flows flowTable
}

// build adds the ports of all links between switches.
func (b *bridge) build(t Topology) error {
	if err := t.validate(); err != nil || t == (Topology{}) {
		return err
	}
	var err error
	if b.timer, err = newTimer(b); err != nil {
		return err
	}
	n := &leafSpine{Topology: t, up: make([][]*port, t.Leaves), paths: make([][][]*port, t.Leaves)}
	for leaf := range t.Leaves {
		n.salts = append(n.salts, Salt(DefaultSeed, leaf))
		n.paths[leaf] = make([][]*port, t.Leaves)
		for spine := range t.Spines {
			p := b.addTrunk(LeafName(leaf)+"-"+SpineName(spine), leaf, t.Rate)
			p.far = b.addTrunk(SpineName(spine)+"-"+LeafName(leaf), t.Leaves+spine, t.Rate)
			p.far.far = p
			n.up[leaf] = append(n.up[leaf], p)
		}
	}
	b.net = n
	n.route()
	b.tellDirect()
	return nil
}

// addTrunk adds a port between switches, which always has a shaper: pauses need its queue.
func (b *bridge) addTrunk(name string, sw int, rate int64) *port {
	p := &port{Port: Port{Name: name, Rate: rate}, b: b, sw: sw}
	p.counters.Since = b.now()
	p.conn = &conn{fd: -1, port: p}
	p.conn.queue.pool = &b.chunks
	p.shape = newShaper(name, p.effective(), b.queueLimit, &p.counters, &b.chunks, b.mono())
	b.ports, b.shaped = append(b.ports, p), append(b.shaped, p)
	return p
}

// effective returns the link with the rate of a port between switches.
func (p *port) effective() Link {
	l := p.link
	if p.between() && p.Rate > 0 && (l.Rate == 0 || l.Rate > p.Rate) {
		l.Rate = p.Rate
	}
	return l
}

// between reports whether a port leads to another switch.
func (p *port) between() bool { return p.sock == nil }

// alive reports whether a link between switches carries frames.
func (p *port) alive() bool { return !p.link.Down && !p.far.link.Down }

// route finds the paths between leaves. Without one, the leaves do not reach each other.
func (n *leafSpine) route() {
	for from := range n.Leaves {
		for to := range n.Leaves {
			n.paths[from][to] = n.paths[from][to][:0]
			for spine, p := range n.up[from] {
				if from != to && p.alive() && n.up[to][spine].alive() {
					n.paths[from][to] = append(n.paths[from][to], p)
				}
			}
		}
	}
}

// isLeaf reports whether a switch is a leaf.
func (n *leafSpine) isLeaf(sw int) bool { return sw < n.Leaves }

// name returns the name of a switch.
func (n *leafSpine) name(sw int) string {
	if n.isLeaf(sw) {
		return LeafName(sw)
	}
	return SpineName(sw - n.Leaves)
}

// steer forwards a frame within its switch, towards a port that may be at another one. With to nil it is flooded.
func (b *bridge) steer(p, to *port, s span, frame []byte, now int64) {
	n := b.net
	switch {
	case to == nil:
		b.floodSwitch(p, s)
	case p.sw == to.sw:
		b.emit(to.conn, s)
	case !n.isLeaf(p.sw):
		down := n.up[to.sw][p.sw-n.Leaves].far
		if down == p || !down.alive() { // the station has just moved, or the link went down
			p.counters.RxNowhere++
			return
		}
		b.emit(down.conn, s)
	case p.between(): // the station has just moved
		p.counters.RxNowhere++
	default:
		paths := n.paths[p.sw][to.sw]
		if len(paths) == 0 {
			p.counters.RxNowhere++
			return
		}
		flow, transport := flowOf(frame)
		via := paths[Choose(flow.Hash(), n.salts[p.sw], len(paths))]
		n.flows.count(p, to, via, &flow, transport, len(frame), now)
		b.emit(via.conn, s)
	}
}

// floodSwitch floods a frame in its switch: to the other nodes of a leaf, and from a node to all other leaves, each by
// the first spine that reaches it, so that each node gets it once.
func (b *bridge) floodSwitch(from *port, s span) {
	n, sent := b.net, false
	emit := func(p *port) {
		b.emit(p.conn, s)
		sent = true
	}
	if n.isLeaf(from.sw) {
		for _, p := range b.ports {
			if p != from && p.sw == from.sw && !p.between() && p.conn != nil && !p.link.Down {
				emit(p)
			}
		}
	}
	switch {
	case !n.isLeaf(from.sw):
		leaf := from.far.sw
		for to, paths := range n.paths[leaf] {
			if len(paths) > 0 && paths[0] == from.far {
				emit(n.up[to][from.sw-n.Leaves].far)
			}
		}
	case !from.between():
		for _, via := range n.up[from.sw] {
			if slices.ContainsFunc(n.paths[from.sw], func(paths []*port) bool {
				return len(paths) > 0 && paths[0] == via
			}) {
				emit(via)
			}
		}
	}
	switch {
	case sent:
		from.counters.RxFlooded++
	case !from.between(): // a leaf without other nodes drops nothing
		from.counters.RxNowhere++
	}
}

// keptIn limits the memory that a port keeps for arriving frames.
const keptIn = 1 << 20

// arrive takes whole frames from the other end of the link. They are forwarded after the current ones, by hop.
func (p *port) arrive(v []unix.Iovec) (n int) {
	if len(p.in) == 0 {
		p.b.arrived = append(p.b.arrived, p)
	}
	for i := range v {
		p.in = append(p.in, unsafe.Slice(v[i].Base, v[i].Len)...)
		n += int(v[i].Len)
	}
	return n
}

// hop forwards frames that have crossed links between switches, and reports whether there were any. It ends, because a
// frame crosses at most two such links.
func (b *bridge) hop() (moved bool) {
	for len(b.arrived) > 0 {
		moved = true
		p := b.arrived[0]
		b.arrived = slices.Delete(b.arrived, 0, 1)
		frames := p.in
		p.in, p.spare = p.spare[:0], nil
		forward := b.forward
		if !p.alive() {
			forward = b.discard
		}
		if _, err := forward(p, frames); err != nil {
			b.log.Error("fabric: frames of a link between switches", "port", p.Name, "error", err)
		}
		if cap(frames) <= keptIn {
			p.spare = frames[:0]
		}
	}
	return moved
}

// stop holds priorities of a port between switches, as a pause from its other end does, or lets them go.
func (p *port) stop(held uint16) {
	all := uint8(held)
	if held&wholeLink != 0 {
		all = 0xff
	}
	freed := p.shape.stopped &^ all
	p.shape.stopped = all
	if freed != 0 {
		now := p.b.mono()
		p.shape.open, p.shape.free = now, max(p.shape.free, uint64(now)) // the time of the stop is lost
		p.b.again = true
	}
}
