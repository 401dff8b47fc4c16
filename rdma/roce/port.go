package roce

import (
	"fmt"
	"sync"
	"time"
)

// PortConfig is what a port keeps for life.
type PortConfig struct {
	Wire Wire
	// Room is where Wire wants the next frame made: an empty slice with room for MaxFrame bytes. It may take a frame in
	// place from there. nil: the port has a place of its own.
	Room func() []byte
	Rate uint64 // bits/s on the cable; 0: as fast as it is polled
	// Line is the cable's sending direction, where several ports share the cable; nil: the port has it alone.
	Line *Line
	// Group lists the QPs that joined a multicast group; nil: none can.
	Group func(to GID) []uint32
	// Congestion and QoS are read on each use, so that a device may change them at any time; nil: defaults.
	Congestion *Congestion
	QoS        *QoS
}

// Port sends the frames of its QPs, and others, at the rate of a cable, and gives arriving frames to its QPs. QPs have
// turns, a packet each, so that one with a long message does not hold up the others.
type Port struct {
	Counters PortCounters
	cfg      PortConfig
	down     bool

	qps    map[uint32]*QP // by number, and the GSI QP as 1
	ready  ring[*QP]      // that may have something to send, in turn
	timers heap
	cnps   []*QP
	host   [8]ring[[]byte]
	queued int // bytes in host
	turn   int // of host's priorities and the QPs

	lineFree    time.Duration // when the last frame is on the cable
	lineRest    float64       // and the rest of a nanosecond
	busy        bool          // the cable was the limit when Poll ended
	held        bool
	pausedUntil [forLink + 1]time.Duration
	pausedFrom  [forLink + 1]time.Duration
	classFree   [8]time.Duration // when a traffic class may send again by its rate
	parked      [8][]*QP         // wait for their priority

	rx Packet
}

const (
	// wireOverhead is what a frame takes on the cable besides its bytes: preamble, FCS and gap (IEEE 802.3, 4.4.2).
	// minFrame is the size without FCS to which a shorter frame is padded.
	wireOverhead = 8 + 4 + 12
	minFrame     = 60
	// pollBatch bounds one Poll, so that its caller's lock is free in between.
	pollBatch = 256
	// catchUp is how much of the cable's time a late Poll may make up for.
	catchUp = time.Millisecond
	// hostQueue is the room for frames of the host's stack, in bytes.
	hostQueue = 4 << 20
	// pauseRate is the rate by which a port without one counts pauses.
	pauseRate = 25e9
)

// Line is a direction of a cable that several ports share: who takes it waits for what the others sent.
type Line struct {
	mu   sync.Mutex
	free time.Duration
}

// Take books the line from a time on, for as long as a frame takes, and returns when it has passed. A nil Line is one
// that nobody else takes.
func (l *Line) Take(from, takes time.Duration) time.Duration {
	if l == nil {
		return from + takes
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = max(l.free, from) + takes
	return l.free
}

// NewPort returns a port without QPs, whose link is up.
func NewPort(cfg PortConfig) *Port {
	if cfg.Congestion == nil {
		c := DefaultCongestion()
		cfg.Congestion = &c
	}
	if cfg.QoS == nil {
		c := DefaultQoS()
		cfg.QoS = &c
	}
	if cfg.Room == nil {
		buf := make([]byte, 0, MaxFrame)
		cfg.Room = func() []byte { return buf }
	}
	return &Port{cfg: cfg, qps: map[uint32]*QP{}}
}

// NewQP adds a QP in state Reset. Its number must be free. Packets to QP 1 go to the first GSI QP, whatever its number
// in the device.
func (p *Port) NewQP(cfg QPConfig) (*QP, error) {
	if cfg.QPN > psnMask || p.qps[cfg.QPN] != nil {
		return nil, fmt.Errorf("QP number %#x is taken or has more than 24 bits", cfg.QPN)
	}
	q := newQP(p, cfg)
	p.qps[cfg.QPN] = q
	if cfg.Type == GSI && p.qps[gsiQPN] == nil {
		p.qps[gsiQPN] = q
	}
	return q, nil
}

// Remove takes a QP away, with all that it has in flight, and completes nothing. It stays in the round of ready QPs
// until its turn: in state Reset it wants nothing.
func (p *Port) Remove(q *QP) {
	q.clear()
	q.state = Reset
	if q.timer != never {
		p.timers.set(q, never)
	}
	for _, n := range []uint32{q.cfg.QPN, gsiQPN} {
		if p.qps[n] == q {
			delete(p.qps, n)
		}
	}
}

// SetLink takes the link up or down: while it is down nothing is sent or received, and timers run.
func (p *Port) SetLink(up bool) { p.down = !up }

// Share tells that others use the cable until a time, and returns until when it is used. Who sends past the port calls
// it before and after, so that all together keep to the rate.
func (p *Port) Share(until time.Duration) time.Duration {
	p.lineFree = max(p.lineFree, until)
	return p.lineFree
}

// Enqueue queues a frame of the host's own stack, in a priority, behind the ones before it. The
// frame is the port's from then on, unless the queue is full, which drops it.
func (p *Port) Enqueue(frame []byte, prio uint8) bool {
	if p.queued+len(frame) > hostQueue || p.down || prio > 7 {
		p.Counters.TxDropped++
		return false
	}
	p.queued += len(frame)
	p.host[prio].push(frame)
	return true
}

// Backlog is how many bytes of the host's frames wait.
func (p *Port) Backlog() int { return p.queued }

// Receive takes a frame from the wire. False: it is neither RoCE v2 nor a pause frame, so it is the host's. An ICRC
// that is wrong is counted and the packet dropped, as by a card: the sender repeats it.
func (p *Port) Receive(now time.Duration, frame []byte) bool {
	if p.down {
		return true
	}
	if len(frame) >= 20 && be.Uint16(frame[12:]) == etherPause {
		p.pause(now, frame[14:])
		return true
	}
	c := &p.Counters
	switch Parse(frame, &p.rx) {
	case nil:
	case ErrNotRoCE:
		return false
	case ErrICRC:
		c.RxICRC++
		return true
	default:
		c.RxDropped++
		return true
	}
	if frame[0]&1 == 0 {
		c.Rx.add(len(frame))
		p.give(now, p.rx.DstQP, len(frame))
		return true
	}
	c.RxMulticast.add(len(frame))
	if p.cfg.Group != nil && p.rx.DstQP == multicastQP {
		for _, n := range p.cfg.Group(p.rx.Dst) {
			p.give(now, n, len(frame))
		}
	}
	return true
}

// multicastQP is the destination of packets to a group (10.5).
const multicastQP = psnMask

// give gives the packet in rx to a QP. Packets for unknown QPs are dropped without an answer, so that a peer learns
// nothing from them.
func (p *Port) give(now time.Duration, qpn uint32, size int) {
	q := p.qps[qpn]
	if q == nil || !q.receive(now, &p.rx) {
		p.Counters.RxDropped++
		return
	}
	p.Counters.RxPrio[p.qos().of(p.rx.TClass, q.attr.Path.Prio)].add(size)
	p.wake(q)
}

// wake puts a QP into the round of those that may have something to send.
func (p *Port) wake(q *QP) {
	if !q.queued {
		q.queued = true
		p.ready.push(q)
	}
}

// schedule has the QP looked at again at a time. It has one timer, the earliest of those asked for. A timer that comes
// too early does no harm: expire looks at the QP's own times.
func (p *Port) schedule(q *QP, at time.Duration) {
	if at != never && (q.timer == never || at < q.timer) {
		p.timers.set(q, at)
	}
}

// Poll runs what is due and sends what may be sent. Call it after Receive and Doorbell, and again at next, which is
// negative if nothing is waited for. It sends a bounded number of frames: next may be now.
func (p *Port) Poll(now time.Duration) (next time.Duration) {
	for len(p.timers) > 0 && p.timers[0].timer <= now {
		q := p.timers[0]
		p.timers.set(q, never)
		q.expire(now)
		p.schedule(q, q.deadline(now))
		p.wake(q)
	}
	p.unpark(now)
	// A late Poll sends what the cable would have carried since, unless the port was idle.
	if p.busy {
		p.lineFree = max(p.lineFree, now-catchUp)
	} else {
		p.lineFree = max(p.lineFree, now)
	}
	p.busy = false
	sent := 0
	for ; sent < pollBatch && !p.down && !p.held; sent++ {
		if p.cfg.Rate > 0 && p.lineFree > now || !p.send(now) {
			break
		}
	}
	p.busy = !p.down && !p.held && p.waiting() && (sent == pollBatch || p.lineFree > now)
	return p.next(now, sent == pollBatch)
}

// waiting says whether a frame may want the cable.
func (p *Port) waiting() bool { return p.ready.len() > 0 || len(p.cnps) > 0 || p.queued > 0 }

// next is when Poll has something to do.
func (p *Port) next(now time.Duration, more bool) time.Duration {
	if more {
		return now
	}
	at := never
	soonest := func(t time.Duration) {
		if at == never || t < at {
			at = t
		}
	}
	if len(p.timers) > 0 {
		soonest(p.timers[0].timer)
	}
	if p.busy {
		soonest(p.lineFree)
	}
	p.resumes(now, soonest)
	return at
}

// send sends one frame, if there is one that may go.
func (p *Port) send(now time.Duration) bool {
	if p.sendCNP(now) {
		return true
	}
	// The host's priorities and the QPs have turns: each frame of the host, then one of a QP.
	for range 2 {
		p.turn ^= 1
		if p.turn == 0 && p.sendHost(now) || p.turn == 1 && p.sendQP(now) {
			return true
		}
	}
	return false
}

// sendCNP sends a CNP that waits. They go before all else: they are small, and late ones mean a longer queue at the
// switch.
func (p *Port) sendCNP(now time.Duration) bool {
	prio := p.qos().of(p.congestion().CNPDSCP<<2, p.congestion().CNPPrio)
	if p.paused(now, prio) {
		return false
	}
	for len(p.cnps) > 0 {
		q := p.cnps[0]
		p.cnps = p.cnps[:copy(p.cnps, p.cnps[1:])]
		q.cnpOut = false
		if q.receives() {
			p.Counters.CNPSent++
			p.transmit(now, q.buildCNP(p.cfg.Room()), prio, true)
			return true
		}
	}
	return false
}

// sendHost sends a frame of the host's stack: strict priority, the highest first.
func (p *Port) sendHost(now time.Duration) bool {
	for prio := 7; prio >= 0 && p.queued > 0; prio-- {
		if r := &p.host[prio]; r.len() > 0 && !p.paused(now, uint8(prio)) {
			frame := r.pop()
			p.queued -= len(frame)
			p.transmit(now, frame, uint8(prio), false)
			return true
		}
	}
	return false
}

// sendQP sends a packet of the next QP that has one, and takes the others out of the round.
func (p *Port) sendQP(now time.Duration) bool {
	for n := p.ready.len(); n > 0; n-- {
		q := p.ready.pop()
		q.queued = false
		k, prio, at := q.want(now)
		if k != idle && p.paused(now, prio) {
			q.queued = true
			p.parked[prio] = append(p.parked[prio], q)
			p.schedule(q, q.deadline(now))
			continue
		}
		if k == idle || at > now {
			p.schedule(q, at)
			p.schedule(q, q.deadline(now))
			continue
		}
		frame := q.build(now, k, p.cfg.Room())
		p.wake(q)
		if len(frame) == 0 {
			n++ // memory was out of reach: the QP has that to tell instead, to its owner or to the peer
			continue
		}
		if k != reply {
			q.passed(now, wireSize(frame))
		}
		p.transmit(now, frame, prio, true)
		return true
	}
	return false
}

// wireSize is what a frame takes on the cable, in bytes.
func wireSize(frame []byte) int { return max(len(frame), minFrame) + wireOverhead }

// transmit books the cable for a frame, counts it and sends it. Fractions of a nanosecond are kept, since at 100 Gb/s a
// small frame takes 7 ns and rounding would show in the rate.
func (p *Port) transmit(now time.Duration, frame []byte, prio uint8, rdma bool) {
	if p.cfg.Rate > 0 {
		d := float64(wireSize(frame))*8e9/float64(p.cfg.Rate) + p.lineRest
		whole := time.Duration(d)
		p.lineFree, p.lineRest = p.cfg.Line.Take(p.lineFree, whole), d-float64(whole)
	}
	p.limit(now, prio, wireSize(frame))
	c := &p.Counters
	c.TxPrio[prio].add(len(frame))
	if rdma && frame[0]&1 != 0 {
		c.TxMulticast.add(len(frame))
	} else if rdma {
		c.Tx.add(len(frame))
	}
	p.cfg.Wire.Send(now, frame)
}

// ring is a queue that reuses its space: what was taken out is cleared, for the garbage collector, and the rest moves
// to the front only when it is full and more than half of it is free.
type ring[T any] struct {
	s    []T
	head int
}

func (r *ring[T]) len() int { return len(r.s) - r.head }

func (r *ring[T]) push(v T) {
	if len(r.s) == cap(r.s) && r.head > len(r.s)/2 {
		n := copy(r.s, r.s[r.head:])
		clear(r.s[n:])
		r.s, r.head = r.s[:n], 0
	}
	r.s = append(r.s, v)
}

func (r *ring[T]) pop() T {
	var zero T
	v := r.s[r.head]
	r.s[r.head] = zero
	if r.head++; r.head == len(r.s) {
		r.s, r.head = r.s[:0], 0
	}
	return v
}

// heap has the QP with the earliest timer first. Each QP knows its slot.
type heap []*QP

// set gives q a timer, instead of one that it may have; never takes it away.
func (h *heap) set(q *QP, at time.Duration) {
	if q.timer == never {
		q.slot = len(*h)
		*h = append(*h, q)
	}
	q.timer = at
	if at >= 0 {
		h.up(q.slot)
		h.down(q.slot)
		return
	}
	s := *h
	last := s[len(s)-1]
	s[q.slot], last.slot = last, q.slot
	s[len(s)-1] = nil
	*h = s[:len(s)-1]
	if last != q {
		h.up(last.slot)
		h.down(last.slot)
	}
}

func (h heap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

func (h heap) up(i int) {
	for up := (i - 1) / 2; i > 0 && h[i].timer < h[up].timer; up = (i - 1) / 2 {
		h.swap(i, up)
		i = up
	}
}

func (h heap) down(i int) {
	for {
		c := 2*i + 1
		if c+1 < len(h) && h[c+1].timer < h[c].timer {
			c++
		}
		if c >= len(h) || h[i].timer <= h[c].timer {
			return
		}
		h.swap(i, c)
		i = c
	}
}
