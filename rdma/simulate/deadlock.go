package simulate

import (
	"cmp"
	"slices"
	"time"
)

// A Deadlock is a circle of ports that wait for each other: each is paused, and each packet that keeps the pause waits
// at a port of the circle, or at one that waits for it.
type Deadlock struct {
	At       time.Duration `json:"at_ns"` // since when no packet has moved
	Priority int           `json:"priority"`
	Cycle    []string      `json:"cycle"` // ports, each of which waits for the next, and the last for the first
}

const (
	// checkEvery is the time between two looks for a deadlock, and standing the number of looks for which no packet of
	// a circle may move before it counts as one.
	checkEvery = int64(100 * time.Microsecond)
	standing   = 10
)

// A deadlockWatch looks for deadlocks while senders are stopped.
type deadlockWatch struct {
	found  []Deadlock
	armed  bool
	stops  []*port             // that have stopped a sender at the last look or since then
	stuck  [priorities][]*port // that waited for each other at the last look
	sent   [priorities]uint64  // packets of these ports until then
	since  [priorities]int64
	looks  [priorities]int
	locked uint8 // priorities with a deadlock
}

// watchPauses starts to look for deadlocks, as a port has stopped its sender.
func (n *network) watchPauses(p *port) {
	if !p.watched {
		p.watched = true
		n.deadlocks.stops = append(n.deadlocks.stops, p)
	}
	if !n.deadlocks.armed {
		n.deadlocks.armed = true
		n.add(n.now+checkEvery, checking, 0)
	}
}

// checkDeadlock looks for ports that wait for each other, and have done so for a while.
func (n *network) checkDeadlock() {
	w := &n.deadlocks
	// A network has far more ports than those that stop senders.
	w.stops = slices.DeleteFunc(w.stops, func(p *port) bool {
		p.watched = p.stopped != 0
		return !p.watched
	})
	w.armed = len(w.stops) > 0
	slices.SortFunc(w.stops, func(p, q *port) int { return cmp.Compare(p.peer(), q.peer()) })
	all := uint8(0)
	for _, p := range w.stops {
		all |= p.stopped
	}
	for prio := range uint8(priorities) {
		if w.locked>>prio&1 != 0 || all>>prio&1 == 0 && len(w.stuck[prio]) == 0 {
			continue
		}
		stuck, waits := n.stuck(prio)
		sent := uint64(0)
		for _, p := range stuck {
			sent += p.sent
		}
		if len(stuck) == 0 || !slices.Equal(stuck, w.stuck[prio]) || sent != w.sent[prio] {
			w.stuck[prio], w.sent[prio], w.since[prio], w.looks[prio] = stuck, sent, n.now, 0
			continue
		}
		if w.looks[prio]++; w.looks[prio] == standing {
			w.locked |= 1 << prio
			w.found = append(w.found, Deadlock{time.Duration(w.since[prio]), int(prio), circleOf(stuck, waits)})
		}
	}
	if w.armed {
		n.add(n.now+checkEvery, checking, 0)
	}
}

// peer returns the number of the port at the other end, or -1 if there is a host.
func (p *port) peer() int32 {
	if p.out.port == nil {
		return -1
	}
	return p.out.port.index
}

// stuck returns the paused ports that wait for nothing but each other, in their order, and for which ports each waits.
func (n *network) stuck(prio uint8) (list []*port, waits map[*port][]*port) {
	waits = map[*port][]*port{}
	for _, peer := range n.deadlocks.stops {
		if p := peer.out.port; p != nil && p.paused>>prio&1 != 0 && p.queues[prio].first != nil &&
			peer.stopped>>prio&1 != 0 {
			waits[p] = peer.holders(prio)
			list = append(list, p)
		}
	}
	// A port whose pause is kept by a packet that can leave is not stuck, nor are those that wait for it alone.
	for {
		before := len(list)
		list = slices.DeleteFunc(list, func(p *port) bool {
			free := len(waits[p]) == 0 || slices.ContainsFunc(waits[p], func(q *port) bool { return waits[q] == nil })
			if free {
				delete(waits, p)
			}
			return free
		})
		if len(list) == before {
			return list, waits
		}
	}
}

// holders returns the ports of the switch at which packets wait that came through a port.
func (p *port) holders(prio uint8) (list []*port) {
	for _, o := range p.sw.ports {
		for k := o.queues[prio].first; k != nil; k = k.next {
			if k.in == p.index {
				list = append(list, o)
				break
			}
		}
	}
	return list
}

// circleOf returns a circle among ports that wait for each other, from the first of its ports on.
func circleOf(stuck []*port, waits map[*port][]*port) (names []string) {
	at := stuck[0]
	var way []*port
	for !slices.Contains(way, at) {
		way = append(way, at)
		at = waits[at][0]
	}
	way = way[slices.Index(way, at):]
	first := 0
	for i, p := range way {
		if p.index < way[first].index {
			first = i
		}
	}
	for i := range way {
		names = append(names, way[(first+i)%len(way)].name)
	}
	return names
}
