package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study/record"
)

func latencySample(client, server string, v float64) bench.Sample {
	return bench.Sample{Test: "ib_write_lat", Client: client, Server: server, Metric: bench.MetricLatencyTypical,
		Bytes: 2, Value: v, Unit: "us", Attempt: 1}
}

func rate(n int64, v float64) bench.Sample {
	s := bw("a", "b", n, v)
	s.Metric, s.Unit = bench.MetricMessageRate, "Mpps"
	return s
}

func TestPickSizes(t *testing.T) {
	for name, c := range map[string]struct{ sizes, want []int64 }{
		"none":                            {nil, nil},
		"as many as are usual, all of it": {[]int64{1, 3, 5, 7, 9, 11, 13, 15}, []int64{1, 3, 5, 7, 9, 11, 13, 15}},
		"the usual ones of all":           {sizes(1, 23, 1), usualSizes},
		"the nearest to the usual ones": {sizes(1, 23, 2), []int64{2, 32, 512, 2 << 10, 32 << 10, 512 << 10,
			8 << 20}},
		"sizes of packets": {[]int64{1500, 1501, 1502, 1503, 1504, 1505, 1506, 1507, 9000},
			[]int64{1500, 9000}},
		"a curve of memory":    {sizes(9, 29, 1), append(slices.Clone(usualSizes[2:]), 512<<20)},
		"a tool without sizes": {append([]int64{0}, sizes(1, 23, 1)...), usualSizes},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, pickSizes(c.sizes)); diff != "" {
				t.Errorf("sizes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTerminalOfAFullRunOfOnePairFitsAScreen(t *testing.T) {
	d := synthetic(2, [][2]int{{1, 0}}, sizes(1, 23, 1))
	kept := d.Samples[:0:0]
	for _, s := range d.Samples {
		if strings.HasSuffix(s.Test, "_bw") || s.Bytes == 2 {
			kept = append(kept, s)
		}
	}
	d.Samples = append(kept, bench.Sample{Test: "iperf3", Client: "vm01", Server: "vm00",
		Metric: bench.MetricThroughput, Value: 0.5446332738, Unit: "Gb/s", Emulated: true})
	for _, c := range []struct {
		all  bool
		most int
	}{{false, 35}, {true, 50}} {
		out := onTerminal(t, d, TerminalOptions{AllSizes: c.all})
		if n := strings.Count(out, "\n"); n > c.most {
			t.Errorf("all sizes %v: %d lines, want at most %d:\n%s", c.all, n, c.most, out)
		}
		if got := strings.Contains(out, "8 of 23 sizes"); got == c.all {
			t.Errorf("all sizes %v: output says that there are more: %v", c.all, got)
		}
		if want := "\nvm01 to vm00, emulated: iperf3 throughput 0.545 Gb/s\n"; !strings.Contains(out, want) {
			t.Errorf("output has no line %q:\n%s", want, out)
		}
	}
}

func TestTerminalShowsTheBandwidthOfTestsBesideEachOther(t *testing.T) {
	read := bw("a", "b", 64, 0.5)
	read.Test = "ib_read_bw"
	d := record.Record{Samples: []bench.Sample{bw("a", "b", 2, 0.000055), bw("a", "b", 64, 98.76), rate(2, 0.003463),
		rate(64, 0.192891), read}}
	want := `
a to b: average bandwidth and message rate
 size      write  read   write
            Gb/s  Gb/s    kpps
───────────────────────────────
 2 B    0.000055     -    3.46
 64 B  98.8        0.5  193
`
	if out := onTerminal(t, d, TerminalOptions{}); !strings.Contains(out, want) {
		t.Errorf("got\n%s\nwant it to contain%s", out, want)
	}
}

func TestTerminalPrintsHighMessageRatesInMillions(t *testing.T) {
	out := onTerminal(t, record.Record{Samples: []bench.Sample{bw("a", "b", 2, 0.05), rate(2, 3.123456), rate(65536,
		0.187)}}, TerminalOptions{})
	for _, want := range []string{"Mpps\n", "3.12\n", "0.187\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("output has no %q:\n%s", want, out)
		}
	}
}

func TestTerminalShowsAPairThatOnlyFailed(t *testing.T) {
	d := record.Record{Samples: []bench.Sample{
		{Test: "ib_write_bw", Client: "a", Server: "b", Bytes: 4, Error: "exit status 1", Command: "ib_write_bw b"},
		{Test: "ib_write_lat", Client: "a", Server: "b", Error: "exit status 2"},
		{Test: "iperf3", Client: "a", Server: "b", Error: "exit status 3"},
	}}
	out := onTerminal(t, d, TerminalOptions{})
	for _, want := range []string{"a to b: average bandwidth", "\n 4 B   FAILED\n",
		"\n ib_write_lat     -   FAILED        -    -      -    -\n", "\na to b: iperf3 FAILED\n",
		"3 failed measurements:", "exit status 1", "client: ib_write_bw b", "- ib_write_lat, a to b: exit status 2",
		"exit status 3"} {
		if !strings.Contains(out, want) {
			t.Errorf("output has no %q:\n%s", want, out)
		}
	}
}

// A failure is shown only in its place.
func TestFailedAt(t *testing.T) {
	fail := func(n int64, attempt int) bench.Sample {
		return bench.Sample{Test: "ib_write_bw", Client: "a", Server: "b", Bytes: n, Error: "x", Attempt: attempt}
	}
	zero := rate(2, 0)
	key := func(n int64, metric string) figureKey {
		return figureKey{pair{"a", "b", false}, "ib_write_bw", n, metric}
	}
	for name, c := range map[string]struct {
		samples []bench.Sample
		key     figureKey
		want    bool
	}{
		"the size that failed": {[]bench.Sample{fail(2, 1)}, key(2, bench.MetricBWAverage), true},
		"another size":         {[]bench.Sample{fail(2, 1)}, key(4, bench.MetricBWAverage), false},
		"a run over all sizes": {[]bench.Sample{fail(0, 1)}, key(4, bench.MetricBWAverage), true},
		"a repeat that failed where another gave figure": {[]bench.Sample{fail(2, 2), bw("a", "b", 2, 1)},
			key(2, bench.MetricBWPeak), false},
		"a figure that is none": {[]bench.Sample{zero, bw("a", "b", 2, 1)},
			key(2, bench.MetricMessageRate), true},
		"the other figures of its row": {[]bench.Sample{zero, bw("a", "b", 2, 1)},
			key(2, bench.MetricBWPeak), false},
		"nothing was tried": {nil, key(2, bench.MetricBWAverage), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := collect(record.Record{Samples: c.samples}).failedAt(c.key); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestAFailureIsShownAtASizeThatIsNotUsual(t *testing.T) {
	d := synthetic(2, [][2]int{{1, 0}}, sizes(1, 23, 1))
	for i := range d.Samples {
		if s := &d.Samples[i]; s.Test == "ib_read_bw" && s.Bytes == 16384 {
			s.Value = 0
		}
	}
	out := onTerminal(t, d, TerminalOptions{})
	found := false
	for line := range strings.Lines(out) {
		found = found || strings.HasPrefix(line, " 16 KiB ") && strings.Contains(line, failedWord)
	}
	if !found || !strings.Contains(out, "9 of 23 sizes") {
		t.Errorf("no row of 16 KiB that says %s:\n%s", failedWord, out)
	}
}

// A figure computed from one with a single digit has a single digit.
func TestAComputedFigureHasNoMoreDigitsThanItsSource(t *testing.T) {
	computed := rate(8<<20, 0.28/8/8.388608)
	computed.Derived = true
	wide := bw("a", "b", 2, 0.000016*3.463)
	wide.Derived = true
	out := onTerminal(t, record.Record{Samples: []bench.Sample{bw("a", "b", 8<<20, 0.28), computed, wide, rate(2,
		0.003463)}}, TerminalOptions{})
	for _, want := range []string{" ~4.2\n", "~0.0000554 ", "~: the tool printed 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("output has no %q:\n%s", want, out)
		}
	}
}

func TestTerminalSaysOfHowManyRepeatsAFigureIsTheMedian(t *testing.T) {
	for want, n := range map[string][2]int{"": {1, 1}, "each figure is the median of 3 repeats": {3, 3},
		"each figure is the median of 2 to 5 repeats": {2, 5}} {
		var d record.Record
		for i := range n[0] {
			d.Samples = append(d.Samples, bw("a", "b", 2, float64(i+1)))
		}
		for i := range n[1] {
			d.Samples = append(d.Samples, bw("a", "b", 4, float64(i+1)))
		}
		out := onTerminal(t, d, TerminalOptions{})
		if want == "" && strings.Contains(out, "repeat") || !strings.Contains(out, want) {
			t.Errorf("%v repeats: want %q in\n%s", n, want, out)
		}
	}
}

func TestTerminalShowsATestThatIsNeitherBandwidthNorLatency(t *testing.T) {
	d := record.Record{Samples: []bench.Sample{
		{Test: "stream", Client: "a", Server: "b", Metric: "copy", Bytes: 1024, Value: 12.5, Unit: "GB/s"},
		{Test: "stream", Client: "a", Server: "b", Metric: "triad", Bytes: 1024, Value: 9.25, Unit: "GB/s",
			Emulated: true},
	}}
	out := onTerminal(t, d, TerminalOptions{})
	for _, want := range []string{"\na to b: stream at 1 KiB copy 12.5 GB/s\n",
		"\na to b, emulated: stream at 1 KiB triad 9.25 GB/s\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("output has no %q:\n%s", want, out)
		}
	}
}

func TestMoreTestsThanFitGetASecondTable(t *testing.T) {
	var d record.Record
	for i := range 11 {
		s := bw("a", "b", 2, 1.234)
		s.Test = fmt.Sprintf("ib_test%02d_bw", i)
		d.Samples = append(d.Samples, s)
	}
	for _, server := range []string{"c", "d", "e"} { // few pairs, then many
		out := onTerminal(t, d, TerminalOptions{})
		for i := range 11 {
			if name := fmt.Sprintf("test%02d", i); !strings.Contains(out, name) {
				t.Errorf("output has no %s:\n%s", name, out)
			}
		}
		for line := range strings.Lines(out) {
			if n := text.StringWidth(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("line of %d columns: %q", n, line)
			}
		}
		for _, s := range d.Samples[:11] {
			s.Server = server
			d.Samples = append(d.Samples, s)
		}
	}
}

func TestKindOfATestGoesByWhatItMeasured(t *testing.T) {
	duration := latencySample("a", "b", 400)
	duration.Test, duration.Metric, duration.Unit = "timed", bench.MetricTPSAverage, "Mtps"
	r := collect(record.Record{Samples: []bench.Sample{bw("a", "b", 2, 1), latencySample("a", "b", 1), duration,
		{Test: "odd_bw", Metric: "unheard of", Value: 1}}})
	for test, want := range map[string]testKind{"ib_write_bw": bandwidthTest, "ib_write_lat": latencyTest,
		"timed": latencyTest, "odd_bw": otherTest,
		"failed_bw": bandwidthTest, "failed_lat": latencyTest, "failed": otherTest} {
		if got := r.kind(test); got != want {
			t.Errorf("kind of %s is %d, want %d", test, got, want)
		}
	}
}

func TestManyPairsShowTheUsualSizesToo(t *testing.T) {
	d := synthetic(4, fullMesh(4), sizes(1, 23, 1))
	few, all := onTerminal(t, d, TerminalOptions{}), onTerminal(t, d, TerminalOptions{AllSizes: true})
	if strings.Contains(few, " 128 B ") || !strings.Contains(all, " 128 B ") {
		t.Errorf("128 B is not a usual size; without all sizes:\n%s\nwith:\n%s", few, all)
	}
	if !strings.Contains(few, "8 of 23 sizes") {
		t.Errorf("output does not say that there are more:\n%s", few)
	}
}

func TestShortName(t *testing.T) {
	for test, want := range map[string]string{"ib_write_bw": "write", "raw_ethernet_bw": "raw_ethernet",
		"stream": "stream", "ib_": "ib_", "_bw": "_bw", "": ""} {
		if got := shortName(test); got != want {
			t.Errorf("shortName(%q) = %q, want %q", test, got, want)
		}
	}
}
