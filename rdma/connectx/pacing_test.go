package connectx

import (
	"testing"
	"time"
)

func TestASendQueueKeepsItsRate(t *testing.T) {
	_, gs := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	g := gs[0]
	rate := func(i uint16, kbits uint32) status {
		in := make([]byte, 0x20)
		be.PutUint16(in, opSetRate)
		be.PutUint16(in[10:], i)
		be.PutUint32(in[0x10:], kbits)
		st, _ := g.command(in, 16)
		return st
	}
	for i, want := range map[uint16]status{0: badParam, maxRates: badParam, 5: ok} {
		if st := rate(i, 8000); st != want {
			t.Errorf("rate %d: status %#x, want %#x", i, st, want)
		}
	}
	c := g.newCQ()
	ring, dbr := g.alloc(pageSize), g.alloc(8)
	sq := g.create(opCreateSQ, 0x1f0+8, func(in []byte) {
		sqcCqn.put(in[0x20:], uint64(c.num))
		sqcRate.put(in[0x20:], 5)
		w := in[0x50:]
		putAll(w, map[bits]uint64{wqWqType: 1, wqPd: uint64(g.pd), wqDbrAddr: dbr, wqLogWqStride: 6, wqLogWqSz: 4})
		g.pages(w[0xc0:], ring, 1)
	})
	g.must(opModifySQ, sq, 0x110, func(in []byte) { sqcState.put(in[0x20:], wqReady) })
	data := g.alloc(pageSize)
	key := g.key(data, pageSize, g.pd, allRights...)
	const frames, size = 9, 1000
	for i := range frames {
		w := g.mem[ring+uint64(i)*64:][:64]
		be.PutUint32(w, uint32(i)<<8|wqeSend)
		be.PutUint32(w[4:], sq<<8|3)
		w[11] = flagComplete
		copy(w[32:], dataSeg(data, key, size))
	}
	be.PutUint32(g.mem[dbr+4:], frames)
	start := time.Now()
	(&testQP{g: g, num: sq, si: frames}).ring1()
	for range frames {
		if e := c.wait(); e[63]>>4 != cqeRequest {
			t.Fatalf("completion %x", e)
		}
	}
	// 8 Mbit/s are 1 ms and a little for each frame. The first does not wait.
	if d := time.Since(start); d < (frames-2)*time.Millisecond {
		t.Errorf("%d frames took %v", frames, d)
	}
	if st := rate(5, 0); st != ok || len(g.p.Rates) != 0 {
		t.Errorf("a rate is not freed: status %#x", st)
	}
	g.must(opModifySQ, sq, 0x110, func(in []byte) {
		sqcState.put(in[0x20:], wqReady)
		in[0x17] = 1
	})
	if q := g.p.Queues[sq]; q.Rate != 0 {
		t.Errorf("the queue has rate %d", q.Rate)
	}
}
