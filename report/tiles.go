package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// tiles are bandwidth, typical and p99 latency, and the load of the host, as far as they are known. The first two have
// the same tests and sizes as the summary.
func (r *results) tiles(d record.Record) []show.Tile {
	var out []show.Tile
	add := func(name string, h headline) bool {
		pairs, repeats := r.over(h, r.pairs[0].Emulated)
		if len(pairs) == 0 {
			return false
		}
		all := spreadOfMedians(repeats)
		t := show.Tile{Name: name, Figure: all.short(all.Median), Unit: show.Unit(bench.MetricOf(h.Metric).Unit),
			Note: h.name()}
		if len(pairs) > 1 {
			t.Note += fmt.Sprintf("; median of %s, %s to %s", words.Count(len(pairs), "pair"), all.short(all.Min),
				all.short(all.Max))
		}
		out = append(out, t)
		return true
	}
	if len(r.pairs) > 0 {
		for _, names := range [][2]string{{bench.MetricBWAverage, bench.MetricThroughput},
			{bench.MetricLatencyTypical, bench.MetricLatencyAverage}} {
			h, ok := lists.Lookup(r.headlines(), func(h headline) bool { return h.Metric == names[0] })
			if !ok {
				h, ok = lists.Lookup(r.headlines(), func(h headline) bool { return h.Metric == names[1] })
			}
			if !ok || !add(tileNames[h.Metric], h) || h.Metric != bench.MetricLatencyTypical {
				continue
			}
			h.Metric = bench.MetricLatencyP99
			add(tileNames[h.Metric], h)
		}
	}
	if t, ok := loadTile(d); ok {
		out = append(out, t)
	}
	return out
}

var tileNames = map[string]string{bench.MetricBWAverage: "Bandwidth", bench.MetricThroughput: "Throughput",
	bench.MetricLatencyTypical: "Typical latency", bench.MetricLatencyAverage: "Average latency",
	bench.MetricLatencyP99: "p99 latency"}

// loadTile prefers the higher of the loads before and after the measurement. Results of earlier releases have only a
// fact of the environment.
func loadTile(d record.Record) (show.Tile, bool) {
	load, cpus := -1.0, 0
	for _, f := range []*record.NoiseFloor{d.NoiseBefore, d.NoiseAfter} {
		if f != nil && f.Load > load {
			load, cpus = f.Load, f.CPUs
		}
	}
	for _, f := range d.Environment {
		switch {
		case f.Key == "host load" && load < 0:
			first, _, _ := strings.Cut(f.Value, " ")
			if v, err := strconv.ParseFloat(first, 64); err == nil {
				load = v
			}
		case f.Key == "host CPUs" && cpus == 0:
			cpus, _ = strconv.Atoi(f.Value) // 0 if unknown
		}
	}
	if load < 0 {
		return show.Tile{}, false
	}
	t := show.Tile{Name: "Load of the host", Figure: show.Number(load, 3, 2), Note: "average of one minute, with the lab",
		Loud: d.Disturbed != ""}
	if cpus > 0 {
		t.Unit = "on " + words.Count(cpus, "CPU")
	}
	if t.Loud {
		t.Note = "▲ disturbed by other programs"
	}
	return t, true
}

// resultTitle adds the first bandwidth and latency to the title of the lab.
func resultTitle(d record.Record, all []show.Tile) string {
	var parts []string
	for _, t := range all {
		switch t.Name {
		case tileNames[bench.MetricBWAverage], tileNames[bench.MetricThroughput]:
			parts = append(parts, t.Figure+" "+t.Unit)
		case tileNames[bench.MetricLatencyTypical]:
			parts = append(parts, t.Figure+" "+t.Unit+" typical")
		case tileNames[bench.MetricLatencyAverage]:
			parts = append(parts, t.Figure+" "+t.Unit+" on average")
		}
	}
	if len(parts) == 0 {
		return titleOf(d)
	}
	return titleOf(d) + ": " + strings.Join(parts, ", ")
}
