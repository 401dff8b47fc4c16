package connectx

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/rdma/roce"
)

// Random requests, many of them wrong, have the same effects on both paths.

const (
	pathRegion = 3 * pageSize
	pathSpace  = 2*pathRegion + 2*pageSize // that a key of all memory can reach
	pathKeys   = 5
)

type pathKey struct {
	mode     uint64
	off, len uint64
	rights   []bool
	foreign  bool
	pieces   []pathPart
}

// flagFence waits for earlier reads. Without it a request may send memory before they fill it.
const flagFence = 1 << 7

type pathPart struct {
	key    int // -1 is no key, -2 data in line
	off, n uint64
}

type pathRequest struct {
	op       byte
	flags    byte
	remote   pathPart
	list     []pathPart
	swap     [2]uint64
	imm      uint32
	inlineBy byte
}

type pathStep struct {
	from     int
	recvs    [][]pathPart
	requests []pathRequest
	destroy  int // the other guest's key to destroy before, or -1
}

type pathProgram struct {
	service uint8
	mtu     uint64
	access  [2][3]bool
	retries uint64
	keys    [2][pathKeys]pathKey
	steps   []pathStep
}

// drawPart draws mostly parts of the first key, which grants all.
func drawPart(t *rapid.T, name string, most uint64) pathPart {
	if rapid.IntRange(0, 9).Draw(t, name+".good") < 8 {
		n := rapid.OneOf(rapid.Uint64Range(0, 64), rapid.Uint64Range(0, most/4),
			rapid.Just(uint64(8))).Draw(t, name+".n")
		return pathPart{off: rapid.Uint64Range(0, (pathRegion-n)/8).Draw(t, name+".off") * 8, n: n}
	}
	p := pathPart{key: rapid.IntRange(-1, pathKeys-1).Draw(t, name+".key")}
	p.off = rapid.Uint64Range(0, pathRegion+8).Draw(t, name+".off")
	p.n = rapid.OneOf(rapid.Uint64Range(0, 64), rapid.Uint64Range(0, most), rapid.Just(uint64(8))).Draw(t, name+".n")
	return p
}

func drawProgram(t *rapid.T) pathProgram {
	p := pathProgram{service: rapid.SampledFrom([]uint8{serviceRC, serviceRC, serviceRC, serviceUC}).Draw(t, "service"),
		mtu: rapid.Uint64Range(1, 5).Draw(t, "mtu"), retries: rapid.Uint64Range(0, 1).Draw(t, "rnr retries")}
	for i := range 2 {
		for j := range 3 {
			p.access[i][j] = rapid.IntRange(0, 9).Draw(t, "access") > 0
		}
		for j := range pathKeys {
			k := &p.keys[i][j]
			k.mode = rapid.SampledFrom([]uint64{modeMTT, modeMTT, modeKLM, modePhysical}).Draw(t, "mode")
			k.off = rapid.Uint64Range(0, pathRegion/2).Draw(t, "key.off")
			k.len = rapid.Uint64Range(0, pathRegion-k.off).Draw(t, "key.len")
			if j == 0 {
				*k = pathKey{mode: modeMTT, len: pathRegion}
			}
			for range allRights {
				k.rights = append(k.rights, j == 0 || rapid.IntRange(0, 9).Draw(t, "right") > 0)
			}
			k.foreign = j > 0 && rapid.IntRange(0, 9).Draw(t, "foreign") == 0
			if k.mode == modeKLM {
				for range rapid.IntRange(0, 3).Draw(t, "pieces") {
					part := drawPart(t, "piece", pathRegion)
					part.key = min(part.key, j-1)
					k.pieces = append(k.pieces, part)
				}
			}
		}
	}
	ops := []byte{wqeNop, wqeSend, wqeSend, wqeSendImm, wqeSendInv, wqeWrite, wqeWrite, wqeWriteImm, wqeRead, wqeRead,
		wqeCmpSwap, wqeFetchAdd, wqeLocalInv}
	for range rapid.IntRange(1, 6).Draw(t, "steps") {
		s := pathStep{from: rapid.IntRange(0, 1).Draw(t, "from"), destroy: -1}
		if rapid.IntRange(0, 9).Draw(t, "destroys") == 0 {
			s.destroy = rapid.IntRange(0, pathKeys-1).Draw(t, "destroy")
		}
		for range rapid.IntRange(0, 3).Draw(t, "receives") {
			var list []pathPart
			if rapid.IntRange(0, 3).Draw(t, "roomy") > 0 {
				list = append(list, pathPart{n: pathRegion / 2})
			}
			for range rapid.IntRange(0, 3-len(list)).Draw(t, "segments") {
				list = append(list, drawPart(t, "recv", pathRegion))
			}
			s.recvs = append(s.recvs, list)
		}
		for range rapid.IntRange(1, 3).Draw(t, "requests") {
			r := pathRequest{op: rapid.SampledFrom(ops).Draw(t, "op"), flags: flagComplete | flagFence,
				remote: drawPart(t, "remote", pathRegion), imm: rapid.Uint32().Draw(t, "imm"),
				inlineBy: rapid.Byte().Draw(t, "inline")}
			// Without this fence time decides whether a request before fails first.
			if r.op == wqeLocalInv {
				r.flags = r.flags&^flagFence | fenceAll<<5
			}
			if rapid.IntRange(0, 4).Draw(t, "silent") == 0 {
				r.flags &^= flagComplete
			}
			if rapid.IntRange(0, 4).Draw(t, "solicited") == 0 {
				r.flags |= flagSolicit
			}
			r.swap = [2]uint64{rapid.Uint64Range(0, 3).Draw(t, "swap"), rapid.Uint64Range(0, 3).Draw(t, "compare")}
			if r.op == wqeCmpSwap || r.op == wqeFetchAdd {
				r.list = append(r.list, pathPart{off: 8 * rapid.Uint64Range(0, 100).Draw(t, "data.off"), n: 8})
			}
			for range rapid.IntRange(0, 3-3*len(r.list)).Draw(t, "segments") {
				part := drawPart(t, "data", pathRegion)
				if rapid.IntRange(0, 5).Draw(t, "in line") == 0 {
					part.key, part.n = -2, min(part.n, 100)
				}
				r.list = append(r.list, part)
			}
			s.requests = append(s.requests, r)
		}
		p.steps = append(p.steps, s)
	}
	return p
}

type pathWorld struct {
	t    testing.TB
	g    []*guest
	q    [2]*testQP
	at   [2]uint64
	keys [2][pathKeys]uint32
}

func newPathWorld(t testing.TB, p *pathProgram, g []*guest) *pathWorld {
	w := &pathWorld{t: t, g: g}
	for i, g := range g {
		g.patience = 19 // 2.1 s: on a busy machine an adapter may do nothing for longer than 67 ms
		clear(g.mem[:g.next])
		g.f.Reset()
		g.boot()
		w.at[i] = g.alloc(pathSpace)
		fill(w.region(i), uint64(i))
		for o := uint64(0); o < pathSpace; o += 512 { // small numbers, for atomics
			le.PutUint64(w.region(i)[o:], o/512&3)
		}
		other := g.create(opAllocPD, 16, nil)
		for j := range p.keys[i] {
			pd := g.pd
			if p.keys[i][j].foreign {
				pd = other
			}
			w.keys[i][j] = w.newKey(i, &p.keys[i][j], pd)
		}
		w.q[i] = g.qpWith(map[bits]uint64{qpcSt: uint64(p.service), qpcLogRqStride: 2})
		w.q[i].wide = true
	}
	w.connect(p)
	return w
}

func (w *pathWorld) connect(p *pathProgram) {
	for i, q := range w.q {
		flag := func(j int) uint64 {
			if p.access[i][j] {
				return 1
			}
			return 0
		}
		w.g[i].must(op2Rst, q.num, 0x110, nil)
		clear(w.g[i].mem[q.dbr:][:8])
		q.si, q.ri = 0, 0
		q.connect(i, 1-i, w.q[1-i].num, map[bits]uint64{qpcMtu: p.mtu, qpcRnrRetry: p.retries, qpcRetryCount: 7,
			qpcRre: flag(0), qpcRwe: flag(1), qpcRae: flag(2)})
	}
}

func (w *pathWorld) failed() bool {
	return w.q[0].state() == roce.Failed || w.q[1].state() == roce.Failed
}

func (w *pathWorld) region(i int) []byte { return w.g[i].mem[w.at[i]:][:pathSpace] }

func (w *pathWorld) newKey(i int, k *pathKey, pd uint32) uint32 {
	g := w.g[i]
	rights := map[bits]uint64{}
	for j, f := range allRights {
		if k.rights[j] {
			rights[f] = 1
		}
	}
	if k.mode == modePhysical {
		return g.create(opCreateKey, 0x110, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: modePhysical, mkcPd: uint64(pd), mkcLength64: 1})
			putAll(in[0x10:], rights)
		}) << 8
	}
	start := w.at[i] + k.off
	if k.mode == modeMTT {
		first := start &^ (pageSize - 1)
		pages := int((start+k.len-first)/pageSize) + 1
		n := g.create(opCreateKey, 0x110+8*pages, func(in []byte) {
			putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: modeMTT, mkcPd: uint64(pd), mkcStartAddr: start,
				mkcLen: k.len, mkcLogPageSize: 12})
			putAll(in[0x10:], rights)
			g.pages(in[0x110:], first, pages)
		})
		return n << 8
	}
	n := g.create(opCreateKey, 0x110, func(in []byte) {
		putAll(in[0x10:], map[bits]uint64{mkcAccessMode10: modeKLM, mkcFree: 1, mkcUmrEn: 1, mkcEnRinval: 1,
			mkcPd: uint64(pd), mkcQpn: anyQP, mkcStartAddr: start, mkcLen: k.len, mkcTranslationsOctwordSize: 4})
		putAll(in[0x10:], rights)
	})
	g.p.lock()
	defer g.p.unlock()
	key := g.p.Keys[n]
	key.Free = false // as after a request that sets the list
	if !g.p.extend(key, 2*len(k.pieces)) {
		w.t.Fatal("the list is too long")
	}
	for j, part := range k.pieces {
		key.Pages[2*j] = part.n<<32 | uint64(w.key(i, part.key))
		key.Pages[2*j+1] = w.at[i] + part.off
	}
	return n << 8
}

// key returns one that does not exist for -1.
func (w *pathWorld) key(i, j int) uint32 {
	if j < 0 {
		return 0x123400
	}
	return w.keys[i][j]
}

func (w *pathWorld) seg(i int, p pathPart) []byte {
	return dataSeg(w.at[i]+p.off, w.key(i, p.key), uint32(p.n))
}

func (w *pathWorld) run(s *pathStep) string {
	from, to := s.from, 1-s.from
	if s.destroy >= 0 {
		in := make([]byte, 16)
		be.PutUint16(in, 0x202)
		be.PutUint32(in[8:], w.keys[to][s.destroy]>>8)
		w.g[to].command(in, 16)
	}
	q := w.q[from]
	if posted := w.q[to].ri - w.g[to].p.Queues[w.q[to].num].RI; posted < 8 {
		for _, r := range s.recvs {
			var list [][]byte
			for _, p := range r {
				list = append(list, w.seg(to, p))
			}
			w.q[to].recvList(list...)
		}
	}
	var all []testWQE
	for _, r := range s.requests {
		x := testWQE{op: r.op, imm: r.imm, flags: r.flags}
		switch r.op {
		case wqeLocalInv:
			x.imm = w.key(from, r.remote.key)
		case wqeSendInv:
			x.imm = w.key(to, r.remote.key)
		}
		if r.op >= wqeWrite && r.op <= wqeFetchAdd && r.op != wqeSend && r.op != wqeSendImm {
			x.segs = append(x.segs, remoteSeg(w.at[to]+r.remote.off, w.key(to, r.remote.key)))
		}
		if r.op == wqeCmpSwap || r.op == wqeFetchAdd {
			x.segs = append(x.segs, atomicSeg(r.swap[0], r.swap[1]))
		}
		if r.op != wqeNop && r.op != wqeLocalInv {
			for _, p := range r.list {
				if p.key == -2 {
					b := be.AppendUint32(nil, 1<<31|uint32(p.n))
					b = append(b, bytes.Repeat([]byte{r.inlineBy}, int(p.n))...)
					x.segs = append(x.segs, append(b, make([]byte, -len(b)&15)...))
				} else {
					x.segs = append(x.segs, w.seg(from, p))
				}
			}
		}
		all = append(all, x)
	}
	q.send(all...)
	w.settle()
	return w.effects()
}

func (w *pathWorld) settle() {
	for end := time.Now().Add(waitLimit); ; time.Sleep(50 * time.Microsecond) {
		idle := true
		for i, g := range w.g {
			g.p.lock()
			q := g.p.Queues[w.q[i].num]
			idle = idle && q.SI == w.q[i].si && q.wire.out == 0 && (q.State != roce.Failed || q.RI == w.q[i].ri) &&
				g.p.cable == 0 && len(g.p.failed) == 0
			g.p.unlock()
		}
		if idle {
			return
		}
		if time.Now().After(end) {
			w.t.Fatal("the adapters do not come to rest")
		}
	}
}

// effects leaves out numbers that differ from lab to lab.
func (w *pathWorld) effects() string {
	var b bytes.Buffer
	for i, g := range w.g {
		fmt.Fprintf(&b, "guest %d:", i)
		for {
			e := w.q[i].cq.poll()
			if e == nil {
				break
			}
			e = slices.Clone(e)
			if statusOf(e) == roce.OK {
				clear(e[48:56]) // the time
			}
			clear(e[57:60]) // the number of the queue
			if e[63]>>4 == cqeSendInv {
				clear(e[36:40]) // the key
			}
			fmt.Fprintf(&b, " %x", e)
		}
		g.p.lock()
		q := g.p.Queues[w.q[i].num]
		c := *g.p.counters(q)
		fmt.Fprintf(&b, "\n state %d, receives left %d, %+v\n", q.State, w.q[i].ri-q.RI, c)
		for j, k := range w.keys[i] {
			if k := g.p.Keys[k>>8]; k != nil {
				fmt.Fprintf(&b, " key %d free %v", j, k.Free)
			}
		}
		g.p.unlock()
		for o := 0; o < pathSpace; o += 64 {
			fmt.Fprintf(&b, "\n %04x %x", o, w.region(i)[o:o+64])
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestTwoPathsOneBehaviour(t *testing.T) { twoPaths(t, NIC{}) }

// TestE2ETwoPathsOneBehaviour tries programs for minutes.
func TestE2ETwoPathsOneBehaviour(t *testing.T) {
	storey.E2E(t)
	for begin := time.Now(); time.Since(begin) < 3*time.Minute && !t.Failed(); {
		twoPaths(t, NIC{})
		twoPaths(t, NIC{RateBits: 25e9, Latency: time.Microsecond})
	}
}

func twoPaths(t *testing.T, nic NIC) {
	_, copies := newLab(t, 2, nic, nil)
	s, frames := newLab(t, 2, nic, nil)
	s.SetDirect(false)
	rapid.Check(t, func(rt *rapid.T) {
		p := drawProgram(rt)
		direct, wire := newPathWorld(t, &p, copies), newPathWorld(t, &p, frames)
		for i := range p.steps {
			d, w := direct.run(&p.steps[i]), wire.run(&p.steps[i])
			if d != w {
				rt.Fatalf("step %d: %s", i, firstDifference(d, w))
			}
			if direct.failed() {
				direct.connect(&p)
				wire.connect(&p)
			}
		}
	})
}

func firstDifference(a, b string) string {
	x, y := bytes.Split([]byte(a), []byte("\n")), bytes.Split([]byte(b), []byte("\n"))
	for i := range min(len(x), len(y)) {
		if !bytes.Equal(x[i], y[i]) {
			return fmt.Sprintf("line %d\n copied: %s\n on the wire: %s", i, x[i], y[i])
		}
	}
	return "one is longer"
}
