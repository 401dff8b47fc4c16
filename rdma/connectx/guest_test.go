package connectx

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
)

type guest struct {
	t      testing.TB
	p      *Port
	f      *function
	mem    []byte
	next   uint64
	pd     uint32
	eq     uint32
	eqRing uint64
	gid    func(int) [16]byte // addresses of adapters; default gidOf
	vlan   uint16             // VLAN of the adapters
	v1     bool
	// patience is the local ACK timeout's code; 0 means perftest's, 67 ms.
	patience uint64
	uar      uint64
}

const guestMemory = 64 << 20

// newLab joins adapters' wires. cut selects lost frames.
func newLab(t testing.TB, n int, nic NIC, cut func(frame []byte) bool) (*Server, []*guest) {
	s := NewServer(Options{Log: func(f string, a ...any) {
		if testing.Verbose() {
			fmt.Printf(f+"\n", a...)
		}
	}})
	s.strict = true
	dir := t.TempDir()
	var gs []*guest
	var mu sync.Mutex
	for i := range n {
		nic := nic
		nic.Name, nic.MAC, nic.Link = fmt.Sprint("n", i), mac(i), true
		nic.Socket = filepath.Join(dir, nic.Name)
		nic.Frames = func(f []byte) {
			mu.Lock()
			lost := cut != nil && cut(f)
			mu.Unlock()
			for j, o := range gs {
				if j != i && !lost && (f[0]&1 != 0 || [6]byte(f[:6]) == mac(j)) {
					o.p.Deliver(f)
				}
			}
		}
		p, err := s.AddNIC(nic)
		if err != nil {
			t.Fatal(err)
		}
		gs = append(gs, newGuest(t, p))
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, gs
}

func mac(i int) [6]byte { return [6]byte{0x02, 0, 0, 0, 0, byte(i + 1)} }

func gidOf(i int) [16]byte { return [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: byte(i + 1)} }

func newGuest(t testing.TB, p *Port) *guest {
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, guestMemory)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	g := &guest{t: t, p: p, f: (*function)(p)}
	if g.mem, err = unix.Mmap(fd, 0, guestMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(g.mem) })
	if err := p.mem.Map(fd, 0, 0, guestMemory, true); err != nil {
		t.Fatal(err)
	}
	g.boot()
	return g
}

func (g *guest) boot() {
	g.next = 1 << 20
	g.write32(segCmdQHigh, 0)
	g.write32(segCmdQLow, 0x1000)
	g.pd = g.create(opAllocPD, 16, nil)
	g.uar = uint64(g.create(opAllocUAR, 16, nil)) * pageSize
	ring := g.alloc(16 << 10)
	g.eqRing = ring
	g.eq = g.create(opCreateEQ, 0x110+8*4, func(in []byte) {
		eqcLogEqSize.put(in[0x10:], 8)
		be.PutUint64(in[0x58:], ^uint64(1<<eventPageFault))
		g.pages(in[0x110:], ring, 4)
	})
}

func (g *guest) pages(at []byte, addr uint64, n int) {
	for i := range n {
		be.PutUint64(at[8*i:], addr+uint64(i)*pageSize)
	}
}

func (g *guest) alloc(n uint64) uint64 {
	at := g.next
	g.next += (n + pageSize - 1) &^ (pageSize - 1)
	if g.next > guestMemory {
		g.t.Fatal("the guest's memory is full")
	}
	return at
}

func (g *guest) write32(off uint64, v uint32) {
	g.f.Write(vfiouser.RegionBAR0, off, binary.BigEndian.AppendUint32(nil, v))
}

func (g *guest) command(in []byte, outLen int) (status, []byte) {
	g.post(in, len(in), outLen)
	g.write32(segDoorbell, 1)
	return g.answer(outLen)
}

const inBoxes, outBoxes = 0x10000, 0x40000

func (g *guest) post(in []byte, inLen, outLen int) {
	e := g.mem[0x1000:0x1040]
	clear(e)
	e[0], e[63] = 7, 1
	be.PutUint32(e[4:], uint32(inLen))
	be.PutUint32(e[56:], uint32(outLen))
	be.PutUint64(e[8:], inBoxes)
	be.PutUint64(e[48:], outBoxes)
	copy(e[16:32], in)
	for i := range 64 {
		for _, base := range []int{inBoxes, outBoxes} {
			b := g.mem[base+1024*i:]
			clear(b[:mailBlock])
			be.PutUint64(b[mailNext:], uint64(base+1024*(i+1)))
		}
		if o := 16 + mailData*i; o < len(in) {
			copy(g.mem[inBoxes+1024*i:][:mailData], in[o:])
		}
	}
}

func (g *guest) answer(outLen int) (status, []byte) {
	e := g.mem[0x1000:0x1040]
	if e[63]&1 != 0 {
		return 0xff, nil
	}
	out := append([]byte(nil), e[32:48]...)
	for i := 0; len(out) < outLen; i++ {
		out = append(out, g.mem[outBoxes+1024*i:][:mailData]...)
	}
	return status(out[0]), out
}

func (g *guest) must(op uint16, id uint32, n int, fill func(in []byte)) []byte {
	g.t.Helper()
	in := make([]byte, n)
	be.PutUint16(in, op)
	be.PutUint32(in[8:], id)
	if fill != nil {
		fill(in)
	}
	st, out := g.command(in, 0x1010)
	if st != ok {
		g.t.Fatalf("command %#x: status %#x", op, st)
	}
	return out
}

func (g *guest) create(op uint16, n int, fill func(in []byte)) uint32 {
	g.t.Helper()
	return be.Uint32(g.must(op, 0, n, fill)[8:]) & 0xffffff
}

type testCQ struct {
	g         *guest
	num       uint32
	ring, dbr uint64
	ci        uint32
}

const logCQ = 6

func (g *guest) newCQ() *testCQ {
	c := &testCQ{g: g, ring: g.alloc(64 << logCQ), dbr: g.alloc(8)}
	for i := range uint64(1 << logCQ) {
		g.mem[c.ring+64*i+63] = 0xf0 | 1
	}
	c.num = g.create(opCreateCQ, 0x110+8, func(in []byte) {
		x := in[0x10:]
		cqcLogCqSize.put(x, logCQ)
		cqcCEqnOrApuElement.put(x, uint64(g.eq))
		cqcDbrAddr.put(x, c.dbr)
		g.pages(in[0x110:], c.ring, 1)
	})
	return c
}

func (c *testCQ) poll() []byte {
	e := c.g.mem[c.ring+uint64(c.ci&(1<<logCQ-1))*64:][:64]
	if e[63]>>4 == 15 || uint32(e[63]&1) != c.ci>>logCQ&1 {
		return nil
	}
	c.ci++
	be.PutUint32(c.g.mem[c.dbr:], c.ci)
	return append([]byte(nil), e...)
}

// waitLimit is far above any test's duration on a busy machine.
const waitLimit = 5 * time.Minute

func (c *testCQ) wait() []byte {
	c.g.t.Helper()
	for end := time.Now().Add(waitLimit); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		if e := c.poll(); e != nil {
			return e
		}
	}
	c.g.t.Fatalf("no completion within %v", waitLimit)
	return nil
}

type testQP struct {
	g         *guest
	num       uint32
	ring, dbr uint64
	cq        *testCQ
	si, ri    uint16
	wide      bool // receive WQEs of 64 bytes, not 32
	shared    bool
}

func (q *testQP) step() uint64 {
	if q.shared {
		return 0
	}
	if q.wide {
		return 64
	}
	return 32
}

const (
	logSQ = 5
	logRQ = 4 // 16 << 1 bytes
)

func (g *guest) newQP(service uint8) *testQP {
	return g.qpWith(map[bits]uint64{qpcSt: uint64(service)})
}

func (g *guest) qpWith(change map[bits]uint64) *testQP {
	q := &testQP{g: g, cq: g.newCQ(), ring: g.alloc(pageSize), dbr: g.alloc(8), shared: change[qpcRqType] != 0}
	q.num = g.create(opCreateQP, 0x110+8, func(in []byte) {
		x := in[0x18:]
		putAll(x, map[bits]uint64{qpcPd: uint64(g.pd), qpcLogSqSize: logSQ, qpcLogRqSize: logRQ,
			qpcLogRqStride: 1, qpcCqnSnd: uint64(q.cq.num), qpcCqnRcv: uint64(q.cq.num), qpcDbrAddr: q.dbr,
			qpcUserIndex: 0x1234})
		putAll(x, change)
		g.pages(in[0x110:], q.ring, 1)
	})
	return q
}

func (q *testQP) connect(i, peer int, num uint32, change map[bits]uint64) {
	g := q.g
	of := gidOf
	if g.gid != nil {
		of = g.gid
	}
	gid, to := of(i), of(peer)
	g.must(opSetAddress, 0, 0x30, func(in []byte) {
		be.PutUint16(in[8:], 3)
		copy(in[0x10:], gid[:])
		x := in[0x10:]
		m := mac(i)
		gidSourceMac4732.put(x, uint64(be.Uint16(m[:])))
		gidSourceMac310.put(x, uint64(be.Uint32(m[2:])))
		if !g.v1 {
			gidRoceVersion.put(x, 2)
		}
		if g.vlan != 0 {
			gidVlanValid.put(x, 1)
			gidVlanId.put(x, uint64(g.vlan))
		}
	})
	for _, op := range []uint16{opRst2Init, opInit2RTR, opRTR2RTS} {
		g.must(op, q.num, 0x110, func(in []byte) {
			x, m := in[0x18:], mac(peer)
			putAll(x, map[bits]uint64{qpcPd: uint64(g.pd), qpcRemoteQpn: uint64(num), qpcMtu: 3, qpcRre: 1, qpcRwe: 1,
				qpcRae: 1, qpcRetryCount: 2, qpcRnrRetry: 1, qpcMinRnrNak: 1, qpcLogSraMax: 2, qpcLogRraMax: 2,
				qpcQKey: 0x77})
			a := x[qpcPath:]
			putAll(a, map[bits]uint64{adsSrcAddrIndex: 3, adsAckTimeout: cmp.Or(g.patience, 14),
				adsRmac4732: uint64(be.Uint16(m[:])), adsRmac310: uint64(be.Uint32(m[2:])), adsHopLimit: 64})
			copy(a[adsGID:], to[:])
			putAll(x, change)
		})
	}
}

func pair(a, b *guest, service uint8, change map[bits]uint64) (*testQP, *testQP) {
	qa, qb := a.newQP(service), b.newQP(service)
	qa.connect(0, 1, qb.num, change)
	qb.connect(1, 0, qa.num, change)
	return qa, qb
}

// key grants all rights by default; addr is the virtual address, too.
func (g *guest) key(addr, n uint64, pd uint32, rights ...bits) uint32 {
	pages := int(n+pageSize-1) / pageSize
	i := g.create(opCreateKey, 0x110+8*pages, func(in []byte) {
		x := in[0x10:]
		putAll(x, map[bits]uint64{mkcAccessMode10: modeMTT, mkcPd: uint64(pd), mkcStartAddr: addr, mkcLen: n,
			mkcLogPageSize: 12, mkcMkey70: 0x42})
		for _, r := range rights {
			r.put(x, 1)
		}
		g.pages(in[0x110:], addr, pages)
	})
	return i<<8 | 0x42
}

var allRights = []bits{mkcLr, mkcLw, mkcRr, mkcRw, mkcA}

func (q *testQP) recv(key uint32, addr uint64, n uint32) {
	q.recvList(dataSeg(addr, key, n))
}

// recvList posts up to one segment, or three if wide.
func (q *testQP) recvList(segs ...[]byte) {
	w := q.g.mem[q.ring+uint64(q.ri&(1<<logRQ-1))*q.step():][:q.step()]
	clear(w)
	for i, s := range segs {
		copy(w[16*i:], s)
	}
	be.PutUint32(w[16*len(segs)+4:], reservedKey)
	q.ri++
	be.PutUint32(q.g.mem[q.dbr:], uint32(q.ri))
}

type testWQE struct {
	op    byte
	flags byte // 0 is flagComplete
	imm   uint32
	segs  [][]byte
}

func remoteSeg(addr uint64, key uint32) []byte {
	return append(be.AppendUint32(be.AppendUint64(nil, addr), key), 0, 0, 0, 0)
}

func dataSeg(addr uint64, key, n uint32) []byte {
	return be.AppendUint64(be.AppendUint32(be.AppendUint32(nil, n), key), addr)
}

func atomicSeg(swap, compare uint64) []byte {
	return be.AppendUint64(be.AppendUint64(nil, swap), compare)
}

// send rings the doorbell once.
func (q *testQP) send(ws ...testWQE) {
	for _, w := range ws {
		b := be.AppendUint32(nil, uint32(q.si)<<8|uint32(w.op))
		units := 1
		for _, s := range w.segs {
			units += len(s) / 16
		}
		b = be.AppendUint32(b, q.num<<8|uint32(units))
		b = be.AppendUint32(b, uint32(cmp.Or(w.flags, flagComplete)))
		b = be.AppendUint32(b, w.imm)
		for _, s := range w.segs {
			b = append(b, s...)
		}
		for len(b) > 0 {
			at := q.ring + q.step()<<logRQ + uint64(q.si&(1<<logSQ-1))*64
			n := copy(q.g.mem[at:at+64], b)
			b = b[n:]
			q.si++
		}
	}
	be.PutUint32(q.g.mem[q.dbr+4:], uint32(q.si))
	q.ring1()
}

func (q *testQP) ring1() {
	v := be.AppendUint32(be.AppendUint32(nil, uint32(q.si)<<8), q.num<<8)
	q.g.f.Write(vfiouser.RegionBAR0, q.g.uar+dbSend, v)
}

func (q *testQP) state() roce.State {
	return roce.State(qpcState.get(q.g.must(opQueryQP, q.num, 16, nil)[0x18:]))
}
