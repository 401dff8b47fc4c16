package rig

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/study"
)

func flowOf(node string, rate, began float64) []bench.Sample {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := bench.Sample{Run: node, Test: "ib_send_bw", Client: node, Metric: bench.MetricBWPeak, Bytes: 1e6,
		Iterations: 1000, Value: 2 * rate, Unit: bench.UnitGbps, Started: start.Add(time.Duration(began * 1e9)),
		Seconds: 8 / rate, Printed: []bench.Stream{{Name: "client stdout"}}, Limit: 24}
	avg := s
	avg.Metric, avg.Value, avg.Printed = bench.MetricBWAverage, rate, nil
	return []bench.Sample{s, avg}
}

func TestIncastIsSummarized(t *testing.T) {
	m := study.Measure{Test: "incast/dscp26"}
	victim := []bench.Sample{{Run: "v", Metric: bench.MetricLatencyTypical, Value: 5, Unit: bench.UnitUsec,
		Latencies: []float64{4, 5, 9}}, {Run: "v", Metric: bench.MetricLatencyP99, Value: 9, Unit: bench.UnitUsec},
		{Run: "v", Metric: bench.MetricLatencyMax, Value: 9, Unit: bench.UnitUsec}}
	counts := incastCounts{drops: 3, marks: 5, pauses: 7, cnps: 11, goBacks: 13, paused: 2 * time.Second}
	out := summarize(m, []string{"a", "b"}, [][]bench.Sample{flowOf("a", 1, 0), flowOf("b", 2, 1)}, victim, counts,
		10*time.Second)
	got := map[string]float64{}
	for _, s := range out {
		if s.Error != "" || s.Limit != 0 || s.Bytes != 0 || s.Unit == "" || s.Test == "ib_send_bw" {
			t.Errorf("%+v", s)
		}
		got[s.Test+" "+s.Metric] = s.Value
	}
	// 16 Gbit in 8 s; (1+2)^2 / (2 (1+4)); 2 s of 2 x 10 s.
	for name, want := range map[string]float64{"incast/dscp26/a bw_average": 1, "incast/dscp26/b bw_average": 2,
		"incast/dscp26 goodput": 2, "incast/dscp26 goodput_min": 1, "incast/dscp26 fairness": 90,
		"incast/dscp26 latency_typical": 5, "incast/dscp26 latency_p99": 9, "incast/dscp26 drops": 3,
		"incast/dscp26 ecn_marks": 5, "incast/dscp26 pauses": 7, "incast/dscp26 cnps": 11, "incast/dscp26 go_backs": 13,
		"incast/dscp26 paused": 10} {
		if v, ok := got[name]; !ok || math.Abs(v-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("and %v", got)
	}
}

func TestIncastThatWasNoneFails(t *testing.T) {
	m := study.Measure{Test: "incast"}
	late := [][]bench.Sample{flowOf("a", 1, 0), flowOf("b", 1, 5)}
	broken := [][]bench.Sample{flowOf("a", 1, 0), {{Run: "b", Error: "no route"}}}
	fast := [][]bench.Sample{flowOf("a", 1, 0), flowOf("b", 1, 0)}
	for want, flows := range map[string][][]bench.Sample{"5.0 s after the first": late, "no route": broken,
		"a goodput of 2 Gb/s over a link of 1.9": fast} {
		out := summarize(m, []string{"a", "b"}, flows, nil, incastCounts{rate: 1.9e9}, time.Second)
		if len(out) != 1 || !strings.Contains(out[0].Error, want) {
			t.Errorf("got %+v, want %s", out, want)
		}
	}
}

func TestIncastCounts(t *testing.T) {
	var c incastCounts
	c.ofAdapter([]byte("rp_cnp_handled 5\npacket_seq_err 2\n\nlocal_ack_timeout_err 1\nrp_cnp_handled -1\nx\n"))
	c.ofSwitch(fabric.Counters{Ports: []fabric.PortCounters{{ECNMarked: 2, Pauses: 3, Paused: time.Second,
		Drops: fabric.Drops{BufferFull: 4}, Link: fabric.Link{Rate: 5}}, {ECNMarked: 1, Link: fabric.Link{Rate: 4}},
		{}}})
	if want := (incastCounts{drops: 4, marks: 3, pauses: 3, cnps: 5, goBacks: 3, paused: time.Second,
		rate: 4}); c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
	if d := c.since(c); d != (incastCounts{rate: 4}) {
		t.Errorf("since itself: %+v", d)
	}
}

func TestIncastNeedsNodes(t *testing.T) {
	const four = "name: four\nnodes:\n  vm: {count: 4}\n"
	for _, c := range []struct{ lab, test, want string }{
		{pairLab, "incast", "it takes 4 nodes or more"},
		{four, "incast/dscp64", "DSCP 64; give 0 to 63"},
		{four, "incast/dscp26", ""},
	} {
		_, err := rigOf(t, c.lab, c.test, "  link.pfc: [0, \"64KiB:32KiB\"]\n")
		if err == nil != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.test, err, c.want)
		}
	}
}
