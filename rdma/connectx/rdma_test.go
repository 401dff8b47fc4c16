package connectx

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

func fill(b []byte, seed uint64) {
	r := rand.NewPCG(seed, 1)
	for i := range b {
		b[i] = byte(r.Uint64())
	}
}

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
			// Equal except for acknowledgements, which the wire may combine.
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

// Both paths end wrong requests alike.
func TestErrors(t *testing.T) {
	const size = 4096
	for _, c := range []struct {
		name   string
		status roce.Status
		wqe    func(a, b *guest, at, to uint64) testWQE
		peer   roce.State
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
	for _, vlan := range []uint16{0, 7} {
		testDatagram(t, vlan)
	}
}

func testDatagram(t *testing.T, vlan uint16) {
	_, g := newLab(t, 2, NIC{}, nil)
	g[0].vlan, g[1].vlan = vlan, vlan
	qa, qb := pair(g[0], g[1], serviceUD, nil)
	at, to := g[0].alloc(4096), g[1].alloc(4096)
	ka, kb := g[0].key(at, 4096, g[0].pd, allRights...), g[1].key(to, 4096, g[1].pd, allRights...)
	copy(g[0].mem[at:], "hello")
	qb.recv(kb, to, 256)
	av := datagramSeg(qb.num, mac(1), gidOf(1))
	av[27] = 64
	qa.send(testWQE{op: wqeSend, segs: [][]byte{av, dataSeg(at, ka, 5)}})
	if e := qa.cq.wait(); e[63]>>4 != cqeRequest {
		t.Fatalf("completion %x", e)
	}
	e := qb.cq.wait()
	if e[63]>>4 != cqeSend || be.Uint32(e[44:]) != 45 || be.Uint32(e[24:]) != qa.num|1<<28|2<<24 ||
		be.Uint16(e[30:])&0xfff != vlan || e[29]&1 != 0 != (vlan != 0) {
		t.Errorf("completion %x", e)
	}
	if got := string(g[1].mem[to+40 : to+45]); got != "hello" || g[1].mem[to+20] != 0x45 {
		t.Errorf("received %q after the header %x", got, g[1].mem[to:to+40])
	}
}

func TestPacing(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{RateBits: 1e9}, nil)
		s.SetDirect(direct)
		qa, _ := pair(g[0], g[1], serviceRC, nil)
		const n = 1 << 20
		at, to := g[0].alloc(n), g[1].alloc(n)
		ka, kb := g[0].key(at, n, g[0].pd, allRights...), g[1].key(to, n, g[1].pd, allRights...)
		w := testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, kb), dataSeg(at, ka, n)}}
		least, fastest := time.Duration(3*n*8)*time.Nanosecond, time.Hour
		for try := 0; try < 50 && fastest > 10*least; try++ { // a busy machine needs several tries
			start := time.Now()
			qa.send(w, w, w)
			for range 3 {
				if e := qa.cq.wait(); e[63]>>4 != cqeRequest {
					t.Fatalf("completion %x", e)
				}
			}
			fastest = min(fastest, time.Since(start))
		}
		if fastest < least-catchUp || fastest > 10*least {
			t.Errorf("direct %v: 3 MiB at 1 Gb/s took %v, %v at least", direct, fastest, least)
		}
	}
}

// A message takes as long as the paths at both ends, and no longer than its port for memory of the guest.
func TestPathsToMemoryHaveRates(t *testing.T) {
	const n, slow, port = 1 << 20, 1e9, 20e9
	const far = guestMemory / 2 // a GPU's memory
	rate := func(addr uint64) int64 {
		if addr >= far {
			return slow
		}
		return 0
	}
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{RateBits: port, PathRate: rate}, nil)
		s.SetDirect(direct)
		qa, qb := pair(g[0], g[1], serviceRC, nil)
		type buffer struct {
			at  uint64
			key uint32
		}
		var near, vram [2]buffer
		for i, x := range g {
			at := x.alloc(n)
			near[i] = buffer{at, x.key(at, n, x.pd, allRights...)}
			vram[i] = buffer{far, x.key(far, n, x.pd, allRights...)}
		}
		for name, tt := range map[string]struct {
			op   byte
			a, b buffer
			slow bool
		}{
			"WRITE":            {wqeWrite, near[0], near[1], false},
			"WRITE from VRAM":  {wqeWrite, vram[0], near[1], true},
			"WRITE to VRAM":    {wqeWrite, near[0], vram[1], true},
			"READ from VRAM":   {wqeRead, near[0], vram[1], true},
			"READ to VRAM":     {wqeRead, vram[0], near[1], true},
			"SEND to VRAM":     {wqeSend, near[0], vram[1], true},
			"SEND from VRAM":   {wqeSend, vram[0], near[1], true},
			"READ of the host": {wqeRead, near[0], near[1], false},
		} {
			w := testWQE{op: tt.op, segs: [][]byte{dataSeg(tt.a.at, tt.a.key, n)}}
			if tt.op != wqeSend {
				w.segs = append([][]byte{remoteSeg(tt.b.at, tt.b.key)}, w.segs...)
			}
			least, fastest := time.Duration(3*n*8)*time.Nanosecond, time.Hour
			for try := 0; try < 50 && (fastest > 10*least || !tt.slow && fastest > least); try++ {
				if tt.op == wqeSend {
					for range 3 {
						qb.recv(tt.b.key, tt.b.at, n)
					}
				}
				start := time.Now()
				qa.send(w, w, w)
				for range 3 {
					if e := qa.cq.wait(); e[63]>>4 != cqeRequest {
						t.Fatalf("direct %v, %s: completion %x", direct, name, e)
					}
				}
				for i := 0; i < 3 && tt.op == wqeSend; i++ {
					qb.cq.wait()
				}
				fastest = min(fastest, time.Since(start))
			}
			if tt.op == wqeRead && tt.a == vram[0] && !direct {
				least -= least / 3 // the last answer is not delayed
			}
			if tt.slow && (fastest < least-catchUp || fastest > 10*least) || !tt.slow && fastest > least {
				t.Errorf("direct %v, %s: 3 MiB took %v, and %v at the rate of the path", direct, name, fastest, least)
			}
		}
	}
}

func TestRefusedMessageIsPacedOnce(t *testing.T) {
	_, g := newLab(t, 2, NIC{RateBits: 1e5}, nil)
	qa, _ := pair(g[0], g[1], serviceRC, map[bits]uint64{qpcRnrRetry: 7, qpcMinRnrNak: 0})
	at := g[0].alloc(4096)
	key := g[0].key(at, 1000, g[0].pd, allRights...)
	p := g[0].p
	start := p.s.now()
	qa.send(testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, key, 1000)}})
	for booked := false; !booked; time.Sleep(time.Millisecond) {
		p.lock()
		booked = p.net.Share(0) > start
		if due := p.Queues[qa.num].due; booked && due != 0 {
			t.Errorf("a message that will be refused is booked until %v", due)
		}
		p.unlock()
	}
}

// catchUp is the time that a late port may catch up.
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
	g[0].f.Write(7, cfgDevCtl, []byte{0, 0x80})
	g[0].p.lock()
	defer g[0].p.unlock()
	if len(g[0].p.Queues) != 0 || g[0].p.CmdQ != 0 {
		t.Error("a reset has left something")
	}
}

func TestPortsOfAnotherNetworkAreNotReachedDirectly(t *testing.T) {
	s, g := newLab(t, 2, NIC{}, nil)
	g[1].p.nic.Network = "other"
	pair(g[0], g[1], serviceRC, nil)
	to := &roce.Path{Dst: gidOf(1), DstMAC: mac(1)}
	for network, want := range map[string]*Port{"": nil, "other": g[1].p} {
		if got := s.lookup(network, to); got != want {
			t.Errorf("network %q: found %p, want %p", network, got, want)
		}
	}
}

func TestShape(t *testing.T) {
	if a := Shape(ConnectX4Lx); a != Shape(ConnectX4Lx) || a == Shape(ConnectX5) || len(a) != 16 {
		t.Errorf("shape %q, of a ConnectX-5 %q", a, Shape(ConnectX5))
	}
	if g := GUID([6]byte{1, 2, 3, 4, 5, 6}); g != [8]byte{1, 2, 3, 0, 3, 4, 5, 6} {
		t.Errorf("GUID %x", g)
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
		g.f.Reset() // as when QEMU starts
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

func statusOf(e []byte) roce.Status {
	if op := e[63] >> 4; op == cqeReqError || op == cqeResError {
		return roce.Status(e[55])
	}
	return roce.OK
}

func umrWQE(key uint32, mask uint64, list []uint64, set map[bits]uint64) testWQE {
	b := make([]byte, 48+64)
	b[0] = umrInline
	be.PutUint16(b[4:], uint16(len(list)+1)/2)
	be.PutUint64(b[8:], mask)
	putAll(b[48:], set)
	for _, v := range list {
		b = be.AppendUint64(b, v)
	}
	b = append(b, make([]byte, -len(b)&63)...)
	w := testWQE{op: wqeUMR, imm: key}
	for ; len(b) > 0; b = b[16:] {
		w.segs = append(w.segs, b[:16])
	}
	return w
}

func (g *guest) freeKey(mode uint64) uint32 {
	return g.create(opCreateKey, 0x110, func(in []byte) {
		putAll(in[0x10:], map[bits]uint64{mkcFree: 1, mkcUmrEn: 1, mkcAccessMode10: mode, mkcPd: uint64(g.pd),
			mkcQpn: anyQP, mkcTranslationsOctwordSize: 4})
	}) << 8
}

const umrAll = umrLen | umrPage | umrStart | umrRInval | umrKey | umrQPN | umrAccess | umrFree

func TestKeysThatWorkRequestsChange(t *testing.T) {
	const size = 2 * pageSize
	rw := map[bits]uint64{mkcLr: 1, mkcLw: 1, mkcRr: 1, mkcRw: 1, mkcLen: size, mkcStartAddr: 0x7000_0000,
		mkcLogPageSize: 12,
		mkcMkey70:      0x17, mkcEnRinval: 1}
	for _, c := range []struct {
		name   string
		mode   uint64
		kernel bool                   // the peer's QP is its kernel's
		qpn    func(q *testQP) uint32 // to which the key is bound
		made   bool                   // the request succeeds
		status roce.Status            // of a write with the key
	}{
		{"pages", modeMTT, true, nil, true, roce.OK},
		{"pages by a process", modeMTT, false, nil, false, 0},
		{"pieces", modeKLM, false, nil, true, roce.OK},
		{"a window of the queue", modeKLM, false, func(q *testQP) uint32 { return q.num }, true, roce.OK},
		{"a window of another queue", modeKLM, false, func(q *testQP) uint32 {
			return q.num + 1
		}, true, roce.RemoteDenied},
	} {
		for _, direct := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				s, g := newLab(t, 2, NIC{}, nil)
				s.SetDirect(direct)
				qa, qb := pair(g[0], g[1], serviceRC, nil)
				if c.kernel {
					g[1].p.lock()
					qpcFre.put(g[1].p.Queues[qb.num].Ctx, 1)
					g[1].p.unlock()
				}
				at, to := g[0].alloc(size), g[1].alloc(size)
				ka, kb := g[0].key(at, size, g[0].pd, allRights...), g[1].key(to, size, g[1].pd, mkcLr, mkcLw)
				list := []uint64{to + pageSize | 3, to | 3} // pages in reverse order
				if c.mode == modeKLM {
					list = []uint64{pageSize<<32 | uint64(kb), to + pageSize, pageSize<<32 | uint64(kb), to}
				}
				set := maps.Clone(rw)
				set[mkcQpn] = anyQP
				if c.qpn != nil {
					set[mkcQpn] = uint64(c.qpn(qb))
				}
				key := g[1].freeKey(c.mode)
				qb.send(umrWQE(key, umrAll, list, set))
				if e := qb.cq.wait(); (e[63]>>4 == cqeRequest) != c.made {
					t.Fatalf("the change completes as %x", e)
				}
				if !c.made {
					return
				}
				key |= 0x17
				fill(g[0].mem[at:at+size], 9)
				qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(0x7000_0000, key), dataSeg(at, ka, size)}})
				if e := qa.cq.wait(); statusOf(e) != c.status {
					t.Fatalf("the write completes as %x", e)
				}
				if c.status != roce.OK {
					return
				}
				if !bytes.Equal(g[0].mem[at:at+pageSize], g[1].mem[to+pageSize:to+2*pageSize]) ||
					!bytes.Equal(g[0].mem[at+pageSize:at+size], g[1].mem[to:to+pageSize]) {
					t.Error("the data is in the wrong place")
				}
				qb.recv(kb, to, 64)
				qa.send(testWQE{op: wqeSendInv, imm: key, segs: [][]byte{dataSeg(at, ka, 8)}})
				if e := qb.cq.wait(); e[63]>>4 != cqeSendInv {
					t.Errorf("the receive completes as %x", e)
				}
				qa.cq.wait()
				qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(0x7000_0000, key), dataSeg(at, ka, 8)}})
				if e := qa.cq.wait(); statusOf(e) != roce.RemoteDenied {
					t.Errorf("a write after that completes as %x", e)
				}
			})
		}
	}
}

func TestAPeerRevokesNoOtherKeys(t *testing.T) {
	for name, set := range map[string]map[bits]uint64{
		"a key of registered memory":          nil,
		"fast registration without the right": {mkcEnRinval: 0},
		"a window that is of another queue":   {mkcEnRinval: 1, mkcQpn: 0x4711},
		"fast registration of another domain": {mkcEnRinval: 1, mkcPd: 0x99},
	} {
		for _, direct := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				s, g := newLab(t, 2, NIC{}, nil)
				s.SetDirect(direct)
				qa, qb := pair(g[0], g[1], serviceRC, nil)
				at, to := g[0].alloc(pageSize), g[1].alloc(pageSize)
				ka, kb := g[0].key(at, pageSize, g[0].pd, allRights...), g[1].key(to, pageSize, g[1].pd, allRights...)
				key := kb
				if set != nil {
					key = g[1].freeKey(modeKLM)
					k := g[1].p.Keys[key>>8]
					x := make([]byte, 64)
					putAll(x, map[bits]uint64{mkcQpn: anyQP, mkcPd: uint64(g[1].pd)})
					putAll(x, set)
					g[1].p.umrContext(k, x, umrAll|umrPD)
					k.Key = key
				}
				qb.recv(kb, to, 64)
				qa.send(testWQE{op: wqeSendInv, imm: key, segs: [][]byte{dataSeg(at, ka, 8)}})
				if e := qa.cq.wait(); statusOf(e) != roce.RemoteDenied {
					t.Errorf("it completes as %x", e)
				}
				if g[1].p.Keys[key>>8].Free {
					t.Error("the key was revoked")
				}
			})
		}
	}
}

// No doorbell announces late receives.
func TestLateReceivesAreFlushed(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	q := g[0].newQP(serviceRC)
	q.connect(0, 1, 0x200, nil)
	g[0].must(op2Err, q.num, 16, nil)
	// As after much time.
	g[0].p.lock()
	for range 40 {
		g[0].p.flush(g[0].p.Queues[q.num])
	}
	g[0].p.unlock()
	q.recv(1, 0, 64)
	if e := q.cq.wait(); statusOf(e) != roce.Flushed {
		t.Errorf("completion %x", e)
	}
}

func TestClientsConnectBeforeListenReturns(t *testing.T) {
	s := NewServer(Options{})
	dir := t.TempDir()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			names, _ := filepath.Glob(dir + "/*")
			for _, n := range names {
				if c, err := net.Dial("unix", n); err == nil {
					c.Close()
				}
			}
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 40 {
			p, err := s.AddNIC(NIC{Name: fmt.Sprint(i), Socket: filepath.Join(dir, fmt.Sprint(i)), MAC: mac(i)})
			if err != nil {
				t.Error(err)
				return
			}
			p.lock()
			p.setGID(1, gidEntry{GID: gidOf(i), MAC: mac(i)})
			p.unlock()
		}
	}()
	select {
	case <-done:
	case <-time.After(waitLimit):
		t.Fatal("the server does not go on")
	}
	close(stop)
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestFaultsOfTheLink(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	p, ring := g[0].p, g[0].eqRing
	type event struct{ typ, sub, module byte }
	seen := uint32(0)
	events := func() (l []event) {
		p.lock()
		defer p.unlock()
		for e := p.EQs[g[0].eq]; seen < e.PI; seen++ {
			b := g[0].mem[ring+uint64(seen&255)*64:]
			if b[1] == eventPort || b[1] == eventModule {
				l = append(l, event{b[1], b[3], b[32+3]})
			}
		}
		return l
	}
	down, up := event{eventPort, portDown, 0}, event{eventPort, portActive, 0}
	for _, c := range []struct {
		fault     Fault
		down, end []event
	}{
		{Unplugged, []event{{eventModule, 0, moduleUnplugged}, down}, []event{{eventModule, 0, modulePlugged}, up}},
		{Flapping, []event{down}, []event{up}},
	} {
		events()
		p.SetFault(c.fault)
		if got := events(); !reflect.DeepEqual(got, c.down) {
			t.Errorf("%s: events %v, want %v", c.fault, got, c.down)
		}
		g[0].f.Write(7, cfgDevCtl, []byte{0, 0}) // does not end the fault
		if s := p.Status(); s.Up || s.Fault != c.fault {
			t.Errorf("%s: %+v", c.fault, s)
		}
		p.SetFault(Healthy)
		if got := events(); !reflect.DeepEqual(got, c.end) {
			t.Errorf("after %s: events %v, want %v", c.fault, got, c.end)
		}
		if s := p.Status(); !s.Up || s.Fault != Healthy {
			t.Errorf("after %s: %+v", c.fault, s)
		}
	}
	p.SetLink(false)
	p.SetLink(true)
	if got := events(); !reflect.DeepEqual(got, []event{down, up}) {
		t.Errorf("a link that goes down at the other end and comes back: events %v", got)
	}
	if s := p.Status(); s.LinkDowns != 3 || s.Flaps {
		t.Errorf("after three faults that were cleared: %+v", s)
	}
	for range flaps {
		p.SetLink(false)
		p.SetLink(true)
	}
	if !p.Status().Flaps {
		t.Error("a link that went down three times does not flap")
	}
}

func TestHungCommandsAreAnsweredLate(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	g[0].p.SetFault(HungCommands)
	in := make([]byte, 16)
	be.PutUint16(in, opQueryISSI)
	if st, _ := g[0].command(in, 0x70); st != 0xff {
		t.Fatalf("a hung adapter answers %#x", st)
	}
	g[0].p.SetFault(Healthy)
	if st, _ := g[0].answer(0x70); st != ok {
		t.Errorf("status %#x", st)
	}
}

// The driver's reset of a stopped firmware recovers only a temporary fault, but one from outside always helps.
func TestResetsOfTheFirmware(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	p := g[0].p
	mode := func() byte {
		b := make([]byte, 4)
		g[0].f.Read(0, segCmdQLow, b)
		return b[2] & 3
	}
	for _, c := range []struct {
		fault, then Fault
	}{{FatalError, FatalError}, {Assertion, Healthy}} {
		p.SetFault(c.fault)
		vsc := func(at uint64, v uint32) { g[0].f.Write(7, at, le.AppendUint32(nil, v)) }
		vsc(vscControl, spaceSemaphore)
		vsc(vscData, 0x77)
		vsc(vscAddress, vscFlag|resetSemaphore)
		vsc(vscAddress, resetSemaphore)
		b := make([]byte, 4)
		if g[0].f.Read(7, vscData, b); le.Uint32(b) != 0x77 {
			t.Errorf("%s: the semaphore of resets is %x", c.fault, b)
		}
		g[0].write32(segCmdQLow, nicReset<<8)
		if s := p.Status(); s.Fault != c.then || mode() != nicDisabled {
			t.Errorf("%s: %+v, interface %d", c.fault, s, mode())
		}
		p.ResetFunction()
		if s := p.Status(); s.Fault != Healthy || s.Driver || mode() != nicDisabled {
			t.Errorf("%s: after a reset %+v", c.fault, s)
		}
		g[0].boot()
	}
	p.SetFault(OffTheBus)
	p.SetFault(Healthy)
	if s := p.Status(); s.Driver || !s.Up {
		t.Errorf("back on the bus: %+v", s)
	}
}

// Requests of a service without a transport would complete without effect.
func TestServicesThatAreNotCarriedAreRefused(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	for service, want := range map[uint64]status{serviceRC: ok, serviceUMR: ok, serviceXRC: ok, 5: badParam,
		9: badParam} {
		in := make([]byte, 0x110+8)
		be.PutUint16(in, opCreateQP)
		putAll(in[0x18:], map[bits]uint64{qpcSt: service, qpcPd: uint64(g[0].pd), qpcLogSqSize: 5, qpcLogRqSize: 4,
			qpcLogRqStride: 1, qpcDbrAddr: g[0].alloc(8)})
		g[0].pages(in[0x110:], g[0].alloc(pageSize), 1)
		if st, _ := g[0].command(in, 16); st != want {
			t.Errorf("service %d: status %#x, want %#x", service, st, want)
		}
	}
}
