package roce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

const testDCKey = 0x1122334455667788

// dcSim has initiators and targets, each at a port of its own. carry delivers to the node with the MAC address.
func dcSim(t testing.TB, initiators, targets int, loss float64) *sim {
	s := &sim{space: 1 << 16, rand: rand.New(rand.NewPCG(3, 4))}
	s.carry = func(n *node, now time.Duration, frame []byte) {
		if s.rand.Float64() < loss {
			return
		}
		for _, to := range s.nodes {
			if mac, _ := address(to); mac == [6]byte(frame) {
				s.deliver(to, now+2*time.Microsecond, frame)
			}
		}
	}
	for i := range initiators + targets {
		n := s.add(t, i, RC, 100e9)
		n.port.Remove(n.qp)
		c := QPConfig{Type: RC, QPN: 0x100 + uint32(i), Owner: n, Mem: n.mem, Counters: &n.count, Dynamic: Initiator}
		if i >= initiators {
			c.Dynamic, c.DCKey, c.Shared = Target, testDCKey, true
		}
		var err error
		if n.qp, err = n.port.NewQP(c); err != nil {
			t.Fatal(err)
		}
		n.ready(t)
	}
	return s
}

// ready moves the node's end to where it works.
func (n *node) ready(t testing.TB) {
	a := Attr{Path: Path{Prio: 3}, MTU: 1024, Access: RemoteRead | RemoteWrite | RemoteAtomic, RNRTimer: 12,
		RNRRetry: 7, Retry: 7, AckTimeout: 8, MaxReads: 4, PeerReads: 4, SendPSN: psnMask - 20}
	states := []State{Init, ReadyToReceive}
	if n.qp.cfg.Dynamic == Initiator {
		states = append(states, ReadyToSend)
	}
	for _, st := range states {
		if err := n.qp.Modify(st, &a); err != nil {
			t.Fatal(err)
		}
	}
}

// to addresses a request.
func (n *node) to(target *node, w SendWR) SendWR {
	w.To, w.QPN, w.DCKey, w.Signaled = testPath(n, target), target.qp.cfg.QPN, testDCKey, true
	return w
}

// Two initiators write, read, send and add to three targets in turn, with and without lost packets, and each byte
// arrives once.
func TestDynamicConnections(t *testing.T) {
	for _, loss := range []float64{0, 0.02} {
		t.Run(fmt.Sprint(loss), func(t *testing.T) {
			const initiators, targets, rounds = 2, 3, 60
			s := dcSim(t, initiators, targets, loss)
			sent := make([]uint64, len(s.nodes)) // additions to each target
			want := map[*node][]byte{}
			var ids uint64
			for i := range initiators {
				n := s.nodes[i]
				n.fill(keyLocal)
				for range rounds {
					k := initiators + s.rand.IntN(targets)
					to := s.nodes[k]
					if want[to] == nil {
						want[to] = bytes.Clone(to.mem[keyRemote].b)
					}
					size := 1 + s.rand.IntN(5000)
					at := 64 + 8192*i // initiators write to different places
					ids++
					switch s.rand.IntN(4) {
					case 0:
						n.post(n.to(to, SendWR{ID: ids, Op: WRWrite, SG: []SGE{{Key: keyLocal, VA: 0x1000,
							Len: uint32(size)}}, VA: remoteVA + uint64(at), RKey: keyRemote}))
						copy(want[to][at:], n.mem[keyLocal].b[:size])
					case 1:
						n.post(n.to(to, SendWR{ID: ids, Op: WRRead, SG: []SGE{{Key: keyLocal, VA: 0x1000 + 32768,
							Len: uint32(size)}}, VA: remoteVA, RKey: keyRemote}))
					case 2:
						sent[k]++
						n.post(n.to(to, SendWR{ID: ids, Op: WRFetchAdd, SG: []SGE{{Key: keyLocal, VA: 0x1000 + 32768,
							Len: 8}}, VA: remoteVA + 32768, RKey: keyRemote, Atomic: AtomicOp{Add: true, Operand: 1}}))
						binary.LittleEndian.PutUint64(want[to][32768:], sent[k])
					case 3:
						to.recvs = append(to.recvs, RecvWR{ID: ids, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 8192}}})
						n.post(n.to(to, SendWR{ID: ids, Op: WRSendImm, Imm: uint32(ids), SG: []SGE{{Key: keyLocal,
							VA: 0x1000, Len: uint32(size)}}}))
					}
				}
			}
			s.run(10 * time.Second)
			received := 0
			for i, n := range s.nodes {
				for _, c := range n.done {
					if c.Status != OK {
						t.Errorf("node %d: %+v", i, c)
					}
				}
				if i < initiators {
					if len(n.done) != rounds {
						t.Errorf("initiator %d: %d of %d requests completed", i, len(n.done), rounds)
					}
					continue
				}
				received += len(n.done)
				if len(n.recvs) > 0 {
					t.Errorf("target %d: %d receives are left", i, len(n.recvs))
				}
				if !bytes.Equal(n.mem[keyRemote].b, want[n]) {
					t.Errorf("target %d has other bytes", i)
				}
				if got := len(n.qp.dc.links); got != initiators {
					t.Errorf("target %d has %d links", i, got)
				}
			}
			if received == 0 || s.nodes[0].port.connections < 10 {
				t.Errorf("%d messages, %d connections", received, s.nodes[0].port.connections)
			}
		})
	}
}

// An initiator with a wrong key gets no answer. One that may not access memory is told so, and its next connection
// works; the target goes on meanwhile.
func TestDynamicConnectionFails(t *testing.T) {
	s := dcSim(t, 2, 1, 0)
	n, other, to := s.nodes[0], s.nodes[1], s.nodes[2]
	write := SendWR{Op: WRWrite, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 3000}}, VA: remoteVA, RKey: keyRemote}
	bad := write
	bad.RKey = 0x99
	n.post(n.to(to, bad))
	other.post(other.to(to, write))
	s.run(time.Second)
	if n.done[0].Status != RemoteDenied || n.qp.State() != Failed || other.done[0].Status != OK || len(to.done) > 0 {
		t.Fatalf("%v, %v, %v", n.statuses(), other.statuses(), to.statuses())
	}
	if err := n.qp.Modify(Reset, &Attr{}); err != nil {
		t.Fatal(err)
	}
	n.ready(t)
	n.post(n.to(to, write))
	other.post(other.to(to, write))
	s.run(2 * time.Second)
	if len(n.done) != 2 || n.done[1].Status != OK || len(other.done) != 2 || len(to.events) > 0 {
		t.Fatalf("%v, %v, events %v", n.statuses(), other.statuses(), to.events)
	}
	wrong := n.to(to, write)
	wrong.DCKey++
	n.post(wrong)
	s.run(time.Minute)
	if n.done[2].Status != RetryExceeded {
		t.Errorf("with a wrong key: %v", n.statuses())
	}
}

// request gives a target the first packet of a connection of an initiator that does not exist.
func (n *node) request(from *node, qpn uint32, number uint64, op Opcode, payload int) {
	src := testPath(from, n)
	p := Packet{SrcMAC: src.SrcMAC, DstMAC: src.DstMAC, Src: src.Src, Dst: src.Dst, HopLimit: 64, PKey: 0xffff,
		DstQP: n.qp.cfg.QPN, Opcode: serviceDC | op, DC: DC{Key: testDCKey, From: qpn, Number: number}}
	b := p.appendHeaders(make([]byte, 0, MaxFrame), payload)
	b = b[:len(b)+payload]
	n.port.Receive(n.sim.now, n.port.finish(b, 0, &p))
}

// Peers cannot take more links than a target has, nor one that was used lately, and a link that is taken later begins
// anew. Nothing of the taken ones stays in the port's lists.
func TestLinksAreBounded(t *testing.T) {
	s := dcSim(t, 1, 1, 0)
	n, to := s.nodes[0], s.nodes[1]
	write := SendWR{Op: WRWrite, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 100}}, VA: remoteVA, RKey: keyRemote}
	n.post(n.to(to, write))
	s.run(time.Millisecond)
	if len(to.qp.dc.links) != 1 {
		t.Fatalf("%d links", len(to.qp.dc.links))
	}
	for i := range uint32(3 * MaxLinks) {
		to.request(n, 0x1000+i, 1, opSendOnly, 0)
	}
	if got := len(to.qp.dc.links); got != MaxLinks || to.port.ready.len() > MaxLinks+2 {
		t.Errorf("%d links, %d queue pairs that have something to send", got, to.port.ready.len())
	}
	if to.qp.dc.links[peer{testPath(n, to).Src, n.qp.cfg.QPN}] == nil {
		t.Error("a link that was used lately was taken")
	}
	n.post(n.to(to, write))
	s.run(2 * time.Second)
	s.run(s.now + 2*linkIdle)
	for i := range uint32(2 * MaxLinks) {
		to.request(n, 0x9000+i, 1, opSendOnly, 0)
	}
	if got := len(to.qp.dc.links); got != MaxLinks || to.port.ready.len() > MaxLinks+2 {
		t.Errorf("later: %d links, %d queue pairs that have something to send", got, to.port.ready.len())
	}
	s.run(s.now + 2*linkIdle)
	n.post(n.to(to, write))
	s.run(s.now + time.Second)
	if len(n.done) != 3 || n.done[1].Status != OK || n.done[2].Status != OK {
		t.Errorf("after its link was taken: %v", n.statuses())
	}
	seen := 0
	for l, first := to.qp.dc.ring, to.qp.dc.ring; seen == 0 || l != first; l = l.dc.next {
		if seen++; to.qp.dc.links[l.dc.from] != l || l.dc.next.dc.prev != l || seen > MaxLinks {
			t.Fatal("the ring and the table differ")
		}
	}
	if seen != MaxLinks {
		t.Errorf("%d links in the ring", seen)
	}
	to.port.Remove(to.qp)
	if len(to.qp.dc.links) > 0 || to.qp.dc.ring != nil {
		t.Error("links of no target")
	}
}

// A message that a new connection cuts off gives its receive back, and so does the end of the target.
func TestCutOffMessagesOfLinks(t *testing.T) {
	s := dcSim(t, 1, 1, 0)
	n, to := s.nodes[0], s.nodes[1]
	to.recvs = []RecvWR{{ID: 1, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 8192}}}, {ID: 2, SG: []SGE{{Key: keyLocal,
		VA: 0x1000, Len: 8192}}}}
	to.request(n, 0x77, 5, opSendFirst, 1024)
	to.request(n, 0x77, 6, opSendFirst, 1024)
	if got := fmt.Sprint(to.statuses()); got != "[1:0x5]" {
		t.Errorf("after another connection: %v", got)
	}
	if err := to.qp.Modify(Failed, nil); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(to.statuses()); got != "[1:0x5 2:0x5]" {
		t.Errorf("after the end of the target: %v", got)
	}
}

// An initiator executes nothing, whoever asks, and an initiator that began anew, with lower numbers, reaches a target
// after a while.
func TestInitiatorsOnlySend(t *testing.T) {
	s := dcSim(t, 1, 1, 0)
	n, to := s.nodes[0], s.nodes[1]
	write := SendWR{Op: WRWrite, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 100}}, VA: remoteVA, RKey: keyRemote}
	n.port.connections = 1 << 40
	n.post(n.to(to, write))
	s.run(time.Second)
	for _, op := range []Opcode{opWriteMiddle, opWriteOnly, opSendOnly} {
		p := Packet{HopLimit: 64, PKey: 0xffff, DstQP: n.qp.cfg.QPN, Opcode: serviceDC | op, VA: remoteVA,
			RKey: keyRemote}
		path := testPath(to, n)
		p.SrcMAC, p.DstMAC, p.Src, p.Dst = path.SrcMAC, path.DstMAC, path.Src, path.Dst
		b := p.appendHeaders(nil, 0)
		n.port.Receive(s.now, n.port.finish(b, 0, &p))
	}
	if n.qp.State() != ReadyToSend || len(n.events) > 0 || n.count.RxWrites > 0 {
		t.Errorf("state %d, events %v, %d writes", n.qp.State(), n.events, n.count.RxWrites)
	}
	n.port.connections = 0
	s.run(s.now + 2*linkIdle)
	n.post(n.to(to, write))
	s.run(s.now + time.Second)
	if len(n.done) != 2 || n.done[1].Status != OK {
		t.Errorf("begun anew: %v", n.statuses())
	}
}

// The first packet of a connection has the priority of its own path.
func TestConnectionsHaveTheirPriority(t *testing.T) {
	s := dcSim(t, 1, 2, 0)
	n := s.nodes[0]
	for i, prio := range []uint8{5, 1} {
		w := n.to(s.nodes[1+i], SendWR{Op: WRWrite, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 100}}, VA: remoteVA,
			RKey: keyRemote})
		w.To.Prio = prio
		n.post(w)
	}
	s.run(time.Second)
	if c := n.port.Counters.TxPrio; c[5].Packets != 1 || c[1].Packets != 1 {
		t.Errorf("packets by priority: %+v", c)
	}
}

// A link takes no more memory than its target is charged for.
func TestSizeOfALink(t *testing.T) {
	if n := unsafe.Sizeof(QP{}) + 200; n > 1536 { // and its places in a map and in lists
		t.Errorf("%d bytes", n)
	}
}

// Packets of a connection that has ended change nothing.
func TestLatePacketsOfAnOldConnection(t *testing.T) {
	s := dcSim(t, 1, 2, 0)
	n, a, b := s.nodes[0], s.nodes[1], s.nodes[2]
	add := func(to *node) SendWR {
		return n.to(to, SendWR{Op: WRFetchAdd, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 8}}, VA: remoteVA,
			RKey: keyRemote, Atomic: AtomicOp{Add: true, Operand: 1}})
	}
	var late []byte
	carry := s.carry
	s.carry = func(from *node, now time.Duration, frame []byte) {
		if late == nil && from == n {
			late = bytes.Clone(frame)
		}
		carry(from, now, frame)
	}
	n.post(add(a), add(b), add(a))
	s.run(time.Second)
	for range 3 {
		a.port.Receive(s.now, late)
	}
	s.run(2 * time.Second)
	if got := binary.LittleEndian.Uint64(a.mem[keyRemote].b); got != 2 || len(n.done) != 3 {
		t.Errorf("%d additions, %v", got, n.statuses())
	}
}
