package connectx

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
)

func (g *guest) physicalKey() uint32 {
	return g.create(opCreateKey, 0x110, func(in []byte) {
		putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: modePhysical, mkcPd: uint64(g.pd), mkcLength64: 1})
		for _, r := range allRights {
			r.put(in[0x10:], 1)
		}
	}) << 8
}

// heap returns live bytes, without the garbage of a busy port. The first collection may count garbage as live that was
// made while it began.
func heap(p *Port) int64 {
	p.lock()
	defer p.unlock()
	runtime.GC()
	runtime.GC()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}

func peakHeap(p *Port) (stop func() int64) {
	base := heap(p)
	var done atomic.Bool
	peak := make(chan int64)
	go func() {
		most := base
		for !done.Load() {
			most = max(most, heap(p))
			time.Sleep(20 * time.Millisecond)
		}
		peak <- max(most, heap(p)) - base
	}()
	return func() int64 {
		done.Store(true)
		return <-peak
	}
}

func lateness(p *Port) (stop func() time.Duration) {
	var done atomic.Bool
	most := make(chan time.Duration)
	go func() {
		var worst time.Duration
		for !done.Load() {
			at := p.s.now()
			p.lock()
			p.wakeBy(at)
			p.unlock()
			begin := time.Now()
			for time.Duration(p.wakeAt.Load()) <= at && !done.Load() {
				time.Sleep(100 * time.Microsecond)
			}
			worst = max(worst, time.Since(begin))
			time.Sleep(time.Millisecond)
		}
		most <- worst
	}()
	return func() time.Duration {
		done.Store(true)
		return <-most
	}
}

// tooLate is 2 s; before the work of a turn was limited, lateness was 4 to 15 s.
const tooLate = 2 * time.Second

// Pages of one byte would make a list longer than the memory behind it.
func TestPagesOfAKeyAreNotSmall(t *testing.T) {
	_, g := newLab(t, 1, NIC{}, nil)
	a := g[0]
	for _, log := range []uint64{0, 11, 63} {
		n := a.create(opCreateKey, 0x110, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{mkcFree: 1, mkcUmrEn: 1, mkcAccessMode10: modeMTT, mkcPd: uint64(a.pd),
				mkcQpn: anyQP, mkcTranslationsOctwordSize: 8, mkcLogPageSize: log})
		})
		if k := a.p.Keys[n]; k.Shift < minPageShift || k.Shift > maxPageShift {
			t.Errorf("a page size of 1<<%d became 1<<%d", log, k.Shift)
		}
	}
}

func TestAListOfTinyPiecesIsRefused(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{}, nil)
		s.SetDirect(direct)
		a, v := g[0], g[1]
		kq := a.qpWith(map[bits]uint64{qpcSt: serviceRC, qpcFre: 1})
		kq.connect(0, 1, 0x300, nil)
		at := a.alloc(pageSize)
		base := a.key(at, pageSize, a.pd, allRights...)
		klm := a.create(opCreateKey, 0x110, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{mkcFree: 1, mkcUmrEn: 1, mkcAccessMode10: modeKLM, mkcPd: uint64(a.pd),
				mkcQpn: anyQP, mkcTranslationsOctwordSize: maxPieces})
		}) << 8
		list := a.alloc(16 * maxPieces)
		for i := range uint64(maxPieces) {
			be.PutUint64(a.mem[list+16*i:], 1<<32|uint64(base))
			be.PutUint64(a.mem[list+16*i+8:], at)
		}
		w := umrWQE(klm, umrLen|umrStart|umrAccess|umrFree, nil,
			map[bits]uint64{mkcLr: 1, mkcLw: 1, mkcRr: 1, mkcRw: 1, mkcLen: maxPieces})
		w.segs[0][0] = 0
		be.PutUint16(w.segs[0][4:], maxPieces)
		w.segs = append(w.segs[:7], dataSeg(list, a.key(list, 16*maxPieces, a.pd, allRights...), 16*maxPieces))
		kq.send(w)
		if e := kq.cq.wait(); e[63]>>4 != cqeRequest {
			t.Fatalf("umr: %x", e)
		}
		q, _ := pair(a, v, serviceRC, nil)
		to := v.alloc(1 << 20)
		rkey := v.key(to, 1<<20, v.pd, allRights...)
		many := testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, rkey)}}
		for range 20 { // 81,920 pieces
			many.segs = append(many.segs, dataSeg(0, klm, maxPieces))
		}
		grown := peakHeap(a.p)
		q.send(many)
		if e := q.cq.wait(); e[63]>>4 != cqeRequest {
			t.Errorf("direct %v: %x", direct, e)
		}
		if n := grown(); n > 64<<20 {
			t.Errorf("direct %v: a request took %d MiB of memory", direct, n>>20)
		}
		if got := v.mem[to+20*maxPieces-1]; got != a.mem[at] {
			t.Errorf("direct %v: the last byte is %d", direct, got)
		}
		if _, f := a.p.translate(make([]seg, maxSegs), base, a.pd, at, 8, roce.LocalRead); f != roce.FaultAddress {
			t.Errorf("a list of more than %d pieces: %v", maxSegs, f)
		}
	}
}

// They count like frames that wait for the cable.
func TestFramesToOneselfAreLimited(t *testing.T) {
	for _, nic := range []NIC{{}, {RateBits: 100e9, Latency: time.Microsecond}} {
		_, g := newLab(t, 1, nic, nil)
		a := g[0]
		key := a.physicalKey()
		q := a.newQP(serviceUC)
		q.connect(0, 0, 0x2222, map[bits]uint64{qpcMtu: 5}) // no queue has this number
		var ws []testWQE
		for range 2 {
			w := testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(0, 0)}}
			for range 12 {
				w.segs = append(w.segs, dataSeg(0, key, guestMemory/2))
			}
			ws = append(ws, w)
		}
		grown := peakHeap(a.p)
		q.send(ws...)
		for range 50 {
			time.Sleep(2 * time.Millisecond)
			a.p.lock()
			n := len(a.p.loop)
			a.p.unlock()
			if n > 1<<20 {
				t.Fatalf("at %d bit/s %d bytes of frames wait for their own sender", nic.RateBits, n)
			}
		}
		if n := grown(); n > maxInFlight+32<<20 {
			t.Errorf("at %d bit/s the frames took %d KiB", nic.RateBits, n>>10)
		}
	}
}

func (g *guest) manyFlows() (start func()) {
	p := g.p
	p.lock()
	defer p.unlock()
	for i := range uint32(60000) { // as SET_FLOW_TABLE_ENTRY does
		f := &flow{Action: actionForward, Mask: [matchSize]byte(bytes.Repeat([]byte{0xff}, matchSize))}
		be.PutUint32(f.Value[4:], i)
		p.setFlowEntry(flowKey{1 + i%64, i}, f)
	}
	for i := range uint32(63) {
		p.Misses[1+i] = 2 + i
	}
	p.Root = 1
	m := p.nic.MAC
	frame := slices.Concat(m[:], m[:], make([]byte, 60))
	return func() {
		p.lock()
		defer p.unlock()
		for range 64 {
			p.loop = appendFrame(p.loop, frame)
			p.queued(len(frame))
		}
		p.netAt = 0
		p.wakeBy(0)
	}
}

func (g *guest) tinySegments() (start func()) {
	sq, dbr := g.alloc(1<<11*64), g.alloc(8)
	cq, key := g.newCQ(), g.physicalKey()
	num := g.create(0x904, 0x20+0x30+0xc0+8*32, func(in []byte) {
		x := in[0x20:]
		putAll(x, map[bits]uint64{sqcCqn: uint64(cq.num), sqcUserIndex: 1})
		w := x[0x30:]
		putAll(w, map[bits]uint64{wqWqType: 1, wqPd: uint64(g.pd), wqDbrAddr: dbr, wqLogWqSz: 11, wqLogWqStride: 6})
		g.pages(w[0xc0:], sq, 32)
	})
	g.must(0x905, num, 0x110, func(in []byte) { sqcState.put(in[0x20:], wqReady) })
	g.p.SetLink(false)
	head := tcp(mac(1), mac(0), 0)
	for i := uint64(0); i < 1<<11; i += 4 {
		w := g.mem[sq+64*i:][:256]
		clear(w)
		be.PutUint32(w, uint32(i)<<8|wqeLSO)
		be.PutUint32(w[4:], num<<8|(2+4+2))
		e := w[16:]
		e[4] = 0xc0
		be.PutUint16(e[6:], 1)
		be.PutUint16(e[12:], uint16(len(head)))
		copy(e[14:], head)
		copy(e[16+(len(head)-2+15)&^15:], dataSeg(0, key, 65535))
	}
	end := uint32(0)
	return func() {
		end += 1 << 11
		be.PutUint32(g.mem[dbr+4:], end)
		g.f.Write(vfiouser.RegionBAR0, g.uar+dbSend, be.AppendUint32(be.AppendUint32(nil, 0), num<<8))
	}
}

func TestAGuestsWorkDoesNotStopTheTimersOfOthers(t *testing.T) {
	for name, make := range map[string]func(*guest) func(){"flow tables": (*guest).manyFlows,
		"segments of one byte": (*guest).tinySegments} {
		t.Run(name, func(t *testing.T) {
			_, g := newLab(t, 2, NIC{}, nil)
			a := g[1]
			start, late := make(a), lateness(g[0].p)
			start()
			for end := time.Now().Add(waitLimit); ; time.Sleep(time.Millisecond) {
				a.p.lock()
				idle := len(a.p.loop) == 0 && (name == "flow tables" || a.p.count.txDropped > 1<<16)
				a.p.unlock()
				if idle {
					break
				}
				if time.Now().After(end) {
					t.Fatal("the guest's own work is not done")
				}
			}
			if d := late(); d > tooLate {
				t.Errorf("the timer of another adapter was late by %v", d)
			}
		})
	}
}

func TestTheIndexOfFlowsFindsTheFirstMatch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tables := newTables()
	for range 20000 {
		k := flowKey{r.Uint32N(3), r.Uint32N(40)}
		if r.IntN(4) == 0 {
			tables.deleteFlowEntry(k)
		} else {
			f := &flow{Other: r.IntN(10) == 0}
			for i := range 2 {
				f.Mask[i] = byte(r.IntN(4))
				f.Value[i] = byte(r.IntN(4)) & f.Mask[i]
			}
			tables.setFlowEntry(k, f)
		}
		var m [matchSize]byte
		m[0], m[1], m[2] = byte(r.IntN(4)), byte(r.IntN(4)), byte(r.IntN(256))
		table, left := r.Uint32N(3), maxMasks
		var want *flow
		first := uint32(0)
		for k, f := range tables.Flows {
			if k.Table == table && !f.Other && m[0]&f.Mask[0] == f.Value[0] && m[1]&f.Mask[1] == f.Value[1] &&
				(want == nil || k.Index < first) {
				want, first = f, k.Index
			}
		}
		if got := tables.match(table, &m, &left); got != want {
			t.Fatalf("found %+v, want %+v of index %d", got, want, first)
		}
	}
	tables.indexFlows()
	for k := range tables.Flows {
		tables.deleteFlowEntry(k)
	}
	for table, of := range tables.flows {
		if len(of) > 0 {
			t.Errorf("table %d has %d masks without entries", table, len(of))
		}
	}
}

func TestALongMessageIsCopiedInParts(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	a, b := g[0], g[1]
	const n = sendBytes*2 + 12345
	if n > guestMemory/2 {
		t.Fatalf("guests have %d bytes", guestMemory)
	}
	from, to := a.alloc(n), b.alloc(n)
	fill(a.mem[from:from+n], 7)
	ka, kb := a.physicalKey(), b.physicalKey()
	q, _ := pair(a, b, serviceRC, nil)
	for _, op := range []byte{wqeWrite, wqeRead} {
		clear(b.mem[to : to+n])
		if op == wqeRead {
			copy(b.mem[to:], a.mem[from:from+n])
			clear(a.mem[from : from+n])
		}
		q.send(testWQE{op: op, segs: [][]byte{remoteSeg(to, kb), dataSeg(from, ka, n/2), dataSeg(from+n/2, ka, n-n/2)}})
		if e := q.cq.wait(); e[63]>>4 != cqeRequest {
			t.Fatalf("op %#x: %x", op, e)
		}
		if string(a.mem[from:from+n]) != string(b.mem[to:to+n]) {
			t.Errorf("op %#x: the data differ", op)
		}
		if c := b.p.net.Counters.Rx.Packets; c != 0 {
			t.Errorf("op %#x: %d packets came by the wire", op, c)
		}
	}
}

// A silent client delays no peer, timer, or change of other guests' memory.
func TestASilentClientDelaysOnlyItsGuest(t *testing.T) {
	var g []*guest
	frames := make(chan []byte, 1000)
	_, g = newLab(t, 3, NIC{}, func(f []byte) bool {
		if [6]byte(f) != mac(1) {
			return false
		}
		frames <- bytes.Clone(f) // as in a lab, senders do not wait for receivers
		return true
	})
	v, a, third := g[0], g[1], g[2]
	ended := make(chan bool)
	go func() {
		for f := range frames {
			a.p.Deliver(f)
		}
		close(ended)
	}()
	defer func() {
		for _, g := range g {
			g.p.SetLink(false)
		}
		close(frames)
		<-ended
	}()
	c, err := net.Dial("unix", a.p.nic.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.Copy(io.Discard, c) // reads all, and answers nothing
	for end := time.Now().Add(waitLimit); !a.p.Status().Connected; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no connection")
		}
	}
	a.boot()
	none := a.noMemory()
	cqn := a.create(opCreateCQ, 0x110+8, func(in []byte) {
		putAll(in[0x10:], map[bits]uint64{cqcLogCqSize: 6, cqcCEqnOrApuElement: uint64(a.eq),
			cqcDbrAddr: a.alloc(8)})
		be.PutUint64(in[0x110:], none)
	})
	if !a.p.private.Load() {
		t.Error("a queue in memory without a file is not noticed")
	}
	own := map[bits]uint64{qpcSt: serviceRC, qpcCqnSnd: uint64(cqn), qpcCqnRcv: uint64(cqn)}
	q, vq := a.qpWith(own), v.newQP(serviceRC)
	vq.connect(0, 1, q.num, nil)
	q.connect(1, 0, vq.num, own)
	x, y := v.newQP(serviceRC), third.newQP(serviceRC)
	x.connect(0, 2, y.num, nil)
	y.connect(2, 0, x.num, nil)
	at, to := v.alloc(64), a.alloc(64)
	key := v.key(at, 64, v.pd, allRights...)
	q.recv(a.key(to, 64, a.pd, allRights...), to, 64)
	go vq.send(testWQE{op: wqeSend, segs: [][]byte{dataSeg(at, key, 64)}})
	frozen := func() bool {
		a.p.mu.Lock()
		defer a.p.mu.Unlock()
		return a.p.frozen
	}
	for end := time.Now().Add(waitLimit); !frozen(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the client is not asked for the memory of the completion")
		}
	}
	begin := time.Now()
	third.must(opQueryContext, 0, 0x110, nil)
	_ = v.p.Status()
	for _, p := range []*Port{v.p, third.p} {
		if err := p.mem.Map(-1, 0, 1<<33, pageSize, true); err != nil { // waits for the table's lock
			t.Error(err)
		}
	}
	x.send(testWQE{op: wqeNop})
	x.cq.wait()
	late := lateness(third.p)
	time.Sleep(20 * time.Millisecond)
	late()
	// The client is given up after 4 s.
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("others waited for %v", d)
	}
}

// Their memory is limited for all queues together.
func TestRequestsInFlightAreLimited(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, func([]byte) bool { return true })
	a := g[0]
	const queues, blocks = 700, 1 << 12
	ring := a.alloc(blocks * 64)
	key := a.physicalKey()
	for o := uint64(0); o < blocks*64; o += maxWQE {
		w := a.mem[ring+o:][:maxWQE]
		be.PutUint32(w, wqeSend)
		be.PutUint32(w[4:], 63)
		for i := 1; i < 63; i++ { // 62 pieces of one byte
			copy(w[16*i:], dataSeg(0, key, 1))
		}
	}
	dbrs, cq := a.alloc(8*queues), a.newCQ()
	grown := peakHeap(a.p)
	var all []*testQP
	for i := range uint64(queues) {
		q := &testQP{g: a, cq: cq, ring: ring, dbr: dbrs + 8*i}
		q.num = a.create(opCreateQP, 0x110+8*blocks*64/pageSize, func(in []byte) {
			putAll(in[0x18:], map[bits]uint64{qpcSt: serviceRC, qpcPd: uint64(a.pd), qpcLogSqSize: 12,
				qpcRqType: receivesSRQ, qpcCqnSnd: uint64(cq.num), qpcCqnRcv: uint64(cq.num), qpcDbrAddr: q.dbr})
			a.pages(in[0x110:], ring, blocks*64/pageSize)
		})
		q.connect(0, 1, 0x999, nil)
		be.PutUint32(a.mem[q.dbr+4:], blocks)
		q.si = blocks
		q.ring1()
		all = append(all, q)
	}
	if n := grown(); n > maxInFlight+32<<20 {
		t.Errorf("the requests of %d queues take %d MiB", queues, n>>20)
	}
	charged := a.p.NPages
	for _, q := range all {
		a.must(opDestroyQP, q.num, 0x10, nil)
	}
	if a.p.NPages > charged-queues*queuePages {
		t.Errorf("%d pages are charged after the end of all queues, %d before", a.p.NPages, charged)
	}
	if a.p.NPages != a.p.charged() {
		t.Errorf("%d pages are charged, but objects have %d", a.p.NPages, a.p.charged())
	}
}

func TestALargeSendGoesOnWhereItPaused(t *testing.T) {
	const mss, size, sends = 8, 60000, 4
	var mu sync.Mutex
	var got []uint32
	_, g := newLab(t, 2, NIC{}, func(f []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, be.Uint32(f[38:]))
		return true
	})
	a := g[0]
	sq, dbr, cq, key := a.alloc(pageSize), a.alloc(8), a.newCQ(), a.physicalKey()
	num := a.create(0x904, 0x20+0x30+0xc0+8, func(in []byte) {
		x := in[0x20:]
		putAll(x, map[bits]uint64{sqcCqn: uint64(cq.num), sqcUserIndex: 1})
		w := x[0x30:]
		putAll(w, map[bits]uint64{wqWqType: 1, wqPd: uint64(a.pd), wqDbrAddr: dbr, wqLogWqSz: 6, wqLogWqStride: 6})
		a.pages(w[0xc0:], sq, 1)
	})
	a.must(0x905, num, 0x110, func(in []byte) { sqcState.put(in[0x20:], wqReady) })
	for i := range uint32(sends) {
		f := tcp(mac(1), mac(0), 0)
		be.PutUint32(f[38:], i*size)
		w := a.mem[sq+4*64*uint64(i):][:4*64]
		be.PutUint32(w, 4*i<<8|wqeLSO)
		be.PutUint32(w[4:], num<<8|(2+4+2))
		be.PutUint32(w[8:], flagComplete)
		e := w[16:]
		e[4] = 0xc0
		be.PutUint16(e[6:], mss)
		be.PutUint16(e[12:], uint16(len(f)))
		copy(e[14:], f)
		copy(e[16+(len(f)-2+15)&^15:], dataSeg(0, key, size))
	}
	be.PutUint32(a.mem[dbr+4:], 4*sends)
	a.f.Write(vfiouser.RegionBAR0, a.uar+dbSend, be.AppendUint32(be.AppendUint32(nil, 0), num<<8))
	for range sends {
		if e := cq.wait(); statusOf(e) != roce.OK {
			t.Fatalf("completion %x", e)
		}
	}
	for end := time.Now().Add(waitLimit); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		n := len(got)
		mu.Unlock()
		if n >= sends*size/mss || time.Now().After(end) {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i, seq := range got {
		if seq != uint32(i*mss) {
			t.Fatalf("frame %d has the sequence number %d, want %d", i, seq, i*mss)
		}
	}
	if len(got) != sends*size/mss {
		t.Errorf("%d frames, want %d", len(got), sends*size/mss)
	}
}

// After a part is copied a message may go on by the wire; the next one is copied from its beginning.
func TestAMessageIsCopiedFromItsBeginning(t *testing.T) {
	s, g := newLab(t, 2, NIC{}, nil)
	a, b := g[0], g[1]
	from, to := a.alloc(pageSize), b.alloc(pageSize)
	ka, kb := a.physicalKey(), b.physicalKey()
	q, _ := pair(a, b, serviceRC, nil)
	write := func(n uint64) {
		fill(a.mem[from:from+n], n)
		q.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, kb), dataSeg(from, ka, uint32(n))}})
		if e := q.cq.wait(); e[63]>>4 != cqeRequest {
			t.Fatalf("completion %x", e)
		}
		if !bytes.Equal(a.mem[from:from+n], b.mem[to:to+n]) {
			t.Errorf("%d bytes: the data differ", n)
		}
	}
	write(64)
	a.p.lock()
	a.p.Queues[q.num].copied = 32
	a.p.unlock()
	s.SetDirect(false)
	write(65)
	s.SetDirect(true)
	write(66)
}

func TestMessagesAreCopiedAfterTheClientWasAsked(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	a := g[0]
	a.p.lock()
	a.p.ask(func() bool { return true })
	a.p.unlock()
	if a.p.private.Load() {
		t.Error("the guest's messages use the wire from now on")
	}
}

// While a port has locked another, neither waits for its client, which would delay the other's guest.
func TestTwoLockedPortsDoNotAskTheirClients(t *testing.T) {
	_, g := newLab(t, 2, NIC{}, nil)
	a, b := g[0].p, g[1].p
	asked := func(p *Port) (called bool) {
		done := p.ask(func() bool { called = true; return true })
		if done != called {
			t.Errorf("ask returned %v, and its function was called: %v", done, called)
		}
		return called
	}
	a.lock()
	defer a.unlock()
	if locked, _ := a.lockPeer(b); !locked {
		t.Fatal("the peer was not locked")
	}
	if asked(a) {
		t.Error("the port asks its client with its peer locked")
	}
	if asked(b) {
		t.Error("the locked peer asks its client")
	}
	a.unlockPeer(b)
	if !asked(a) {
		t.Error("the port does not ask its client after its peer was unlocked")
	}
	b.lock()
	defer b.unlock()
	if !asked(b) {
		t.Error("the peer does not ask its client after it was unlocked")
	}
}
