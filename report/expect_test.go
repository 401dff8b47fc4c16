package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/study/record"
)

func judged() record.Record {
	d := hardware(1.07)
	d.Judgements = []expect.Judgement{
		{Test: "ib_write_bw", Client: "vm01", Server: "vm00", Metric: bench.MetricBWAverage, Bytes: 65536, Value: 24.5,
			Verdict: expect.VerdictWire, Wire: 24.503, Bound: 24.503,
			Text: "within 98% of the wire: 24.50 of 24.50 Gb/s (25 Gb/s, IB MTU 4096, headers counted)"},
		{Test: "ib_read_bw", Client: "vm01", Server: "vm00", Metric: bench.MetricBWAverage, Bytes: 65536, Value: 22.89,
			Verdict: expect.VerdictExplained, Wire: 24.506, Bound: 23.14,
			Text: "98.9 % of the wire as it is set up, which carries 23.14 Gb/s",
			Causes: []expect.Cause{{What: "IB MTU 1024", Evidence: "active MTU of mlx5_0 on vm01 is 1024",
				Fix: "set the MTU to 4200", Ceiling: 23.14}}},
		{Test: "iperf3", Client: "vm01", Server: "vm00", Metric: bench.MetricThroughput, Value: 7.9,
			Verdict: expect.VerdictShort, Wire: 24.469, Bound: 24.469, Text: "32.2 % of the wire",
			Causes: []expect.Cause{{What: "contention for CPUs",
				Evidence: "64 threads wanted to run on the 64 CPUs of the host", Fix: "isolate the CPUs of the nodes"},
				{What: "wrong NUMA node", Possible: true, Evidence: "the tool was free to run anywhere",
					Fix: "measure with --cpu 16-23"}}},
		{Test: "ib_send_bw", Client: "vm01", Server: "vm00", Metric: bench.MetricBWAverage, Bytes: 65536, Value: 20,
			Verdict: expect.VerdictNone, Text: "no expectation: neither the rate of the port nor its PCIe link " +
				"is known"},
	}
	d.Beside = []expect.PublishedComparison{{Test: "ib_write_lat", Client: "vm01", Server: "vm00",
		Metric: bench.MetricLatencyTypical,
		Bytes:  2, Value: 1.62, Published: 1.44, Of: "ConnectX-4 Lx"}}
	return d
}

func TestExpectationsAreShown(t *testing.T) {
	d := judged()
	text := onTerminal(t, d, TerminalOptions{})
	golden.Check(t, "testdata/expectations.txt", text)
	page := render(t, d)
	for _, want := range []string{"within 98% of the wire: 24.50 of 24.50 Gb/s",
		"<strong>IB MTU 1024</strong>: active MTU of mlx5_0 on vm01 is 1024.", "What to do: set the MTU to 4200.",
		"<strong>perhaps: wrong NUMA node</strong>", "no expectation: neither the rate",
		"published: 1.44 µs (ConnectX-4 Lx)", "wire limit, headers counted", "Latency percentiles"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page, "Emulated figures are compared with nothing") {
		t.Error("the page says of hardware that it is emulated")
	}
	d.Emulated = true
	page, text = render(t, d), onTerminal(t, d, TerminalOptions{})
	for _, bad := range []string{"within 98% of the wire", "published: 1.44"} {
		if strings.Contains(page, bad) || strings.Contains(text, bad) {
			t.Errorf("an emulated result says %q", bad)
		}
	}
	if !strings.Contains(page, noExpectation) || !strings.Contains(strings.Join(strings.Fields(text), " "),
		noExpectation) {
		t.Error("an emulated result does not say that it is compared with nothing")
	}
}

// An emulated adapter is judged by its wire, and the figures stay marked. A verdict about the setup is not repeated.
func TestExpectationsOfAnEmulatedWireAreShown(t *testing.T) {
	d := judged()
	d.Emulated = true
	for i := range d.Judgements {
		d.Judgements[i].Emulated = true
	}
	d.Judgements[1].Verdict, d.Judgements[1].Text, d.Judgements[1].Causes = expect.VerdictEmulated,
		"93.4 % of the emulated wire, which carries 24.50 Gb/s", nil
	var m strings.Builder
	if err := Markdown(&m, d); err != nil {
		t.Fatal(err)
	}
	for form, out := range map[string]string{"terminal": onTerminal(t, d, TerminalOptions{}), "page": render(t, d),
		"Markdown": m.String()} {
		words := strings.Join(strings.Fields(out), " ")
		for _, want := range []string{"vm01 to vm00, emulated", "within 98% of the wire",
			"93.4 % of the emulated wire", wireExpectation} {
			if !strings.Contains(words, want) {
				t.Errorf("the %s does not say %q", form, want)
			}
		}
		for _, bad := range []string{"contention for CPUs", "no expectation: neither", noExpectation, "IB MTU 1024"} {
			if strings.Contains(words, bad) {
				t.Errorf("the %s says %q of an emulated figure", form, bad)
			}
		}
	}
}

// Copies are judged in their own unit, on one node.
func TestExpectationsOfCopiesAreShown(t *testing.T) {
	d := hardware(1.07)
	d.Judgements = []expect.Judgement{{Test: "gpu_bandwidth_h2d", Client: "vm01", Metric: bench.MetricCopyBandwidth,
		Value: 5, Verdict: expect.VerdictShort, Wire: 57.614, Bound: 7.314,
		Text: "68.3 % of the PCIe link, which carries 7.31 GB/s",
		Causes: []expect.Cause{{What: "PCIe Gen 2 x16 link", Evidence: "the card can do 32 GT/s x16 (Gen 5)",
			Fix: "train the link again", Ceiling: 7.314}}}}
	text := strings.Join(strings.Fields(onTerminal(t, d, TerminalOptions{})), " ")
	if want := "- gpu_bandwidth_h2d, vm01: 5 GB/s; 68.3 % of the PCIe link, which carries 7.31 GB/s 1. PCIe Gen 2 " +
		"x16 link: the card can do"; !strings.Contains(text, want) {
		t.Errorf("the terminal does not say %q:\n%s", want, text)
	}
	page := render(t, d)
	for _, want := range []string{"gpu_bandwidth_h2d, vm01", "<strong>PCIe Gen 2 x16 link</strong>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestDistributions(t *testing.T) {
	s := bench.Sample{Test: "ib_write_lat", Client: "a", Server: "b", Bytes: 2, Metric: bench.MetricLatencyTypical,
		Value: 1}
	for i := range 10000 {
		s.Latencies = append(s.Latencies, float64(i+1)/100)
	}
	half, rest, failed, other := s, s, s, s
	half.Latencies, rest.Latencies = s.Latencies[:5000], s.Latencies[5000:]
	failed.Error, other.Latencies = "no result", nil
	got := record.Distributions([]bench.Sample{half, failed, other, rest})
	if len(got) != 1 || got[0].Count != 10000 {
		t.Fatalf("%d distributions of %d", len(got), got[0].Count)
	}
	whole := record.Distributions([]bench.Sample{s})
	if diff := cmp.Diff(whole, got); diff != "" {
		t.Errorf("two repeats together differ from all at once (-all +repeats):\n%s", diff)
	}
	at := map[float64]float64{}
	for _, p := range got[0].Points {
		at[p.Quantile] = p.Us
	}
	for q, want := range map[float64]float64{0.5: 50, 0.9: 90, 0.99: 99, 0.999: 99.9, 0.9999: 99.99} {
		if us := at[q]; us < want*0.998 || us > want*1.002 {
			t.Errorf("quantile %g is %g, want %g", q, us, want)
		}
	}
	d := got[0]
	d.Points = append(d.Points[:0:0], d.Points...)
	d.Points[3].Us, d.Points[5].Quantile = -1, 7
	if n := len(usablePoints(&d)); n != len(d.Points)-2 {
		t.Errorf("%d of %d points are usable, want two fewer", n, len(d.Points))
	}
	if _, ok := distributionChart("x", false, []ranOf{{Distribution: &record.Distribution{}}}); ok {
		t.Error("a chart of nothing")
	}
}
