package simulate

import (
	"math/bits"
	"math/rand/v2"

	"github.com/rackless/rackless/rdma/fabric"
)

const (
	priorities = 8
	// shared is the number of priorities that take turns. Those above are for control and go first.
	shared = priorities - 2
	// turnBytes is the credit of a priority at its turn: at least the longest packet, so that each turn sends one.
	turnBytes = 9216
)

// A netSwitch is a switch with one buffer for all of its ports. Packets count at the port of their arrival for
// PFC, and at the port of their departure for ECN.
type netSwitch struct {
	net    *network
	cfg    *SwitchConfig
	ports  []*port
	index  int32
	edge   int32     // among the switches with hosts
	routes []uint16  // by the edge switch of the destination: index in paths
	paths  [][]*port // sets of ports that begin shortest paths
	salt   uint32
	mark   *rand.Rand

	common int64 // size of the part of the buffer that is shared
	used   int64 // bytes in it
	held   int64 // bytes in the whole buffer
}

// threshold returns the number of shared bytes that one priority of one port may have now, a share of the free ones
// (Choudhury and Hahne, 1998).
func (s *netSwitch) threshold(alpha float64) int64 {
	return int64(alpha * float64(max(0, s.common-s.used)))
}

// A port is a port of a switch.
type port struct {
	sw    *netSwitch
	name  string
	index int32 // among all ports
	alpha float64
	red   fabric.RED
	room  int64 // headroom of each lossless priority
	in    [priorities]entry
	out   *link

	queues  [priorities]fifo
	control fifo
	bytes   int64 // in all queues
	busy    uint8 // priorities that have packets
	paused  uint8 // priorities that the other end has stopped
	until   [priorities]int64
	turn    int
	credit  [priorities]int64
	free    int64   // when the cable is free
	rest    float64 // and the part of a nanosecond
	waiting bool    // a departure at that time is on the agenda, because packets wait for it

	stopped     uint8 // priorities whose sender this port has stopped
	stoppedAt   int64
	because     *port // whose queue was the longest then
	sent        uint64
	renewing    bool
	watched     bool // among those that may be part of a deadlock
	stat        queueStat
	curve       *timeline // of the queue; nil if it is not recorded
	pauses      uint64    // times that it stopped a priority
	pausedTime  int64     // time for which the other end was stopped
	drops, ecns uint64
}

// An entry counts the bytes that came in through a port with one priority.
type entry struct{ bytes, spare int64 }

// over returns the bytes beyond the reserve, which are in the shared part.
func (e *entry) over(reserve int64) int64 { return max(0, e.bytes-reserve) }

func (p *port) receive(k *packet) {
	if k.to < 0 {
		p.obey(k)
		return
	}
	s := p.sw
	out := s.next(k)
	if out == nil || out.out.down || s.full(out, k) || !s.admit(p, k) {
		p.lose(k)
		return
	}
	k.in = p.index
	if !s.cfg.MarkAtDeparture && s.marks(&out.red, out.queues[k.prio].bytes) && fabric.MarkCE(k.data()) {
		out.ecns++
		s.net.stats.Marks++
	}
	out.put(k)
	if s.cfg.lossless(k.prio) {
		p.checkStop(k.prio)
	}
	out.send()
}

func (s *netSwitch) marks(red *fabric.RED, queued int64) bool {
	p := red.At(int(queued))
	return p > 0 && (p >= 1 || s.mark.Float64() < p)
}

// full reports whether a port has too many waiting bytes for another packet, as a port of the switch of a lab.
func (s *netSwitch) full(out *port, k *packet) bool {
	most := int64(s.cfg.Queue)
	return most > 0 && !s.cfg.lossless(k.prio) && out.bytes > 0 && out.bytes+int64(k.held) > most
}

// admit books the buffer for a packet: in the reserve of its entry, in the shared part, or in the headroom. It
// returns false if there is no room.
func (s *netSwitch) admit(p *port, k *packet) bool {
	e, n := &p.in[k.prio], int64(k.held)
	if s.held+n > int64(s.cfg.Buffer) {
		return false
	}
	if e.over(s.cfg.reserve())+n > s.threshold(p.alpha) && e.bytes+n > s.cfg.reserve() {
		if !s.cfg.lossless(k.prio) || e.spare+n > p.room {
			return false
		}
		e.spare += n
		s.held += n
		return true
	}
	before := e.over(s.cfg.reserve())
	e.bytes += n
	s.used += e.over(s.cfg.reserve()) - before
	s.held += n
	return true
}

// release returns the room of a packet. The headroom is free first, as only then the sender may go on.
func (s *netSwitch) release(k *packet) {
	p := s.net.ports[k.in]
	e, n := &p.in[k.prio], int64(k.held)
	s.held -= n
	fromSpare := min(e.spare, n)
	e.spare -= fromSpare
	before := e.over(s.cfg.reserve())
	e.bytes -= n - fromSpare
	s.used -= before - e.over(s.cfg.reserve())
	if p.stopped>>k.prio&1 != 0 {
		p.checkGo(k.prio)
	}
}

// put appends a packet to the queue of its priority.
func (p *port) put(k *packet) {
	p.queues[k.prio].push(k)
	p.busy |= 1 << k.prio
	p.bytes += int64(k.held)
	p.measure()
}

// measure records the length of the queue.
func (p *port) measure() {
	p.stat.set(p.sw.net.now, p.bytes)
	if p.curve != nil {
		p.curve.level(p.sw.net.now, p.bytes)
	}
}

// send starts to send the next packet, if the cable is free.
func (p *port) send() {
	n := p.sw.net
	if n.now < p.free {
		p.wait()
		return
	}
	var k *packet
	if p.control.first != nil {
		k = p.control.pop()
	} else {
		prio := p.pick()
		if prio < 0 {
			return
		}
		q := &p.queues[prio]
		if k = q.pop(); q.first == nil {
			p.busy &^= 1 << prio
		}
		p.bytes -= int64(k.held)
		p.measure()
		p.sw.release(k)
		if p.sw.cfg.MarkAtDeparture && p.sw.marks(&p.red, q.bytes) && fabric.MarkCE(k.data()) {
			p.ecns++
			n.stats.Marks++
		}
	}
	p.sent++
	d := float64(k.wire)*8e9/p.out.rate + p.rest
	whole := int64(d)
	if !n.hpcc {
		p.rest = d - float64(whole)
	}
	p.free = n.now + whole
	n.carry(p.out, k, p.free+p.out.delay)
	if p.busy != 0 || p.control.first != nil {
		p.wait()
	}
}

// wait sends the next packet when the cable is free.
func (p *port) wait() {
	if !p.waiting {
		p.waiting = true
		p.sw.net.add(p.free, departure, p.index)
	}
}

// pick returns the priority of the next packet, or -1: the priorities for control in their order, then the others in
// turns (deficit round robin, Shreedhar and Varghese, 1995).
func (p *port) pick() int {
	ready := p.busy
	if p.paused != 0 {
		p.expire()
		ready &^= p.paused
	}
	if ready == 0 {
		return -1
	}
	if highest := bits.Len8(ready) - 1; highest >= shared {
		return highest
	}
	for {
		if ready>>p.turn&1 != 0 {
			if n := int64(p.queues[p.turn].first.held); n <= p.credit[p.turn] {
				p.credit[p.turn] -= n
				return p.turn
			}
		} else {
			p.credit[p.turn] = 0
		}
		later := ready >> (p.turn + 1)
		if later != 0 {
			p.turn += 1 + bits.TrailingZeros8(later)
		} else {
			p.turn = bits.TrailingZeros8(ready)
		}
		p.credit[p.turn] += turnBytes
	}
}
