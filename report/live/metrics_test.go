package live

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rackless/rackless/fabric"
	"github.com/rackless/rackless/finding"
)

// newServer is a server without its guard.
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

func TestMetricsSayWhatTheSourceSays(t *testing.T) {
	t.Parallel()
	f := typical(t)
	f.pass(4 * time.Second)
	const want = `
# HELP rackless_check_age_seconds How long ago that was.
# TYPE rackless_check_age_seconds gauge
rackless_check_age_seconds{lab="pair"} 3604
# HELP rackless_check_state 1 for the outcome that the check had when the lab was last verified, by verify or by bench, 0 for the others.
# TYPE rackless_check_state gauge
rackless_check_state{check="link",code="RL401",lab="pair",state="failed",subject="vm00 eth0"} 0
rackless_check_state{check="link",code="RL401",lab="pair",state="ok",subject="vm00 eth0"} 1
rackless_check_state{check="link",code="RL401",lab="pair",state="unknown",subject="vm00 eth0"} 0
rackless_check_state{check="rdma-active-mtu",code="RL405",lab="pair",state="failed",subject="vm00 rxe0"} 1
rackless_check_state{check="rdma-active-mtu",code="RL405",lab="pair",state="ok",subject="vm00 rxe0"} 0
rackless_check_state{check="rdma-active-mtu",code="RL405",lab="pair",state="unknown",subject="vm00 rxe0"} 0
# HELP rackless_fabric_port_receive_bytes_total Ethernet bytes from the node into the switch, without preamble and checksum.
# TYPE rackless_fabric_port_receive_bytes_total counter
rackless_fabric_port_receive_bytes_total{lab="pair",nic="eth0",node="vm00"} 6.4463136e+07
rackless_fabric_port_receive_bytes_total{lab="pair",nic="eth0",node="vm01"} 6.4963136e+07
# HELP rackless_fabric_port_transmit_drops_total Frames for the node that did not reach it, by reason.
# TYPE rackless_fabric_port_transmit_drops_total counter
rackless_fabric_port_transmit_drops_total{lab="pair",nic="eth0",node="vm00",reason="buffer_full"} 0
rackless_fabric_port_transmit_drops_total{lab="pair",nic="eth0",node="vm00",reason="disconnected"} 0
rackless_fabric_port_transmit_drops_total{lab="pair",nic="eth0",node="vm00",reason="lost"} 0
rackless_fabric_port_transmit_drops_total{lab="pair",nic="eth0",node="vm00",reason="queue_full"} 0
rackless_fabric_port_transmit_drops_total{lab="pair",nic="eth0",node="vm01",reason="buffer_full"} 0
rackless_fabric_port_transmit_drops_total{lab="pair",nic="eth0",node="vm01",reason="disconnected"} 0
rackless_fabric_port_transmit_drops_total{lab="pair",nic="eth0",node="vm01",reason="lost"} 48
rackless_fabric_port_transmit_drops_total{lab="pair",nic="eth0",node="vm01",reason="queue_full"} 0
# HELP rackless_fabric_up 1 if the switch of the lab answered.
# TYPE rackless_fabric_up gauge
rackless_fabric_up{lab="half"} 0
rackless_fabric_up{lab="pair"} 1
# HELP rackless_node_state 1 for the state that the node is in, 0 for the others.
# TYPE rackless_node_state gauge
rackless_node_state{lab="half",node="vm00",state="dead"} 1
rackless_node_state{lab="half",node="vm00",state="no-adapter"} 0
rackless_node_state{lab="half",node="vm00",state="paused"} 0
rackless_node_state{lab="half",node="vm00",state="running"} 0
rackless_node_state{lab="half",node="vm00",state="starting"} 0
rackless_node_state{lab="half",node="vm00",state="unknown"} 0
rackless_node_state{lab="half",node="vm01",state="dead"} 0
rackless_node_state{lab="half",node="vm01",state="no-adapter"} 0
rackless_node_state{lab="half",node="vm01",state="paused"} 0
rackless_node_state{lab="half",node="vm01",state="running"} 0
rackless_node_state{lab="half",node="vm01",state="starting"} 0
rackless_node_state{lab="half",node="vm01",state="unknown"} 1
rackless_node_state{lab="half",node="vm02",state="dead"} 0
rackless_node_state{lab="half",node="vm02",state="no-adapter"} 0
rackless_node_state{lab="half",node="vm02",state="paused"} 0
rackless_node_state{lab="half",node="vm02",state="running"} 0
rackless_node_state{lab="half",node="vm02",state="starting"} 1
rackless_node_state{lab="half",node="vm02",state="unknown"} 0
rackless_node_state{lab="pair",node="vm00",state="dead"} 0
rackless_node_state{lab="pair",node="vm00",state="no-adapter"} 0
rackless_node_state{lab="pair",node="vm00",state="paused"} 0
rackless_node_state{lab="pair",node="vm00",state="running"} 1
rackless_node_state{lab="pair",node="vm00",state="starting"} 0
rackless_node_state{lab="pair",node="vm00",state="unknown"} 0
rackless_node_state{lab="pair",node="vm01",state="dead"} 0
rackless_node_state{lab="pair",node="vm01",state="no-adapter"} 0
rackless_node_state{lab="pair",node="vm01",state="paused"} 0
rackless_node_state{lab="pair",node="vm01",state="running"} 1
rackless_node_state{lab="pair",node="vm01",state="starting"} 0
rackless_node_state{lab="pair",node="vm01",state="unknown"} 0
# HELP rackless_rdma_age_seconds How long ago the RDMA counters of the lab were read.
# TYPE rackless_rdma_age_seconds gauge
rackless_rdma_age_seconds{lab="pair"} 0
# HELP rackless_rdma_port_events_total What the device itself counts, by the name that its driver gives it in hw_counters.
# TYPE rackless_rdma_port_events_total counter
rackless_rdma_port_events_total{counter="duplicate_request",device="rxe0",lab="pair",node="vm00",port="1"} 2
rackless_rdma_port_events_total{counter="duplicate_request",device="rxe0",lab="pair",node="vm01",port="1"} 2
rackless_rdma_port_events_total{counter="sent_pkts",device="rxe0",lab="pair",node="vm00",port="1"} 100
rackless_rdma_port_events_total{counter="sent_pkts",device="rxe0",lab="pair",node="vm01",port="1"} 100
# HELP rackless_rdma_port_transmit_packets_total Packets that the port sent: port_xmit_packets.
# TYPE rackless_rdma_port_transmit_packets_total counter
rackless_rdma_port_transmit_packets_total{device="rxe0",lab="pair",node="vm00",port="1"} 100
rackless_rdma_port_transmit_packets_total{device="rxe0",lab="pair",node="vm01",port="1"} 100
# HELP rackless_rdma_up 1 if the RDMA counters of the node were read; 0 also while a study measures, which reading them would disturb.
# TYPE rackless_rdma_up gauge
rackless_rdma_up{lab="half",node="vm00"} 0
rackless_rdma_up{lab="half",node="vm01"} 0
rackless_rdma_up{lab="half",node="vm02"} 0
rackless_rdma_up{lab="pair",node="vm00"} 1
rackless_rdma_up{lab="pair",node="vm01"} 1
# HELP rackless_results Measurements of the lab that are stored.
# TYPE rackless_results gauge
rackless_results{lab="pair"} 2
rackless_results{lab="torn"} 1
# HELP rackless_study_planned_runs Runs that the study will have; absent where a budget of time decides.
# TYPE rackless_study_planned_runs gauge
rackless_study_planned_runs{study="contention"} 32
rackless_study_planned_runs{study="demo"} 24
# HELP rackless_study_remaining_seconds About how long the study still takes, as its runs have taken so far; absent while that is not known.
# TYPE rackless_study_remaining_seconds gauge
rackless_study_remaining_seconds{study="contention"} 540
rackless_study_remaining_seconds{study="demo"} 0
# HELP rackless_study_running 1 while runs of the study are made.
# TYPE rackless_study_running gauge
rackless_study_running{study="contention"} 1
rackless_study_running{study="demo"} 0
`
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

// A node that does not answer, and a lab that must not be asked, have no counters: those of before
// would look like a standstill.
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

// Two things of one name must not cost the scrape.
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
		rx, tx float64 // NaN: none
	}{
		"one look":                 {[]Fabric{at(0, 1, 1)}, math.NaN(), math.NaN()},
		"two looks":                {[]Fabric{at(0, 1000, 0), at(2, 2000, 500)}, 4000, 2000},
		"nothing passed":           {[]Fabric{at(0, 1, 1), at(1, 1, 1)}, 0, 0},
		"the port was made anew":   {[]Fabric{at(0, 1000, 1000), at(1, 10, 2000)}, math.NaN(), math.NaN()},
		"the switch was made anew": {[]Fabric{at(0, 1000, 1000), other}, math.NaN(), math.NaN()},
		"too long ago":             {[]Fabric{at(0, 0, 0), at(61, 1e9, 0)}, math.NaN(), math.NaN()},
		"too short to say":         {[]Fabric{at(0, 0, 0), at(0.001, 1e9, 0)}, math.NaN(), math.NaN()},
		"the clock was set back":   {[]Fabric{at(10, 0, 0), at(0, 1e9, 0)}, math.NaN(), math.NaN()},
		"the last of three":        {[]Fabric{at(0, 0, 0), at(1, 1000, 0), at(2, 1000, 0)}, 0, 0},
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

// However long a page is looked at, what is kept of it is a minute.
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
	want := `# HELP rackless_check_age_seconds How long ago that was.
# TYPE rackless_check_age_seconds gauge
rackless_check_age_seconds{lab="pair"} 60
# HELP rackless_check_state 1 for the outcome that the check had when the lab was last verified, by verify or by bench, 0 for the others.
# TYPE rackless_check_state gauge
rackless_check_state{check="link",code="RL401",lab="pair",state="failed",subject="vm01 eth0"} 1
rackless_check_state{check="link",code="RL401",lab="pair",state="ok",subject="vm01 eth0"} 0
rackless_check_state{check="link",code="RL401",lab="pair",state="unknown",subject="vm01 eth0"} 0
`
	if err := testutil.GatherAndCompare(newServer(t, f).registry(t.Context()), strings.NewReader(want),
		names...); err != nil {
		t.Errorf("a verify after the measurement: %v", err)
	}
}
