package connectx

import (
	"bytes"
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

type testSRQ struct {
	g         *guest
	num, user uint32
	cq        *testCQ
	ring, dbr uint64
	ri        uint32
}

func (g *guest) newXSRQ(xrcd, pd, user uint32) *testSRQ {
	s := &testSRQ{g: g, user: user, cq: g.newCQ(), ring: g.alloc(pageSize), dbr: g.alloc(8)}
	s.num = g.create(opCreateXSRQ, 0x110+8, func(in []byte) {
		putAll(in[0x10:], map[bits]uint64{xsrqLogXrcSrqSize: 5, xsrqLogRqStride: 1, xsrqXrcd: uint64(xrcd),
			xsrqPd: uint64(pd), xsrqCqn: uint64(s.cq.num), xsrqUserIndex: uint64(user), xsrqDbRecordAddrL: s.dbr >> 2})
		g.pages(in[0x110:], s.ring, 1)
	})
	return s
}

func (s *testSRQ) recv(key uint32, addr uint64, n uint32) {
	w := s.g.mem[s.ring+uint64(s.ri)*32:][:32]
	clear(w)
	s.ri++
	be.PutUint16(w[2:], uint16(s.ri))
	copy(w[16:], dataSeg(addr, key, n))
	be.PutUint32(s.g.mem[s.dbr:], s.ri)
}

func xrcSeg(srq uint32) []byte { return append(be.AppendUint32(nil, srq), make([]byte, 12)...) }

// An xrcLab is an initiator, and a target with shared queues of two protection domains.
type xrcLab struct {
	a, b     *guest
	ini, tgt *testQP
	srq      [2]*testSRQ
	foreign  *testSRQ
	at       uint64
	to       [2]uint64
	ka       uint32
	kb       [2]uint32
}

const xrcSize = 3 * pageSize

func newXRCLab(t *testing.T, direct bool) *xrcLab {
	s, g := newLab(t, 2, NIC{}, nil)
	s.SetDirect(direct)
	x := &xrcLab{a: g[0], b: g[1]}
	xrcd, other := x.b.create(opAllocXRCD, 16, nil), x.b.create(opAllocXRCD, 16, nil)
	pds := [2]uint32{x.b.create(opAllocPD, 16, nil), x.b.create(opAllocPD, 16, nil)}
	x.ini = x.a.qpWith(map[bits]uint64{qpcSt: serviceXRC, qpcRqType: receivesSRQ})
	x.tgt = x.b.qpWith(map[bits]uint64{qpcSt: serviceXRC, qpcRqType: receivesSRQ, qpcNoSq: 1, qpcXrcd: uint64(xrcd)})
	x.ini.connect(0, 1, x.tgt.num, nil)
	x.tgt.connect(1, 0, x.ini.num, nil)
	x.at = x.a.alloc(xrcSize)
	x.ka = x.a.anyKey(x.at, xrcSize)
	for i := range x.srq {
		x.srq[i] = x.b.newXSRQ(xrcd, pds[i], 0x5000+uint32(i))
		x.to[i] = x.b.alloc(xrcSize)
		x.kb[i] = x.b.key(x.to[i], xrcSize, pds[i], allRights...)
	}
	x.foreign = x.b.newXSRQ(other, pds[0], 0x6000)
	return x
}

func TestXRC(t *testing.T) {
	for _, direct := range []bool{true, false} {
		x := newXRCLab(t, direct)
		done := func(what string) {
			t.Helper()
			if e := x.ini.cq.wait(); statusOf(e) != roce.OK {
				t.Fatalf("%s ends with %#x", what, statusOf(e))
			}
		}
		arrived := func(what string, i int, opcode byte, imm uint32) {
			t.Helper()
			e := x.srq[i].cq.wait()
			if e[63]>>4 != opcode || be.Uint32(e[32:]) != x.srq[i].user || be.Uint32(e[56:])&0xffffff != x.tgt.num ||
				imm != 0 && be.Uint32(e[36:]) != imm {
				t.Fatalf("%s: the completion of queue %d is %x", what, i, e)
			}
		}
		local := x.a.mem[x.at : x.at+xrcSize]
		for i, s := range x.srq {
			remote := x.b.mem[x.to[i] : x.to[i]+xrcSize]
			same := func(what string) {
				t.Helper()
				if !bytes.Equal(local, remote) {
					t.Fatalf("%s: other bytes", what)
				}
			}
			fill(local, uint64(i))
			s.recv(x.kb[i], x.to[i], xrcSize)
			x.ini.send(testWQE{op: wqeSend, segs: [][]byte{xrcSeg(s.num), dataSeg(x.at, x.ka, xrcSize)}})
			done("send")
			arrived("send", i, cqeSend, 0)
			same("send")
			fill(local, uint64(10+i))
			s.recv(x.kb[i], x.to[i], 0)
			x.ini.send(testWQE{op: wqeWriteImm, imm: 77, segs: [][]byte{xrcSeg(s.num), remoteSeg(x.to[i], x.kb[i]),
				dataSeg(x.at, x.ka, xrcSize)}})
			done("write")
			arrived("write", i, cqeWriteImm, 77)
			same("write")
			fill(remote, uint64(20+i))
			x.ini.send(testWQE{op: wqeRead, segs: [][]byte{xrcSeg(s.num), remoteSeg(x.to[i], x.kb[i]),
				dataSeg(x.at, x.ka, xrcSize)}})
			done("read")
			same("read")
			le.PutUint64(remote, 40)
			x.ini.send(testWQE{op: wqeFetchAdd, segs: [][]byte{xrcSeg(s.num), remoteSeg(x.to[i], x.kb[i]),
				atomicSeg(2, 0), dataSeg(x.at, x.ka, 8)}})
			done("add")
			if le.Uint64(remote) != 42 || le.Uint64(local) != 40 {
				t.Errorf("add: %d there, %d here", le.Uint64(remote), le.Uint64(local))
			}
		}
	}
}

func TestXRCReachesOnlyWhatTheQueueMay(t *testing.T) {
	for _, c := range []struct {
		name string
		want roce.Status
		wqe  func(x *xrcLab) testWQE
	}{
		{"a queue of another XRC domain", roce.RemoteInvalid, func(x *xrcLab) testWQE {
			x.foreign.recv(x.kb[0], x.to[0], 64)
			return testWQE{op: wqeSend, segs: [][]byte{xrcSeg(x.foreign.num), dataSeg(x.at, x.ka, 64)}}
		}},
		{"no queue", roce.RemoteInvalid, func(x *xrcLab) testWQE {
			return testWQE{op: wqeSend, segs: [][]byte{xrcSeg(0x123456), dataSeg(x.at, x.ka, 64)}}
		}},
		{"a queue pair", roce.RemoteInvalid, func(x *xrcLab) testWQE {
			return testWQE{op: wqeSend, segs: [][]byte{xrcSeg(x.tgt.num), dataSeg(x.at, x.ka, 64)}}
		}},
		{"a queue without receives", roce.RNRExceeded, func(x *xrcLab) testWQE {
			return testWQE{op: wqeSend, segs: [][]byte{xrcSeg(x.srq[0].num), dataSeg(x.at, x.ka, 64)}}
		}},
		{"memory of another protection domain", roce.RemoteDenied, func(x *xrcLab) testWQE {
			return testWQE{op: wqeWrite, segs: [][]byte{xrcSeg(x.srq[1].num), remoteSeg(x.to[0], x.kb[0]),
				dataSeg(x.at, x.ka, 64)}}
		}},
		{"reading memory of another protection domain", roce.RemoteDenied, func(x *xrcLab) testWQE {
			return testWQE{op: wqeRead, segs: [][]byte{xrcSeg(x.srq[1].num), remoteSeg(x.to[0], x.kb[0]),
				dataSeg(x.at, x.ka, 64)}}
		}},
		{"adding to memory of another protection domain", roce.RemoteDenied, func(x *xrcLab) testWQE {
			return testWQE{op: wqeFetchAdd, segs: [][]byte{xrcSeg(x.srq[1].num), remoteSeg(x.to[0], x.kb[0]),
				atomicSeg(2, 0), dataSeg(x.at, x.ka, 8)}}
		}},
		{"a request without the number of a queue", roce.LocalQPOp, func(*xrcLab) testWQE {
			return testWQE{op: wqeSend}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newXRCLab(t, true)
			before := bytes.Clone(x.b.mem[x.to[0] : x.to[0]+xrcSize])
			fill(x.a.mem[x.at:x.at+64], 3)
			x.ini.send(c.wqe(x))
			if e := x.ini.cq.wait(); statusOf(e) != c.want {
				t.Errorf("it ends with %#x, want %#x", statusOf(e), c.want)
			}
			if !bytes.Equal(before, x.b.mem[x.to[0]:x.to[0]+xrcSize]) {
				t.Error("memory has changed")
			}
		})
	}
}
