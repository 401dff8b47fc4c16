package connectx

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

func FuzzCommand(f *testing.F) {
	_, gs := newLab(f, 1, NIC{Model: ConnectX5}, nil)
	g := gs[0]
	start := func() {
		d := g.program()
		d.keyOf(d.umem(g.alloc(pageSize), pageSize, umemAll), 0, 0, pageSize, allRights...)
		d.queues(serviceRC)
	}
	start()
	for op := range commands {
		f.Add(op, uint16(0), uint32(1), []byte{1, 2, 3}, uint32(300), uint32(300))
	}
	// The top byte of the number is the uid, of which 1 is a program's.
	for op := range userCommands {
		f.Add(op, uint16(0), uint32(1<<24|1), []byte{1, 2, 3}, uint32(300), uint32(300))
	}
	umem := make([]byte, 0x38)
	putAll(umem[4:], map[bits]uint64{umemNumOfMtt: 1})
	f.Add(uint16(opCreateUmem), uint16(0), uint32(1<<24), umem, uint32(0x38), uint32(16))
	for _, fields := range []map[bits]uint64{{createQPUmemValid: 1, createQPUmemId: 1},
		{createCQUmemValid: 1, createCQUmemId: 1}, {createKeyUmemValid: 1, createKeyUmemId: 1}} {
		in := make([]byte, 0x110)
		putAll(in, fields)
		for _, op := range []uint16{opCreateQP, opCreateCQ, opCreateKey, opModifyCQ} {
			f.Add(op, uint16(0), uint32(1<<24), in[12:], uint32(0x110), uint32(16))
		}
	}
	for _, reg := range []uint32{regPFCC, regQPTS, regQPDPM, regQTCT, regQETCR, regQCAM} {
		f.Add(uint16(opAccessReg), uint16(0), reg, bytes.Repeat([]byte{0xff}, 200), uint32(0x110), uint32(0x110))
	}
	f.Add(uint16(opCreateQP), uint16(0), uint32(0), make([]byte, 0x120), uint32(0x140), uint32(16))
	resize := make([]byte, 0x110)
	cqcLogCqSize.put(resize[4:], 5)
	f.Add(uint16(opModifyCQ), uint16(1), uint32(0x400), resize, uint32(0x118), uint32(16))
	f.Add(uint16(opManagePages), uint16(2), uint32(0), []byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, uint32(16),
		uint32(8))
	f.Fuzz(func(t *testing.T, op, mod uint16, id uint32, body []byte, inLen, outLen uint32) {
		if len(body) > 2048 {
			return
		}
		g.t = t
		in := make([]byte, 12+len(body))
		binary.BigEndian.PutUint16(in, op)
		be.PutUint16(in[2:], uint16(id>>24))
		be.PutUint16(in[6:], mod)
		be.PutUint32(in[8:], id)
		copy(in[12:], body)
		g.post(in, int(inLen), int(outLen))
		// A circle.
		be.PutUint64(g.mem[inBoxes+1024*3+mailNext:], inBoxes+1024*3)
		g.write32(segDoorbell, 1)
		if st, _ := g.answer(16); st == 0xff {
			t.Errorf("command %#x got no answer", op)
		}
		if op == opTeardownHCA || g.p.objects() > 1000 {
			g.f.Reset()
			g.boot()
			start()
		}
	})
}

func FuzzWQE(f *testing.F) {
	s, g := newLab(f, 2, NIC{}, nil)
	qa, qb := pair(g[0], g[1], serviceRC, nil)
	ua, ub := pair(g[0], g[1], serviceUD, nil)
	xa, xb := pair(g[0], g[1], serviceXRC, nil)
	at, to := g[0].alloc(4096), g[1].alloc(4096)
	ka, kb := g[0].key(at, 4096, g[0].pd, allRights...), g[1].key(to, 4096, g[1].pd, allRights...)
	for op := range operations {
		b := []byte{0, 0, 0, op, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 0}
		b = append(append(b, remoteSeg(to, kb)...), dataSeg(at, ka, 64)...)
		f.Add(b, byte(0), true)
		f.Add(b, byte(2), false)
	}
	// Regions without pages, of the sender and of the receiver.
	var absent [2]uint32
	for i, g := range g {
		g.faultQueue()
		absent[i] = g.absentKey(g.umrQueue(), 0x10000, 4)
	}
	for _, op := range []byte{wqeWrite, wqeRead, wqeSend} {
		b := []byte{0, 0, 0, op, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 0}
		if op != wqeSend {
			b = append(b, remoteSeg(0x10000, absent[1])...)
		}
		b = append(b, dataSeg(0x10000, absent[0], 64)...)
		f.Add(b, byte(0), true)
		f.Add(b, byte(0), false)
	}
	f.Fuzz(func(t *testing.T, w []byte, service byte, direct bool) {
		g[0].t, g[1].t = t, t
		s.SetDirect(direct)
		qs := [][2]*testQP{{qa, qb}, {ua, ub}, {xa, xb}}[service%3]
		q, r := qs[0], qs[1]
		if q.state() != 3 || r.state() != 3 {
			for i, q := range []*testQP{q, r} {
				o := []*testQP{q, r}[1-i]
				g[i].must(op2Rst, q.num, 16, nil)
				q.si, q.ri = 0, 0
				be.PutUint64(g[i].mem[q.dbr:], 0)
				q.connect(i, 1-i, o.num, nil)
			}
		}
		r.recv(kb, to, 4096)
		for i := 0; i < max(1, min(len(w), 1024)); i += 64 {
			at := q.ring + 512 + uint64(q.si&(1<<logSQ-1))*64
			clear(g[0].mem[at : at+64])
			copy(g[0].mem[at:at+64], w[min(i, len(w)):])
			q.si++
		}
		be.PutUint32(g[0].mem[q.dbr+4:], uint32(q.si))
		q.ring1()
		g[0].resume(faultRequester, q.num, len(w)%2 == 0)
		g[1].resume(faultOfPeer, r.num, len(w)%2 == 0)
		for q.cq.poll() != nil || r.cq.poll() != nil {
		}
	})
}

func FuzzFrame(f *testing.F) {
	_, g := newLab(f, 1, NIC{}, nil)
	f.Add([]byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00\x45\x00"))
	v1 := roce.Packet{V1: true, DstMAC: mac(0), SrcMAC: mac(1), Src: gidOf(1), Dst: gidOf(0), Opcode: 4, DstQP: 2}
	f.Add(v1.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		g[0].p.Deliver(b)
		g[0].p.DeliverBatch(b)
		g[0].p.DeliverBatch(append(appendFrame(nil, b), b...))
		fixChecksums(append([]byte(nil), b...))
		if len(b) > 2 {
			cut := newSegments(b, int(b[0]), int(b[1]))
			for i := range cut.count {
				cut.frame(i)
			}
		}
		if len(b) >= 14 {
			headers(b)
		}
	})
}
