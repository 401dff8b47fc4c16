package connectx

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

// present grants all accesses (MLX5_IB_MTT_PRESENT).
const present = 1<<0 | 1<<1

func (g *guest) umrQueue() *testQP {
	q := g.qpWith(map[bits]uint64{qpcSt: serviceUMR})
	for _, op := range []uint16{opRst2Init, opInit2RTR, opRTR2RTS} {
		g.must(op, q.num, 0x110, func(in []byte) { qpcPd.put(in[0x18:], uint64(g.pd)) })
	}
	return q
}

// umrPiece loads words from word at on, which is even, inline or, if buf is not 0, from memory.
func (g *guest) umrPiece(key uint32, at int, list []uint64, buf uint64, mask uint64, set map[bits]uint64) testWQE {
	if buf == 0 {
		w := umrWQE(key, mask, list, set)
		offset(w, at)
		return w
	}
	w := umrWQE(key, mask, nil, set)
	w.segs = w.segs[:7]
	w.segs[0][0] = 0
	be.PutUint16(w.segs[0][4:], uint16((len(list)+1)/2))
	offset(w, at)
	for i, v := range list {
		be.PutUint64(g.mem[buf+8*uint64(i):], v)
	}
	n := uint32(8*len(list)+63) &^ 63
	w.segs = append(w.segs, dataSeg(buf, g.physicalKey(), n))
	return w
}

func offset(w testWQE, at int) {
	w.segs[0][0] |= umrOffset
	be.PutUint16(w.segs[0][6:], uint16(at/2))
	be.PutUint32(w.segs[1], uint32(at/2>>16))
}

func (q *testQP) load(w testWQE) roce.Status {
	q.g.t.Helper()
	q.send(w)
	return statusOf(q.cq.wait())
}

func (g *guest) fullAccess(va, n uint64) map[bits]uint64 {
	return map[bits]uint64{mkcLr: 1, mkcLw: 1, mkcRr: 1, mkcRw: 1, mkcA: 1, mkcLen: n, mkcStartAddr: va,
		mkcLogPageSize: 12, mkcQpn: anyQP, mkcPd: uint64(g.pd)}
}

const umrEnable = umrAll | umrPD

// The driver loads a list piece by piece, and enables the key with the last one. Offsets may be beyond 16 bits.
func TestAListIsLoadedInPieces(t *testing.T) {
	for _, c := range []struct {
		name         string
		pages, piece int
		memory       bool
	}{
		{"inline", 40, 8, false},
		{"from memory", 40, 16, true},
		{"a region of 1.5 GiB", 1536 << 8, 131064, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, g := newLab(t, 2, NIC{}, nil)
			a, b := g[0], g[1]
			kq := b.umrQueue()
			// The order shows the place of each entry.
			const distinct = 61
			to := b.alloc(distinct * pageSize)
			page := func(i int) uint64 { return to + uint64(i*7%distinct)*pageSize }
			buf := uint64(0)
			if c.memory {
				buf = b.alloc(uint64(8*c.piece + 64))
			}
			key := b.freeKey(modeMTT)
			const va = 0x7000_0000
			for at := 0; at < c.pages; at += c.piece {
				var list []uint64
				for i := at; i < min(at+c.piece, c.pages); i++ {
					list = append(list, page(i)|present)
				}
				mask, set := uint64(0), map[bits]uint64(nil)
				if at+c.piece >= c.pages {
					mask, set = umrEnable, b.fullAccess(va, uint64(c.pages)*pageSize)
				}
				if st := kq.load(b.umrPiece(key, at, list, buf, mask, set)); st != roce.OK {
					t.Fatalf("the piece at %d ends with %#x", at, st)
				}
			}
			b.p.lock()
			if n := b.p.NPages; n != b.p.charged() {
				t.Errorf("%d pages are charged, %d are there", n, b.p.charged())
			}
			b.p.unlock()
			qa, _ := pair(a, b, serviceRC, nil)
			at := a.alloc(2 * pageSize)
			ka := a.anyKey(at, 2*pageSize)
			for _, direct := range []bool{true, false} {
				s.SetDirect(direct)
				for n, i := range []int{0, c.piece - 1, c.pages / 2, c.pages - 2} {
					fill(a.mem[at:at+2*pageSize], uint64(n))
					qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(va+uint64(i)*pageSize, key),
						dataSeg(at, ka, 2*pageSize)}})
					if e := qa.cq.wait(); statusOf(e) != roce.OK {
						t.Fatalf("a write to page %d: %x", i, e)
					}
					for j := range uint64(2) {
						if p := page(i + int(j)); !bytes.Equal(b.mem[p:p+pageSize], a.mem[at+j*pageSize:][:pageSize]) {
							t.Errorf("direct %v: the bytes of page %d are elsewhere", direct, i+int(j))
						}
					}
				}
			}
		})
	}
}

func TestPiecesOfKeysAreLoadedInPieces(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	kq := a.umrQueue()
	at := a.alloc(4 * pageSize)
	base := a.anyKey(at, 4*pageSize)
	key := a.freeKey(modeKLM)
	for i := range 4 {
		piece := []uint64{pageSize<<32 | uint64(base), at + uint64(3-i)*pageSize}
		mask, set := uint64(0), map[bits]uint64(nil)
		if i == 3 {
			mask, set = umrEnable, a.fullAccess(0, 4*pageSize)
		}
		if st := kq.load(a.umrPiece(key, 2*i, piece, 0, mask, set)); st != roce.OK {
			t.Fatalf("piece %d ends with %#x", i, st)
		}
	}
	a.p.lock()
	defer a.p.unlock()
	for i := range uint64(4) {
		list, f := a.p.translate(nil, key, a.pd, i*pageSize, pageSize, roce.LocalRead)
		if f != 0 || len(list) != 1 || list[0].addr != at+(3-i)*pageSize {
			t.Errorf("piece %d: %+v, %v", i, list, f)
		}
	}
}

// The kernel withdraws the pages of a dma-buf that moves, by a list of zeros.
func TestAccessToAWithdrawnPageIsAnError(t *testing.T) {
	const n, va = 3 * pageSize, 0x7000_0000
	write := func(remote, local []byte) testWQE { return testWQE{op: wqeWrite, segs: [][]byte{remote, local}} }
	read := func(remote, local []byte) testWQE { return testWQE{op: wqeRead, segs: [][]byte{remote, local}} }
	send := func(_, local []byte) testWQE { return testWQE{op: wqeSend, segs: [][]byte{local}} }
	for _, c := range []struct {
		name  string
		local bool
		flags uint64
		w     func(remote, local []byte) testWQE
		recv  bool
		sent  roce.Status
		got   roce.Status
	}{
		{"write to a withdrawn page", false, 0, write, false, roce.RemoteDenied, 0},
		{"read from a withdrawn page", false, 0, read, false, roce.RemoteDenied, 0},
		{"write from a withdrawn page", true, 0, write, false, roce.LocalProtection, 0},
		{"read into a withdrawn page", true, 0, read, false, roce.LocalProtection, 0},
		{"send from a withdrawn page", true, 0, send, false, roce.LocalProtection, 0},
		{"receive into a withdrawn page", false, 0, send, true, roce.RemoteOp, roce.LocalProtection},
		{"add to a withdrawn page", false, 0, add, false, roce.RemoteDenied, 0},
		{"write to a page that can be read", false, 1, write, false, roce.RemoteDenied, 0},
		{"read from a page that can be written", false, 2, read, false, roce.RemoteDenied, 0},
		{"add to a page that can be written", false, 2, add, false, roce.RemoteDenied, 0},
		{"add to a page that can be read", false, 1, add, false, roce.RemoteDenied, 0},
		{"read from a page that can be read", false, 1, read, false, roce.OK, 0},
		{"write to a page that can be written", false, 2, write, false, roce.OK, 0},
		{"send from a page that can be read", true, 1, send, true, roce.OK, roce.OK},
		{"receive into a page that can be written", false, 2, send, true, roce.OK, roce.OK},
	} {
		for _, direct := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, direct %v", c.name, direct), func(t *testing.T) {
				s, g := newLab(t, 2, NIC{}, nil)
				s.SetDirect(direct)
				qa, qb := pair(g[0], g[1], serviceRC, nil)
				owner := g[1]
				if c.local {
					owner = g[0]
				}
				kq := owner.umrQueue()
				mem := owner.alloc(n)
				key := owner.freeKey(modeMTT)
				list := []uint64{mem | present, mem + pageSize | present, mem + 2*pageSize | present}
				if st := kq.load(owner.umrPiece(key, 0, list, 0, umrEnable, owner.fullAccess(va, n))); st != roce.OK {
					t.Fatalf("the region: %#x", st)
				}
				at, to := g[0].alloc(n), g[1].alloc(n)
				fill(g[0].mem[at:at+n], 1)
				fill(owner.mem[mem:mem+n], 2)
				size := uint32(n)
				if c.flags != 0 || c.w(make([]byte, 16), make([]byte, 16)).op == wqeFetchAdd {
					size = 64
				}
				off := uint64(0)
				if size == 64 {
					off = pageSize
				}
				remote := remoteSeg(va+off, key)
				local := dataSeg(at, g[0].anyKey(at, n), size)
				if c.local {
					remote, local = remoteSeg(to, g[1].anyKey(to, n)), dataSeg(va+off, key, size)
				}
				if !c.recv && c.w(remote, local).op != wqeSend {
					if st := qa.load(c.w(remote, local)); st != roce.OK {
						t.Fatalf("while the page is there: %#x", st)
					}
				}
				entry := []uint64{0}
				if c.flags != 0 {
					entry[0] = mem + pageSize | c.flags
				}
				two := []uint64{mem | present, entry[0]} // entries come in pairs
				if st := kq.load(owner.umrPiece(key, 0, two, 0, 0, nil)); st != roce.OK {
					t.Fatalf("the list of zeros: %#x", st)
				}
				was := bytes.Clone(owner.mem[mem+pageSize : mem+2*pageSize])
				if c.recv {
					if c.local {
						qb.recv(g[1].anyKey(to, n), to, n)
					} else {
						qb.recv(key, va+off, size)
					}
				}
				if st := qa.load(c.w(remote, local)); st != c.sent {
					t.Errorf("the request ends with %#x, want %#x", st, c.sent)
				}
				if c.recv {
					if st := statusOf(qb.cq.wait()); st != c.got {
						t.Errorf("the receive ends with %#x, want %#x", st, c.got)
					}
				}
				if now := owner.mem[mem+pageSize : mem+2*pageSize]; c.sent != roce.OK && !bytes.Equal(was, now) {
					t.Error("the page has changed")
				}
			})
		}
	}
}

// Neither the key, nor its list, nor the guest's allowance.
func TestAFailedUMRChangesNothing(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	kq := a.umrQueue()
	mem := a.alloc(2 * pageSize)
	key := a.freeKey(modeMTT)
	list := []uint64{mem | present, mem + pageSize | present}
	if st := kq.load(a.umrPiece(key, 0, list, 0, umrEnable, a.fullAccess(0, 2*pageSize))); st != roce.OK {
		t.Fatalf("the region: %#x", st)
	}
	k, buf, none := a.p.Keys[key>>8], a.alloc(pageSize), a.noMemory()
	other := a.fullAccess(0x1000, 1<<30)
	far := a.umrPiece(key, 2*(maxGap+8), list, buf, umrEnable, other)
	beyond := a.umrPiece(key, maxPages, list, buf, umrEnable, other)
	wrapped := a.umrPiece(key, 0, list, buf, umrEnable, other)
	wrapped.segs[0][0] |= umrOffset
	for i := range 4 {
		wrapped.segs[1][i] = 0xff
	}
	missing := a.umrPiece(key, 0, list, buf, umrEnable, other)
	copy(missing.segs[7], dataSeg(none, a.physicalKey(), 64))
	foreign := a.umrPiece(key, 0, list, buf, umrEnable, other)
	copy(foreign.segs[7], dataSeg(buf, 0x123400, 64))
	poor := a.umrPiece(key, 2, list, buf, umrEnable, other)
	for _, c := range []struct {
		name string
		w    testWQE
		want roce.Status
	}{
		{"it leaves out too many entries", far, roce.LocalLength},
		{"it goes beyond the longest list", beyond, roce.LocalLength},
		{"its offset has 48 bits", wrapped, roce.LocalLength},
		{"its list cannot be read", missing, roce.LocalProtection},
		{"its list has no key", foreign, roce.LocalProtection},
		{"the allowance is used up", poor, roce.LocalQPOp},
	} {
		t.Run(c.name, func(t *testing.T) {
			a.p.lock()
			pages, was := a.p.NPages, *k
			if c.want == roce.LocalQPOp {
				a.p.NPages = maxPages
			}
			full := a.p.NPages
			a.p.unlock()
			if st := kq.load(c.w); st != c.want {
				t.Errorf("it ends with %#x, want %#x", st, c.want)
			}
			a.p.lock()
			defer a.p.unlock()
			if a.p.NPages != full {
				t.Errorf("%d pages are charged, want %d", a.p.NPages, full)
			}
			a.p.NPages = pages
			if k.Len != was.Len || k.Start != was.Start || fmt.Sprint(k.Pages) != fmt.Sprint(was.Pages) {
				t.Errorf("the key is %+v, was %+v", *k, was)
			}
		})
	}
}

// The guest gets its allowance back: the driver keeps such keys for other regions.
func TestARevokedKeyForgetsItsPages(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	kq := a.umrQueue()
	mem := a.alloc(pageSize)
	key := a.freeKey(modeMTT)
	a.p.lock()
	before := a.p.NPages
	a.p.unlock()
	use := func() (f roce.Fault) {
		a.p.lock()
		defer a.p.unlock()
		return a.p.check(key, a.pd, 0, 8, roce.LocalWrite)
	}
	list := []uint64{mem | present, 0}
	for range 3 {
		st := kq.load(a.umrPiece(key, 0, list, 0, umrEnable, a.fullAccess(0, pageSize)))
		if st != roce.OK || use() != 0 {
			t.Fatalf("the region: %#x, %v", st, use())
		}
		if st := kq.load(a.umrPiece(key, 0, nil, 0, umrFree|umrPD, map[bits]uint64{mkcFree: 1})); st != roce.OK {
			t.Fatalf("revoking: %#x", st)
		}
		if use() != roce.FaultKey || a.p.NPages != before {
			t.Errorf("after revoking: %v, %d pages are charged for it", use(), a.p.NPages-before)
		}
		st = kq.load(a.umrPiece(key, 0, nil, 0, umrEnable, a.fullAccess(0, pageSize)))
		if st != roce.OK || use() == 0 {
			t.Errorf("enabled without a list: %#x, %v", st, use())
		}
	}
}

// The driver keeps thousands of free keys for later regions, up to 2^17 pages each.
func TestFreeKeysTakeNoAllowance(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	before := a.p.NPages
	for range 500 {
		a.create(opCreateKey, 0x110, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{mkcFree: 1, mkcUmrEn: 1, mkcAccessMode10: modeMTT, mkcPd: uint64(a.pd),
				mkcQpn: anyQP, mkcTranslationsOctwordSize: 1 << 16})
		})
	}
	if n := a.p.NPages - before; n != 0 {
		t.Errorf("%d pages are charged", n)
	}
}

// A list without flags, as in a state of an earlier version, grants all that the key does.
func TestFlagsOfAListCountOnlyIfAnnounced(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	at := a.alloc(pageSize)
	for _, c := range []struct {
		announced uint64
		flags     uint64
		write     roce.Fault
	}{{0, 0, 0}, {0, 1, 0}, {1, 3, 0}, {1, 1, roce.FaultPage}, {1, 0, roce.FaultPage}} {
		n := a.create(opCreateKey, 0x118, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: modeMTT, mkcPd: uint64(a.pd), mkcLen: pageSize, mkcLr: 1,
				mkcLw: 1, mkcLogPageSize: 12})
			createKeyPgAccess.put(in, c.announced)
			be.PutUint64(in[0x110:], at|c.flags)
		})
		a.p.lock()
		if f := a.p.check(n<<8, a.pd, 0, 8, roce.LocalWrite); f != c.write {
			t.Errorf("flags %d, announced %d: %v", c.flags, c.announced, f)
		}
		a.p.unlock()
	}
	a.p.lock()
	a.p.Keys[0x9999] = &mkey{Key: 0x999900, PD: a.pd, Mode: modeMTT, Access: roce.LocalRead | roce.LocalWrite,
		Len: pageSize, Shift: 12, Pages: []uint64{at}}
	a.p.unlock()
	state, err := a.p.Save()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.p.Restore(state); err != nil {
		t.Fatal(err)
	}
	a.p.lock()
	defer a.p.unlock()
	if f := a.p.check(0x999900, a.pd, 0, 8, roce.LocalWrite); f != 0 {
		t.Errorf("a key of an earlier version: %v", f)
	}
}

func TestListsAreSaved(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	kq := a.umrQueue()
	mem := a.alloc(2 * pageSize)
	whole, half, revoked := a.freeKey(modeMTT), a.freeKey(modeMTT), a.freeKey(modeMTT)
	for key, second := range map[uint32]uint64{whole: mem + pageSize | present, half: 0, revoked: 0} {
		w := a.umrPiece(key, 0, []uint64{mem | present, second}, 0, umrEnable, a.fullAccess(0, 2*pageSize))
		if st := kq.load(w); st != roce.OK {
			t.Fatal(st)
		}
	}
	if st := kq.load(a.umrPiece(revoked, 0, nil, 0, umrFree, map[bits]uint64{mkcFree: 1})); st != roce.OK {
		t.Fatal(st)
	}
	state, err := a.p.Save()
	if err != nil {
		t.Fatal(err)
	}
	was := a.p.NPages
	if err := a.p.Restore(state); err != nil {
		t.Fatal(err)
	}
	a.p.lock()
	defer a.p.unlock()
	for key, want := range map[uint32]roce.Fault{whole: 0, half: roce.FaultPage, revoked: roce.FaultKey} {
		if f := a.p.check(key, a.pd, 0, 2*pageSize, roce.RemoteWrite); f != want {
			t.Errorf("key %#x: %v, want %v", key, f, want)
		}
	}
	if a.p.NPages != was {
		t.Errorf("%d pages are charged, %d before", a.p.NPages, was)
	}
}

// mlx5_ib registers dma-bufs only with these capabilities, and then asks for on-demand paging by transport.
func TestCapabilitiesForDmabufs(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	query := func(typ uint16) []byte {
		return g[0].must(0x100, 0, 16, func(in []byte) { be.PutUint16(in[6:], typ<<1) })[0x10:]
	}
	caps := query(capsGeneral)
	// umr_modify_entity_size_disabled, umr_modify_atomic_disabled, umr_indirect_mkey_disabled,
	// umr_extended_translation_offset, pg
	for f, want := range map[bits]uint64{0x207<<8 | 1: 0, 0x208<<8 | 1: 0, 0x209<<8 | 1: 0, 0x118<<8 | 1: 1,
		0x227<<8 | 1: 1} {
		if got := f.get(caps); got != want {
			t.Errorf("the capability at bit %#x is %d, want %d", f>>8, got, want)
		}
	}
	// RC has all; UC nothing; UD sends; XRC all but receives without a shared queue; DC nothing.
	want := []byte{0xfc, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0xbc, 0, 0, 0, 0, 0, 0, 0}
	if odp := query(2); !bytes.Equal(odp[0x10:0x24], want) || !bytes.Equal(odp[:0x10], make([]byte, 0x10)) {
		t.Errorf("on-demand paging: %x", odp[:0x24])
	}
}

// Withdrawn memory is reached again when the device offers it again.
func TestMemoryOfAPeerIsWithdrawn(t *testing.T) {
	const bar, size = 1 << 36, 4 * pageSize
	memory := make([]byte, size)
	gone := false
	s, g := newLab(t, 2, NIC{Peer: func(addr, n uint64) []byte {
		switch {
		case addr != bar || n != size:
			return nil
		case gone:
			return []byte{}
		}
		return memory
	}}, nil)
	a, b := g[0], g[1]
	for _, g := range g {
		if err := g.p.mem.Map(-1, 0, bar, size, true); err != nil {
			t.Fatal(err)
		}
	}
	at := a.alloc(size)
	ka, own, far := a.anyKey(at, size), a.anyKey(bar, size), b.anyKey(bar, size)
	far2, host := b.anyKey(at, size), at
	for _, direct := range []bool{true, false} {
		s.SetDirect(direct)
		for _, c := range []struct {
			name   string
			wqe    testWQE
			status roce.Status
		}{
			{"a write to it", testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(bar, far), dataSeg(at, ka, size)}},
				roce.RemoteOp},
			{"a read of it", testWQE{op: wqeRead, segs: [][]byte{remoteSeg(bar, far), dataSeg(at, ka, size)}},
				roce.RemoteOp},
			{"a write from it", testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(host, far2), dataSeg(bar, own, size)}},
				roce.LocalProtection},
		} {
			qa, _ := pair(a, b, serviceRC, nil)
			fill(a.mem[at:at+size], 7)
			clear(memory)
			gone = true
			a.p.AskPeers()
			b.p.AskPeers()
			if st := qa.load(c.wqe); st != c.status || !bytes.Equal(memory, make([]byte, size)) {
				t.Errorf("direct %v: %s ends with %#x", direct, c.name, st)
			}
			gone = false
			a.p.AskPeers()
			b.p.AskPeers()
			qa, _ = pair(a, b, serviceRC, nil)
			if st := qa.load(c.wqe); st != roce.OK {
				t.Errorf("direct %v: %s, offered again, ends with %#x", direct, c.name, st)
			}
		}
	}
}

// QEMU announces another device's memory without a file. An address that no device has is accessed by messages.
func TestRDMAReachesMemoryOfAPeer(t *testing.T) {
	const bar, size = 1 << 36, 4 * pageSize
	memory := make([]byte, size)
	var moved [2]uint64
	s, g := newLab(t, 2, NIC{Peer: func(addr, n uint64) []byte {
		if addr == bar && n == size {
			return memory
		}
		return nil
	}, Moved: func(addr, n uint64, written bool) {
		if addr < bar || addr >= bar+size {
			t.Errorf("%d bytes at %#x are counted, which is not memory of a peer", n, addr)
		}
		if written {
			moved[1] += n
		} else {
			moved[0] += n
		}
	}}, nil)
	b := g[1]
	for _, at := range []uint64{bar, bar + size} {
		if err := b.p.mem.Map(-1, 0, at, size, true); err != nil {
			t.Fatal(err)
		}
	}
	qa, _ := pair(g[0], b, serviceRC, nil)
	at := g[0].alloc(size)
	ka := g[0].anyKey(at, size)
	for i, direct := range []bool{true, false} {
		s.SetDirect(direct)
		fill(g[0].mem[at:at+size], uint64(i))
		if st := qa.load(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(bar, b.anyKey(bar, size)),
			dataSeg(at, ka, size)}}); st != roce.OK || !bytes.Equal(memory, g[0].mem[at:at+size]) {
			t.Errorf("direct %v: the write ends with %#x", direct, st)
		}
		if st := qa.load(testWQE{op: wqeRead, segs: [][]byte{remoteSeg(bar+pageSize, b.anyKey(bar, size)),
			dataSeg(at, ka, pageSize)}}); st != roce.OK {
			t.Errorf("direct %v: the read ends with %#x", direct, st)
		}
		if want := [2]uint64{pageSize, size}; moved != want {
			t.Errorf("direct %v: %d bytes are counted as read and written, want %d", direct, moved, want)
		}
		moved = [2]uint64{}
	}
	if st := qa.load(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(bar+size, b.anyKey(bar+size, size)),
		dataSeg(at, ka, size)}}); st != roce.RemoteOp {
		t.Errorf("a write beside the memory ends with %#x", st)
	}
}
