package connectx

import (
	"bytes"
	"encoding/gob"
	"flag"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
	"github.com/rackless/rackless/rdma/vfiouser/vfiousertest"
)

// FuzzRegisters takes a byte for kind and region, an offset of three bytes, a length and the data.
func FuzzRegisters(f *testing.F) {
	_, gs := newLab(f, 1, NIC{}, nil)
	g := gs[0]
	access := func(what byte, off uint32, b ...byte) []byte {
		return append([]byte{what, byte(off >> 16), byte(off >> 8), byte(off), byte(len(b))}, b...)
	}
	f.Add(access(1, segCmdQLow, 0, 0, 0x10, 0))
	f.Add(access(1, segDoorbell, 0xff, 0xff, 0xff, 0xff))
	f.Add(access(3, cfgDevCtl, 0, 0x80))
	f.Add(append(access(1, uarBase+dbEQArm, 1, 0, 0, 0), access(1, uarBase+dbCQ, 0, 0, 0, 0, 0, 0, 4, 0)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		g.t = t
		for n := 0; len(b) >= 5 && n < 64; n++ {
			what, off, l := b[0], uint64(b[1])<<16|uint64(b[2])<<8|uint64(b[3]), int(b[4])
			b = b[5:]
			l = max(1, min(l, len(b)))
			data := make([]byte, l)
			b = b[copy(data, b):]
			region, size := vfiouser.RegionBAR0, uint64(barSize)
			if what&2 != 0 {
				region, size = vfiouser.RegionConfig, 4096
			}
			if off %= size; off+uint64(l) > size { // vfiouser refuses these
				continue
			}
			if what&1 != 0 {
				g.f.Write(region, off, data)
			} else {
				g.f.Read(region, off, data)
			}
		}
	})
}

func FuzzUMR(f *testing.F) {
	_, gs := newLab(f, 1, NIC{}, nil)
	g := gs[0]
	q := g.newQP(serviceRC)
	at := g.alloc(4 * pageSize)
	g.key(at, 4*pageSize, g.pd, allRights...)
	keys := []uint32{g.freeKey(modeMTT), g.freeKey(modeKLM), g.freeKey(modeKLM)}
	p := g.p
	turns := umrWQE(keys[1], umrAll, []uint64{64<<32 | repeated, 2<<32 | 1, 80<<48 | 64<<32 | uint64(keys[2]), at},
		map[bits]uint64{mkcLen: 128, mkcLr: 1})
	f.Add(byte(1), bytes.Join(turns.segs, nil), uint64(0), uint64(100))
	for i := range keys {
		w := umrWQE(keys[i], umrAll, []uint64{at | 3, at + pageSize | 3}, map[bits]uint64{mkcLen: 8192,
			mkcStartAddr: 0x1000, mkcLogPageSize: 12, mkcLr: 1, mkcLw: 1})
		f.Add(byte(i), bytes.Join(w.segs, nil), uint64(0x1100), uint64(300))
		w.segs[0][0] |= umrIfFree
		f.Add(byte(i|0x80), bytes.Join(w.segs, nil), uint64(0x1100), uint64(300))
		w.segs[0][0] ^= umrIfFree | umrIfNotFree
		f.Add(byte(i|0x80), bytes.Join(w.segs, nil), uint64(0x1100), uint64(300))
		w.segs[0][0] ^= umrIfNotFree | umrOffset
		w.segs[0][7] = 5
		f.Add(byte(i|0x80), bytes.Join(w.segs, nil), uint64(0x1100+10*pageSize), uint64(300))
	}
	f.Fuzz(func(t *testing.T, i byte, w []byte, va, n uint64) {
		if len(w) > maxWQE {
			return
		}
		p.lock()
		defer p.unlock()
		k := p.Keys[keys[int(i)%len(keys)]>>8]
		qpcFre.put(p.Queues[q.num].Ctx, uint64(i>>7))
		was := p.NPages - len(k.Pages)
		p.umr(p.Queues[q.num], k.Key, w)
		for _, k := range p.Keys {
			list, fault := p.translate(nil, k.Key, k.PD, va, n%(1<<30), roce.LocalRead)
			if fault == 0 && total(list) != n%(1<<30) {
				t.Errorf("%d bytes of %d", total(list), n%(1<<30))
			}
		}
		if p.NPages != was+len(k.Pages) {
			t.Errorf("%d page addresses are charged for, %d are there", p.NPages-was, len(k.Pages))
		}
		if len(k.Pages) > 1<<16 {
			p.NPages -= len(k.Pages)
			k.Pages = nil
		}
	})
}

func FuzzParse(f *testing.F) {
	_, gs := newLab(f, 1, NIC{}, nil)
	p := gs[0].p
	for op := range operations {
		f.Add([]byte{0, 0, 0, op, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0, 0, 4, 1, 2, 3,
			4}, byte(0))
	}
	var wr sendWR
	f.Fuzz(func(t *testing.T, w []byte, service byte) {
		if len(w) < ctrlSize || len(w) > maxWQE {
			return
		}
		p.parse(&queue{Kind: queueQP, Service: service}, w, &wr)
		if len(wr.Inline) > maxWQE || len(wr.SG) > maxSegs {
			t.Errorf("%d bytes in line, %d segments", len(wr.Inline), len(wr.SG))
		}
	})
}

// FuzzSteer has entries of 8 bytes: table, index, a byte of the match and its value, the action and a destination.
func FuzzSteer(f *testing.F) {
	_, gs := newLab(f, 1, NIC{}, nil)
	p := gs[0].p
	frame := []byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00\x45\x00\x00\x1c\x00\x00\x00\x00\x40\x11" +
		"\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02\x12\xb7\x12\xb7\x00\x08\x00\x00")
	f.Add([]byte{1, 0, 8, 2, 4, destTable, 0, 1, 1, 1, 8, 0, 4, destTIR, 0, 1}, frame)
	f.Fuzz(func(t *testing.T, b, frame []byte) {
		if len(b) > 512 || len(frame) < 14 {
			return
		}
		p.lock()
		defer p.unlock()
		p.Root, p.Flows, p.flows, p.Misses = 1, map[flowKey]*flow{}, flowTables{}, map[uint32]uint32{}
		p.TIRs = map[uint32]*tir{1: {RQ: 5}, 2: {Indirect: true, RQT: 1, Fields: 15, L4: 1}, 3: {Indirect: true}}
		p.RQTs = map[uint32][]uint32{1: {7, 8, 9}}
		for ; len(b) >= 8; b = b[8:] {
			x := &flow{Action: uint16(b[4]), Dests: []uint32{uint32(b[5])<<24 | uint32(b[6]&3)<<8 | uint32(b[7]&7)}}
			x.Mask[b[2]%matchSize], x.Value[b[2]%matchSize] = 0xff, b[3]
			if b[0]&0x10 != 0 {
				p.deleteFlowEntry(flowKey{uint32(b[0] & 7), uint32(b[1])})
			} else {
				p.setFlowEntry(flowKey{uint32(b[0] & 7), uint32(b[1])}, x)
			}
			p.Misses[uint32(b[0]&7)] = uint32(b[7] & 7)
		}
		if n := len(p.steer(frame, nil)); n > maxDests {
			t.Errorf("%d destinations", n)
		}
	})
}

// edited reads 4 bytes for each edit: its place, and the number of bytes that one byte replaces, from 0 to 3.
func edited(text, edits []byte) []byte {
	text = bytes.Clone(text)
	for ; len(edits) >= 4 && len(text) > 0; edits = edits[4:] {
		at := int(be.Uint16(edits)) % len(text)
		text = slices.Replace(text, at, min(at+int(edits[2]&3), len(text)), edits[3])
	}
	return text
}

// FuzzRestore edits a saved state, which would be too long an input.
func FuzzRestore(f *testing.F) {
	_, gs := newLab(f, 1, NIC{Model: ConnectX5}, nil)
	g := gs[0]
	q := g.newQP(serviceRC)
	q.connect(0, 1, 0x200, nil)
	g.key(g.alloc(pageSize), pageSize, g.pd, allRights...)
	d := g.program()
	d.queues(serviceRC)
	state, err := g.p.Save()
	if err != nil {
		f.Fatal(err)
	}
	var empty bytes.Buffer
	t := newTables()
	if err := gob.NewEncoder(&empty).Encode(saved{Device: g.p.model.device, Config: make([]byte, 4096),
		Tables: &t}); err != nil {
		f.Fatal(err)
	}
	f.Add(false, []byte{})
	f.Add(true, []byte{})
	for i := range len(state) / 64 { // in each part of the state
		f.Add(false, append(be.AppendUint16(nil, uint16(i*64)), 1, 0xff))
	}
	f.Fuzz(func(t *testing.T, small bool, edits []byte) {
		b := state
		if small {
			b = empty.Bytes()
		}
		if len(edits) > 256 || g.p.Restore(edited(b, edits)) != nil {
			return
		}
		for _, op := range []uint16{opQueryQP, opQueryCQ, opQueryKey, opQueryVPort, opQueryContext, opModifyContext,
			opQueryAddress, opVPortCounter, opQueryRQ, op2Rst, op2Err, opDestroyQP} {
			for _, id := range []uint32{0x100, 0x400, 0x200} {
				in := make([]byte, 0x110)
				be.PutUint16(in, op)
				be.PutUint32(in[8:], id)
				g.p.lock()
				g.p.in, g.p.out = append(g.p.in[:0], append(in, make([]byte, minBuffer)...)...),
					grown(g.p.out, minBuffer)
				g.p.execute(0x100)
				g.p.unlock()
			}
		}
		g.p.lock()
		for uid := range g.p.Uctx {
			in := make([]byte, minBuffer)
			be.PutUint16(in[10:], uid)
			destroyUctx(g.p, in, make([]byte, minBuffer), uint32(uid))
		}
		g.p.unlock()
		g.p.Deliver(make([]byte, 64))
		db := make([]byte, 8)
		be.PutUint32(db[4:], 0x100<<8)
		g.f.Write(vfiouser.RegionBAR0, uarBase+dbSend, db)
		g.p.tick(g.p.s.now())
	})
}

// rubbish is the least duration of TestHostileGuests. make test-faults uses a minute.
var rubbish = flag.Duration("rubbish", 0, "how long TestHostileGuests lasts at least")

// Random data everywhere and on the socket do not disturb others.
func TestHostileGuests(t *testing.T) {
	_, g := newLab(t, 4, NIC{Model: ConnectX5}, nil)
	qa, qb := pair(g[0], g[1], serviceRC, nil)
	at, to := g[0].alloc(4096), g[1].alloc(4096)
	ka, kb := g[0].key(at, 4096, g[0].pd, allRights...), g[1].key(to, 4096, g[1].pd, allRights...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	attack := func(once func(r *rand.Rand)) {
		seed := rand.Uint64()
		t.Logf("seed %#x", seed)
		r := rand.New(rand.NewPCG(seed, 1))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					once(r)
				}
			}
		})
	}
	attack(newVandal(g[2], qb.num, kb, to).once)
	attack(func(r *rand.Rand) { vfiousertest.Vandal(g[3].p.nic.Socket, barSize, r) })

	end := time.Now().Add(*rubbish)
	for n := uint64(0); n < 200 || time.Now().Before(end); n++ {
		le.PutUint64(g[0].mem[at:], n)
		qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, kb), dataSeg(at, ka, 4096)}})
		if e := qa.cq.wait(); e[63]>>4 != cqeRequest {
			t.Fatalf("message %d: completion %x", n, e)
		}
		if got := le.Uint64(g[1].mem[to:]); got != n {
			t.Fatalf("message %d: %d arrived", n, got)
		}
	}
	close(stop)
	wg.Wait()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 1<<30 {
		t.Errorf("the hostile guests have made the server take %d MiB", m.HeapAlloc>>20)
	}
}

// A vandal violates the rules of drivers.
type vandal struct {
	*guest
	ops    []uint16
	qp     *testQP
	victim uint32 // another guest's queue, key and address
	key    uint32
	va     uint64
	n      int
}

func newVandal(g *guest, victim, key uint32, va uint64) *vandal {
	v := &vandal{guest: g, ops: slices.Sorted(maps.Keys(commands)), victim: victim, key: key, va: va}
	v.start()
	return v
}

// start connects a queue to one that is not its peer.
func (v *vandal) start() {
	v.f.Reset()
	v.boot()
	v.qp = v.newQP([]uint8{serviceRC, serviceUC, serviceUD}[v.n%3])
	v.qp.connect(2, 1, v.victim, nil)
}

func (v *vandal) once(r *rand.Rand) {
	if v.n++; v.n%2000 == 0 {
		v.start()
	}
	b := make([]byte, []int{1, 2, 4, 8, 64, 300}[r.IntN(6)])
	for i := range b {
		b[i] = byte(r.Uint32()) >> (r.IntN(9))
	}
	off := r.Uint64N(barSize-300) &^ 7
	if r.IntN(4) > 0 {
		off = []uint64{segDoorbell, segCmdQLow, uarBase + dbSend, uarBase + dbCQ, uarBase + dbEQArm}[r.IntN(5)]
	}
	switch r.IntN(8) {
	case 0:
		v.f.Read(vfiouser.RegionBAR0, off, b)
	case 1:
		if r.IntN(50) == 0 { // it may be a reset
			v.f.Write(vfiouser.RegionConfig, r.Uint64N(4096-300), b)
		}
	case 2: // in rings, doorbell records and mailboxes
		copy(v.mem[r.Uint64N(guestMemory-300):], b)
	case 3:
		v.f.Write(vfiouser.RegionBAR0, off, b)
	case 4, 5: // an existing command
		in := make([]byte, 16+len(b))
		be.PutUint16(in, v.ops[r.IntN(len(v.ops))])
		be.PutUint16(in[2:], uint16(r.IntN(4)/2)) // of a program, if there is one
		be.PutUint16(in[6:], uint16(r.IntN(3)))
		be.PutUint32(in[8:], r.Uint32N(0x500))
		copy(in[12:], b)
		v.post(in, len(in)+r.IntN(3)*r.IntN(1<<12), r.IntN(1<<13))
		v.write32(segDoorbell, 1)
	default:
		op := []byte{wqeWrite, wqeRead, wqeSend, wqeSendInv, wqeFetchAdd, wqeUMR, wqeLocalInv,
			byte(r.Uint32())}[r.IntN(8)]
		w := testWQE{op: op, imm: v.key, segs: [][]byte{remoteSeg(v.va, v.key), dataSeg(r.Uint64N(guestMemory),
			r.Uint32(), 64)}}
		for len(b) >= 16 && len(w.segs) < 20 {
			w.segs, b = append(w.segs, b[:16]), b[16:]
		}
		v.qp.send(w)
	}
}

func TestPaths(t *testing.T) {
	six := func(i int) [16]byte { return [16]byte{0xfd, 1, 15: byte(i + 1)} }
	for _, c := range []struct {
		name string
		gid  func(int) [16]byte
		vlan uint16
		want string // header from the EtherType on
	}{
		{"IPv4", gidOf, 0, "\x08\x00\x45"}, {"IPv6", six, 0, "\x86\xdd\x60"},
		{"IPv4 on a VLAN", gidOf, 100, "\x81\x00\x00\x64\x08\x00\x45"},
		{"IPv6 on a VLAN", six, 7, "\x81\x00\x00\x07\x86\xdd\x60"},
	} {
		for _, direct := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				var mu sync.Mutex
				var seen [][]byte
				s, g := newLab(t, 2, NIC{}, func(f []byte) bool {
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, bytes.Clone(f[12:]))
					return false
				})
				s.SetDirect(direct)
				for i := range g {
					g[i].gid, g[i].vlan = c.gid, c.vlan
				}
				qa, qb := pair(g[0], g[1], serviceRC, nil)
				const n = 5000
				at, to := g[0].alloc(n), g[1].alloc(n)
				ka, kb := g[0].key(at, n, g[0].pd, allRights...), g[1].key(to, n, g[1].pd, allRights...)
				fill(g[0].mem[at:at+n], 3)
				qb.recv(kb, to, n)
				qa.send(testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, ka, n)}})
				if e := qa.cq.wait(); e[63]>>4 != cqeRequest {
					t.Fatalf("completion %x", e)
				}
				qb.cq.wait()
				if !bytes.Equal(g[0].mem[at:at+n], g[1].mem[to:to+n]) {
					t.Error("the data differ")
				}
				mu.Lock()
				defer mu.Unlock()
				for _, f := range seen {
					if !bytes.HasPrefix(f, []byte(c.want)) {
						t.Errorf("frame %x, want %x", f[:8], c.want)
					}
				}
				if (len(seen) > 0) == direct {
					t.Errorf("%d frames on the wire", len(seen))
				}
			})
		}
	}
}

func TestManyQueuePairs(t *testing.T) {
	s, g := newLab(t, 2, NIC{}, nil)
	const n = 1000
	at, to := g[0].alloc(8*n), g[1].alloc(8*n)
	ka, kb := g[0].key(at, 8*n, g[0].pd, allRights...), g[1].key(to, 8*n, g[1].pd, allRights...)
	var qa [n]*testQP
	for i := range qa {
		// The guests' memory is small, so all queue pairs share rings.
		mark := [2]uint64{g[0].next, g[1].next}
		qa[i], _ = pair(g[0], g[1], serviceRC, nil)
		g[0].next, g[1].next = mark[0], mark[1]
		s.SetDirect(i%2 == 0)
		le.PutUint64(g[0].mem[at+uint64(8*i):], uint64(i)+1)
		qa[i].send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to+uint64(8*i), kb), dataSeg(at+uint64(8*i), ka, 8)}})
		if e := qa[i].cq.wait(); e[63]>>4 != cqeRequest {
			t.Fatalf("queue %d: completion %x", i, e)
		}
		clear(g[0].mem[qa[i].dbr:][:8])
		clear(g[0].mem[qa[i].cq.dbr:][:8])
	}
	if !bytes.Equal(g[0].mem[at:at+8*n], g[1].mem[to:to+8*n]) {
		t.Error("the data differ")
	}
}
