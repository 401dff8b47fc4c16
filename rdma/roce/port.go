package roce

import (
	"fmt"
	"sync"
	"time"
)

// PortConfig is the permanent configuration of a port.
type PortConfig struct {
	Wire Wire
	// Room returns an empty slice with a capacity of MaxFrame bytes. Wire may keep a frame that was built there. If
	// nil, the port uses its own buffer.
	Room func() []byte
	Rate uint64 // bits/s of the cable; 0 means as fast as it is polled
	// Overhead is in bytes of a frame on the cable beyond its own; nil means 24, for preamble, FCS and gap.
	Overhead *int
	// Bare leaves payload, padding and ICRC out of frames, for simulations. Headers state the lengths of the whole
	// frame, which counts on the cable. A bare port understands only bare frames.
	Bare bool
	// Line is the sending direction of a cable that several ports share; nil otherwise.
	Line *Line
	// Memory limits the bytes of requests in flight, beyond one for each QP; 0 means no limit. Above it a QP takes its
	// next request when its earlier ones have ended.
	Memory int
	// Yield reports after each step whether Poll should return at once; nil means never.
	Yield func() bool
	// Connections is the number from which dynamic connections count: higher than those of an earlier port with the
	// same address, such as a time.
	Connections uint64
	// Group returns the QPs of a multicast packet; it may be nil.
	Group func(p *Packet) []uint32
	// Congestion and QoS are read at each use, and may change at any time; nil means defaults.
	Congestion *Congestion
	QoS        *QoS
}

// Port sends frames of its QPs and the host at the rate of a cable, and passes arriving ones to its QPs. QPs take turns
// with one packet each, so that a long message does not delay others.
type Port struct {
	Counters PortCounters
	cfg      PortConfig
	overhead int
	down     bool

	qps    map[uint32]*QP // the GSI QP also as 1
	ready  ring[*QP]      // may have something to send, in turn
	timers heap
	cnps   []*QP
	host   [8]ring[[]byte]
	queued int // bytes in host
	turn   int // alternates between host and QPs

	memory int // of requests of all QPs

	lineFree    time.Duration // when the cable has carried the last frame
	lineRest    float64       // fraction of a nanosecond
	busy        bool          // the cable was the limit at the end of Poll
	more        bool          // Poll ended before all that is due was done
	held        bool
	pausedUntil [forLink + 1]time.Duration
	pausedFrom  [forLink + 1]time.Duration
	classFree   [8]time.Duration // when its rate allows the next frame, by traffic class
	parked      [8][]*QP         // QPs that wait for their priority

	rx Packet

	connections uint64 // number of the last one of an initiator
}

const (
	// wireOverhead is preamble, FCS and gap (IEEE 802.3, 4.4.2). minFrame, without FCS, is the least size after
	// padding.
	wireOverhead = 8 + 4 + 12
	minFrame     = 60
	// pollBatch limits a Poll, so that its caller can release its lock in between.
	pollBatch = 256
	// catchUp is the cable time that a late Poll may catch up.
	catchUp = time.Millisecond
	// hostQueue limits queued frames of the host, in bytes.
	hostQueue = 4 << 20
	// pauseRate is for pauses of a port without a rate.
	pauseRate = 25e9
)

// Line is a direction of a shared cable. A frame waits for earlier ones of all ports.
type Line struct {
	mu   sync.Mutex
	free time.Duration
}

// Take books the line for a frame, not before from, and returns when it has passed. A nil Line is not shared.
func (l *Line) Take(from, takes time.Duration) time.Duration {
	if l == nil {
		return from + takes
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = max(l.free, from) + takes
	return l.free
}

// NewPort returns a port with the link up.
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
	p := &Port{cfg: cfg, overhead: wireOverhead, qps: map[uint32]*QP{}, connections: cfg.Connections}
	if cfg.Overhead != nil {
		p.overhead = *cfg.Overhead
	}
	return p
}

// NewQP adds a QP in state Reset, with an unused number. The first GSI QP receives the packets to QP 1, too.
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

// Remove removes a QP without completions. It stays among the ready ones until its turn, and sends nothing then.
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

// SetLink sets the link. A port that is down sends and receives nothing, but its timers run.
func (p *Port) SetLink(up bool) { p.down = !up }

// Share records use of the cable until a time, and returns the end of its use. A sender that bypasses the port calls it
// before and after, so that together they keep to the rate.
func (p *Port) Share(until time.Duration) time.Duration {
	p.lineFree = max(p.lineFree, until)
	return p.lineFree
}

// Enqueue queues a frame of the host, which the port then owns, or drops it if the queue is full.
func (p *Port) Enqueue(frame []byte, prio uint8) bool {
	if p.queued+len(frame) > hostQueue || p.down || prio > 7 {
		p.Counters.TxDropped++
		return false
	}
	p.queued += len(frame)
	p.host[prio].push(frame)
	return true
}

// Backlog returns the waiting bytes of the host.
func (p *Port) Backlog() int { return p.queued }

// Receive accepts a frame. It returns false if that is neither RoCE nor a pause, and so for the host. A packet with a
// wrong ICRC is counted and dropped, as by a card, and its sender repeats it.
func (p *Port) Receive(now time.Duration, frame []byte) bool {
	if p.down {
		return true
	}
	if len(frame) >= 20 && be.Uint16(frame[12:]) == etherPause {
		// Another address would be a peer's, which must not pause this port across a switch.
		if [6]byte(frame) == pauseAddress {
			p.pause(now, frame[14:])
		} else {
			p.Counters.RxDropped++
		}
		return true
	}
	c := &p.Counters
	size := p.size(frame)
	switch p.parse(frame) {
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
		c.Rx.add(size)
		p.give(now, p.rx.DstQP, size)
		return true
	}
	c.RxMulticast.add(size)
	if p.cfg.Group != nil && p.rx.DstQP == multicastQP {
		for _, n := range p.cfg.Group(&p.rx) {
			p.give(now, n, size)
		}
	}
	return true
}

// multicastQP is the destination of multicast (10.5).
const multicastQP = psnMask

// give passes the packet in rx to a QP. It drops packets for unknown QPs without an answer, so that a peer learns
// nothing about them.
func (p *Port) give(now time.Duration, qpn uint32, size int) {
	q := p.qps[qpn]
	if q == nil || !q.receive(now, &p.rx) {
		p.Counters.RxDropped++
		return
	}
	prio := q.attr.Path.Prio & 7
	if !p.rx.V1 {
		prio = p.qos().of(p.rx.TClass, prio)
	}
	p.Counters.RxPrio[prio].add(size)
	p.wake(q)
}

func (p *Port) wake(q *QP) {
	if !q.queued {
		q.queued = true
		p.ready.push(q)
	}
}

// schedule sets the QP's only timer, unless it is set to an earlier time. One that fires too early is harmless, because
// expire checks the QP's own times.
func (p *Port) schedule(q *QP, at time.Duration) {
	if at != never && (q.timer == never || at < q.timer) {
		p.timers.set(q, at)
	}
}

// Poll runs the due timers and sends frames. It must be called after Receive and Doorbell, and at next, which is
// negative if nothing is pending. It sends a limited number of frames, so next may be now.
func (p *Port) Poll(now time.Duration) (next time.Duration) {
	p.more = false
	for len(p.timers) > 0 && p.timers[0].timer <= now {
		q := p.timers[0]
		p.timers.set(q, never)
		q.expire(now)
		p.schedule(q, q.deadline(now))
		p.wake(q)
		if p.yield() {
			return now
		}
	}
	p.unpark(now)
	// A late Poll sends the frames that the cable would have carried, unless the port was idle.
	if p.busy {
		p.lineFree = max(p.lineFree, now-catchUp)
	} else {
		p.lineFree = max(p.lineFree, now)
	}
	p.busy = false
	for sent := 0; !p.more && !p.down && !p.held; {
		if p.cfg.Rate > 0 && p.lineFree > now || !p.send(now) {
			break
		}
		if sent++; sent == pollBatch || p.yield() {
			p.more = true
		}
	}
	p.busy = !p.down && !p.held && p.waiting() && (p.more || p.lineFree > now)
	return p.next(now, p.more)
}

func (p *Port) full() bool { return p.cfg.Memory > 0 && p.memory >= p.cfg.Memory }

func (p *Port) yield() bool {
	if p.cfg.Yield != nil && p.cfg.Yield() {
		p.more = true
	}
	return p.more
}

func (p *Port) waiting() bool { return p.ready.len() > 0 || len(p.cnps) > 0 || p.queued > 0 }

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

func (p *Port) send(now time.Duration) bool {
	if p.sendCNP(now) {
		return true
	}
	// The host and the QPs take turns.
	for range 2 {
		p.turn ^= 1
		if p.turn == 0 && p.sendHost(now) || p.turn == 1 && p.sendQP(now) {
			return true
		}
	}
	return false
}

// sendCNP sends a CNP before all other frames, because it is small and a late one means a longer queue at the switch.
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

// sendHost sends the host's frame of the highest priority.
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

// sendQP sends a packet of the next QP that has one, and removes the QPs before it from the ready ones.
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
			if p.yield() {
				return false
			}
			continue
		}
		frame := q.build(now, k, p.cfg.Room())
		p.wake(q)
		if len(frame) == 0 {
			n++ // memory was inaccessible; the QP has an error for its owner or peer
			continue
		}
		if k != reply {
			q.passed(now, p.wireSize(p.size(frame)))
		}
		p.transmit(now, frame, prio, true)
		return true
	}
	return false
}

func (p *Port) parse(frame []byte) error {
	if p.cfg.Bare {
		return p.rx.parse(frame, true)
	}
	return Parse(frame, &p.rx)
}

// size returns the size of a frame, for bare ones as their headers state it.
func (p *Port) size(frame []byte) int {
	if p.cfg.Bare {
		return FullSize(frame)
	}
	return len(frame)
}

func (p *Port) wireSize(n int) int { return max(n, minFrame) + p.overhead }

func (p *Port) append(b []byte, k *Packet) []byte {
	if p.cfg.Bare {
		return k.appendHeaders(b, len(k.Payload))
	}
	return k.Append(b)
}

func (p *Port) finish(b []byte, start int, k *Packet) []byte {
	if p.cfg.Bare {
		return b
	}
	return k.finish(b, start)
}

// transmit books the cable for a frame and sends it. It keeps fractions of a nanosecond, because at 100 Gb/s a small
// frame takes 7 ns and rounding would change the rate.
func (p *Port) transmit(now time.Duration, frame []byte, prio uint8, rdma bool) {
	size := p.size(frame)
	wire := p.wireSize(size)
	if p.cfg.Rate > 0 {
		d := float64(wire)*8e9/float64(p.cfg.Rate) + p.lineRest
		whole := time.Duration(d)
		p.lineFree, p.lineRest = p.cfg.Line.Take(p.lineFree, whole), d-float64(whole)
	}
	p.limit(now, prio, wire)
	c := &p.Counters
	c.TxPrio[prio].add(size)
	if rdma && frame[0]&1 != 0 {
		c.TxMulticast.add(size)
	} else if rdma {
		c.Tx.add(size)
	}
	p.cfg.Wire.Send(now, frame)
}

// ring is a queue that reuses its space. Removed entries are cleared for the garbage collector, and the rest moves to
// the front only if the queue is full and more than half of it is free.
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

// heap has the earliest timer first. Each QP knows its slot.
type heap []*QP

// set sets the timer of q, or removes it if at is never.
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
