package connectx

import (
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// The direct path copies messages that succeed at once between two adapters' guests. Errors, retries and datagrams go
// by the wire.

// sendBatch and sendBytes limit one call of runSend, so that no guest holds a lock for long: the port's reads wait for
// it, and QEMU drops the adapter after vfiouser.ReplyTimeout without an answer.
const (
	sendBatch = 256
	sendBytes = 8 << 20
)

// runSend processes a send queue. It leaves a waiting queue to the timer, so that a guest that rings forever does not
// make it examine the head again and again. The port's lock is held.
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
	p.verifiedPeerQueue = nil
	var peer *Port // locked until all are done unless it is p itself
	defer func() {
		if peer != nil && peer != p {
			p.unlockPeer(peer)
		}
	}()
	for n, bytes := 0, uint64(0); ; n++ {
		if n == sendBatch || bytes >= sendBytes || n%8 == 7 && p.spent() {
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

// peerRetry is the pause before another try, for a peer that waits for its client, or whose memory changes.
const peerRetry = 200 * time.Microsecond

const (
	sent  = iota
	waits // empty, or too early
	viaWire
)

// onWire reports whether requests go by the wire. They must complete in order, so a queue returns to the direct path
// only when none is there. Datagrams always do, because no connection determines their peer and they may be lost; so do
// XRC, whose receives are another queue's, and dynamic connections, which change.
func (p *Port) onWire(q *queue) bool {
	return q.wire != nil && (q.wire.out > 0 || q.datagrams() || q.Service == serviceXRC || q.Service == serviceDCI ||
		!p.s.direct.Load())
}

// sendOne processes the request at the head. If locking the peer required releasing its own lock (lockPeer), it checks
// the queue and parses the WQE again.
//
// *to is nil before the first request of a batch. A locked peer keeps its address.
//
// A request that would fail goes by the wire, which implements retries and errors.
func (p *Port) sendOne(q *queue, to **Port) (end int, n uint64) {
	w, blocks, found := p.nextWQE(q)
	if !found {
		return waits, 0
	}
	if w[3] == wqeUMR && q.wire != nil {
		return viaWire, 0 // changes of keys need all peers unlocked (see ask)
	}
	wr := &p.wr
	p.parse(q, w, wr)
	if q.wire == nil { // the driver's QP for UMR
		if wr.Op == roce.WRUpdate {
			wr.Fail = p.umr(q, wr.Imm, wr.Inline)
		}
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
	if !had && peer != p {
		if peer.private.Load() || p.private.Load() {
			return viaWire, 0
		}
		locked, kept := p.lockPeer(peer)
		if locked {
			*to = peer
		}
		if !kept {
			// The queue may have run, failed or been destroyed while the lock was released.
			_, late := p.waiting[q]
			if p.Queues[q.Num] != q || late || q.State != roce.ReadyToSend || p.onWire(q) {
				return waits, 0
			}
		}
		if !locked {
			p.wait(q, p.s.now()+peerRetry)
			return waits, 0
		}
		if !kept {
			if w, blocks, found = p.nextWQE(q); !found || w[3] == wqeUMR {
				return sent, 0 // the caller tries again
			}
			if p.parse(q, w, wr); wr.Fail != 0 || wr.Op == roce.WRLocalInv || wr.Op == roce.WRNop {
				return sent, 0
			}
		}
	}
	*to = peer
	m := message{p: p, q: q, wr: wr, blocks: blocks, peer: peer, src: p.src[:0], dst: p.dst[:0]}
	if end = m.run(); end != waits {
		q.copied = 0
	}
	p.src, p.dst = reusable(m.src), reusable(m.dst)
	return end, m.n
}

// reusable returns a list for the next use, without references to guest memory, and not a long one.
func reusable(list []seg) []seg {
	if cap(list) > 1<<10 {
		return nil
	}
	clear(list)
	return list[:0]
}

// unlockPeer leaves new frames to the peer's thread, because nic.Frames may block and our lock is still held.
func (p *Port) unlockPeer(o *Port) {
	if len(o.frames) > 0 || o.netDirty {
		o.wakeBy(p.s.now())
	}
	o.visited, p.visiting = false, false
	o.release()
}

// A message is a request with both ports locked. Before its time it must change nothing, because it is then examined
// again: keys may have been destroyed and the peer may have failed.
type message struct {
	p, peer  *Port
	q, d     *queue // the sender's and the receiver's
	wr       *sendWR
	blocks   uint16
	n        uint64
	src, dst []seg
	partial  bool
}

// run processes the message, if it can succeed. It books the time in q.due only once.
func (m *message) run() int {
	p, q := m.p, m.q
	if !m.ofPeer(m.target) {
		return viaWire
	}
	access := roce.LocalRead
	if m.reads() {
		access = roce.LocalWrite
	}
	// The limit is log_max_msg, 30.
	for _, e := range m.wr.SG {
		m.n += uint64(e.Len)
	}
	if m.n > 1<<30 || m.n > sendBytes && m.access() == 0 {
		return viaWire // a long SEND cannot be copied in parts, as others may take its receive
	}
	var fits bool
	// Access by messages may fail or wait for its guest. The wire does so without the peer's lock.
	if m.src, fits = p.gatherList(m.src, m.wr, q.PD, access); !fits && p.awaitSend(q, m.wr) {
		p.wait(q, p.s.now()+q.faults[ofRequests].pause(p.s.now()))
		return waits
	}
	if !fits || !mapped(m.src) {
		return viaWire
	}
	if !m.ofPeer(m.promising) {
		return m.refused()
	}
	if at := m.pace(); at > 0 && at > p.s.now() {
		p.wait(q, at)
		return waits
	}
	if !m.ofPeer(m.do) {
		end := m.refused()
		if end == viaWire {
			q.due = 0
		}
		return end
	}
	q.faults[ofRequests] = pageFault{}
	if m.partial {
		p.wait(q, p.s.now())
		return waits
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

// ofPeer calls f. A panic fails the peer's adapter, because its data caused it.
func (m *message) ofPeer(f func() bool) (done bool) {
	m.peer.guard(func() { done = f() })
	return done
}

func (m *message) reads() bool {
	return m.wr.Op == roce.WRRead || m.wr.Op == roce.WRCmpSwap || m.wr.Op == roce.WRFetchAdd
}

// target finds the receiver's queue. It accepts exactly the wire's connections: a guest may put any number and address
// into its own contexts, so only the peer's context proves the connection.
func (m *message) target() bool {
	if !m.p.up() || !m.peer.up() {
		return false
	}
	q, d := m.q, m.peer.Queues[m.q.attr.RemoteQPN]
	if d == nil || d.Kind != queueQP || d.Service != q.Service || d.wire == nil ||
		d.State < roce.ReadyToReceive || d.State > roce.SendDrain {
		return false
	}
	if d.attr.RemoteQPN != q.Num || d.attr.Path.Dst != q.attr.Path.Src || d.attr.Path.V1 != q.attr.Path.V1 {
		return false
	}
	// The peer's path must lead back to this port, not only contain an address that this port claims.
	if m.p.verifiedPeerQueue != d {
		if m.p.s.lookup(m.peer.nic.Network, &d.attr.Path) != m.p {
			return false
		}
		m.p.verifiedPeerQueue = d
	}
	if d.wire.qp.Holds() {
		return false
	}
	// Both ends know each other's packet numbers.
	_, send := q.wire.qp.PSNs()
	if expected, _ := d.wire.qp.PSNs(); send != expected {
		return false
	}
	m.d = d
	return q.Service == serviceRC || !m.reads() && m.wr.Op != roce.WRSendInv
}

// gatherList checks the sending guest's keys against the queue's PD. The result is valid while the lock on maps is
// held. Inline data can only be read.
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

// do executes the message at its time. It changes nothing if it returns false, so checks come first, and the copy last.
func (m *message) do() bool {
	if a := m.access(); a != 0 && !(m.remote(a) && mapped(m.dst)) {
		return false
	}
	if m.partial = m.n-min(m.n, m.q.copied) > sendBytes; m.partial {
		m.part(sendBytes)
		return true
	}
	c := m.peer.counters(m.d)
	switch m.wr.Op {
	case roce.WRWrite:
		m.part(m.n)
		c.RxWrites++
	case roce.WRWriteImm:
		var r roce.RecvWR
		if !m.peer.nextRecv(m.d, &r) {
			return false
		}
		m.part(m.n)
		m.received(r.ID)
		c.RxWrites++
	case roce.WRRead:
		m.part(m.n)
		c.RxReads++
	case roce.WRCmpSwap, roce.WRFetchAdd:
		// The guest address must be aligned, too, and may differ from the key's alignment in a list of pieces.
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

// part copies up to n further bytes, not of a SEND, because both ports are locked meanwhile.
func (m *message) part(n uint64) {
	from, to := skip(m.src, m.q.copied), skip(m.dst, m.q.copied)
	m.p.moved(from, n, m.wr.Op == roce.WRRead)
	m.peer.moved(to, n, m.wr.Op != roce.WRRead)
	if m.wr.Op == roce.WRRead {
		from, to = to, from
	}
	move(first(to, n), from)
	m.q.copied += n
}

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

// promising checks before booking whether do would refuse the message. Otherwise the wire would book the time again.
func (m *message) promising() bool {
	if m.q.due != 0 || m.p.nic.RateBits == 0 {
		return true
	}
	a := m.access()
	if a != 0 && !(m.remote(a) && mapped(m.dst)) {
		return false
	}
	if a == 0 || m.wr.Op == roce.WRWriteImm {
		s := m.peer.receives(m.d, 0)
		return s != nil && m.peer.posted(s) > 0
	}
	return true
}

// remote translates the receiver's memory. Both the peer's QP and key must grant the access. Without bytes no valid key
// is needed (IBTA 9.7.4.1.6).
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

// send executes a SEND. If it does not fit, the receiver's request stays posted, and the wire reports the error to both
// sides.
func (m *message) send() bool {
	peer := m.peer
	s := peer.receives(m.d, 0)
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
	m.p.moved(m.src, m.n, false)
	peer.moved(m.dst, m.n, true)
	m.received(r.ID)
	return true
}

func (m *message) received(id uint64) {
	c := roce.Completion{ID: id, Recv: true, Op: m.wr.Op, Bytes: uint32(m.n), Solicited: m.wr.Solicited}
	if m.wr.Op != roce.WRSend {
		c.Imm = m.wr.Imm
	}
	m.peer.completion(m.d, &c)
}

// invalidate revokes a key of fast registration in the queue's domain, or a window bound to the queue. A peer may name
// any key, but only revokes keys with en_rinval, which the driver sets if it gives them to peers.
func (p *Port) invalidate(key, pd, qpn uint32, remote bool) bool {
	k := p.Keys[key>>8]
	if k == nil || k.Key != key || k.PD != pd || !k.UMR || remote && !k.RInval || !p.bound(key, qpn) {
		return false
	}
	k.Free = true
	p.forget(k)
	return true
}

const (
	// As in package roce: both paths must count alike, so changes there must be repeated here.
	udpHeader   = 8
	bthOverhead = 12 + 4 // BTH, ICRC
	retHeader   = 16
	aetHeader   = 4
	atoHeader   = 28
	onWire      = 24 // preamble, FCS and gap
)

// flow returns frames and bytes on the wire, of a message and its answer. Headers are Ethernet 14, IPv4 20 or IPv6 and
// GRH 40, UDP for v2, and bthOverhead; a tag adds 4. Only the first packet of a WRITE has a RETH.
func (m *message) flow() (tx, rx roce.Traffic) {
	head := uint64(14 + 20 + bthOverhead)
	t := &m.q.attr.Path
	if t.V1 || !t.Dst.Is4() {
		head += 20
	}
	if !t.V1 {
		head += udpHeader
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

// counted counts a message for both ports, with the acknowledgements of a wire without loss.
func (m *message) counted() {
	tx, rx := m.flow()
	prio := m.p.QoS.Priority(&m.q.attr.Path)
	m.p.copied(prio, tx, rx)
	m.peer.copied(prio, rx, tx)
}

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

// pace returns when the wire has carried the last byte, or 0 without rate and latency. Time counts from the doorbell,
// so that messages posted together have no gaps. A READ occupies the cable twice.
func (m *message) pace() time.Duration {
	p, q := m.p, m.q
	if p.nic.RateBits == 0 && p.nic.Latency == 0 {
		return 0
	}
	if q.due == 0 {
		tx, rx := m.flow()
		start := max(q.rang, p.s.now()-maxLag)
		q.due = p.occupy(m.peer, start, tx) + p.nic.Latency
		if m.wr.Op == roce.WRRead {
			q.due = m.peer.occupy(p, q.due, rx) + p.nic.Latency
		}
		if p.limited() || m.peer.limited() {
			q.due = max(q.due, m.pathsPass(start)+p.nic.Latency)
		}
	}
	return q.due
}

// maxLag is how far in the past a message may start if this process was late. Without it a busy machine would stay
// below the cable's rate; with more, an idle queue could send a burst.
const maxLag = 2 * time.Millisecond

// occupy books frames from start on, and returns when they have passed. The sender's cable is shared with roce's frames
// (Share), so that both paths keep to the rate, and the receiver's (rxFree) by all senders, as behind a switch. Both
// ports are locked.
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
