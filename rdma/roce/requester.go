package roce

import (
	"time"
	"unsafe"
)

// txWR is a request in flight. psn is its first number; a read takes as many as it has responses (9.7.2).
type txWR struct {
	SendWR
	psn    uint32
	pkts   uint32 // numbers; 0 if nothing goes on the wire
	got    uint32 // received responses; of a local request: done
	length uint32
}

// sender is the requester of a QP (9.7.3): requests from the oldest unacknowledged one, to which the next packet goes
// back after a loss.
type sender struct {
	ring    []txWR // its length is a power of two
	head, n int
	cur     int    // to send next, from the head; n if all are sent
	pkt     uint32 // of that request
	una     uint32 // oldest unacknowledged number
	next    uint32 // number for the next request
	top     uint32 // after the highest sent number
	reads   int    // incomplete reads and atomics
	unasked int    // packets since the last request for acknowledgement
	window  int    // the QP's, less after a timeout

	retries, rnrs uint8 // left
	ackAt         time.Duration
	waitUntil     time.Duration // after an RNR NAK
	wentBack      bool          // since the last progress: later NAKs are ignored
	late          bool          // the timer got a second term
	drained       bool          // EventDrained was sent
	dry           bool          // no more requests are posted
	memory        int           // of ring and the lists of its requests
}

func (s *sender) at(i int) *txWR { return &s.ring[(s.head+i)&(len(s.ring)-1)] }

func (s *sender) resetRetries(a *Attr) {
	s.retries, s.rnrs, s.wentBack, s.late = a.Retry, a.RNRRetry, false, false
}

func (s *sender) pop() {
	if w := s.at(0); s.cur > 0 {
		s.cur--
		if w.Op.reads() {
			s.reads--
		}
	} else {
		s.pkt = 0
	}
	s.head, s.n = s.head+1, s.n-1
}

// goBack resends from the oldest unacknowledged number (go-back-N); of a read, only the missing part. Packets are built
// again from the guest's memory, which must not change before the completion.
func (s *sender) goBack() {
	s.cur, s.pkt, s.reads, s.ackAt = 0, 0, 0, never
	if s.n > 0 {
		s.pkt = uint32(max(0, psnDiff(s.una, s.at(0).psn)))
	}
}

// sentTo returns the number after the last one since goBack.
func (s *sender) sentTo() uint32 {
	if s.cur < s.n {
		return s.at(s.cur).psn + s.pkt
	}
	return s.next
}

func (q *QP) newest() *txWR {
	s := &q.snd
	if s.n == len(s.ring) {
		ring := make([]txWR, max(8, 2*s.n))
		q.hold((len(ring) - len(s.ring)) * int(unsafe.Sizeof(txWR{})))
		for i := range s.n {
			ring[i] = *s.at(i)
		}
		s.ring, s.head = ring, 0
	}
	w := s.at(s.n)
	w.SendWR = SendWR{SG: w.SG[:0], Inline: w.Inline[:0]}
	return w
}

// hold counts n more bytes at the QP and its port.
func (q *QP) hold(n int) {
	q.snd.memory += n
	q.port.memory += n
}

// pop removes the oldest request. The last one's memory is given back, unless the port has plenty.
func (q *QP) pop() {
	s := &q.snd
	s.pop()
	if p := q.port; s.n == 0 && p.cfg.Memory > 0 && p.memory > p.cfg.Memory/2 {
		s.ring, s.head = nil, 0
		q.hold(-s.memory)
	}
}

func listBytes(w *SendWR) int { return cap(w.SG)*int(unsafe.Sizeof(SGE{})) + cap(w.Inline) }

// fetch takes the next posted request only if it may be sent soon, so that a failed QP has few to flush.
func (q *QP) fetch() bool {
	s := &q.snd
	// A request without packets need not wait for the window.
	if s.dry || q.state != ReadyToSend || s.n >= 2*q.attr.Window {
		return false
	}
	// A QP may always have one request.
	if s.n > 0 && q.port.full() {
		return false
	}
	w := q.newest()
	before := listBytes(&w.SendWR)
	s.dry = !q.cfg.Owner.NextSend(&w.SendWR)
	q.hold(listBytes(&w.SendWR) - before)
	if s.dry {
		return false
	}
	w.psn, w.got, w.pkts, w.length = s.next, 0, 0, 0
	if w.Fail == OK {
		w.Fail = q.admit(w)
	}
	if w.Fail == OK && w.Op.packets() {
		w.pkts = max(1, (w.length+uint32(q.attr.MTU)-1)/uint32(q.attr.MTU))
	}
	s.next = (s.next + w.pkts) & psnMask
	s.n++
	return true
}

// admit checks a request. Its memory is checked whole here, and again at each packet, because the key may be destroyed
// in between.
func (q *QP) admit(w *txWR) Status {
	ud := q.cfg.Type >= UD
	if w.Op > WRUpdate || q.cfg.Type != RC && (w.Op.reads() || w.Op == WRSendInv) || ud && w.Op.remote() {
		return LocalQPOp
	}
	if !w.Op.packets() {
		return OK
	}
	need, length := LocalRead, uint64(0)
	if w.Op.reads() {
		need = LocalWrite
	}
	for _, e := range w.SG {
		if e.Inline && (w.Op.reads() || e.VA+uint64(e.Len) > uint64(len(w.Inline))) {
			return LocalQPOp // nothing can be stored inline
		}
		length += uint64(e.Len)
	}
	if length > maxMessage || ud && length > uint64(q.attr.MTU) || w.Op.atomic() && length != 8 {
		return LocalLength
	}
	w.length = uint32(length)
	for _, e := range w.SG {
		if !e.Inline && e.Len > 0 && q.cfg.Mem.Check(e.Key, e.VA, uint64(e.Len), need) != nil {
			return LocalProtection
		}
	}
	return OK
}

// requestReady reports whether a packet can be sent now. It also processes the next requests that need no packet.
func (q *QP) requestReady(now time.Duration) bool {
	s := &q.snd
	if q.state != ReadyToSend && q.state != SendDrain || now < s.waitUntil {
		return false
	}
	for s.cur < s.n || q.fetch() {
		w := s.at(s.cur)
		switch {
		case w.Fail != OK:
			// Earlier requests complete first.
			if s.cur == 0 {
				q.fail(w.Fail)
			}
			return false
		case w.Fence && s.pkt == 0 && s.reads > 0, w.Last && s.pkt == 0 && s.cur > 0:
			return false
		case q.cfg.Dynamic == Initiator && w.pkts > 0 && !q.connectedTo(w):
			if s.cur > 0 {
				return false // the connection ends when all of its requests have
			}
			q.connect(w)
			return q.room(w)
		case w.pkts > 0:
			return q.room(w)
		}
		q.local(w)
		if q.port.yield() { // the owner may post as fast as its requests complete
			q.port.wake(q)
			return false
		}
	}
	if s.n == 0 && q.state == SendDrain && !s.drained {
		s.drained = true
		q.cfg.Owner.Event(EventDrained)
	}
	return false
}

// room reports whether the next packet of w may be sent. For RC the window represents the card's buffers. Reads are
// limited by the responder (max_rd_atomic).
func (q *QP) room(w *txWR) bool {
	s := &q.snd
	if q.cfg.Type != RC {
		return true
	}
	// Fewer than half of all numbers may be in flight, or old ones look new (9.7.2).
	if span := (w.psn + w.pkts - s.una) & psnMask; psnDiff(w.psn+s.pkt, s.una) >= s.window || span >= 1<<23 {
		return false
	}
	return !w.Op.reads() || s.reads < int(q.attr.MaxReads)
}

// local runs a request without packets in order. It changes a key once, also if a loss resends earlier requests.
func (q *QP) local(w *txWR) {
	s := &q.snd
	if w.got == 0 {
		switch w.Op {
		case WRLocalInv:
			if q.cfg.Mem.Invalidate(w.Imm, false) != nil {
				w.Fail = MemoryOp
			}
		case WRUpdate:
			w.Fail = q.cfg.Mem.Update(w.Imm, w.Inline)
		}
		if w.Fail != OK {
			return
		}
	}
	w.got = 1
	s.cur++
	q.endLocals()
}

func (q *QP) endLocals() {
	for s := &q.snd; s.n > 0 && s.cur > 0 && s.at(0).pkts == 0; {
		q.completeSend(s.at(0), OK)
		q.pop()
	}
}

func (q *QP) completeSend(w *txWR, st Status) {
	switch st {
	case OK:
		if !w.Signaled {
			return
		}
	case Flushed:
		q.count.ReqCQEFlushError++
		q.count.ReqCQEError++
	default:
		q.count.ReqCQEError++
	}
	switch st {
	case RemoteInvalid:
		q.count.ReqRemoteInvalid++
	case RemoteDenied:
		q.count.ReqRemoteAccessErrors++
	case RNRExceeded:
		q.count.ReqRNRExceeded++
	case RetryExceeded:
		q.count.ReqRetryExceeded++
	}
	q.end = Completion{ID: w.ID, Op: w.Op, Status: st}
	if st == OK && w.Op.reads() {
		q.end.Bytes = w.length
	}
	q.cfg.Owner.Complete(&q.end)
}

func opcodeOf(w *txWR, i uint32) Opcode {
	switch w.Op {
	case WRRead:
		return opReadRequest
	case WRCmpSwap:
		return opCmpSwap
	case WRFetchAdd:
		return opFetchAdd
	}
	first, last := i == 0, i+1 == w.pkts
	write := w.Op == WRWrite || w.Op == WRWriteImm
	if last && w.Op == WRSendInv {
		if first {
			return opSendOnlyInv
		}
		return opSendLastInv
	}
	op := opSendMiddle
	switch {
	case first && last:
		op = opSendOnly
	case first:
		op = opSendFirst
	case last:
		op = opSendLast
	}
	if last && (w.Op == WRSendImm || w.Op == WRWriteImm) {
		op++ // the same with immediate data
	}
	if write {
		op += opWriteFirst - opSendFirst
	}
	return op
}

// buildRequest builds the next request packet. It requests an acknowledgement at the end of a message, and often enough
// that a small window, as after a timeout, is not exhausted.
func (q *QP) buildRequest(now time.Duration, b []byte) []byte {
	s := &q.snd
	w := s.at(s.cur)
	p := q.base
	mtu := uint32(q.attr.MTU)
	off, n := s.pkt*mtu, 0
	p.Opcode, p.PSN = opcodeOf(w, s.pkt), (w.psn+s.pkt)&psnMask
	last := s.pkt+1 == w.pkts
	switch {
	case w.Op.atomic():
		p.Operand, p.Want = w.Atomic.Operand, w.Atomic.Want
		fallthrough
	case w.Op == WRRead:
		last = true
	default:
		n = int(min(mtu, w.length-off))
		s.unasked++
		p.Solicited = last && w.Solicited
		p.AckReq = q.cfg.Type == RC && (last || s.unasked >= max(1, min(q.attr.AckEvery, s.window/4)))
	}
	p.VA, p.RKey, p.Len, p.Imm = w.VA+uint64(off), w.RKey, w.length-off, w.Imm
	p.Opcode, p.SRQ = p.Opcode|q.service, w.SRQ
	if q.cfg.Type >= UD {
		q.datagramHeaders(&p, w)
	} else if q.cfg.Type == RC && q.reacts() {
		p.TClass |= ecnECT0
	}
	start := len(b)
	b = p.appendHeaders(b, n)
	if data := len(b); !q.port.cfg.Bare {
		b = b[:data+n]
		if q.gather(b[data:], w, off) != nil {
			w.Fail = LocalProtection // requestReady completes it when it is the oldest
			return b[:start]
		}
	}
	if p.AckReq {
		s.unasked = 0
	}
	q.sent(now, w, last)
	return q.port.finish(b, start, &p)
}

func (q *QP) datagramHeaders(p *Packet, w *txWR) {
	psn, op, se := p.PSN, p.Opcode, p.Solicited
	*p = q.pathHeaders(&w.To, w.QPN)
	p.PSN, p.Opcode, p.Solicited, p.Imm = psn, op|serviceUD, se, w.Imm
	p.QKey, p.SrcQP = w.QKey, q.cfg.QPN
	switch {
	case q.cfg.SrcQP != 0:
		p.SrcQP = q.cfg.SrcQP
	case q.cfg.Type == GSI:
		p.SrcQP = gsiQPN
	}
}

func (q *QP) sent(now time.Duration, w *txWR, last bool) {
	s := &q.snd
	s.pkt++
	if last {
		s.cur, s.pkt = s.cur+1, 0
		if w.Op.reads() {
			s.reads++
		}
	}
	if end := s.sentTo(); psnDiff(end, s.top) > 0 {
		s.top = end & psnMask
	}
	if q.cfg.Type == RC {
		if s.ackAt == never {
			q.arm(now)
		}
		return
	}
	// Unreliable requests complete when they are sent (9.8.3, 9.8.4).
	s.una = s.top
	if last {
		q.completeSend(w, OK)
		q.pop()
		q.endLocals()
	}
}

// arm starts the local ACK timer (9.7.6.1.3) if packets are outstanding: 4.096 us to hours, by powers of two; code 0
// means never.
func (q *QP) arm(now time.Duration) {
	s := &q.snd
	s.ackAt = never
	if q.attr.AckTimeout != 0 && psnDiff(s.sentTo(), s.una) > 0 {
		s.ackAt = now + 4096*time.Nanosecond<<min(q.attr.AckTimeout, 31)
		q.port.schedule(q, s.ackAt)
	}
}

func (q *QP) gather(dst []byte, w *txWR, off uint32) error {
	return walk(w.SG, off, dst, func(e SGE, b []byte) error {
		if e.Inline {
			copy(b, w.Inline[e.VA:])
			return nil
		}
		return q.cfg.Mem.Read(e.Key, e.VA, b, LocalRead)
	})
}

// walk calls f for a list's pieces for b, from off on, or returns FaultRange if the list is too short.
func walk(sg []SGE, off uint32, b []byte, f func(SGE, []byte) error) error {
	for _, e := range sg {
		if len(b) == 0 {
			return nil
		}
		if off >= e.Len {
			off -= e.Len
			continue
		}
		e.VA, e.Len = e.VA+uint64(off), e.Len-off
		n := min(len(b), int(e.Len))
		if err := f(e, b[:n]); err != nil {
			return err
		}
		off, b = 0, b[n:]
	}
	if len(b) > 0 {
		return FaultRange
	}
	return nil
}

// AETH (9.3.5, 9.7.5.2).
const (
	aethACK = 0x1f // no limit by end-to-end credits
	aethRNR = 1 << 5
	aethNAK = 3 << 5

	nakSequence = 0
	nakInvalid  = 1
	nakAccess   = 2
	nakOp       = 3
)

// response accepts only numbers in flight (9.7.5), because a peer or an impostor may send any.
func (q *QP) response(now time.Duration, p *Packet) {
	s := &q.snd
	if q.state != ReadyToSend && q.state != SendDrain {
		return
	}
	// A duplicate is before the oldest, and a ghost after the last sent (9.7.5.1.1).
	if psnDiff(p.PSN, s.una) < 0 || psnDiff(p.PSN, s.top) >= 0 {
		return
	}
	// A NAK and a read or atomic response acknowledge all packets before it.
	end := p.PSN
	if p.Opcode == opAck && p.Syndrome>>5 == 0 {
		end++
	}
	if !q.acknowledge(now, end) {
		q.lost(&q.count.ImpliedNakSeqErr)
		return
	}
	switch {
	case p.h&hRead != 0:
		q.readResponse(now, p)
	case p.Opcode == opAtomicAck:
		q.atomicResponse(now, p)
	default:
		q.nak(now, p.Syndrome)
	}
}

// acknowledge completes requests before end. It returns false if a read or atomic among them lacks responses, an
// implied NAK (9.7.5.1.4).
func (q *QP) acknowledge(now time.Duration, end uint32) bool {
	s := &q.snd
	old, ok := s.una, true
	for s.n > 0 {
		w := s.at(0)
		d := psnDiff(end, w.psn)
		if w.pkts == 0 || d <= 0 {
			break
		}
		if w.Op.reads() {
			ok = d <= int(w.got)
			break
		}
		if d < int(w.pkts) {
			if psnDiff(end, s.una) > 0 {
				s.una = end & psnMask
			}
			if s.cur == 0 {
				s.pkt = max(s.pkt, uint32(d))
			}
			break
		}
		q.endHead()
	}
	q.progress(now, old)
	return ok
}

func (q *QP) endHead() {
	s := &q.snd
	w := s.at(0)
	s.una = (w.psn + w.pkts) & psnMask
	q.completeSend(w, OK)
	q.pop()
	q.endLocals()
}

// progress restarts the timer and retries if the oldest number has advanced.
func (q *QP) progress(now time.Duration, old uint32) {
	s := &q.snd
	if n := psnDiff(s.una, old); n != 0 {
		s.window = min(q.attr.Window, s.window+n)
		s.resetRetries(&q.attr)
		q.arm(now)
	}
}

// readResponse stores a packet, whose number acknowledge has checked.
func (q *QP) readResponse(now time.Duration, p *Packet) {
	s := &q.snd
	if s.n == 0 || s.at(0).Op != WRRead || s.una != p.PSN {
		return
	}
	w := s.at(0)
	mtu := uint32(q.attr.MTU)
	off := w.got * mtu
	if uint32(len(p.Payload)) != min(mtu, w.length-off) {
		q.fail(BadResponse)
		return
	}
	q.store(now, w, p.Payload, off)
}

func (q *QP) atomicResponse(now time.Duration, p *Packet) {
	s := &q.snd
	if s.n == 0 || !s.at(0).Op.atomic() || s.una != p.PSN {
		return
	}
	var b [8]byte
	le.PutUint64(b[:], p.Original)
	q.store(now, s.at(0), b[:], 0)
}

func (q *QP) store(now time.Duration, w *txWR, b []byte, off uint32) {
	s := &q.snd
	if walk(w.SG, off, b, func(e SGE, b []byte) error { return q.cfg.Mem.Write(e.Key, e.VA, b, LocalWrite) }) != nil {
		q.fail(LocalProtection)
		return
	}
	old := s.una
	w.got++
	s.una = (w.psn + w.got) & psnMask
	if w.got == w.pkts {
		q.endHead()
	} else if s.cur == 0 {
		s.pkt = w.got
	}
	q.progress(now, old)
}

// nak handles a syndrome (9.7.5.2). All packets before its number are acknowledged.
func (q *QP) nak(now time.Duration, syndrome uint8) {
	if s := &q.snd; s.n == 0 {
		return
	}
	switch syndrome >> 5 {
	case aethRNR >> 5:
		q.rnr(now, syndrome&0x1f)
	case aethNAK >> 5:
		switch syndrome & 0x1f {
		case nakSequence:
			q.lost(&q.count.PacketSeqErr)
		case nakInvalid:
			q.fail(RemoteInvalid)
		case nakAccess:
			q.fail(RemoteDenied)
		case nakOp:
			q.fail(RemoteOp)
		}
	}
}

// rnr waits for the time that a receiver without a buffer requested, then sends again. It ignores NAKs for packets that
// were under way. 7 retries without limit (9.7.5.2.8).
func (q *QP) rnr(now time.Duration, code uint8) {
	s := &q.snd
	if now < s.waitUntil {
		return
	}
	q.count.RNRNakRetryErr++
	if q.attr.RNRRetry != 7 {
		if s.rnrs == 0 {
			q.fail(RNRExceeded)
			return
		}
		s.rnrs--
	}
	s.goBack()
	s.waitUntil = now + rnrDelay(code)
	q.port.schedule(q, s.waitUntil)
}

// lost goes back because of a NAK, but only once until there is progress, because more NAKs are under way.
func (q *QP) lost(counter *uint64) {
	if q.snd.wentBack {
		return
	}
	*counter++
	q.retry()
	q.snd.wentBack = true
}

// retry goes back after a loss, and fails the QP after the allowed retries without progress (9.9.2.4.1).
func (q *QP) retry() {
	s := &q.snd
	if s.retries == 0 {
		q.fail(RetryExceeded)
		return
	}
	s.retries--
	s.goBack()
}

// rnrDelays are in units of 10 us (9.7.5.2.8, table 45).
var rnrDelays = [32]time.Duration{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}

func rnrDelay(code uint8) time.Duration { return rnrDelays[code&31] * 10 * time.Microsecond }
