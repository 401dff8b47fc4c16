package fabric

import (
	"encoding/binary"
	"slices"
	"time"
)

// Flow control. A port whose queue is above PFC.High holds its senders until it is down to PFC.Low. A NIC that obeys
// pauses gets them as frames of MAC control, for the priority in question or for the link. Of any other NIC the switch
// reads nothing more, whatever the priority.

const (
	etherControl = 0x8808 // MAC control
	opPauseLink  = 0x0001 // IEEE 802.3, annex 31B
	opPausePrio  = 0x0101 // IEEE 802.1Q, 36.2.1
	pauseQuanta  = 0xffff // the longest pause, in units of 512 bit times
	pauseSize    = 60     // bytes: the shortest frame, without FCS
)

// controlAddress is the destination of MAC control. It never leaves a link, so that no node can pause another's NIC.
const controlAddress mac = 0x0180c2000001

// headroom is what a queue may hold above PFC.High: what senders send until their pause has arrived. A NIC that
// does not obey pauses loses what goes beyond.
const headroom = 8 << 20

// pauseTime is how long a pause lasts on a NIC with a rate.
func pauseTime(rate int64) time.Duration {
	return time.Duration(float64(pauseQuanta) * 512 * float64(time.Second) / float64(rate))
}

// A hold is a sender that a port holds, and of which priorities.
type hold struct {
	sender *conn
	of     Priorities
}

// classes are the priorities whose queues hold senders.
func (l *Link) classes() Priorities {
	if (l.PFC != PFC{}) && l.PFC.Of == 0 {
		return 0xff
	}
	return l.PFC.Of
}

// wholeLink is beside the priorities in what of a sender is held.
const wholeLink = 1 << priorities

// updatePFC decides which of the port's queues are too long, and lets senders go of those that no longer are.
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

// hold stops a sender until queues of p have become short.
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

// asks is what of a sender is to be held for the sake of queues.
func (p *port) asks(of Priorities) uint16 {
	if of != 0 && p.link.PFC.Of == 0 {
		return wholeLink
	}
	return uint16(of)
}

// release lets senders go.
func (p *port) release(of Priorities) {
	p.congested &^= of
	held := p.held
	p.held = nil
	for _, h := range held {
		left := h.of &^ of
		if left != 0 {
			p.held = append(p.held, hold{h.sender, left})
		}
		if h.sender.port.conn == h.sender { // else closed by the failure of another
			h.sender.hold(p.asks(h.of)&^p.asks(left), -1)
		}
	}
}

// hold counts ports that hold the sender, and holds it or lets it go.
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

// held is what of the sender is held: a bit for each priority, and one for the link.
func (c *conn) held() (of uint16) {
	for i, n := range c.holds {
		if n > 0 {
			of |= 1 << i
		}
	}
	return of
}

// stopped says whether the sender is not read from: held, and deaf to pauses.
func (c *conn) stopped() bool { return c.port.Rate == 0 && c.held() != 0 }

// endPause counts the time of a pause.
func (c *conn) endPause() { c.port.counters.Paused += time.Duration(c.port.b.mono() - c.heldSince) }

// pause tells the NIC what is held, and lets go of the rest. It has to be told again before its pause is over.
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

// control sends a frame of MAC control, past all that waits but the rest of a frame.
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

// repeatPauses sends pauses again that would end, and returns when that is to be done next.
func (b *bridge) repeatPauses(now int64) int64 {
	next := int64(never)
	for _, c := range slices.Clone(b.paused) { // a failed one goes from the list
		if c.pauseAgain <= now {
			c.pause(0)
		}
		next = min(next, c.pauseAgain)
	}
	return next
}
