package connectx

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rackless/rackless/roce"
)

// fill writes numbers that depend on seed.
func fill(b []byte, seed uint64) {
	r := rand.NewPCG(seed, 1)
	for i := range b {
		b[i] = byte(r.Uint64())
	}
}

// verbs runs each operation between two guests, checks what it does, and returns the counters of both ports.
func verbs(t *testing.T, direct bool, nic NIC, cut func([]byte) bool) [2][2]tally {
	s, g := newLab(t, 2, nic, cut)
	s.SetDirect(direct)
	qa, qb := pair(g[0], g[1], serviceRC, map[bits]uint64{qpcRetryCount: 7})
	const n = 20000
	a, b := g[0].alloc(n), g[1].alloc(n)
	ka, kb := g[0].key(a, n, g[0].pd, allRights...), g[1].key(b, n, g[1].pd, allRights...)
	ma, mb := g[0].mem[a:a+n], g[1].mem[b:b+n]
	done := func(q *testQP, opcode byte, size uint32) {
		t.Helper()
		e := q.cq.wait()
		if e[63]>>4 != opcode || size != 0 && be.Uint32(e[44:]) != size || be.Uint32(e[32:]) != 0x1234 {
			t.Fatalf("completion %x, want opcode %d of %d bytes", e, opcode, size)
		}
	}
	same := func(what string) {
		t.Helper()
		if !bytes.Equal(ma, mb) {
			t.Fatalf("%s: the memories differ", what)
		}
	}
	fill(ma, 1)
	qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(b, kb), dataSeg(a, ka, n)}})
	done(qa, cqeRequest, 0)
	same("write")

	fill(ma, 2)
	qb.recv(kb, b, n)
	qa.send(testWQE{op: wqeSendImm, imm: 0xabcd, segs: [][]byte{dataSeg(a, ka, 5000), dataSeg(a+5000, ka, n-5000)}})
	done(qa, cqeRequest, 0)
	done(qb, cqeSendImm, n)
	same("send")

	fill(mb, 3)
	qa.send(testWQE{op: wqeRead, segs: [][]byte{remoteSeg(b, kb), dataSeg(a, ka, n)}})
	done(qa, cqeRequest, n)
	same("read")

	qb.recv(kb, b, n)
	fill(ma, 4)
	qa.send(testWQE{op: wqeWriteImm, imm: 5, segs: [][]byte{remoteSeg(b, kb), dataSeg(a, ka, n)}})
	done(qa, cqeRequest, 0)
	done(qb, cqeWriteImm, n)
	same("write with immediate")

	le.PutUint64(mb, 40)
	qa.send(testWQE{op: wqeFetchAdd, segs: [][]byte{remoteSeg(b, kb), atomicSeg(2, 0), dataSeg(a, ka, 8)}})
	done(qa, cqeRequest, 8)
	if le.Uint64(mb) != 42 || le.Uint64(ma) != 40 {
		t.Fatalf("fetch and add: %d there, %d here", le.Uint64(mb), le.Uint64(ma))
	}
	qa.send(testWQE{op: wqeCmpSwap, segs: [][]byte{remoteSeg(b, kb), atomicSeg(7, 42), dataSeg(a, ka, 8)}})
	done(qa, cqeRequest, 8)
	if le.Uint64(mb) != 7 || le.Uint64(ma) != 42 {
		t.Fatalf("compare and swap: %d there, %d here", le.Uint64(mb), le.Uint64(ma))
	}
	// Data in line, and many requests with one doorbell.
	inline := append(be.AppendUint32(nil, 1<<31|8), "rackless\x00\x00\x00\x00"...)
	qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(b, kb), inline}},
		testWQE{op: wqeNop}, testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(b+8, kb), inline}})
	for range 3 {
		done(qa, cqeRequest, 0)
	}
	if string(mb[:16]) != "racklessrackless" {
		t.Fatalf("in line: %q", mb[:16])
	}
	var out [2][2]tally
	for i, g := range g {
		g.p.lock()
		out[i][0], out[i][1] = g.p.rdma()
		g.p.unlock()
	}
	return out
}

func TestVerbsBetweenTwoAdapters(t *testing.T) {
	for name, nic := range map[string]NIC{"unpaced": {}, "at 25 Gb/s": {RateBits: 25e9, Latency: time.Microsecond}} {
		t.Run(name, func(t *testing.T) {
			direct, wire := verbs(t, true, nic, nil), verbs(t, false, nic, nil)
			// What the driver counts is the same, apart from acknowledgements, which the wire may join.
			for i := range direct {
				d, w := direct[i][1-i], wire[i][1-i]
				if d != w {
					t.Errorf("port %d: %+v copied, %+v on the wire", i, d, w)
				}
			}
		})
	}
}

func TestVerbsOverALossyWire(t *testing.T) {
	n := 0
	verbs(t, false, NIC{}, func([]byte) bool { n++; return n%11 == 0 })
}

// Whatever is wrong with a request, both paths end it with the same status, and both QPs are left in the same states.
func TestErrors(t *testing.T) {
	const size = 4096
	for _, c := range []struct {
		name   string
		status roce.Status
		wqe    func(a, b *guest, at, to uint64) testWQE
		peer   roce.State // of the peer's QP afterwards
		change map[bits]uint64
	}{
		{"a remote key that does not exist", roce.RemoteDenied, func(a, b *guest, at, to uint64) testWQE {
			return testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, 0x777700),
				dataSeg(at, a.key(at, size, a.pd, allRights...), 8)}}
		}, roce.Failed, nil},
		{"a remote key of another protection domain", roce.RemoteDenied, func(a, b *guest, at, to uint64) testWQE {
			other := b.create(opAllocPD, 16, nil)
			return testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, b.key(to, size, other, allRights...)),
				dataSeg(at, a.key(at, size, a.pd, allRights...), 8)}}
		}, roce.Failed, nil},
		{"a remote key without the right", roce.RemoteDenied, func(a, b *guest, at, to uint64) testWQE {
			return testWQE{op: wqeRead, segs: [][]byte{remoteSeg(to, b.key(to, size, b.pd, mkcLw, mkcRw)),
				dataSeg(at, a.key(at, size, a.pd, allRights...), 8)}}
		}, roce.Failed, nil},
		{"a range that leaves the region", roce.RemoteDenied, func(a, b *guest, at, to uint64) testWQE {
			return testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to+size-4, b.key(to, size, b.pd, allRights...)),
				dataSeg(at, a.key(at, size, a.pd, allRights...), 8)}}
		}, roce.Failed, nil},
		{"an address that wraps", roce.RemoteDenied, func(a, b *guest, at, to uint64) testWQE {
			return testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(^uint64(0)-3, b.key(to, size, b.pd, allRights...)),
				dataSeg(at, a.key(at, size, a.pd, allRights...), 8)}}
		}, roce.Failed, nil},
		{"a QP that does not grant writes", roce.RemoteDenied, func(a, b *guest, at, to uint64) testWQE {
			return testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, b.key(to, size, b.pd, allRights...)),
				dataSeg(at, a.key(at, size, a.pd, allRights...), 8)}}
		}, roce.Failed, map[bits]uint64{qpcRwe: 0}},
		{"a local key of another protection domain", roce.LocalProtection, func(a, b *guest, at, to uint64) testWQE {
			other := a.create(opAllocPD, 16, nil)
			return testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, b.key(to, size, b.pd, allRights...)),
				dataSeg(at, a.key(at, size, other, allRights...), 8)}}
		}, roce.ReadyToSend, nil},
		{"an opcode that does not exist", roce.LocalQPOp, func(a, b *guest, at, to uint64) testWQE {
			return testWQE{op: 0x3f}
		}, roce.ReadyToSend, nil},
		{"a receive that was never posted", roce.RNRExceeded, func(a, b *guest, at, to uint64) testWQE {
			return testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, a.key(at, size, a.pd, allRights...), 8)}}
		}, roce.ReadyToSend, nil},
		{"a peer that does not exist", roce.RetryExceeded, func(a, b *guest, at, to uint64) testWQE {
			return testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, a.key(at, size, a.pd, allRights...), 8)}}
		}, roce.ReadyToSend, map[bits]uint64{qpcRemoteQpn: 0xffff}},
	} {
		for _, direct := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				s, g := newLab(t, 2, NIC{}, nil)
				s.SetDirect(direct)
				qa, qb := pair(g[0], g[1], serviceRC, c.change)
				at, to := g[0].alloc(size), g[1].alloc(size)
				qa.recv(g[0].key(at, size, g[0].pd, allRights...), at, 64)
				w := c.wqe(g[0], g[1], at, to)
				qa.send(w, w)
				e := qa.cq.wait()
				if got := roce.Status(e[55]); e[63]>>4 != cqeReqError || got != c.status {
					t.Fatalf("completion %x, want an error of status %#x", e, c.status)
				}
				// The second request and the receive are flushed.
				for range 2 {
					if e := qa.cq.wait(); roce.Status(e[55]) != roce.Flushed {
						t.Fatalf("completion %x, want flushed", e)
					}
				}
				if st := qa.state(); st != roce.Failed {
					t.Errorf("the sender's QP is in state %d", st)
				}
				if st := qb.state(); st != c.peer {
					t.Errorf("the peer's QP is in state %d, want %d", st, c.peer)
				}
				// A QP that was reset can be used again.
				g[0].must(op2Rst, qa.num, 16, nil)
				if st := qa.state(); st != roce.Reset {
					t.Errorf("state %d after a reset", st)
				}
			})
		}
	}
}

func TestReceiveTooShort(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{}, nil)
		s.SetDirect(direct)
		qa, qb := pair(g[0], g[1], serviceRC, nil)
		at, to := g[0].alloc(4096), g[1].alloc(4096)
		qb.recv(g[1].key(to, 4096, g[1].pd, allRights...), to, 8)
		qa.send(testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, g[0].key(at, 4096, g[0].pd, allRights...), 16)}})
		if e := qa.cq.wait(); roce.Status(e[55]) != roce.RemoteInvalid {
			t.Errorf("the sender's completion is %x", e)
		}
		if e := qb.cq.wait(); roce.Status(e[55]) != roce.LocalLength {
			t.Errorf("the receiver's completion is %x", e)
		}
	}
}

func TestDatagram(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	qa, qb := pair(g[0], g[1], serviceUD, nil)
	at, to := g[0].alloc(4096), g[1].alloc(4096)
	ka, kb := g[0].key(at, 4096, g[0].pd, allRights...), g[1].key(to, 4096, g[1].pd, allRights...)
	copy(g[0].mem[at:], "hello")
	qb.recv(kb, to, 256)
	av := make([]byte, avSize)
	be.PutUint32(av, 0x77)
	be.PutUint32(av[8:], 1<<31|qb.num)
	m, gid := mac(1), gidOf(1)
	copy(av[20:], m[:])
	av[27] = 64
	be.PutUint32(av[28:], 1<<30|3<<20)
	copy(av[32:], gid[:])
	qa.send(testWQE{op: wqeSend, segs: [][]byte{av[:16], av[16:32], av[32:], dataSeg(at, ka, 5)}})
	if e := qa.cq.wait(); e[63]>>4 != cqeRequest {
		t.Fatalf("completion %x", e)
	}
	e := qb.cq.wait()
	if e[63]>>4 != cqeSend || be.Uint32(e[44:]) != 45 || be.Uint32(e[24:]) != qa.num|1<<28|2<<24 {
		t.Errorf("completion %x", e)
	}
	if got := string(g[1].mem[to+40 : to+45]); got != "hello" || g[1].mem[to+20] != 0x45 {
		t.Errorf("received %q after the header %x", got, g[1].mem[to:to+40])
	}
}

// The wire carries no more than its rate, copied or not.
func TestPacing(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{RateBits: 1e9}, nil)
		s.SetDirect(direct)
		qa, _ := pair(g[0], g[1], serviceRC, nil)
		const n = 1 << 20
		at, to := g[0].alloc(n), g[1].alloc(n)
		ka, kb := g[0].key(at, n, g[0].pd, allRights...), g[1].key(to, n, g[1].pd, allRights...)
		start := time.Now()
		w := testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, kb), dataSeg(at, ka, n)}}
		qa.send(w, w, w)
		for range 3 {
			if e := qa.cq.wait(); e[63]>>4 != cqeRequest {
				t.Fatalf("completion %x", e)
			}
		}
		least := time.Duration(3*n*8) * time.Nanosecond
		if d := time.Since(start); d < least-catchUp || d > 10*least {
			t.Errorf("direct %v: 3 MiB at 1 Gb/s took %v, %v at least", direct, d, least)
		}
	}
}

// catchUp is what a late port may make up for.
const catchUp = maxLag + time.Millisecond

func TestLinkAndFaults(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	qa, _ := pair(g[0], g[1], serviceRC, nil)
	at := g[0].alloc(4096)
	state := func() byte { return g[0].must(opQueryVPort, 0, 16, nil)[0xf] & 1 }
	if state() != 1 {
		t.Error("the link is down at the start")
	}
	g[0].p.SetLink(false)
	if state() != 0 {
		t.Error("the link is up without a cable")
	}
	qa.send(testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, g[0].key(at, 4096, g[0].pd, allRights...), 16)}})
	if e := qa.cq.wait(); roce.Status(e[55]) != roce.RetryExceeded {
		t.Errorf("a send without a cable ends as %x", e)
	}
	g[0].p.SetLink(true)
	if state() != 1 {
		t.Error("the link stays down")
	}
	g[0].p.SetFault(HungCommands)
	if st, _ := g[0].command(make([]byte, 16), 16); st != 0xff {
		t.Errorf("a hung adapter answers %#x", st)
	}
	b := make([]byte, 8)
	g[0].p.SetFault(FatalError)
	if g[0].f.Read(0, segSeverity, b); b[0] != 0x80 || b[5] != fatalSyndrome {
		t.Errorf("health buffer %x", b)
	}
	g[0].p.SetFault(OffTheBus)
	if g[0].f.Read(0, 0, b); b[0] != 0xff {
		t.Errorf("read %x off the bus", b)
	}
	g[0].p.SetFault(Healthy)
	// A function level reset forgets everything.
	g[0].f.Write(7, cfgDevCtl, []byte{0, 0x80})
	g[0].p.lock()
	defer g[0].p.unlock()
	if len(g[0].p.Queues) != 0 || g[0].p.CmdQ != 0 {
		t.Error("a reset has left something")
	}
}

func TestSaveAndRestore(t *testing.T) {
	s, g := newLab(t, 2, NIC{}, nil)
	s.SetDirect(true)
	qa, qb := pair(g[0], g[1], serviceRC, nil)
	at, to := g[0].alloc(4096), g[1].alloc(4096)
	ka, kb := g[0].key(at, 4096, g[0].pd, allRights...), g[1].key(to, 4096, g[1].pd, allRights...)
	for _, g := range g {
		state, err := g.p.Save()
		if err != nil {
			t.Fatal(err)
		}
		g.p.mu.Lock()
		g.p.tables = newTables()
		g.p.mu.Unlock()
		if err := g.p.Restore(state); err != nil {
			t.Fatal(err)
		}
		g.f.Reset() // as QEMU does when it starts
		if err := g.p.Restore(state[:len(state)/2]); err == nil {
			t.Error("half a state was taken")
		}
	}
	for _, direct := range []bool{true, false} {
		s.SetDirect(direct)
		qb.recv(kb, to, 4096)
		qa.send(testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, ka, 100)}})
		if e := qa.cq.wait(); e[63]>>4 != cqeRequest {
			t.Fatalf("completion %x", e)
		}
		if e := qb.cq.wait(); e[63]>>4 != cqeSend {
			t.Fatalf("completion %x", e)
		}
	}
}
