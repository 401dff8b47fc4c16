package roce

import "time"

// Dynamically connected transport (DC): an initiator sends each request to the target that the request names. It is
// connected to one target at a time, as an RC is, until all requests to it have ended. Each request has what the target
// needs for the connection, so that no message is needed before it.

// Dynamic is the end of dynamic connections that a QP is.
type Dynamic uint8

// An Initiator sends, and a Target receives from any initiator that knows its key. A link is one connection of a
// target.
const (
	Initiator Dynamic = iota + 1
	Target
	link
)

// A DC is the header of requests of dynamic connections.
type DC struct {
	Key    uint64 // of the target
	From   uint32 // number of the initiator, for responses
	First  uint32 // number of the first packet of the connection
	Number uint64 // of the connection: a port's later ones have higher numbers
}

// peer is an initiator.
type peer struct {
	gid GID
	qpn uint32
}

// dynamic is what a QP has for dynamic connections.
type dynamic struct {
	// Of an initiator: base and the attributes' path lead to a target, by this address.
	connected bool
	to        Path

	// Of a target: its links, in a ring from this one on, the least recently used first.
	links map[peer]*QP
	ring  *QP

	// Of a link.
	target     *QP
	from       peer
	number     uint64 // of its connection
	used       time.Duration
	prev, next *QP
}

const (
	// MaxLinks limits the links of a target, because peers choose how many there are. Their memory is kept until the
	// target ends.
	MaxLinks = 1024
	// linkIdle is how long a link is kept at least. Before, requests of its connection may come again, and would be
	// executed twice if it were forgotten; and packets of an older connection may come late.
	linkIdle = 5 * time.Second
)

// connectedTo reports whether the connection leads to the target of a request. It ends when nothing is outstanding, so
// that the target may forget it then.
func (q *QP) connectedTo(w *txWR) bool {
	if s := &q.snd; s.cur == 0 && s.pkt == 0 && s.top == w.psn && q.base.DC.First != w.psn {
		return false
	}
	return q.dc.connected && q.base.DstQP == w.QPN&psnMask && q.base.DC.Key == w.DCKey && q.dc.to == w.To
}

// connect begins a connection to the target of a request, which is the next to be sent.
func (q *QP) connect(w *txWR) {
	q.port.connections++
	q.dc.connected, q.dc.to = true, w.To
	q.attr.Path = w.To
	q.base = q.pathHeaders(&w.To, w.QPN)
	q.base.DC = DC{Key: w.DCKey, From: q.cfg.QPN, Number: q.port.connections, First: w.psn}
}

// accept gives a packet for a target to the link of its connection. A connection with a higher number replaces the one
// that the initiator had before; a packet with a lower one comes late and is dropped, unless the link has been silent
// for so long that the initiator has begun anew.
func (q *QP) accept(now time.Duration, p *Packet) bool {
	if p.h&hDC == 0 || p.DC.Key != q.cfg.DCKey || p.Opcode&serviceMask != serviceDC {
		return false
	}
	from := peer{p.Src, p.DC.From}
	l := q.dc.links[from]
	switch {
	case l == nil:
		if l = q.newLink(now, from); l == nil {
			return false
		}
		l.serve(p)
	case p.DC.Number < l.dc.number && now-l.dc.used < linkIdle:
		return false
	case p.DC.Number != l.dc.number:
		l.serve(p)
	}
	l.dc.used = now
	q.unlink(l)
	q.append(l)
	took := l.receive(now, p)
	q.port.wake(l)
	return took
}

// newLink returns a link for an initiator: that of another which has been silent for longest if there are too many, or
// nil if all are in use.
func (q *QP) newLink(now time.Duration, from peer) *QP {
	l := q.dc.ring
	if len(q.dc.links) < MaxLinks {
		l = newQP(q.port, QPConfig{Type: RC, QPN: q.cfg.QPN, Owner: receivingOnly{q.cfg.Owner}, Mem: q.cfg.Mem,
			Shared: true, Dynamic: link, Counters: q.count})
		l.dc.target = q
		q.append(l)
	} else if now-l.dc.used < linkIdle {
		return nil
	} else {
		// It may be among the port's queues that have something to send, so it is used again and not replaced.
		delete(q.dc.links, l.dc.from)
	}
	if q.dc.links == nil {
		q.dc.links = map[peer]*QP{}
	}
	l.dc.from = from
	q.dc.links[from] = l
	return l
}

// append puts a link at the end of the ring.
func (q *QP) append(l *QP) {
	first := q.dc.ring
	if first == nil {
		l.dc.prev, l.dc.next, q.dc.ring = l, l, l
		return
	}
	l.dc.prev, l.dc.next = first.dc.prev, first
	l.dc.prev.dc.next, first.dc.prev = l, l
}

// unlink takes a link out of the ring.
func (q *QP) unlink(l *QP) {
	if l.dc.next == l {
		q.dc.ring = nil
		return
	}
	l.dc.prev.dc.next, l.dc.next.dc.prev = l.dc.next, l.dc.prev
	if q.dc.ring == l {
		q.dc.ring = l.dc.next
	}
}

// serve makes a link ready for the connection that a packet belongs to, and answers the way that it came. A message
// that the last connection left unfinished ends with its receive.
func (q *QP) serve(p *Packet) {
	q.endReceive()
	dc, t := q.dc, q.dc.target
	q.clear()
	q.dc = dc
	a := t.attr
	own := a.Path
	a.Path = Path{SrcMAC: p.DstMAC, DstMAC: p.SrcMAC, Src: p.Dst, Dst: p.Src, V1: p.V1, Tagged: p.Tagged,
		VLAN: p.TCI & 0xfff, Prio: own.Prio, TClass: own.TClass, HopLimit: own.HopLimit, FlowLabel: own.FlowLabel}
	if p.Tagged {
		a.Path.Prio = uint8(p.TCI >> 13)
	}
	a.RemoteQPN, a.RecvPSN = p.DC.From, p.DC.First
	q.dc.number = p.DC.Number
	q.state = Init
	// The target has the same attributes, so none is refused.
	_ = q.Modify(ReadyToReceive, &a)
}

// endReceive completes the receive of an unfinished message.
func (q *QP) endReceive() {
	if q.rcv.held {
		q.completeRecv(Completion{Status: Flushed})
	}
}

// failLinks ends the unfinished messages of a target that fails.
func (q *QP) failLinks() {
	for _, l := range q.dc.links {
		l.endReceive()
		l.state = Failed
	}
}

// endLinks ends all links without an answer. They stay among the ready queue pairs until their turn, and send nothing
// then.
func (q *QP) endLinks() {
	for _, l := range q.dc.links {
		l.clear()
		l.state = Reset
		if l.timer != never {
			q.port.timers.set(l, never)
		}
	}
}

// held returns until when data and replies wait: those of a link also for what its target waits for.
func (q *QP) held() (data, replies time.Duration) {
	data, replies = q.heldData, q.heldReplies
	if t := q.dc.target; t != nil {
		data, replies = max(data, t.heldData), max(replies, t.heldReplies)
	}
	return data, replies
}

// receivingOnly is the owner of a link: that of its target, whose requests and state it does not have.
type receivingOnly struct{ Owner }

// NextSend implements [Owner].
func (receivingOnly) NextSend(*SendWR) bool { return false }

// Event implements [Owner]. If a link fails, its target goes on.
func (receivingOnly) Event(Event) {}
