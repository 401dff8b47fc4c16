package connectx

import (
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// The direct path: a message between two adapters of the server is copied from one guest's memory to the other's. It
// takes only what goes well at once. All else, such as errors, retries and datagrams, is the business of the wire.

// sendBatch bounds what one call of runSend does: requests, and bytes. The timer's thread goes on from there, so that
// no guest holds a lock for long. QEMU lets a guest's read fail after 5 s without an answer, and while a lock is held
// the port's reads wait.
const (
	sendBatch = 256
	sendBytes = 8 << 20
)

// runSend does the posted requests of a send queue, as far as they can go now. The port's lock is held. A queue that
// waits for its time is left to the timer: otherwise a guest that rings for ever would have the head of the queue
// looked at for ever.
func (p *Port) runSend(q *queue) {
	if _, waits := p.waiting[q]; waits {
		return
	}
	switch {
	case q.Kind == queueSQ:
		p.sendFrames(q)
		return
	case q.Kind != queueQP:
		return
	case q.State == roce.Failed:
		p.flush(q)
		return
	case q.State != roce.ReadyToSend:
		return
	}
	p.answers = nil
	var peer *Port // that the requests go to, locked until all are done; p itself, if it is that
	defer func() {
		if peer != nil && peer != p {
			p.unlockPeer(peer)
		}
	}()
	for n, bytes := 0, uint64(0); ; n++ {
		if n == sendBatch || bytes > sendBytes {
			p.wait(q, p.s.now())
			return
		}
		if p.onWire(q) {
			p.ring(q)
			return
		}
		end, k := p.sendOne(q, &peer)
		if bytes += k; end == viaWire {
			p.ring(q)
		}
		if end != sent {
			return
		}
	}
}

// How the request at the head of a queue fared.
const (
	sent    = iota
	waits   // there is none, or its time is still to come
	viaWire // it is for the wire
)

// onWire says whether a queue's requests go by the wire: all while one is on its way there. Requests must complete in
// their order, so a queue comes back to the direct path only when all that went by the wire have ended. Datagrams
// always go by the wire: they have no connection to take the peer from, and may be lost.
func (p *Port) onWire(q *queue) bool {
	return q.wire != nil && (q.wire.out > 0 || q.datagrams() || !p.s.direct.Load())
}

// sendOne does the request at the head. The WQE is read and checked under the port's own lock first. Taking the peer's
// lock may have meant to release our own (lockPeer): then the queue, its state and the WQE are read again before
// anything is done with them.
//
// to is nil before the first request of a batch. While a peer is locked its address cannot go.
//
// Whatever would fail goes by the wire, which knows the retries, errors and state changes that follow.
func (p *Port) sendOne(q *queue, to **Port) (end int, n uint64) {
	w, blocks, found := p.nextWQE(q)
	if !found {
		return waits, 0
	}
	wr := &p.wr
	p.parse(q, w, wr)
	if q.wire == nil { // a QP of the driver's own, for UMR
		q.SI += blocks
		p.completion(q, &roce.Completion{ID: wr.ID, Op: wr.Op, Status: wr.Fail})
		return sent, 0
	}
	peer, had := *to, *to != nil
	if !had {
		peer = p.s.lookup(p.nic.Network, &q.attr.Path)
	}
	if wr.Fail != 0 || wr.Op == roce.WRLocalInv || wr.Op == roce.WRNop || peer == nil {
		return viaWire, 0
	}
	*to = peer
	if !had && peer != p {
		if !p.lockPeer(peer) {
			// The queue may have run, failed or gone in between.
			_, late := p.waiting[q]
			if p.Queues[q.Num] != q || late || q.State != roce.ReadyToSend || p.onWire(q) {
				return waits, 0
			}
			if w, blocks, found = p.nextWQE(q); found {
				p.parse(q, w, wr)
			}
			if !found || wr.Fail != 0 || wr.Op == roce.WRLocalInv || wr.Op == roce.WRNop {
				return sent, 0 // look again
			}
		}
	}
	m := message{p: p, q: q, wr: wr, blocks: blocks, peer: peer, src: p.src[:0], dst: p.dst[:0]}
	end = m.run()
	// The lists are used again, and hold no memory of the guests meanwhile.
	p.src, p.dst = m.src, m.dst
	clear(p.src)
	clear(p.dst)
	return end, m.n
}

// unlockPeer releases a peer, whose own thread does what came up meanwhile. Its frames are not flushed here: nic.Frames
// may block, and our own lock is still held.
func (p *Port) unlockPeer(o *Port) {
	if len(o.frames) > 0 || o.netDirty {
		o.wakeBy(p.s.now())
	}
	o.mu.Unlock()
}

// message is a request that is being done, with both ports locked. Until its time has come nothing may change, as it is
// looked at again from the start then: keys may be gone and the peer may have failed.
type message struct {
	p, peer  *Port
	q, d     *queue // the sender's queue and the receiver's
	wr       *sendWR
	blocks   uint16
	n        uint64
	src, dst []seg
}

// run does the message, if nothing stands against it. q.due holds the booked time while the message
// waits, so that it is booked once.
func (m *message) run() int {
	p, q := m.p, m.q
	if !m.ofPeer(m.target) {
		return viaWire
	}
	access := roce.LocalRead
	if m.reads() {
		access = roce.LocalWrite
	}
	var fits bool
	// Memory that is reached by messages may make its guest wait, or fail: the wire does both without the peer's lock.
	if m.src, fits = p.gatherList(m.src, m.wr, q.PD, access); !fits || !mapped(m.src) {
		return viaWire
	}
	// log_max_msg is 30.
	if m.n = total(m.src); m.n > 1<<30 {
		return viaWire
	}
	if !m.ofPeer(m.promising) {
		return viaWire
	}
	if at := m.pace(); at > 0 && at > p.s.now() {
		p.wait(q, at)
		return waits
	}
	if !m.ofPeer(m.do) {
		q.due = 0
		return viaWire
	}
	m.counted()
	q.SI += m.blocks
	q.due = 0
	if m.wr.Signaled {
		c := roce.Completion{ID: m.wr.ID, Op: m.wr.Op}
		if m.reads() {
			c.Bytes = uint32(m.n)
		}
		p.completion(q, &c)
	}
	return sent
}

// ofPeer calls f, which works on queues and keys of the peer. If it panics, the adapter of the peer fails: the data
// that f could not cope with is its own, and the sender must not pay for it.
func (m *message) ofPeer(f func() bool) (done bool) {
	m.peer.guard(func() { done = f() })
	return done
}

func (m *message) reads() bool {
	return m.wr.Op == roce.WRRead || m.wr.Op == roce.WRCmpSwap || m.wr.Op == roce.WRFetchAdd
}

// target finds the receiver's queue. It connects what the wire would connect, and no more: a guest may put any number
// and address into its contexts, and only what the peer's own context says of us counts.
func (m *message) target() bool {
	if !m.p.up() || !m.peer.up() {
		return false
	}
	q, d := m.q, m.peer.Queues[m.q.attr.RemoteQPN]
	if d == nil || d.Kind != queueQP || d.Service != q.Service || d.wire == nil ||
		d.State < roce.ReadyToReceive || d.State > roce.SendDrain {
		return false
	}
	if d.attr.RemoteQPN != q.Num || d.attr.Path.Dst != q.attr.Path.Src {
		return false
	}
	// The peer's way back leads to this port, not only to an address that it says is its own.
	if m.p.answers != d {
		if m.p.s.lookup(m.peer.nic.Network, &d.attr.Path) != m.p {
			return false
		}
		m.p.answers = d
	}
	// Both ends know the packet numbers of the other, as they have agreed on the connection.
	_, send := q.wire.qp.PSNs()
	if expected, _ := d.wire.qp.PSNs(); send != expected {
		return false
	}
	m.d = d
	return q.Service == serviceRC || !m.reads() && m.wr.Op != roce.WRSendInv
}

// gatherList appends the translation of the list of a request. The data segments name keys of the guest that sends, so
// they are checked against the queue's PD. The memory of the lists is used while the lock on maps is held, and not
// after. Data in line can be read only.
func (p *Port) gatherList(out []seg, wr *sendWR, pd uint32, a roce.Access) ([]seg, bool) {
	for _, e := range wr.SG {
		if e.Inline {
			if a != roce.LocalRead {
				return out, false
			}
			out = append(out, bytesSeg(wr.Inline[e.VA:e.VA+uint64(e.Len)]))
			continue
		}
		var f roce.Fault
		if out, f = p.translate(out, e.Key, pd, e.VA, uint64(e.Len), a); f != 0 {
			return out, false
		}
	}
	return out, true
}

// do does the message, whose time has come. False: something stands against it, and nothing has been changed. So checks
// come before taking a receive, and the copy comes last.
func (m *message) do() bool {
	if a := m.access(); a != 0 && !(m.remote(a) && mapped(m.dst)) {
		return false
	}
	c := m.peer.counters(m.d)
	switch m.wr.Op {
	case roce.WRWrite:
		move(m.dst, m.src)
		c.RxWrites++
	case roce.WRWriteImm:
		var r roce.RecvWR
		if !m.peer.nextRecv(m.d, &r) {
			return false
		}
		move(m.dst, m.src)
		m.received(r.ID)
		c.RxWrites++
	case roce.WRRead:
		move(m.src, m.dst)
		c.RxReads++
	case roce.WRCmpSwap, roce.WRFetchAdd:
		// The memory must be in one piece, whose address in the guest is aligned too: behind a list of pieces it may
		// differ from the key's.
		if m.n != 8 || m.wr.VA%8 != 0 || len(m.dst) != 1 || m.dst[0].addr%8 != 0 {
			return false
		}
		var b [8]byte
		le.PutUint64(b[:], atomically(m.dst[0].b, m.wr.Atomic))
		move(m.src, []seg{bytesSeg(b[:])})
		c.RxAtomics++
	default:
		return m.send()
	}
	return true
}

// access is what the request does to memory of the receiver that it names.
func (m *message) access() roce.Access {
	switch m.wr.Op {
	case roce.WRWrite, roce.WRWriteImm:
		return roce.RemoteWrite
	case roce.WRRead:
		return roce.RemoteRead
	case roce.WRCmpSwap, roce.WRFetchAdd:
		return roce.RemoteAtomic
	}
	return 0
}

// promising looks for what would have do refuse the message, before the time on the wire is booked for it. The wire
// books it too, and would send it a second time later.
func (m *message) promising() bool {
	if m.q.due != 0 || m.p.nic.RateBits == 0 {
		return true
	}
	a := m.access()
	if a != 0 && !(m.remote(a) && mapped(m.dst)) {
		return false
	}
	if a == 0 || m.wr.Op == roce.WRWriteImm {
		s := m.peer.receives(m.d)
		return s != nil && m.peer.posted(s) > 0
	}
	return true
}

// remote translates the memory of the receiver. The QP must grant the access, and the key must: both are the peer's
// own. A message without bytes needs no valid key (IBTA 9.7.4.1.6).
func (m *message) remote(a roce.Access) bool {
	if m.d.attr.Access&a == 0 {
		return false
	}
	if m.n == 0 {
		return true
	}
	var f roce.Fault
	m.dst, f = m.peer.translate(m.dst[:0], m.wr.RKey, m.d.PD, m.wr.VA, m.n, a)
	return f == 0 && m.peer.bound(m.wr.RKey, m.d.Num)
}

// send does a SEND: the receiver's next request says where to. It stays posted if the message does not fit: the
// position in the queue is put back, and the wire finds the same error, reports it to both sides and fails the QPs.
func (m *message) send() bool {
	peer := m.peer
	s := peer.receives(m.d)
	if s == nil {
		return false
	}
	index, head := s.RI, s.Head
	var r roce.RecvWR
	if !peer.nextRecv(m.d, &r) {
		return false
	}
	for _, e := range r.SG {
		left := m.n - total(m.dst)
		if left == 0 {
			break
		}
		var f roce.Fault
		if m.dst, f = peer.translate(m.dst, e.Key, s.PD, e.VA, min(uint64(e.Len), left), roce.LocalWrite); f != 0 {
			break
		}
	}
	if total(m.dst) < m.n || !mapped(m.dst) ||
		m.wr.Op == roce.WRSendInv && !peer.invalidate(m.wr.Imm, m.d.PD, m.d.Num, true) {
		s.RI, s.Head = index, head
		return false
	}
	move(m.dst, m.src)
	m.received(r.ID)
	return true
}

// received completes the receiver's request.
func (m *message) received(id uint64) {
	m.peer.completion(m.d, &roce.Completion{ID: id, Recv: true, Op: m.wr.Op, Bytes: uint32(m.n), Imm: m.wr.Imm,
		Solicited: m.wr.Solicited})
}

// invalidate revokes a key for a queue, if it is one that work requests may change: a fast registration of the queue's
// domain, or a window that is bound to the queue. A peer may name any key. Of those it may revoke only such as grant
// that (en_rinval), which the driver sets for what it hands to peers.
func (p *Port) invalidate(key, pd, qpn uint32, remote bool) bool {
	k := p.Keys[key>>8]
	if k == nil || k.Key != key || k.PD != pd || !k.UMR || remote && !k.RInval || !p.bound(key, qpn) {
		return false
	}
	k.Free = true
	return true
}

// Headers of a RoCE v2 packet, without FCS: Ethernet, IP, and what follows.
const (
	// These sizes are those of the frames that package roce makes. Both paths must count alike, so a change of headers
	// there is one here.
	udpOverhead = 8 + 12 + 4 // UDP, BTH, ICRC
	retHeader   = 16
	aetHeader   = 4
	atoHeader   = 28
	onWire      = 24 // preamble, FCS and the gap to the next frame
)

// flow is what a message costs on the wire: frames and bytes there, and of the answer. Ethernet 14, IPv4 20 or IPv6 40,
// then udpOverhead; a tag adds 4. Only the first packet of a WRITE has a RETH.
func (m *message) flow() (tx, rx roce.Traffic) {
	head := uint64(14 + 20 + udpOverhead)
	t := &m.q.attr.Path
	if !t.Dst.Is4() {
		head += 20
	}
	if t.Tagged {
		head += 4
	}
	mtu := uint64(max(m.q.attr.MTU, 256))
	frames := max(1, (m.n+mtu-1)/mtu)
	data := roce.Traffic{Packets: frames, Bytes: frames*head + (m.n+3)&^3} // padded to words
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
		acks := (frames + roce.AckEvery - 1) / roce.AckEvery
		rx = roce.Traffic{Packets: acks, Bytes: acks * (head + aetHeader)}
	}
	return data, rx
}

// counted adds the message's frames to the counters of both ports. The answer to a message is counted too: of
// acknowledgements as many as the wire would carry without loss.
func (m *message) counted() {
	tx, rx := m.flow()
	prio := m.p.QoS.Priority(&m.q.attr.Path)
	m.p.copied(prio, tx, rx)
	m.peer.copied(prio, rx, tx)
}

// copied counts what a port sent and received without frames.
func (p *Port) copied(prio uint8, tx, rx roce.Traffic) {
	t := &p.Traffic
	t.RDMATx.add(tx)
	t.PrioTx[prio].add(tx)
	t.RDMARx.add(rx)
	t.PrioRx[prio].add(rx)
	if p.nic.Copied != nil {
		p.nic.Copied(tx, rx)
	}
}

// pace says when the message is there: when the wire has carried its last byte. The time counts from the doorbell, so
// that messages which were posted together follow each other without gaps. Without rate and latency there is nothing to
// wait for. A READ occupies the cable twice: the request here, the data from the peer.
func (m *message) pace() time.Duration {
	p, q := m.p, m.q
	if p.nic.RateBits == 0 && p.nic.Latency == 0 {
		return 0
	}
	if q.due == 0 {
		tx, rx := m.flow()
		q.due = p.occupy(m.peer, max(q.rang, p.s.now()-maxLag), tx) + p.nic.Latency
		if m.wr.Op == roce.WRRead {
			q.due = m.peer.occupy(p, q.due, rx) + p.nic.Latency
		}
	}
	return q.due
}

// maxLag is how far in the past a message may start, where this process was late. Without it a busy machine would show
// less than the rate of the cable; with more, a queue that had been idle could send a burst above it.
const maxLag = 2 * time.Millisecond

// occupy books frames on the wire from one port to another, from a time on, and returns when they have passed. The
// sender's cable is shared with the frames of roce (Share), so that both paths together keep to the rate. The
// receiver's is rxFree: several senders to one port share its cable, as behind a switch. The functions of a port share
// both. Both ports are locked.
func (p *Port) occupy(to *Port, start time.Duration, t roce.Traffic) time.Duration {
	wire := func(rate int64) time.Duration {
		if rate == 0 {
			return 0
		}
		return time.Duration(float64(t.Bytes+t.Packets*onWire) * 8e9 / float64(rate))
	}
	end := p.net.Share(p.nic.Cable.sending().Take(max(start, p.net.Share(0)), wire(p.nic.RateBits)))
	takes := wire(to.nic.RateBits)
	to.rxFree = to.nic.Cable.receiving().Take(max(end-takes, to.rxFree), takes)
	return to.rxFree
}
