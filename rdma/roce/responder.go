package roce

import (
	"cmp"
	"slices"
)

// responder executes requests (9.7.4). psn is the expected number, msn counts completed messages.
type responder struct {
	psn, msn uint32
	nak      bool // NAK sent: other packets are dropped until psn arrives
	rnr      bool // RNR NAK sent: likewise, but not out of sequence

	// The message being received: hSend, hWrite or 0.
	message header
	va      uint64 // of a write: address and size of the rest
	rkey    uint32
	left    uint32
	off     uint32 // of a send: stored bytes
	recv    RecvWR
	held    bool   // recv is taken and not completed
	mem     Memory // that requests access
	srq     uint32 // XRC: of the message

	replies []response // in the order of their numbers
	head    int
	saved   []saved // reads and atomics, to answer duplicates; at most PeerReads
	oldest  int     // index in saved, once it is full
}

type replyOp uint8

const (
	replyAck replyOp = iota // or a NAK
	replyRead
	replyAtomic
)

type response struct {
	op       replyOp
	syndrome uint8
	begun    bool
	psn, msn uint32
	rkey     uint32
	left     uint32
	srq      uint32
	va       uint64 // an atomic's old value
}

type saved struct {
	psn, pkts, rkey, len uint32
	srq                  uint32
	va                   uint64 // an atomic's old value
	atomic               bool
}

func (r *responder) first() *response {
	if r.head == len(r.replies) {
		return nil
	}
	return &r.replies[r.head]
}

func (r *responder) popReply() {
	if r.head++; r.head == len(r.replies) {
		r.replies, r.head = r.replies[:0], 0
	}
}

// acknowledge queues an ACK or NAK. It replaces a directly preceding one with a lower number, so at most one more than
// the reads and atomics wait.
func (r *responder) acknowledge(syndrome uint8, psn uint32) {
	n := response{syndrome: syndrome, psn: psn & psnMask, msn: r.msn}
	if k := len(r.replies); k > r.head && r.replies[k-1].op == replyAck {
		if last := &r.replies[k-1]; psnDiff(n.psn, last.psn) >= 0 {
			*last = n
		}
		return
	}
	r.push(n)
}

func (r *responder) push(n response) {
	if r.head > 0 && len(r.replies) == cap(r.replies) {
		r.replies, r.head = append(r.replies[:0], r.replies[r.head:]...), 0
	}
	r.replies = append(r.replies, n)
}

func (r *responder) jobs() (n int) {
	for _, x := range r.replies[r.head:] {
		if x.op != replyAck {
			n++
		}
	}
	return n
}

// save stores a read or atomic for duplicates. It replaces the oldest of PeerReads entries, because a peer has no more
// outstanding, and cannot repeat an older one.
func (r *responder) save(s saved) {
	if len(r.saved) < max(1, cap(r.saved)) {
		r.saved = append(r.saved, s)
		return
	}
	r.saved[r.oldest] = s
	r.oldest = (r.oldest + 1) % len(r.saved)
}

// request executes packets in order. Packets ahead are dropped with one NAK, because go-back-N sends them again.
func (q *QP) request(p *Packet) {
	r := &q.rcv
	diff := psnDiff(p.PSN, r.psn)
	switch {
	case diff == 0:
	case q.cfg.Type == UC:
		// A message with a gap is dropped, and its buffer serves the next (9.8.2.2.2).
		q.count.OutOfSequence++
		r.psn, r.message = p.PSN, 0
	case diff < 0:
		q.duplicate(p)
		return
	case r.rnr:
		return // was under way at the RNR NAK, and comes again after psn
	default:
		q.count.OutOfSequence++
		if !r.nak {
			r.nak = true
			r.acknowledge(aethNAK|nakSequence, r.psn)
		}
		return
	}
	if q.cfg.Type == UC {
		q.requestUC(p)
		return
	}
	r.nak, r.rnr = false, false
	code, ok := q.execute(p)
	if ok {
		// The response of a read or atomic acknowledges it.
		if p.AckReq && p.h&(hSend|hWrite) != 0 {
			r.acknowledge(aethACK, r.psn-1)
		}
		return
	}
	r.acknowledge(code, p.PSN)
	if code>>5 == aethRNR>>5 {
		r.rnr = true
		return
	}
	ev := EventInvalid
	if code == aethNAK|nakAccess {
		q.count.RespRemoteAccessErrors++
		ev = EventAccessError
	}
	q.fail(OK)
	q.cfg.Owner.Event(ev)
}

// requestUC executes a packet of UC. There are no answers, so a message that cannot be executed is dropped (9.8.2.2).
func (q *QP) requestUC(p *Packet) {
	r := &q.rcv
	if p.h&hFirst != 0 {
		r.message = 0
	}
	if r.message == 0 && p.h&hFirst == 0 {
		r.psn = (p.PSN + 1) & psnMask
		return
	}
	if _, ok := q.execute(p); !ok {
		r.message, r.psn = 0, (p.PSN+1)&psnMask
	}
}

// execute executes the expected packet, or returns an error's syndrome. First, middle and last packets must follow each
// other, all but the last with a full MTU.
func (q *QP) execute(p *Packet) (syndrome uint8, ok bool) {
	r := &q.rcv
	kind := p.h & (hSend | hWrite)
	if p.h&hFirst != 0 && r.message != 0 || p.h&hFirst == 0 && (r.message != kind || kind == 0) {
		return aethNAK | nakInvalid, false
	}
	mtu, n := q.attr.MTU, len(p.Payload)
	if kind != 0 && (p.h&hLast == 0 && n != mtu || n > mtu || p.h&(hFirst|hLast) == hLast && n == 0) {
		return aethNAK | nakInvalid, false
	}
	if r.mem = q.cfg.Mem; q.cfg.SharedBy != nil && !q.shared(p) {
		return aethNAK | nakInvalid, false
	}
	pkts := uint32(1)
	switch {
	case kind == hSend:
		syndrome, ok = q.executeSend(p)
	case kind == hWrite:
		syndrome, ok = q.executeWrite(p)
	case p.Opcode == opReadRequest:
		pkts = max(1, uint32((uint64(p.Len)+uint64(mtu)-1)/uint64(mtu)))
		syndrome, ok = q.executeRead(p, pkts)
	default:
		syndrome, ok = q.executeAtomic(p)
	}
	if !ok {
		return syndrome, false
	}
	r.psn = (p.PSN + pkts) & psnMask
	r.message = kind
	if p.h&hLast != 0 {
		r.message = 0
	}
	return 0, true
}

// shared finds the memory of a request of XRC. All packets of a message are for the shared queue of the first one.
func (q *QP) shared(p *Packet) (ok bool) {
	r := &q.rcv
	if p.h&hFirst != 0 {
		r.srq = p.SRQ
	}
	r.mem, ok = q.cfg.SharedBy(r.srq)
	return ok && p.SRQ == r.srq
}

// needRecv takes a receive, or the one left from an interrupted unreliable message.
func (q *QP) needRecv() bool {
	if q.rcv.held || q.nextRecv() {
		return true
	}
	q.count.OutOfBuffer++
	return false
}

func (q *QP) nextRecv() bool {
	r := &q.rcv
	r.recv.SG, r.recv.Mem, r.recv.SRQ = r.recv.SG[:0], nil, r.srq
	r.held = q.cfg.Owner.NextRecv(&r.recv)
	return r.held
}

func (q *QP) executeSend(p *Packet) (uint8, bool) {
	r := &q.rcv
	if p.h&hFirst != 0 {
		if !q.needRecv() {
			return aethRNR | q.attr.RNRTimer&31, false
		}
		r.off = 0
	}
	if err := q.scatter(p.Payload, r.off); err != nil {
		return q.failRecv(err), false
	}
	r.off += uint32(len(p.Payload))
	if p.h&hLast == 0 {
		return 0, true
	}
	if p.h&hIETH != 0 && r.mem.Invalidate(p.Imm, true) != nil {
		q.failRecv(FaultKey)
		return aethNAK | nakAccess, false
	}
	q.endRecv(p, r.off)
	return 0, true
}

// failRecv completes a receive that failed, and returns the peer's syndrome: its message was too long, or this side
// failed (9.7.5.2.6). The buffer of an unreliable QP is used again.
func (q *QP) failRecv(err error) uint8 {
	st, code := LocalProtection, uint8(aethNAK|nakOp)
	if err == errNoRoom {
		st, code = LocalLength, aethNAK|nakInvalid
		q.count.RespLocalLengthError++
	}
	if q.cfg.Type == RC {
		q.completeRecv(Completion{Status: st})
	}
	return code
}

func (q *QP) scatter(b []byte, off uint32) error {
	r := &q.rcv
	m := cmp.Or(r.recv.Mem, q.cfg.Mem)
	room := uint64(0)
	for _, e := range r.recv.SG {
		room += uint64(e.Len)
	}
	if uint64(off)+uint64(len(b)) > room {
		return errNoRoom
	}
	return walk(r.recv.SG, off, b, func(e SGE, b []byte) error { return m.Write(e.Key, e.VA, b, LocalWrite) })
}

// errNoRoom means that the list itself is too short, so it is no Fault of Memory.
const errNoRoom = Fault(0xff)

func (q *QP) endRecv(p *Packet, n uint32) {
	op := WRSend
	switch {
	case p.h&hIETH != 0:
		op = WRSendInv
	case p.h&(hImm|hWrite) == hImm|hWrite:
		op = WRWriteImm
	case p.h&hImm != 0:
		op = WRSendImm
	}
	q.rcv.msn = (q.rcv.msn + 1) & psnMask
	q.completeRecv(Completion{Op: op, Bytes: n, Imm: p.Imm, Solicited: p.Solicited})
}

func (q *QP) completeRecv(c Completion) {
	c.ID, c.Recv, c.SRQ = q.rcv.recv.ID, true, q.rcv.recv.SRQ
	q.rcv.held = false
	switch c.Status {
	case OK:
	case Flushed:
		q.count.RespCQEFlushError++
		fallthrough
	default:
		q.count.RespCQEError++
	}
	q.end = c
	q.cfg.Owner.Complete(&q.end)
}

// grants checks if QP and key allow a peer's access. Without bytes any key is allowed (9.7.4.1.6).
func (q *QP) grants(rkey uint32, va uint64, n uint32, a Access) (uint8, bool) {
	if q.attr.Access&a == 0 {
		return aethNAK | nakAccess, false
	}
	if n == 0 {
		return 0, true
	}
	if err := q.rcv.mem.Check(rkey, va, uint64(n), a); err != nil {
		return q.refusal(err), false
	}
	return 0, true
}

// refusal asks the peer to try again later if the pages are being brought in.
func (q *QP) refusal(err error) uint8 {
	if err == FaultWait {
		return aethRNR | q.attr.RNRTimer&31
	}
	return denied(err)
}

func denied(err error) uint8 {
	switch err {
	case FaultAddress:
		return aethNAK | nakOp
	case FaultAlign:
		return aethNAK | nakInvalid
	}
	return aethNAK | nakAccess
}

// executeWrite stores a packet of a WRITE. It changes nothing if a receive is missing, because the packet comes again.
// Rights are checked for the whole message at its first packet, and again at each write.
func (q *QP) executeWrite(p *Packet) (uint8, bool) {
	r := &q.rcv
	n := uint32(len(p.Payload))
	va, rkey, left := r.va, r.rkey, r.left
	if p.h&hFirst != 0 {
		va, rkey, left = p.VA, p.RKey, p.Len
		if left > maxMessage {
			return aethNAK | nakInvalid, false
		}
		if code, ok := q.grants(rkey, va, left, RemoteWrite); !ok {
			return code, false
		}
	}
	if n > left || (n == left) != (p.h&hLast != 0) {
		return aethNAK | nakInvalid, false
	}
	if p.h&hImm != 0 && !q.needRecv() {
		return aethRNR | q.attr.RNRTimer&31, false
	}
	if n > 0 {
		if err := r.mem.Write(rkey, va, p.Payload, RemoteWrite); err != nil {
			return q.refusal(err), false
		}
	}
	total := r.off
	if p.h&hFirst != 0 {
		q.count.RxWrites++
		total = p.Len
	}
	r.va, r.rkey, r.left, r.off = va+uint64(n), rkey, left-n, total
	switch {
	case p.h&hImm != 0:
		q.endRecv(p, total)
	case p.h&hLast != 0:
		r.msn = (r.msn + 1) & psnMask
	}
	return 0, true
}

// executeRead keeps only the request. The data are read when packets are sent, so that a read of 1 GiB takes no memory.
func (q *QP) executeRead(p *Packet, pkts uint32) (uint8, bool) {
	r := &q.rcv
	if p.Len > maxMessage || r.jobs() >= int(q.attr.PeerReads) {
		return aethNAK | nakInvalid, false
	}
	if code, ok := q.grants(p.RKey, p.VA, p.Len, RemoteRead); !ok {
		return code, false
	}
	q.count.RxReads++
	r.msn = (r.msn + 1) & psnMask
	r.save(saved{psn: p.PSN, pkts: pkts, rkey: p.RKey, len: p.Len, srq: r.srq, va: p.VA})
	r.push(response{op: replyRead, syndrome: aethACK, psn: p.PSN, msn: r.msn, rkey: p.RKey, left: p.Len, srq: r.srq,
		va: p.VA})
	return 0, true
}

// executeAtomic executes an atomic at once. It saves the old value, because a repeated request must not be executed
// twice.
func (q *QP) executeAtomic(p *Packet) (uint8, bool) {
	r := &q.rcv
	if p.VA&7 != 0 || r.jobs() >= int(q.attr.PeerReads) {
		return aethNAK | nakInvalid, false
	}
	if code, ok := q.grants(p.RKey, p.VA, 8, RemoteAtomic); !ok {
		return code, false
	}
	old, err := r.mem.Atomic(p.RKey, p.VA, AtomicOp{Add: p.Opcode == opFetchAdd, Operand: p.Operand, Want: p.Want})
	if err != nil {
		return q.refusal(err), false
	}
	q.count.RxAtomics++
	r.msn = (r.msn + 1) & psnMask
	r.save(saved{psn: p.PSN, pkts: 1, va: old, atomic: true})
	r.push(response{op: replyAtomic, syndrome: aethACK, psn: p.PSN, msn: r.msn, va: old})
	return 0, true
}

// duplicate answers a repeated request (9.7.5.1.2, 9.7.4.5): SEND and WRITE with an acknowledgement, READ from memory,
// atomics with the saved value. One that is no longer saved gets no answer. A repeated read may request a later part,
// but nothing outside of the original.
func (q *QP) duplicate(p *Packet) {
	r := &q.rcv
	q.count.DuplicateRequest++
	if p.h&(hSend|hWrite) != 0 {
		r.acknowledge(aethACK, r.safe(p.PSN)-1)
		return
	}
	for i := range r.saved {
		s := &r.saved[i]
		d := psnDiff(p.PSN, s.psn)
		if d < 0 || d >= int(s.pkts) || s.atomic != (p.h&hAtomic != 0) {
			continue
		}
		n := response{op: replyAtomic, syndrome: aethACK, psn: p.PSN, msn: r.msn, va: s.va}
		if !s.atomic {
			off := uint64(d) * uint64(q.attr.MTU)
			if p.RKey != s.rkey || p.SRQ != s.srq || p.VA != s.va+off || uint64(p.Len) > uint64(s.len)-off {
				return
			}
			n = response{op: replyRead, syndrome: aethACK, psn: p.PSN, msn: r.msn, rkey: s.rkey, left: p.Len,
				srq: s.srq,
				va:  p.VA}
		}
		r.repeat(n, s)
		return
	}
}

// safe returns the number up to which a duplicate may be acknowledged: before the next read or atomic. The peer may
// lack its responses, and would take a higher acknowledgement for an implied NAK.
func (r *responder) safe(psn uint32) uint32 {
	end := r.psn
	for _, s := range r.saved {
		if psnDiff(s.psn, psn) > 0 && psnDiff(s.psn, end) < 0 {
			end = s.psn
		}
	}
	return end
}

// repeat queues an answer to a duplicate in place of the first answer's unsent rest, and before later answers. At most
// one is queued for each saved request.
func (r *responder) repeat(n response, s *saved) {
	for i := r.head; i < len(r.replies); i++ {
		x := &r.replies[i]
		if d := psnDiff(x.psn, s.psn); x.op != replyAck && d >= 0 && d < int(s.pkts) {
			*x = n
			return
		}
		if psnDiff(x.psn, n.psn) >= 0 {
			r.replies = slices.Insert(r.replies, i, n)
			return
		}
	}
	r.push(n)
}

// buildReply builds the next packet of the first answer, also in state Failed, because the peer must get its NAK.
func (q *QP) buildReply(b []byte) []byte {
	r := &q.rcv
	x := r.first()
	p := q.base
	p.PSN, p.MSN, p.Syndrome = x.psn, x.msn, x.syndrome
	switch x.op {
	case replyRead:
		return q.buildRead(&p, x, b)
	case replyAtomic:
		p.Opcode, p.Original = opAtomicAck, x.va
	default:
		p.Opcode = opAck
		if t := q.attr.Path.AckTClass; t != 0 {
			p.TClass = t &^ ecnMask
		}
	}
	p.Opcode |= q.service
	r.popReply()
	return q.port.append(b, &p)
}

// buildRead builds the next packet of a read response (9.7.5.1.9).
func (q *QP) buildRead(p *Packet, x *response, b []byte) []byte {
	mtu := uint32(q.attr.MTU)
	n := min(mtu, x.left)
	switch last := x.left <= mtu; {
	case last && x.begun:
		p.Opcode = opReadLast
	case last:
		p.Opcode = opReadOnly
	case x.begun:
		p.Opcode = opReadMiddle
	default:
		p.Opcode = opReadFirst
	}
	p.Opcode |= q.service
	if q.reacts() {
		p.TClass |= ecnECT0
	}
	start := len(b)
	b = p.appendHeaders(b, int(n))
	if data := len(b); n > 0 && !q.port.cfg.Bare {
		b = b[:data+int(n)]
		mem, err := q.cfg.Mem, error(nil)
		if q.cfg.SharedBy != nil {
			var ok bool
			if mem, ok = q.cfg.SharedBy(x.srq); !ok {
				err = FaultKey
			}
		}
		if err == nil {
			err = mem.Read(x.rkey, x.va, b[data:], RemoteRead)
		}
		if err != nil {
			// The key was destroyed after the request was admitted.
			*x = response{syndrome: denied(err), psn: x.psn, msn: x.msn}
			q.rcv.replies = q.rcv.replies[:q.rcv.head+1]
			q.count.RespRemoteAccessErrors++
			q.fail(OK)
			q.cfg.Owner.Event(EventAccessError)
			return b[:start]
		}
	}
	x.begun, x.psn = true, (x.psn+1)&psnMask
	x.va, x.left = x.va+uint64(n), x.left-n
	if p.h&hLast != 0 {
		q.rcv.popReply()
	}
	return q.port.finish(b, start, p)
}

// datagram handles UD (9.8.4). It drops packets without a sufficient buffer.
func (q *QP) datagram(p *Packet) bool {
	key := q.attr.QKey
	if q.cfg.Type == GSI {
		key = gsiQKey
	}
	if p.QKey != key {
		q.port.Counters.BadQKey++
		return false
	}
	if len(p.Payload) > q.attr.MTU || !q.needRecv() {
		return false
	}
	// The space before a datagram is that of a GRH. An IPv4 header is in its last 20 bytes (annex A17.4.5).
	var grh [sizeGRH]byte
	copy(grh[sizeGRH-len(p.L3):], p.L3)
	err := q.scatter(grh[:], 0)
	if err == nil {
		err = q.scatter(p.Payload, sizeGRH)
	}
	c := Completion{Op: WRSend, Bytes: sizeGRH + uint32(len(p.Payload)), Imm: p.Imm, Solicited: p.Solicited, From: p}
	if p.h&hImm != 0 {
		c.Op = WRSendImm
	}
	switch err {
	case nil:
	case errNoRoom:
		c.Status, c.Bytes = LocalLength, 0
		q.count.RespLocalLengthError++
	default:
		c.Status, c.Bytes = LocalProtection, 0
	}
	q.completeRecv(c)
	return true
}
