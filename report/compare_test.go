package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/study/record"
)

// hardware has two nodes with 25 Gb/s cards, after published figures. All of it is slower by factor.
func hardware(factor float64) record.Record {
	d := synthetic(2, [][2]int{{1, 0}}, sizes(1, 23, 2))
	d.Emulated, d.Title, d.Samples, d.HostPicture = false, "", nil, ""
	for i := range d.Nodes {
		d.Nodes[i].RDMADevice, d.Nodes[i].Accelerator = "mlx5_0", "kvm"
	}
	base := func(test string, n int64, metric, unit string, v float64) bench.Sample {
		return bench.Sample{Run: test, Test: test, Client: "vm01", Server: "vm00", Metric: metric, Bytes: n,
			Iterations: 10000, Value: math.Round(v*1e4) / 1e4, Unit: unit, Tool: "perftest",
			Version: "6.06", Command: test + " -d mlx5_0 -x 3 --report_gbits -F -p 20000 -n 10000 -a 10.0.0.1",
			ServerCommand: test + " -d mlx5_0", Placement: "not pinned", Accelerator: "kvm",
			Started: started, Seconds: 5, Attempt: 1}
	}
	for i, verb := range []string{"write", "read", "send"} {
		test := "ib_" + verb + "_bw"
		e, err := tool.EngineByName(test)
		if err != nil {
			panic(err)
		}
		for _, n := range sizes(1, 23, 1) {
			limit := bench.Wire{Rate: 25, MTU: 4096}.Limit(e, n)
			bw := min(0.999*limit, (3.75-0.4*float64(i))*float64(n)*8/1e3) / factor
			s := base(test, n, bench.MetricBWAverage, "Gb/s", bw)
			s.Limit = limit
			d.Samples = append(d.Samples, s, base(test, n, bench.MetricMessageRate, "Mpps", bw*1e3/8/float64(n)))
		}
		lat := base("ib_"+verb+"_lat", 2, "", "us", 0)
		lat.Command = strings.ReplaceAll(lat.Command, " -a ", " -s 2 -U ")
		for k, v := range map[string]float64{bench.MetricLatencyTypical: 1.44, bench.MetricLatencyP99: 1.53,
			bench.MetricLatencyP999: 5.22} {
			s := lat
			s.Metric, s.Value = k, math.Round(100*(v+0.2*float64(i))*factor)/100
			if k == bench.MetricLatencyTypical {
				for n := range 20000 {
					u := 1 - (float64(n)+0.5)/20000
					s.Latencies = append(s.Latencies, (1.3+0.2*float64(i)+0.05*math.Pow(u, -0.5))*factor)
				}
			}
			d.Samples = append(d.Samples, s)
		}
	}
	slices.SortStableFunc(d.Samples, func(a, b bench.Sample) int { return strings.Compare(a.Test, b.Test) })
	d.Distributions = record.Distributions(d.Samples)
	return d
}

// worse has a small MTU, another tool and pinned processes.
func worse() record.Record {
	d := hardware(1.2)
	d.Generated = d.Generated.AddDate(0, 0, 1)
	for i := range d.Nodes {
		d.Nodes[i].MTU, d.Nodes[i].IBMTU = 1500, 1024
	}
	for i := range d.Samples {
		d.Samples[i].Version, d.Samples[i].Placement, d.Samples[i].Command = "24.04", "CPUs 0",
			strings.ReplaceAll(d.Samples[i].Command, "-p 20000", "-p 20007")
	}
	d.Environment[1].Value = "Another CPU"
	d.Environment = append(d.Environment, record.Fact{Key: "host load", Value: "3.00 2.00 1.00"})
	return d
}

func sampleOf(test, metric string, bytes int64, unit string, v float64) bench.Sample {
	return bench.Sample{Test: test, Client: "vm01", Server: "vm00", Metric: metric, Bytes: bytes, Unit: unit, Value: v,
		Tool: "perftest"}
}

func TestComparisonSaysWhatDiffersBeforeAnyFigure(t *testing.T) {
	c := Compare(hardware(1), worse())
	var got []string
	for _, d := range c.Differences {
		got = append(got, d.What+": "+d.A+" / "+d.B)
		if d.Matters != (d.What != "host load") {
			t.Errorf("%s: matters is %v", d.What, d.Matters)
		}
	}
	want := []string{"tool: perftest 6.06 / perftest 24.04", "placement: not pinned / CPUs 0", "MTU: 4200 / 1500",
		"IB MTU: 4096 / 1024",
		"host CPU: Example CPU at 2.00GHz, 2 cores / Another CPU", "host load: – / 3.00 2.00 1.00"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("differences (-want +got); the port of TCP is none:\n%s", diff)
	}
	if got := Compare(hardware(1), hardware(1)); len(got.Differences) != 0 || got.warning() != "" {
		t.Errorf("a result differs from itself: %+v, %q", got.Differences, got.warning())
	}
}

func TestMoreConditionsThatDiffer(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(d *record.Record)
		want   Difference
	}{
		"emulated": {func(d *record.Record) {
			for i := range d.Samples {
				d.Samples[i].Emulated = true
			}
		}, Difference{"emulated", "no", "yes: figures check the setup, not the hardware", true}},
		"another number of iterations": {func(d *record.Record) {
			for i := range d.Samples {
				d.Samples[i].Command = strings.ReplaceAll(d.Samples[i].Command, "-n 10000", "-n 20")
			}
		}, Difference{"command of ib_write_lat", "ib_write_lat -d mlx5_0 -x 3 --report_gbits -F -n 10000 -s 2 -U",
			"ib_write_lat -d mlx5_0 -x 3 --report_gbits -F -n 20 -s 2 -U", true}},
		"one node alone is otherwise": {func(d *record.Record) {
			d.Nodes[1].MTU = 1500
		}, Difference{"MTU", "4200", "vm00 4200, vm01 1500", true}},
		"memory is not recorded": {func(d *record.Record) {
			d.Nodes[0].Memory, d.Nodes[1].Memory = 0, 0
		}, Difference{"memory of the nodes", "512 MiB", "–", true}},
		"a check failed": {func(d *record.Record) {
			d.Findings[0].Status = finding.Failed
		}, Difference{"checks", "all ok", "1 of 4 checks failed", true}},
		"another lab": {func(d *record.Record) { d.Lab = "other" }, Difference{"lab", "demo", "other", false}},
		"warm-ups": {func(d *record.Record) {
			for i := range d.Samples {
				d.Samples[i].WarmUps = 2
			}
		}, Difference{"warm-ups", "0", "2", true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := hardware(1)
			tt.change(&b)
			c := Compare(hardware(1), b)
			if !slices.Contains(c.Differences, tt.want) {
				t.Errorf("no %+v in %+v", tt.want, c.Differences)
			}
			if (c.warning() != "") != tt.want.Matters {
				t.Errorf("warning %q", c.warning())
			}
		})
	}
}

func TestComparedFigures(t *testing.T) {
	a := record.Record{Samples: []bench.Sample{
		sampleOf("ib_write_bw", bench.MetricBWAverage, 65536, "Gb/s", 24),
		sampleOf("ib_write_bw", bench.MetricBWAverage, 65536, "Gb/s", 25),
		sampleOf("ib_write_bw", bench.MetricBWAverage, 2, "Gb/s", 0.06),
		sampleOf("iperf3", bench.MetricRetransmits, 0, "segments", 0), {Test: "ib_read_bw", Client: "vm01",
			Server: "vm00", Error: "no result"},
	}}
	b := record.Record{Samples: []bench.Sample{
		sampleOf("ib_write_bw", bench.MetricBWAverage, 65536, "Gb/s", 19.6), sampleOf("iperf3", bench.MetricRetransmits,
			0, "segments", 6), sampleOf("iperf3", bench.MetricThroughput, 0, "Gb/s", 7.9),
	}}
	key := func(test, metric string, bytes int64) bench.Key {
		return bench.Key{Test: test, Client: "vm01", Server: "vm00", Metric: metric, Bytes: bytes}
	}
	want := []ComparedFigure{
		{Key: key("ib_write_bw", "bw_average", 2), Unit: "Gb/s", A: new(0.06), CountA: 1,
			Problem: "B does not have it"},
		{Key: key("ib_write_bw", "bw_average", 65536), Unit: "Gb/s", A: new(24.5), B: new(19.6), CountA: 2, CountB: 1,
			Ratio: new(0.8), Change: new(-4.9)},
		{Key: key("iperf3", "throughput", 0), Unit: "Gb/s", B: new(7.9), CountB: 1, Problem: "A does not have it"},
		{Key: key("iperf3", "retransmits", 0), Unit: "segments", A: new(0.0), B: new(6.0), CountA: 1, CountB: 1,
			Change: new(6.0)},
	}
	c := Compare(a, b)
	if diff := cmp.Diff(want, c.Figures, cmpopts.IgnoreUnexported(ComparedFigure{}),
		cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c.A.Failed != 1 || c.B.Failed != 0 || c.A.Samples != 5 {
		t.Errorf("%+v, %+v", c.A, c.B)
	}
	// Without a ratio if only one is emulated.
	b.Emulated = true
	for _, f := range Compare(a, b).Figures {
		if f.Ratio != nil || f.Change != nil || f.Problem == "" {
			t.Errorf("emulated against hardware: %+v", f)
		}
	}
	if w := Compare(a, b).warning(); !strings.HasPrefix(w, "One is emulated and the other is not") {
		t.Errorf("warning %q", w)
	}
	if groups := comparedCharts(hardware(1), synthetic(2, [][2]int{{1, 0}}, sizes(1, 23, 2))); len(groups) != 0 {
		t.Errorf("%d groups of charts have emulated figures beside those of hardware", len(groups))
	}
}

func TestOnePairWithOtherNamesIsTheSamePair(t *testing.T) {
	b := hardware(2)
	for i := range b.Samples {
		b.Samples[i].Client, b.Samples[i].Server = "node1", "node0"
	}
	for i := range b.Distributions {
		b.Distributions[i].Client, b.Distributions[i].Server = "node1", "node0"
	}
	c := Compare(hardware(1), b)
	for _, f := range c.Figures {
		if f.Ratio == nil || f.Client != "vm01" {
			t.Fatalf("%+v", f)
		}
	}
	if !slices.Contains(c.Differences, Difference{"names of the nodes", "vm01 to vm00", "node1 to node0", false}) {
		t.Errorf("the other names are not said: %+v", c.Differences)
	}
	if b.Samples[0].Client != "node1" || b.Distributions[0].Client != "node1" {
		t.Error("the caller's data were changed")
	}
	titles := ""
	for _, g := range comparedCharts(hardware(1), b) {
		for _, x := range g.Charts {
			titles += x.Title + "\n"
		}
	}
	if strings.Count(titles, "Latencies of") != 3 || !strings.Contains(titles, "Bandwidth, ib_write_bw") {
		t.Errorf("charts: %s", titles)
	}
}

func comparedText80(t *testing.T, a, b record.Record, o TerminalOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := CompareTerminal(&out, a, b, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func comparedPage(t *testing.T, a, b record.Record) string {
	t.Helper()
	var out bytes.Buffer
	if err := ComparePage(&out, a, b); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestComparisonOnATerminalIsAsCommitted(t *testing.T) {
	golden.Check(t, "testdata/compare.txt", comparedText80(t, hardware(1), worse(), TerminalOptions{}))
	golden.Check(t, "testdata/compare-mesh.txt", comparedText80(t, synthetic(3, fullMesh(3), []int64{2, 65536}),
		synthetic(3, fullMesh(3)[:3], []int64{2, 65536}), TerminalOptions{Color: true}))
	for _, line := range strings.Split(comparedText80(t, hardware(1), worse(), TerminalOptions{AllSizes: true}), "\n") {
		if len([]rune(line)) > 84 {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
	if got := comparedText80(t, record.Record{}, record.Record{}, TerminalOptions{}); !strings.Contains(got,
		"Neither has a figure") {
		t.Errorf("two empty results: %s", got)
	}
}

func TestNothingInAComparisonControlsTheReader(t *testing.T) {
	a, b := hostileData(), hostileData()
	b.Samples = b.Samples[:len(b.Samples)/2]
	a.Distributions = []record.Distribution{{Test: "t", Points: nil}}
	poison(reflect.ValueOf(&b).Elem())
	for _, r := range comparedText80(t, a, b, TerminalOptions{}) {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("output has the control character %U", r)
		}
	}
	page := comparedPage(t, a, b)
	for _, bad := range []string{"<script>alert", "<img", "<style>*", "<!--", "onerror=alert(1)>"} {
		if strings.Contains(page, bad) {
			t.Errorf("page contains %q from a field", bad)
		}
	}
	for _, m := range regexp.MustCompile(`(?:src|href|action|url)\s*[=(]\s*["']?([^"')>\s]*)`).FindAllStringSubmatch(
		comparedPage(t, hardware(1), worse()), -1) {
		if !strings.HasPrefix(m[1], "#") && !strings.HasPrefix(m[1], "data:text/csv;") {
			t.Errorf("the page refers to %q", m[1])
		}
	}
}

func TestComparisonAsCSVAndJSONHasEveryFigure(t *testing.T) {
	c := Compare(hardware(1), worse())
	var out bytes.Buffer
	if err := CompareCSV(&out, c); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(records) != len(c.Figures)+1 {
		t.Fatalf("%d records, %v, want %d", len(records), err, len(c.Figures)+1)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var again Comparison
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, again, cmpopts.IgnoreUnexported(ComparedFigure{})); diff != "" {
		t.Errorf("read again: %s", diff)
	}
}
