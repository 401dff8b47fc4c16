package simulate

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/lab"
)

// A reference is an incast in the published simulator of HPCC: parameters and results.
type reference struct {
	name                      string
	rate                      rate
	senders                   int
	bytes                     int64
	kmin, kmax                int
	pmax                      float64
	buffer                    int64
	alpha, decrease, increase uint64 // us
	last                      time.Duration
	p99, most                 int64 // bytes in the queue
	pauses                    uint64
}

// table calls f with the words of each line of a file, and the numbers among them, but for the head.
func table(t testing.TB, file string, f func(w []string, n []float64)) {
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.TrimSpace(string(b)[strings.Index(string(b), "\n"):])) {
		w := strings.Split(strings.TrimSpace(line), "\t")
		n := make([]float64, len(w))
		for i := range w[1:] {
			if n[i+1], err = strconv.ParseFloat(w[i+1], 64); err != nil {
				t.Fatal(err)
			}
		}
		f(w, n)
	}
}

func references(t testing.TB) (list []reference) {
	table(t, "incast.tsv", func(w []string, n []float64) {
		list = append(list, reference{name: w[0], rate: rate(n[1] * 1e9), senders: int(n[2]), bytes: int64(n[3]),
			kmin: int(n[4]), kmax: int(n[5]), pmax: n[6], buffer: int64(n[7]) << 20, alpha: uint64(n[8]),
			decrease: uint64(n[9]), increase: uint64(n[10]), last: time.Duration(n[11]), p99: int64(n[12] * 1000),
			most: int64(n[13] * 1000), pauses: uint64(n[14])})
	})
	return list
}

// config returns the configuration of a reference.
func (r *reference) config() *Config {
	c := defaults()
	c.Topology = Topology{Form: star, Hosts: r.senders + 1, Rate: r.rate, Delay: time.Microsecond}
	c.Switch.Buffer = lab.Bytes(r.buffer)
	c.NIC.Profile, c.NIC.Congestion = profileHPCC, noControl
	if r.kmax > 0 {
		c.NIC.Congestion = dcqcn
		c.Switch.ECN.Min, c.Switch.ECN.Max, c.Switch.ECN.Probability = r.kmin, r.kmax, r.pmax
		c.NIC.CCParams = map[string]uint64{"rp_dce_tcp_rtt": r.alpha, "rp_rate_reduce_monitor_period": r.decrease,
			"rp_time_reset": r.increase}
	}
	c.Traffic = []Traffic{{Pattern: incast, To: "h0", Senders: r.senders, Bytes: lab.Bytes(r.bytes)}}
	c.complete()
	return &c
}

// runs runs a reference with as many seeds. Without marks there is no chance, and one is enough.
func (r *reference) runs(t testing.TB) (list []*Result) {
	c := r.config()
	for seed := range uint64(seeds) {
		c.Seed = seed + 1
		got := Run(c, never)
		if got.Unfinished > 0 || got.Counts.Drops > 0 {
			t.Errorf("%s: %d flows unfinished, %d drops", r.name, got.Unfinished, got.Counts.Drops)
		}
		if list = append(list, got); r.kmax == 0 {
			break
		}
	}
	return list
}

// seeds is the number of runs of a case with marks, of which the median counts.
const seeds = 5

// apart are the references whose last completion differs by more than the bound, with the difference.
var apart = map[string]float64{
	"incast-25g-2x1000k-dcqcn-paper-shallow":   0.10,
	"incast-25g-2x10000k-dcqcn-paper-deep":     0.09,
	"incast-25g-16x1000k-dcqcn-paper-deep":     0.09,
	"incast-100g-16x10000k-dcqcn-paper-deep":   0.09,
	"incast-100g-16x10000k-dcqcn-default-deep": 0.09,
}

// compare holds the results of a reference against ours. Without marks both are the same but for rounding. With
// marks, chance decides which flow slows down first, so one run of each simulator says little.
func (r *reference) compare(t *testing.T) {
	var last, p99 []float64
	got := r.runs(t)
	for _, g := range got {
		last = append(last, g.Completion.Most/float64(r.last)-1)
		p99 = append(p99, float64(g.queue("s0:0").P99)/float64(r.p99)-1)
	}
	bound := cmp.Or(apart[r.name], 0.08)
	if r.kmax == 0 {
		bound = 0.005
		q := got[0].queue("s0:0")
		most := float64(q.Most)/float64(r.most) - 1
		if math.Abs(p99[0]) > 0.03 || math.Abs(most) > 0.03 {
			t.Errorf("queue of p99 %d and most %d bytes, want %d and %d", q.P99, q.Most, r.p99, r.most)
		}
		pauses := float64(got[0].Counts.Pauses)
		if (pauses > 0) != (r.pauses > 0) || pauses > 0 && math.Abs(pauses/float64(r.pauses)-1) > 0.05 {
			t.Errorf("%v pauses, want %d", pauses, r.pauses)
		}
	}
	t.Logf("last %+.1f %%, p99 of the queue %+.1f %%, pauses %d for %d", percent(last), percent(p99),
		got[0].Counts.Pauses, r.pauses)
	if m := median(last); math.Abs(m) > bound {
		t.Errorf("last completion %+.1f %% from %v, want at most %.0f %%", 100*m, r.last, 100*bound)
	}
}

func median(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }

func percent(list []float64) (all []float64) {
	for _, v := range list {
		all = append(all, 100*v)
	}
	return all
}

// Incasts end when they do in the published simulator of HPCC. These are the smaller ones.
func TestIncastsAgreeWithThePublishedSimulator(t *testing.T) {
	for _, r := range references(t) {
		if r.bytes*int64(r.senders) > 8e6 {
			continue
		}
		t.Run(r.name, r.compare)
	}
}

// All incasts agree, also the long ones.
func TestE2EAllIncastsAgreeWithThePublishedSimulator(t *testing.T) {
	storey.E2E(t)
	for _, r := range references(t) {
		t.Run(r.name, r.compare)
	}
}

// leaves compares the completion times of a workload on a leaf-spine network, divided by the ideal ones of the other
// simulator. Single flows differ, because it chooses other paths.
func leaves(t *testing.T, workload, control string) {
	c := defaults()
	c.Topology = Topology{Form: leafSpine, Hosts: 8, Leaves: 4, Spines: 2, Rate: 25e9, Uplink: 100e9,
		Delay: time.Microsecond}
	c.Switch.Buffer = 16 * lab.MiB
	c.NIC.Profile, c.NIC.Congestion = profileHPCC, control
	column := 6
	if control == dcqcn {
		column = 5
		c.Switch.ECN.Min, c.Switch.ECN.Max, c.Switch.ECN.Probability = 100_000, 400_000, 0.2
	}
	var want, ideal []float64
	table(t, "leafspine.tsv", func(w []string, n []float64) {
		if w[0] == workload {
			c.Traffic = append(c.Traffic, Traffic{Pattern: single, From: []string{"h" + w[1]}, To: "h" + w[2],
				Bytes: lab.Bytes(n[3]), Start: time.Duration(n[4] * 1000)})
			want, ideal = append(want, n[column]/n[7]), append(ideal, n[7])
		}
	})
	c.complete()
	b := quantiles(want)
	var p50, p95, p99 []float64
	for seed := range uint64(3) {
		c.Seed = seed + 1
		r := Run(&c, never)
		got := make([]float64, len(want))
		for i, f := range r.Flows {
			got[i] = float64(f.Completion) / ideal[i]
		}
		a := quantiles(got)
		p50, p95 = append(p50, a.Median/b.Median-1), append(p95, a.P95/b.P95-1)
		p99 = append(p99, a.P99/b.P99-1)
		if r.Unfinished+int(r.Counts.Drops) > 0 {
			t.Errorf("%d unfinished, %d drops", r.Unfinished, r.Counts.Drops)
		}
		if control == noControl {
			break // other seeds only choose other paths
		}
	}
	t.Logf("slowdown: median %+.1f %%, p95 %+.1f %%, p99 %+.1f %%", percent(p50), percent(p95), percent(p99))
	for what, v := range map[string][]float64{"median": p50, "p95": p95, "p99": p99} {
		bound := 0.10
		if what == "p99" && workload == "websearch-30" {
			bound = 0.16 // four flows of 350
		}
		if math.Abs(median(v)) > bound {
			t.Errorf("%s of the slowdowns differs by %+.1f %%, want at most %.0f %%", what, 100*median(v), 100*bound)
		}
	}
}

func TestSmallMessagesOnLeavesAgreeWithThePublishedSimulator(t *testing.T) {
	for _, control := range []string{dcqcn, noControl} {
		t.Run(control, func(t *testing.T) { leaves(t, "hadoop-30", control) })
	}
}

func TestE2ELongMessagesOnLeavesAgreeWithThePublishedSimulator(t *testing.T) {
	storey.E2E(t)
	for _, control := range []string{dcqcn, noControl} {
		t.Run(control, func(t *testing.T) { leaves(t, "websearch-30", control) })
	}
}
