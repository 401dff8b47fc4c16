package connectx

import (
	"bytes"
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

// By the key of a null region zeros are read, and what is written is dropped; peers cannot use it.
func TestTheKeyOfNullRegions(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{Model: ConnectX5}, nil)
		s.SetDirect(direct)
		if out := g[0].must(opQuerySpecial, 0, 16, nil); be.Uint32(out[8:]) != fillKey {
			t.Fatalf("the key is %#x", be.Uint32(out[8:]))
		}
		qa, qb := pair(g[0], g[1], serviceRC, nil)
		const n = 100 << 10
		at := g[1].alloc(n)
		fill(g[1].mem[at:at+n], 1)
		key := g[1].anyKey(at, n)
		qa.send(testWQE{op: wqeRead, segs: [][]byte{remoteSeg(at, key), dataSeg(0, fillKey, n)}},
			testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(at, key), dataSeg(0x1000, fillKey, n)}})
		for range 2 {
			if st := statusOf(qa.cq.wait()); st != roce.OK {
				t.Fatalf("direct %v: status %#x", direct, st)
			}
		}
		if !bytes.Equal(g[1].mem[at:at+n], make([]byte, n)) {
			t.Errorf("direct %v: what arrives are no zeros", direct)
		}
		qb.recv(fillKey, 0, n)
		own := g[0].alloc(n)
		qa.send(testWQE{op: wqeSend, segs: [][]byte{dataSeg(own, g[0].anyKey(own, n), n)}})
		if st := statusOf(qb.cq.wait()); st != roce.OK {
			t.Errorf("direct %v: a receive by it: status %#x", direct, st)
		}
		if st := statusOf(qa.cq.wait()); st != roce.OK {
			t.Errorf("direct %v: a send to it: status %#x", direct, st)
		}
		qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(0, fillKey), dataSeg(own, g[0].anyKey(own, n), 100)}})
		if st := statusOf(qa.cq.wait()); st != roce.RemoteDenied {
			t.Errorf("direct %v: the peer's: status %#x", direct, st)
		}
	}
	_, g := newLab(t, 1, NIC{Model: ConnectX4Lx}, nil)
	if out := g[0].must(opQuerySpecial, 0, 16, nil); be.Uint32(out[8:]) != 0 {
		t.Errorf("a ConnectX-4 Lx has the key %#x", be.Uint32(out[8:]))
	}
}
