package connectx

import (
	"bytes"
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

// RoCE v1 sends EtherType 0x8915, and peers of different versions do not hear each other, as on a card.
func TestAddressesOfRoCEV1(t *testing.T) {
	for _, c := range []struct {
		name   string
		v1     [2]bool
		vlan   uint16
		status roce.Status
	}{
		{"v1", [2]bool{true, true}, 0, roce.OK},
		{"v1 with a tag", [2]bool{true, true}, 7, roce.OK},
		{"v1 to v2", [2]bool{true, false}, 0, roce.RetryExceeded},
		{"v2 to v1", [2]bool{false, true}, 0, roce.RetryExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			var counted [2]tally
			for i, direct := range []bool{true, false} {
				frames := 0
				s, g := newLab(t, 2, NIC{}, func(f []byte) bool {
					frames++
					kind := be.Uint16(f[12:])
					if c.vlan != 0 {
						kind = be.Uint16(f[16:])
					}
					if v1 := kind == 0x8915; v1 != c.v1[f[11]-1] {
						t.Errorf("EtherType %#x", kind)
					}
					return false
				})
				s.SetDirect(direct)
				for i := range g {
					g[i].v1, g[i].vlan = c.v1[i], c.vlan
				}
				qa, _ := pair(g[0], g[1], serviceRC, nil)
				const n = 10000
				at, to := g[0].alloc(n), g[1].alloc(n)
				fill(g[0].mem[at:at+n], 1)
				qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, g[1].anyKey(to, n)),
					dataSeg(at, g[0].anyKey(at, n), n)}})
				if st := statusOf(qa.cq.wait()); st != c.status {
					t.Fatalf("direct %v: status %#x, want %#x", direct, st, c.status)
				}
				arrived := bytes.Equal(g[0].mem[at:at+n], g[1].mem[to:to+n])
				if arrived != (c.status == roce.OK) || frames == 0 && !(direct && arrived) {
					t.Errorf("direct %v: arrived %v, %d frames", direct, arrived, frames)
				}
				g[0].p.lock()
				_, counted[i] = g[0].p.rdma()
				g[0].p.unlock()
			}
			if c.status == roce.OK && counted[0] != counted[1] {
				t.Errorf("%+v copied, %+v on the wire", counted[0], counted[1])
			}
		})
	}
}

func TestDatagramOfRoCEV1(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	g[0].v1, g[1].v1 = true, true
	qa, qb := pair(g[0], g[1], serviceUD, nil)
	at, to := g[0].alloc(4096), g[1].alloc(4096)
	qb.recv(g[1].anyKey(to, 4096), to, 4096)
	qa.send(testWQE{op: wqeSend, segs: [][]byte{datagramSeg(qb.num, mac(1), gidOf(1)),
		dataSeg(at, g[0].anyKey(at, 4096), 100)}})
	e := qb.cq.wait()
	if flags := be.Uint32(e[24:]) >> 24; statusOf(e) != roce.OK || flags != 0x10 || be.Uint32(e[44:]) != 140 {
		t.Errorf("completion %x", e)
	}
	if src := gidOf(0); g[1].mem[to+6] != 0x1b || !bytes.Equal(g[1].mem[to+8:to+24], src[:]) {
		t.Errorf("the buffer begins %x", g[1].mem[to:to+40])
	}
}

// datagramSeg (struct mlx5_av) has row 3 of the GIDs as its source.
func datagramSeg(qpn uint32, to [6]byte, gid [16]byte) []byte {
	av := make([]byte, avSize)
	be.PutUint32(av, 0x77)
	be.PutUint32(av[8:], 1<<31|qpn)
	copy(av[20:], to[:])
	be.PutUint32(av[28:], 1<<30|3<<20)
	copy(av[32:], gid[:])
	return av
}
