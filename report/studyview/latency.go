package studyview

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

// maxLines is how many cells one picture of latencies has: more lines cannot be told apart.
const maxLines = 6

// distributions draws the latencies of cells, from the fastest to the slowest, for every test that has them. The
// pictures of one test have the same axes, so that they can be compared.
func (v *view) distributions() []chart.Chart {
	type key struct {
		test  string
		bytes int64
	}
	var by group.By[key, chart.Distribution]
	for i := range v.Result.Series {
		if s := &v.Result.Series[i]; len(s.Quantiles) > 1 {
			k := key{s.Test, s.Bytes}
			n := len(by.Of(k)) % maxLines
			by.Add(k, chart.Distribution{Series: chart.Series{Name: s.Cell, Color: n, Dash: n, Marker: n},
				Points: s.Quantiles, Title: func(p stats.Point) string { return v.latencyTitle(s, p) }})
		}
	}
	var out []chart.Chart
	for _, k := range by.Keys {
		all := by.Of(k)
		parts := (len(all) + maxLines - 1) / maxLines
		n := 0
		for part := range slices.Chunk(all, maxLines) {
			n++
			title := k.test
			if k.bytes > 0 {
				title += ", " + show.Size(k.bytes)
			}
			if parts > 1 {
				title += fmt.Sprintf(" (%d of %d)", n, parts)
			}
			c := chart.New(fmt.Sprintf("latency-%d", len(out)+1), title, chart.Width)
			out = append(out, c.Latencies(" of "+title, v.unit("us"), part, all))
		}
	}
	return out
}

// latencyTitle is a point of a distribution in words.
func (v *view) latencyTitle(s *study.Series, p stats.Point) string {
	return fmt.Sprintf("%s: %s of %d are at most %s %s", s.Cell, percent(p.Quantile), s.Count, show.Figure(p.Us),
		v.unit("us"))
}
