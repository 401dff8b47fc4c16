package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

func bw(client, server string, n int64, v float64) bench.Sample {
	return bench.Sample{Test: "ib_write_bw", Client: client, Server: server, Metric: bench.MetricBWAverage, Bytes: n,
		Value: v, Unit: "Gb/s", Attempt: 1}
}

func TestFaultTellsFiguresFromFailures(t *testing.T) {
	for name, c := range map[string]struct {
		sample bench.Sample
		want   string
	}{
		"a figure":                            {bw("a", "b", 4, 1), ""},
		"no retransmits are a figure":         {bench.Sample{Metric: bench.MetricRetransmits, Unit: "segments"}, ""},
		"no deviation is a figure":            {bench.Sample{Metric: bench.MetricLatencyStdev, Unit: "us"}, ""},
		"an unknown metric may have any unit": {bench.Sample{Metric: "m", Value: 1, Unit: "u"}, ""},
		"an error stands before all else":     {bench.Sample{Error: "broken", Metric: "m", Value: 1}, "broken"},
		"a zero is a failed measurement": {bw("a", "b", 4, 0),
			"bw_average is 0 Gb/s: a figure must be above zero"},
		"a figure below zero is a failed one": {bw("a", "b", 4, -1.5),
			"bw_average is -1.5 Gb/s: a figure must be above zero"},
		"not a number": {bw("a", "b", 4, math.NaN()), "bw_average is NaN, not a finite number"},
		"infinite": {bw("a", "b", 4, math.Inf(1)),
			"bw_average is +Inf, not a finite number"},
		"a size below zero":        {bw("a", "b", -4, 1), "message size of -4 bytes is below zero"},
		"neither metric nor error": {bench.Sample{Value: 1}, "sample has neither a metric nor an error"},
		"another unit than the metric's": {bench.Sample{Metric: bench.MetricBWPeak, Value: 1, Unit: "MB/s"},
			`bw_peak has the unit "MB/s", want "Gb/s"`},
		"fewer retransmits than none are none": {bench.Sample{Metric: bench.MetricRetransmits, Value: -1,
			Unit: "segments"}, "retransmits is -1 segments: a figure must be above zero"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fault(c.sample); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCollectOrdersPairsByTheLabAndTestsByKind(t *testing.T) {
	d := record.Record{Nodes: []record.Node{{Name: "vm9"}, {Name: "vm10"}}}
	for _, test := range []string{"stream", "ib_send_lat", "ib_read_bw", "ib_write_lat", "ib_write_bw"} {
		for _, p := range [][2]string{{"zz", "vm9"}, {"vm10", "vm9"}, {"aa", "vm9"}, {"vm9", "vm10"}, {"vm9", "aa"}} {
			s := bw(p[0], p[1], 4, 1)
			s.Test = test
			d.Samples = append(d.Samples, s)
		}
	}
	r := collect(d)
	if diff := cmp.Diff([]string{"ib_write_bw", "ib_read_bw", "ib_write_lat", "ib_send_lat", "stream"},
		r.tests); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
	var pairs []string
	for _, p := range r.pairs {
		pairs = append(pairs, p.String())
	}
	if diff := cmp.Diff([]string{"vm9 to vm10", "vm9 to aa", "vm10 to vm9", "aa to vm9", "zz to vm9"},
		pairs); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
}

func TestCollectKeepsEverySample(t *testing.T) {
	d := record.Record{Samples: []bench.Sample{bw("a", "b", 4, 1), bw("a", "b", 4, 3), bw("a", "b", 8, 2),
		bw("a", "b", 4, 0), {Error: "x"}, bw("b", "a", 4, 5)}}
	r := collect(d)
	n := len(r.failures)
	for _, v := range r.values {
		n += len(v)
	}
	if n != len(d.Samples) {
		t.Errorf("%d figures and failures, want %d", n, len(d.Samples))
	}
	if diff := cmp.Diff([]float64{1, 3}, r.values[figureKey{pair{"a", "b", false}, "ib_write_bw", 4,
		bench.MetricBWAverage}]); diff != "" {
		t.Errorf("repeats (-want +got):\n%s", diff)
	}
}

func TestRetriedNeedsALaterAttemptAtTheSameThing(t *testing.T) {
	failed := bench.Sample{Test: "ib_write_bw", Client: "a", Server: "b", Bytes: 4, Attempt: 1, Error: "x",
		Command: "c"}
	good := bw("a", "b", 4, 1)
	good.Attempt, good.Command = 2, "c"
	change := func(f func(*bench.Sample)) bench.Sample { s := good; f(&s); return s }
	for name, c := range map[string]struct {
		later bench.Sample
		want  bool
	}{
		"a later attempt that worked": {good, true},
		"an earlier attempt":          {change(func(s *bench.Sample) { s.Attempt = 1 }), false},
		"another size":                {change(func(s *bench.Sample) { s.Bytes = 8 }), false},
		"another direction":           {change(func(s *bench.Sample) { s.Client, s.Server = "b", "a" }), false},
		"another test":                {change(func(s *bench.Sample) { s.Test = "ib_read_bw" }), false},
		"a later attempt that failed": {change(func(s *bench.Sample) { s.Error = "y" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := retried([]bench.Sample{failed, c.later}, failed); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	t.Run("without a size the command decides", func(t *testing.T) {
		f := failed
		f.Bytes = 0
		if !retried([]bench.Sample{good}, f) {
			t.Error("same command: got false, want true")
		}
		f.Command = "c -a"
		if retried([]bench.Sample{good}, f) {
			t.Error("another command: got true, want false")
		}
	})
}

func TestSpreadOf(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   spread
	}{
		"one value":         {[]float64{3}, spread{1, 3, 3, 3, 2}},
		"an odd number":     {[]float64{9, 1, 3}, spread{3, 1, 3, 9, 2}},
		"an even number":    {[]float64{4, 1, 2, 9}, spread{4, 1, 3, 9, 2}},
		"the most decimals": {[]float64{0.5, 0.0625}, spread{2, 0.0625, 0.28125, 0.5, 4}},
		"the largest there is": {[]float64{math.MaxFloat64, math.MaxFloat64},
			spread{2, math.MaxFloat64, math.MaxFloat64, math.MaxFloat64, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.values)
			if got := spreadOf(c.values); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if !slices.Equal(before, c.values) {
				t.Errorf("the values were reordered: %v", c.values)
			}
		})
	}
}

func TestSummaryIsOneSentence(t *testing.T) {
	lat := bench.Sample{Test: "ib_write_lat", Client: "vm01", Server: "vm00", Metric: bench.MetricLatencyTypical,
		Bytes: 2, Value: 385, Unit: "us"}
	emulated := bw("vm01", "vm00", 4, 7)
	emulated.Emulated = true
	wire := func(v, limit float64) bench.Sample {
		s := bw("vm01", "vm00", 65536, v)
		s.Limit = limit
		return s
	}
	other := wire(23, 24.5036)
	other.Client = "vm02"
	for name, c := range map[string]struct {
		samples []bench.Sample
		want    string
	}{
		"the wire is known": {[]bench.Sample{wire(24.5, 24.5036)},
			"vm01 to vm00: ib_write_bw 24.5 Gb/s average at 64 KiB, 99.9% of the wire."},
		"the slowest pair counts": {[]bench.Sample{wire(24.5, 24.5036), other},
			"Median of 2 pairs: ib_write_bw 23.8 Gb/s average at 64 KiB (23 to 24.5), at least 93.8% of the wire."},
		"the wire of one repeat is not known": {[]bench.Sample{wire(24.5, 24.5036), wire(24.5, 0)},
			"vm01 to vm00: ib_write_bw 24.5 Gb/s average at 64 KiB."},
		"nothing":       {nil, "Nothing was measured."},
		"only failures": {[]bench.Sample{{Error: "x"}}, "No measurement succeeded."},
		"no headline metric": {[]bench.Sample{{Test: "t", Metric: "m", Value: 1}},
			"1 figure measured; the figures are in the tables."},
		"bandwidth at 64 KiB, latency at the smallest size": {
			[]bench.Sample{bw("vm01", "vm00", 2, .1), bw("vm01", "vm00", 65536, .23), bw("vm01", "vm00", 1<<20, .25),
				lat},
			"vm01 to vm00: ib_write_bw 0.23 Gb/s average at 64 KiB; ib_write_lat 385 µs typical at 2 B."},
		"bandwidth at the largest size without 64 KiB": {[]bench.Sample{bw("a", "b", 2, .1), bw("a", "b", 1000, .3)},
			"a to b: ib_write_bw 0.3 Gb/s average at 1000 B."},
		"two pairs": {[]bench.Sample{bw("a", "b", 4, 1), bw("b", "a", 4, 2)},
			"Median of 2 pairs: ib_write_bw 1.5 Gb/s average at 4 B (1 to 2)."},
		"hardware is not mixed with emulation": {[]bench.Sample{emulated, bw("vm01", "vm00", 4, 100)},
			"vm01 to vm00: ib_write_bw 100 Gb/s average at 4 B."},
	} {
		t.Run(name, func(t *testing.T) {
			d := record.Record{Samples: c.samples}
			if got := summaryOf(d, collect(d), show.Unit); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestBannerIsAsLoudAsItMustBe(t *testing.T) {
	hard, soft := bw("a", "b", 4, 1), bw("a", "b", 4, 1)
	soft.Emulated, soft.Accelerator = true, "tcg"
	kvm := soft
	kvm.Accelerator = "kvm"
	for name, c := range map[string]struct {
		data record.Record
		want string
	}{
		"hardware": {record.Record{Samples: []bench.Sample{hard}}, ""},
		"the lab says it is emulated": {record.Record{Emulated: true, Samples: []bench.Sample{hard}},
			fmt.Sprintf(emulatedBanner, "software RoCE (rxe)", "TCG")},
		"only the samples say so": {record.Record{Samples: []bench.Sample{soft}},
			fmt.Sprintf(emulatedBanner, "software RoCE (rxe)", "TCG")},
		"nothing measured": {record.Record{Emulated: true}, fmt.Sprintf(emulatedBanner, "software RoCE (rxe)", "TCG")},
		"some of the samples": {record.Record{Samples: []bench.Sample{soft, hard}},
			"Partly emulated: 1 of 2 measured values are from an emulated device or CPU and are marked. Those check " +
				"the setup, not the hardware."},
		"software RoCE on KVM": {record.Record{Samples: []bench.Sample{kvm}},
			"Emulated: software RoCE (rxe) on KVM. These figures check the setup, not the hardware."},
	} {
		t.Run(name, func(t *testing.T) {
			if got := bannerOf(c.data, collect(c.data)); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestMatrixHasACellForEveryPair(t *testing.T) {
	d := synthetic(4, [][2]int{{0, 1}, {1, 0}, {2, 0}, {0, 2}, {1, 2}}, []int64{65536})
	d.Samples = append(d.Samples, bench.Sample{Test: "ib_write_bw", Client: "vm03", Server: "vm00", Error: "x",
		Emulated: true})
	r := collect(d)
	m := r.matrices(d.Nodes)[0]
	var rows []string
	for _, row := range m.Rows {
		var cells []string
		for _, c := range row.Cells {
			if c.State == "" {
				c.State = "figure"
			}
			cells = append(cells, c.State)
		}
		rows = append(rows, row.Client+": "+strings.Join(cells, " "))
	}
	want := []string{
		"vm00: self figure figure none",
		"vm01: figure self figure none",
		"vm02: figure none self none",
		"vm03: failed none none self",
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	if got, want := m.Title, "ib_write_bw at 64 KiB, average, Gb/s"; got != want {
		t.Errorf("title is %q, want %q", got, want)
	}
	heats := make(map[int]bool)
	for _, row := range m.Rows {
		for _, c := range row.Cells {
			if c.State == "" {
				heats[c.Heat] = true
			}
		}
	}
	if !heats[0] || !heats[heatSteps-1] {
		t.Errorf("steps of colour are %v, want the lowest and the highest among them", heats)
	}
}

func TestPairListHasARowForEveryPairAndAColumnForEveryHeadline(t *testing.T) {
	d := synthetic(6, star(5), []int64{2, 65536})
	d.Samples = append(d.Samples, bench.Sample{Test: "ib_write_bw", Client: "vm05", Server: "vm00", Error: "x",
		Emulated: true})
	lists := collect(d).pairLists()
	if len(lists) != 1 || !lists[0].Emulated {
		t.Fatalf("got %d lists, want one of emulated figures", len(lists))
	}
	l := lists[0]
	var rows []string
	for _, row := range l.Rows {
		line := row.String() + ":"
		for _, c := range row.Cells[:2] {
			if c.State == "" {
				c.State = "figure"
			}
			line += " " + c.State
		}
		rows = append(rows, line)
	}
	want := []string{"vm01 to vm00: figure figure", "vm02 to vm00: figure figure", "vm03 to vm00: figure figure",
		"vm04 to vm00: figure figure", "vm05 to vm00: failed none"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	var columns []string
	for _, c := range l.Columns {
		columns = append(columns, c.Title())
	}
	want = []string{"ib_write_bw at 64 KiB, average, Gb/s", "ib_read_bw at 64 KiB, average, Gb/s",
		"ib_send_bw at 64 KiB, average, Gb/s",
		"ib_write_lat at 2 B, typical, µs", "ib_read_lat at 2 B, typical, µs", "ib_send_lat at 2 B, typical, µs"}
	if diff := cmp.Diff(want, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}

func TestPairsAreComparedInAListOrInAMatrixButNotInBoth(t *testing.T) {
	ring := func(n int) (out [][2]int) {
		for i := range n {
			out = append(out, [2]int{i, (i + 1) % n})
		}
		return out
	}
	for name, c := range map[string]struct {
		nodes           int
		pairs           [][2]int
		lists, matrices int // a matrix for each of six tests
	}{
		"few pairs have charts instead":   {3, [][2]int{{1, 0}, {2, 0}, {2, 1}}, 0, 0},
		"a star":                          {5, star(5), 1, 0},
		"a ring":                          {5, ring(5), 1, 0},
		"a ring and one more":             {5, append(ring(5), [2]int{0, 2}), 0, 6},
		"every two nodes in both ways":    {4, fullMesh(4), 0, 6},
		"pairs of a few nodes among many": {64, [][2]int{{1, 0}, {2, 0}, {3, 0}, {63, 0}, {0, 63}}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := synthetic(c.nodes, c.pairs, []int64{65536})
			r := collect(d)
			if lists, matrices := len(r.pairLists()), len(r.matrices(d.Nodes)); lists != c.lists ||
				matrices != c.matrices {
				t.Errorf("%d lists and %d matrices, want %d and %d", lists, matrices, c.lists, c.matrices)
			}
		})
	}
}

func TestAMedianHasNoMoreDecimalsThanTheToolPrinted(t *testing.T) {
	if s := spreadOf([]float64{0.25, 0.28}); s.short(s.Median) != "0.27" && s.short(s.Median) != "0.26" {
		t.Errorf("median of 0.25 and 0.28 is shown as %s, want two decimals", s.short(s.Median))
	}
	all := spreadOfMedians([]spread{spreadOf([]float64{0.25, 0.28}), spreadOf([]float64{0.31})})
	if got := all.short(all.Min); len(got) != len("0.26") {
		t.Errorf("the lowest of medians is shown as %s, want two decimals", got)
	}
	if s := spreadOf([]float64{0.000055, 0.5446332738315154}); s.short(s.Max) != "0.545" ||
		s.figure(s.Max) != "0.5446" {
		t.Errorf("got %s and %s, want three digits and four", s.short(s.Max), s.figure(s.Max))
	}
}
