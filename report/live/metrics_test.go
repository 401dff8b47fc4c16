package live

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rdma/fabric"
)

func newServer(t *testing.T, f *fake) *server {
	t.Helper()
	return newPages(f, Options{Version: "test", Now: f.clock, Limit: 2 * time.Second})
}

func TestMetricsAreNamedAsPrometheusWantsThem(t *testing.T) {
	t.Parallel()
	problems, err := testutil.GatherAndLint(newServer(t, typical(t)).registry(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func golden(t *testing.T, name string) string {
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMetricsSayWhatTheSourceSays(t *testing.T) {
	t.Parallel()
	f := typical(t)
	f.pass(4 * time.Second)
	want := golden(t, "metrics.txt")
	names := []string{}
	for line := range strings.Lines(want) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	if err := testutil.GatherAndCompare(newServer(t, f).registry(t.Context()), strings.NewReader(want),
		names...); err != nil {
		t.Error(err)
	}
}

// Old values would look like a standstill.
func TestCountersThatWereNotReadAreAbsent(t *testing.T) {
	t.Parallel()
	f := typical(t)
	f.rdma["pair"][1] = NodeRDMA{Node: "vm01", Err: errors.New("no answer")}
	s := newServer(t, f)
	count := func(name string, want int) {
		t.Helper()
		if got, err := testutil.GatherAndCount(s.registry(t.Context()), name); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", name, got, err, want)
		}
	}
	count("rackless_rdma_port_transmit_packets_total", 1)
	count("rackless_rdma_up", 5)
	f.fail = map[string]error{"rdma pair": errors.New("a study measures"), "fabric pair": errors.New("gone")}
	f.pass(time.Hour)
	count("rackless_rdma_port_transmit_packets_total", 0)
	count("rackless_rdma_age_seconds", 0)
	count("rackless_rdma_up", 5)
	count("rackless_fabric_port_up", 0)
	count("rackless_fabric_up", 2)
}

// Two of one name do not break the scrape.
func TestTwoOfOneNameAreOneMetric(t *testing.T) {
	t.Parallel()
	f := typical(t)
	f.labs = append(f.labs, f.labs[1])
	f.studies = append(f.studies, f.studies[0])
	f.fabrics["pair"].Ports[1].Node = "vm00"
	if _, err := newServer(t, f).registry(t.Context()).Gather(); err != nil {
		t.Error(err)
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	at := func(seconds float64, rx, tx uint64) Fabric {
		return Fabric{At: start.Add(time.Duration(seconds * float64(time.Second))), Started: start,
			Ports: []Port{{PortCounters: fabric.PortCounters{Name: "p", RxBytes: rx, TxBytes: tx}}}}
	}
	other := at(2, 5000, 5000)
	other.Started = start.Add(time.Second)
	for name, tt := range map[string]struct {
		looks  []Fabric
		rx, tx float64 // NaN: no point
	}{
		"one look":                 {[]Fabric{at(0, 1, 1)}, math.NaN(), math.NaN()},
		"two looks":                {[]Fabric{at(0, 1000, 0), at(2, 2000, 500)}, 4000, 2000},
		"nothing passed":           {[]Fabric{at(0, 1, 1), at(1, 1, 1)}, 0, 0},
		"the port was made anew":   {[]Fabric{at(0, 1000, 1000), at(1, 10, 2000)}, math.NaN(), math.NaN()},
		"the switch was made anew": {[]Fabric{at(0, 1000, 1000), other}, math.NaN(), math.NaN()},
		"too long ago":             {[]Fabric{at(0, 0, 0), at(61, 1e9, 0)}, math.NaN(), math.NaN()},
		"too short to say":         {[]Fabric{at(0, 0, 0), at(0.001, 1e9, 0)}, math.NaN(), math.NaN()},
		"the clock was set back":   {[]Fabric{at(10, 0, 0), at(0, 1e9, 0)}, math.NaN(), math.NaN()},
		"the average of three":     {[]Fabric{at(0, 0, 0), at(1, 1000, 0), at(2, 1000, 0)}, 4000, 0},
		"of 15 s at most":          {[]Fabric{at(0, 0, 0), at(1, 1e6, 0), at(16, 1e6, 0)}, 0, 0},
		"longer if read seldom":    {[]Fabric{at(0, 0, 0), at(20, 20_000, 0)}, 8000, 0},
		"a rate, and then none of it": {[]Fabric{at(0, 0, 0), at(1, 1000, 0), at(1.01, 1000, 0)}, math.NaN(),
			math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f *flow
			for _, look := range tt.looks {
				f = f.next(look)
			}
			rx, tx := math.NaN(), math.NaN()
			if p := f.rate("p"); p != nil {
				rx, tx = p.rx, p.tx
			}
			if rx != tt.rx && !(math.IsNaN(rx) && math.IsNaN(tt.rx)) || tx != tt.tx &&
				!(math.IsNaN(tx) && math.IsNaN(tt.tx)) {
				t.Errorf("got %v and %v, want %v and %v", rx, tx, tt.rx, tt.tx)
			}
		})
	}
}

// An open page keeps a minute of points.
func TestThePastIsAMinute(t *testing.T) {
	t.Parallel()
	var f *flow
	for i := range 1000 {
		f = f.next(Fabric{At: start.Add(time.Duration(i) * time.Second), Started: start,
			Ports: []Port{{PortCounters: fabric.PortCounters{Name: "p", RxBytes: uint64(i) * 1e5}}}})
	}
	if n := len(f.past["p"]); n != 61 {
		t.Errorf("%d points are kept, want 61", n)
	}
	s := f.spark("p")
	if s == nil || strings.ContainsAny(s.Rx, "NI") || !strings.HasPrefix(s.Rx, "M0 ") ||
		!strings.HasSuffix(s.Rx, "L120 1") || s.Label != "last minute: at most 800 kb/s" {
		t.Errorf("got %+v", s)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		countText(0): "0", countText(999): "999", countText(1000): "1\u202f000",
		countText(math.MaxUint64): "18\u202f446\u202f744\u202f073\u202f709\u202f551\u202f615",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTheLaterOfTwoVerificationsIsShown(t *testing.T) {
	t.Parallel()
	f := typical(t)
	i := slices.IndexFunc(f.labs, func(l Lab) bool { return l.Name == "pair" })
	f.labs[i].Checked = start.Add(-2 * time.Hour)
	f.labs[i].Findings = []finding.Finding{{ID: "link", Code: "RL401", Subject: "vm01 eth0", Status: finding.Failed}}
	names := []string{"rackless_check_age_seconds", "rackless_check_state"}
	if n, err := testutil.GatherAndCount(newServer(t, f).registry(t.Context()), names...); err != nil || n != 7 {
		t.Errorf("a measurement after the verify: %d metrics, want the age and three for each of its two checks: %v", n,
			err)
	}
	f.labs[i].Checked = start.Add(-time.Minute)
	want := golden(t, "checks.txt")
	if err := testutil.GatherAndCompare(newServer(t, f).registry(t.Context()), strings.NewReader(want),
		names...); err != nil {
		t.Errorf("a verify after the measurement: %v", err)
	}
}
