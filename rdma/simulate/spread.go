package simulate

import (
	"cmp"
	"slices"
	"time"
)

// A cause is a port that stopped its sender, and the port whose queue was the longest of its switch then.
type cause struct{ port, queue int32 }

// A spreadCount counts how often that happened, and for how long.
type spreadCount struct {
	times uint64
	time  int64
}

// longest returns the port with the longest queue of a priority.
func (s *netSwitch) longest(prio uint8) *port {
	most := s.ports[0]
	for _, p := range s.ports {
		if p.queues[prio].bytes > most.queues[prio].bytes {
			most = p
		}
	}
	return most
}

// resumed counts a stop of the sender that has ended.
func (p *port) resumed() {
	n := p.sw.net
	d := n.now - p.stoppedAt
	p.pausedTime += d
	k := cause{p.index, p.because.index}
	c := n.spread[k]
	if c == nil {
		c = new(spreadCount)
		n.spread[k] = c
	}
	c.times++
	c.time += d
}

// A SpreadResult says which sender was stopped because of which queue. Chains of them are the tree in which pauses
// spread: its roots are queues of ports that are not stopped themselves.
type SpreadResult struct {
	Queue   string        `json:"queue"`
	Root    bool          `json:"root"`    // no pause stopped this port, so the congestion began here
	Stopped string        `json:"stopped"` // a port of a switch, or a host
	Times   uint64        `json:"times"`
	Time    time.Duration `json:"time_ns"`
}

// sender returns the name of the other end of a port's link.
func (p *port) sender() string {
	if h := p.out.host; h != nil {
		return h.name
	}
	return p.out.port.name
}

// spreadResult returns all causes of pauses, in the order of their ports.
func (n *network) spreadResult() (list []SpreadResult) {
	for _, p := range n.ports {
		if p.stopped != 0 {
			p.resumed() // the run has ended, and nothing reads the port any more
			p.stopped = 0
		}
	}
	stopped := map[string]bool{}
	var keys []cause
	for k := range n.spread {
		keys = append(keys, k)
		stopped[n.ports[k.port].sender()] = true
	}
	slices.SortFunc(keys, func(a, b cause) int {
		return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.port, b.port))
	})
	for _, k := range keys {
		c, queue := n.spread[k], n.ports[k.queue].name
		list = append(list, SpreadResult{Queue: queue, Root: !stopped[queue], Stopped: n.ports[k.port].sender(),
			Times: c.times, Time: time.Duration(c.time)})
	}
	return list
}
