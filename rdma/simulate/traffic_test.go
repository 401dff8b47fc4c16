package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Sizes that are drawn have the mean and the quantiles of their distribution.
func TestPublishedSizes(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	for name, want := range map[string]float64{"websearch": 1_711_250, "hadoop": 120_420.75} {
		s := published[name]
		sum, below := 0.0, 0
		const n = 200_000
		for range n {
			v := s.at(draw.Float64())
			sum += float64(v)
			if v <= int64(s[5].bytes) {
				below++
			}
		}
		if math.Abs(s.mean()/want-1) > 0.001 || math.Abs(sum/n/want-1) > 0.02 {
			t.Errorf("%s: mean %v, drawn %v, want %v", name, s.mean(), sum/n, want)
		}
		if got := float64(below) / n; math.Abs(got-s[5].share) > 0.005 {
			t.Errorf("%s: %v of the sizes are at most %v, want %v", name, got, s[5].bytes, s[5].share)
		}
	}
}

// Poisson arrivals load each link as the file says, and gaps between them have the spread of an exponential.
func TestPoissonArrivals(t *testing.T) {
	c := config(t, "topology: {form: star, hosts: 20, rate: 100Gbit}\nswitch: {buffer: 64MiB}\n"+
		"traffic: [{pattern: poisson, sizes: hadoop, load: 40%, for: 50ms, start: 1ms}]")
	hosts := map[string]int{}
	for i := range 20 {
		hosts[fmt.Sprintf("h%d", i)] = i
	}
	list := c.plan(hosts)
	bytes, last := 0.0, map[int32]int64{}
	var gaps, squares float64
	for _, s := range list {
		if s.start < 1e6 || s.start > 51e6 || s.from == s.to {
			t.Fatalf("%+v", s)
		}
		bytes += float64(s.bytes)
		if before, ok := last[s.from]; ok {
			d := float64(s.start - before)
			gaps, squares = gaps+d, squares+d*d
		}
		last[s.from] = s.start
	}
	n := float64(len(list) - 20)
	if load := bytes * 8 / 50e-3 / 20 / 100e9; load < 0.36 || load > 0.44 {
		t.Errorf("load %v with %d flows, want 0.4", load, len(list))
	}
	if ratio := squares / n / (gaps / n * gaps / n); ratio < 1.9 || ratio > 2.1 {
		t.Errorf("mean square of the gaps is %v times the square of their mean, want 2", ratio)
	}
}

// An all-reduce of a ring takes the sum of its messages around the ring, on an empty network.
func TestRingTakesItsClosedForm(t *testing.T) {
	for _, c := range []struct{ topology, traffic string }{
		{"form: star, hosts: 2", "pattern: ring-all-reduce, bytes: 1MiB"},
		{"form: star, hosts: 8", "pattern: ring-all-reduce, bytes: 1MiB"},
		{"form: star, hosts: 7", "pattern: ring-all-reduce, from: [h5, h1, h4], bytes: 1000B"},
		{"form: rail-optimized, hosts: 4, rails: 2", "pattern: hierarchical-all-reduce, bytes: 4MiB"},
	} {
		r := Run(config(t, "topology: {"+c.topology+", rate: 100Gbit}\nnic: {congestion: none}\ntraffic: [{"+c.traffic+
			"}]"), never)
		for _, k := range r.Collectives {
			// Acknowledgements of the other direction of a ring of two share the link.
			if off := float64(k.Completion)/float64(k.Ideal) - 1; math.Abs(off) > 0.01 {
				t.Errorf("%s, %s: %v, closed form %v", c.topology, c.traffic, k.Completion, k.Ideal)
			}
		}
		if r.Unfinished > 0 || len(r.Collectives) == 0 || r.Counts.Drops > 0 {
			t.Errorf("%s: %d unfinished, %d rings", c.topology, r.Unfinished, len(r.Collectives))
		}
	}
	// By hand: six messages of 256 KiB, each 256 packets on one link and one on the other, with four delays.
	r := Run(config(t, "topology: {form: star, hosts: 4, rate: 100Gbit}\nnic: {congestion: none}\n"+
		"traffic: [{pattern: ring-all-reduce, bytes: 1MiB}]"), never)
	message := (257*1106 + 2*20) * 8. / 100
	want := time.Duration(6*(message+2000) + 2*86*8./100 + 2000)
	if k := r.Collectives[0]; k.Ideal < want-10 || k.Ideal > want+10 {
		t.Errorf("closed form %v, by hand %v", k.Ideal, want)
	}
}

// A rank that starts behind a slow link holds up the whole ring, because each message waits for the one before it.
func TestRingWaitsForItsSlowestLink(t *testing.T) {
	const text = "topology: {form: star, hosts: 8, rate: 100Gbit}\nnic: {congestion: none}\n" +
		"traffic: [{pattern: ring-all-reduce, bytes: 8MiB}]\n"
	fast := Run(config(t, text), never).Collectives[0].Completion
	slow := Run(config(t, text+"faults: [{link: h3, rate: 10Gbit}]"), never).Collectives[0].Completion
	if ratio := float64(slow) / float64(fast); ratio < 8 || ratio > 11 {
		t.Errorf("%v with a link of a tenth of the rate, %v without", slow, fast)
	}
}

// An all-to-all has a flow for each ordered pair, and ends when each link has carried its share.
func TestAllToAll(t *testing.T) {
	r := Run(config(t, "topology: {form: star, hosts: 6, rate: 100Gbit}\nnic: {congestion: none}\n"+
		"traffic: [{pattern: all-to-all, bytes: 1MiB}]"), never)
	least := 5 * (1 << 20) / 1024 * 1106 * 8. / 100
	if len(r.Flows) != 30 || r.Completion.Most < least || r.Completion.Most > 1.1*least {
		t.Errorf("%d flows, the last after %v ns; want 30, and %v", len(r.Flows), r.Completion.Most, least)
	}
}

// Bursts repeat an entry, and a trace is replayed as it is written.
func TestBurstsAndTraces(t *testing.T) {
	read := func(string) ([]byte, error) {
		return []byte("# of a cluster\n0s h0 h1 1000\n\n12.5us h2 h0 1MiB\n"), nil
	}
	c, err := Parse("test.yaml", []byte("topology: {form: star, hosts: 3, rate: 100Gbit}\ntraffic: [{pattern: incast, "+
		"to: h0, senders: 2, bytes: 1KiB, start: 5us, every: 100us, times: 3}, {pattern: trace, file: a.txt, "+
		"start: 1ms}]"), read)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, f := range Run(c, never).Flows {
		got += fmt.Sprintf("%v %s>%s %d, ", f.Start, f.From, f.To, f.Bytes)
	}
	const want = "5µs h1>h0 1024, 5µs h2>h0 1024, 105µs h1>h0 1024, 105µs h2>h0 1024, 205µs h1>h0 1024, " +
		"205µs h2>h0 1024, 1ms h0>h1 1000, 1.0125ms h2>h0 1048576, "
	if got != want {
		t.Errorf("flows %s\nwant  %s", got, want)
	}
}
