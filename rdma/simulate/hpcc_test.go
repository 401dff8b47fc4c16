package simulate

import (
	"cmp"
	"fmt"
	"math"
	"os"
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

func (r *reference) run(t testing.TB) *Result {
	got := Run(r.config(), func() bool { return false })
	if got.Unfinished > 0 || got.Counts.Drops > 0 {
		t.Errorf("%s: %d flows unfinished, %d drops", r.name, got.Unfinished, got.Counts.Drops)
	}
	return got
}

// apart are the references whose last completion differs by more than the bound, with the difference.
var apart = map[string]float64{
	"incast-100g-8x1000k-dcqcn-default-deep": 0.09,
	"incast-100g-16x10000k-dcqcn-paper-deep": 0.10,
}

// compare holds the results of a reference against ours. Without marks both are the same but for rounding: the other
// simulator cuts the time of a packet to whole nanoseconds. With marks, chance decides which flow slows down first.
func (r *reference) compare(t *testing.T) {
	got := r.run(t)
	q := got.queue("s0:0")
	off := func(got, want float64) float64 { return math.Abs(got/want - 1) }
	last, p99 := off(got.Completion.Most, float64(r.last)), off(float64(q.P99), float64(r.p99))
	bound := cmp.Or(apart[r.name], 0.08)
	if r.kmax == 0 {
		bound = 0.03
		if p99 > 0.03 || off(float64(q.Most), float64(r.most)) > 0.03 {
			t.Errorf("queue of p99 %d and most %d bytes, want %d and %d", q.P99, q.Most, r.p99, r.most)
		}
		pauses := float64(got.Counts.Pauses)
		if (pauses > 0) != (r.pauses > 0) || pauses > 0 && off(pauses, float64(r.pauses)) > 0.05 {
			t.Errorf("%d pauses, want %d", got.Counts.Pauses, r.pauses)
		}
	}
	if last > bound {
		t.Errorf("last completion after %v, want %v, within %.0f %%", time.Duration(got.Completion.Most), r.last,
			100*bound)
	}
	t.Logf("last %+.1f %%, p99 of the queue %+.1f %%, %d pauses for %d", 100*(got.Completion.Most/float64(r.last)-1),
		100*(float64(q.P99)/float64(r.p99)-1), got.Counts.Pauses, r.pauses)
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
	c.Switch.Buffer, c.Switch.UplinkAlpha = 16*lab.MiB, 0.5 // it doubles alpha for twice the rate of a host
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
	r := Run(&c, never)
	got := make([]float64, len(want))
	for i, f := range r.Flows {
		got[i] = float64(f.Completion) / ideal[i]
	}
	a, b := quantiles(got), quantiles(want)
	what := fmt.Sprintf("slowdown: median %.3f, want %.3f; p95 %.2f, want %.2f; p99 %.2f, want %.2f", a.Median,
		b.Median,
		a.P95, b.P95, a.P99, b.P99)
	if math.Abs(a.Median/b.Median-1) > 0.05 || math.Abs(a.P99/b.P99-1) > 0.18 || r.Unfinished+int(r.Counts.Drops) > 0 {
		t.Errorf("%s; %d unfinished, %d drops", what, r.Unfinished, r.Counts.Drops)
	}
	t.Log(what)
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
