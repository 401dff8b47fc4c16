package fabric

import (
	"encoding/binary"
	"slices"
	"time"
)

// A port with a queue above PFC.High holds its senders until it is down to PFC.Low. A NIC that obeys pauses gets MAC
// control frames, for the priority or for the link. Any other NIC is no longer read from, for all priorities.

const (
	etherControl = 0x8808 // MAC control
	opPauseLink  = 0x0001 // IEEE 802.3, annex 31B
	opPausePrio  = 0x0101 // IEEE 802.1Q, 36.2.1
	pauseQuanta  = 0xffff // the longest, in units of 512 bit times
	pauseSize    = 60     // the shortest frame, without FCS
)

const controlAddress mac = 0x0180c2000001

// isControl reports whether a frame is MAC control. It never leaves a link, whatever its destination, so that no node
// can pause another's NIC.
func isControl(frame []byte) bool { return binary.BigEndian.Uint16(frame[12:]) == etherControl }

// headroom is in bytes above PFC.High, for frames sent before the pause arrives. A NIC that does not obey pauses loses
// others.
const headroom = 8 << 20

func pauseTime(rate int64) time.Duration {
	return time.Duration(float64(pauseQuanta) * 512 * float64(time.Second) / float64(rate))
}

type hold struct {
	sender *conn
	of     Priorities
}

func (l *Link) classes() Priorities {
	if (l.PFC != PFC{}) && l.PFC.Of == 0 {
		return 0xff
	}
	return l.PFC.Of
}

// wholeLink is the bit above the priorities' bits.
const wholeLink = 1 << priorities

func (p *port) updatePFC() {
	limits, classes := p.link.PFC, p.link.classes()
	backlog := 0
	if p.conn != nil {
		backlog = p.conn.queue.bytes
	}
	for prio := range priorities {
		q := 0
		if p.conn != nil {
			q = p.shape.queued(prio, backlog)
		}
		switch {
		case classes.has(prio) && q > limits.High:
			p.congested |= 1 << prio
		case p.congested.has(prio) && (!classes.has(prio) || q <= limits.Low):
			p.release(1 << prio)
		}
	}
}

func (p *port) hold(sender *conn, of Priorities) {
	i := slices.IndexFunc(p.held, func(h hold) bool { return h.sender == sender })
	if i < 0 {
		i = len(p.held)
		p.held = append(p.held, hold{sender: sender})
	}
	h := &p.held[i]
	more := p.asks(h.of|of) &^ p.asks(h.of)
	h.of |= of
	sender.hold(more, +1)
}

// asks returns the bits to hold at a sender because of these queues.
func (p *port) asks(of Priorities) uint16 {
	if of != 0 && p.link.PFC.Of == 0 {
		return wholeLink
	}
	return uint16(of)
}

func (p *port) release(of Priorities) {
	p.congested &^= of
	held := p.held
	p.held = nil
	for _, h := range held {
		left := h.of &^ of
		if left != 0 {
			p.held = append(p.held, hold{h.sender, left})
		}
		if h.sender.port.conn == h.sender { // otherwise closed by the failure of another
			h.sender.hold(p.asks(h.of)&^p.asks(left), -1)
		}
	}
}

// hold adds n to the counts of ports that hold the sender.
func (c *conn) hold(of uint16, n int) {
	b, before := c.port.b, c.held()
	for i := range c.holds {
		if of>>i&1 != 0 {
			c.holds[i] += n
		}
	}
	switch after := c.held(); {
	case after == before:
		return
	case before == 0:
		c.port.counters.Pauses++
		c.heldSince = b.mono()
	case after == 0:
		c.endPause()
	}
	if c.port.between() {
		c.port.counters.PauseFrames++
		c.port.far.stop(c.held())
		return
	}
	if c.port.Rate == 0 {
		c.interest(c.blocked)
		return
	}
	c.pause(before &^ c.held())
	b.paused = slices.DeleteFunc(b.paused, func(o *conn) bool { return o == c })
	if c.held() != 0 {
		b.paused = append(b.paused, c)
	}
}

// held returns a bit for each priority, and one for the link.
func (c *conn) held() (of uint16) {
	for i, n := range c.holds {
		if n > 0 {
			of |= 1 << i
		}
	}
	return of
}

// stopped reports whether a sender is not read from, because it is held and does not obey pauses.
func (c *conn) stopped() bool { return c.port.Rate == 0 && c.held() != 0 }

func (c *conn) endPause() { c.port.counters.Paused += time.Duration(c.port.b.mono() - c.heldSince) }

// pause tells the NIC its held priorities, and the free ones of off. It must be repeated before the pause expires.
func (c *conn) pause(off uint16) {
	on := c.held()
	if (on|off)&wholeLink != 0 {
		c.control(opPauseLink, []uint16{quanta(on & wholeLink)})
	}
	if classes := (on | off) &^ wholeLink; classes != 0 {
		fields := []uint16{classes}
		for prio := range priorities {
			fields = append(fields, quanta(on>>prio&1))
		}
		c.control(opPausePrio, fields)
	}
	c.pauseAgain = c.port.b.mono() + int64(pauseTime(c.port.Rate)/2)
}

func quanta(on uint16) uint16 {
	if on != 0 {
		return pauseQuanta
	}
	return 0
}

// control sends MAC control ahead of waiting frames, but after the rest of a partly sent one.
func (c *conn) control(op uint16, fields []uint16) {
	p, b := c.port, c.port.b
	buf := make([]byte, prefixLen, prefixLen+pauseSize)
	binary.BigEndian.PutUint32(buf, pauseSize)
	buf = append(buf, 0x01, 0x80, 0xc2, 0, 0, 1, 0x02, 0, 0, 0, 0, 0)
	for _, f := range append([]uint16{etherControl, op}, fields...) {
		buf = binary.BigEndian.AppendUint16(buf, f)
	}
	buf = buf[:prefixLen+pauseSize]
	for _, t := range b.taps {
		t.capture(p, b.now().UnixNano(), buf[prefixLen:])
		t.signal()
	}
	p.counters.PauseFrames++
	n := 0
	if c.queue.empty() {
		var err error
		b.iovecs = appendIovec(b.iovecs[:0], buf)
		if n, err = c.writev(b.iovecs); err != nil {
			return // the read from it fails too, and disconnects it
		}
	}
	if n == len(buf) {
		p.counters.TxFrames++
		p.counters.TxBytes += pauseSize
		return
	}
	c.queue.push(buf[n:], pauseSize)
	c.block(true)
}

// repeatPauses repeats pauses before they expire, and returns its next time.
func (b *bridge) repeatPauses(now int64) int64 {
	next := int64(never)
	for _, c := range slices.Clone(b.paused) { // failing connections leave the list
		if c.pauseAgain <= now {
			c.pause(0)
		}
		next = min(next, c.pauseAgain)
	}
	return next
}
