package connectx

import (
	"bytes"
	"encoding/gob"
	"testing"

	"github.com/rackless/rackless/roce"
	"github.com/rackless/rackless/vfiouser"
)

// FuzzRegisters reads and writes configuration space and BAR at any place. Each access is a byte for what and where, an
// offset of three bytes, a length and the data.
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
			if off %= size; off+uint64(l) > size { // vfiouser refuses what leaves the region
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

// FuzzUMR changes keys by any request, and uses them.
func FuzzUMR(f *testing.F) {
	_, gs := newLab(f, 1, NIC{}, nil)
	g := gs[0]
	q := g.newQP(serviceRC)
	at := g.alloc(4 * pageSize)
	g.key(at, 4*pageSize, g.pd, allRights...)
	keys := []uint32{g.freeKey(modeMTT), g.freeKey(modeKLM), g.freeKey(modeKLM)}
	p := g.p
	for i := range keys {
		w := umrWQE(keys[i], umrAll, []uint64{at, at + pageSize}, map[bits]uint64{mkcLen: 8192, mkcStartAddr: 0x1000,
			mkcLogPageSize: 12, mkcLr: 1, mkcLw: 1})
		f.Add(byte(i), bytes.Join(w.segs, nil), uint64(0x1100), uint64(300))
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

// FuzzParse reads any send request, of each service.
func FuzzParse(f *testing.F) {
	_, gs := newLab(f, 1, NIC{}, nil)
	p := gs[0].p
	for op := range operations {
		f.Add([]byte{0, 0, 0, op, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0, 0, 4, 1, 2, 3, 4}, byte(0))
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

// FuzzSteer lets any frame through any flow tables: entries of 8 bytes, each with its table, its index, a byte of the
// match and what it asks for, the action and a destination.
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
		p.Root, p.Flows, p.Misses = 1, map[flowKey]*flow{}, map[uint32]uint32{}
		p.TIRs = map[uint32]*tir{1: {RQ: 5}, 2: {Indirect: true, RQT: 1, Fields: 15, L4: 1}, 3: {Indirect: true}}
		p.RQTs = map[uint32][]uint32{1: {7, 8, 9}}
		for ; len(b) >= 8; b = b[8:] {
			x := &flow{Action: uint16(b[4]), Dests: []uint32{uint32(b[5])<<24 | uint32(b[6]&3)<<8 | uint32(b[7]&7)}}
			x.Mask[b[2]%matchSize], x.Value[b[2]%matchSize] = 0xff, b[3]
			p.Flows[flowKey{uint32(b[0] & 7), uint32(b[1])}] = x
			p.Misses[uint32(b[0]&7)] = uint32(b[7] & 7)
		}
		if n := len(p.steer(frame)); n > maxDests {
			t.Errorf("%d destinations", n)
		}
	})
}

// FuzzRestore takes any state, and works with it.
func FuzzRestore(f *testing.F) {
	_, gs := newLab(f, 1, NIC{}, nil)
	g := gs[0]
	q := g.newQP(serviceRC)
	q.connect(0, 1, 0x200, nil)
	g.key(g.alloc(pageSize), pageSize, g.pd, allRights...)
	state, err := g.p.Save()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(state)
	var empty bytes.Buffer
	t := newTables()
	if err := gob.NewEncoder(&empty).Encode(saved{Device: g.p.model.device, Config: make([]byte, 4096), Tables: &t}); err != nil {
		f.Fatal(err)
	}
	f.Add(empty.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2*len(state) || g.p.Restore(b) != nil {
			return
		}
		for _, op := range []uint16{opQueryQP, opQueryCQ, opQueryKey, opQueryVPort, opQueryContext, opModifyContext,
			opQueryAddress, opVPortCounter, opQueryRQ, op2Rst, op2Err, opDestroyQP} {
			for _, id := range []uint32{0x100, 0x400, 0x200} {
				in := make([]byte, 0x110)
				be.PutUint16(in, op)
				be.PutUint32(in[8:], id)
				g.p.lock()
				g.p.in, g.p.out = append(g.p.in[:0], append(in, make([]byte, minBuffer)...)...), grown(g.p.out, minBuffer)
				g.p.execute(0x100)
				g.p.unlock()
			}
		}
		g.p.Deliver(make([]byte, 64))
		db := make([]byte, 8)
		be.PutUint32(db[4:], 0x100<<8)
		g.f.Write(vfiouser.RegionBAR0, uarBase+dbSend, db)
		g.p.tick(g.p.s.now())
	})
}
