package studyview

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/stats"
)

func written(t *testing.T, write func(*bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const pinStudy = `name: pin-under-load
question: Does pinning help, and does it need a busy machine?
lab: pair.yaml
factors:
  placement: [default, pin]
  contention: [idle, "cpu:2"]
measure:
  - test: ib_write_lat
    bytes: 8
    iterations: 20000
  - test: ib_write_bw
    bytes: 65536
    seconds: 2
  - test: sysbench-cpu
    control: true
    metrics: [events]
blocks: 10
margin: 5%
seed: 7
`

// A model returns noise as the standard deviation of the logarithm.
type model func(cell map[string]string, test, metric string) (value, noise float64)

var metricsOf = map[string][][2]string{
	"ib_write_lat": {{"latency_typical", "us"}, {"latency_p99", "us"}}, "ib_write_bw": {{"bw_average", "Gb/s"}},
	"sysbench-cpu": {{"events", "events/s"}},
	"iperf3":       {{"throughput", "Gb/s"}, {"retransmits", "segments"}},
}

// simulate always gives the same runs.
func simulate(t testing.TB, text string, m model) *study.Data {
	t.Helper()
	spec, err := study.Parse("study.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(spec.Seed, 1))
	d := &study.Data{Spec: spec}
	at := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	for b := 1; b <= spec.Blocks; b++ {
		for _, r := range spec.Block(b) {
			o := study.Observation{Run: int64(len(d.Runs) + 1), Block: b, Place: r.Place, Attempt: 1,
				Cell: spec.Settings(r.Cell), Status: study.StatusDone, Started: at, Seconds: 11,
				Before: &study.HostState{At: at, BootID: "b", CPUs: 8, Loop: 10 * math.Exp(0.015*rng.NormFloat64())},
				Tools:  map[string]string{"ib_write_lat": "perftest 6.20"}}
			for _, x := range spec.Measure {
				for _, metric := range metricsOf[x.Test] {
					v, noise := m(o.Cell, x.Test, metric[0])
					// slower from block to block
					v *= math.Exp(noise*rng.NormFloat64() + 0.01*float64(b))
					o.Values = append(o.Values, study.Value{Test: x.Test, Metric: metric[0], Bytes: x.Bytes,
						Value: math.Round(v*1000) / 1000, Unit: metric[1]})
					if metric[0] == "latency_typical" {
						o.Histograms = append(o.Histograms, study.Latencies{Test: x.Test, Bytes: x.Bytes,
							Data: latencies(t, rng, v)})
					}
				}
			}
			d.Runs = append(d.Runs, o)
			at = at.Add(12 * time.Second)
		}
	}
	return d
}

// latencies are mostly near the median, a few far away.
func latencies(t testing.TB, rng *rand.Rand, typical float64) []byte {
	t.Helper()
	h := stats.NewHistogram()
	for range 2000 {
		v := typical * math.Exp(0.05*math.Abs(rng.NormFloat64()))
		if rng.Float64() < 0.004 {
			v *= 1 + 8*rng.ExpFloat64()
		}
		if err := h.Record(v); err != nil {
			t.Fatal(err)
		}
	}
	data, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// pinModel has a clear effect, a proven absence, and one that the runs cannot show.
func pinModel(cell map[string]string, test, metric string) (value, noise float64) {
	switch metric {
	case "latency_typical", "latency_p99":
		value, noise = 12, 0.01
		if metric == "latency_p99" {
			value, noise = 20, 0.06
		}
		if cell["contention"] != "idle" {
			value *= 3
			if cell["placement"] == "pin" {
				value *= 0.6
			}
		}
		return value, noise
	case "bw_average":
		if cell["contention"] != "idle" {
			return 8, 0.35
		}
		return 9.4, 0.01
	}
	return 5120, 0.003
}

func document(t testing.TB, d *study.Data) *study.Document {
	t.Helper()
	r, err := study.Analyse(d)
	if err != nil {
		t.Fatal(err)
	}
	return &study.Document{
		Result: r, Data: d, Generated: time.Date(2026, 11, 22, 9, 30, 0, 0, time.UTC), Rackless: "0.4.0",
		Repeat: "rackless study run pin-under-load.yaml",
	}
}

// pinDocument is emulated, with a failed and a disturbed run.
func pinDocument(t testing.TB) *study.Document {
	t.Helper()
	d := simulate(t, pinStudy, pinModel)
	// Other figures of the run count.
	failed := &d.Runs[13]
	failed.Status, failed.Error = study.StatusFailed, "ib_write_bw: no result within 3m0s"
	failed.Values = slices.DeleteFunc(failed.Values, func(v study.Value) bool { return v.Test == "ib_write_bw" })
	disturbed := d.Runs[40]
	disturbed.Before = &study.HostState{At: disturbed.Started, BootID: "b", CPUs: 8, Loop: 13.4}
	disturbed.Status, disturbed.Error = study.StatusDisturbed, "something else on the host used 1.20 CPUs"
	d.Runs[40].Attempt = 2
	d.Runs = slices.Insert(d.Runs, 40, disturbed)
	for i := range d.Runs {
		d.Runs[i].Run = int64(i + 1)
	}
	doc := document(t, d)
	doc.Emulated = true
	doc.Lab = &record.Record{
		Lab: "pair", Generated: doc.Generated, Emulated: true,
		Nodes: []record.Node{
			{Name: "vm00", Address: "10.77.0.10/24", MAC: "52:54:00:4d:00:0a", RDMADevice: "rxe0", GIDIndex: 1,
				MTU: 4200, IBMTU: 4096, CPUs: 1, Memory: 256 << 20, Accelerator: "tcg", Driver: "qemu"},
			{Name: "vm01", Address: "10.77.0.11/24", MAC: "52:54:00:4d:00:0b", RDMADevice: "rxe0", GIDIndex: 1,
				MTU: 4200, IBMTU: 4096, CPUs: 1, Memory: 256 << 20, Accelerator: "tcg", Driver: "qemu"},
		},
		Findings: []finding.Finding{
			{ID: "mtu", Subject: "vm00", Title: "MTU", Status: finding.OK, Have: "4200", Want: "4200",
				Evidence: "/sys/class/net/eth0/mtu"},
			{ID: "ib-mtu", Subject: "vm01", Title: "IB MTU", Status: finding.Failed, Have: "1024", Want: "4096",
				Evidence: "ibv_devinfo -d rxe0", Fix: "set the MTU of eth0 to 4200"},
		},
		HostPicture: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20"><rect width="40" height="20"/></svg>`,
	}
	doc.Environment = []study.Fact{{Name: "host", Value: "8 CPUs, 24 GiB, Linux 6.12"},
		{Name: "accelerator", Value: "TCG (no KVM)"},
		{Name: "RDMA device", Value: "rxe, Soft-RoCE"}, {Name: "QEMU", Value: "10.0.2"}}
	doc.Commands = []study.Command{
		{Test: "ib_write_lat, 8 B", Server: "ib_write_lat -d rxe0 -x 1 -s 8 -n 20000",
			Client: "ib_write_lat -d rxe0 -x 1 -s 8 -n 20000 10.77.0.11", Tool: "perftest 6.20"},
		{Test: "sysbench-cpu", Client: "sysbench cpu --time=2 run", Tool: "sysbench 1.0.20"},
	}
	return doc
}

const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(1)><style>*{display:none}</style></title></svg>` +
	`<!--` + "`" + `{{.}}|**b**` + "\x1b[2J\x1b]0;owned\x07\u202e\x00"

func hostileDocument(t testing.TB) *study.Document {
	t.Helper()
	d := pinDocument(t)
	poisoned := show.Clean(d, func(s string) string {
		if s == "" || slices.Contains([]string{study.StatusDone, study.StatusFailed, study.StatusDisturbed, "better",
			"worse", "equivalent", "undecided", "higher", "lower", "ratio", "difference", "full"}, s) {
			return s
		}
		return s + hostile
	})
	// A cell's text is poisoned as study builds it: level by level.
	for i := range poisoned.Result.Series {
		poisoned.Result.Series[i].Cell = poisoned.Data.Spec.CellText(poisoned.Data.Spec.Cells()[i%4])
	}
	return poisoned
}

// longDocument has names and figures of every length, five levels, and counts that may be zero.
func longDocument(t testing.TB) *study.Document {
	t.Helper()
	const text = `name: long
lab: labs/long.yaml
factors:
  lab.nodes.compute.placement.policy: [default,
    "pinned to the cores next to the network card and to nothing else in the machine",
    "wrong-numa-node-on-purpose-so-that-one-can-see-what-it-costs", c, d]
  link.loss: ["0", 0.1%]
measure: [{test: iperf3, metrics: [throughput, retransmits]}]
blocks: 4
`
	d := simulate(t, text, func(cell map[string]string, _, metric string) (float64, float64) {
		lossy := cell["link.loss"] != "0"
		switch {
		case metric == "retransmits" && !lossy:
			return 0, 0
		case metric == "retransmits":
			return 1200, 0.5
		case lossy:
			return 0.004, 0.8
		}
		return 9.4, 0.001
	})
	d.Runs[5].Before.Governors = []string{"powersave"}
	return document(t, d)
}

func TestCleanedReachesEveryText(t *testing.T) {
	d := pinDocument(t)
	before := written(t, func(b *bytes.Buffer) error { return Encode(b, show.JSON, d) })
	got := written(t, func(b *bytes.Buffer) error {
		return Encode(b, show.JSON, show.Clean(d, func(string) string { return "clean" }))
	})
	for _, word := range []string{"pin", "idle", "ib_write", "perftest", "10.77", "latency", "TCG"} {
		if bytes.Contains(got, []byte(word)) {
			t.Errorf("%q is left", word)
		}
	}
	if after := written(t, func(b *bytes.Buffer) error {
		return Encode(b, show.JSON, d)
	}); !bytes.Equal(before, after) {
		t.Error("the document itself was changed")
	}
	if !strings.Contains(string(before), "10.77") {
		t.Error("the fixture has nothing to clean")
	}
}
