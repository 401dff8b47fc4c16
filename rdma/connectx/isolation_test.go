package connectx

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// noMemory maps addresses at which every access fails, as if QEMU refused it.
func (g *guest) noMemory() uint64 {
	g.t.Helper()
	const at, size = 1 << 32, 1 << 20
	if err := g.p.mem.Map(-1, 0, at, size, true); err != nil {
		g.t.Fatal(err)
	}
	return at
}

func (g *guest) anyKey(addr, n uint64) uint32 { return g.key(addr, n, g.pd, allRights...) }

func add(remote, local []byte) testWQE {
	be.PutUint32(local, 8)
	return testWQE{op: wqeFetchAdd, segs: [][]byte{remote, atomicSeg(1, 0), local}}
}

// A failed access is an error on both paths, never a success.
func TestAFailedAccessIsAnErrorCompletion(t *testing.T) {
	const n = 3000
	for _, direct := range []bool{true, false} {
		for _, c := range []struct {
			name            string
			sender          bool
			w               func(remote, local []byte) testWQE
			recv            bool
			sent, recvFails roce.Status
		}{
			{name: "send from it", sender: true, recv: true, sent: roce.LocalProtection,
				w: func(_, local []byte) testWQE { return testWQE{op: wqeSend, segs: [][]byte{local}} }},
			{name: "write from it", sender: true, sent: roce.LocalProtection,
				w: func(remote, local []byte) testWQE { return testWQE{op: wqeWrite, segs: [][]byte{remote, local}} }},
			{name: "read into it", sender: true, sent: roce.LocalProtection,
				w: func(remote, local []byte) testWQE { return testWQE{op: wqeRead, segs: [][]byte{remote, local}} }},
			{name: "receive into it", recv: true, sent: roce.RemoteOp, recvFails: roce.LocalProtection,
				w: func(_, local []byte) testWQE { return testWQE{op: wqeSend, segs: [][]byte{local}} }},
			{name: "write to it", sent: roce.RemoteOp,
				w: func(remote, local []byte) testWQE { return testWQE{op: wqeWrite, segs: [][]byte{remote, local}} }},
			{name: "read from it", sent: roce.RemoteOp,
				w: func(remote, local []byte) testWQE { return testWQE{op: wqeRead, segs: [][]byte{remote, local}} }},
			{name: "write with immediate data to it", recv: true, sent: roce.RemoteOp,
				w: func(remote, local []byte) testWQE {
					return testWQE{op: wqeWriteImm, segs: [][]byte{remote, local}}
				}},
			{name: "add to it", sent: roce.RemoteOp, w: add},
			{name: "the old value of an addition into it", sender: true, sent: roce.LocalProtection, w: add},
		} {
			t.Run(fmt.Sprintf("%s, direct %v", c.name, direct), func(t *testing.T) {
				s, g := newLab(t, 2, NIC{}, nil)
				s.SetDirect(direct)
				qa, qb := pair(g[0], g[1], serviceRC, nil)
				at := [2]uint64{g[0].alloc(n), g[1].alloc(n)}
				if c.sender {
					at[0] = g[0].noMemory()
				} else {
					at[1] = g[1].noMemory()
				}
				ka, kb := g[0].anyKey(at[0], n), g[1].anyKey(at[1], n)
				if c.recv {
					qb.recv(kb, at[1], n)
				}
				qa.send(c.w(remoteSeg(at[1], kb), dataSeg(at[0], ka, n)))
				if st := statusOf(qa.cq.wait()); st != c.sent {
					t.Errorf("the sender's completion has status %#x, want %#x", st, c.sent)
				}
				if c.recvFails != 0 {
					if st := statusOf(qb.cq.wait()); st != c.recvFails {
						t.Errorf("the receiver's completion has status %#x, want %#x", st, c.recvFails)
					}
				}
			})
		}
	}
}

// Without an event the driver would wait for the entry forever.
func TestACompletionThatCannotBeWrittenFailsItsQueue(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	a := g[0]
	none := a.noMemory()
	cqn := a.create(opCreateCQ, 0x110+8, func(in []byte) {
		x := in[0x10:]
		putAll(x, map[bits]uint64{cqcLogCqSize: logCQ, cqcCEqnOrApuElement: uint64(a.eq), cqcDbrAddr: a.alloc(8)})
		a.pages(in[0x110:], none, 1)
	})
	a.p.lock()
	defer a.p.unlock()
	c, e := a.p.CQs[cqn], a.p.EQs[a.eq]
	was := e.PI
	a.p.complete(c, &[64]byte{}, false)
	if !c.Failed || e.PI != was+1 {
		t.Fatalf("the queue failed: %v, with %d events", c.Failed, e.PI-was)
	}
	entry := a.mem[a.eqRing+64*uint64(was):][:64]
	if entry[1] != eventCQError || be.Uint32(entry[32:]) != cqn || entry[32+7] != cqAccess {
		t.Errorf("event %x", entry)
	}
}

// UCX sends an inline header and the rest from memory.
func TestDataInLineBesideMemory(t *testing.T) {
	inline := func(s string) []byte {
		b := append(be.AppendUint32(nil, 1<<31|uint32(len(s))), s...)
		return append(b, make([]byte, -len(b)&15)...)
	}
	for _, direct := range []bool{true, false} {
		for _, service := range []uint8{serviceRC, serviceUC} {
			s, g := newLab(t, 2, NIC{}, nil)
			s.SetDirect(direct)
			qa, qb := pair(g[0], g[1], service, nil)
			const n = 2000 // of each piece: more than a packet
			a, b := g[0].alloc(2*n), g[1].alloc(3*n)
			ka, kb := g[0].anyKey(a, 2*n), g[1].anyKey(b, 3*n)
			fill(g[0].mem[a:a+2*n], 5)
			first, last := g[0].mem[a:a+n], g[0].mem[a+n:a+2*n]
			for name, c := range map[string]struct {
				segs [][]byte
				want [][]byte
			}{
				"in line first": {[][]byte{inline("a header of"), dataSeg(a, ka, n), dataSeg(a+n, ka, n)},
					[][]byte{[]byte("a header of"), first, last}},
				"in line last": {[][]byte{dataSeg(a, ka, n), inline("and a trailer")},
					[][]byte{first, []byte("and a trailer")}},
				"in turns": {[][]byte{inline("one"), dataSeg(a, ka, n), inline("two, longer than a unit"),
					inline("three"), dataSeg(a+n, ka, n)}, [][]byte{[]byte("one"), first,
					[]byte("two, longer than a unit"), []byte("three"), last}},
			} {
				want := bytes.Join(c.want, nil)
				clear(g[1].mem[b : b+3*n])
				w := testWQE{op: wqeWrite, segs: append([][]byte{remoteSeg(b, kb)}, c.segs...)}
				qa.send(w)
				if e := qa.cq.wait(); statusOf(e) != roce.OK {
					t.Fatalf("%s, direct %v, write: %x", name, direct, e)
				}
				if !bytes.Equal(g[1].mem[b:b+uint64(len(want))], want) {
					t.Errorf("%s, direct %v, service %d: a write moved other bytes", name, direct, service)
				}
				clear(g[1].mem[b : b+3*n])
				qb.recv(kb, b, 3*n)
				qa.send(testWQE{op: wqeSend, segs: c.segs})
				if e := qa.cq.wait(); statusOf(e) != roce.OK {
					t.Fatalf("%s, direct %v, send: %x", name, direct, e)
				}
				if e := qb.cq.wait(); be.Uint32(e[44:]) != uint32(len(want)) {
					t.Errorf("%s, direct %v: received %d bytes, want %d", name, direct, be.Uint32(e[44:]), len(want))
				}
				if !bytes.Equal(g[1].mem[b:b+uint64(len(want))], want) {
					t.Errorf("%s, direct %v, service %d: a send moved other bytes", name, direct, service)
				}
			}
			// A READ cannot store data inline.
			if service == serviceRC {
				qa.send(testWQE{op: wqeRead, segs: [][]byte{remoteSeg(b, kb), inline("no room here")}})
				if st := statusOf(qa.cq.wait()); st != roce.LocalQPOp {
					t.Errorf("direct %v: a READ into data in line ends with %#x", direct, st)
				}
			}
		}
	}
}

// A receive WQE without room for a data segment, after the link in a linked queue, would be read beyond its end, on the
// direct path by the sender's thread.
func TestAReceiveQueueHasRoomForItsSegments(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	for _, c := range []struct {
		op     uint16
		linked bool
		least  uint64
	}{{0x90c, true, 5}, {0x90c, false, 5}, {opCreateRQ, false, 4}, {opCreateRQ, true, 5}} {
		for step := range uint64(7) {
			in := make([]byte, 0x20+0x30+0xc0+8)
			be.PutUint16(in, c.op)
			w := in[0x20+0x30:]
			ring, dbr := a.alloc(pageSize), a.alloc(8)
			putAll(w, map[bits]uint64{wqPd: uint64(a.pd), wqDbrAddr: dbr, wqLogWqSz: 4, wqLogWqStride: step})
			if !c.linked {
				wqWqType.put(w, 1)
			}
			a.pages(w[0xc0:], ring, 1)
			st, _ := a.command(in, 16)
			if (st == ok) != (step >= c.least) {
				t.Errorf("command %#x, linked %v, log_wq_stride %d: status %#x", c.op, c.linked, step, st)
			}
		}
	}
	t.Run("in a saved state", func(t *testing.T) {
		t.Parallel()
		tab := newTables()
		tab.Queues[5] = &queue{Kind: queueRMP, Ctx: make([]byte, wqcSize), StepLog: 4, Linked: true, NoSend: true}
		if tab.sound() {
			t.Error("a linked queue whose entries have 16 bytes was taken for sound")
		}
	})
}

func TestAPanicOverThePeersDataFailsThePeer(t *testing.T) {
	s, g := newLab(t, 3, NIC{}, nil)
	s.strict = false
	qa, qb := pair(g[0], g[1], serviceRC, nil)
	at := g[0].alloc(4096)
	ka := g[0].anyKey(at, 4096)
	qb.recv(g[1].anyKey(g[1].alloc(4096), 4096), 0, 64)
	g[1].p.lock()
	q := g[1].p.Queues[qb.num]
	q.StepLog, q.Linked = 0, true // as if unchecked
	g[1].p.unlock()
	qa.send(testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, ka, 64)}})
	if st := statusOf(qa.cq.wait()); st != roce.RetryExceeded {
		t.Errorf("the request ends with %#x", st)
	}
	if c := g[0].p.Status().Crash; c != "" {
		t.Errorf("the sender's adapter has failed: %s", c)
	}
	if g[1].p.Status().Crash == "" {
		t.Error("the peer's adapter has not failed")
	}
}

func (g *guest) claim(gid [16]byte, m [6]byte) status {
	in := make([]byte, 0x30)
	be.PutUint16(in, opSetAddress)
	be.PutUint16(in[8:], 3)
	x := in[0x10:]
	copy(x, gid[:])
	putAll(x, map[bits]uint64{gidSourceMac4732: uint64(be.Uint16(m[:])), gidSourceMac310: uint64(be.Uint32(m[2:])),
		gidRoceVersion: 2})
	st, _ := g.command(in, 16)
	return st
}

func TestAnAddressBelongsToItsFirstPort(t *testing.T) {
	s, g := newLab(t, 3, NIC{}, nil)
	path := &roce.Path{Dst: gidOf(1), DstMAC: mac(1)}
	if st := g[1].claim(gidOf(1), mac(1)); st != ok {
		t.Fatalf("the first claim: %#x", st)
	}
	if st := g[2].claim(gidOf(1), mac(1)); st == ok {
		t.Error("a second claim was accepted")
	}
	if n := g[2].p.Status().Refused; n != 1 {
		t.Errorf("%d claims were refused, want 1", n)
	}
	if st := g[2].claim(gidOf(1), mac(2)); st != ok {
		t.Errorf("the same GID with another MAC, as link-local ones may be: %#x", st)
	}
	if s.lookup("", path) != g[1].p {
		t.Error("the address leads elsewhere now")
	}
	if st := g[1].claim(gidOf(1), mac(1)); st != ok {
		t.Errorf("the owner's second claim: %#x", st)
	}
	g[1].claim([16]byte{}, [6]byte{})
	if st := g[2].claim(gidOf(1), mac(1)); st != ok || s.lookup("", path) != g[2].p {
		t.Errorf("after the owner gave it up: %#x", st)
	}
	g[0].p.nic.Network = "other"
	if st := g[0].claim(gidOf(1), mac(1)); st != ok {
		t.Errorf("the address on another network: %#x", st)
	}
}

// A guest with another's addresses and queue number gets nothing over the direct path that the wire would not give.
func TestAGuestCannotPoseAsAnother(t *testing.T) {
	for _, c := range []struct {
		name  string
		claim func(t *testing.T, g []*guest)
		psn   uint64
	}{
		{"with its GID and MAC", func(t *testing.T, g []*guest) {
			if st := g[2].claim(gidOf(1), mac(1)); st == ok {
				t.Error("it got the address")
			}
			g[2].p.lock()
			g[2].p.GIDs[3] = gidEntry{GID: gidOf(1), MAC: mac(1), Version: 2} // possible by a restored state
			g[2].p.unlock()
		}, 7},
		{"with its GID", func(t *testing.T, g []*guest) {
			if st := g[2].claim(gidOf(1), mac(2)); st != ok {
				t.Errorf("claim: %#x", st)
			}
		}, 7},
		{"after it has gone", func(t *testing.T, g []*guest) {
			g[1].claim([16]byte{}, [6]byte{})
			if st := g[2].claim(gidOf(1), mac(1)); st != ok {
				t.Errorf("claim: %#x", st)
			}
		}, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, g := newLab(t, 3, NIC{}, func([]byte) bool { return true }) // the wire loses every frame
			qa, qb := g[0].newQP(serviceRC), g[1].newQP(serviceRC)
			psn := map[bits]uint64{qpcNextRcvPsn: 7, qpcNextSendPsn: 7}
			qa.connect(0, 1, qb.num, psn)
			qb.connect(1, 0, qa.num, psn)
			g[2].p.lock()
			g[2].p.Next[kindQueue] = qb.num
			g[2].p.unlock()
			qc := g[2].newQP(serviceRC)
			if qc.num != qb.num {
				t.Fatalf("queue %#x, want %#x", qc.num, qb.num)
			}
			c.claim(t, g)
			qc.connectAs(0, qa.num, c.psn)

			at, got := g[0].alloc(4096), g[2].alloc(4096)
			copy(g[0].mem[at:], "a secret")
			ka, kc := g[0].anyKey(at, 4096), g[2].anyKey(got, 4096)
			qc.recv(kc, got, 4096)
			if c.name != "after it has gone" { // the address leads to the third guest, and the PSNs protect
				qa.send(testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, ka, 64)}})
			}
			qc.send(testWQE{op: wqeRead, segs: [][]byte{remoteSeg(at, ka), dataSeg(got+2048, kc, 64)}})
			if st := statusOf(qc.cq.wait()); st == roce.OK {
				t.Error("it read the first guest's memory")
			}
			if bytes.Contains(g[2].mem[got:got+4096], []byte("secret")) {
				t.Error("it has the first guest's data")
			}
		})
	}
}

func (q *testQP) connectAs(peer int, num uint32, psn uint64) {
	for _, op := range []uint16{opRst2Init, opInit2RTR, opRTR2RTS} {
		q.g.must(op, q.num, 0x110, func(in []byte) {
			x, m, to := in[0x18:], mac(peer), gidOf(peer)
			putAll(x, map[bits]uint64{qpcPd: uint64(q.g.pd), qpcRemoteQpn: uint64(num), qpcMtu: 3, qpcRre: 1, qpcRwe: 1,
				qpcRetryCount: 1, qpcRnrRetry: 1, qpcMinRnrNak: 1, qpcLogSraMax: 2, qpcLogRraMax: 2,
				qpcNextRcvPsn: psn, qpcNextSendPsn: psn})
			a := x[qpcPath:]
			putAll(a, map[bits]uint64{adsSrcAddrIndex: 3, adsAckTimeout: 8, adsRmac4732: uint64(be.Uint16(m[:])),
				adsRmac310: uint64(be.Uint32(m[2:])), adsHopLimit: 64})
			copy(a[adsGID:], to[:])
		})
	}
}

// Adapters of one restored state must differ, too, so that a guest cannot guess another's numbers.
func TestNumbersCannotBeGuessed(t *testing.T) {
	s, g := newLab(t, 3, NIC{}, nil)
	state, err := g[0].p.Save()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range g[1:] {
		if err := to.p.Restore(state); err != nil {
			t.Fatal(err)
		}
	}
	_ = s
	seen := map[uint32]bool{}
	for _, g := range g {
		g.p.lock()
		q := g.p.number(kindQueue, maxQueueNumber, func(uint32) bool { return false })
		k := g.p.number(kindKey, maxKeyNumber, func(uint32) bool { return false })
		g.p.unlock()
		for _, n := range []uint32{q, k} {
			if seen[n] || n < firstNumber[kindQueue] {
				t.Errorf("number %#x again, or a reserved one", n)
			}
			seen[n] = true
		}
	}
}

// An unaligned guest address behind a list of pieces could not be a single access.
func TestAnUnalignedAtomicIsRefusedOnBothPaths(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{}, nil)
		s.SetDirect(direct)
		a := g[1]
		kq := a.newQP(serviceRC)
		kq.connect(1, 0, 0x300, nil)
		to := a.alloc(8192)
		base := a.anyKey(to, 8192)
		off := to + 60 // across a cache line
		klm := a.freeKey(modeKLM)
		kq.send(umrWQE(klm, umrLen|umrStart|umrAccess|umrFree, []uint64{4096<<32 | uint64(base), off},
			map[bits]uint64{mkcLr: 1, mkcLw: 1, mkcRr: 1, mkcRw: 1, mkcA: 1, mkcLen: 4096}))
		if e := kq.cq.wait(); statusOf(e) != roce.OK {
			t.Fatalf("the key: %x", e)
		}
		v, q := g[0].newQP(serviceRC), a.newQP(serviceRC)
		v.connect(0, 1, q.num, nil)
		q.connect(1, 0, v.num, nil)
		at := g[0].alloc(4096)
		le.PutUint64(a.mem[off:], 40)
		v.send(testWQE{op: wqeFetchAdd, segs: [][]byte{remoteSeg(0, klm), atomicSeg(2, 0),
			dataSeg(at, g[0].anyKey(at, 4096), 8)}})
		if e := v.cq.wait(); statusOf(e) == roce.OK || le.Uint64(a.mem[off:]) != 40 {
			t.Errorf("direct %v: status %#x, the number is %d", direct, statusOf(e), le.Uint64(a.mem[off:]))
		}
	}
}

func TestAFrameThatCannotBeReadIsAnError(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	none := a.noMemory()
	key := a.anyKey(none, pageSize)
	q := &queue{PD: a.pd}
	a.p.lock()
	defer a.p.unlock()
	if _, st := a.p.gatherFrame(q, make([]byte, 18), dataSeg(none, key, 100)); st != roce.LocalProtection {
		t.Errorf("gathering a frame ends with %#x", st)
	}
	start := time.Now()
	if a.p.mem.Read(none, make([]byte, 8)) || time.Since(start) > time.Minute {
		t.Error("the memory can be read")
	}
}
