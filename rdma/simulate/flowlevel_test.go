package simulate

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

// runShared runs a configuration at flow level, with links that are used completely.
func runShared(c *Config) *Result {
	n := newNetwork(c)
	n.share(c, nil, int64(c.Until), never)
	return n.result(c)
}

// Two flows meet at a link of 40 Gb/s, one of which meets a third at another of 100 Gb/s: they get 20, 20 and 80, and
// when one of the first two has ended, what max-min fairness says then.
func TestRatesAreMaxMinFair(t *testing.T) {
	c := config(t, "level: flow\ntopology:\n  form: links\n  rate: 100Gbit\n  delay: 0s\n  links:\n"+
		"  - {from: h0, to: s0}\n  - {from: h1, to: s0}\n  - {from: h2, to: s1}\n  - {from: h3, to: s1}\n"+
		"  - {from: h4, to: s0}\n  - {from: s0, to: s1, rate: 40Gbit}\ntraffic:\n"+
		"- {pattern: flow, from: [h0], to: h2, bytes: 64MiB}\n- {pattern: flow, from: [h1], to: h3, bytes: 128MiB}\n"+
		"- {pattern: flow, from: [h1], to: h4, bytes: 1GiB}\n")
	r := runShared(c)
	payload := func(gbit float64) float64 { return gbit / 8 * 1024 / (1024 + headData + fcs + gaps) } // bytes/ns
	const mib = 1 << 20
	first := 64 * mib / payload(20)
	second := first + 64*mib/payload(40) // alone on the link of 40 Gb/s
	third := second + (1024*mib-payload(80)*first-payload(60)*(second-first))/payload(100)
	for i, want := range []float64{first, second, third} {
		if got := float64(r.Flows[i].Completion); math.Abs(got/want-1) > 0.002 {
			t.Errorf("flow %d ends after %.0f ns, want %.0f", i, got, want)
		}
	}
}

// A flow that is alone takes the same time at both levels, with and without a ring, on each topology.
func TestLoneFlowTakesTheSameAtFlowLevel(t *testing.T) {
	for _, topology := range []string{"{form: star, hosts: 4, rate: 100Gbit}",
		"{form: leaf-spine, hosts: 2, leaves: 2, spines: 2, rate: 25Gbit, uplink: 40Gbit}",
		"{form: fat-tree, k: 4, rate: 400Gbit, delay: 500ns}"} {
		for traffic, most := range map[string]float64{
			"{pattern: flow, from: [h1], to: h3, bytes: 1B}": 0.005, "{pattern: flow, from: [h1], to: h3, bytes: " +
				"3000001B}": 0.005, "{pattern: ring-all-reduce, bytes: 4MiB}": 0.025} {
			text := "topology: " + topology + "\ntraffic: [" + traffic + "]\n"
			packets, flows := Run(config(t, text), never), Run(config(t, "level: flow\n"+text), never)
			for i := range packets.Flows {
				a, b := float64(packets.Flows[i].Completion), float64(flows.Flows[i].Completion)
				if math.Abs(a-b) > max(20, a*most) {
					t.Errorf("%s, %s: %v ns with packets, %v ns at flow level", topology, traffic, a, b)
				}
			}
		}
	}
}

// Each flow takes the same links at both levels.
func TestLevelsTakeTheSamePaths(t *testing.T) {
	const text = "topology: {form: fat-tree, k: 4, rate: 100Gbit}\n" +
		"traffic: [{pattern: flow, from: [h%d], to: h%d, bytes: 1KiB, qps: %d}]\n"
	seen := map[string]bool{}
	for i := range 40 {
		from, to, qps := i%16, (i*7+5)%16, 1+i%3
		if from == to {
			continue
		}
		c := config(t, fmt.Sprintf(text, from, to, qps))
		var packets []string
		n := newNetwork(c)
		n.run(int64(c.Until), never)
		for _, p := range n.ports {
			if p.sent > 0 {
				packets = append(packets, p.name)
			}
		}
		c = config(t, "level: flow\n"+fmt.Sprintf(text, from, to, qps))
		n = newNetwork(c)
		s := newSharing(c, n, nil)
		for _, f := range n.flows {
			s.start(f)
		}
		for _, p := range n.ports {
			// Acknowledgements go the other way, by the hash of their own source port.
			if s.on[p.out.index] > 0 && !slices.Contains(packets, p.name) {
				t.Errorf("h%d to h%d: flow level takes %s, packets %v", from, to, p.name, packets)
			}
			if s.on[p.out.index] > 0 {
				seen[p.name] = true
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d ports were taken", len(seen))
	}
}

// Rates that are computed agree with those of packets, as far as docs/simulate.md says.
func TestLevelsAgree(t *testing.T) {
	for _, c := range []struct {
		name, text        string
		median, p99, last float64 // most deviation
	}{
		{"permutation", "topology: {form: fat-tree, k: 8, rate: 400Gbit}\nswitch: {ecn: \"1600KiB:6400KiB:20%\"}\n" +
			"traffic: [{pattern: permutation, bytes: 1MiB}]", 0.06, 0.12, 0.15},
		{"rings", "topology: {form: rail-optimized, hosts: 16, rails: 4, spines: 4, rate: 400Gbit}\n" +
			"traffic: [{pattern: hierarchical-all-reduce, bytes: 16MiB}]", 0.005, 0.005, 0.005},
		{"incast", "topology: {form: star, hosts: 9, rate: 100Gbit}\nnic: {congestion: none}\n" +
			"traffic: [{pattern: incast, to: h0, senders: 8, bytes: 1MiB}]", 0.02, 0.02, 0.02},
	} {
		packets, flows := Run(config(t, c.text), never), Run(config(t, "level: flow\n"+c.text), never)
		for _, q := range []struct {
			name       string
			a, b, most float64
		}{
			{"median", packets.Slowdown.Median, flows.Slowdown.Median, c.median},
			{"p99", packets.Slowdown.P99, flows.Slowdown.P99, c.p99},
			{"last completion", packets.Completion.Most, flows.Completion.Most, c.last},
		} {
			t.Logf("%s: %s %.4g with packets, %.4g at flow level", c.name, q.name, q.a, q.b)
			if math.Abs(q.b/q.a-1) > q.most {
				t.Errorf("%s: %s differs by more than %.1f %%", c.name, q.name, 100*q.most)
			}
		}
	}
}

// A link that becomes slow slows its flows, one that goes down moves them, and without a path they fail.
func TestFaultsAtFlowLevel(t *testing.T) {
	const text = "level: flow\ntopology: {form: leaf-spine, hosts: 1, leaves: 2, spines: 2, rate: 100Gbit}\n" +
		"traffic: [{pattern: flow, from: [h0], to: h1, bytes: 10MiB}]\n"
	whole := runShared(config(t, text)).Flows[0].Completion
	for _, c := range []struct {
		name, faults string
		want         float64 // times the time without a fault; 0 if the flow fails
	}{
		{"slow host", "{link: h1, at: 0s, rate: 50Gbit}", 2},
		{"slow from the middle", fmt.Sprintf("{link: h1, at: %v, rate: 25Gbit}", whole/2), 2.5},
		{"another spine", "{link: \"s0:1\", at: 1us, down: true}", 1},
		{"the other spine", "{link: \"s0:2\", at: 1us, down: true}", 1},
		{"no spine", "{link: \"s0:1\", at: 1us, down: true}, {link: \"s0:2\", at: 2us, down: true}", 0},
	} {
		r := runShared(config(t, text+"faults: ["+c.faults+"]\n"))
		f := r.Flows[0]
		if c.want == 0 && (!f.Failed || r.Unfinished != 1) || c.want > 0 &&
			math.Abs(float64(f.Completion)/float64(whole)/c.want-1) > 0.02 {
			t.Errorf("%s: %v, failed %v; want %v times %v", c.name, f.Completion, f.Failed, c.want, whole)
		}
	}
}

// Arrivals that come and go all the time end at a time that packets know, too.
func TestArrivalsAtFlowLevel(t *testing.T) {
	const text = "topology: {form: star, hosts: 8, rate: 100Gbit}\nswitch: {ecn: \"400KiB:1600KiB:20%\"}\n" +
		"traffic: [{pattern: poisson, load: 30%, sizes: websearch, for: 2ms}]\n"
	packets, flows := Run(config(t, text), never), Run(config(t, "level: flow\n"+text), never)
	if len(packets.Flows) != len(flows.Flows) || flows.Unfinished > 0 {
		t.Fatalf("%d flows with packets, %d at flow level, %d of which did not end", len(packets.Flows),
			len(flows.Flows), flows.Unfinished)
	}
	for _, f := range flows.Flows {
		if s := f.Slowdown(); s < 0.99 {
			t.Errorf("a flow of %d bytes is faster than alone: %v", f.Bytes, s)
		}
	}
	if d := flows.Slowdown.Median / packets.Slowdown.Median; d < 0.85 || d > 1.15 {
		t.Errorf("median slowdown %v with packets, %v at flow level", packets.Slowdown.Median, flows.Slowdown.Median)
	}
}

// The time is over at the end of the file, and Ctrl-C ends a run.
func TestFlowLevelEnds(t *testing.T) {
	const text = "level: flow\ntopology: {form: star, hosts: 3, rate: 100Gbit}\nuntil: 1ms\n" +
		"traffic: [{pattern: incast, to: h0, senders: 2, bytes: 1GiB}]\n"
	if r := Run(config(t, text), never); r.Unfinished != 2 || r.Time != time.Millisecond {
		t.Errorf("%d unfinished after %v", r.Unfinished, r.Time)
	}
	if r := Run(config(t, text), func() bool { return true }); !r.Counts.Stopped || r.Unfinished != 2 {
		t.Errorf("%+v", r.Counts)
	}
}

// The part of a link that flows use is measured at powers of two, and is on a line between them.
func TestUsage(t *testing.T) {
	list := []Usage{{2, 1}, {4, 0.8}, {8, 0.6}}
	for flows, want := range map[float64]float64{1: 1, 2: 1, 4: 0.8, 8: 0.6, 100: 0.6, 2 * math.Sqrt2: 0.9} {
		if got := usageOf(list, flows); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v flows use %v, want %v", flows, got, want)
		}
	}
	if got := usageOf(nil, 5); got != 1 {
		t.Errorf("without a measurement: %v", got)
	}
}

// Hosts, ports and flows take less memory than the check of a file assumes.
func TestMemoryAtFlowLevel(t *testing.T) {
	c := config(t, "level: flow\ntopology: {form: fat-tree, k: 16, rate: 100Gbit}\n"+
		"traffic: [{pattern: flow, from: [h1], to: h0, bytes: 1KiB}]")
	idle := 0.0
	n, bytes := onHeap(func() *network { return newNetwork(c) })
	count := float64(len(n.hosts) + len(n.ports))
	if idle = bytes / count; idle > sizeShared {
		t.Errorf("%.0f bytes for a host or a port, want at most %d", idle, sizeShared)
	}
	c.Traffic = []Traffic{{Pattern: permutation, Bytes: 1 << 20, QPs: 8, Times: 1}}
	var s *sharing
	m, bytes := onHeap(func() *network {
		s = newSharing(c, newNetwork(c), nil)
		s.advance(1)
		s.solve()
		return s.net
	})
	if len(s.active) != len(m.flows) {
		t.Fatalf("%d streams of %d flows", len(s.active), len(m.flows))
	}
	bytes = (bytes - idle*count) / float64(len(m.flows))
	if t.Logf("%.0f bytes for a host or a port, %.0f for a flow", idle, bytes); bytes > sizeStream {
		t.Errorf("%.0f bytes for a flow, want at most %d", bytes, sizeStream)
	}
	runtime.KeepAlive(n)
	runtime.KeepAlive(s)
}

// Faults count in the order of their times; a ring without a path for one of its flows ends whole; a flow whose last
// acknowledgement comes after the end has not ended; and messages are whole packets.
func TestOddFilesAtFlowLevel(t *testing.T) {
	const net = "level: flow\ntopology: {form: leaf-spine, hosts: 2, leaves: 2, spines: 1, rate: 100Gbit}\n"
	const flow = net + "traffic: [{pattern: flow, from: [h0], to: h2, bytes: 100MiB}]\n"
	a := runShared(config(t, flow+"faults: [{link: h2, at: 2ms, rate: 10Gbit}, {link: h2, at: 1ms, rate: 50Gbit}]"))
	b := runShared(config(t, flow+"faults: [{link: h2, at: 1ms, rate: 50Gbit}, {link: h2, at: 2ms, rate: 10Gbit}]"))
	if a.Flows[0].Completion != b.Flows[0].Completion {
		t.Errorf("%v and %v with the same faults", a.Flows[0].Completion, b.Flows[0].Completion)
	}
	r := runShared(config(t, net+"traffic: [{pattern: ring-all-reduce, bytes: 4MiB, start: 1us}]\n"+
		"faults: [{link: \"s0:2\", at: 0s, down: true}]"))
	if r.Unfinished != 4 || r.Collectives[0].Completion != 0 {
		t.Errorf("a ring without a path: %d unfinished, completion %v", r.Unfinished, r.Collectives[0].Completion)
	}
	r = runShared(config(t, "level: flow\nuntil: 10us\nswitch: {pfc: none}\n"+
		"topology: {form: star, hosts: 2, rate: 100Gbit, delay: 1s}\n"+
		"traffic: [{pattern: flow, from: [h1], to: h0, bytes: 1KiB}]"))
	if r.Unfinished != 1 || r.Time != 10*time.Microsecond {
		t.Errorf("%d unfinished at %v", r.Unfinished, r.Time)
	}
}
