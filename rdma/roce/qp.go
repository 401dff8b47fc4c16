package roce

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// QP is a queue pair.
type QP struct {
	port    *Port
	cfg     QPConfig
	state   State
	attr    Attr
	count   *Counters
	base    Packet // headers for the path
	service Opcode // of a connected QP

	end Completion // reused for each completion

	snd  sender
	rcv  responder
	dc   dynamic
	flow flow
	turn bool // a read response goes before a request

	heldData, heldReplies time.Duration // until when they wait, see HoldData

	cnpAt    time.Duration
	cnpOut   bool
	queued   bool          // among the ready QPs, or parked
	timer    time.Duration // in the port's heap at slot, or never
	slot     int
	reported bool // EventCommEst was reported
}

const (
	never = time.Duration(-1)
	// defWindow is this package's choice, because that of cards is not documented. 256 packets of 4 KiB are 1 MiB, or
	// 84 us at 100 Gb/s.
	defWindow  = 256
	maxMessage = 1 << 30 // log_max_msg of adapters; at the smallest MTU half of the numbers
	gsiQPN     = 1
	maxReads   = 16 // reads and atomics that a responder remembers: log_max_ra_res_qp of adapters is 4
	// gsiQKey is the Q_Key of QP 1. Keys with the top bit are for privileged users.
	gsiQKey     = 0x80010000
	defaultPKey = 0xffff
	defaultHops = 64
	// slowStart is the window after a timeout, in packets. It grows by each acknowledged packet.
	slowStart = 4
	// lateTimer is the lateness that gives a timer a second term.
	lateTimer = time.Millisecond
	// flushBatch limits a flush, because a guest may post while it runs.
	flushBatch = 1 << 16
)

func newQP(p *Port, cfg QPConfig) *QP {
	q := &QP{port: p, cfg: cfg, count: cfg.Counters, timer: never}
	q.count = cmp.Or(q.count, new(Counters))
	switch {
	case cfg.Type == UC:
		q.service = serviceUC
	case cfg.SharedBy != nil:
		q.service = serviceXRC
	case cfg.Dynamic != 0:
		q.service = serviceDC
	}
	q.clear()
	return q
}

// clear keeps configuration, state and attributes. The sender is dry until a doorbell.
func (q *QP) clear() {
	q.hold(-q.snd.memory)
	q.endLinks()
	q.dc = dynamic{}
	q.snd, q.rcv, q.flow, q.cnpAt, q.reported = sender{ackAt: never, dry: true}, responder{}, flow{}, never, false
}

// State returns the state, which a failure changes too.
func (q *QP) State() State { return q.state }

// PSNs returns the next numbers to receive and to send, as QUERY_QP shows them.
func (q *QP) PSNs() (recv, send uint32) { return q.rcv.psn, q.snd.next }

// Holds reports whether the QP has a receive of an unfinished message. An unreliable one that was cut off leaves it for
// the next.
func (q *QP) Holds() bool { return q.rcv.held }

// Modify moves the QP to a state. Reset clears everything, and Failed flushes. The QP takes no posted request before
// the next Doorbell.
func (q *QP) Modify(to State, a *Attr) error {
	switch to {
	case Reset:
		q.clear()
		q.state, q.attr = Reset, Attr{}
		return nil
	case Failed:
		q.fail(OK)
		return nil
	}
	if err := q.setAttr(a); err != nil {
		return err
	}
	if to == ReadyToReceive && q.state == Init {
		q.rcv.psn = a.RecvPSN & psnMask
		q.rcv.saved = make([]saved, 0, q.attr.PeerReads)
	}
	if to == ReadyToSend && q.state == ReadyToReceive {
		psn := a.SendPSN & psnMask
		q.snd.una, q.snd.next, q.snd.top = psn, psn, psn
		q.snd.resetRetries(&q.attr)
	}
	if q.snd.window == 0 || to <= ReadyToReceive {
		q.snd.window = q.attr.Window
	}
	q.state = to
	q.port.wake(q)
	return nil
}

// setAttr checks attributes and prepares the headers of all packets of a connected QP.
func (q *QP) setAttr(a *Attr) error {
	at := *a
	at.PKey = cmp.Or(at.PKey, defaultPKey)
	if at.Window <= 0 {
		at.Window = defWindow
	}
	if at.AckEvery <= 0 {
		at.AckEvery = AckEvery
	}
	at.MTU = cmp.Or(at.MTU, maxPayload)
	at.PeerReads = min(at.PeerReads, maxReads)
	if at.MTU < 256 || at.MTU > maxPayload || at.MTU&(at.MTU-1) != 0 && !q.port.cfg.Bare {
		return fmt.Errorf("path MTU %d: it must be 256, 512, 1024, 2048 or 4096", at.MTU)
	}
	if at.Path.Prio > 7 {
		return errors.New("priority above 7")
	}
	if q.dc.connected {
		at.Path = q.attr.Path // of the connection, which goes on
		q.attr = at
		return nil
	}
	q.attr = at
	q.base = q.pathHeaders(&at.Path, at.RemoteQPN)
	q.base.PKey = at.PKey
	return nil
}

func (q *QP) pathHeaders(a *Path, qpn uint32) Packet {
	p := Packet{SrcMAC: a.SrcMAC, DstMAC: a.DstMAC, V1: a.V1, Src: a.Src, Dst: a.Dst, Tagged: a.Tagged,
		TClass: a.TClass &^ ecnMask, TCI: uint16(a.Prio)<<13 | a.VLAN&0xfff, HopLimit: a.HopLimit,
		FlowLabel: a.FlowLabel, SrcPort: a.SrcPort, PKey: q.attr.PKey, DstQP: qpn & psnMask}
	p.HopLimit = cmp.Or(p.HopLimit, defaultHops)
	p.SrcPort = cmp.Or(p.SrcPort, SourcePort(q.cfg.QPN, qpn))
	return p
}

// SourcePort returns the UDP source port of a QP whose path has none, from its number and that of its peer, like the
// kernel's verbs: switches spread QPs over equal paths, and packets of one QP do not overtake each other.
func SourcePort(from, to uint32) uint16 {
	v := uint64(from) * uint64(to)
	v ^= v>>20 ^ v>>40
	return uint16(v&0x3fff^v>>14&0x3f) | 0xc000
}

// Doorbell announces sends, or in state Failed requests to flush. Receives need none, but with it a waiting peer is
// answered sooner.
func (q *QP) Doorbell() {
	q.snd.dry = false
	if q.state == Failed {
		q.flush()
	}
	q.port.wake(q)
}

func (q *QP) receives() bool { return q.state >= ReadyToReceive && q.state <= SendDrain }

// receive returns false if a packet is not this QP's, and is dropped.
func (q *QP) receive(now time.Duration, p *Packet) bool {
	if !q.receives() || !samePartition(p.PKey, q.attr.PKey) {
		return false
	}
	if datagram := q.cfg.Type >= UD; datagram {
		return p.Opcode>>5 == serviceUD>>5 && q.datagram(p)
	}
	if q.cfg.Dynamic == Target {
		return q.accept(now, p)
	}
	// Only the peer may send to a connected QP (9.6.1.5), in the path's version of RoCE.
	if p.Src != q.attr.Path.Dst || p.Dst != q.attr.Path.Src || p.V1 != q.attr.Path.V1 {
		return false
	}
	if p.Opcode == opCNP {
		q.cut(now)
		return true
	}
	if p.Opcode&serviceMask != q.service {
		return false
	}
	p.Opcode &^= serviceMask // from here as in RC
	if !q.reported && q.state == ReadyToReceive {
		q.reported = true
		q.cfg.Owner.Event(EventCommEst)
	}
	if p.TClass&ecnMask == ecnCE && !p.V1 {
		q.marked(now)
	}
	if p.Opcode >= opReadFirst && p.Opcode <= opAtomicAck {
		q.response(now, p)
	} else if q.cfg.Dynamic == Initiator {
		return false // it only sends
	} else {
		q.request(p)
	}
	return true
}

// samePartition reports whether keys may communicate: the same number, and not both of limited members (10.9.3).
func samePartition(a, b uint16) bool { return a<<1 == b<<1 && a<<1 != 0 && (a|b)&0x8000 != 0 }

// fail moves the QP to Failed. If a request failed, it is the first in flight. The state changes first, because
// completions call the device, which may ask for it.
func (q *QP) fail(why Status) {
	if q.state == Failed {
		return
	}
	q.state = Failed
	if why != OK && q.snd.n > 0 {
		q.completeSend(q.snd.at(0), why)
		q.pop()
	}
	q.flush()
	q.failLinks()
}

// flush completes requests with Flushed (10.3.1.7), in order. Replies stay, so that the peer learns the reason.
func (q *QP) flush() {
	for q.snd.n > 0 {
		q.completeSend(q.snd.at(0), Flushed)
		q.pop()
	}
	q.snd.ackAt = never
	var w SendWR
	for range flushBatch {
		if w.SG, w.Inline, w.Fail = w.SG[:0], w.Inline[:0], OK; !q.cfg.Owner.NextSend(&w) {
			break
		}
		q.completeSend(&txWR{SendWR: w}, Flushed)
	}
	if r := &q.rcv; r.held {
		q.completeRecv(Completion{Status: Flushed})
	}
	for range flushBatch {
		if q.cfg.Shared || !q.nextRecv() {
			break
		}
		q.completeRecv(Completion{Status: Flushed})
	}
}

type kind uint8

const (
	idle kind = iota
	reply
	readData
	request
)

// want returns the kind and time of the next packet; never means later than now. Acknowledgements are not paced and go
// first. Read responses and requests take turns, or one direction could starve the other.
func (q *QP) want(now time.Duration) (k kind, prio uint8, at time.Duration) {
	prio = q.prio()
	data, held := false, false
	heldData, heldReplies := q.held()
	if r := q.rcv.first(); r != nil {
		if r.op != replyRead && heldReplies <= now {
			if t := q.attr.Path.AckTClass; t != 0 {
				prio = q.port.qos().of(t, prio)
			}
			return reply, prio, now
		}
		data = r.op == replyRead
		held = !data
	}
	if asks := q.requestReady(now); data && (q.turn || !asks) {
		k = readData
	} else if asks {
		k = request
		prio = q.prio() // of a new connection
		if q.cfg.Type >= UD {
			prio = q.port.qos().Priority(&q.snd.at(q.snd.cur).To)
		}
	} else if held {
		return reply, prio, heldReplies
	} else {
		return idle, 0, never
	}
	if at = max(q.paced(now), heldData); held && at > now {
		at = min(at, heldReplies)
	}
	return k, prio, at
}

// HoldData delays the QP's next data until a time, because the memory behind it is slower than the cable.
func (q *QP) HoldData(until time.Duration) { q.heldData = max(q.heldData, until) }

// HoldReplies delays the QP's next acknowledgement until a time.
func (q *QP) HoldReplies(until time.Duration) { q.heldReplies = max(q.heldReplies, until) }

// build returns an empty frame after a failure.
func (q *QP) build(now time.Duration, k kind, b []byte) []byte {
	if k == request {
		q.turn = true
		return q.buildRequest(now, b)
	}
	q.turn = false
	return q.buildReply(b)
}

// deadline returns when to examine the QP without a packet.
func (q *QP) deadline(now time.Duration) time.Duration {
	s := &q.snd
	if s.waitUntil > now && (s.ackAt == never || s.waitUntil < s.ackAt) {
		return s.waitUntil
	}
	return s.ackAt
}

func (q *QP) expire(now time.Duration) {
	s := &q.snd
	if s.ackAt == never || s.ackAt > now {
		return
	}
	// This process may be late, and the acknowledgement unread. The time may be up to four times the requested one
	// (9.7.6.1.3).
	if now-s.ackAt > lateTimer && !s.late {
		s.late = true
		q.arm(now)
		return
	}
	s.ackAt, s.wentBack, s.late = never, false, false
	q.count.LocalAckTimeoutErr++
	// Slow restart, as on adapters: a peer slower than the timer would get everything again and again.
	s.window = min(s.window, slowStart)
	q.count.SlowRestart++
	q.retry()
}
