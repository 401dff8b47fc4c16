package connectx

import (
	"bytes"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// faultQueue is an EQ for page faults, as the driver has one beside the other.
type faultQueue struct {
	g    *guest
	ring uint64
	n    uint64
}

func (g *guest) faultQueue() *faultQueue {
	f := &faultQueue{g: g, ring: g.alloc(16 << 10)}
	g.create(opCreateEQ, 0x110+8*4, func(in []byte) {
		eqcLogEqSize.put(in[0x10:], 8)
		be.PutUint64(in[0x58:], 1<<0xc)
		g.pages(in[0x110:], f.ring, 4)
	})
	return f
}

// wait returns the subtype and the data of the next event.
func (f *faultQueue) wait() (byte, []byte) {
	f.g.t.Helper()
	e := f.g.mem[f.ring+64*f.n:][:64]
	f.n++
	for end := time.Now().Add(waitLimit); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		f.g.p.lock()
		typ := e[1]
		f.g.p.unlock()
		if typ == 0xc {
			return e[3], e[32:60]
		}
	}
	f.g.t.Fatalf("no page fault within %v", waitLimit)
	return 0, nil
}

// resume is PAGE_FAULT_RESUME as mlx5_ib sends it.
func (g *guest) resume(typ byte, num uint32, failed bool) {
	g.must(opResumePages, uint32(typ)<<24|num, 16, func(in []byte) {
		if failed {
			in[8] |= 0x80
		}
		be.PutUint32(in[12:], num)
	})
}

// absentKey is a region without pages.
func (g *guest) absentKey(kq *testQP, va uint64, pages int) uint32 {
	g.t.Helper()
	key := g.freeKey(modeMTT)
	access := g.fullAccess(va, uint64(pages)*pageSize)
	if st := kq.load(g.umrPiece(key, 0, make([]uint64, pages), 0, umrEnable, access)); st != 0 {
		g.t.Fatalf("the region: status %#x", st)
	}
	return key
}

func TestAbsentPagesAreBroughtIn(t *testing.T) {
	const va, n = 0x7f00_0000_0000, 2*pageSize - 100
	remote := func(typ byte, n uint32) func(key, num uint32) []byte {
		return func(key, num uint32) []byte {
			d := append(be.AppendUint32([]byte{0, 0, 0, 0}, key), 0, 0, byte(min(n, 4096)>>8), byte(min(n, 4096)))
			d = be.AppendUint64(be.AppendUint32(d, n), va)
			return be.AppendUint32(d, uint32(typ)<<24|num)
		}
	}
	local := func(typ byte) func(key, num uint32) []byte {
		return func(_, num uint32) []byte {
			d := be.AppendUint32(make([]byte, 12), num) // the first WQE
			return be.AppendUint32(append(d, make([]byte, 8)...), uint32(typ)<<24|num)
		}
	}
	for _, c := range []struct {
		name   string
		op     byte
		sender bool // the sender's memory lacks pages
		sub    byte
		typ    byte
		data   func(key, num uint32) []byte
		failed roce.Status
	}{
		{"a write", wqeWrite, false, 1, 6, remote(6, n), roce.RemoteDenied},
		{"a read", wqeRead, false, 1, 4, remote(4, n), roce.RemoteDenied},
		{"an addition", wqeFetchAdd, false, 1, 6, remote(6, 8), roce.RemoteDenied},
		{"a receive", wqeSend, false, 0, 2, local(2), roce.RemoteOp},
		{"data of a send", wqeSend, true, 0, 1, local(1), roce.LocalProtection},
		{"data of a write", wqeWrite, true, 0, 1, local(1), roce.LocalProtection},
		{"memory of a read", wqeRead, true, 0, 3, local(3), roce.LocalProtection},
		{"memory of an old number", wqeFetchAdd, true, 0, 3, local(3), roce.LocalProtection},
	} {
		for _, direct := range []bool{true, false} {
			for _, fails := range []bool{false, true} {
				s, g := newLab(t, 2, NIC{}, nil)
				s.SetDirect(direct)
				qa, qb := pair(g[0], g[1], serviceRC, map[bits]uint64{qpcRnrRetry: 7})
				owner, q, peer := g[1], qb, g[0]
				if c.sender {
					owner, q, peer = g[0], qa, g[1]
				}
				kq, f := owner.umrQueue(), owner.faultQueue()
				key := owner.absentKey(kq, va, 2)
				at := peer.alloc(2 * pageSize)
				other, here := peer.anyKey(at, 2*pageSize), owner.alloc(2*pageSize)
				fill(peer.mem[at:at+2*pageSize], 1)
				fill(owner.mem[here:here+2*pageSize], 2)
				length := uint32(n)
				w := testWQE{op: c.op}
				remoteVA, remoteKey, localVA, localKey := uint64(va), key, at, other
				if c.sender {
					remoteVA, remoteKey, localVA, localKey = at, other, va, key
				}
				switch c.op {
				case wqeSend:
					qb.recv(remoteKey, remoteVA, n)
				case wqeFetchAdd:
					length = 8
					w.segs = [][]byte{remoteSeg(remoteVA, remoteKey), atomicSeg(5, 0)}
				default:
					w.segs = [][]byte{remoteSeg(remoteVA, remoteKey)}
				}
				w.segs = append(w.segs, dataSeg(localVA, localKey, length))
				qa.send(w)
				sub, data := f.wait()
				if want := c.data(key, q.num); sub != c.sub || !bytes.Equal(data[:28], want) {
					t.Fatalf("%s, direct %v: subtype %d, %x, want %x", c.name, direct, sub, data, want)
				}
				if e := qa.cq.poll(); e != nil {
					t.Fatalf("%s, direct %v: has ended: %x", c.name, direct, e)
				}
				if !fails {
					pages := []uint64{here | present, here + pageSize | present}
					if st := kq.load(owner.umrPiece(key, 0, pages, 0, 0, nil)); st != 0 {
						t.Fatalf("the pages: status %#x", st)
					}
				}
				mine := bytes.Clone(owner.mem[here : here+uint64(length)])
				its := bytes.Clone(peer.mem[at : at+uint64(length)])
				owner.resume(c.typ, q.num, fails)
				want := roce.OK
				if fails {
					want = c.failed
				}
				if st := statusOf(qa.cq.wait()); st != want {
					t.Fatalf("%s, direct %v, without pages %v: status %#x, want %#x", c.name, direct, fails, st, want)
				}
				if fails || c.op == wqeFetchAdd {
					continue
				}
				if c.sender == (c.op == wqeRead) {
					mine = its
				}
				if !bytes.Equal(owner.mem[here:here+n], mine) || !bytes.Equal(peer.mem[at:at+n], mine) {
					t.Errorf("%s, direct %v: wrong bytes", c.name, direct)
				}
			}
		}
	}
}

// A list of keys stands for all addresses of a process; the null key marks parts without a region of pages.
func TestImplicitRegions(t *testing.T) {
	s, g := newLab(t, 2, NIC{}, nil)
	a, b := g[0], g[1]
	if out := b.must(opQuerySpecial, 0, 16, nil); be.Uint32(out[0x10:]) != 0x200 {
		t.Fatalf("the null key is %#x", be.Uint32(out[0x10:]))
	}
	kq, f := b.umrQueue(), b.faultQueue()
	set := b.fullAccess(0, 0)
	set[mkcLength64], set[mkcLogPageSize] = 1, 30
	key := b.freeKey(modeKSM)
	null := []uint64{0x200, 0, 0x200, 0, 0x200, 0, 0x200, 0}
	if st := kq.load(b.umrPiece(key, 0, null, 0, umrEnable, set)); st != 0 {
		t.Fatalf("the list: status %#x", st)
	}
	at, to := a.alloc(pageSize), b.alloc(pageSize)
	fill(a.mem[at:at+pageSize], 3)
	const va = 2<<30 + 5*pageSize
	for i, direct := range []bool{true, false} {
		s.SetDirect(direct)
		qa, qb := pair(a, b, serviceRC, map[bits]uint64{qpcRnrRetry: 7})
		w := testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(va, key), dataSeg(at, a.anyKey(at, pageSize), 100)}}
		if i == 0 {
			qa.send(w)
			if sub, d := f.wait(); sub != 1 || be.Uint32(d[4:]) != key || be.Uint64(d[16:]) != va {
				t.Fatalf("event %d %x", sub, d)
			}
			part := b.absentKey(kq, 2<<30, 8)
			if st := kq.load(b.umrPiece(key, 4, []uint64{uint64(part), 2 << 30}, 0, 0, nil)); st != 0 {
				t.Fatalf("a part: status %#x", st)
			}
			if st := kq.load(b.umrPiece(part, 4, []uint64{0, to | present}, 0, 0, nil)); st != 0 {
				t.Fatalf("its page: status %#x", st)
			}
			b.resume(6, qb.num, false)
		} else {
			clear(b.mem[to : to+100])
			qa.send(w)
		}
		if st := statusOf(qa.cq.wait()); st != 0 || !bytes.Equal(b.mem[to:to+100], a.mem[at:at+100]) {
			t.Errorf("direct %v: status %#x, or wrong bytes", direct, st)
		}
		// Behind the list is nothing, and a list in a list is refused.
		w.segs[0] = remoteSeg(4<<30-50, key)
		qa.send(w)
		f.wait()
		b.resume(6, qb.num, true)
		if st := statusOf(qa.cq.wait()); st != roce.RemoteDenied {
			t.Errorf("direct %v: over the end: status %#x", direct, st)
		}
	}
	outer := b.freeKey(modeKSM)
	if st := kq.load(b.umrPiece(outer, 0, []uint64{uint64(key), 0}, 0, umrEnable, set)); st != 0 {
		t.Fatalf("a list of lists: status %#x", st)
	}
	b.p.lock()
	defer b.p.unlock()
	if f := b.p.check(outer, b.pd, 0, 8, roce.RemoteWrite); f != roce.FaultKey {
		t.Errorf("a list in a list: %v", f)
	}
}

// A datagram waits for the pages of its data; receives of datagrams wait for none.
func TestADatagramWaitsForItsPages(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	a, b := g[0], g[1]
	qa, qb := pair(a, b, serviceUD, nil)
	kq, f := a.umrQueue(), a.faultQueue()
	const va = 0x7f00_0000_0000
	key, here, to := a.absentKey(kq, va, 2), a.alloc(pageSize), b.alloc(pageSize)
	copy(a.mem[here:], "hello")
	qb.recv(b.anyKey(to, pageSize), to, 256)
	qa.send(testWQE{op: wqeSend, segs: [][]byte{datagramSeg(qb.num, mac(1), gidOf(1)), dataSeg(va, key, 5)}})
	if sub, d := f.wait(); sub != 0 || be.Uint32(d[24:]) != 1<<24|qa.num || be.Uint16(d[6:]) != 0 {
		t.Fatalf("subtype %d, %x", sub, d)
	}
	if st := kq.load(a.umrPiece(key, 0, []uint64{here | present, 0}, 0, 0, nil)); st != 0 {
		t.Fatalf("the page: status %#x", st)
	}
	a.resume(1, qa.num, false)
	qa.cq.wait()
	qb.cq.wait()
	if got := string(b.mem[to+40 : to+45]); got != "hello" {
		t.Errorf("received %q", got)
	}
}

// The event about a receive of a shared queue names that queue, and has no type.
func TestASharedQueueWaitsForItsPages(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{}, nil)
		s.SetDirect(direct)
		a, b := g[0], g[1]
		dbr, ring := b.alloc(8), b.alloc(pageSize)
		rmp := b.create(opCreateRMP, 0x110+8, func(in []byte) {
			w := in[0x50:]
			putAll(w, map[bits]uint64{wqPd: uint64(b.pd), wqDbrAddr: dbr, wqLogWqStride: 5, wqLogWqSz: 4})
			b.pages(w[0xc0:], ring, 1)
		})
		qa := a.newQP(serviceRC)
		qb := b.qpWith(map[bits]uint64{qpcRqType: receivesSRQ, qpcSrqnRmpnXrqn: uint64(rmp)})
		qa.connect(0, 1, qb.num, map[bits]uint64{qpcRnrRetry: 7})
		qb.connect(1, 0, qa.num, map[bits]uint64{qpcRqType: receivesSRQ, qpcSrqnRmpnXrqn: uint64(rmp)})
		kq, f := b.umrQueue(), b.faultQueue()
		const va = 0x7f00_0000_0000
		key, here, at := b.absentKey(kq, va, 2), b.alloc(pageSize), a.alloc(pageSize)
		copy(b.mem[ring+16:], dataSeg(va, key, 64))
		be.PutUint32(b.mem[dbr:], 1)
		copy(a.mem[at:], "hello")
		qa.send(testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, a.anyKey(at, 64), 5)}})
		if sub, d := f.wait(); sub != 0 || be.Uint32(d[24:]) != rmp {
			t.Fatalf("direct %v: subtype %d, %x", direct, sub, d)
		}
		if st := kq.load(b.umrPiece(key, 0, []uint64{here | present, 0}, 0, 0, nil)); st != 0 {
			t.Fatalf("the page: status %#x", st)
		}
		b.resume(0, rmp, false)
		if st := statusOf(qa.cq.wait()); st != 0 || string(b.mem[here:here+5]) != "hello" {
			t.Errorf("direct %v: status %#x, received %q", direct, st, b.mem[here:here+5])
		}
	}
}

// A driver that does not answer, or has no event queue, cannot hold a request forever.
func TestAPageFaultEnds(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	p := g[0].p
	q := g[0].newQP(serviceRC)
	p.lock()
	defer p.unlock()
	of := p.Queues[q.num]
	if p.awaitWQE(of, ofRequests, faultRequester, 0) {
		t.Error("without an event queue the request waits")
	}
	p.unlock()
	g[0].faultQueue()
	p.lock()
	if !p.awaitWQE(of, ofRequests, faultRequester, 0) {
		t.Error("the request does not wait")
	}
	of.faults[ofRequests].since -= maxFault
	if p.awaitWQE(of, ofRequests, faultRequester, 0) {
		t.Error("the request waits after 30 s")
	}
	if p.setState(of, roce.Reset); of.faults[ofRequests] != (pageFault{}) {
		t.Error("a queue that has been reset waits")
	}
}

// A clone of a template knows the queue for page faults, and implicit regions.
func TestPagingIsRestored(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	a.faultQueue()
	set := a.fullAccess(0, 0)
	set[mkcLength64], set[mkcLogPageSize] = 1, 30
	key := a.freeKey(modeKSM)
	if st := a.umrQueue().load(a.umrPiece(key, 0, []uint64{0x200, 0}, 0, umrEnable, set)); st != 0 {
		t.Fatalf("the region: status %#x", st)
	}
	state, err := a.p.Save()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.p.Restore(state); err != nil {
		t.Fatal(err)
	}
	a.p.lock()
	n, f := a.p.FaultEQ, a.p.check(key, a.pd, 1<<29, 8, roce.RemoteWrite)
	a.p.unlock()
	if n == 0 || n == a.eq || f != roce.FaultPage {
		t.Errorf("the queue is %d, the region's page: %v", n, f)
	}
	a.must(0x302, n, 16, nil) // DESTROY_EQ
	a.p.lock()
	defer a.p.unlock()
	if a.p.pages() != nil {
		t.Error("a destroyed queue takes page faults")
	}
}

// An access through a list with small parts is bounded, as each part takes time under the port's lock.
func TestPartsOfAnAccessAreLimited(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	p := g[0].p
	p.lock()
	defer p.unlock()
	const part, list = 0x7000, 0x7001
	p.Keys[part] = &mkey{Key: part << 8, PD: g[0].pd, Mode: modeMTT, Any: true, Shift: 12, Access: roce.LocalRead,
		Pages: []uint64{0}}
	k := &mkey{Key: list << 8, PD: g[0].pd, Mode: modeKSM, Any: true, Shift: 12, Access: roce.LocalRead}
	for range 2 * maxPieces {
		k.Pages = append(k.Pages, part<<8, 0)
	}
	p.Keys[list] = k
	if f := p.check(k.Key, k.PD, 0, maxPieces<<12, roce.LocalRead); f != 0 {
		t.Errorf("%d parts: %v", maxPieces, f)
	}
	if f := p.check(k.Key, k.PD, 0, (maxPieces+1)<<12, roce.LocalRead); f != roce.FaultRange {
		t.Errorf("one more part: %v, want %v", f, roce.FaultRange)
	}
}
