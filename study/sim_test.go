package study_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/internal/tally"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

func parse(t testing.TB, text string) *study.Spec {
	t.Helper()
	s, err := study.Parse("study.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type model func(cell map[string]string, test, metric string, block int, rng *rand.Rand) float64

func simulate(s *study.Spec, seed uint64, metrics map[string][]string, unit string, m model) *study.Data {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	d := &study.Data{Spec: s}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for b := 1; b <= s.Blocks; b++ {
		for _, r := range s.Block(b) {
			o := study.Observation{Run: int64(len(d.Runs) + 1), Block: b, Place: r.Place, Attempt: 1,
				Cell: s.Settings(r.Cell), Status: study.StatusDone, Started: at, Seconds: 1}
			for _, x := range s.Measure {
				for _, metric := range metrics[x.Test] {
					o.Values = append(o.Values, study.Value{Test: x.Test, Metric: metric, Bytes: x.Bytes,
						Value: m(o.Cell, x.Test, metric, b, rng), Unit: unit})
				}
			}
			d.Runs = append(d.Runs, o)
			at = at.Add(time.Second)
		}
	}
	return d
}

func analyse(t testing.TB, d *study.Data) *study.Result {
	t.Helper()
	r, err := study.Analyse(d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const twoFactors = `name: two
lab: pair.yaml
factors:
  placement: [default, pin]
  contention: [idle, "cpu:2"]
measure:
  - test: ib_write_lat
  - test: ib_write_bw
    bytes: 65536
blocks: 10
margin: 5%
`

var twoMetrics = map[string][]string{"ib_write_lat": {"latency_typical", "latency_p99"}, "ib_write_bw": {"bw_average"}}

// The conclusion: pinning helps under contention, and has no effect on an idle machine.
func TestWhatASimulatedStudyShows(t *testing.T) {
	t.Parallel()
	d := simulate(parse(t, twoFactors), 1, twoMetrics, "us", func(cell map[string]string, _, metric string, block int,
		rng *rand.Rand) float64 {
		v := 100 * math.Exp(0.01*rng.NormFloat64()+0.03*float64(block)) // slower from block to block
		if cell["contention"] == "cpu:2" {
			v *= 3
			if cell["placement"] == "pin" {
				v *= 0.6
			}
		}
		return v
	})
	r := analyse(t, d)
	if r.Blocks != 10 || r.Runs.Done != 80 {
		t.Errorf("%d blocks and %d runs, want 10 and 80", r.Blocks, r.Runs.Done)
	}
	got := map[string]stats.Verdict{}
	for _, c := range r.Comparisons {
		if c.Factor == "placement" {
			got[c.Where+" "+c.Metric] = c.Judged.Verdict
		}
	}
	for _, metric := range []string{"latency_typical", "latency_p99", "bw_average"} {
		if v := got["contention=idle "+metric]; v != stats.Equivalent {
			t.Errorf("%s on an idle machine: %s, want equivalent", metric, v)
		}
		if v := got["contention=cpu:2 "+metric]; v != stats.Better {
			t.Errorf("%s under load: %s, want better", metric, v)
		}
	}
	text := strings.Join(r.Words, "\n")
	for _, want := range []string{"With placement=pin instead of default, at contention=cpu:2, latency typical of " +
		"ib_write_lat falls by 3", "(better); latency p99 of ib_write_lat falls by 3",
		"With placement=pin instead of default, at contention=idle, no change that matters (5%) in latency typical " +
			"of ib_write_lat (+"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// A constant factor is not compared.
func TestAFactorWithOneLevelIsHeld(t *testing.T) {
	t.Parallel()
	s := parse(t, "name: h\nlab: pair.yaml\nfactors:\n  placement: [default, pin]\n  contention: "+
		"[\"cpu:2\"]\nmeasure: [{test: ib_write_bw, metrics: [bw_average]}]\nblocks: 8\n")
	r := analyse(t, simulate(s, 1, twoMetrics, "Gb/s", func(cell map[string]string, _, _ string, _ int,
		rng *rand.Rand) float64 {
		if cell["contention"] != "cpu:2" {
			t.Fatalf("cell %v", cell)
		}
		return 1 + 0.01*rng.NormFloat64()
	}))
	if len(r.Comparisons) != 1 || r.Comparisons[0].Factor != "placement" || r.Comparisons[0].Where != "" {
		t.Errorf("%+v", r.Comparisons)
	}
	// It is said once, and not of every comparison.
	if got := strings.Join(s.Constants(), " "); got != "contention=cpu:2" {
		t.Errorf("constants are %q", got)
	}
	for _, x := range r.Series {
		if x.Cell != "placement=default" && x.Cell != "placement=pin" {
			t.Errorf("cell %q", x.Cell)
		}
	}
}

func TestLevelsHaveNames(t *testing.T) {
	t.Parallel()
	s := parse(t, "name: h\nlab: pair.yaml\nfactors:\n  link.ecn: {no ECN: 0, ECN: \"32KiB:160KiB:100%\"}\n"+
		"  placement: [default, pin]\n  link.rate: [200Mbit]\n"+
		"compare:\n  - from: {link.ecn: \"0\", placement: default}\n    to: {link.ecn: \"32KiB:160KiB:100%\", "+
		"placement: pin}\nmeasure: [{test: ib_write_lat, metrics: [latency_typical]}]\nblocks: 12\n")
	if got := s.Settings(s.Cells()[2])["link.ecn"]; got != "32KiB:160KiB:100%" {
		t.Errorf("level %q is not that of the file", got)
	}
	r := analyse(t, simulate(s, 1, twoMetrics, "us", func(cell map[string]string, _, _ string, _ int,
		rng *rand.Rand) float64 {
		v := 100 + rng.NormFloat64()
		if cell["link.ecn"] != "0" {
			v /= 20
		}
		return v
	}))
	text := strings.Join(r.Words, "\n")
	for _, want := range []string{"With ECN and placement=pin instead of no ECN and default",
		"With ECN instead of no ECN, at placement=default", "With placement=pin instead of default, at ECN"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if got := r.Series[0].Cell; got != "no ECN, placement=default" {
		t.Errorf("cell %q", got)
	}
	i := slices.IndexFunc(r.Comparisons, func(c study.Comparison) bool { return c.Factor == "link.ecn" })
	c := r.Comparisons[i]
	if c.B != "32KiB:160KiB:100%" || s.LevelName(c.Factor, c.B) != "ECN" {
		t.Errorf("compared with %q, named %q", c.B, s.LevelName(c.Factor, c.B))
	}
	if !strings.HasPrefix(c.Text(), "20") || !strings.Contains(c.Text(), " times lower (") {
		t.Errorf("effect is %q, want it as times lower", c.Text())
	}
	unnamed := parse(t, "name: h\nlab: pair.yaml\nfactors:\n  link.ecn: [\"0\", \"32KiB:160KiB:100%\"]\n"+
		"measure: [{test: ib_write_lat}]\n")
	if unnamed.NameLevels(s); unnamed.LevelName("link.ecn", "0") != "no ECN" {
		t.Error("names of another version of the file are not taken")
	}
	_, err := study.Parse("x.yaml", []byte("name: h\nlab: l\nfactors:\n  link.ecn: {\"\": 0, b: \"1KiB:2KiB:1%\"}\n"+
		"measure: [{test: ib_write_lat}]\n"))
	if err == nil || !strings.Contains(err.Error(), "not a name of a level") {
		t.Errorf("got error %v", err)
	}
}

var long = flag.Bool("long", false, "simulate 2000 studies of a level against itself, and not 400")

// Under each kind of noise, at most 5 % of studies may report an effect of a level against itself. With 200 studies, a
// rate of 7 % would pass for 5 % one time in six; with the 2000 of make test-long, it does not.
func TestAAStudiesRaiseAtMostFalseAlarmsAsStated(t *testing.T) {
	t.Parallel()
	studies, most := 400, 0.05+2.6*math.Sqrt(0.05*0.95/400) // exceeded by chance in 1 of 200
	switch {
	case *long:
		studies, most = 2000, 0.05
	case testing.Short():
		studies = 50
	}
	s := parse(t, "name: aa\nlab: pair.yaml\nfactors:\n  placement: [default, default]\nmeasure: [{test: "+
		"ib_write_lat}]\nblocks: 10\n")
	for _, tt := range []struct {
		name  string
		noise model
	}{
		{"normal", func(_ map[string]string, _, _ string, _ int, rng *rand.Rand) float64 {
			return 100 + 5*rng.NormFloat64()
		}},
		{"lognormal", func(_ map[string]string, _, _ string, _ int, rng *rand.Rand) float64 {
			return 100 * math.Exp(0.3*rng.NormFloat64())
		}},
		{"spikes", func(_ map[string]string, _, _ string, _ int, rng *rand.Rand) float64 {
			if rng.Float64() < 0.1 {
				return 100 * (1 + 10*rng.ExpFloat64())
			}
			return 100 + rng.NormFloat64()
		}},
		{"drift", func(_ map[string]string, _, _ string, b int, rng *rand.Rand) float64 {
			return (100 + 10*float64(b)) * math.Exp(0.05*rng.NormFloat64())
		}},
	} {
		alarms, early := 0, 0
		for i := range studies {
			r := analyse(t, simulate(s, uint64(i+1),
				map[string][]string{"ib_write_lat": {"latency_typical", "latency_p99"}}, "us", tt.noise))
			if r.Blocks != 10 {
				t.Fatalf("%d blocks are complete, of 10", r.Blocks)
			}
			if slices.ContainsFunc(r.Comparisons, func(c study.Comparison) bool {
				return c.Judged.Verdict == stats.Better || c.Judged.Verdict == stats.Worse
			}) {
				alarms++
				if i < 200 {
					early++
				}
			}
		}
		tally.Logf(t, "%s noise: %d of %d studies of a level against itself raised a false alarm, %.1f %% (%d of the "+
			"first %d)", tt.name, alarms, studies, 100*float64(alarms)/float64(studies), early, min(studies, 200))
		if !testing.Short() && float64(alarms) > most*float64(studies) {
			t.Errorf("%s noise: %d of %d are more than %.1f %%", tt.name, alarms, studies, 100*most)
		}
	}
}

// A moved control means that something else differs.
func TestAControlThatMovesConfoundsTheComparison(t *testing.T) {
	t.Parallel()
	s := parse(t, "name: c\nlab: pair.yaml\nfactors:\n  placement: [default, pin]\nmeasure: [{test: ib_write_lat, "+
		"metrics: [latency_p99]}, {test: sysbench-cpu, control: true, metrics: [events]}]\nblocks: 10\n")
	for _, moves := range []bool{false, true} {
		r := analyse(t, simulate(s, 3, map[string][]string{"ib_write_lat": {"latency_p99"}, "sysbench-cpu": {"events"}},
			"us", func(cell map[string]string, test, _ string, _ int, rng *rand.Rand) float64 {
				v := 100 * math.Exp(0.01*rng.NormFloat64())
				if cell["placement"] == "pin" && (test == "ib_write_lat" || moves) {
					v *= 0.8
				}
				return v
			}))
		if len(r.Comparisons) != 1 || len(r.Controls) != 1 {
			t.Fatalf("%d comparisons and %d controls, want one of each", len(r.Comparisons), len(r.Controls))
		}
		if got := len(r.Comparisons[0].Confounded) > 0; got != moves {
			t.Errorf("the control moves: %v; confounded: %v", moves, r.Comparisons[0].Confounded)
		}
		if text := strings.Join(r.Words, " "); strings.Contains(text, "do not rely on it") != moves {
			t.Errorf("the control moves: %v; %s", moves, text)
		}
	}
}

func TestWhatFoolsStudiesIsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*study.Observation)
		want   string // "" expects no finding
	}{
		{"nothing", func(*study.Observation) {}, ""},
		{"another governor", func(o *study.Observation) {
			o.Before.Governors = []string{"powersave"}
		}, "the CPUs' governor is powersave in run 20, and was performance"},
		{"another limit of frequency", func(o *study.Observation) {
			o.Before.MaxMHz = 2000
		}, "the CPUs' highest frequency is 2000 MHz in run 20, and was 3000 MHz"},
		{"one CPU is slowed", func(o *study.Observation) {
			o.Before.MinMHz = 1200
		}, "the highest frequency of the slowest CPU is 1200 MHz in run 20, and was 3000 MHz"},
		{"a CPU went offline", func(o *study.Observation) {
			o.Before.CPUs = 7
		}, "7 CPUs are online in run 20, and were 8"},
		{"another version of the tool", func(o *study.Observation) {
			o.Tools = map[string]string{"ib_write_lat": "perftest 24"}
		}, "ib_write_lat has version perftest 24 in run 20, and had perftest 6 before"},
		{"turbo", func(o *study.Observation) {
			o.Before.Turbo = "off"
		}, "turbo is off from run 20 on, and was on before"},
		{"another kernel of the host", func(o *study.Observation) {
			o.Before.Kernel = "6.12"
		}, "the host's kernel is 6.12 from run 20 on, and was 6.1 before"},
		{"another kernel of the nodes", func(o *study.Observation) {
			o.Before.NodeKernel = "6.12"
		}, "the nodes' kernel is 6.12 from run 20 on, and was 6.1 before"},
		{"another QEMU", func(o *study.Observation) {
			o.Before.QEMU = "10.0"
		}, "QEMU is 10.0 from run 20 on, and was 7.2 before"},
		{"another rackless", func(o *study.Observation) {
			o.Before.Rackless = "v0.2"
		}, "rackless is v0.2 from run 20 on, and was v0.1 before"},
		{"versions that are not known", func(o *study.Observation) {
			o.Before.Kernel, o.Before.QEMU, o.Before.Rackless, o.Before.Turbo = "", "", "", ""
		}, ""},
		{"a link trained again", func(o *study.Observation) {
			o.Before.Links = []string{"0000:41:00.0 5 GT/s x16"}
		}, "a link was trained again"},
		{"the host prepared anew with another plan", func(o *study.Observation) {
			o.Before.Placed = []string{"vm00 4-5"}
		}, "the plan has the nodes on CPUs \"vm00 4-5\" in run 20, and had them on \"vm00 2-3\""},
		{"a device without a NUMA node in the node", func(o *study.Observation) {
			o.Before.Devices = []string{"vm00 mlx5_0 -1"}
		}, "vm00 mlx5_0: its NUMA node is not known in the VM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := simulate(parse(t, twoFactors), 1, twoMetrics, "us", func(_ map[string]string, _, _ string, _ int,
				rng *rand.Rand) float64 {
				return 100 + rng.NormFloat64()
			})
			for i := range d.Runs {
				d.Runs[i].Before = &study.HostState{Governors: []string{"performance"}, MaxMHz: 3000, MinMHz: 3000,
					CPUs: 8, Links: []string{"0000:41:00.0 16 GT/s x16"}, Placed: []string{"vm00 2-3"},
					Devices: []string{"vm00 mlx5_0 0"},
					Turbo:   "on", Kernel: "6.1", NodeKernel: "6.1", QEMU: "7.2", Rackless: "v0.1"}
				d.Runs[i].Tools = map[string]string{"ib_write_lat": "perftest 6"}
			}
			tt.change(&d.Runs[19])
			got := strings.Join(analyse(t, d).Confounds, "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWhenARunIsDisturbed(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		change func(before, after *study.HostState)
		want   string
	}{
		{"nothing else moved", func(_, _ *study.HostState) {}, ""},
		{"the nodes worked hard", func(_, a *study.HostState) { a.Busy, a.Own = 30, 30 }, ""},
		{"a tenant woke up", func(_, a *study.HostState) {
			a.Busy, a.Own = 30, 20
		}, "something else on the host used 1.00 CPUs"},
		{"a hypervisor took CPUs", func(_, a *study.HostState) {
			a.Steal = 8
		}, "a hypervisor took 20% of the CPUs' time"},
		{"heat", func(_, a *study.HostState) { a.Throttles = 3 }, "the CPUs were throttled for heat 3 times"},
		{"a reboot", func(_, a *study.HostState) { a.BootID = "two" }, "the host was started anew"},
		{"the clock jumped back", func(_, a *study.HostState) {
			a.At = at.Add(-time.Hour)
		}, "the clock went backwards"},
		{"the clock jumped forward, and a tenant was there", func(b, a *study.HostState) {
			b.Uptime, a.Uptime, a.At, a.Busy, a.Own = 50, 60, at.Add(time.Hour), 30, 20
		}, "the clock was set by +3590.0 s; something else on the host used 1.00 CPUs"},
		{"the clock jumped back by less than the run took", func(b, a *study.HostState) {
			b.Uptime, a.Uptime, a.At = 50, 60, at.Add(5*time.Second)
		}, "the clock was set by -5.0 s"},
		{"the clock was slewed", func(b, a *study.HostState) {
			b.Uptime, a.Uptime, a.At = 50, 60, at.Add(9900*time.Millisecond)
		}, ""},
		{"a slow machine before it", func(b, _ *study.HostState) {
			b.Loop = 14
		}, "a fixed piece of arithmetic took 40% longer than usual right before it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := &study.HostState{At: at, BootID: "one", CPUs: 4, Loop: 10}
			after := &study.HostState{At: at.Add(10 * time.Second), BootID: "one", CPUs: 4}
			tt.change(before, after)
			if got := study.Disturbance(before, after, []float64{10, 10.1, 9.9, 10, 10}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFailedRunsAreCountedAndGiveNoFigures(t *testing.T) {
	t.Parallel()
	d := simulate(parse(t, twoFactors), 1, twoMetrics, "us", func(_ map[string]string, _, _ string, _ int,
		rng *rand.Rand) float64 {
		return 100 + rng.NormFloat64()
	})
	// One run failed twice, another was disturbed and then repeated.
	bad := d.Runs[3]
	bad.Status, bad.Error, bad.Values = study.StatusFailed, "ib_write_bw: no result within 3m0s", bad.Values[:2]
	d.Runs[3] = bad
	odd := d.Runs[10]
	odd.Status, odd.Values, odd.Run = study.StatusDisturbed, []study.Value{{Test: "ib_write_lat", Metric: "latency_p99",
		Value: 1e9, Unit: "us"}}, 1000
	d.Runs = append(d.Runs, odd)
	r := analyse(t, d)
	if r.Runs != (study.Counts{Done: 79, Failed: 1, Disturbed: 1}) {
		t.Errorf("got %+v", r.Runs)
	}
	if len(r.Failures) != 1 || r.Failures[0].Error != bad.Error || r.Failures[0].Runs != 1 {
		t.Errorf("got %+v", r.Failures)
	}
	for _, x := range r.Series {
		if x.High > 200 {
			t.Errorf("%s of %s has %v: a disturbed run counts", x.Metric, x.Cell, x.High)
		}
	}
}

func TestTheOrderOfABlock(t *testing.T) {
	t.Parallel()
	s := parse(t, twoFactors)
	orders := map[string]bool{}
	for b := 1; b <= 30; b++ {
		runs := s.Block(b)
		if len(runs) != 8 {
			t.Fatalf("%d runs, want 8", len(runs))
		}
		count := map[string]int{}
		text := ""
		for i, r := range runs {
			count[s.CellText(r.Cell)]++
			text += s.CellText(r.Cell) + "|"
			if mirror := runs[len(runs)-1-i]; !slices.Equal(mirror.Cell, r.Cell) {
				t.Errorf("block %d is not its own mirror image", b)
			}
			if r.Place != i+1 || r.Block != b {
				t.Errorf("run %d of block %d says %d of %d", i+1, b, r.Place, r.Block)
			}
		}
		for cell, n := range count {
			if n != study.RunsPerCell {
				t.Errorf("block %d has %s %d times", b, cell, n)
			}
		}
		orders[text] = true
		if fmt.Sprint(s.Block(b)) != fmt.Sprint(runs) {
			t.Errorf("block %d is another one when asked again", b)
		}
	}
	if len(orders) < 10 {
		t.Errorf("30 blocks have %d orders", len(orders))
	}
}

// Runs of one boot are adjacent in each half of a block, in random order, with two or three boots.
func TestRunsOfOneBootStandTogether(t *testing.T) {
	t.Parallel()
	s := parse(t, "name: boots\nlab: pair.yaml\nfactors:\n  isolation: [none, cpuset, isolcpus]\n  contention: "+
		"[idle, \"cpu:2\", \"memory:1\"]\nmeasure: [{test: ib_write_lat, metrics: [latency_p99]}]\nblocks: 6\n")
	if !s.TakesBoots() || parse(t, twoFactors).TakesBoots() {
		t.Error("which studies take boots is wrong")
	}
	takes := func(r study.Run) bool { return s.Settings(r.Cell)["isolation"] == study.IsolationIsolcpus }
	isolatedFirst := 0
	orders := map[string]bool{}
	for b := 1; b <= 30; b++ {
		runs := s.Block(b)
		changes := 0
		text := ""
		for i, r := range runs {
			text += s.CellText(r.Cell) + "|"
			if mirror := runs[len(runs)-1-i]; !slices.Equal(mirror.Cell, r.Cell) {
				t.Errorf("block %d is not its own mirror image", b)
			}
			if i > 0 && takes(r) != takes(runs[i-1]) {
				changes++
			}
		}
		if changes != 2 {
			t.Errorf("block %d takes %d boots on the way", b, changes)
		}
		if takes(runs[0]) {
			isolatedFirst++
		}
		orders[text] = true
	}
	// A third of the cells is isolated: 10 of 30 are expected, and outside 1 to 23 is less likely than one in 10000.
	if isolatedFirst < 1 || isolatedFirst > 23 || len(orders) < 28 {
		t.Errorf("isolated first in %d of 30 blocks, %d orders", isolatedFirst, len(orders))
	}
}

// Each level occurs equally often with each level of other factors.
func TestHalfADesignIsBalanced(t *testing.T) {
	t.Parallel()
	s := parse(t, "name: half\nlab: pair.yaml\ndesign: half\nfactors:\n  placement: [default, pin]\n  contention: "+
		"[idle, \"cpu:1\"]\n  lab.fabric.mtu: [1500, 9000]\n  link.loss: [\"0\", 1%]\nmeasure: [{test: iperf3}]\n")
	cells := s.Cells()
	if len(cells) != 8 {
		t.Fatalf("%d cells, want 8", len(cells))
	}
	for i := range s.Factors {
		for j := range i {
			n := map[[2]int]int{}
			for _, c := range cells {
				n[[2]int{c[i], c[j]}]++
			}
			for _, k := range n {
				if k != 2 || len(n) != 4 {
					t.Errorf("factors %d and %d: %v", i, j, n)
				}
			}
		}
	}
}

// Each factor's own effect shows, whatever the others do.
func TestHalfADesignShowsMainEffects(t *testing.T) {
	t.Parallel()
	s := parse(t, "name: half\nlab: pair.yaml\ndesign: half\nfactors:\n  placement: [default, pin]\n  contention: "+
		"[idle, \"cpu:1\"]\n  lab.fabric.mtu: [1500, 9000]\nmeasure: [{test: iperf3}]\nblocks: 12\n")
	r := analyse(t, simulate(s, 5, map[string][]string{"iperf3": {"throughput"}}, "Gb/s", func(cell map[string]string,
		_, _ string, _ int, rng *rand.Rand) float64 {
		v := math.Exp(0.01 * rng.NormFloat64())
		if cell["contention"] == "cpu:1" {
			v *= 0.5
		}
		if cell["lab.fabric.mtu"] == "9000" {
			v *= 2
		}
		return v
	}))
	got := map[string]string{}
	for _, c := range r.Comparisons {
		got[c.Factor] = fmt.Sprintf("%s %.1f", c.Judged.Verdict, c.Effect.Estimate)
	}
	want := map[string]string{"placement": "equivalent 1.0", "contention": "worse 0.5", "lab.fabric.mtu": "better 2.0"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Percentiles include a tail of few runs, which an average of percentiles would hide.
func TestPercentilesComeFromAllLatenciesTogether(t *testing.T) {
	t.Parallel()
	s := parse(t, "name: tail\nlab: pair.yaml\nfactors:\n  placement: [default, pin]\nmeasure: [{test: ib_write_lat, "+
		"bytes: 2, metrics: [latency_p99]}]\nblocks: 8\n")
	d := simulate(s, 1, map[string][]string{"ib_write_lat": {"latency_typical", "latency_p99"}}, "us",
		func(map[string]string, string, string, int, *rand.Rand) float64 {
			return 100 // printed by the tool, not compared
		})
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range d.Runs {
		h := stats.NewHistogram()
		for range 2000 {
			us := 100 * math.Exp(0.05*rng.NormFloat64())
			if d.Runs[i].Cell["placement"] == "default" && rng.Float64() < 0.03 {
				us *= 10
			}
			if err := h.Record(us); err != nil {
				t.Fatal(err)
			}
		}
		data, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		d.Runs[i].Histograms = []study.Latencies{{Test: "ib_write_lat", Bytes: 2, Data: data}}
	}
	r := analyse(t, d)
	if len(r.Comparisons) != 1 || r.Comparisons[0].Effect.Quantile != 0.99 ||
		r.Comparisons[0].Judged.Verdict != stats.Better || r.Comparisons[0].Effect.A < 900 {
		t.Fatalf("got %+v", r.Comparisons)
	}
	for _, x := range r.Series {
		if x.Metric == "latency_typical" && (x.Count != 16*2000 || len(x.Quantiles) == 0) {
			t.Errorf("%s: %d latencies, %d points", x.Cell, x.Count, len(x.Quantiles))
		}
	}
	// The same holds for a level against itself.
	same := *s
	same.Factors = []study.Factor{{Name: "placement", Levels: []string{"default", "default"}}}
	half := *d
	half.Spec, half.Runs = &same, nil
	for _, o := range d.Runs {
		if o.Cell["placement"] == "default" {
			half.Runs = append(half.Runs, o)
		}
	}
	if r := analyse(t, &half); len(r.Comparisons) != 1 || r.Comparisons[0].Effect == nil ||
		r.Comparisons[0].Effect.Quantile != 0.99 || r.Comparisons[0].Effect.A < 900 {
		t.Errorf("a level against itself: %+v", r.Comparisons)
	}
	// If one run lacks latencies, printed percentiles are compared, with a remark.
	d.Runs[3].Histograms = nil
	if r := analyse(t, d); r.Comparisons[0].Effect.Quantile != 0 ||
		r.Comparisons[0].Judged.Verdict != stats.Equivalent ||
		!slices.ContainsFunc(r.Comparisons[0].Drift, func(s string) bool {
			return strings.HasPrefix(s, "percentile: it compares what each run had, and not all latencies together: "+
				"those of 1 runs in block ")
		}) {
		t.Errorf("got %+v, %q", r.Comparisons[0].Judged, r.Comparisons[0].Drift)
	}
}

// Settings that help little each but much together show it at each level of the third factor.
func TestSeveralFactorsAreComparedAtOnce(t *testing.T) {
	t.Parallel()
	const text = `name: joint
lab: pair.yaml
factors:
  placement: [default, pin]
  isolation: [none, cpuset]
  contention: [idle, "cpu:2"]
compare:
  - from: {placement: default, isolation: none}
    to: {placement: pin, isolation: cpuset}
measure: [{test: ib_write_lat, bytes: 2, metrics: [latency_p99]}]
blocks: 12
`
	s := parse(t, text)
	d := simulate(s, 3, map[string][]string{"ib_write_lat": {"latency_p99"}}, "us", func(cell map[string]string, _,
		_ string, block int, rng *rand.Rand) float64 {
		v := 100 * math.Exp(0.01*rng.NormFloat64()+0.03*float64(block))
		if cell["contention"] == "cpu:2" && !(cell["placement"] == "pin" && cell["isolation"] == "cpuset") {
			v *= 2
		}
		return v
	})
	r := analyse(t, d)
	var got []string
	for _, c := range r.Comparisons {
		if c.Factor != "placement and isolation" {
			continue
		}
		if c.A != "default and none" || c.B != "pin and cpuset" || len(c.Cells[0]) != 1 || len(c.Cells[1]) != 1 {
			t.Errorf("%+v", c)
		}
		got = append(got, fmt.Sprintf("%s %s", c.Where, c.Judged.Verdict))
		if c.Where == "contention=cpu:2" && (c.Effect.Interval.Low > 0.5 || c.Effect.Interval.High < 0.5) {
			t.Errorf("the effect is 0.5; found %v", c.Effect)
		}
	}
	if want := []string{"contention=idle equivalent", "contention=cpu:2 better"}; !slices.Equal(got, want) {
		t.Errorf("at once: %q, want %q", got, want)
	}
	if want := 4 + 4 + 4 + 2; s.Comparisons() != want || len(r.Comparisons) != want {
		t.Errorf("%d comparisons are judged together and %d are made, want %d", s.Comparisons(), len(r.Comparisons),
			want)
	}
	if words := strings.Join(r.Words, "\n"); !strings.Contains(words,
		"With placement=pin and isolation=cpuset instead of default and none, at contention=cpu:2, latency p99 of "+
			"ib_write_lat") {
		t.Errorf("not told in words:\n%s", words)
	}
}
