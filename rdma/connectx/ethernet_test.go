package connectx

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/vfiouser"
)

// From "Verifying the RSS Hash Calculation" (Microsoft), for IPv4.
func TestToeplitz(t *testing.T) {
	key := []byte{0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
		0xca,
		0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
		0xbe, 0xac,
		0x01, 0xfa}
	in := []byte{66, 9, 149, 187, 161, 142, 100, 80, 2794 >> 8, 2794 & 0xff, 1766 >> 8, 1766 & 0xff}
	if h := toeplitz(key, in[:8]); h != 0x323e8fc2 {
		t.Errorf("addresses: %#x", h)
	}
	if h := toeplitz(key, in); h != 0x51ccc178 {
		t.Errorf("addresses and ports: %#x", h)
	}
}

func tcp(to, from [6]byte, n int) []byte {
	f := append(append([]byte{}, to[:]...), from[:]...)
	f = append(f, 0x08, 0, 0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, protoTCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	be.PutUint16(f[16:], uint16(40+n))
	f = append(f, 0x10, 0, 0x20, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0x50, 0x19, 1, 0, 0, 0, 0, 0)
	d := make([]byte, n)
	fill(d, 1)
	return append(f, d...)
}

func TestSegmentsAndChecksums(t *testing.T) {
	f := tcp(mac(1), mac(0), 2500)
	cut := newSegments(f, 1000, 54)
	if cut.count != 3 {
		t.Fatalf("%d frames", cut.count)
	}
	got := [][]byte{cut.frame(0), cut.frame(1), cut.frame(2)}
	var data []byte
	for i, g := range got {
		fixChecksums(g)
		ip := g[14:]
		if sum(ip[:20], 0) != 0xffff {
			t.Errorf("frame %d: the IP checksum is wrong", i)
		}
		if sum(ip[20:], uint32(sum(ip[12:20], uint32(protoTCP+len(ip)-20)))) != 0xffff {
			t.Errorf("frame %d: the TCP checksum is wrong", i)
		}
		if seq := be.Uint32(ip[24:]); seq != uint32(100+1000*i) {
			t.Errorf("frame %d: sequence %d", i, seq)
		}
		if fin := ip[33]&1 != 0; fin != (i == 2) {
			t.Errorf("frame %d: FIN %v", i, fin)
		}
		data = append(data, g[54:]...)
	}
	if !bytes.Equal(data, f[54:]) {
		t.Error("the data differ")
	}
}

func TestEthernet(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	a, b := g[0], g[1]
	scq := a.newCQ()
	ring, dbr := a.alloc(pageSize), a.alloc(8)
	sq := a.create(opCreateSQ, 0x110+8, func(in []byte) {
		x := in[0x20:]
		sqcCqn.put(x, uint64(scq.num))
		putAll(x[0x30:], map[bits]uint64{wqPd: uint64(a.pd), wqDbrAddr: dbr, wqLogWqStride: 6, wqLogWqSz: logSQ})
		a.pages(in[0x110:], ring, 1)
	})
	a.must(opModifySQ, sq, 0x110, func(in []byte) { sqcState.put(in[0x20:], wqReady) })

	const room = 2048
	var cqs [2]*testCQ
	var rqs [2]uint32
	for i := range rqs {
		cqs[i] = b.newCQ()
		ring, dbr := b.alloc(pageSize), b.alloc(8)
		rqs[i] = b.create(opCreateRQ, 0x110+8, func(in []byte) {
			x := in[0x20:]
			rqcCqn.put(x, uint64(cqs[i].num))
			putAll(x[0x30:], map[bits]uint64{wqWqType: 1, wqPd: uint64(b.pd), wqDbrAddr: dbr, wqLogWqStride: 4,
				wqLogWqSz: 3})
			b.pages(in[0x110:], ring, 1)
		})
		b.must(opModifyRQ, rqs[i], 0x110, func(in []byte) { rqcState.put(in[0x20:], wqReady) })
		buf := b.alloc(8 * room)
		key := b.key(buf, 8*room, b.pd, mkcLw)
		for w := range uint64(8) {
			copy(b.mem[ring+16*w:], dataSeg(buf+room*w, key, room))
		}
		be.PutUint32(b.mem[dbr:], 8)
	}
	rqt := b.create(opCreateRQT, 0x110+8, func(in []byte) {
		rqtcRqtActualSize.put(in[0x20:], 2)
		be.PutUint32(in[0x110:], rqs[0])
		be.PutUint32(in[0x114:], rqs[1])
	})
	tir := b.create(opCreateTIR, 0x110, func(in []byte) {
		x := in[0x20:]
		putAll(x, map[bits]uint64{tircDispType: 1, tircIndirectTable: uint64(rqt), tircRxHashFn: 2})
		fill(x[0x28:0x50], 7)
		be.PutUint32(x[0x50:], hashSrcIP|hashDstIP|hashSrcPort|hashDstPort)
	})
	table := b.create(opCreateTable, 0x40, nil)
	root := b.create(opCreateTable, 0x40, func(in []byte) {
		in[0x18] = 1
		be.PutUint32(in[0x1c:], table)
	})
	b.must(opSetRoot, 0, 0x40, func(in []byte) { be.PutUint32(in[0x14:], root) })
	group := b.create(opCreateGroup, 0x400, func(in []byte) {
		be.PutUint32(in[0x14:], table)
		in[0x3f] = 1
		copy(in[0x48:], "\xff\xff\xff\xff\xff\xff")
	})
	b.must(opSetFlow, 0, 0x350, func(in []byte) {
		be.PutUint32(in[0x14:], table)
		be.PutUint32(in[0x44:], group)
		be.PutUint16(in[0x4e:], actionForward)
		be.PutUint32(in[0x50:], 1)
		m := mac(1)
		copy(in[0x88:], m[:])
		be.PutUint32(in[0x340:], destTIR<<24|tir)
	})

	at := a.alloc(4096)
	key := a.key(at, 4096, a.pd, mkcLr)
	used := map[int]int{}
	for port := range uint16(8) {
		f := tcp(mac(1), mac(0), 100)
		be.PutUint16(f[34:], port)
		copy(a.mem[at:], f)
		eth := make([]byte, 16)
		eth[4] = 0xc0
		w := a.mem[ring+64*uint64(port):][:64]
		clear(w)
		be.PutUint32(w, uint32(port)<<8|wqeSend)
		be.PutUint32(w[4:], sq<<8|3)
		w[11] = flagComplete
		copy(w[16:], eth)
		copy(w[32:], dataSeg(at, key, uint32(len(f))))
		be.PutUint32(a.mem[dbr+4:], uint32(port)+1)
		a.f.Write(vfiouser.RegionBAR0, a.uar+dbSend, be.AppendUint32(be.AppendUint32(nil, 0), sq<<8))
		if e := scq.wait(); e[63]>>4 != cqeRequest {
			t.Fatalf("completion %x", e)
		}
		fixChecksums(f)
		q := -1
		for end := time.Now().Add(time.Second); q < 0 && time.Now().Before(end); {
			for i, c := range cqs {
				if e := c.poll(); e != nil {
					q = i
					if n := be.Uint32(e[44:]); int(n) != len(f) || be.Uint16(e[20:]) != sum(f[14:], 0) {
						t.Errorf("completion %x", e)
					}
				}
			}
		}
		if q < 0 {
			t.Fatal("the frame did not arrive")
		}
		used[q]++
	}
	if len(used) != 2 {
		t.Errorf("queues were used so: %v", used)
	}
	b.p.Deliver(tcp(mac(5), mac(0), 10))
	if cqs[0].poll() != nil || cqs[1].poll() != nil {
		t.Error("a frame for another address was received")
	}
	out := b.must(opVPortCounter, 0, 0x20, nil)
	if n := be.Uint64(out[0x10+16*8:]); n != 8 {
		t.Errorf("%d unicast frames counted", n)
	}
}

func TestLayoutFields(t *testing.T) {
	b := make([]byte, 16)
	for _, f := range []bits{0<<8 | 64, 3<<8 | 5, 5<<8 | 24, 63<<8 | 1, 40<<8 | 16} {
		clear(b)
		v := uint64(0xdeadbeefcafef00d) & (1<<(f&0xff) - 1)
		f.put(b, v)
		if got := f.get(b); got != v {
			t.Errorf("%#x: %#x, want %#x", f, got, v)
		}
		f.put(b, 0)
		if !bytes.Equal(b, make([]byte, 16)) {
			t.Errorf("%#x: bits outside of the field: %x", f, b)
		}
	}
}

// A guest's table may forward each frame to itself many times, but the search must end.
func TestTablesThatLeadToThemselves(t *testing.T) {
	p := &Port{tables: newTables()}
	p.setFlowEntry(flowKey{Table: 1}, &flow{Action: actionForward,
		Dests: slices.Repeat([]uint32{destTable<<24 | 1}, maxDests)})
	p.Root = 1
	if out := p.steer(make([]byte, 60), nil); len(out) != 0 {
		t.Errorf("got %d targets, want none", len(out))
	}
}

func TestFlowsCountAndTagFrames(t *testing.T) {
	_, gs := newLab(t, 1, NIC{}, nil)
	g := gs[0]
	counter := g.create(opAllocFlowCounter, 16, nil)
	c := g.newCQ()
	ring, dbr := g.alloc(pageSize), g.alloc(8)
	rq := g.create(opCreateRQ, 0x1f0+8, func(in []byte) {
		rqcCqn.put(in[0x20:], uint64(c.num))
		w := in[0x50:]
		putAll(w, map[bits]uint64{wqWqType: 1, wqPd: uint64(g.pd), wqDbrAddr: dbr, wqLogWqStride: 4, wqLogWqSz: 4})
		g.pages(w[0xc0:], ring, 1)
	})
	g.must(opModifyRQ, rq, 0x110, func(in []byte) { rqcState.put(in[0x20:], wqReady) })
	data := g.alloc(pageSize)
	copy(g.mem[ring:], dataSeg(data, g.key(data, pageSize, g.pd, allRights...), 2048))
	be.PutUint32(g.mem[dbr:], 1)
	tir := g.create(opCreateTIR, 0x110, func(in []byte) { tircInlineRqn.put(in[0x20:], uint64(rq)) })
	table := g.create(opCreateTable, 0x40, nil)
	group := g.create(opCreateGroup, 0x400, func(in []byte) { be.PutUint32(in[0x14:], table) })
	g.must(opSetFlow, 0, 0x350, func(in []byte) {
		be.PutUint32(in[0x14:], table)
		be.PutUint32(in[0x44:], group)
		be.PutUint32(in[0x48:], 0x123)
		be.PutUint16(in[0x4e:], actionForward|actionCount)
		be.PutUint32(in[0x50:], 1)
		be.PutUint32(in[0x54:], 1)
		be.PutUint32(in[0x340:], destTIR<<24|tir)
		be.PutUint32(in[0x348:], counter)
	})
	g.must(opSetRoot, 0, 0x40, func(in []byte) { be.PutUint32(in[0x14:], table) })
	g.p.Deliver(make([]byte, 100))
	if e := c.wait(); e[63]>>4 != cqeSend || be.Uint32(e[56:]) != 0x123 {
		t.Errorf("completion %x, want the tag 0x123", e)
	}
	g.p.Deliver(make([]byte, 60)) // no receive is posted, but it is counted
	for _, want := range [][2]uint64{{2, 160}, {0, 0}} {
		out := g.must(opQueryFlowCounter, 0, 0x20, func(in []byte) {
			in[0x18] = 0x80 // clears it
			be.PutUint32(in[0x1c:], counter)
		})
		if got := [2]uint64{be.Uint64(out[0x10:]), be.Uint64(out[0x18:])}; got != want {
			t.Errorf("%d frames and bytes, want %d", got, want)
		}
	}
	in := make([]byte, 0x20)
	be.PutUint16(in, opQueryFlowCounter)
	be.PutUint32(in[0x1c:], counter+1)
	if st, _ := g.command(in, 0x20); st != badResource {
		t.Errorf("a counter that was not created: status %#x", st)
	}
	g.must(opDeallocFlowCounter, counter, 16, nil)
	g.p.Deliver(make([]byte, 60))
	if len(g.p.FlowCounters) != 0 {
		t.Error("the counter is left")
	}
}
