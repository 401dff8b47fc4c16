package connectx

import (
	"slices"
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

const (
	// max_lso_cap counts only the payload, and 4 KiB more is plenty for headers.
	logMaxLSO = 16
	maxLSO    = 1<<logMaxLSO + 1<<12
)

// sendFrames puts a queue with a failed request into its error state, as the card does, and the driver's reporter
// (en/reporter_tx.c) resets it by MODIFY_SQ. A request may be 64 Ki frames, so it continues from its next frame after a
// pause.
func (p *Port) sendFrames(q *queue) {
	if q.State != wqReady {
		return
	}
	for {
		w, blocks, found := p.nextWQE(q)
		if !found {
			return
		}
		id, signaled := sendID(w), w[11]&flagComplete != 0
		st, rest := p.sendFrame(q, w)
		if rest != 0 {
			p.wait(q, rest)
			return
		}
		q.SI += blocks
		q.frame = 0
		if st != roce.OK || signaled {
			p.completion(q, &roce.Completion{ID: id, Status: st})
		}
		if st != roce.OK {
			q.State = wqError
			sqcState.put(q.Ctx, wqError)
			return
		}
	}
}

// ethSize is the least size of struct mlx5_wqe_eth_seg: flags, MSS and 2 bytes of inline headers, which begin at byte
// 14. If the top bit of their length is set, these two bytes are a VLAN tag to insert instead.
const ethSize = 16

// sendFrame returns the time to go on if there are more. It sends at least one frame, since reading a request's data
// may take longer than a turn.
func (p *Port) sendFrame(q *queue, w []byte) (st roce.Status, rest time.Duration) {
	if rest = p.ethernetPause(q); rest != 0 {
		return 0, rest
	}
	op := w[3]
	if op == wqeNop {
		return roce.OK, 0
	}
	if op != wqeSend && op != wqeLSO || len(w) < ctrlSize+ethSize {
		return roce.LocalQPOp, 0
	}
	e := w[ctrlSize:]
	flags, mss, inline := e[4], int(be.Uint16(e[6:])), int(be.Uint16(e[12:])&0x3ff)
	data := e[ethSize:]
	var head []byte
	if be.Uint16(e[12:])>>15 != 0 { // a VLAN tag to insert
		inline = 0
	}
	if inline > 0 {
		if 14+inline > len(e) {
			return roce.LocalQPOp, 0
		}
		head = e[14 : 14+inline]
		if inline > 2 {
			data = e[min(len(e), ethSize+(inline-2+15)&^15):]
		}
	}
	if q.frame == 0 || p.begun.q != q {
		f, st := p.gatherFrame(q, head, data)
		if st != roce.OK {
			return st, 0
		}
		if be.Uint16(e[12:])>>15 != 0 && len(f) >= 12 {
			f = append(f[:12:12], append([]byte{0x81, 0, e[14], e[15]}, f[12:]...)...)
		}
		if op != wqeLSO {
			mss = 0
		}
		p.begun = begun{q, newSegments(f, mss, inline)}
	}
	cut := &p.begun.segments
	for q.frame < cut.count {
		f := cut.frame(q.frame)
		if flags&0xc0 != 0 { // L3 and L4 checksums
			fixChecksums(f)
		}
		p.bookFrame(q, len(f))
		if !p.loopback(q, f) {
			p.transmit(f)
		}
		if q.frame++; q.frame < cut.count {
			if rest = p.ethernetPause(q); rest != 0 {
				return 0, rest
			}
		}
	}
	p.begun = begun{}
	return roce.OK, 0
}

// begun is a partly sent request. A port keeps one, so that its data are usually read once.
type begun struct {
	q *queue
	segments
}

// ethernetPause returns when a send queue may go on, or 0.
func (p *Port) ethernetPause(q *queue) time.Duration {
	if at := p.frameDue(q); at != 0 {
		return at
	}
	if p.net.Backlog() > maxBacklog {
		return p.s.now() + 50*time.Microsecond
	}
	if p.spent() {
		return p.s.now()
	}
	return 0
}

// gatherFrame copies, so later writes of the guest do not reach the wire. There is capacity for a tag.
func (p *Port) gatherFrame(q *queue, head, data []byte) ([]byte, roce.Status) {
	wr := sendWR{}
	if st := parseData(data, &wr); st != roce.OK {
		return nil, st
	}
	n := uint64(0)
	for _, e := range wr.SG {
		n += uint64(e.Len)
	}
	if n+uint64(len(head)) > maxLSO {
		return nil, roce.LocalLength
	}
	list, fits := p.gatherList(nil, &wr, q.PD, roce.LocalRead)
	if !fits {
		return nil, roce.LocalProtection
	}
	f := make([]byte, len(head), len(head)+int(n)+4)
	copy(f, head)
	f = f[:len(head)+int(n)]
	if !move([]seg{bytesSeg(f[len(head):])}, list) {
		return nil, roce.LocalProtection
	}
	return f, roce.OK
}

// maxBacklog, in bytes, makes send queues wait long before the port drops frames, because a driver expects that its
// card sends all.
const maxBacklog = 256 << 10

func (p *Port) transmit(f []byte) {
	if len(f) < 14 || !p.up() {
		p.count.txDropped++
		return
	}
	p.Traffic.EthTx.count(f)
	p.net.Enqueue(f, p.priority(f))
	p.netDirty = true
}

// loopback gives a frame to the adapter's own queues if it is for them, and reports whether it is for nobody else. The
// driver enables this only while several programs have raw packet queues, and its own queues do not hear themselves.
func (p *Port) loopback(q *queue, f []byte) bool {
	if len(f) < 14 || !p.up() {
		return false
	}
	from := sender{domain: p.TISs[sqcTis.get32(q.Ctx)], cast: selfMulticast}
	off := vportNoMcLb
	if f[0]&1 == 0 {
		if to := [6]byte(f); to != p.nic.MAC && !slices.Contains(p.UCList, to) {
			return false
		}
		from.cast, off = selfUnicast, vportNoUcLb
	}
	if p.VPort == nil || !off.is(p.VPort) {
		for _, to := range p.steer(f, &from) {
			p.receiveInto(to, f)
		}
	}
	if from.cast == selfMulticast {
		return false
	}
	p.Traffic.EthTx.count(f) // without loopback it ends at the switch, which sends nothing back to its port
	return true
}

// receive accepts a frame from the wire. The MTU register counts 22 bytes of header, tag and FCS (MLX5E_ETH_HARD_MTU of
// the driver). Frames here have no FCS, so its 4 bytes leave room for further tags.
func (p *Port) receive(f []byte) {
	if !p.up() || len(f) < 14 {
		return
	}
	if len(f) > int(p.MTU)+4 {
		p.count.tooLong++
		return
	}
	p.Traffic.PrioRx[p.priority(f)].add(roce.Traffic{Packets: 1, Bytes: uint64(len(f))})
	for _, q := range p.steer(f, nil) {
		p.receiveInto(q, f)
	}
}

func (p *Port) receiveInto(to target, f []byte) {
	q := p.Queues[to.rq]
	if q == nil || q.Kind != queueRQ || q.State != wqReady || !serves(to.uid, q.UID) {
		return
	}
	var r roce.RecvWR
	if !p.nextRecv(q, &r) {
		p.count.noBuffer++
		p.counters(q).OutOfBuffer++
		return
	}
	var b [64]byte
	if tagged := len(f) >= 18 && be.Uint16(f[12:]) == etherVLAN; tagged && !q.KeepVLAN {
		b[29] |= 1
		copy(b[30:], f[14:16])
		f = append(append(make([]byte, 0, len(f)), f[:12]...), f[16:]...)
	}
	var dst []seg
	for _, e := range r.SG {
		left := uint64(len(f)) - total(dst)
		if left == 0 {
			break
		}
		var fault roce.Fault
		if dst, fault = p.translate(dst, e.Key, q.PD, e.VA, min(uint64(e.Len), left), roce.LocalWrite); fault != 0 {
			break
		}
	}
	switch {
	case total(dst) < uint64(len(f)):
		b[55], b[63] = byte(roce.LocalLength), cqeResError<<4
		p.count.noBuffer++
	case !move(dst, []seg{bytesSeg(f)}):
		b[55], b[63] = byte(roce.LocalProtection), cqeResError<<4
		p.count.noBuffer++
	default:
		p.Traffic.EthRx.count(f)
		be.PutUint32(b[12:], to.hash)
		b[16] = to.hashType
		// CHECKSUM_COMPLETE is the sum over the packet after the Ethernet header.
		be.PutUint16(b[20:], sum(f[14:], 0))
		// hds_ip_ext (CQE_L3_OK, CQE_L4_OK). The lab's cable has no bit errors.
		b[28] = 1<<1 | 1<<2
		b[63] = cqeSend << 4
	}
	be.PutUint32(b[32:], q.User)
	be.PutUint32(b[44:], uint32(len(f)))
	be.PutUint64(b[48:], p.ticks())
	be.PutUint32(b[56:], to.tag) // sop_drop_qpn, which mlx5e takes for the packet's mark
	be.PutUint16(b[60:], uint16(r.ID))
	p.complete(p.cqOf(q.RecvCQ, q.UID), &b, true)
}

// sum adds the ones' complement sum of b to init (RFC 1071). Frames of 64 KiB do not overflow 64 bits.
func sum(b []byte, init uint32) uint16 {
	s := uint64(init)
	for ; len(b) >= 4; b = b[4:] {
		s += uint64(be.Uint32(b))
	}
	if len(b) >= 2 {
		s += uint64(be.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

const (
	etherVLAN = 0x8100
	protoTCP  = 6
	protoUDP  = 17
)

// ipPacket skips VLAN tags.
func ipPacket(f []byte) (ethertype uint16, ip []byte) {
	if len(f) < 14 {
		return 0, nil
	}
	ethertype, ip = be.Uint16(f[12:]), f[14:]
	for ethertype == etherVLAN && len(ip) >= 4 {
		ethertype, ip = be.Uint16(ip[2:]), ip[4:]
	}
	return ethertype, ip
}

// fixChecksums fills in checksums of IP, TCP and UDP. The guest's stack leaves the sum of the pseudo header
// (CHECKSUM_PARTIAL), for which a receiver would drop the frame. Lengths are the guest's and are checked against the
// frame.
func fixChecksums(f []byte) {
	kind, ip := ipPacket(f)
	var proto byte
	var pseudo uint16
	var l4 []byte
	switch {
	case kind == 0x0800 && len(ip) >= 20:
		h, n := int(ip[0]&15)*4, int(be.Uint16(ip[2:]))
		if h < 20 || n < h || n > len(ip) {
			return
		}
		be.PutUint16(ip[10:], 0)
		be.PutUint16(ip[10:], ^sum(ip[:h], 0))
		if be.Uint16(ip[6:])&0x3fff != 0 {
			return // a fragment
		}
		proto, l4 = ip[9], ip[h:n]
		pseudo = sum(ip[12:20], uint32(proto)+uint32(len(l4)))
	case kind == 0x86dd && len(ip) >= 40:
		n := 40 + int(be.Uint16(ip[4:]))
		if n > len(ip) {
			return
		}
		proto, l4 = ip[6], ip[40:n]
		pseudo = sum(ip[8:40], uint32(proto)+uint32(len(l4)))
	default:
		return
	}
	at := map[byte]int{protoTCP: 16, protoUDP: 6}[proto]
	if at == 0 || at+2 > len(l4) {
		return
	}
	be.PutUint16(l4[at:], 0)
	c := ^sum(l4, uint32(pseudo))
	if c == 0 && proto == protoUDP {
		c = 0xffff // 0 means no checksum
	}
	be.PutUint16(l4[at:], c)
}

// segments are TCP frames of mss bytes after head bytes of headers, with new lengths, IPv4 identification and sequence
// numbers, as in the card's TSO.
type segments struct {
	f             []byte
	mss, head     int
	l3, l4, count int
	ipv4          bool
}

// newSegments returns f alone with mss 0, and if the headers do not fit into head: the switch drops a frame that is too
// long, which is better than an index out of range.
func newSegments(f []byte, mss, head int) segments {
	one := segments{f: f, count: 1}
	kind, ip := ipPacket(f)
	if mss == 0 || head > len(f) || len(f)-head <= mss {
		return one
	}
	s := segments{f: f, mss: mss, head: head, l3: len(f) - len(ip), ipv4: kind == 0x0800}
	s.l4 = s.l3 + 40
	if s.ipv4 && len(ip) > 0 {
		s.l4 = s.l3 + int(ip[0]&15)*4
	}
	if kind != 0x0800 && kind != 0x86dd || s.l4 < s.l3+20 || s.l4+20 > head {
		return one
	}
	s.count = (len(f) - head + mss - 1) / mss
	return s
}

func (s *segments) frame(i int) []byte {
	if s.mss == 0 {
		return s.f
	}
	o := s.head + i*s.mss
	e := min(o+s.mss, len(s.f))
	g := append(append(make([]byte, 0, s.head+e-o), s.f[:s.head]...), s.f[o:e]...)
	if s.ipv4 {
		be.PutUint16(g[s.l3+2:], uint16(len(g)-s.l3))
		be.PutUint16(g[s.l3+4:], be.Uint16(s.f[s.l3+4:])+uint16(i))
	} else {
		be.PutUint16(g[s.l3+4:], uint16(len(g)-s.l3-40))
	}
	be.PutUint32(g[s.l4+4:], be.Uint32(s.f[s.l4+4:])+uint32(o-s.head))
	if e < len(s.f) {
		g[s.l4+13] &^= 0x09 // FIN and PSH only in the last frame
	}
	if i > 0 {
		g[s.l4+13] &^= 0x80 // CWR only in the first frame
	}
	return g
}
