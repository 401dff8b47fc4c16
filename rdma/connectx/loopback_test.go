package connectx

import (
	"testing"

	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
)

// A rawSender is a send queue of Ethernet frames.
type rawSender struct {
	g         *guest
	num       uint32
	cq        *testCQ
	ring, dbr uint64
	at        uint64 // of the frame
	key       uint32
	si        uint16
}

// newRawSender makes a send queue in a transport domain.
func (g *guest) newRawSender(domain uint32) *rawSender {
	s := &rawSender{g: g, cq: g.newCQ(), ring: g.alloc(pageSize), dbr: g.alloc(8), at: g.alloc(pageSize)}
	tis := g.create(opCreateTIS, 0xc0, func(in []byte) { tiscDomain.put(in[0x20:], uint64(domain)) })
	s.num = g.create(opCreateSQ, 0x110+8, func(in []byte) {
		x := in[0x20:]
		putAll(x, map[bits]uint64{sqcCqn: uint64(s.cq.num), sqcTis: uint64(tis)})
		putAll(x[0x30:], map[bits]uint64{wqPd: uint64(g.pd), wqDbrAddr: s.dbr, wqLogWqStride: 6, wqLogWqSz: logSQ})
		g.pages(in[0x110:], s.ring, 1)
	})
	g.must(opModifySQ, s.num, 0x110, func(in []byte) { sqcState.put(in[0x20:], wqReady) })
	s.key = g.key(s.at, pageSize, g.pd, mkcLr)
	return s
}

func (s *rawSender) send(f []byte) {
	s.g.t.Helper()
	copy(s.g.mem[s.at:], f)
	w := s.g.mem[s.ring+64*uint64(s.si&(1<<logSQ-1)):][:64]
	clear(w)
	be.PutUint32(w, uint32(s.si)<<8|wqeSend)
	be.PutUint32(w[4:], s.num<<8|3)
	w[11] = flagComplete
	copy(w[32:], dataSeg(s.at, s.key, uint32(len(f))))
	s.si++
	be.PutUint32(s.g.mem[s.dbr+4:], uint32(s.si))
	s.g.f.Write(vfiouser.RegionBAR0, s.g.uar+dbSend, be.AppendUint32(be.AppendUint32(nil, 0), s.num<<8))
	if e := s.cq.wait(); e[63]>>4 != cqeRequest {
		s.g.t.Fatalf("completion %x", e)
	}
}

// newRawReceiver makes a receive queue behind a TIR of a transport domain, and has all frames of a table go there.
func (g *guest) newRawReceiver(domain uint32, self uint64) (cq *testCQ, tir uint32) {
	cq = g.newCQ()
	ring, dbr, buf := g.alloc(pageSize), g.alloc(8), g.alloc(8*2048)
	rq := g.create(opCreateRQ, 0x110+8, func(in []byte) {
		x := in[0x20:]
		rqcCqn.put(x, uint64(cq.num))
		putAll(x[0x30:], map[bits]uint64{wqWqType: 1, wqPd: uint64(g.pd), wqDbrAddr: dbr, wqLogWqStride: 4,
			wqLogWqSz: 3})
		g.pages(in[0x110:], ring, 1)
	})
	g.must(opModifyRQ, rq, 0x110, func(in []byte) { rqcState.put(in[0x20:], wqReady) })
	key := g.key(buf, 8*2048, g.pd, mkcLw)
	for w := range uint64(8) {
		copy(g.mem[ring+16*w:], dataSeg(buf+2048*w, key, 2048))
	}
	be.PutUint32(g.mem[dbr:], 8)
	tir = g.create(opCreateTIR, 0x110, func(in []byte) {
		putAll(in[0x20:], map[bits]uint64{tircInlineRqn: uint64(rq), tircDomain: uint64(domain), tircSelfLb: self})
	})
	return cq, tir
}

// rootTo makes a root table of which all frames go to the TIRs.
func (g *guest) rootTo(tirs ...uint32) {
	table := g.create(opCreateTable, 0x40, nil)
	g.must(opSetRoot, 0, 0x40, func(in []byte) { be.PutUint32(in[0x14:], table) })
	group := g.create(opCreateGroup, 0x400, func(in []byte) { be.PutUint32(in[0x14:], table) })
	g.must(opSetFlow, 0, 0x350, func(in []byte) {
		be.PutUint32(in[0x14:], table)
		be.PutUint32(in[0x44:], group)
		be.PutUint16(in[0x4e:], actionForward)
		be.PutUint32(in[0x50:], uint32(len(tirs)))
		for i, tir := range tirs {
			be.PutUint32(in[0x340+8*i:], destTIR<<24|tir)
		}
	})
}

// With loopback on, a raw packet reaches the other programs of its own node, which are other transport domains: so a
// multicast does, which also goes out, and what is for the adapter's own address, which does not.
func TestRawPacketsReachOtherProgramsOfTheNode(t *testing.T) {
	group := [6]byte{0x01, 0x50, 0x56, 0x19, 0x20, 0xa7}
	for _, c := range []struct {
		name                   string
		to                     [6]byte
		off                    bits // loopback that the driver has switched off, or 0
		self                   uint64
		others, own, wire, far int
	}{
		{name: "a multicast", to: group, others: 1, wire: 1},
		{name: "a multicast, loopback off", to: group, off: vportNoMcLb, wire: 1},
		{name: "a multicast, own domain too", to: group, self: selfMulticast, others: 1, own: 1, wire: 1},
		{name: "own address", to: mac(0), others: 1},
		{name: "own address, loopback off", to: mac(0), off: vportNoUcLb},
		{name: "own address, own domain too", to: mac(0), self: selfUnicast, others: 1, own: 1},
		{name: "own address, own domain for multicasts", to: mac(0), self: selfMulticast, others: 1},
		{name: "another address", to: mac(1), wire: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			frames := 0
			_, g := newLab(t, 2, NIC{}, func([]byte) bool { frames++; return false })
			a := g[0]
			s := a.newRawSender(1)
			own, ownTIR := a.newRawReceiver(1, 0)
			others, otherTIR := a.newRawReceiver(2, 0)
			a.rootTo(ownTIR, otherTIR)
			if c.self != 0 { // as mlx5e sets it for ethtool -t
				a.must(opModifyTIR, ownTIR, 0x110, func(in []byte) {
					in[0x17] = tirLoopback
					tircSelfLb.put(in[0x20:], c.self)
				})
			}
			if c.off != 0 {
				a.must(opModifyContext, 0, 0x200, func(in []byte) {
					be.PutUint32(in[0xc:], 1<<10|1<<11)
					c.off.put(in[0x100:], 1)
				})
			}
			f := tcp(c.to, mac(0), 100)
			s.send(f)
			for _, q := range []struct {
				name string
				cq   *testCQ
				want int
			}{{"other domain", others, c.others}, {"own domain", own, c.own}} {
				got := 0
				for e := q.cq.poll(); e != nil; e = q.cq.poll() {
					if got++; int(be.Uint32(e[44:])) != len(f) || statusOf(e) != roce.OK {
						t.Errorf("%s: completion %x", q.name, e)
					}
				}
				if got != q.want {
					t.Errorf("%s: %d frames, want %d", q.name, got, q.want)
				}
			}
			if frames != c.wire {
				t.Errorf("%d frames on the wire, want %d", frames, c.wire)
			}
		})
	}
}
