package connectx

import (
	"bytes"
	"slices"
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

// MLX5_CMD_OP_*.
const (
	opCreateUctx  = 0xa04
	opDestroyUctx = 0xa06
	opDestroyCQ   = 0x401
	opDestroyKey  = 0x202
	opDeallocPD   = 0x801
	opQueryCaps   = 0x100
	opQueryLAG    = 0x842
)

// program is a program of a guest that uses DevX.
type program struct {
	*guest
	uid uint16
	pd  uint32
}

func (g *guest) program() *program {
	g.t.Helper()
	out := g.must(opCreateUctx, 0, 0x40, nil)
	d := &program{guest: g, uid: be.Uint16(out[10:])}
	d.pd = d.make(opAllocPD, 16, nil)
	return d
}

func (d *program) try(op uint16, id uint32, n int, fill func(in []byte)) (status, []byte) {
	in := make([]byte, n)
	be.PutUint16(in, op)
	be.PutUint16(in[2:], d.uid)
	be.PutUint32(in[8:], id)
	if fill != nil {
		fill(in)
	}
	return d.command(in, 0x1010)
}

func (d *program) make(op uint16, n int, fill func(in []byte)) uint32 {
	d.t.Helper()
	st, out := d.try(op, 0, n, fill)
	if st != ok {
		d.t.Fatalf("command %#x of uid %d: status %#x", op, d.uid, st)
	}
	return be.Uint32(out[8:]) & 0xffffff
}

// umem registers n bytes from an address on, with flags for all pages.
func (d *program) umem(addr, n, flags uint64) uint32 {
	d.t.Helper()
	first := addr &^ (pageSize - 1)
	count := (addr - first + n + pageSize - 1) / pageSize
	return d.make(opCreateUmem, 0x30+8*int(count), func(in []byte) {
		putAll(in[0x10:], map[bits]uint64{umemPageOffset: addr - first, umemNumOfMtt: count})
		for i := range count {
			be.PutUint64(in[0x30+8*i:], first+i*pageSize|flags)
		}
	})
}

const umemAll = 3 // reads and writes

// queues creates a CQ and a queue pair at places in a umem that are not its start.
func (d *program) queues(service uint8) *testQP {
	d.t.Helper()
	const at = 2 * pageSize
	mem := d.alloc(8 * pageSize)
	umem := d.umem(mem, 8*pageSize, umemAll)
	c := &testCQ{g: d.guest, ring: mem + at + 64, dbr: mem + 16}
	for i := range uint64(1 << logCQ) {
		d.mem[c.ring+64*i+63] = 0xf0 | 1
	}
	c.num = d.make(opCreateCQ, 0x110, func(in []byte) {
		putAll(in, map[bits]uint64{createCQUmemValid: 1, createCQUmemId: uint64(umem), createCQUmemOffset: at + 64})
		putAll(in[0x10:], map[bits]uint64{cqcLogCqSize: logCQ, cqcCEqnOrApuElement: uint64(d.eq), cqcDbrUmemValid: 1,
			cqcDbrUmemId: uint64(umem), cqcDbrAddr: 16})
	})
	q := &testQP{g: d.guest, cq: c, ring: mem + 2*at, dbr: mem + 24}
	q.num = d.make(opCreateQP, 0x110, func(in []byte) {
		putAll(in, map[bits]uint64{createQPUmemValid: 1, createQPUmemId: uint64(umem), createQPUmemOffset: 2 * at})
		putAll(in[0x18:], map[bits]uint64{qpcSt: uint64(service), qpcPd: uint64(d.pd), qpcLogSqSize: logSQ,
			qpcLogRqSize: logRQ, qpcLogRqStride: 1, qpcCqnSnd: uint64(c.num), qpcCqnRcv: uint64(c.num),
			qpcDbrUmemValid: 1, qpcDbrUmemId: uint64(umem), qpcDbrAddr: 24})
	})
	return q
}

// key registers memory by a umem.
func (d *program) keyOf(umem uint32, off, va, n uint64, rights ...bits) (status, uint32) {
	st, out := d.try(opCreateKey, 0, 0x110, func(in []byte) {
		putAll(in, map[bits]uint64{createKeyUmemValid: 1, createKeyUmemId: uint64(umem), createKeyUmemOffset: off})
		putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: modeMTT, mkcPd: uint64(d.pd), mkcStartAddr: va, mkcLen: n,
			mkcQpn: anyQP, mkcMkey70: 0x42})
		for _, r := range rights {
			r.put(in[0x10:], 1)
		}
	})
	return st, be.Uint32(out[8:])<<8 | 0x42
}

func TestProgramsUseQueuesAndMemoryInUmems(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{Model: ConnectX5}, nil)
		s.SetDirect(direct)
		var d [2]*program
		var q [2]*testQP
		for i := range g {
			d[i] = g[i].program()
			q[i] = d[i].queues(serviceRC)
			g[i].pd = d[i].pd
		}
		for i := range q {
			q[i].connect(i, 1-i, q[1-i].num, nil)
		}
		// Neither the memory nor its virtual address begins at a page.
		const n, skew, va = 3*pageSize - 1000, 712, 0x7000_0000_0123
		var at [2]uint64
		var keys [2]uint32
		for i := range d {
			at[i] = g[i].alloc(8*pageSize) + skew
			var st status
			if st, keys[i] = d[i].keyOf(d[i].umem(at[i]-8, 4*pageSize, umemAll), 8, va, n, allRights...); st != ok {
				t.Fatalf("a key on a umem: status %#x", st)
			}
		}
		fill(g[0].mem[at[0]:at[0]+n], 7)
		q[1].recv(keys[1], va, n)
		q[0].send(testWQE{op: wqeSendImm, segs: [][]byte{dataSeg(va, keys[0], n)}})
		if e := q[0].cq.wait(); e[63]>>4 != cqeRequest {
			t.Fatalf("direct %v: completion %x", direct, e)
		}
		if e := q[1].cq.wait(); e[63]>>4 != cqeSendImm {
			t.Fatalf("direct %v: completion %x", direct, e)
		}
		if !bytes.Equal(g[0].mem[at[0]:at[0]+n], g[1].mem[at[1]:at[1]+n]) {
			t.Errorf("direct %v: the data differ", direct)
		}
		// What is left of a program goes with it, and nothing stays charged for it.
		p := g[0].p
		g[0].must(opDestroyUctx, uint32(d[0].uid), 16, nil)
		p.lock()
		if len(p.Owners)+len(p.Umems)+len(p.Uctx)+len(p.Queues)+len(p.CQs)+len(p.Keys) > 0 || p.NPages != p.charged() {
			t.Errorf("left: owners %v, %d umems, %d contexts, %d queues, %d CQs, %d keys; %d pages charged, want %d",
				p.Owners, len(p.Umems), len(p.Uctx), len(p.Queues), len(p.CQs), len(p.Keys), p.NPages, p.charged())
		}
		p.unlock()
	}
}

func TestProgramsCannotUseObjectsOfOthers(t *testing.T) {
	_, gs := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	g := gs[0]
	owner, other := g.program(), g.program()
	q := owner.queues(serviceRC)
	mem := g.alloc(pageSize)
	umem := owner.umem(mem, pageSize, umemAll)
	_, key := owner.keyOf(umem, 0, mem, pageSize, allRights...)
	ofDriver := g.newQP(serviceRC)
	for _, c := range []struct {
		name string
		op   uint16
		id   uint32
		fill func(in []byte)
	}{
		{"query a queue", opQueryQP, q.num, nil},
		{"change a queue", opRst2Init, q.num, nil},
		{"destroy a queue", opDestroyQP, q.num, nil},
		{"change the driver's queue", op2Err, ofDriver.num, nil},
		{"query a completion queue", opQueryCQ, q.cq.num, nil},
		{"resize a completion queue", opModifyCQ, q.cq.num, nil},
		{"destroy a completion queue", opDestroyCQ, q.cq.num, nil},
		{"query a key", opQueryKey, key >> 8, nil},
		{"destroy a key", opDestroyKey, key >> 8, nil},
		{"destroy a umem", opDestroyUmem, umem, nil},
		{"destroy a domain", opDeallocPD, owner.pd, nil},
		{"create a queue in a domain of another", opCreateQP, 0, func(in []byte) {
			putAll(in[0x18:], map[bits]uint64{qpcPd: uint64(owner.pd), qpcNoSq: 1, qpcRqType: 3})
		}},
		{"create the driver's kind of queue", opCreateQP, 0, func(in []byte) {
			putAll(in[0x18:], map[bits]uint64{qpcPd: uint64(other.pd), qpcSt: serviceUMR})
		}},
		{"send as QP 1", opCreateQP, 0, func(in []byte) {
			putAll(in[0x18:], map[bits]uint64{qpcPd: uint64(other.pd), qpcSt: serviceUD, qpcDethSqpn: 1})
		}},
		{"create a key on a umem of another", opCreateKey, 0, func(in []byte) {
			putAll(in, map[bits]uint64{createKeyUmemValid: 1, createKeyUmemId: uint64(umem)})
			putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: modeMTT, mkcPd: uint64(other.pd), mkcLen: 8})
		}},
		{"create a key on pages of its choice", opCreateKey, 0, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: modeMTT, mkcPd: uint64(other.pd), mkcLen: 8,
				mkcLogPageSize: 12})
		}},
		{"create a key of all memory", opCreateKey, 0, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: modePhysical, mkcPd: uint64(other.pd), mkcLength64: 1})
		}},
		{"create a key in a domain of another", opCreateKey, 0, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: modeKLM, mkcPd: uint64(owner.pd), mkcFree: 1})
		}},
		{"receive to a queue of another", opCreateTIR, 0, func(in []byte) {
			tircInlineRqn.put(in[0x20:], uint64(q.num))
		}},
		{"receive to queues of others", opCreateRQT, 0, func(in []byte) {
			rqtcRqtActualSize.put(in[0x20:], 1)
			be.PutUint32(in[0x20+0xf0:], q.num)
		}},
		{"send any frame", opCreateSQ, 0, nil},
		{"create a queue of events", opCreateEQ, 0, nil},
		{"create a user context", opCreateUctx, 0, nil},
		{"set an address", opSetAddress, 3, nil},
		{"write a register", opAccessReg, 0, nil},
		{"reset the adapter", opTeardownHCA, 0, nil},
	} {
		if st, _ := other.try(c.op, c.id, 0x200, c.fill); st == ok {
			t.Errorf("a program can %s", c.name)
		}
	}
	for _, op := range []uint16{opQueryCaps, opQueryVPort, opQueryContext, opQueryAddress, opQueryLAG} {
		if st, _ := other.try(op, 0, 0x20, nil); st != ok {
			t.Errorf("a program sends query %#x: status %#x", op, st)
		}
	}
	unknown := &program{guest: g, uid: 77}
	if st, _ := unknown.try(opAllocPD, 0, 16, nil); st != badResource {
		t.Errorf("a uid that was not created: status %#x", st)
	}
	if q.state() != roce.Reset {
		t.Errorf("the queue is in state %d", q.state())
	}
	g.must(opDestroyUctx, uint32(other.uid), 16, nil)
	g.must(opQueryQP, q.num, 16, nil)
	g.must(opQueryKey, key>>8, 16, nil)
}

// A queue may name a completion queue or shared receives whose numbers become another's.
func TestQueuesOfProgramsLeaveOthersQueuesAlone(t *testing.T) {
	_, gs := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	g := gs[0]
	owner, other := g.program(), g.program()
	victim, q := owner.queues(serviceRC), other.queues(serviceRC)
	p := g.p
	p.lock()
	defer p.unlock()
	mine := p.Queues[q.num]
	for _, c := range []*cq{p.CQs[victim.cq.num], p.CQs[q.cq.num]} {
		was := c.PI
		mine.SendCQ = c.Num
		p.completion(mine, &roce.Completion{})
		if got := c.PI - was; (got == 1) != (c.UID == other.uid) {
			t.Errorf("%d entries in a completion queue of uid %d", got, c.UID)
		}
	}
	shared := p.Queues[victim.num]
	shared.Kind = queueRMP
	mine.Receives, mine.SRQ = receivesSRQ, victim.num
	if p.receives(mine, 0) != nil {
		t.Error("a queue takes receives of another program")
	}
	if mine.UID = 0; p.receives(mine, 0) != shared {
		t.Error("a queue of the driver finds no shared receives")
	}
	k := &mkey{Key: 0x900 << 8, PD: mine.PD, UMR: true, Free: true, Mode: modeMTT, Shift: minPageShift}
	p.Keys[0x900] = k
	qpcFre.put(mine.Ctx, 1)
	w := bytes.Join(umrWQE(k.Key, umrAll, []uint64{0x1000 | 3, 0}, map[bits]uint64{mkcPd: uint64(mine.PD)}).segs, nil)
	if mine.UID = other.uid; p.umr(mine, k.Key, w) != roce.LocalQPOp {
		t.Error("a program sets the pages of a key")
	}
	k.Mode = modeKLM
	w = bytes.Join(umrWQE(k.Key, umrAll|umrPD, []uint64{0, 0}, map[bits]uint64{mkcPd: uint64(owner.pd)}).segs, nil)
	if p.umr(mine, k.Key, w) != roce.MemoryOp || k.PD != mine.PD {
		t.Error("a program moves a key to another's domain")
	}
}

func TestUmemsAreChecked(t *testing.T) {
	_, gs := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	g := gs[0]
	d := g.program()
	for _, c := range []struct {
		name        string
		log, off, n uint64
	}{
		{"without pages", 0, 0, 0}, {"with more pages than the command", 0, 0, 1 << 20},
		{"with a count that overflows", 0, 0, 1 << 61}, {"that begins behind its first page", 0, pageSize, 1},
		{"of enormous pages", 31, 0, 1},
	} {
		st, _ := d.try(opCreateUmem, 0, 0x40, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{umemLogPageSize: c.log, umemPageOffset: c.off, umemNumOfMtt: c.n})
		})
		if st != badParam {
			t.Errorf("a umem %s: status %#x", c.name, st)
		}
	}
	mem := g.alloc(4 * pageSize)
	both, read := d.umem(mem+64, 2*pageSize-64, umemAll), d.umem(mem+2*pageSize, 2*pageSize, 1)
	pages := g.p.NPages
	create := func(umem, db uint32, off, dbOff uint64) status {
		st, _ := d.try(opCreateCQ, 0, 0x110, func(in []byte) {
			putAll(in, map[bits]uint64{createCQUmemValid: 1, createCQUmemId: uint64(umem), createCQUmemOffset: off})
			putAll(in[0x10:], map[bits]uint64{cqcLogCqSize: logCQ, cqcCEqnOrApuElement: uint64(d.eq),
				cqcDbrUmemValid: 1, cqcDbrUmemId: uint64(db), cqcDbrAddr: dbOff})
		})
		return st
	}
	const last = 2*pageSize - 64
	for _, c := range []struct {
		name       string
		umem, db   uint32
		off, dbOff uint64
		want       status
	}{
		{"whose ring ends behind it", both, both, last - 64<<logCQ + 64, 0, badParam},
		{"whose ring begins behind it", both, both, ^uint64(63), 0, badParam},
		{"whose ring cannot be written", read, both, 0, 0, badParam},
		{"whose ring is not aligned", both, both, 8, 0, badParam},
		{"whose doorbell record ends behind it", both, both, 0, last - 4, badParam},
		{"whose doorbell record is not aligned", both, both, 0, 4, badParam},
		{"whose doorbell record overflows", both, both, 0, ^uint64(7), badParam},
		{"in none", 0, both, 0, 0, badResource},
		{"whose doorbell record is in none", both, 77, 0, 0, badResource},
		{"whose doorbell record can only be read", both, read, 0, 8, ok},
	} {
		if st := create(c.umem, c.db, c.off, c.dbOff); st != c.want {
			t.Errorf("a completion queue %s: status %#x, want %#x", c.name, st, c.want)
		}
		if c.want != ok && g.p.NPages != pages {
			t.Errorf("a completion queue %s stays charged", c.name)
		}
	}
	// Memory that can only be read stays so by a key with all rights.
	st, key := d.keyOf(read, 0, 0, pageSize, allRights...)
	if st != ok {
		t.Fatalf("a key: status %#x", st)
	}
	g.p.lock()
	if f := g.p.check(key, d.pd, 0, 8, roce.LocalRead); f != 0 {
		t.Errorf("reading: %v", f)
	}
	if f := g.p.check(key, d.pd, 0, 8, roce.LocalWrite); f != roce.FaultPage {
		t.Errorf("writing to pages that can be read: %v", f)
	}
	g.p.unlock()
	if st, _ := d.keyOf(read, pageSize, 0, pageSize+1, allRights...); st != badParam {
		t.Errorf("a key longer than its umem: status %#x", st)
	}
	// The driver gives memory to others when its umem is gone.
	for _, n := range []uint32{both, read} {
		if st, _ := d.try(opDestroyUmem, n, 16, nil); st != busy {
			t.Errorf("a umem in use: status %#x", st)
		}
	}
	if st, _ := d.try(opDeallocPD, d.pd, 16, nil); st != busy {
		t.Errorf("a domain in use: status %#x", st)
	}
	if st, _ := d.try(opDestroyKey, key>>8, 16, nil); st != ok {
		t.Errorf("a key: status %#x", st)
	}
	if st, _ := d.try(opDeallocPD, d.pd, 16, nil); st != ok {
		t.Errorf("a domain no longer in use: status %#x", st)
	}
}

func TestProgramsAreRestored(t *testing.T) {
	_, gs := newLab(t, 2, NIC{Model: ConnectX5}, nil)
	g := gs[0]
	d := g.program()
	q := d.queues(serviceRC)
	state, err := g.p.Save()
	if err != nil {
		t.Fatal(err)
	}
	copied := gs[1]
	if err := copied.p.Restore(state); err != nil {
		t.Fatal(err)
	}
	c := &program{guest: copied, uid: d.uid, pd: d.pd}
	copied.p.lock()
	if n := copied.p.NPages; n != g.p.NPages {
		t.Errorf("%d pages are charged, want %d", n, g.p.NPages)
	}
	copied.p.unlock()
	stranger := copied.program()
	if stranger.uid == d.uid {
		t.Errorf("the uid %d twice", d.uid)
	}
	if st, _ := stranger.try(opDestroyQP, q.num, 16, nil); st != badResource {
		t.Errorf("a queue of another program: status %#x", st)
	}
	for n := range copied.p.Umems {
		if st, _ := c.try(opDestroyUmem, n, 16, nil); st != busy {
			t.Errorf("a umem in use: status %#x", st)
		}
	}
	if st, _ := c.try(opDestroyQP, q.num, 16, nil); st != ok {
		t.Errorf("the program's queue: status %#x", st)
	}
	copied.must(opDestroyUctx, uint32(d.uid), 16, nil)
	if n := len(copied.p.Umems); n > 0 {
		t.Errorf("%d umems are left", n)
	}
}

func TestUserContextsAreLimited(t *testing.T) {
	_, gs := newLab(t, 2, NIC{Model: ConnectX5}, nil)
	in := make([]byte, 0x40)
	be.PutUint16(in, opCreateUctx)
	made := 0
	for ; made <= 1<<logMaxUctx; made++ {
		if st, _ := gs[0].command(in, 16); st == limit {
			break
		}
	}
	if made != 1<<logMaxUctx-1 {
		t.Errorf("%d user contexts", made)
	}
	_, old := newLab(t, 1, NIC{}, nil)
	if st, _ := old[0].command(in, 16); st != badOp {
		t.Errorf("a ConnectX-4 Lx creates a user context: status %#x", st)
	}
}

// pairsOf creates a key of keys, as programs do for atomic operations at an offset.
func (d *program) pairsOf(mode uint8, change map[bits]uint64, list ...uint64) (status, uint32) {
	st, out := d.try(opCreateKey, 0, 0x110+8*len(list), func(in []byte) {
		createKeyActualSize.put(in, uint64(len(list)/2))
		putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: uint64(mode), mkcPd: uint64(d.pd), mkcQpn: anyQP, mkcLr: 1,
			mkcLw: 1, mkcRr: 1, mkcRw: 1, mkcA: 1})
		putAll(in[0x10:], change)
		for i, v := range list {
			be.PutUint64(in[0x110+8*i:], v)
		}
	})
	return st, be.Uint32(out[8:]) << 8
}

func TestKeysOfKeys(t *testing.T) {
	_, gs := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	d := gs[0].program()
	mem := d.alloc(4 * pageSize)
	_, key := d.keyOf(d.umem(mem, 4*pageSize, umemAll), 0, 0x10000, 4*pageSize, allRights...)
	p := gs[0].p
	places := func(k uint32, va, n uint64) (list []uint64, f roce.Fault) {
		p.lock()
		defer p.unlock()
		segs, f := p.translate(nil, k, d.pd, va, n, roce.LocalWrite)
		for _, s := range segs {
			list = append(list, s.addr-mem, s.n)
		}
		return list, f
	}
	klm := func(size uint64) uint64 { return size<<32 | uint64(key) }
	st, at := d.pairsOf(modeKSM, map[bits]uint64{mkcStartAddr: 0x10123, mkcLen: 4 * pageSize, mkcLogPageSize: 13},
		klm(0), 0x10000, klm(0), 0x12000)
	if st != ok {
		t.Fatalf("a list of parts: status %#x", st)
	}
	_, list := d.pairsOf(modeKLM, map[bits]uint64{mkcLen: 48}, klm(16), 0x10100, klm(0), 0, klm(32), 0x10800)
	// Eight of ten bytes, and four of six, three times.
	_, strided := d.pairsOf(modeKLM, map[bits]uint64{mkcStartAddr: 0x40, mkcLen: 36}, 12<<32|repeated, 3<<32|2,
		10<<48|8<<32|uint64(key), 0x10000, 6<<48|4<<32|uint64(key), 0x11000)
	_, circle := d.pairsOf(modeKLM, map[bits]uint64{mkcLen: 12}, 12<<32|repeated, 3<<32|1,
		10<<48|8<<32|uint64(list), 0)
	_, none := d.pairsOf(modeKLM, map[bits]uint64{mkcLen: 1 << 40}, 1<<32|repeated, 0xffffffff<<32|1,
		uint64(key), 0x10000)
	_, short := d.pairsOf(modeKLM, map[bits]uint64{mkcLen: 1 << 40}, 1<<32|repeated, 0xffffffff<<32|9,
		1<<32|uint64(key), 0x10000)
	for _, c := range []struct {
		name  string
		key   uint32
		va, n uint64
		want  []uint64
		fault roce.Fault
	}{
		{"parts that begin between pages", at, 0x10123 + 0x1ff8, 16, []uint64{0x1ff8, 8, 0x2000, 8}, 0},
		{"behind the parts", at, 0x10123 + 4*pageSize - 8, 16, nil, roce.FaultRange},
		{"pieces", list, 8, 16, []uint64{0x108, 8, 0x800, 8}, 0},
		{"turns", strided, 0x40, 36, []uint64{0, 8, 0x1000, 4, 10, 8, 0x1006, 4, 20, 8, 0x100c, 4}, 0},
		{"the middle of a turn", strided, 0x40 + 14, 9, []uint64{12, 6, 0x1006, 3}, 0},
		{"behind the turns", strided, 0x40, 37, nil, roce.FaultRange},
		{"turns of a list", circle, 0, 8, nil, roce.FaultKey},
		{"turns without pieces", none, 0, 1, nil, roce.FaultRange},
		{"turns that end before their pieces", short, 0, 1, nil, roce.FaultRange},
	} {
		got, f := places(c.key, c.va, c.n)
		if f != c.fault || f == 0 && !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, fault %v; want %v, %v", c.name, got, f, c.want, c.fault)
		}
	}
	// The driver reads a list to load absent pages behind it.
	out := gs[0].must(opQueryKey, list>>8, 16, nil)
	if got := be.Uint64(out[0x110:]); got != klm(16) {
		t.Errorf("the query says %#x", got)
	}
	if st, _ := d.pairsOf(modeKLM, map[bits]uint64{mkcLen: 8}, make([]uint64, 2*maxPieces+2)...); st != limit {
		t.Errorf("a list of too many pieces: status %#x", st)
	}
}

// libmlx5 creates keys that can be read, and changes the other rights.
func TestWorkRequestsChangeTheRightsThatTheySelect(t *testing.T) {
	_, gs := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	g := gs[0]
	q := g.newQP(serviceRC)
	for i, r := range umrRights {
		key := g.freeKey(modeKLM)
		p := g.p
		p.lock()
		k := p.Keys[key>>8]
		k.Access = roce.LocalRead | roce.RemoteWrite
		all := map[bits]uint64{}
		for _, f := range allRights {
			all[f] = 1
		}
		w := bytes.Join(umrWQE(key, umrLR<<i, []uint64{0, 0}, all).segs, nil)
		if st := p.umr(p.Queues[q.num], key, w); st != roce.OK || k.Access != roce.LocalRead|roce.RemoteWrite|r {
			t.Errorf("setting right %b: status %d, rights %b", r, st, k.Access)
		}
		w = bytes.Join(umrWQE(key, umrLR<<i, []uint64{0, 0}, nil).segs, nil)
		if st := p.umr(p.Queues[q.num], key, w); st != roce.OK || k.Access != (roce.LocalRead|roce.RemoteWrite)&^r {
			t.Errorf("clearing right %b: status %d, rights %b", r, st, k.Access)
		}
		p.unlock()
	}
}

// UCX has shared receives in a ring, which begin like linked ones.
func TestSharedReceivesInARing(t *testing.T) {
	_, gs := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	d := gs[0].program()
	for _, c := range []struct {
		name         string
		typ, basic   uint64
		first        int // byte of the list
		index, after uint64
	}{{"linked", 0, 0, 16, 0, 7}, {"in a ring", 1, 0, 16, 0, 1}, {"in a ring, basic", 1, 1, 0, 0, 1}} {
		mem := d.alloc(2 * pageSize)
		umem := uint64(d.umem(mem, 2*pageSize, umemAll))
		rmp := d.make(opCreateRMP, 0x110, func(in []byte) {
			rmpcBasic.put(in[0x20:], c.basic)
			putAll(in[0x50:], map[bits]uint64{wqWqType: c.typ, wqPd: uint64(d.pd), wqLogWqStride: 6, wqLogWqSz: 4,
				wqUmemValid: 1, wqUmemId: umem, wqDbrValid: 1, wqDbrUmemId: umem, wqDbrAddr: pageSize})
		})
		for i := range uint64(16) {
			w := d.mem[mem+64*i:][:64]
			be.PutUint16(w[2:], 7) // the next of a linked list
			copy(w[c.first:], dataSeg(0x1000+i, 0x200, 64))
			be.PutUint32(w[c.first+20:], reservedKey)
		}
		be.PutUint32(d.mem[mem+pageSize:], 2)
		p := d.p
		p.lock()
		q := &queue{Kind: queueQP, Receives: receivesSRQ, SRQ: rmp, UID: d.uid}
		var wr roce.RecvWR
		for _, want := range []uint64{c.index, c.after} {
			if !p.nextRecv(q, &wr) || wr.ID != want || len(wr.SG) != 1 || wr.SG[0].VA != 0x1000+want {
				t.Errorf("%s: receive %d with %v, want %d", c.name, wr.ID, wr.SG, want)
			}
		}
		if p.nextRecv(q, &wr) {
			t.Errorf("%s: a receive that was not posted", c.name)
		}
		p.unlock()
	}
}

// A program with a right to send any frame names its own domain only, and a queue pair stays in the one that it was
// created in.
func TestProgramsKeepToTheirDomains(t *testing.T) {
	_, g := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	a, b := g[0].program(), g[0].program()
	p := g[0].p
	p.Uctx[a.uid] |= rawTX
	for pd, want := range map[uint32]status{a.pd: ok, b.pd: badResource, 0xfffff: badResource} {
		in := make([]byte, 0x120)
		wqPd.put(in[0x50:], uint64(pd))
		if st := p.mayName(0x904, in, a.uid); st != want {
			t.Errorf("CREATE_SQ in domain %#x: status %#x, want %#x", pd, st, want)
		}
	}
	q, second := a.queues(serviceRC), a.make(opAllocPD, 16, nil)
	for _, c := range []struct {
		pd   uint32
		want status
	}{{second, badResource}, {b.pd, badResource}, {a.pd, ok}} {
		st, _ := a.try(0x502, q.num, 0x110, func(in []byte) {
			putAll(in[0x18:], map[bits]uint64{qpcPd: uint64(c.pd), qpcCqnSnd: uint64(q.cq.num),
				qpcCqnRcv: uint64(q.cq.num)})
		})
		if st != c.want {
			t.Errorf("RST2INIT_QP in domain %#x of %#x: status %#x, want %#x", c.pd, a.pd, st, c.want)
		}
	}
}

// A domain is busy as long as queues or keys of programs are in it, also after a restore.
func TestUsersOfADomainAreCounted(t *testing.T) {
	_, g := newLab(t, 2, NIC{Model: ConnectX5}, nil)
	d := g[0].program()
	d.queues(serviceRC)
	umem := d.umem(d.alloc(pageSize), pageSize, umemAll)
	if st, _ := d.keyOf(umem, 0, 0, pageSize); st != ok {
		t.Fatalf("a key: status %#x", st)
	}
	if n := g[0].p.domainUsers[d.pd]; n != 2 {
		t.Errorf("the domain has %d users, want 2", n)
	}
	state, err := g[0].p.Save()
	if err != nil {
		t.Fatal(err)
	}
	if err := g[1].p.Restore(state); err != nil {
		t.Fatal(err)
	}
	if n := g[1].p.domainUsers[d.pd]; n != 2 {
		t.Errorf("after a restore, the domain has %d users, want 2", n)
	}
	if st, _ := d.try(opDeallocPD, d.pd, 16, nil); st != busy {
		t.Errorf("DEALLOC_PD: status %#x, want %#x", st, busy)
	}
	g[0].must(opDestroyUctx, 0, 16, func(in []byte) { be.PutUint16(in[10:], d.uid) })
	if p := g[0].p; len(p.domainUsers)+len(p.domainOf)+len(p.Owners) > 0 || p.PDs[d.pd] {
		t.Errorf("left of a program: %v, %v, %v", p.domainUsers, p.domainOf, p.Owners)
	}
}

func TestProgramsReadTheirOwnFlowCounters(t *testing.T) {
	_, g := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	a, b := g[0].program(), g[0].program()
	first := a.make(0x939, 16, nil)
	if next := b.make(0x939, 16, nil); next != first+1 {
		t.Fatalf("counters %d and %d", first, next)
	}
	for i := range uint32(2) {
		*g[0].p.FlowCounters[first+i] = tally{Packets: 7, Bytes: 70}
	}
	st, out := a.try(0x93b, 0, 0x20, func(in []byte) {
		in[0x18] = 1 << 7 // clear
		be.PutUint16(in[0x1a:], 2)
		be.PutUint32(in[0x1c:], first)
	})
	if st != ok || be.Uint64(out[0x10:]) != 7 || be.Uint64(out[0x20:]) != 0 {
		t.Errorf("status %#x, counters % x", st, out[0x10:0x30])
	}
	if c := *g[0].p.FlowCounters[first+1]; c.Packets != 7 {
		t.Errorf("the counter of another program is %+v", c)
	}
}

// Numbers of tables and queues that are gone may be another program's.
func TestFramesOfAProgramReachItsOwnQueues(t *testing.T) {
	_, g := newLab(t, 1, NIC{Model: ConnectX5}, nil)
	p := g[0].p
	to := &tir{Indirect: true, RQT: 5, UID: 3}
	p.RQTs[5] = []uint32{9}
	for owner, want := range map[uint16]uint32{3: 9, 4: 0, 0: 0} {
		p.Owners[classRQT.id(5)] = owner
		if got := p.spread(to, new([matchSize]byte)); got.rq != want {
			t.Errorf("a table of uid %d: queue %d, want %d", owner, got.rq, want)
		}
	}
	to.UID = 0
	if got := p.spread(to, new([matchSize]byte)); got.rq != 9 {
		t.Errorf("a TIR of the driver: queue %d, want 9", got.rq)
	}
}

func TestDamagedStatesOfProgramsAreRefused(t *testing.T) {
	for name, damage := range map[string]func(p *Port){
		"an owner without a context": func(p *Port) { p.Owners[classPD.id(1)] = 77 },
		"a key in a missing umem":    func(p *Port) { p.Keys[0x300] = &mkey{Umems: umemsOf{5}} },
		"an entry with many counters": func(p *Port) {
			p.Flows[flowKey{}] = &flow{Counters: make([]uint32, maxCounts+1)}
		},
		"an entry with many destinations": func(p *Port) {
			p.Flows[flowKey{}] = &flow{Dests: make([]uint32, maxDests+1)}
		},
	} {
		_, g := newLab(t, 2, NIC{Model: ConnectX5}, nil)
		damage(g[0].p)
		state, err := g[0].p.Save()
		if err != nil {
			t.Fatal(err)
		}
		if err := g[1].p.Restore(state); err == nil {
			t.Errorf("%s: restored", name)
		}
	}
}
