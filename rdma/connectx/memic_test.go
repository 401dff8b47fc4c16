package connectx

import (
	"bytes"
	"testing"

	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
)

// memic runs ALLOC_MEMIC or DEALLOC_MEMIC.
func (g *guest) memic(op uint16, start, room, size uint64) status {
	in := make([]byte, 0x20)
	be.PutUint16(in, op)
	be.PutUint64(in[0x10:], start)
	be.PutUint32(in[0x18:], uint32(room))
	be.PutUint32(in[0x1c:], uint32(size))
	st, _ := g.command(in, 0x10)
	return st
}

func (g *guest) memicKey(start, n uint64) uint32 {
	i := g.create(opCreateKey, 0x110, func(in []byte) {
		putAll(in[0x10:], map[bits]uint64{mkcAccessMode42: modeMEMIC >> 2, mkcAccessMode10: modeMEMIC & 3, mkcLr: 1,
			mkcLw: 1, mkcRr: 1, mkcRw: 1, mkcA: 1, mkcPd: uint64(g.pd), mkcStartAddr: start, mkcLen: n,
			mkcQpn: anyQP, mkcMkey70: 7})
	})
	return i<<8 | 7
}

// Device memory is written by the program through the BAR, and by queues through a key whose addresses count from 0.
func TestDeviceMemory(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{Model: ConnectX5}, nil)
		s.SetDirect(direct)
		qa, qb := pair(g[0], g[1], serviceRC, nil)
		const n = 8192
		start := uint64(memicBase + pageSize)
		if st := g[0].memic(opAllocMemic, start, n, n); st != ok {
			t.Fatalf("ALLOC_MEMIC: status %#x", st)
		}
		key := g[0].memicKey(start, n)
		want := make([]byte, n)
		fill(want, 3)
		for i := 0; i < n; i += 8 {
			g[0].f.Write(vfiouser.RegionBAR0, start+uint64(i), want[i:i+8])
		}
		to := g[1].alloc(n)
		remote := g[1].anyKey(to, n)
		qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, remote), dataSeg(0, key, n)}})
		if st := statusOf(qa.cq.wait()); st != roce.OK || !bytes.Equal(g[1].mem[to:to+n], want) {
			t.Fatalf("direct %v: a write from device memory: status %#x", direct, st)
		}
		fill(g[1].mem[to:to+100], 9)
		qb.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(64, key), dataSeg(to, remote, 100)}})
		if st := statusOf(qb.cq.wait()); st != roce.OK {
			t.Fatalf("direct %v: a write to device memory: status %#x", direct, st)
		}
		copy(want[64:], g[1].mem[to:to+100])
		got := make([]byte, n)
		for i := 0; i < n; i += 8 {
			if !g[0].f.ReadNow(vfiouser.RegionBAR0, start+uint64(i), got[i:i+8]) {
				t.Fatal("the guest waits for its read")
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("direct %v: the BAR has other bytes", direct)
		}
		qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, remote), dataSeg(n-8, key, 16)}})
		if st := statusOf(qa.cq.wait()); st != roce.LocalProtection {
			t.Errorf("direct %v: beyond the end: status %#x", direct, st)
		}
		// A key does not outlive its memory, and the next program finds zeros.
		if st := g[0].memic(opDeallocMemic, start, 0, n); st != ok {
			t.Errorf("DEALLOC_MEMIC: status %#x", st)
		}
		if st := g[0].memic(opAllocMemic, start, n, n); st != ok {
			t.Errorf("ALLOC_MEMIC again: status %#x", st)
		}
		if g[0].f.ReadNow(vfiouser.RegionBAR0, start, got); !bytes.Equal(got, make([]byte, n)) {
			t.Error("freed memory keeps its bytes")
		}
	}
}

func TestDeviceMemoryIsLimited(t *testing.T) {
	_, g := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	a := g[0]
	if st := a.memic(opAllocMemic, memicBase, maxMemic, maxMemic-64); st != ok {
		t.Fatalf("status %#x", st)
	}
	for name, c := range map[string]struct {
		start, room, size uint64
		want              status
	}{
		"in use":                {memicBase + pageSize, pageSize, 64, badResource},
		"more than there is":    {memicBase + maxMemic, pageSize, 128, limit},
		"nothing":               {memicBase + maxMemic, pageSize, 0, badParam},
		"not whole units":       {memicBase + maxMemic, pageSize, 63, badParam},
		"before the memory":     {memicBase - pageSize, pageSize, 64, badParam},
		"beyond the BAR":        {barSize - pageSize, 2 * pageSize, 64, badParam},
		"larger than its pages": {memicBase + maxMemic, 64, 128, badParam},
		"inside a page":         {memicBase + maxMemic + 64, pageSize, 64, badParam},
	} {
		if st := a.memic(opAllocMemic, c.start, c.room, c.size); st != c.want {
			t.Errorf("%s: status %#x, want %#x", name, st, c.want)
		}
	}
	if st := a.memic(opAllocMemic, memicBase+maxMemic, pageSize, 64); st != ok {
		t.Errorf("the last unit: status %#x", st)
	}
	if st := a.memic(opDeallocMemic, memicBase+pageSize, 0, 64); st != badResource {
		t.Errorf("freed what is not there: status %#x", st)
	}
	_, old := newLab(t, 1, NIC{Model: ConnectX4Lx}, nil)
	if st := old[0].memic(opAllocMemic, memicBase, pageSize, 64); st != badParam {
		t.Errorf("a ConnectX-4 Lx: status %#x", st)
	}
}
