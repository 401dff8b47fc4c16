package roce

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// faults are in percent of the frames.
type faults struct{ lose, repeat, delay, mark int }

func (s *sim) carryWith(f faults) {
	chance := func(n int) bool { return s.rand.IntN(100) < n }
	s.carry = func(from *node, now time.Duration, frame []byte) {
		if chance(f.lose) {
			return
		}
		if chance(f.mark) && frame[15]&ecnMask != 0 {
			frame[15] |= ecnCE
			mend(frame)
		}
		at := now + 2*time.Microsecond
		if chance(f.delay) {
			at += time.Duration(s.rand.IntN(20_000))
		}
		s.deliver(s.peer(from), at, frame)
		if chance(f.repeat) {
			s.deliver(s.peer(from), at+time.Duration(s.rand.IntN(50_000)), frame)
		}
	}
}

func mend(frame []byte) {
	ip := frame[14:34]
	ip[10], ip[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(be.Uint16(ip[i:]))
	}
	sum = sum&0xffff + sum>>16
	be.PutUint16(ip[10:], ^uint16(sum+sum>>16))
}

// traffic posts random requests on both sides. Regions have parts for sent and written, received, and read data. A
// node's requests share no bytes.
type traffic struct {
	sim   *sim
	next  [2]int
	sum   [2]uint64
	recvs [2]int
	posts [2][]SendWR
}

const third = regionLen / 3

func (tr *traffic) post(i int) {
	s := tr.sim
	a, b := s.nodes[i], s.nodes[1-i]
	n := s.rand.IntN(6000)
	if s.rand.IntN(10) == 0 {
		n = s.rand.IntN(40_000)
	}
	off := tr.next[i]
	if off+n > third-64 {
		return
	}
	tr.next[i] += n
	id := uint64(len(tr.posts[i]))
	w := SendWR{ID: id, Signaled: true, SG: local(off, n), VA: remoteVA + uint64(off), RKey: keyRemote, Imm: uint32(id)}
	switch w.Op = WROp(1 + s.rand.IntN(int(WRFetchAdd))); {
	case w.Op == WRSendInv:
		w.Op = WRSend
	case w.Op == WRRead:
		w.SG, w.VA = local(2*third+off, n), w.VA+2*third
	case w.Op.atomic():
		w.Op, w.SG, w.VA = WRFetchAdd, local(regionLen-8, 8), remoteVA+regionLen-8
		w.Atomic = AtomicOp{Add: true, Operand: id}
		tr.sum[i] += id
	}
	if w.Op < WRWrite || w.Op == WRWriteImm {
		b.recvs = append(b.recvs, RecvWR{ID: uint64(tr.recvs[i]), SG: local(third+off, n)})
		tr.recvs[i]++
	}
	tr.posts[i] = append(tr.posts[i], w)
	a.post(w)
}

func (tr *traffic) check(t *testing.T, i int) {
	a, b := tr.sim.nodes[i], tr.sim.nodes[1-i]
	inOrder := func(l []Completion, recv bool) (n int) {
		for _, c := range l {
			if c.Recv != recv {
				continue
			}
			if c.Status != OK || c.ID != uint64(n) {
				t.Fatalf("requests of node %d: completion %d is %+v", i, n, c)
			}
			n++
		}
		return n
	}
	if sent, got := inOrder(a.done, false), inOrder(b.done, true); sent != len(tr.posts[i]) || got != tr.recvs[i] {
		t.Fatalf("node %d: %d of %d sends and %d of %d receives are complete; %+v", i, sent, len(tr.posts[i]), got,
			tr.recvs[i], a.count)
	}
	for _, w := range tr.posts[i] {
		if w.Op.atomic() {
			continue
		}
		n := int(w.SG[0].Len + w.SG[1].Len)
		off := int(w.SG[0].VA - 0x1000)
		mine, far := a.mem[keyLocal].b[off:][:n], b.mem[keyRemote].b[off:][:n]
		if w.Op < WRWrite {
			far = b.mem[keyLocal].b[third+off:][:n]
		}
		if !bytes.Equal(mine, far) {
			t.Fatalf("node %d: request %d, op %d, %d bytes at %d: the data differ", i, w.ID, w.Op, n, off)
		}
	}
	if got := le.Uint64(b.mem[keyRemote].b[regionLen-8:]); got != tr.sum[i] {
		t.Fatalf("node %d: the sum of all atomics is %d, want %d: each must be executed once", i, got, tr.sum[i])
	}
}

func TestDataSurvivesAnyNetwork(t *testing.T) {
	for _, f := range []faults{{}, {lose: 1}, {lose: 10}, {repeat: 20}, {delay: 20}, {mark: 20}, {5, 5, 5, 5},
		{lose: 30, repeat: 30}} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%+v seed %d", f, seed), func(t *testing.T) {
				s := newSim(t, RC, 25e9, func(a *Attr) {
					a.MTU, a.AckTimeout = 256<<(seed%5), 5
					a.Window = []int{1, 7, 64, 0}[seed%4]
				})
				s.rand = rand.New(rand.NewPCG(seed, 77))
				s.carryWith(f)
				tr := &traffic{sim: s}
				for _, n := range s.nodes {
					// With 30 % lost in both directions, 7 losses in a row occur.
					n.qp.attr.Retry = 255
					n.qp.snd.resetRetries(&n.qp.attr)
					n.fill(keyLocal)
					n.fill(keyRemote)
					clear(n.mem[keyRemote].b[regionLen-8:])
				}
				for range 40 {
					tr.post(0)
					tr.post(1)
					s.run(s.now + time.Duration(s.rand.IntN(100))*time.Microsecond)
				}
				s.run(s.now + 20*time.Second)
				for i, n := range s.nodes {
					tr.check(t, i)
					checkCounters(t, f, n)
				}
			})
		}
	}
}

func checkCounters(t *testing.T, f faults, n *node) {
	t.Helper()
	c, p := &n.count, n.port
	calm := f.lose+f.delay == 0
	// With one packet in flight none can be overtaken.
	alone := f.lose == 0 && n.qp.attr.Window == 1
	if lost := c.PacketSeqErr + c.ImpliedNakSeqErr + c.LocalAckTimeoutErr + c.OutOfSequence; calm != (lost == 0) &&
		!alone {
		t.Errorf("%+v: counters of loss: %+v", f, *c)
	}
	if calm && f.repeat == 0 && c.DuplicateRequest != 0 || f.repeat > 0 && c.DuplicateRequest == 0 {
		t.Errorf("%+v: %d duplicates", f, c.DuplicateRequest)
	}
	if k := &p.Counters; f.mark > 0 != (k.ECNMarked > 0) || f.mark > 0 != (k.CNPHandled > 0) ||
		k.CNPSent > k.ECNMarked {
		t.Errorf("%+v: %d marked, %d CNPs sent, %d handled", f, k.ECNMarked, k.CNPSent, k.CNPHandled)
	}
	if k := &p.Counters; k.RxICRC+k.RxDropped+k.TxDropped != 0 {
		t.Errorf("%+v: drops: %+v", f, *k)
	}
}

// After a loss the packets of one round trip are sent again, and after the loss of a repeated packet those of a
// timeout. With N packets a round trip, T a timeout and a loss of p, the usable share of the line is 1/(1+p(N+pT)).
func TestThroughputUnderLossIsThatOfGoBackN(t *testing.T) {
	const messages, size = 20, regionLen
	for _, p := range []float64{0, 0.001, 0.005, 0.01, 0.02} {
		s := newSim(t, RC, 25e9, func(a *Attr) { a.AckTimeout, a.Retry = 4, 255 })
		s.carry = func(from *node, now time.Duration, frame []byte) {
			if from == s.nodes[1] || s.rand.Float64() >= p {
				s.deliver(s.peer(from), now+2*time.Microsecond, frame)
			}
		}
		a := s.nodes[0]
		for range messages {
			a.post(SendWR{Op: WRWrite, Signaled: true, SG: local(0, size), VA: remoteVA, RKey: keyRemote})
		}
		for len(a.done) < messages && s.now < time.Second {
			s.run(s.now + 10*time.Microsecond)
		}
		const wire = 1024 + sizeEther + 20 + sizeUDP + sizeBTH + sizeICRC + wireOverhead
		packet := float64(wire) * 8 / 25 // ns
		n, timeout := 4000/packet+1, 65536/packet
		want := 25 * 1024 / float64(wire) / (1 + p*(n+p*timeout))
		got := messages * size * 8 / float64(s.now)
		if got < 0.95*want || got > 1.03*want {
			t.Errorf("loss of %.1f %%: %.2f Gbit/s, want %.2f", 100*p, got, want)
		}
	}
}

// hostile returns packets of a peer that knows addresses, QP number and keys, but breaks all other rules.
func hostile(b []byte, base Packet, psn *uint32) (l []Packet) {
	ops := []Opcode{}
	for i, h := range opInfo {
		if h != 0 {
			ops = append(ops, Opcode(i))
		}
	}
	for ; len(b) >= 8 && len(l) < 64; b = b[8:] {
		p := base
		p.Opcode = ops[int(b[0])%len(ops)]
		p.PSN = (*psn + uint32(int8(b[1])/16)) & psnMask
		if b[1]&8 != 0 {
			*psn++
		}
		p.AckReq, p.Solicited, p.BECN = b[2]&1 != 0, b[2]&2 != 0, b[2]&4 != 0
		p.TClass = b[2] >> 6
		p.RKey = []uint32{keyRemote, keyLocal, 0, 77}[b[3]&3]
		p.VA = remoteVA + []uint64{0, 8192 - 8, 8192 - 1, ^uint64(0) - remoteVA - 3}[b[3]>>2&3]
		p.Len = []uint32{0, 1, 1024, 2048, 5000, 1 << 30, 1<<31 + 1, ^uint32(0)}[b[4]&7]
		p.Payload = bytes.Repeat([]byte{0xaa}, []int{0, 1, 1023, 1024, 1025, 4096, 8, 16}[b[4]>>4&7])
		p.Syndrome, p.MSN = b[5], uint32(b[6])
		p.Imm, p.QKey, p.SrcQP = uint32(b[6]), 0x1234, uint32(b[7])
		if b[7]&1 != 0 {
			p.DstQP = gsiQPN
		}
		if b[7]&2 != 0 {
			p.PKey = 0x7fff
		}
		p.V1 = b[7]&0xc == 0xc
		l = append(l, p)
	}
	return l
}

func attack(t *testing.T, typ QPType, b []byte) {
	s := newSimOf(t, 8192, typ, 25e9, nil)
	victim := s.nodes[0]
	s.carry = func(*node, time.Duration, []byte) {}
	for i := range 3 {
		victim.recvs = append(victim.recvs, RecvWR{SG: local(1000, 2000)})
		victim.post(SendWR{ID: uint64(i), Op: WROp(1 + (len(b)+i)%int(WRFetchAdd)), Signaled: true, SG: local(4000, 8),
			VA: remoteVA, RKey: keyRemote, To: testPath(victim, s.nodes[1]), QPN: 0x101})
	}
	base := s.nodes[1].qp.base
	base.DstQP = victim.qp.cfg.QPN
	psn := uint32(psnMask - 40)
	var frame []byte
	for i, p := range hostile(b, base, &psn) {
		frame = p.Append(frame[:0])
		victim.port.Receive(s.now, frame)
		if i%3 == 0 {
			s.run(s.now + time.Microsecond)
		}
		r := &victim.qp.rcv
		if n := len(r.replies) - r.head; n > 4*int(victim.qp.attr.PeerReads)+1 {
			t.Fatalf("%d answers wait", n)
		}
	}
	s.run(s.now + time.Millisecond)
	mine := victim.mem[keyLocal].b
	for _, part := range [][]byte{mine[:1000], mine[3000:4000], mine[4008:]} {
		if len(bytes.Trim(part, "\x00")) > 0 {
			t.Fatal("memory is written that nobody may write")
		}
	}
	if len(victim.done) > 16 || victim.frames > 1<<16 {
		t.Fatalf("%d completions, %d frames", len(victim.done), victim.frames)
	}
}

func TestHostilePeerHarmsOnlyItsConnection(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 3000 {
		b := make([]byte, 8*(1+r.IntN(40)))
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		attack(t, QPType(i%4), b)
	}
}

func FuzzHostilePeer(f *testing.F) {
	f.Add(byte(0), []byte("\x0c\x08\x01\x00\x14\x00\x00\x00\x06\x08\x01\x00\x33\x00\x00\x00"))
	f.Add(byte(2), []byte("\x22\x08\x01\x00\x14\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, typ byte, b []byte) { attack(t, QPType(typ%4), b[:min(len(b), 400)]) })
}
