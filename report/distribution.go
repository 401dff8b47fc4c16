package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/stats"
)

func pairOf(d *record.Distribution, emulated bool) pair {
	return pair{d.Client, d.Server, d.Emulated || emulated}
}

// usablePoints leaves the points that can be drawn; a file may have others.
func usablePoints(d *record.Distribution) []stats.Point {
	// Latencies must be positive because the axis is logarithmic.
	last := 0.0
	return slices.DeleteFunc(slices.Clone(d.Points), func(p stats.Point) bool {
		bad := !(p.Quantile >= last && p.Quantile < 1) || !(p.Us > 0) || math.IsInf(p.Us, 0)
		if !bad {
			last = p.Quantile
		}
		return bad
	})
}

type ranOf struct {
	*record.Distribution
	Run string
}

// distributionsOf returns nil for several pairs.
func distributionsOf(d record.Record, s scope, run string) []ranOf {
	var out []ranOf
	for i := range d.Distributions {
		if x := &d.Distributions[i]; s.Pairs == 1 && pairOf(x, d.Emulated) == s.pair {
			out = append(out, ranOf{x, run})
		}
	}
	return out
}

func distributionCharts(id string, emulated bool, all []ranOf) []chart.Chart {
	var out []chart.Chart
	slices.SortStableFunc(all, func(a, b ranOf) int {
		return cmp.Or(compareTests(a.Test, b.Test), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Run, b.Run))
	})
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(d ranOf) bool {
			return d.Run != "" && (d.Test != all[0].Test || d.Bytes != all[0].Bytes)
		})
		if n < 0 {
			n = min(len(all), 6)
		}
		if c, ok := distributionChart(fmt.Sprintf("%s-%d", id, len(out)+1), emulated, all[:n]); ok {
			out = append(out, c)
		}
		all = all[n:]
	}
	return out
}

func distributionChart(id string, emulated bool, all []ranOf) (c chart.Chart, ok bool) {
	title := "Latency percentiles"
	var curves []chart.Distribution
	for _, d := range all {
		usable := usablePoints(d.Distribution)
		if len(usable) < 2 {
			continue
		}
		n := len(curves)
		se := chart.Series{Name: chartPoint{Test: d.Test, Bytes: d.Bytes}.name(), Color: n, Marker: n, Dash: n}
		if d.Run != "" {
			title = "Latencies of " + se.Name
			se = asRun(se, d.Run)
			se.Color = se.Dash
		}
		curves = append(curves, chart.Distribution{Series: se, Points: usable, Title: func(p stats.Point) string {
			return landmarkTitle(se.Name, p, emulated)
		}})
	}
	if len(curves) == 0 {
		return c, false
	}
	drawn := chart.New(id, title, chart.Width)
	return drawn.Latencies("", "µs", curves, curves), true
}

func landmarkTitle(name string, p stats.Point, emulated bool) string {
	title := fmt.Sprintf("%s: %s%% took at most %s µs", name, show.Figure(100*p.Quantile), show.Figure(p.Us))
	if !p.Supported {
		title += fmt.Sprintf("; it rests on the %d slowest alone", p.Beyond)
	}
	if emulated {
		title += ", emulated"
	}
	return title
}
