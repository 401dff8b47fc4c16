package connectx

import (
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

func (c *testCQ) resize(log uint64, entries uint64) (st status, ring uint64) {
	g := c.g
	ring = g.alloc(64 * entries)
	in := make([]byte, 0x110+8*(max(entries*64/pageSize, 1)))
	be.PutUint16(in, opModifyCQ)
	be.PutUint16(in[6:], 1)
	be.PutUint32(in[8:], c.num)
	cqcLogCqSize.put(in[0x10:], log)
	g.pages(in[0x110:], ring, (len(in)-0x110)/8)
	st, _ = g.command(in, 16)
	return st, ring
}

// A resized queue goes on in the new ring with the next index, as libmlx5 expects.
func TestCompletionQueuesAreResized(t *testing.T) {
	for _, log := range []uint64{logCQ - 3, logCQ + 2} {
		_, g := newLab(t, 2, NIC{}, nil)
		a := g[0]
		q, _ := pair(g[0], g[1], serviceRC, nil)
		q.send(testWQE{op: wqeNop}, testWQE{op: wqeNop})
		q.cq.wait()
		q.cq.wait()
		q.send(testWQE{op: wqeNop}, testWQE{op: wqeNop}, testWQE{op: wqeNop})
		q.cq.wait()
		q.cq.wait()
		q.cq.wait()
		q.cq.ci -= 1
		be.PutUint32(a.mem[q.cq.dbr:], q.cq.ci)
		if st, _ := q.cq.resize(0, 1); st != badCQSize {
			t.Errorf("to one entry: status %#x", st)
		}
		if st, _ := q.cq.resize(maxEventLog+1, 1); st != limit {
			t.Errorf("to %d entries: status %#x", 1<<(maxEventLog+1), st)
		}
		if st, _ := q.cq.resize(16, 1); st != badParam {
			t.Errorf("with too few pages: status %#x", st)
		}
		st, ring := q.cq.resize(log, 1<<log)
		if st != ok {
			t.Fatalf("to %d entries: status %#x", 1<<log, st)
		}
		if e := q.cq.poll(); e == nil || e[63]>>4 != cqeRequest {
			t.Errorf("the waiting entry is %x", e)
		}
		mark := q.cq.poll()
		if mark == nil || mark[63]>>4 != cqeResize {
			t.Fatalf("the old ring ends with %x", mark)
		}
		for i := range uint64(1 << log) {
			a.mem[ring+64*i+63] = 0xf1
		}
		q.send(testWQE{op: wqeNop})
		at := a.mem[ring+uint64(q.cq.ci&(1<<log-1))*64:][:64]
		if at[63]>>4 != cqeRequest || uint32(at[63]&1) != q.cq.ci>>log&1 {
			t.Errorf("entry %d of the new ring is %x", q.cq.ci, at)
		}
		a.p.lock()
		if c := a.p.CQs[q.cq.num]; uint64(c.Log) != log || a.p.NPages != a.p.charged() {
			t.Errorf("log %d, %d pages charged, want %d", c.Log, a.p.NPages, a.p.charged())
		}
		a.p.unlock()
		x := a.must(opQueryCQ, q.cq.num, 16, nil)[0x10:]
		if n := cqcLogCqSize.get(x); n != log {
			t.Errorf("the query says 2^%d entries", n)
		}
	}
}

// A full queue has no place for the mark, and one that ignores overruns always has.
func TestAFullCompletionQueueIsNotResized(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	c := g[0].newCQ()
	g[0].p.lock()
	g[0].p.CQs[c.num].PI = 1 << logCQ
	pages := g[0].p.NPages
	g[0].p.unlock()
	if st, _ := c.resize(logCQ+1, 1<<(logCQ+1)); st != badResource || g[0].p.NPages != pages {
		t.Errorf("status %#x, %d pages charged", st, g[0].p.NPages-pages)
	}
	g[0].p.lock()
	g[0].p.CQs[c.num].Overrun = true
	g[0].p.unlock()
	if st, _ := c.resize(logCQ+1, 1<<(logCQ+1)); st != ok {
		t.Errorf("ignoring overruns: status %#x", st)
	}
}

func TestLimitOfASharedQueueIsReadBack(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	dbr, ring := a.alloc(8), a.alloc(pageSize)
	rmp := a.create(opCreateRMP, 0x110+8, func(in []byte) {
		w := in[0x50:]
		putAll(w, map[bits]uint64{wqPd: uint64(a.pd), wqDbrAddr: dbr, wqLogWqStride: 5, wqLogWqSz: 5})
		a.pages(w[0xc0:], ring, 1)
	})
	srq := a.create(opCreateXSRQ, 0x110+8, func(in []byte) {
		putAll(in[0x10:], map[bits]uint64{xsrqLogXrcSrqSize: 5, xsrqLogRqStride: 1, xsrqPd: uint64(a.pd),
			xsrqDbRecordAddrL: dbr >> 2})
		a.pages(in[0x110:], ring, 1)
	})
	for _, c := range []struct {
		name       string
		num        uint32
		arm, query uint16
		at         int
		lwm        bits
	}{
		{"RMP", rmp, opModifyRMP, opQueryRMP, 0x50, wqLwm}, {"RMP by ARM_RQ", rmp, opArmRQ, opQueryRMP, 0x50, wqLwm},
		{"SRQ", srq, opArmXSRQ, opQueryXSRQ, 0x10, xsrqLwm},
	} {
		read := func() uint64 { return c.lwm.get(a.must(c.query, c.num, 16, nil)[c.at:]) }
		if n := read(); n != 0 {
			t.Errorf("%s: the limit is %d at the start", c.name, n)
		}
		be.PutUint32(a.mem[dbr:], 0)
		a.p.lock()
		a.p.Queues[c.num].RI = 0
		a.p.unlock()
		a.must(c.arm, c.num, 0x110, func(in []byte) {
			if c.arm == opModifyRMP { // as mlx5_ib does
				in[0x17] = 1
				wqLwm.put(in[0x50:], 7)
			} else {
				be.PutUint16(in[14:], 7)
			}
		})
		if n := read(); n != 7 {
			t.Errorf("%s: the limit is %d, want 7", c.name, n)
		}
		be.PutUint32(a.mem[dbr:], 1)
		a.p.lock()
		a.p.Queues[c.num].Head = 0
		var wr roce.RecvWR
		a.p.nextRecv(a.p.Queues[c.num], &wr)
		a.p.belowLimit(a.p.Queues[c.num])
		a.p.unlock()
		if n := read(); n != 0 {
			t.Errorf("%s: the limit is %d after its event", c.name, n)
		}
		in := make([]byte, 16)
		be.PutUint16(in, opQueryRQ)
		be.PutUint32(in[8:], c.num)
		if st, _ := a.command(in, 0x100); st != badResource {
			t.Errorf("%s: queried as an RQ: status %#x", c.name, st)
		}
	}
}

// The driver shows them as a port's Q_Key violations.
func TestQKeyViolationsAreCounted(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	qa, qb := pair(g[0], g[1], serviceUD, nil)
	at := g[0].alloc(4096)
	av := datagramSeg(qb.num, mac(1), gidOf(1))
	be.PutUint32(av, 0x78)
	qa.send(testWQE{op: wqeSend, segs: [][]byte{av, dataSeg(at, g[0].anyKey(at, 64), 64)}})
	qa.cq.wait()
	for range 100 {
		x := g[1].must(opQueryContext, 0, 16, nil)[0x10:]
		if vportQkeyViolations.get(x) == 1 {
			return
		}
	}
	t.Error("no violation is counted")
}

// In entries of 128 bytes, also padded ones, the second half is the CQE.
func TestWideCompletions(t *testing.T) {
	_, g := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	a := g[0]
	caps := a.must(0x100, 0, 16, nil)[0x10:]
	// mini_cqe_resp_stride_index, cqe_128_always, cqe_compression_128 and cqe_compression, and at most 64 in a row
	if caps[0xb7]&0xf != 0xf || be.Uint16(caps[0xba:]) != 64 {
		t.Errorf("capabilities %x", caps[0xb4:0xbc])
	}
	for size := range uint64(3) {
		ring, dbr := a.alloc(pageSize), a.alloc(8)
		n := a.create(opCreateCQ, 0x110+8, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{cqcCqeSz: size, cqcLogCqSize: 4, cqcDbrAddr: dbr,
				cqcCEqnOrApuElement: uint64(a.eq)})
			a.pages(in[0x110:], ring, 1)
		})
		a.p.lock()
		for range 2 {
			a.p.complete(a.p.CQs[n], &[64]byte{60: 0x12, 0x34}, false)
		}
		a.p.unlock()
		at := ring + 64
		if size > 0 {
			at = ring + 128 + 64
		}
		if a.mem[at+60] != 0x12 || a.mem[at+61] != 0x34 || size > 0 && a.mem[ring+128+60] != 0 {
			t.Errorf("cqe_sz %d: the second entry is not at %#x", size, at-ring)
		}
	}
}
