package connectx

import (
	"time"

	"github.com/rackless/rackless/roce"
)

// The direct path: a message between two adapters of the server is copied from one guest's memory to the other's.

// sendBatch bounds what one call of runSend does: requests, and bytes. The timer's thread goes on from there, so that
// no guest holds a lock for long.
const (
	sendBatch = 256
	sendBytes = 8 << 20
)

// runSend does the posted requests of a send queue, as far as they can go now.
func (p *Port) runSend(q *queue) {
	if _, waits := p.waiting[q]; waits {
		return
	}
	if q.Kind == queueSQ {
		p.sendFrames(q)
		return
	}
	if q.Kind != queueQP {
		return
	}
	switch q.State {
	case roce.Failed:
		p.flush(q)
		return
	case roce.ReadyToSend, roce.SendDrain:
	default:
		return
	}
	if p.wireSend(q) {
		return
	}
	for n, bytes := 0, uint64(0); ; n++ {
		if n == sendBatch || bytes > sendBytes {
			p.wait(q, p.s.now())
			return
		}
		more, k := p.sendOne(q)
		if bytes += k; !more {
			return
		}
	}
}

// sendOne does the request at the head. False: there is none, or it has to wait.
func (p *Port) sendOne(q *queue) (more bool, n uint64) {
	var b [maxWQE]byte
	w, blocks, found := p.nextWQE(q, &b)
	if !found {
		return false, 0
	}
	wr := &p.wr
	p.parse(q, w, wr)
	if wr.Op == roce.WRNop || wr.Op == roce.WRLocalInv || wr.Fail != 0 {
		if wr.Op == roce.WRLocalInv && wr.Fail == 0 && !p.invalidate(wr.Imm, q.PD) {
			wr.Fail = roce.LocalQPOp
		}
		q.SI += blocks
		return p.endSend(q, wr, 0, wr.Fail), 0
	}
	peer := p.peerOf(q, wr)
	if peer != nil && peer != p {
		if !p.lockPeer(peer) {
			// The queue may have run, failed or gone in between.
			_, waits := p.waiting[q]
			if p.Queues[q.Num] != q || waits || q.State != roce.ReadyToSend {
				peer.mu.Unlock()
				return false, 0
			}
			if w, blocks, found = p.nextWQE(q, &b); found {
				p.parse(q, w, wr)
			}
			if !found || wr.Fail != 0 || p.peerOf(q, wr) != peer {
				peer.mu.Unlock()
				return found, 0
			}
		}
		defer p.unlockPeer(peer)
	}
	m := message{p: p, q: q, wr: wr, blocks: blocks, peer: peer}
	return m.run(), m.n
}

// unlockPeer releases a peer. Its frames, if it queued some, go out with its next ones.
func (p *Port) unlockPeer(o *Port) {
	n := len(o.frames)
	o.mu.Unlock()
	if n > 0 {
		o.mu.Lock()
		o.wakeBy(p.s.now())
		o.mu.Unlock()
	}
}

// peerOf finds the port that a request goes to; nil where no cable leads there.
func (p *Port) peerOf(q *queue, wr *sendWR) *Port {
	t := &q.attr.Path
	if q.datagrams() {
		t = &wr.To
	}
	if !p.up() {
		return nil
	}
	return p.s.lookup(gidKey{t.Dst, t.DstMAC})
}

// message is a request that is being done, with both ports locked.
type message struct {
	p, peer *Port
	q, d    *queue // the sender's queue and the receiver's
	wr      *sendWR
	blocks  uint16
	n       uint64
	src     []seg
	dst     []seg
}

// run does the message, or lets the queue wait. False: the queue has to wait.
func (m *message) run() bool {
	p, q := m.p, m.q
	if !m.target() {
		return m.lost()
	}
	access := roce.LocalRead
	if m.wr.Op == roce.WRRead || m.wr.Op == roce.WRCmpSwap || m.wr.Op == roce.WRFetchAdd {
		access = roce.LocalWrite
	}
	var st roce.Status
	if m.src, st = p.gatherList(nil, m.wr, q.PD, access); st != roce.OK {
		return m.end(st)
	}
	m.n = total(m.src)
	if m.n > 1<<30 || q.datagrams() && m.n > uint64(q.attr.MTU) {
		return m.end(roce.LocalLength)
	}
	if wait, at := m.pace(); wait {
		p.wait(q, at)
		return false
	}
	return m.do()
}

// target finds the receiver's queue.
func (m *message) target() bool {
	if m.peer == nil || !m.peer.up() {
		return false
	}
	if m.q.datagrams() {
		m.d = m.peer.datagramQueue(m.wr)
		return m.d != nil
	}
	d := m.peer.Queues[m.q.attr.RemoteQPN]
	if d == nil || d.Kind != queueQP || d.Service != m.q.Service || d.State < roce.ReadyToReceive ||
		d.State > roce.SendDrain || d.attr.RemoteQPN != m.q.Num {
		return false
	}
	m.d = d
	return true
}

// datagramQueue finds the queue that a datagram is for. Number 1 is that of the connection manager's QP.
func (p *Port) datagramQueue(wr *sendWR) *queue {
	d := p.Queues[wr.QPN]
	if wr.QPN == 1 {
		d = nil
		for _, q := range p.Queues {
			// The driver has a second one, which only sends: it has no receives.
			if q.Kind == queueQP && q.Service == serviceGSI && !q.NoRecv && q.State >= roce.ReadyToReceive &&
				q.State <= roce.SendDrain {
				d = q
			}
		}
	}
	if d == nil || d.Kind != queueQP || !d.datagrams() || d.State < roce.ReadyToReceive || d.State > roce.SendDrain {
		return nil
	}
	if d.Service == serviceUD && d.attr.QKey != wr.QKey {
		return nil
	}
	return d
}

// lost is the fate of a message that nobody receives: an unreliable one is done, a reliable one is sent again until the
// sender gives up.
func (m *message) lost() bool {
	p, q := m.p, m.q
	if q.datagrams() || q.Service == serviceUC {
		return m.end(roce.OK)
	}
	if q.attr.AckTimeout == 0 {
		p.wait(q, p.s.now()+100*time.Millisecond)
		return false
	}
	if q.tries > 0 {
		p.counters(q).LocalAckTimeoutErr++
	}
	if q.tries > q.attr.Retry {
		p.counters(q).ReqRetryExceeded++
		return m.end(roce.RetryExceeded)
	}
	q.tries++
	p.wait(q, p.s.now()+4096*time.Nanosecond<<min(q.attr.AckTimeout, 31))
	return false
}

// gatherList translates the list of a request, or its data in line.
func (p *Port) gatherList(out []seg, wr *sendWR, pd uint32, a roce.Access) ([]seg, roce.Status) {
	if len(wr.Inline) > 0 {
		return append(out, bytesSeg(wr.Inline)), roce.OK
	}
	for _, e := range wr.SG {
		var f roce.Fault
		if out, f = p.translate(out, e.Key, pd, e.VA, uint64(e.Len), a); f != 0 {
			return out, roce.LocalProtection
		}
	}
	return out, roce.OK
}

// do does the message, whose time has come.
func (m *message) do() bool {
	p, q, d, peer := m.p, m.q, m.d, m.peer
	c := peer.counters(d)
	switch m.wr.Op {
	case roce.WRWrite, roce.WRWriteImm:
		if !m.remote(roce.RemoteWrite, m.n) {
			return m.denied()
		}
		if m.wr.Op == roce.WRWriteImm {
			var r roce.RecvWR
			if !peer.nextRecv(d, &r) {
				return m.notReady()
			}
			move(m.dst, m.src)
			m.received(r.ID, uint32(m.n), nil)
		} else {
			move(m.dst, m.src)
		}
		c.RxWrites++
	case roce.WRRead:
		if !m.remote(roce.RemoteRead, m.n) {
			return m.denied()
		}
		move(m.src, m.dst)
		c.RxReads++
	case roce.WRCmpSwap, roce.WRFetchAdd:
		if m.wr.VA%8 != 0 || !m.remote(roce.RemoteAtomic, 8) || len(m.dst) != 1 {
			return m.denied()
		}
		var b [8]byte
		old, done := atomically(&m.dst[0], m.wr.Atomic)
		if !done {
			return m.denied()
		}
		le.PutUint64(b[:], old)
		move(m.src, []seg{bytesSeg(b[:])})
		c.RxAtomics++
	default:
		return m.send()
	}
	if q.Service == serviceRC {
		q.tries, q.rnrs = 0, 0
	}
	p.counted(m)
	return m.end(roce.OK)
}

// remote translates the memory of the receiver.
func (m *message) remote(a roce.Access, n uint64) bool {
	if m.d.attr.Access&a == 0 {
		return false
	}
	if n == 0 {
		return true
	}
	var f roce.Fault
	m.dst, f = m.peer.translate(nil, m.wr.RKey, m.d.PD, m.wr.VA, n, a)
	return f == 0
}

// send does a SEND: the receiver's next request says where to.
func (m *message) send() bool {
	peer, d := m.peer, m.d
	var r roce.RecvWR
	if !peer.nextRecv(d, &r) {
		return m.notReady()
	}
	s := peer.receives(d)
	src, n := m.src, m.n
	var from *roce.Packet
	if m.q.datagrams() {
		from = m.packet()
		var grh [40]byte
		copy(grh[40-len(from.L3):], from.L3)
		src = append([]seg{bytesSeg(grh[:])}, src...)
		n += uint64(len(grh))
	}
	for _, e := range r.SG {
		left := n - total(m.dst)
		if left == 0 {
			break
		}
		var f roce.Fault
		if m.dst, f = peer.translate(m.dst, e.Key, s.PD, e.VA, min(uint64(e.Len), left), roce.LocalWrite); f != 0 {
			return m.recvFailed(r.ID, roce.LocalProtection)
		}
	}
	if total(m.dst) < n {
		return m.recvFailed(r.ID, roce.LocalLength)
	}
	move(m.dst, src)
	if m.wr.Op == roce.WRSendInv && !peer.invalidate(m.wr.Imm, d.PD) {
		return m.recvFailed(r.ID, roce.LocalAccess)
	}
	m.received(r.ID, uint32(n), from)
	m.q.tries, m.q.rnrs = 0, 0
	m.p.counted(m)
	return m.end(roce.OK)
}

// packet is what a datagram would look like on the wire, as far as its receiver sees it.
func (m *message) packet() *roce.Packet {
	t := &m.wr.To
	f := &roce.Packet{Dst: t.Dst, Src: t.Src, SrcQP: m.q.Num}
	if m.q.Service == serviceGSI {
		f.SrcQP = 1
	} else if n := qpcDethSqpn.get32(m.q.Ctx); n != 0 {
		f.SrcQP = n
	}
	size := udpOverhead + detHeader + uint16(m.n+3)&^3
	if t.Dst.Is4() {
		h := make([]byte, 20)
		h[0], h[1], h[6], h[8], h[9] = 0x45, t.TClass, 0x40, t.HopLimit, 17
		be.PutUint16(h[2:], 20+size)
		copy(h[12:], t.Src[12:])
		copy(h[16:], t.Dst[12:])
		be.PutUint16(h[10:], ^sum(h, 0))
		f.L3 = h
		return f
	}
	h := make([]byte, 40)
	be.PutUint32(h, 6<<28|uint32(t.TClass)<<20|t.FlowLabel)
	be.PutUint16(h[4:], size)
	h[6], h[7] = 17, t.HopLimit
	copy(h[8:], t.Src[:])
	copy(h[24:], t.Dst[:])
	f.L3 = h
	return f
}

// received completes the receiver's request.
func (m *message) received(id uint64, n uint32, from *roce.Packet) {
	m.peer.completion(m.d, &roce.Completion{ID: id, Recv: true, Op: m.wr.Op, Bytes: n, Imm: m.wr.Imm,
		Solicited: m.wr.Solicited, From: from})
}

// recvFailed is a receive that could not take its message.
func (m *message) recvFailed(id uint64, st roce.Status) bool {
	if m.q.datagrams() { // dropped
		m.peer.completion(m.d, &roce.Completion{ID: id, Recv: true, Status: st})
		return m.end(roce.OK)
	}
	c := m.peer.counters(m.d)
	c.RespCQEError++
	if st == roce.LocalLength {
		c.RespLocalLengthError++
	}
	m.peer.completion(m.d, &roce.Completion{ID: id, Recv: true, Status: st})
	m.peer.fail(m.d)
	if m.q.Service == serviceUC {
		return m.end(roce.OK)
	}
	if st == roce.LocalLength {
		m.p.counters(m.q).ReqRemoteInvalid++
		return m.end(roce.RemoteInvalid)
	}
	return m.end(roce.RemoteOp)
}

// denied is a message to memory that the receiver does not grant.
func (m *message) denied() bool {
	if m.q.Service == serviceUC {
		return m.end(roce.OK)
	}
	m.peer.counters(m.d).RespRemoteAccessErrors++
	m.peer.fail(m.d)
	m.peer.queueEvent(eventAccess, 0, m.d.Num)
	m.p.counters(m.q).ReqRemoteAccessErrors++
	return m.end(roce.RemoteDenied)
}

// notReady is a message for which no receive was posted.
func (m *message) notReady() bool {
	p, q := m.p, m.q
	m.peer.counters(m.d).OutOfBuffer++
	if q.Service != serviceRC {
		return m.end(roce.OK)
	}
	p.counters(q).RNRNakRetryErr++
	if q.attr.RNRRetry != 7 && q.rnrs >= q.attr.RNRRetry {
		p.counters(q).ReqRNRExceeded++
		return m.end(roce.RNRExceeded)
	}
	q.rnrs = min(q.rnrs+1, 250)
	p.wait(q, p.s.now()+rnrDelay(m.d.attr.RNRTimer))
	return false
}

// rnrDelay is the delay that a code of the RNR timer stands for (InfiniBand Architecture Specification, table 45), in
// units of 10 us.
func rnrDelay(code uint8) time.Duration {
	t := [32]uint32{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
		3072,
		4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}
	return time.Duration(t[code&31]) * 10 * time.Microsecond
}

// end completes the request and takes it off the queue. False: the queue failed.
func (m *message) end(st roce.Status) bool {
	m.q.SI += m.blocks
	m.q.due = 0
	bytes := m.n
	if m.wr.Op != roce.WRRead && m.wr.Op != roce.WRCmpSwap && m.wr.Op != roce.WRFetchAdd {
		bytes = 0
	}
	return m.p.endSend(m.q, m.wr, uint32(bytes), st)
}

func (p *Port) endSend(q *queue, wr *sendWR, n uint32, st roce.Status) bool {
	if st != roce.OK {
		p.counters(q).ReqCQEError++
		p.completion(q, &roce.Completion{ID: wr.ID, Op: wr.Op, Status: st})
		p.fail(q)
		return false
	}
	if wr.Signaled {
		p.completion(q, &roce.Completion{ID: wr.ID, Op: wr.Op, Bytes: n})
	}
	return true
}

// invalidate revokes a key.
func (p *Port) invalidate(key, pd uint32) bool {
	k := p.Keys[key>>8]
	if k == nil || k.Key != key || k.PD != pd {
		return false
	}
	k.Free = true
	return true
}

// Headers of a RoCE v2 packet, without FCS: Ethernet, IP, and what follows.
const (
	udpOverhead = 8 + 12 + 4 // UDP, BTH, ICRC
	detHeader   = 8
	retHeader   = 16
	aetHeader   = 4
	atoHeader   = 28
	onWire      = 24 // preamble, FCS and the gap to the next frame
)

// flowOf is what a message costs on the wire: frames and bytes there, and of the answer.
func (m *message) flow() (tx, rx roce.Traffic) {
	head := uint64(14 + 20 + udpOverhead)
	t := &m.q.attr.Path
	if m.q.datagrams() {
		t = &m.wr.To
		head += detHeader
	}
	if !t.Dst.Is4() {
		head += 20
	}
	if t.Tagged {
		head += 4
	}
	mtu := uint64(max(m.q.attr.MTU, 256))
	frames := max(1, (m.n+mtu-1)/mtu)
	data := roce.Traffic{Packets: frames, Bytes: frames*head + m.n}
	one := func(extra uint64) roce.Traffic { return roce.Traffic{Packets: 1, Bytes: head + extra} }
	switch {
	case m.wr.Op == roce.WRRead:
		data.Bytes += aetHeader * min(2, frames) // in the first and the last
		return one(retHeader), data
	case m.wr.Op == roce.WRCmpSwap, m.wr.Op == roce.WRFetchAdd:
		return one(atoHeader), one(aetHeader + 8)
	case m.wr.Op == roce.WRWrite, m.wr.Op == roce.WRWriteImm:
		data.Bytes += retHeader
	}
	if m.wr.Op == roce.WRWriteImm || m.wr.Op == roce.WRSendImm || m.wr.Op == roce.WRSendInv {
		data.Bytes += 4
	}
	if m.q.Service == serviceRC {
		rx = one(aetHeader)
	}
	return data, rx
}

// counted adds the message's frames to the counters of both ports.
func (p *Port) counted(m *message) {
	tx, rx := m.flow()
	for _, x := range []struct {
		from, to *Port
		n        roce.Traffic
	}{{p, m.peer, tx}, {m.peer, p, rx}} {
		prio := m.q.attr.Path.Prio & 7
		x.from.Traffic.rdmaTx.add(x.n)
		x.from.Traffic.prioTx[prio].add(x.n)
		x.to.Traffic.rdmaRx.add(x.n)
		x.to.Traffic.prioRx[prio].add(x.n)
	}
}

// pace says whether the message has to wait, and until when: until the wire has carried its last byte. The time counts
// from the doorbell, so that messages which were posted together follow each other without gaps.
func (m *message) pace() (bool, time.Duration) {
	p, q := m.p, m.q
	if p.nic.RateBits == 0 && p.nic.Latency == 0 {
		return false, 0
	}
	now := p.s.now()
	if q.due == 0 {
		tx, rx := m.flow()
		start := max(q.rang, now-maxLag)
		done := p.occupy(m.peer, start, tx)
		if m.wr.Op == roce.WRRead {
			done = m.peer.occupy(p, done+p.nic.Latency, rx)
		}
		q.due = done + p.nic.Latency
	}
	return q.due > now, q.due
}

// maxLag is how far in the past a message may start, where this process was late.
const maxLag = 2 * time.Millisecond

// occupy books frames on the wire from one port to another, from a time on, and returns when they have passed.
func (p *Port) occupy(to *Port, start time.Duration, t roce.Traffic) time.Duration {
	wire := func(rate int64) time.Duration {
		if rate == 0 {
			return 0
		}
		return time.Duration(float64(t.Bytes+t.Packets*onWire) * 8e9 / float64(rate))
	}
	p.txFree = max(start, p.txFree) + wire(p.nic.RateBits)
	to.rxFree = max(p.txFree, to.rxFree+wire(to.nic.RateBits))
	return to.rxFree
}
