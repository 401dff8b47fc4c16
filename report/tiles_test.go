package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study/record"
)

func tileTexts(d record.Record) (out []string) {
	for _, t := range collect(d).tiles(d) {
		text := strings.TrimSpace(t.Figure + " " + t.Unit)
		if t.Loud {
			text += " loud"
		}
		out = append(out, fmt.Sprintf("%s: %s (%s)", t.Name, text, t.Note))
	}
	return out
}

func TestTilesHaveTheFiguresThatReadersLookForFirst(t *testing.T) {
	latency := func(test, metric string, v float64) bench.Sample {
		return bench.Sample{Test: test, Client: "a", Server: "b", Metric: metric, Bytes: 2, Value: v, Unit: "us"}
	}
	typical, p99 := latency("ib_write_lat", bench.MetricLatencyTypical, 12.7), latency("ib_write_lat",
		bench.MetricLatencyP99, 31)
	load := []record.Fact{{Key: "host load", Value: "12.90 10.10 7.29 (1, 5, 15 minutes)"}}
	idle, busy := &record.NoiseFloor{CPUs: 2, Load: 0.25}, &record.NoiseFloor{CPUs: 2, Load: 13.25}
	for name, c := range map[string]struct {
		d    record.Record
		want []string
	}{
		"nothing": {record.Record{}, nil},
		"a pair": {record.Record{Samples: []bench.Sample{bw("a", "b", 65536, 22.9), typical, p99}},
			[]string{"Bandwidth: 22.9 Gb/s (ib_write_bw at 64 KiB)", "Typical latency: 12.7 µs (ib_write_lat at 2 B)",
				"p99 latency: 31 µs (ib_write_lat at 2 B)"}},
		"several pairs": {record.Record{Samples: []bench.Sample{bw("a", "b", 4, 1), bw("b", "a", 4, 2)}},
			[]string{"Bandwidth: 1.5 Gb/s (ib_write_bw at 4 B; median of 2 pairs, 1 to 2)"}},
		"an average has no percentiles": {record.Record{Samples: []bench.Sample{latency("x_lat",
			bench.MetricLatencyAverage, 9)}}, []string{"Average latency: 9 µs (x_lat at 2 B)"}},
		"p99 of another test is not of this one": {record.Record{Samples: []bench.Sample{typical,
			latency("ib_read_lat", bench.MetricLatencyP99, 31)}},
			[]string{"Typical latency: 12.7 µs (ib_write_lat at 2 B)"}},
		"hardware before emulation": {record.Record{Samples: []bench.Sample{func() bench.Sample {
			s := bw("a", "b", 65536, 5)
			s.Emulated = true
			return s
		}(), bw("a", "b", 65536, 99)}}, []string{"Bandwidth: 99 Gb/s (ib_write_bw at 64 KiB)"}},
		"the load of an early release": {record.Record{Environment: load},
			[]string{"Load of the host: 12.9 (average of one minute, with the lab)"}},
		"the higher load": {record.Record{Environment: load, NoiseBefore: idle, NoiseAfter: busy, Disturbed: "x"},
			[]string{"Load of the host: 13.2 on 2 CPUs loud (▲ disturbed by other programs)"}},
		"no load of an idle host": {record.Record{NoiseBefore: idle},
			[]string{"Load of the host: 0.25 on 2 CPUs (average of one minute, with the lab)"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, tileTexts(c.d)); diff != "" {
				t.Errorf("tiles (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheTitleIsTheResult(t *testing.T) {
	d := record.Record{Lab: "pair", Samples: []bench.Sample{bw("a", "b", 65536, 22.9)}}
	page := render(t, d)
	for _, want := range []string{"<title>Lab pair: 22.9 Gb/s</title>", "<h1>Lab pair: 22.9 Gb/s</h1>"} {
		if !strings.Contains(page, want) {
			t.Errorf("page does not contain %q", want)
		}
	}
	d.Emulated = true
	if page := render(t, d); !strings.Contains(page, "<title>Lab pair: 22.9 Gb/s (emulated)</title>") {
		t.Error("the title of an emulated result does not say so")
	}
}

// A tag on each of nine charts says no more than one on their section.
func TestASectionSaysOnceThatItIsEmulated(t *testing.T) {
	for _, d := range []record.Record{loadFixture(t, "two-nodes"), synthetic(5, fullMesh(5), []int64{2, 64, 65536}),
		synthetic(8, star(8), []int64{65536})} {
		for section := range strings.SplitSeq(render(t, d), "<section") {
			if n := strings.Count(section, `class="tag"`); n > 1 {
				t.Errorf("%d tags in a section that begins with %.80s", n, section)
			}
		}
	}
}
