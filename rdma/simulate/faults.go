package simulate

import "time"

// A Fault changes a link from a time on, in both directions.
type Fault struct {
	Link string        `yaml:"link"` // a port of a switch such as s0:2, or a host
	At   time.Duration `yaml:"at"`
	Rate rate          `yaml:"rate"` // from then on
	Down bool          `yaml:"down"`
}

// fail applies a fault.
func (n *network) fail(i int32) {
	f := &n.faults[i]
	p := n.named[f.Link]
	back := p.back()
	if f.Rate > 0 {
		p.out.rate, back.rate = float64(f.Rate), float64(f.Rate)
	}
	if !f.Down {
		return
	}
	p.out.down, back.down = true, true
	p.cut()
	if p.out.host == nil {
		p.out.port.cut()
	}
	n.route()
}

// back returns the other direction of the link of a port.
func (p *port) back() *link {
	if p.out.host != nil {
		return p.out.host.out
	}
	return p.out.port.out
}

// cut drops all that waits at a port whose link has gone down, and forgets the pauses of that link.
func (p *port) cut() {
	for prio := range p.queues {
		for q := &p.queues[prio]; q.first != nil; {
			k := q.pop()
			p.bytes -= int64(k.held)
			p.sw.release(k)
			p.lose(k)
		}
	}
	for p.control.first != nil {
		p.sw.net.put(p.control.pop())
	}
	p.measure()
	p.busy, p.paused = 0, 0
	if p.stopped != 0 {
		p.stopped = 0
		p.resumed()
	}
}

// lose counts a packet that a port drops.
func (p *port) lose(k *packet) {
	p.drops++
	p.sw.net.stats.Drops++
	p.sw.net.put(k)
}

// slowed makes a NIC wait for a link that has become slower than its rate: it returns when the link has carried the
// frame that the NIC believes to have sent at a time.
func (h *host) slowed(p *packet, at int64) int64 {
	if h.out.rate >= h.rate {
		return at
	}
	at += int64(float64(p.wire) * 8e9 * (1/h.out.rate - 1/h.rate))
	h.nic.Share(time.Duration(at))
	return at
}
