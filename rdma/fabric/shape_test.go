package fabric

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type simulation struct {
	*shaper
	counters PortCounters
	pool     chunks
	now      int64
	frames   [][]byte
	times    []int64
}

func simulate(l Link) *simulation { return simulateAs("p", l) }

func simulateAs(port string, l Link) *simulation {
	s := &simulation{}
	s.shaper = newShaper(port, l, DefaultQueueBytes, &s.counters, &s.pool, 0)
	return s
}

func (s *simulation) take() {
	for !s.out.empty() {
		f := s.out.pop()
		s.frames = append(s.frames, bytes.Clone(f.data()[prefixLen:]))
		s.times = append(s.times, s.now)
		s.release(f)
	}
}

func (s *simulation) send(frames ...[]byte) {
	for _, f := range frames {
		s.admit(framed(f), 0, s.now)
		s.advance(s.now)
	}
	s.take()
}

// until wakes up only when the link asks for it.
func (s *simulation) until(end int64) {
	for at := s.next(); at <= end; at = s.next() {
		s.now = max(s.now, at)
		s.advance(s.now)
		s.take()
	}
	s.now = max(s.now, end)
}

func (s *simulation) run() {
	for at := s.next(); at != never; at = s.next() {
		s.until(at)
	}
}

func numbered(n, size int) [][]byte {
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = frame(station(1), station(2), size, uint32(i))
	}
	return frames
}

func numbers(frames [][]byte) []uint32 {
	out := make([]uint32, len(frames))
	for i, f := range frames {
		out[i] = binary.BigEndian.Uint32(f[16:])
	}
	return out
}

func TestAFrameTakesItsTimeOnTheWire(t *testing.T) {
	tests := []struct {
		name string
		size int
		rate int64
		want []int64 // nanoseconds
	}{
		{"1514 bytes at 1 Gbit/s", 1514, 1e9, []int64{12304, 24608, 36912}}, // 1538 bytes
		// 84 bytes: 1.488 million a second, the known figure
		{"a short frame is padded", 42, 1e9, []int64{672, 1344, 2016}},
		{"parts of a nanosecond add up", 60, 400e9, []int64{1, 3, 5, 6, 8}}, // 1.68 ns each
		{"the slowest and the longest", MaxFrame, MinRate, []int64{131_264_000_000}},
		{"the fastest", 60, MaxRate, []int64{0, 1, 2, 2}}, // 0.672 ns each
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := simulate(Link{Rate: tt.rate})
			s.send(numbered(len(tt.want), tt.size)...)
			s.run()
			if diff := cmp.Diff(tt.want, s.times); diff != "" {
				t.Errorf("times (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLateWakeupsDoNotLowerTheRate(t *testing.T) {
	s := simulate(Link{Rate: 1e9})
	s.send(numbered(1000, 1514)...)
	for range 10 { // every millisecond
		s.now += int64(time.Millisecond)
		s.advance(s.now)
		s.take()
	}
	if want := 10_000_000 / 12304; len(s.frames) != want {
		t.Errorf("%d frames in 10 ms, want %d", len(s.frames), want)
	}
}

// At any time t at most rate*t + burst has left, and while frames wait at most one frame less.
func TestPropertyTheRateIsKeptFromAboveAndBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Link{Rate: rapid.Int64Range(1e6, 1e11).Draw(t, "rate")}
		l.Burst = rapid.IntRange(0, 50_000).Draw(t, "burst")
		s := simulate(l)
		total, left := uint64(0), 0
		for range rapid.IntRange(1, 30).Draw(t, "turns") {
			batch := numbered(rapid.IntRange(0, 10).Draw(t, "frames"), rapid.IntRange(minFrame, 9000).Draw(t, "size"))
			s.send(batch...)
			s.until(s.now + rapid.Int64Range(0, int64(time.Millisecond)).Draw(t, "pause"))
			for _, f := range s.frames[left:] {
				total += wireBits(len(f))
			}
			left = len(s.frames)
			most := float64(l.Rate)*float64(s.now+1)/1e9 + 8*float64(l.Burst)
			if float64(total) > most {
				t.Fatalf("%d bits after %d ns, want at most %.0f", total, s.now, most)
			}
		}
		if s.wait[0].empty() {
			return
		}
		began, rest := s.now, uint64(0)
		for i := s.wait[0].head; i < len(s.wait[0].list); i++ {
			rest += wireBits(s.wait[0].list[i].len() - prefixLen)
		}
		s.run()
		if most := float64(rest)/float64(l.Rate)*1e9 + 1; float64(s.now-began) > most {
			t.Fatalf("the rest of %d bits took %d ns, want at most %.0f", rest, s.now-began, most)
		}
	})
}

func TestABurstLeavesAtOnceAfterAPause(t *testing.T) {
	s := simulate(Link{Rate: 1e9, Burst: 3 * 1538})
	want := []int64{0, 0, 0, 12304, 24608}
	s.send(numbered(5, 1514)...)
	s.run()
	if diff := cmp.Diff(want, s.times); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
	s.until(s.now + 2*12304) // two frames of the burst come back
	again := s.now
	s.frames, s.times = nil, nil
	s.send(numbered(3, 1514)...)
	s.run()
	if diff := cmp.Diff([]int64{again, again, again + 12304}, s.times); diff != "" {
		t.Errorf("times after a pause (-want +got):\n%s", diff)
	}
}

func TestDelayIsExactAndFramesAreUnderWayTogether(t *testing.T) {
	s := simulate(Link{Delay: 50 * time.Microsecond})
	for _, f := range numbered(3, 100) {
		s.send(f)
		s.now += 1000
	}
	s.run()
	if diff := cmp.Diff([]int64{50_000, 51_000, 52_000}, s.times); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}

func TestJitterIsEvenWithinItsBoundsAndKeepsTheOrder(t *testing.T) {
	const n, delay, jitter = 10_000, 1000, 100
	s := simulate(Link{Delay: delay, Jitter: jitter, Seed: 1})
	frames := numbered(n, 60)
	var buckets [4]int
	sum := 0.0
	for i, f := range frames {
		s.now = int64(i) * 10 * delay // so that no frame waits for the one before
		s.send(f)
		s.run()
		d := s.times[i] - int64(i)*10*delay
		if d < delay-jitter || d > delay+jitter {
			t.Fatalf("frame %d: delay %d ns, want %d to %d", i, d, delay-jitter, delay+jitter)
		}
		sum += float64(d)
		buckets[min(int(d-(delay-jitter))*4/(2*jitter), 3)]++
	}
	// The standard deviation of the mean is 2*jitter/sqrt(12*n), 0.6 ns.
	if mean := sum / n; math.Abs(mean-delay) > 3 {
		t.Errorf("mean delay %.1f ns, want %d", mean, delay)
	}
	for i, have := range buckets { // standard deviation 43
		if have < n/4-200 || have > n/4+200 {
			t.Errorf("quarter %d of the range has %d of %d frames", i+1, have, n)
		}
	}

	s = simulate(Link{Delay: delay, Jitter: delay, Seed: 1})
	for _, f := range frames {
		s.send(f)
		s.until(s.now + 10)
	}
	s.run()
	if !slices.IsSorted(numbers(s.frames)) || len(s.frames) != n {
		t.Errorf("%d of %d frames, or out of order", len(s.frames), n)
	}
}

func TestLossIsAsAskedAndCanBeRepeated(t *testing.T) {
	const n = 20_000
	for _, p := range []float64{0, 0.001, 0.1, 0.5, 1} {
		run := func(port string, l Link) []uint32 {
			s := simulateAs(port, l)
			for i, f := range numbered(n, 60) {
				s.now = int64(i)
				s.send(f)
			}
			s.run()
			if got := s.counters.Drops; got.Lost != uint64(n-len(s.frames)) || got.Total() != got.Lost {
				t.Errorf("probability %v: %d of %d came, counted %+v", p, len(s.frames), n, got)
			}
			return numbers(s.frames)
		}
		first := run("p", Link{Loss: p, Seed: 7})
		lost, sigma := float64(n-len(first)), math.Sqrt(n*p*(1-p))
		if math.Abs(lost-n*p) > 4*sigma { // a fixed seed: always or never
			t.Errorf("probability %v: lost %.0f of %d, want %.0f +- %.0f", p, lost, n, n*p, 4*sigma)
		}
		if !slices.Equal(first, run("p", Link{Loss: p, Seed: 7})) {
			t.Errorf("probability %v: the same seed lost other frames", p)
		}
		if !slices.Equal(first, run("p", Link{Loss: p, Seed: 7, Delay: 1000, Jitter: 1000, Rate: 1e9})) {
			t.Errorf("probability %v: another impairment changed which frames are lost", p)
		}
		if p > 0 && p < 1 && (slices.Equal(first, run("p", Link{Loss: p, Seed: 8})) ||
			slices.Equal(first, run("q", Link{Loss: p, Seed: 7}))) {
			t.Errorf("probability %v: another seed or port lost the same frames", p)
		}
	}
}

func TestALostFrameTakesItsTimeOnTheWire(t *testing.T) {
	s := simulate(Link{Rate: 1e9, Loss: 1})
	s.send(numbered(1, 1514)...)
	s.set("p", Link{Rate: 1e9}, DefaultQueueBytes, s.now)
	s.send(numbered(1, 1514)...)
	s.run()
	if s.now != 2*12304 { // the first frame was still waiting
		t.Errorf("two frames took %d ns", s.now)
	}
	s = simulate(Link{Rate: 1e9, Loss: 1})
	s.send(numbered(3, 1514)...)
	s.run()
	if s.now != 3*12304 || s.counters.Drops.Lost != 3 {
		t.Errorf("after %d ns %+v", s.now, s.counters.Drops)
	}
}

func TestReorderingIsAsAskedAndOvertakesWhatIsDelayed(t *testing.T) {
	const n, p = 10_000, 0.05
	s := simulate(Link{Delay: time.Millisecond, Reorder: p, Seed: 3})
	for i, f := range numbered(n, 60) {
		s.until(int64(i) * 1000)
		s.send(f)
	}
	s.run()
	early := 0
	for i, tag := range numbers(s.frames) {
		switch s.times[i] - int64(tag)*1000 {
		case 0:
			early++
		case int64(time.Millisecond):
		default:
			t.Fatalf("frame %d took %d ns", tag, s.times[i]-int64(tag)*1000)
		}
	}
	if sigma := math.Sqrt(n * p * (1 - p)); math.Abs(float64(early)-n*p) > 4*sigma {
		t.Errorf("%d of %d frames overtook, want %.0f +- %.0f", early, n, n*p, 4*sigma)
	}
	// The first frame cannot overtake another.
	if got := int(s.counters.Reordered); got != early && got != early-1 {
		t.Errorf("counted %d, seen %d", got, early)
	}
	if len(s.frames) != n {
		t.Errorf("%d of %d frames came", len(s.frames), n)
	}
}

func TestTheBufferDropsWhatDoesNotFit(t *testing.T) {
	const frames = 10
	s := simulate(Link{Rate: 1e9, Buffer: frames * (1514 + prefixLen)})
	s.send(numbered(frames+5, 1514)...)
	if got := s.counters.Drops; got.BufferFull != 5 || got.Total() != 5 {
		t.Errorf("%+v, want 5 for want of room", got)
	}
	s.run()
	if diff := cmp.Diff([]uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, numbers(s.frames)); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}

	s = simulate(Link{Rate: 1e9, Buffer: 1})
	s.send(numbered(2, 1514)...)
	if s.run(); len(s.frames) != 1 || s.counters.Drops.BufferFull != 1 {
		t.Errorf("an empty buffer took %d frames, want 1", len(s.frames))
	}

	s = simulate(Link{Rate: 1e9})
	s.admit(framed(frame(1, 2, 100, 0)), DefaultQueueBytes, 0)
	if s.counters.Drops.BufferFull != 1 {
		t.Error("what the node has not taken does not count")
	}
}

func TestMarksGrowWithTheQueue(t *testing.T) {
	const lo, hi, n = 30 << 10, 90 << 10, 4000
	l := Link{ECN: RED{lo, hi, 0.2}, Seed: 5}
	for _, tt := range []struct {
		queue int
		want  float64
	}{{0, 0}, {lo - 1, 0}, {lo, 0}, {lo + (hi-lo)/4, 0.05}, {lo + (hi-lo)/2, 0.1}, {hi - 1, 0.2}, {hi, 1},
		{2 * hi, 1}} {
		s := simulate(l)
		for i := range n {
			s.admit(framed(ipv4Frame(1, 2, 1, 60, uint32(i))), tt.queue, 0)
			s.advance(0)
		}
		s.take()
		seen := 0
		for _, f := range s.frames {
			if f[minFrame+1]&ecnMask == ecnCE {
				seen++
			}
		}
		if sigma := math.Sqrt(n * tt.want * (1 - tt.want)); math.Abs(float64(seen)-n*tt.want) > 4*sigma+1 ||
			seen != int(s.counters.ECNMarked) {
			t.Errorf("queue of %d bytes: %d of %d marked (counted %d), want %.0f", tt.queue, seen, n,
				s.counters.ECNMarked, n*tt.want)
		}
	}
	s := simulate(Link{ECN: RED{0, 0, 1}})
	s.send(ipv4Frame(1, 2, 0, 60, 0), frame(1, 2, 60, 0), ipv6Frame(1, 2, 2, 60, 0))
	if s.counters.ECNMarked != 1 || len(s.frames) != 3 {
		t.Errorf("%d of %d marked, want 1 of 3", s.counters.ECNMarked, len(s.frames))
	}
}

func TestAChangeActsOnWhatIsUnderWay(t *testing.T) {
	slow := Link{Rate: 1e6, Delay: 5 * time.Second}
	tests := []struct {
		name  string
		to    Link
		least int64 // of the last frame, after the change
		most  int64
	}{
		{"no impairment at all lets everything out at once", Link{}, 0, 0},
		{"a shorter delay", Link{Rate: 1e6, Delay: time.Second}, int64(time.Second), int64(time.Second) +
			10*12_304_000},
		{"a higher rate", Link{Rate: 1e9, Delay: 5 * time.Second}, int64(5*time.Second) + 9*12304,
			int64(5*time.Second) + 10*12304},
		{"only loss, later", Link{Rate: 1e6, Delay: 5 * time.Second, Loss: 1}, 0, int64(5 * time.Second)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := simulate(slow)
			s.send(numbered(20, 1514)...)
			s.until(10 * 12_304_000) // half are in flight
			changed := s.now
			s.set("p", tt.to, DefaultQueueBytes, s.now)
			s.advance(s.now)
			s.take()
			s.run()
			if got := s.now - changed; got < tt.least || got > tt.most {
				if tt.to.Loss == 0 || s.counters.Drops.Lost != 10 {
					t.Errorf("the last came after %v, want %v to %v", time.Duration(got), time.Duration(tt.least),
						time.Duration(tt.most))
				}
			}
			if !slices.IsSorted(numbers(s.frames)) || len(s.frames)+int(s.counters.Drops.Lost) != 20 {
				t.Errorf("%d frames came, or out of order: %v", len(s.frames), numbers(s.frames))
			}
		})
	}
}

func TestWhatIsInFlightIsBoundedAndSlowsTheLinkDown(t *testing.T) {
	s := simulate(Link{Delay: time.Second, Buffer: MaxBuffer})
	const size = 9000
	n := 2 * maxInFlight / (size + prefixLen)
	f := frame(1, 2, size, 0)
	for range n {
		s.send(f)
	}
	if most := maxInFlight + size + prefixLen; s.flight.bytes > most || s.flight.bytes < maxInFlight {
		t.Errorf("%d bytes in flight, want about %d", s.flight.bytes, maxInFlight)
	}
	s.run()
	if len(s.frames) != n || s.now < int64(2*time.Second) || s.counters.Drops.Total() != 0 {
		t.Errorf("%d of %d frames after %v, drops %+v", len(s.frames), n, time.Duration(s.now), s.counters.Drops)
	}

	// With a rate, the time of the stop is lost.
	s = simulate(Link{Rate: 10e9, Delay: time.Second, Buffer: MaxBuffer})
	for range n {
		s.send(f)
	}
	s.run()
	gap := int64(wireBits(size) / 10)
	for i := 1; i < n; i++ {
		if d := s.times[i] - s.times[i-1]; d < gap-1 {
			t.Fatalf("frame %d came %d ns after the one before, want %d or more", i, d, gap)
		}
	}
}

// Frames come out unchanged except for marks, in order unless reordered, and all memory is released.
func TestPropertyNothingIsDamagedAndNothingLeaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := simulate(drawLink(t))
		var sent [][]byte
		reorders := s.link.Reorder > 0
		for range rapid.IntRange(1, 20).Draw(t, "turns") {
			for range rapid.IntRange(0, 30).Draw(t, "frames") {
				size := rapid.OneOf(rapid.IntRange(40, 100), rapid.SampledFrom([]int{1514, 4200, MaxFrame})).Draw(t,
					"size")
				f := ipv4Frame(1, 2, byte(len(sent)&1), size, uint32(len(sent)))
				sent = append(sent, f)
				s.send(f)
			}
			s.until(s.now + rapid.Int64Range(0, int64(time.Millisecond)).Draw(t, "pause"))
			if rapid.IntRange(0, 4).Draw(t, "change") == 0 {
				l := drawLink(t)
				reorders = reorders || l.Reorder > 0
				s.set("p", l, DefaultQueueBytes, s.now)
			}
		}
		s.run()
		last, marked := -1, uint64(0)
		for _, f := range s.frames {
			i := int(binary.BigEndian.Uint16(f[minFrame+4:]))
			want := sent[i]
			if f[minFrame+1] != want[minFrame+1] {
				marked++
				want = ipv4Frame(1, 2, ecnCE, len(f), uint32(i))
			}
			if !bytes.Equal(f, want) {
				t.Fatalf("frame %d is damaged", i)
			}
			if i <= last && !reorders {
				t.Fatalf("frame %d came after %d", i, last)
			}
			last = i
		}
		drops := s.counters.Drops
		if len(s.frames)+int(drops.Lost+drops.BufferFull) != len(sent) || marked > s.counters.ECNMarked ||
			drops.Lost == 0 && marked < s.counters.ECNMarked {
			t.Fatalf("sent %d, came %d, marked %d; counted %+v, %d marked", len(sent), len(s.frames), marked, drops,
				s.counters.ECNMarked)
		}
		if s.waiting()+s.flight.bytes+s.out.bytes != 0 || s.fill != nil && (s.fill.live != 0 ||
			len(s.fill.data) != 0) {
			t.Fatal("something is left")
		}
		for _, c := range s.pool.free {
			if c.live != 0 || c == s.fill {
				t.Fatal("a chunk was given back while in use")
			}
		}
	})
}

// Control goes first. Others take turns, even after control frames.
func TestPrioritiesHaveTurns(t *testing.T) {
	s := simulate(Link{Rate: 1e9, Trust: TrustDSCP})
	add := func(prios ...int) {
		for _, prio := range prios {
			f := ipv4Frame(station(1), station(2), 0, 200, uint32(prio))
			f[minFrame+1] = byte(prio) << 5
			s.admit(framed(f), 0, s.now)
		}
	}
	add(0, 0, 0, 5, 5, 5, 2, 6, 7)
	s.run()
	add(1, 0, 6)
	s.run()
	var order []int
	for _, f := range s.frames {
		order = append(order, int(f[minFrame+1]>>5))
	}
	want := []int{7, 6, 2, 5, 0, 5, 0, 5, 0, 6, 1, 0}
	if !slices.Equal(order, want) || s.busy != 0 {
		t.Errorf("came in the order %v, want %v; busy %b", order, want, s.busy)
	}
}

func TestClearCountsAllThatIsUnderWay(t *testing.T) {
	s := simulate(Link{Rate: 1e6, Delay: time.Second})
	s.send(numbered(10, 1514)...)
	s.until(3 * 12_304_000)
	if got := s.clear(); got != 10 || s.next() != never || s.fill.live != 0 {
		t.Errorf("clear() = %d, want 10", got)
	}
}

func BenchmarkShaper(b *testing.B) {
	for _, tt := range []struct {
		name string
		link Link
	}{
		{"rate", Link{Rate: 100e9}},
		{"all", Link{Rate: 100e9, Delay: 50 * time.Microsecond, Jitter: 10 * time.Microsecond, Loss: 0.001,
			Reorder: 0.01, ECN: RED{30 << 10, 90 << 10, 0.1}}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			s := simulate(tt.link)
			f := framed(ipv4Frame(1, 2, 1, 1514, 0))
			b.SetBytes(1514)
			b.ReportAllocs()
			for b.Loop() {
				s.now += 200
				s.advance(s.now)
				s.admit(f, 0, s.now)
				for !s.out.empty() {
					s.release(s.out.pop())
				}
			}
		})
	}
}
