package roce

import "time"

// txWR is a send request in flight. psn is its first packet's number; a read takes as many numbers as it has responses
// (9.7.2).
type txWR struct {
	SendWR
	psn    uint32
	pkts   uint32 // packet numbers that it takes; 0: none goes on the wire
	got    uint32 // of a read or atomic: responses that arrived; of a local request: done
	length uint32
}

// sender is the requester of a QP (9.7.3): requests from the oldest that is not acknowledged, in a ring, and the
// place from which packets are sent, which goes back to the oldest after a loss.
type sender struct {
	ring    []txWR // its size is a power of two
	head, n int
	cur     int    // request to send from, counted from the head; n: all are sent
	pkt     uint32 // packet of it
	una     uint32 // oldest number that is not acknowledged
	next    uint32 // number for the next request
	top     uint32 // one after the highest that was sent
	reads   int    // reads and atomics that are sent and not complete
	unasked int    // packets since one that asks for an acknowledgement
	window  int    // packets that may be outstanding: the QP's window, less after a timeout

	retries, rnrs uint8 // left
	ackAt         time.Duration
	waitUntil     time.Duration // of an RNR NAK
	wentBack      bool          // because of a NAK, since the last progress: later ones tell nothing new
	late          bool          // the timer ran late, and has a second term
	drained       bool          // EventDrained was sent
	dry           bool          // no more requests are posted
}

func (s *sender) at(i int) *txWR { return &s.ring[(s.head+i)&(len(s.ring)-1)] }

func (s *sender) resetRetries(a *Attr) {
	s.retries, s.rnrs, s.wentBack, s.late = a.Retry, a.RNRRetry, false, false
}

// pop takes away the oldest request.
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

// goBack sends again from the oldest number that is not acknowledged: go-back-N. Of a read only what is missing is
// asked for. Nothing was kept of what was sent: packets are made again from the guest's memory, which must not change
// before the completion.
func (s *sender) goBack() {
	s.cur, s.pkt, s.reads, s.ackAt = 0, 0, 0, never
	if s.n > 0 {
		s.pkt = uint32(max(0, psnDiff(s.una, s.at(0).psn)))
	}
}

// sentTo is the number after the last that was sent since the last goBack.
func (s *sender) sentTo() uint32 {
	if s.cur < s.n {
		return s.at(s.cur).psn + s.pkt
	}
	return s.next
}

// slot returns the place of one more request, grown if need be.
func (s *sender) slot() *txWR {
	if s.n == len(s.ring) {
		ring := make([]txWR, max(8, 2*s.n))
		for i := range s.n {
			ring[i] = *s.at(i)
		}
		s.ring, s.head = ring, 0
	}
	w := s.at(s.n)
	w.SendWR = SendWR{SG: w.SG[:0], Inline: w.Inline[:0]}
	return w
}

// fetch takes the next request that is posted. Requests are taken from the device only when they may go soon, so a
// failed QP has few of them to give back.
func (q *QP) fetch() bool {
	s := &q.snd
	// A request that takes no number is not held up by the window.
	if s.dry || q.state != ReadyToSend || s.n >= 2*q.attr.Window {
		return false
	}
	w := s.slot()
	if s.dry = !q.cfg.Owner.NextSend(&w.SendWR); s.dry {
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

// admit checks what this side can check of a request, and sets its length. The memory is checked here for the whole
// request, and at each packet again: the key may go in between.
func (q *QP) admit(w *txWR) Status {
	ud := q.cfg.Type >= UD
	if w.Op > WRLocalInv || q.cfg.Type != RC && (w.Op.reads() || w.Op == WRSendInv) || ud && w.Op.remote() {
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
			return LocalQPOp // nothing can be stored in a request
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

// requestReady says whether a packet of a request can go now. It does what is next and needs no packet.
func (q *QP) requestReady(now time.Duration) bool {
	s := &q.snd
	if q.state != ReadyToSend && q.state != SendDrain || now < s.waitUntil {
		return false
	}
	for s.cur < s.n || q.fetch() {
		w := s.at(s.cur)
		switch {
		case w.Fail != OK:
			// Requests before it end first.
			if s.cur == 0 {
				q.fail(w.Fail)
			}
			return false
		case w.Fence && s.pkt == 0 && s.reads > 0:
			return false
		case w.pkts > 0:
			return q.room(w)
		}
		q.local(w)
	}
	if s.n == 0 && q.state == SendDrain && !s.drained {
		s.drained = true
		q.cfg.Owner.Event(EventDrained)
	}
	return false
}

// room says whether the next packet of w fits in what may be outstanding. For RC the window stands for the buffers of
// the card. Reads are bounded by the responder's resources (max_rd_atomic).
func (q *QP) room(w *txWR) bool {
	s := &q.snd
	if q.cfg.Type != RC {
		return true
	}
	// Numbers in flight are less than half of all, or old ones look new (9.7.2).
	if span := (w.psn + w.pkts - s.una) & psnMask; psnDiff(w.psn+s.pkt, s.una) >= s.window || span >= 1<<23 {
		return false
	}
	return !w.Op.reads() || s.reads < int(q.attr.MaxReads)
}

// local ends a request that needs no packet, in its turn.
func (q *QP) local(w *txWR) {
	s := &q.snd
	if w.Op == WRLocalInv && w.got == 0 && q.cfg.Mem.Invalidate(w.Imm, false) != nil {
		w.Fail = LocalQPOp
		return
	}
	w.got = 1
	s.cur++
	q.endLocals()
}

// endLocals completes the requests without packets that are the oldest now.
func (q *QP) endLocals() {
	for s := &q.snd; s.n > 0 && s.cur > 0 && s.at(0).pkts == 0; {
		q.completeSend(s.at(0), OK)
		s.pop()
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

// opcodeOf is the opcode of packet i of a request.
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
		op++ // ... with immediate
	}
	if write {
		op += opWriteFirst - opSendFirst
	}
	return op
}

// buildRequest makes the next request packet. An acknowledgement is asked for at the end of a message, and within it
// often enough that a small window, as after a timeout, does not run dry.
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
		p.AckReq = q.cfg.Type == RC && (last || s.unasked >= max(1, min(AckEvery, s.window/4)))
	}
	p.VA, p.RKey, p.Len, p.Imm = w.VA+uint64(off), w.RKey, w.length-off, w.Imm
	if q.cfg.Type != RC {
		q.unreliable(&p, w)
	} else if q.reacts() {
		p.TClass |= ecnECT0
	}
	start := len(b)
	b = p.appendHeaders(b, n)
	data := len(b)
	b = b[:data+n]
	if q.gather(b[data:], w, off) != nil {
		w.Fail = LocalProtection // requestReady ends it when it is the oldest
		return b[:start]
	}
	if p.AckReq {
		s.unasked = 0
	}
	q.sent(now, w, last)
	return p.finish(b, start)
}

// unreliable turns the packet into one of the unreliable services.
func (q *QP) unreliable(p *Packet, w *txWR) {
	if q.cfg.Type == UC {
		p.Opcode |= serviceUC
		return
	}
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

// sent moves on after a packet of w.
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
	// The unreliable services are done with what they have sent (9.8.3, 9.8.4).
	s.una = s.top
	if last {
		q.completeSend(w, OK)
		s.pop()
		q.endLocals()
	}
}

// arm starts the local ACK timer (9.7.6.1.3) if something is outstanding. The time is from 4.096 us to hours, by powers
// of two; the code 0 is never.
func (q *QP) arm(now time.Duration) {
	s := &q.snd
	s.ackAt = never
	if q.attr.AckTimeout != 0 && psnDiff(s.sentTo(), s.una) > 0 {
		s.ackAt = now + 4096*time.Nanosecond<<min(q.attr.AckTimeout, 31)
		q.port.schedule(q, s.ackAt)
	}
}

// gather copies len(dst) bytes from off on of the request's payload.
func (q *QP) gather(dst []byte, w *txWR, off uint32) error {
	return walk(w.SG, off, dst, func(e SGE, b []byte) error {
		if e.Inline {
			copy(b, w.Inline[e.VA:])
			return nil
		}
		return q.cfg.Mem.Read(e.Key, e.VA, b, LocalRead)
	})
}

// walk calls f for the pieces of a list that hold b, which begins off bytes into it. A list that is too short is
// FaultRange.
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

// Codes of an AETH (9.3.5, 9.7.5.2).
const (
	aethACK = 0x1f // no limit by end-to-end credits
	aethRNR = 1 << 5
	aethNAK = 3 << 5

	nakSequence = 0
	nakInvalid  = 1
	nakAccess   = 2
	nakOp       = 3
)

// response takes an answer of the peer (9.7.5). A peer, or who poses as one, may send any number: only those in flight
// are looked at.
func (q *QP) response(now time.Duration, p *Packet) {
	s := &q.snd
	if q.state != ReadyToSend && q.state != SendDrain {
		return
	}
	// Before the oldest it is a duplicate, after the last that was sent a ghost (9.7.5.1.1).
	if psnDiff(p.PSN, s.una) < 0 || psnDiff(p.PSN, s.top) >= 0 {
		return
	}
	// A NAK acknowledges what is before it, as does a read or atomic response.
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

// acknowledge ends requests before number end. False: a read or atomic among them has not got all responses, which is
// a loss that the peer need not tell: an implied NAK (9.7.5.1.4).
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

// endHead completes the oldest request.
func (q *QP) endHead() {
	s := &q.snd
	w := s.at(0)
	s.una = (w.psn + w.pkts) & psnMask
	q.completeSend(w, OK)
	s.pop()
	q.endLocals()
}

// progress restarts timer and counts of retries if the oldest number has moved.
func (q *QP) progress(now time.Duration, old uint32) {
	s := &q.snd
	if n := psnDiff(s.una, old); n != 0 {
		s.window = min(q.attr.Window, s.window+n)
		s.resetRetries(&q.attr)
		q.arm(now)
	}
}

// readResponse stores a packet of the oldest read. Its number is the next one: acknowledge has seen to it.
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

// atomicResponse stores the old value for the oldest atomic.
func (q *QP) atomicResponse(now time.Duration, p *Packet) {
	s := &q.snd
	if s.n == 0 || !s.at(0).Op.atomic() || s.una != p.PSN {
		return
	}
	var b [8]byte
	le.PutUint64(b[:], p.Original)
	q.store(now, s.at(0), b[:], 0)
}

// store puts the next response of the oldest request into its list.
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

// nak acts on the syndrome of an acknowledgement (9.7.5.2). What was before its number is acknowledged.
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

// rnr waits as long as a receiver without a buffer asks for, then sends again. A later NAK for packets that were under
// way meanwhile does not count again. 7 is without end (9.7.5.2.8).
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

// lost goes back because of a NAK, once until there is progress: responses that were on their way come after it.
func (q *QP) lost(counter *uint64) {
	if q.snd.wentBack {
		return
	}
	*counter++
	q.retry()
	q.snd.wentBack = true
}

// retry goes back after a loss, as often as the QP may without progress (9.9.2.4.1).
func (q *QP) retry() {
	s := &q.snd
	if s.retries == 0 {
		q.fail(RetryExceeded)
		return
	}
	s.retries--
	s.goBack()
}

// rnrDelays are those of the RNR timer field, in units of 10 us (9.7.5.2.8, table 45).
var rnrDelays = [32]time.Duration{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}

func rnrDelay(code uint8) time.Duration { return rnrDelays[code&31] * 10 * time.Microsecond }
