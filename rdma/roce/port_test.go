package roce

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

type tee struct {
	at     []time.Duration
	frames [][]byte
	bytes  int
}

func (w *tee) Send(now time.Duration, frame []byte) {
	w.at, w.frames = append(w.at, now), append(w.frames, slices.Clone(frame))
	w.bytes += max(len(frame), minFrame) + wireOverhead
}

func runPort(p *Port, from, to time.Duration, late int) {
	for i := 0; ; i++ {
		next := p.Poll(from)
		if next == never || next >= to {
			return
		}
		if late > 0 && next > from {
			next += time.Duration(i*7%late) * time.Microsecond
		}
		from = max(from, next)
	}
}

func TestPortSendsAtTheRateOfItsCable(t *testing.T) {
	for _, size := range []int{60, 64, 1500, 9018} {
		for _, late := range []int{0, 50} {
			for _, rate := range []uint64{1e9, 25e9, 100e9} {
				w := &tee{}
				p := NewPort(PortConfig{Wire: w, Rate: rate})
				for p.Enqueue(make([]byte, size), 0) {
				}
				runPort(p, 0, time.Second, late)
				last := w.at[len(w.at)-1]
				got := float64(w.bytes-size-wireOverhead) * 8 / last.Seconds()
				// Poll catches up after its delays.
				if slack := 1 + 60e-6/last.Seconds(); got > float64(rate)*1.001 || got*slack < float64(rate)*0.999 {
					t.Errorf("%d bytes at %d Gbit/s, %d us late: %.3f Gbit/s", size, rate/1e9, late, got/1e9)
				}
				if p.Counters.TxDropped != 1 || p.Counters.TxPrio[0].Packets != uint64(len(w.at)) {
					t.Errorf("counters %+v", p.Counters)
				}
			}
		}
	}
}

func TestPortsThatShareACableShareItsRate(t *testing.T) {
	const rate, size = 1e9, 1500
	w, line := &tee{}, &Line{}
	var ports []*Port
	for range 3 {
		p := NewPort(PortConfig{Wire: w, Rate: rate, Line: line})
		for p.Enqueue(make([]byte, size), 0) {
		}
		ports = append(ports, p)
	}
	const end = 10 * time.Millisecond
	for now := time.Duration(0); now < end; now += time.Microsecond {
		for _, p := range ports {
			p.Poll(now)
		}
	}
	// One frame of each may be ahead.
	got, want := float64(w.bytes*8)/end.Seconds(), float64(rate)
	if ahead := 3 * 8 * (size + wireOverhead) / end.Seconds(); got > want+ahead || got < want*0.99 {
		t.Errorf("%.3f Gbit/s", got/1e9)
	}
	least := slices.Min([]uint64{ports[0].Counters.TxPrio[0].Packets, ports[1].Counters.TxPrio[0].Packets,
		ports[2].Counters.TxPrio[0].Packets})
	if all := uint64(len(w.at)); least < all/4 {
		t.Errorf("one port sent %d of %d frames", least, all)
	}
}

// An idle cable does not allow a burst.
func TestPortThatWasIdleStartsAtItsRate(t *testing.T) {
	w := &tee{}
	p := NewPort(PortConfig{Wire: w, Rate: 1e9})
	p.Poll(0)
	p.Poll(time.Second)
	for range 100 {
		p.Enqueue(make([]byte, 1226), 0)
	}
	runPort(p, time.Second, 2*time.Second, 0)
	if d := w.at[99] - w.at[0]; d != 99*10*time.Microsecond {
		t.Errorf("100 frames of 10 us took %v", d)
	}
}

func pauseFrame(op uint16, classes uint16, quanta ...uint16) []byte {
	b := make([]byte, 60)
	copy(b, []byte{1, 0x80, 0xc2, 0, 0, 1})
	be.PutUint16(b[12:], etherPause)
	be.PutUint16(b[14:], op)
	be.PutUint16(b[16:], classes)
	for i, q := range quanta {
		be.PutUint16(b[18+2*i:], q)
	}
	return b
}

func TestPausedPriorityIsSilent(t *testing.T) {
	for _, c := range []struct {
		name         string
		frame, again []byte
		resume       time.Duration
		paused       uint64 // us
		others       bool
		deaf         bool // the port obeys no pauses
	}{
		// 0xffff quanta of 512 bits at 25 Gbit/s are 1342 us.
		{"priority 3", pauseFrame(pausePrio, 1<<3, 0, 0, 0, 0xffff), nil, 1342 * time.Microsecond, 1342, true, false},
		{"priority 3, twice", pauseFrame(pausePrio, 1<<3, 0, 0, 0, 0xffff), pauseFrame(pausePrio, 1<<3, 0, 0, 0,
			0xffff),
			1442 * time.Microsecond, 1442, true, false},
		{"priority 3, deaf", pauseFrame(pausePrio, 1<<3, 0, 0, 0, 0xffff), nil, 0, 0, true, true},
		{"the link, deaf", pauseFrame(pauseLink, 0xffff), nil, 0, 0, true, true},
		{"priority 3, then none", pauseFrame(pausePrio, 1<<3, 0, 0, 0, 0xffff), pauseFrame(pausePrio, 1<<3),
			100 * time.Microsecond, 100, true, false},
		{"the link", pauseFrame(pauseLink, 0xffff), nil, 1342 * time.Microsecond, 1342, false, false},
		{"another priority", pauseFrame(pausePrio, 1<<4, 0, 0, 0, 0, 0xffff), nil, 0, 0, true, false},
		{"a pause without classes", pauseFrame(pausePrio, 0, 9, 9, 9, 9), nil, 0, 0, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSim(t, RC, 25e9, nil)
			a := s.nodes[0]
			*a.port.cfg.QoS = QoS{RxPause: !c.deaf}
			if !c.deaf {
				a.port.cfg.QoS.RxPFC = 1 << 3
			}
			var first [8]time.Duration
			s.carry = func(from *node, now time.Duration, frame []byte) {
				prio := 0
				var p Packet
				if Parse(frame, &p) == nil {
					prio = int(a.qp.attr.Path.Prio)
				}
				if from == a && first[prio] == 0 {
					first[prio] = now + 1
				}
			}
			a.port.Receive(0, c.frame)
			a.post(SendWR{Op: WRSend})
			a.port.Enqueue(make([]byte, 60), 0)
			s.run(100 * time.Microsecond)
			if c.again != nil {
				a.port.Receive(s.now, c.again)
			}
			s.run(3 * time.Millisecond)
			if d := first[3] - c.resume; d < 0 || d > time.Microsecond {
				t.Errorf("priority 3 sends after %v, want %v", first[3], c.resume)
			}
			if sends := first[0] <= time.Microsecond; sends != c.others {
				t.Errorf("priority 0 sends after %v", first[0])
			}
			k := a.port.Counters
			got := k.PausedUS[3]
			if !c.others {
				got = k.PausedUS[0]
			}
			if got != c.paused || k.RxTransitions[3]+k.RxTransitions[0] != min(1, c.paused) || k.RxControl == 0 {
				t.Errorf("paused for %d us, want %d: %+v", got, c.paused, k)
			}
		})
	}
}

// Only the other end of the cable may pause a port.
func TestAPauseToAnotherAddressIsDropped(t *testing.T) {
	p := NewPort(PortConfig{Wire: &tee{}, Rate: 25e9})
	for _, to := range [][]byte{{2, 0, 0, 0, 0, 1}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {1, 0x80, 0xc2, 0, 0, 0}} {
		f := pauseFrame(pauseLink, 0xffff)
		copy(f, to)
		if !p.Receive(0, f) || p.paused(0, 0) || p.Counters.RxControl != 0 {
			t.Errorf("a pause to %x: %+v", to, p.Counters)
		}
	}
	if p.Counters.RxDropped != 3 {
		t.Errorf("%d frames were dropped, want 3", p.Counters.RxDropped)
	}
}

func TestHeldPortKeepsWhatItHas(t *testing.T) {
	w := &tee{}
	p := NewPort(PortConfig{Wire: w, Rate: 1e9})
	p.Hold(true)
	for range 10 {
		p.Enqueue(make([]byte, 100), 5)
	}
	if next := p.Poll(time.Microsecond); next != never || len(w.at) != 0 {
		t.Errorf("held: %d frames, next at %v", len(w.at), next)
	}
	p.Hold(false)
	runPort(p, time.Second, 2*time.Second, 0)
	if len(w.at) != 10 || p.Counters.PausedUS[5] != 0 || p.Counters.RxPause[5] != 0 {
		t.Errorf("%d frames, counters %+v", len(w.at), p.Counters)
	}
}

func TestTrafficClassKeepsItsRate(t *testing.T) {
	q := DefaultQoS()
	q.MaxRate[3] = 100e6
	w := &tee{}
	p := NewPort(PortConfig{Wire: w, Rate: 1e9, QoS: &q})
	for range 10 {
		p.Enqueue(make([]byte, 1226), 3)
		p.Enqueue(make([]byte, 1226), 2)
	}
	runPort(p, 0, time.Second, 0)
	// 1250 bytes take 10 us of the port, and 100 us of the class.
	if len(w.at) != 20 || w.at[19] != 900*time.Microsecond || w.at[10] > 200*time.Microsecond {
		t.Errorf("frames at %v", w.at)
	}
}

func TestPriorityOfDSCP(t *testing.T) {
	q := DefaultQoS()
	path := Path{Prio: 1, TClass: 26 << 2}
	if n := q.Priority(&path); n != 1 {
		t.Errorf("priority %d by the tag, want 1", n)
	}
	if q.TrustDSCP = true; q.Priority(&path) != 3 {
		t.Errorf("priority %d by the DSCP, want 3", q.Priority(&path))
	}
	if path.V1 = true; q.Priority(&path) != 1 {
		t.Errorf("priority %d of RoCE v1, which has no DSCP, want 1", q.Priority(&path))
	}
	path.V1 = false
	if q.Prio[26] = 0xff; q.Priority(&path) > 7 {
		t.Error("a priority above 7")
	}
}

func TestQPsShareAPort(t *testing.T) {
	s := newSim(t, RC, 25e9, nil)
	a, b := s.nodes[0], s.nodes[1]
	_ = b
	sent := map[uint32]int{}
	s.carry = func(from *node, now time.Duration, frame []byte) {
		var p Packet
		if Parse(frame, &p) == nil {
			sent[uint32(p.SrcPort)]++
		} else {
			sent[0]++
		}
	}
	for i := range 3 {
		n := &node{sim: s, mem: a.mem}
		q, err := a.port.NewQP(QPConfig{QPN: 0x200 + uint32(i), Owner: n, Mem: a.mem})
		if err != nil {
			t.Fatal(err)
		}
		n.qp, n.port = q, a.port
		s.connect(t, n, b, func(at *Attr) { at.Path.SrcPort, at.Window = uint16(0xc000+i), 1<<20 })
		n.post(SendWR{Op: WRWrite, SG: local(0, regionLen)})
	}
	for range 1000 {
		a.port.Enqueue(make([]byte, 1078), 0)
	}
	s.run(300 * time.Microsecond)
	if d := sent[0xc000] - sent[0xc002]; d > 1 || d < -1 || sent[0xc000] < 100 || sent[0] < 300 {
		t.Errorf("frames by source port, 0 for the host's: %v", sent)
	}
}

func TestLinkThatIsDownLosesTheConnection(t *testing.T) {
	s := newSim(t, RC, 25e9, nil)
	a, b := s.nodes[0], s.nodes[1]
	a.port.SetLink(false)
	a.post(SendWR{ID: 1, Op: WRWrite, Signaled: true})
	s.run(10 * time.Millisecond)
	if a.frames != 0 || a.port.Enqueue(make([]byte, 60), 0) {
		t.Error("frames leave")
	}
	a.port.SetLink(true)
	s.run(20 * time.Millisecond)
	b.port.SetLink(false)
	a.post(SendWR{ID: 2, Op: WRWrite, Signaled: true})
	s.run(time.Second)
	if got := a.statuses(); !slices.Equal(got, []string{"1:0x0", "2:0x15"}) {
		t.Errorf("completions %v", got)
	}
}

func TestCountersHaveTheNamesOfTheDriver(t *testing.T) {
	seen := map[string]bool{}
	c := Counters{RxWrites: 1}
	c.Each(func(name string, v uint64) {
		if seen[name] {
			t.Errorf("%s twice", name)
		}
		seen[name] = true
		if (v == 1) != (name == "rx_write_requests") {
			t.Errorf("%s is %d", name, v)
		}
	})
	for _, name := range []string{"out_of_sequence", "packet_seq_err", "rnr_nak_retry_err", "local_ack_timeout_err",
		"duplicate_request", "implied_nak_seq_err", "req_cqe_error", "out_of_buffer"} {
		if !seen[name] {
			t.Errorf("no %s", name)
		}
	}
}

// egress is a switch's queue that marks between two levels, and drops above a third.
type egress struct {
	s                *sim
	to               *node
	rate             float64 // bits/ns
	free             time.Duration
	low, high, limit int
	most, dropped    int
}

func (e *egress) carry(now time.Duration, frame []byte) {
	e.free = max(e.free, now)
	fill := int(float64(e.free-now) * e.rate / 8)
	e.most = max(e.most, fill)
	if fill > e.limit {
		e.dropped++
		return
	}
	if p := float64(fill-e.low) / float64(e.high-e.low); frame[15]&ecnMask != 0 && p > 0 &&
		(p > 1 || e.s.rand.Float64() < p*0.1) {
		frame[15] |= ecnCE
		mend(frame)
	}
	e.free += time.Duration(float64(max(len(frame), minFrame)+wireOverhead) * 8 / e.rate)
	e.s.deliver(e.to, e.free+time.Microsecond, frame)
}

// incast returns the senders' rates in the second half, in Gbit/s.
func incast(t testing.TB, senders int, d time.Duration, change func(*Congestion)) (rates []float64, out *egress) {
	s := newSim(t, RC, 25e9, nil)
	sink := s.nodes[0]
	*s = sim{rand: s.rand, space: s.space, nodes: []*node{sink}}
	out = &egress{s: s, to: sink, rate: 25, low: 50_000, high: 200_000, limit: 4 << 20}
	change(&sink.cc)
	s.carry = func(from *node, now time.Duration, frame []byte) {
		if from != sink {
			out.carry(now, frame)
			return
		}
		var p Packet
		if err := Parse(frame, &p); err != nil {
			t.Fatal(err)
		}
		for _, n := range s.nodes[1:] {
			if n.qp.cfg.QPN == p.DstQP {
				s.deliver(n, now+2*time.Microsecond, frame)
			}
		}
	}
	for i := range senders {
		n := s.add(t, 0x10+i, RC, 25e9)
		peer := &node{sim: s, mem: sink.mem, port: sink.port}
		q, err := sink.port.NewQP(QPConfig{QPN: 0x300 + uint32(i), Owner: peer, Mem: sink.mem})
		if err != nil {
			t.Fatal(err)
		}
		peer.qp = q
		big := func(a *Attr) { a.MTU, a.Window, a.AckTimeout = 4096, 512, 12 }
		s.connect(t, n, peer, big)
		s.connect(t, peer, n, big)
		change(&n.cc)
		for range 3000 {
			n.sends = append(n.sends, SendWR{Op: WRWrite, Signaled: true, SG: local(0, 1<<18), VA: remoteVA,
				RKey: keyRemote})
		}
		n.qp.Doorbell()
	}
	half := make([]uint64, senders)
	for ; s.now < d; s.run(s.now + d/10) {
		if s.now == d/2 {
			for i, n := range s.nodes[1:] {
				half[i] = n.port.Counters.Tx.Bytes
			}
		}
	}
	for i, n := range s.nodes[1:] {
		rates = append(rates, float64(n.port.Counters.Tx.Bytes-half[i])*8/float64(d-d/2))
	}
	return rates, out
}

// paperCongestion sets tables 1 and 2 of the SIGCOMM paper, in our terms.
func paperCongestion(c *Congestion) {
	c.MinTimeBetweenCNPs, c.RateReduceMonitorPeriod, c.DCETCPRTT, c.TimeReset, c.Threshold = 50, 0, 55, 55, 5
	c.AIRate, c.HAIRate, c.ByteReset, c.DCETCPG, c.ClampTargetRate, c.MinRate = 40, 400, 10_000_000, 1020, true, 10
}

// With the paper's parameters each sender gets a quarter, here within 20 %, because a cut removes up to half of a rate
// and the time includes about a hundred cuts. An adapter's react within microseconds and recover in steps of 300 us, so
// flows are uneven over 20 ms. Without reaction the queue overflows, whatever the window.
func TestIncastSharesThePort(t *testing.T) {
	const line = 25 * float64(4096) / (4096 + 82)
	for _, c := range []struct {
		name    string
		change  func(*Congestion)
		d       time.Duration
		low     float64 // of the fair rate, for each sender
		total   float64 // of the line, in total
		dropped bool
	}{
		{"paper", paperCongestion, 80 * time.Millisecond, 0.8, 0.95, false},
		{"adapter", func(*Congestion) {}, 40 * time.Millisecond, 0.2, 0.6, false},
		{"no reaction", func(c *Congestion) { c.React = 0 }, 10 * time.Millisecond, 0, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rates, out := incast(t, 4, c.d, c.change)
			sum := 0.0
			for _, r := range rates {
				sum += r
			}
			for _, r := range rates {
				if !c.dropped && (r < c.low*line/4 || c.low > 0.5 && r > (2-c.low)*line/4) {
					t.Errorf("rates %.2f Gbit/s: %.2f is not near a quarter of %.2f", rates, r, line)
				}
			}
			if sum < c.total*line || (out.dropped > 0) != c.dropped {
				t.Errorf("rates %.2f, sum %.2f Gbit/s of %.2f, %d dropped, up to %d bytes queued", rates, sum, line,
					out.dropped,
					out.most)
			}
		})
	}
}

func TestRateFollowsTheFormulas(t *testing.T) {
	s := newSim(t, RC, 25e9, nil)
	a := s.nodes[0]
	paperCongestion(&a.cc)
	gbit := func() float64 {
		if !a.qp.flow.limited {
			return 0
		}
		return math.Round(a.qp.flow.rate) / 1e3
	}
	var got []float64
	step := func() { got = append(got, gbit()) }
	step()
	a.qp.cut(0) // alpha 1: by half
	step()
	a.qp.cut(time.Microsecond) // halved again; alpha is still 1: (1-g)*1+g
	step()
	for i := range 7 {
		a.qp.paced(time.Microsecond + time.Duration(i+1)*55*time.Microsecond)
		step()
	}
	// The target is 12.5 after the second cut. Each of the first stages goes half of the way, and then 40 Mbit/s more.
	want := []float64{0, 12.5, 6.25, 9.375, 10.938, 11.719, 12.109, 12.325, 12.452, 12.536}
	if !slices.Equal(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
	// Alpha decays by 1020/1024 in each 55 us.
	if want := math.Pow(1020./1024, 7); math.Abs(a.qp.flow.alpha-want) > 1e-9 {
		t.Errorf("alpha %v, want %v", a.qp.flow.alpha, want)
	}
	a.qp.paced(time.Minute)
	if gbit() != 0 {
		t.Errorf("after a minute the rate is still %v Gbit/s", gbit())
	}
}

func TestCNPsKeepADistance(t *testing.T) {
	s := newSim(t, RC, 25e9, nil)
	a, b := s.nodes[0], s.nodes[1]
	b.cc.MinTimeBetweenCNPs = 50
	s.carry = func(from *node, now time.Duration, frame []byte) {
		if from == a {
			frame[15] |= ecnCE
			mend(frame)
		}
		s.deliver(s.peer(from), now+2*time.Microsecond, frame)
	}
	a.post(SendWR{Op: WRWrite, SG: local(0, 700_000), VA: remoteVA, RKey: keyRemote})
	s.run(400 * time.Microsecond)
	k, k2 := &a.port.Counters, &b.port.Counters
	if k2.ECNMarked < 50 || k2.CNPSent < 5 || k2.CNPSent > 8 || k.CNPHandled != k2.CNPSent ||
		k2.TxPrio[6].Packets != k2.CNPSent {
		t.Errorf("%d marked, %d CNPs sent, %d handled, %d frames of priority 6", k2.ECNMarked, k2.CNPSent, k.CNPHandled,
			k2.TxPrio[6].Packets)
	}
	a.cc.React = 0
	a.qp.cut(s.now)
	if k.CNPIgnored != 1 {
		t.Errorf("%d CNPs ignored", k.CNPIgnored)
	}
}

// Rates stay between 1 Mbit/s and the line.
func TestParametersOfAGuestDoNoHarm(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	odd := []uint32{0, 1, 2, 50, 100, 1023, 1024, 1 << 20, 1<<32 - 1}
	for range 300 {
		s := newSimOf(t, 8192, RC, 25e9, nil)
		a := s.nodes[0]
		c := &a.cc
		for _, x := range []*uint32{&c.TimeReset, &c.ByteReset, &c.Threshold, &c.AIRate, &c.HAIRate, &c.MaxRate,
			&c.MinDecFac,
			&c.MinRate, &c.RateToSetOnFirstCNP, &c.DCETCPG, &c.DCETCPRTT, &c.RateReduceMonitorPeriod, &c.InitialAlpha,
			&c.GD} {
			*x = odd[r.IntN(len(odd))]
		}
		began := time.Now()
		now := time.Duration(0)
		for range 50 {
			now += time.Duration(r.IntN(1 << r.IntN(36)))
			a.qp.cut(now)
			a.qp.passed(now, 4200)
			now += time.Duration(r.IntN(1 << r.IntN(44)))
			a.qp.paced(now)
			if f := &a.qp.flow; f.limited && !(f.rate >= 1 && f.rate <= 25e3 && f.alpha >= 0 && f.alpha <= 1) {
				t.Fatalf("%+v: %+v", *c, *f)
			}
		}
		if d := time.Since(began); d > time.Minute { // a loop over 2^44 ns would take hours
			t.Fatalf("%+v: %v", *c, d)
		}
	}
}

func TestGroupGetsWhatIsSentToIt(t *testing.T) {
	s := newSim(t, UD, 25e9, nil)
	a, b := s.nodes[0], s.nodes[1]
	group := GID{0: 0xff, 1: 0x0e, 15: 9}
	b.port.cfg.Group = func(p *Packet) []uint32 {
		if p.Dst == group {
			return []uint32{b.qp.cfg.QPN, 99}
		}
		return nil
	}
	path := testPath(a, b)
	path.Dst, path.Src, path.DstMAC = group, GID{0: 0xfd, 15: 1}, [6]byte{0x33, 0x33, 5: 9}
	other := path
	other.Dst[15] = 8
	b.recvs = []RecvWR{{ID: 1, SG: local(0, 100)}, {ID: 2, SG: local(0, 100)}}
	for _, to := range []Path{path, other} {
		a.post(SendWR{Op: WRSend, To: to, QPN: multicastQP, QKey: 0x1234, SG: local(0, 10)})
	}
	s.run(time.Millisecond)
	if got := b.statuses(); !slices.Equal(got, []string{"1:0x0"}) || b.port.Counters.RxMulticast.Packets != 2 {
		t.Errorf("received %v, counters %+v", got, b.port.Counters)
	}
	if a.port.Counters.TxMulticast.Packets != 2 || a.port.Counters.Tx.Packets != 0 {
		t.Errorf("sender's counters %+v", a.port.Counters)
	}
}
