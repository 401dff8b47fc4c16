package connectx

import (
	"fmt"
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

func (q *testQP) member(op uint16, group [16]byte) {
	q.g.t.Helper()
	q.g.must(op, q.num, 0x20, func(in []byte) { copy(in[0x10:], group[:]) })
}

// A sender that is a member gets its own packets unless it was created with block_lb_mc.
func TestMulticastReachesMembersOnTheSendersAdapter(t *testing.T) {
	group, groupMAC := [16]byte{10: 0xff, 11: 0xff, 12: 239, 15: 1}, [6]byte{0x01, 0, 0x5e, 0, 0, 1}
	for _, v1 := range []bool{false, true} {
		for _, block := range []bool{false, true} {
			t.Run(fmt.Sprintf("v1 %v, block %v", v1, block), func(t *testing.T) {
				frames := 0
				_, g := newLab(t, 2, NIC{}, func([]byte) bool { frames++; return false })
				change := map[bits]uint64{qpcSt: serviceUD}
				if block {
					change[qpcBlockLbMc] = 1
				}
				sender := g[0].qpWith(change)
				g[0].v1, g[1].v1 = v1, v1
				all := []*testQP{sender, g[0].newQP(serviceUD), g[0].newQP(serviceUD), g[1].newQP(serviceUD),
					g[0].newQP(serviceUD)}
				for i, q := range all {
					adapter := 0
					if q.g == g[1] {
						adapter = 1
					}
					at := q.g.alloc(4096)
					q.connect(adapter, 1, 0, nil)
					q.recv(q.g.anyKey(at, 4096), at, 4096)
					if i < 4 {
						q.member(opAttachMcast, group)
					}
				}
				at := g[0].alloc(4096)
				key := g[0].anyKey(at, 4096)
				sender.send(testWQE{op: wqeSend, segs: [][]byte{datagramSeg(0xffffff, groupMAC, group),
					dataSeg(at, key, 100)}})
				if e := sender.cq.wait(); e[63]>>4 != cqeRequest {
					t.Fatalf("the request's completion is %x", e)
				}
				for i := len(all) - 2; i >= 0; i-- {
					if i == 0 && block {
						continue
					}
					if e := all[i].cq.wait(); e[63]>>4 != cqeSend || be.Uint32(e[24:])&0xffffff != sender.num {
						t.Errorf("queue %d: completion %x", i, e)
					}
				}
				for i, q := range all {
					if e := q.cq.poll(); e != nil {
						t.Errorf("queue %d: completion %x, want no more", i, e)
					}
				}
				if frames != 1 {
					t.Errorf("%d frames on the cable, want 1", frames)
				}
			})
		}
	}
}

func TestGroupsAreLimitedAndSaved(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	q := a.newQP(serviceUD)
	attach := func(op uint16, id uint32, group byte) status {
		in := make([]byte, 0x20)
		be.PutUint16(in, op)
		be.PutUint32(in[8:], id)
		in[0x10], in[0x1f] = 0xff, group
		st, _ := a.command(in, 16)
		return st
	}
	if st := attach(opAttachMcast, a.newQP(serviceRC).num, 1); st != badResource {
		t.Errorf("a connected queue: status %#x", st)
	}
	if st := attach(opAttachMcast, q.num+100, 1); st != badResource {
		t.Errorf("no queue: status %#x", st)
	}
	a.p.lock()
	objects := a.p.objects()
	for n := range uint32(maxMembers) {
		m := mcast{[16]byte{0: 0xff, 15: 1}, 1<<20 + n}
		a.p.Mcast[m] = true
		a.p.join(m)
	}
	if n := a.p.objects() - objects; n != maxMembers {
		t.Errorf("%d objects for %d members", n, maxMembers)
	}
	a.p.unlock()
	if st := attach(opAttachMcast, q.num, 1); st != limit {
		t.Errorf("a full group: status %#x", st)
	}
	for range 2 {
		if st := attach(opAttachMcast, q.num, 2); st != ok {
			t.Errorf("another group: status %#x", st)
		}
	}
	state, err := a.p.Save()
	if err != nil {
		t.Fatal(err)
	}
	_, g = newLab(t, 1, NIC{}, nil)
	if err := g[0].p.Restore(state); err != nil {
		t.Fatal(err)
	}
	for i, p := range []*Port{a.p, g[0].p} {
		p.lock()
		one, two := p.groups[roce.GID{0: 0xff, 15: 1}], p.groups[roce.GID{0: 0xff, 15: 2}]
		p.unlock()
		if len(one) != maxMembers || len(two) != 1 || two[0] != q.num {
			t.Errorf("port %d: %d and %d members", i, len(one), len(two))
		}
	}
	for range 2 {
		if st := attach(opDetachMcast, q.num, 2); st != ok {
			t.Errorf("detached: status %#x", st)
		}
	}
	if a.p.groups[roce.GID{0: 0xff, 15: 2}] != nil || len(a.p.Mcast) != maxMembers {
		t.Error("a queue that has left is a member")
	}
}
