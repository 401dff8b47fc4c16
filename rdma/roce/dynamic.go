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
	Number uint32 // of the connection, which grows with each one of a port
	First  uint32 // number of the first packet of the connection
}

// peer is an initiator.
type peer struct {
	gid GID
	qpn uint32
}

// dynamic is what a QP has for dynamic connections.
type dynamic struct {
	connected bool // of an initiator: base and the attributes' path lead to a target
	to        Path
	number    uint32       // of a link: its connection
	used      uint64       // of a link: the target's clock at its last packet
	links     map[peer]*QP // of a target
	clock     uint64       // of a target
}

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

// maxLinks limits the links of a port: peers choose how many there are.
const maxLinks = 4096

// accept gives a packet for a target to the link of its connection. A connection with a higher number replaces the one
// that the initiator had before; packets of an older one come late, and are dropped.
func (q *QP) accept(now time.Duration, p *Packet) bool {
	if p.h&hDC == 0 || p.DC.Key != q.cfg.DCKey || p.Opcode&serviceMask != serviceDC {
		return false
	}
	from := peer{p.Src, p.DC.From}
	l := q.dc.links[from]
	switch {
	case l == nil:
		if q.port.links >= maxLinks && !q.evict() {
			return false
		}
		l = newQP(q.port, QPConfig{Type: RC, QPN: q.cfg.QPN, Owner: receivingOnly{q.cfg.Owner}, Mem: q.cfg.Mem,
			Shared: true, Dynamic: link, Counters: q.count})
		if q.dc.links == nil {
			q.dc.links = map[peer]*QP{}
		}
		q.dc.links[from] = l
		q.port.links++
	case int32(p.DC.Number-l.dc.number) < 0:
		return false
	}
	if l.state == Reset || l.dc.number != p.DC.Number {
		l.serve(q, p)
	}
	q.dc.clock++
	l.dc.used = q.dc.clock
	took := l.receive(now, p)
	q.port.wake(l)
	return took
}

// serve makes a link ready for the connection that a packet belongs to, and answers the way that it came.
func (l *QP) serve(target *QP, p *Packet) {
	l.clear()
	a := target.attr
	own := a.Path
	a.Path = Path{SrcMAC: p.DstMAC, DstMAC: p.SrcMAC, Src: p.Dst, Dst: p.Src, V1: p.V1, Tagged: p.Tagged,
		VLAN: p.TCI & 0xfff, Prio: own.Prio, TClass: own.TClass, HopLimit: own.HopLimit, FlowLabel: own.FlowLabel}
	if p.Tagged {
		a.Path.Prio = uint8(p.TCI >> 13)
	}
	a.RemoteQPN, a.RecvPSN = p.DC.From, p.DC.First
	l.dc.number = p.DC.Number
	l.state = Init
	// The target has the same attributes, so none is refused.
	_ = l.Modify(ReadyToReceive, &a)
}

// evict removes the link that was silent for longest, and reports whether there was one.
func (q *QP) evict() bool {
	var oldest peer
	var found *QP
	for from, l := range q.dc.links {
		if found == nil || l.dc.used < found.dc.used {
			oldest, found = from, l
		}
	}
	if found == nil {
		return false
	}
	q.endLink(found)
	delete(q.dc.links, oldest)
	return true
}

// endLink ends a link without an answer. It stays among the ready queue pairs until its turn, and sends nothing then.
func (q *QP) endLink(l *QP) {
	l.clear()
	l.state = Reset
	q.port.links--
}

func (q *QP) endLinks() {
	for _, l := range q.dc.links {
		q.endLink(l)
	}
}

// receivingOnly is the owner of a link: that of its target, whose requests and state it does not have.
type receivingOnly struct{ Owner }

// NextSend implements [Owner].
func (receivingOnly) NextSend(*SendWR) bool { return false }

// Event implements [Owner]. If a link fails, its target goes on.
func (receivingOnly) Event(Event) {}
