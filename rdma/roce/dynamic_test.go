package roce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
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
						n.post(n.to(to, SendWR{ID: ids, Op: WRWrite, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: uint32(size)}},
							VA: remoteVA + uint64(at), RKey: keyRemote}))
						copy(want[to][at:], n.mem[keyLocal].b[:size])
					case 1:
						n.post(n.to(to, SendWR{ID: ids, Op: WRRead, SG: []SGE{{Key: keyLocal, VA: 0x1000 + 32768,
							Len: uint32(size)}}, VA: remoteVA, RKey: keyRemote}))
					case 2:
						sent[k]++
						n.post(n.to(to, SendWR{ID: ids, Op: WRFetchAdd, SG: []SGE{{Key: keyLocal, VA: 0x1000 + 32768, Len: 8}},
							VA: remoteVA + 32768, RKey: keyRemote, Atomic: AtomicOp{Add: true, Operand: 1}}))
						binary.LittleEndian.PutUint64(want[to][32768:], sent[k])
					case 3:
						to.recvs = append(to.recvs, RecvWR{ID: ids, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 8192}}})
						n.post(n.to(to, SendWR{ID: ids, Op: WRSendImm, Imm: uint32(ids), SG: []SGE{{Key: keyLocal, VA: 0x1000,
							Len: uint32(size)}}}))
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

// Peers cannot take more links than a port has, and a link that is taken away begins anew.
func TestLinksAreBounded(t *testing.T) {
	s := dcSim(t, 1, 1, 0)
	n, to := s.nodes[0], s.nodes[1]
	write := SendWR{Op: WRWrite, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 100}}, VA: remoteVA, RKey: keyRemote}
	n.post(n.to(to, write))
	s.run(time.Millisecond)
	if to.port.links != 1 {
		t.Fatalf("%d links", to.port.links)
	}
	src, dst := testPath(n, to), to.qp.cfg.QPN
	for i := range uint32(2 * maxLinks) {
		p := Packet{SrcMAC: src.SrcMAC, DstMAC: src.DstMAC, Src: src.Src, Dst: src.Dst, HopLimit: 64, PKey: 0xffff, DstQP: dst,
			Opcode: serviceDC | opSendOnly, DC: DC{Key: testDCKey, From: 0x1000 + i, Number: 1}}
		b := p.appendHeaders(nil, 0)
		to.port.Receive(s.now, to.port.finish(b, 0, &p))
		to.port.Poll(s.now)
	}
	if to.port.links > maxLinks || len(to.qp.dc.links) != to.port.links {
		t.Errorf("%d links, %d counted", len(to.qp.dc.links), to.port.links)
	}
	n.post(n.to(to, write))
	s.run(2 * time.Second)
	if len(n.done) != 2 || n.done[1].Status != OK {
		t.Errorf("after its link was taken: %v", n.statuses())
	}
	to.port.Remove(to.qp)
	if to.port.links != 0 {
		t.Errorf("%d links of no target", to.port.links)
	}
}

// Packets of a connection that has ended change nothing.
func TestLatePacketsOfAnOldConnection(t *testing.T) {
	s := dcSim(t, 1, 2, 0)
	n, a, b := s.nodes[0], s.nodes[1], s.nodes[2]
	add := func(to *node) SendWR {
		return n.to(to, SendWR{Op: WRFetchAdd, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 8}}, VA: remoteVA, RKey: keyRemote,
			Atomic: AtomicOp{Add: true, Operand: 1}})
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
