package roce

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEachOperationDoesWhatItSays(t *testing.T) {
	for _, size := range []int{0, 1, 1023, 1024, 1025, 4096, 70_001} {
		for op := WRSend; op <= WRFetchAdd; op++ {
			n := size
			if op.atomic() {
				n = 8
			}
			t.Run(fmt.Sprintf("op %d of %d bytes", op, n), func(t *testing.T) {
				s := newSim(t, RC, 25e9, nil)
				a, b := s.nodes[0], s.nodes[1]
				a.fill(keyLocal)
				b.fill(keyRemote)
				b.mem[7] = &region{}
				b.recvs = []RecvWR{{ID: 9, SG: local(500, size+3)}}
				was := le.Uint64(b.mem[keyRemote].b[64:])
				w := SendWR{ID: 5, Op: op, Signaled: true, Imm: 7, SG: local(100, n), VA: remoteVA + 64,
					RKey:   keyRemote,
					Atomic: AtomicOp{Add: op == WRFetchAdd, Operand: 3, Want: was}}
				a.post(w)
				s.run(time.Second)
				if got := a.statuses(); !slices.Equal(got, []string{"5:0x0"}) {
					t.Fatalf("completions %v, events %v and %v", got, a.events, b.events)
				}
				if got := a.done[0].Bytes; op.reads() && got != uint32(n) || !op.reads() && got != 0 {
					t.Errorf("%d bytes complete", got)
				}
				sent, far := a.mem[keyLocal].b[100:][:n], b.mem[keyRemote].b[64:][:n]
				received := b.mem[keyLocal].b[500:][:n]
				switch {
				case op.atomic():
					now := le.Uint64(far)
					if old := le.Uint64(sent); old != was || op == WRFetchAdd && now != was+3 || op == WRCmpSwap &&
						now != 3 {
						t.Errorf("old value %#x, want %#x; new value %#x", old, was, now)
					}
				case op < WRWrite && !bytes.Equal(sent, received), op >= WRWrite && !bytes.Equal(sent, far):
					t.Error("the data differ")
				}
				receives := op < WRWrite || op == WRWriteImm
				if receives != (len(b.done) == 1) {
					t.Fatalf("receives completed: %v", b.done)
				}
				if receives {
					want := Completion{ID: 9, Recv: true, Op: op, Bytes: uint32(n)}
					if op != WRSend {
						want.Imm = 7
					}
					got := b.done[0]
					if op == WRSend {
						got.Imm = 0
					}
					if got != want {
						t.Errorf("receive %+v, want %+v", got, want)
					}
				}
				if invalid := b.mem[7] == nil; invalid != (op == WRSendInv) {
					t.Errorf("key invalidated: %v", invalid)
				}
			})
		}
	}
}

func TestErrorsAreThoseOfTheSpecification(t *testing.T) {
	write := SendWR{Op: WRWrite, SG: local(0, 3000), VA: remoteVA, RKey: keyRemote}
	with := func(w SendWR, f func(*SendWR)) SendWR { f(&w); return w }
	atomic := with(write, func(w *SendWR) { w.Op, w.SG = WRFetchAdd, local(0, 8) })
	read := with(write, func(w *SendWR) { w.Op = WRRead })
	send := SendWR{Op: WRSend, SG: local(0, 3000)}
	for name, c := range map[string]struct {
		w      SendWR
		attr   func(*Attr)
		prep   func(b *node)
		status Status
		event  Event
	}{
		"write with an unknown key": {w: with(write, func(w *SendWR) {
			w.RKey = 1
		}), status: RemoteDenied, event: EventAccessError},
		"write past the region": {w: with(write, func(w *SendWR) {
			w.VA += regionLen - 2999
		}), status: RemoteDenied, event: EventAccessError},
		"write that wraps": {w: with(write, func(w *SendWR) {
			w.VA = ^uint64(0) - 5
		}), status: RemoteDenied, event: EventAccessError},
		"write to a QP without right": {w: write, attr: func(a *Attr) {
			a.Access = RemoteRead
		}, status: RemoteDenied, event: EventAccessError},
		"read from a QP without right": {w: read, attr: func(a *Attr) {
			a.Access = RemoteWrite
		}, status: RemoteDenied, event: EventAccessError},
		"read with an unknown key": {w: with(read, func(w *SendWR) {
			w.RKey = 1
		}), status: RemoteDenied, event: EventAccessError},
		"atomic on a QP without right": {w: atomic, attr: func(a *Attr) {
			a.Access = RemoteWrite
		}, status: RemoteDenied, event: EventAccessError},
		"atomic on a region of writes": {w: atomic, prep: func(b *node) {
			b.mem[keyRemote].a = RemoteWrite
		}, status: RemoteDenied, event: EventAccessError},
		"atomic that is not aligned": {w: with(atomic, func(w *SendWR) {
			w.VA += 4
		}), status: RemoteInvalid, event: EventInvalid},
		"read where none are accepted": {w: read, attr: func(a *Attr) {
			a.PeerReads = 0
		}, status: RemoteInvalid, event: EventInvalid},
		"send into a buffer too small": {w: send, prep: func(b *node) {
			b.recvs = []RecvWR{{SG: local(0, 2999)}}
		}, status: RemoteInvalid, event: EventInvalid},
		"send into a buffer of no key": {w: send, prep: func(b *node) {
			b.recvs = []RecvWR{{SG: []SGE{{Key: 1, Len: 4000, VA: 0}}}}
		}, status: RemoteOp, event: EventInvalid},
		"send of memory out of reach": {w: SendWR{Op: WRSend, SG: []SGE{{Key: 1, Len: 10, VA: 0}}},
			status: LocalProtection},
		"read into memory out of reach": {w: with(read, func(w *SendWR) {
			w.SG = []SGE{{Key: keyRemote, Len: 10, VA: remoteVA}}
		}), status: LocalProtection},
		"atomic of 7 bytes": {w: with(atomic, func(w *SendWR) { w.SG = local(0, 7) }), status: LocalLength},
		"a message over 1 GiB": {w: SendWR{Op: WRSend, SG: []SGE{{Key: keyLocal, Len: 1 << 30, VA: 0x1000},
			{Key: keyLocal, Len: 1, VA: 0x1000}}}, status: LocalLength},
		"no such operation":       {w: SendWR{Op: 99}, status: LocalQPOp},
		"what the device refused": {w: SendWR{Op: WRSend, Fail: LocalQPOp}, status: LocalQPOp},
		"no receive, 2 retries":   {w: send, attr: func(a *Attr) { a.RNRRetry = 2 }, status: RNRExceeded},
		"no peer":                 {w: send, prep: func(b *node) { b.port.Remove(b.qp) }, status: RetryExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, RC, 25e9, c.attr)
			a, b := s.nodes[0], s.nodes[1]
			if c.prep != nil {
				c.prep(b)
			}
			// One request before it succeeds, and two after it are flushed.
			first := SendWR{ID: 1, Op: WRSend, Signaled: true}
			if c.attr != nil || c.prep != nil {
				first.Op = WRNop
			} else {
				b.recvs = append(b.recvs, RecvWR{})
			}
			c.w.ID = 2
			a.recvs = []RecvWR{{ID: 5}}
			a.post(first, c.w, SendWR{ID: 3, Op: WRNop}, SendWR{ID: 4, Op: WRWrite})
			s.run(10 * time.Second)
			want := []string{"1:0x0", fmt.Sprintf("2:%#x", uint8(c.status)), "3:0x5", "4:0x5", "5:0x5"}
			if got := a.statuses(); !slices.Equal(got, want) {
				t.Errorf("completions %v, want %v", got, want)
			}
			if a.qp.State() != Failed {
				t.Errorf("state %d", a.qp.State())
			}
			var events []Event
			if c.event != 0 {
				events = []Event{c.event}
			}
			if !slices.Equal(b.events, events) || (c.event != 0) != (b.qp.State() == Failed) {
				t.Errorf("peer: events %v, want %v; state %d", b.events, events, b.qp.State())
			}
		})
	}
}

func TestReceiverWithoutBufferIsRetriedAfterItsTimer(t *testing.T) {
	s := newSim(t, RC, 25e9, func(a *Attr) { a.RNRTimer = 14 }) // 1.28 ms
	a, b := s.nodes[0], s.nodes[1]
	a.fill(keyLocal)
	a.post(SendWR{ID: 1, Op: WRSend, Signaled: true, SG: local(0, 5000)}, SendWR{ID: 2, Op: WRWriteImm, Signaled: true,
		SG: local(0, 3000), VA: remoteVA, RKey: keyRemote})
	s.run(3 * time.Millisecond)
	// Packets under way when there was no buffer do not count as out of sequence.
	if a.count.RNRNakRetryErr != 3 || b.count.OutOfBuffer != 3 || b.count.OutOfSequence != 0 || len(a.done) != 0 {
		t.Errorf("%d RNR NAKs, %d times no buffer, %d out of sequence, done %v", a.count.RNRNakRetryErr,
			b.count.OutOfBuffer, b.count.OutOfSequence, a.done)
	}
	b.recvs = append(b.recvs, RecvWR{ID: 1, SG: local(0, 5000)})
	s.run(20 * time.Millisecond)
	if got := a.statuses(); !slices.Equal(got, []string{"1:0x0"}) {
		t.Errorf("with one buffer: %v", got)
	}
	b.recvs = append(b.recvs, RecvWR{ID: 2})
	s.run(30 * time.Millisecond)
	if got := b.statuses(); !slices.Equal(got, []string{"1:0x0", "2:0x0"}) || b.done[1].Bytes != 3000 {
		t.Errorf("with two: %v", b.done)
	}
	if !bytes.Equal(a.mem[keyLocal].b[:5000], b.mem[keyLocal].b[:5000]) {
		t.Error("the data differ")
	}
}

func TestRNRTimersAreThoseOfTheTable(t *testing.T) {
	for code, want := range map[uint8]string{0: "655.36ms", 1: "10µs", 6: "80µs", 12: "640µs", 31: "491.52ms"} {
		if got := rnrDelay(code).String(); got != want {
			t.Errorf("code %d: %s, want %s", code, got, want)
		}
	}
}

func TestSilentPeerIsTriedAsOftenAsAllowed(t *testing.T) {
	s := newSim(t, RC, 25e9, func(a *Attr) { a.AckTimeout, a.Retry = 10, 3 })
	a := s.nodes[0]
	var at []time.Duration
	s.carry = func(_ *node, now time.Duration, _ []byte) { at = append(at, now) }
	a.post(SendWR{ID: 1, Op: WRSend, Signaled: true})
	s.run(time.Second)
	const timeout = 4096 * time.Nanosecond << 10
	if want := []time.Duration{0, timeout, 2 * timeout, 3 * timeout}; !slices.Equal(at, want) {
		t.Errorf("sent at %v, want %v", at, want)
	}
	if a.count.LocalAckTimeoutErr != 4 || a.count.ReqRetryExceeded != 1 || a.statuses()[0] != "1:0x15" {
		t.Errorf("%d timeouts, completions %v", a.count.LocalAckTimeoutErr, a.statuses())
	}
}

func TestTimerThatRunsLateHasASecondTerm(t *testing.T) {
	const timeout = 4096 * time.Nanosecond << 10
	s := newSim(t, RC, 25e9, func(a *Attr) { a.AckTimeout = 10 })
	a := s.nodes[0]
	s.carry = func(*node, time.Duration, []byte) {}
	a.post(SendWR{ID: 1, Op: WRSend, Signaled: true})
	a.port.Poll(0)
	late := timeout + 2*time.Millisecond
	for i, at := range []time.Duration{late, late + timeout - 1, late + timeout, late + 2*timeout} {
		a.port.Poll(at)
		if got, want := a.count.LocalAckTimeoutErr, []uint64{0, 0, 1, 2}[i]; got != want {
			t.Errorf("at %v: %d timeouts, want %d", at, got, want)
		}
	}
}

// A peer that is slower than the timer, like an emulated machine, gets fewer packets at a time.
func TestSlowPeerGetsLess(t *testing.T) {
	s := newSim(t, RC, 25e9, func(a *Attr) { a.AckTimeout, a.MTU = 12, 4096 }) // 16.8 ms
	a, b := s.nodes[0], s.nodes[1]
	free := time.Duration(0)
	const each, room = 2 * time.Millisecond, 64
	s.carry = func(from *node, now time.Duration, frame []byte) {
		if from == b {
			s.deliver(a, now, frame)
			return
		}
		if free = max(free, now); free-now < room*each {
			free += each
			s.deliver(b, free, frame)
		}
	}
	a.fill(keyLocal)
	for i := range 8 {
		a.post(SendWR{ID: uint64(i), Op: WRWrite, Signaled: true, SG: local(i<<16, 1<<16), VA: remoteVA + uint64(i)<<16,
			RKey: keyRemote})
	}
	s.run(20 * time.Second)
	if len(a.done) != 8 || a.done[7].Status != OK || !bytes.Equal(a.mem[keyLocal].b[:8<<16],
		b.mem[keyRemote].b[:8<<16]) {
		t.Errorf("completions %v, counters %+v", a.statuses(), a.count)
	}
}

// script loses the frames in lose, by node and count from 1, and returns the others.
func script(t *testing.T, w SendWR, lose ...string) (*sim, string) {
	s := newSim(t, RC, 25e9, nil)
	var l []string
	n := map[*node]int{}
	s.carry = func(from *node, now time.Duration, frame []byte) {
		var p Packet
		if err := Parse(frame, &p); err != nil {
			t.Error(err)
		}
		n[from]++
		id := fmt.Sprintf("%c%d", 'a'+slices.Index(s.nodes, from), n[from])
		text := fmt.Sprintf("%c%x.%d", id[0], uint8(p.Opcode), psnDiff(p.PSN, psnMask-40))
		if p.Opcode == opAck && p.Syndrome != aethACK {
			text += fmt.Sprintf("/%x", p.Syndrome)
		}
		if slices.Contains(lose, id) {
			text += "!"
		} else {
			s.deliver(s.peer(from), now+2*time.Microsecond, frame)
		}
		l = append(l, text)
	}
	s.nodes[0].fill(keyLocal)
	s.nodes[1].recvs = []RecvWR{{SG: local(0, 1<<16)}, {SG: local(0, 1<<16)}}
	w.Signaled, w.VA, w.RKey = true, remoteVA, keyRemote
	s.nodes[0].post(w)
	s.run(time.Second)
	if got := s.nodes[0].statuses(); !slices.Equal(got, []string{"0:0x0"}) {
		t.Errorf("completions %v", got)
	}
	return s, strings.Join(l, " ")
}

// Each text lists frames: sender, opcode in hex, number from the start; ! for lost, / with the syndrome.
func TestLossIsMadeGoodAsOnTheWire(t *testing.T) {
	write, read := SendWR{Op: WRWrite, SG: local(0, 4096)}, SendWR{Op: WRRead, SG: local(0, 4096)}
	for _, c := range []struct {
		name, want string
		w          SendWR
		lose       []string
		check      func(a, b *Counters) uint64
	}{
		{"nothing lost", "a6.0 a7.1 a7.2 a8.3 b11.3", write, nil, func(a, b *Counters) uint64 { return 1 }},
		{"second packet: NAK, back to it", "a6.0 a7.1! a7.2 a8.3 b11.1/60 a7.1 a7.2 a8.3 b11.3", write, []string{"a2"},
			func(a, b *Counters) uint64 { return a.PacketSeqErr * (b.OutOfSequence - 1) }},
		{"last packet: timeout", "a6.0 a7.1 a7.2 a8.3! a6.0 a7.1 a7.2 a8.3 b11.2 b11.2 b11.2 b11.3", write,
			[]string{"a4"},
			func(a, b *Counters) uint64 { return a.LocalAckTimeoutErr }},
		{"the ACK: each duplicate gets one", "a6.0 a7.1 a7.2 a8.3 b11.3! a6.0 a7.1 a7.2 a8.3 b11.3 b11.3 b11.3 b11.3",
			write, []string{"b1"},
			func(a, b *Counters) uint64 { return a.LocalAckTimeoutErr }},
		{"nothing lost of a read", "ac.0 bd.0 be.1 be.2 bf.3", read, nil, func(a, b *Counters) uint64 {
			return b.RxReads
		}},
		{"a read response: the rest again", "ac.0 bd.0 be.1! be.2 bf.3 ac.1 bd.1 be.2 bf.3", read, []string{"b2"},
			func(a, b *Counters) uint64 { return a.ImpliedNakSeqErr * b.DuplicateRequest }},
		{"the last read response: timeout", "ac.0 bd.0 be.1 be.2 bf.3! ac.3 b10.3", read, []string{"b4"},
			func(a, b *Counters) uint64 { return a.LocalAckTimeoutErr * b.DuplicateRequest }},
		{"the response of an atomic: the same again", "a14.0 b12.0! a14.0 b12.0",
			SendWR{Op: WRFetchAdd, SG: local(0, 8)},
			[]string{"b1"}, func(a, b *Counters) uint64 { return b.RxAtomics * b.DuplicateRequest }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, got := script(t, c.w, c.lose...)
			if got != c.want {
				t.Errorf("frames\n%s, want\n%s", got, c.want)
			}
			if n := c.check(&s.nodes[0].count, &s.nodes[1].count); n != 1 {
				t.Errorf("counters %+v and %+v", s.nodes[0].count, s.nodes[1].count)
			}
		})
	}
}

func TestReadsAndAtomicsWaitForTheLimit(t *testing.T) {
	s := newSim(t, RC, 25e9, func(a *Attr) { a.MaxReads = 2 })
	a, b := s.nodes[0], s.nodes[1]
	out, most := 0, 0
	s.carry = func(from *node, now time.Duration, frame []byte) {
		var p Packet
		_ = Parse(frame, &p)
		switch {
		case p.Opcode == opReadRequest:
			out++
		case p.h&(hRead|hLast) == hRead|hLast:
			out--
		}
		most = max(most, out)
		s.deliver(s.peer(from), now+2*time.Microsecond, frame)
	}
	b.fill(keyRemote)
	for i := range 10 {
		a.post(SendWR{ID: uint64(i), Op: WRRead, SG: local(5000*i, 5000), VA: remoteVA + uint64(5000*i),
			RKey: keyRemote})
	}
	a.post(SendWR{ID: 10, Op: WRWrite, Fence: true, Signaled: true})
	s.run(time.Second)
	if most != 2 || !slices.Equal(a.statuses(), []string{"10:0x0"}) {
		t.Errorf("%d reads at a time, completions %v", most, a.statuses())
	}
	if !bytes.Equal(a.mem[keyLocal].b[:50000], b.mem[keyRemote].b[:50000]) {
		t.Error("the data differ")
	}
}

func TestUnreliableConnectionDropsWhatIsTorn(t *testing.T) {
	s := newSim(t, UC, 25e9, nil)
	a, b := s.nodes[0], s.nodes[1]
	a.fill(keyLocal)
	n := 0
	s.carry = func(from *node, now time.Duration, frame []byte) {
		// The middle packet of the second message of three packets.
		if n++; n != 5 {
			s.deliver(s.peer(from), now, frame)
		}
	}
	for i := range 3 {
		b.recvs = append(b.recvs, RecvWR{ID: uint64(i), SG: local(3000*i, 3000)})
		a.post(SendWR{ID: uint64(i), Op: WRSendImm, Imm: uint32(i), Signaled: true, SG: local(3000*i, 3000)})
	}
	s.run(time.Second)
	if got := a.statuses(); !slices.Equal(got, []string{"0:0x0", "1:0x0", "2:0x0"}) {
		t.Errorf("sender: %v", got)
	}
	if len(b.done) != 2 || b.done[1].Imm != 2 || b.done[1].ID != 1 {
		t.Fatalf("receiver: %+v", b.done)
	}
	if !bytes.Equal(a.mem[keyLocal].b[6000:9000], b.mem[keyLocal].b[3000:6000]) {
		t.Error("the data differ")
	}
}

func TestDatagramsCarryTheirHeadersToTheReceiver(t *testing.T) {
	for _, typ := range []QPType{UD, GSI} {
		s := newSim(t, typ, 25e9, nil)
		a, b := s.nodes[0], s.nodes[1]
		a.fill(keyLocal)
		to, key := b.qp.cfg.QPN, uint32(0x1234)
		if typ == GSI {
			to, key = gsiQPN, gsiQKey
		}
		b.recvs = []RecvWR{{ID: 1, SG: local(0, 1000)}, {ID: 2, SG: local(0, 10)}}
		w := SendWR{ID: 1, Op: WRSendImm, Imm: 77, Signaled: true, Solicited: true, SG: local(0, 100),
			To:  testPath(a, b),
			QPN: to, QKey: key}
		wrong := w
		wrong.ID, wrong.QKey = 2, 5
		long := w
		long.ID, long.SG = 3, local(0, 1025)
		a.post(wrong, w, w, w, long)
		s.run(time.Second)
		if got := a.statuses(); !slices.Equal(got, []string{"2:0x0", "1:0x0", "1:0x0", "1:0x0", "3:0x1"}) {
			t.Errorf("type %d: sender: %v", typ, got)
		}
		if got := b.statuses(); !slices.Equal(got, []string{"1:0x0", "2:0x1"}) || b.count.OutOfBuffer != 1 {
			t.Fatalf("type %d: receiver: %v, %d without buffer", typ, got, b.count.OutOfBuffer)
		}
		if n := b.port.Counters.BadQKey; n != 1 {
			t.Errorf("type %d: %d datagrams with a wrong Q_Key, want 1", typ, n)
		}
		from := a.qp.cfg.QPN
		if typ == GSI {
			from = gsiQPN
		}
		if c := b.done[0]; c.Bytes != 140 || c.Imm != 77 || !c.Solicited || c.Op != WRSendImm {
			t.Errorf("type %d: %+v", typ, c)
		}
		if b.grh.SrcQP != from || b.grh.SrcMAC != w.To.SrcMAC || b.grh.Src != w.To.Src {
			t.Errorf("type %d: from %+v", typ, b.grh)
		}
		buf := b.mem[keyLocal].b
		if buf[20] != 0x45 || buf[39] != byte(b.qp.cfg.QPN) || !bytes.Equal(buf[40:140], a.mem[keyLocal].b[:100]) {
			t.Errorf("type %d: buffer begins %x", typ, buf[:60])
		}
	}
}

func TestVersionsOfRoCEDoNotMix(t *testing.T) {
	for name, c := range map[string]struct {
		first, second bool // the node's path is v1
		want          string
	}{
		"v1": {true, true, "1:0x0"}, "v1 to v2": {true, false, "1:0x15"}, "v2 to v1": {false, true, "1:0x15"},
	} {
		for _, op := range []WROp{WRWrite, WRRead, WRFetchAdd} {
			s := newSim(t, RC, 25e9, func(a *Attr) {
				a.Path.V1 = c.second
				if a.Path.Src[15] == 0 {
					a.Path.V1 = c.first
				}
			})
			a := s.nodes[0]
			s.carry = func(n *node, now time.Duration, frame []byte) {
				if v1 := be.Uint16(frame[12:]) == etherRoCE; v1 != n.qp.attr.Path.V1 {
					t.Errorf("%s: EtherType %#x", name, frame[12:14])
				}
				if frame[15]>>4&ecnMask != 0 && n.qp.attr.Path.V1 {
					t.Errorf("%s: ECN capable", name)
				}
				s.deliver(s.peer(n), now+2*time.Microsecond, frame)
			}
			a.post(SendWR{ID: 1, Op: op, Signaled: true, SG: []SGE{{Key: keyLocal, VA: 0x1000, Len: 8}}, VA: remoteVA,
				RKey: keyRemote})
			s.run(time.Second)
			if got := a.statuses(); !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s: %v, want %s", name, got, c.want)
			}
		}
	}
}

// A datagram's queue pair belongs to no version.
func TestDatagramOfV1BringsItsGRH(t *testing.T) {
	s := newSim(t, UD, 25e9, nil)
	a, b := s.nodes[0], s.nodes[1]
	b.recvs = []RecvWR{{ID: 1, SG: local(0, 1000)}}
	to := testPath(a, b)
	to.V1 = true
	a.post(SendWR{ID: 1, Op: WRSend, Signaled: true, SG: local(0, 100), To: to, QPN: b.qp.cfg.QPN, QKey: 0x1234})
	s.run(time.Second)
	if got := b.statuses(); !slices.Equal(got, []string{"1:0x0"}) || !b.grh.V1 || b.done[0].Bytes != 140 {
		t.Fatalf("received %v from %+v", got, b.grh)
	}
	if buf := b.mem[keyLocal].b; buf[0]>>4 != 6 || buf[6] != protoIBA || !bytes.Equal(buf[8:24], to.Src[:]) {
		t.Errorf("buffer begins %x", buf[:40])
	}
}

// A change takes effect once: when the requests before it have been sent, or have ended if it must wait. A failure ends
// the queue pair.
func TestKeysAreChangedInTurn(t *testing.T) {
	const n = 100 << 10
	read := SendWR{ID: 1, Op: WRRead, Signaled: true, SG: local(0, n), VA: remoteVA, RKey: keyRemote}
	write := read
	write.Op = WRWrite
	none := []byte{0}
	for name, c := range map[string]struct {
		first, change SendWR
		lose          int
		want          []string
	}{
		"after a write": {write, SendWR{Op: WRUpdate, Imm: keyLocal, Inline: none}, -1, []string{"1:0x0", "2:0x0",
			"3:0x4"}},
		"after a write that is repeated": {write, SendWR{Op: WRUpdate, Imm: keyLocal, Inline: none}, 99,
			[]string{"1:0x4", "2:0x5", "3:0x5"}},
		"after the end of a write that is repeated": {write, SendWR{Op: WRUpdate, Imm: keyLocal, Inline: none,
			Last: true}, 99, []string{"1:0x0", "2:0x0", "3:0x4"}},
		"during a read": {read, SendWR{Op: WRUpdate, Imm: keyLocal, Inline: none}, -1, []string{"1:0x4", "2:0x5",
			"3:0x5"}},
		"after the end of a read": {read, SendWR{Op: WRUpdate, Imm: keyLocal, Inline: none, Fence: true}, -1,
			[]string{"1:0x0", "2:0x0", "3:0x4"}},
		"of a key that is not there": {write, SendWR{Op: WRUpdate, Imm: 99, Inline: none}, -1, []string{"1:0x0",
			"2:0x6", "3:0x5"}},
		"invalidation of a key that is not there": {write, SendWR{Op: WRLocalInv, Imm: 99}, -1, []string{"1:0x0",
			"2:0x6", "3:0x5"}},
	} {
		s := newSim(t, RC, 25e9, nil)
		a := s.nodes[0]
		frames := 0
		s.carry = func(from *node, now time.Duration, frame []byte) {
			if from == a {
				if frames++; frames-1 == c.lose {
					return
				}
			}
			s.deliver(s.peer(from), now+2*time.Microsecond, frame)
		}
		c.change.ID, c.change.Signaled = 2, true
		last := write
		last.ID = 3
		a.post(c.first, c.change, last)
		s.run(time.Second)
		if got := a.statuses(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestDrainEndsWhatIsInFlight(t *testing.T) {
	s := newSim(t, RC, 25e9, nil)
	a := s.nodes[0]
	a.post(SendWR{ID: 1, Op: WRWrite, Signaled: true, SG: local(0, 9000), VA: remoteVA, RKey: keyRemote})
	s.run(time.Microsecond)
	at := a.qp.attr
	if err := a.qp.Modify(SendDrain, &at); err != nil {
		t.Fatal(err)
	}
	a.post(SendWR{ID: 2, Op: WRNop, Signaled: true})
	s.run(time.Millisecond)
	if got := a.statuses(); !slices.Equal(got, []string{"1:0x0"}) || !slices.Equal(a.events, []Event{EventDrained}) {
		t.Errorf("drained: %v, events %v", got, a.events)
	}
	if err := a.qp.Modify(ReadyToSend, &at); err != nil {
		t.Fatal(err)
	}
	a.qp.Doorbell()
	s.run(2 * time.Millisecond)
	if got := a.statuses(); !slices.Equal(got, []string{"1:0x0", "2:0x0"}) {
		t.Errorf("again: %v", got)
	}
}

func TestModifyRefusesWhatNoPathHas(t *testing.T) {
	s := newSim(t, RC, 0, nil)
	for _, a := range []Attr{{MTU: 1000}, {MTU: 8192}, {MTU: 128}, {Path: Path{Prio: 8}}} {
		if s.nodes[0].qp.Modify(ReadyToSend, &a) == nil {
			t.Errorf("%+v is accepted", a)
		}
	}
	if _, err := s.nodes[0].port.NewQP(QPConfig{QPN: 0x100}); err == nil {
		t.Error("a number is given twice")
	}
}

// Requests are opcode in hex and number, as they arrive. A bar marks when the port can send. Answers are as in the test
// above.
func TestAnswersAreInOrderAndTogether(t *testing.T) {
	for _, c := range []struct{ name, requests, want string }{
		{"one ACK for many", "6.0 7.1 8.2 a.3 4.4", "11.4"},
		{"ACK before and after a read", "a.0 c.1 a.3 a.4", "11.0 d.1 f.2 11.4"},
		{"repeated read among others: in its place", "c.0 c.2 a.4 c.0", "d.0 f.1 d.2 f.3 11.4"},
		{"repeated rest of a read", "c.0 c.2 c.1", "10.1 d.2 f.3"},
		{"a gap after a read", "c.0 c.7", "d.0 f.1 11.2/60"},
		{"gap: one NAK", "a.0 a.2 a.3 a.4", "11.1/60"},
		{"NAK after the ACK of a duplicate", "a.0 a.2 a.0", "11.1/60"},
		{"the gap is closed: ACK in place of the NAK", "a.0 a.2 a.1 a.2", "11.2"},
		{"duplicate before a read: no more is acknowledged", "a.0 c.1 a.3 a.0", "11.0 d.1 f.2 11.3"},
		{"duplicates of others than are known: silence", "c.0 13.0", "d.0 f.1"},
		{"atomic twice", "14.0 14.0", "12.0"},
		{"middle without first", "7.0", "11.0/61"},
		{"last of a send after the first of a write", "6.0 2.1", "11.1/61"},
		{"first within a message", "6.0 6.1", "11.1/61"},
		{"five reads where four are accepted", "c.0 c.2 c.4 c.6 c.8", "d.0 f.1 d.2 f.3 d.4 f.5 d.6 f.7 11.8/61"},
		{"repeated read whose answers are out: before later ones", "c.0 | c.2 a.4 c.0", "d.0 f.1 d.0 f.1 d.2 f.3 11.4"},
		{"duplicate before a read that is answered", "a.0 c.1 a.3 | a.0", "11.0 d.1 f.2 11.3 11.0"},
		{"no buffer", "4.0 4.1 4.2", "11.1/2c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSim(t, RC, 0, nil)
			peer, b := s.nodes[0], s.nodes[1]
			b.recvs = []RecvWR{{SG: local(0, 100)}}
			var got []string
			s.carry = func(_ *node, _ time.Duration, frame []byte) {
				var p Packet
				_ = Parse(frame, &p)
				text := fmt.Sprintf("%x.%d", uint8(p.Opcode), psnDiff(p.PSN, psnMask-40))
				if p.h&hAETH != 0 && p.Syndrome != aethACK {
					text += fmt.Sprintf("/%x", p.Syndrome)
				}
				got = append(got, text)
			}
			for _, text := range strings.Fields(c.requests) {
				if text == "|" {
					b.port.Poll(0)
					continue
				}
				var op uint8
				var n uint32
				if _, err := fmt.Sscanf(text, "%x.%d", &op, &n); err != nil {
					t.Fatal(err)
				}
				p := peer.qp.base
				p.Opcode, p.PSN, p.VA, p.RKey, p.AckReq = Opcode(op), (psnMask-40+n)&psnMask, remoteVA, keyRemote, true
				switch p.Opcode {
				case opWriteFirst, opWriteMiddle:
					p.Len, p.Payload = 3000, make([]byte, 1024)
				case opWriteLast:
					p.Payload = make([]byte, 3000-2048)
				case opSendLast:
					p.Payload = make([]byte, 1)
				case opReadRequest:
					p.Len = 2000
					if n == 1 && c.name == "repeated rest of a read" {
						p.VA, p.Len = remoteVA+1024, 976
					}
				}
				b.port.Receive(0, p.Append(nil))
			}
			s.run(time.Microsecond)
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("answers\n%s, want\n%s", text, c.want)
			}
		})
	}
}

func TestListsArePassedPieceByPiece(t *testing.T) {
	sg := []SGE{{Key: 1, Len: 3, VA: 100}, {Key: 2, Len: 0, VA: 5}, {Key: 3, Len: 4, VA: 200}}
	for _, c := range []struct {
		off, n int
		want   string
	}{
		{0, 7, "1@100+3 3@200+4 <nil>"}, {2, 3, "1@102+1 3@200+2 <nil>"}, {3, 4, "3@200+4 <nil>"},
		{5, 1, "3@202+1 <nil>"},
		{0, 0, "<nil>"}, {5, 3, "3@202+2 " + FaultRange.Error()}, {9, 1, FaultRange.Error()},
	} {
		var got []string
		err := walk(sg, uint32(c.off), make([]byte, c.n), func(e SGE, b []byte) error {
			got = append(got, fmt.Sprintf("%d@%d+%d", e.Key, e.VA, len(b)))
			return nil
		})
		if text := strings.Join(append(got, fmt.Sprint(err)), " "); text != c.want {
			t.Errorf("%d bytes from %d: %s, want %s", c.n, c.off, text, c.want)
		}
	}
}

func TestDataInLineKeepsItsPlace(t *testing.T) {
	for _, typ := range []QPType{RC, UC} {
		s := newSim(t, typ, 0, nil)
		a, b := s.nodes[0], s.nodes[1]
		a.fill(keyLocal)
		mem := a.mem[keyLocal].b
		inline := make([]byte, 1500)
		for i := range inline {
			inline[i] = byte(i * 7)
		}
		w := SendWR{ID: 1, Op: WRWrite, Signaled: true, VA: remoteVA, RKey: keyRemote, Inline: inline, SG: []SGE{
			{Inline: true, VA: 0, Len: 10}, {Key: keyLocal, VA: 0x1000, Len: 2000}, {Inline: true, VA: 10, Len: 1490},
			{Key: keyLocal, VA: 0x1000 + 2000, Len: 3}}}
		want := slices.Concat(inline[:10], mem[:2000], inline[10:], mem[2000:2003])
		a.post(w)
		s.run(time.Second)
		if len(a.done) != 1 || a.done[0].Status != OK {
			t.Fatalf("%v: completions %v", typ, a.statuses())
		}
		if !bytes.Equal(b.mem[keyRemote].b[:len(want)], want) {
			t.Errorf("%v: other bytes arrived", typ)
		}
		if typ == RC {
			a.post(SendWR{ID: 2, Op: WRRead, Signaled: true, VA: remoteVA, RKey: keyRemote, Inline: inline[:4],
				SG: []SGE{{Inline: true, Len: 4}}})
			s.run(time.Second)
			if n := len(a.done); n != 2 || a.done[1].Status != LocalQPOp {
				t.Errorf("a read into data in line: completions %v", a.statuses())
			}
		}
	}
}

// Held data and acknowledgements do not delay each other.
func TestHeldPacketsWait(t *testing.T) {
	const data, replies, flight = 40 * time.Microsecond, 90 * time.Microsecond, 2 * time.Microsecond
	for _, tt := range []struct{ data, replies bool }{{}, {data: true}, {replies: true}, {true, true}} {
		s := newSim(t, RC, 25e9, nil)
		a, b := s.nodes[0], s.nodes[1]
		first := map[Opcode]time.Duration{}
		s.carry = func(from *node, now time.Duration, frame []byte) {
			var p Packet
			_ = Parse(frame, &p)
			if _, known := first[p.Opcode]; from == b && !known {
				first[p.Opcode] = now
			}
			s.deliver(s.peer(from), now+flight, frame)
		}
		want := map[Opcode]time.Duration{opWriteOnly: 0, opAck: flight}
		if tt.data {
			b.qp.HoldData(data)
			want[opWriteOnly] = data
		}
		if tt.replies {
			b.qp.HoldReplies(replies)
			want[opAck] = replies
		}
		a.post(SendWR{ID: 1, Op: WRWrite, Signaled: true, SG: local(0, 64), VA: remoteVA, RKey: keyRemote})
		b.post(SendWR{ID: 2, Op: WRWrite, Signaled: true, SG: local(0, 64), VA: remoteVA, RKey: keyRemote})
		s.run(time.Second)
		for op, at := range want {
			if got, sent := first[op]; !sent || got < at || got > at+time.Microsecond {
				t.Errorf("%+v: the first packet of kind %#x is sent at %v, want %v", tt, op, got, at)
			}
		}
		if !slices.Equal(a.statuses(), []string{"1:0x0"}) || !slices.Equal(b.statuses(), []string{"2:0x0"}) {
			t.Errorf("%+v: completions %v and %v", tt, a.statuses(), b.statuses())
		}
	}
}
