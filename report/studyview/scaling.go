package studyview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

// A scale is one metric by number of nodes, for one size and equal other levels.
type scale struct {
	study.Quantity
	rest   string // levels of the other factors
	points []chart.Point
}

func (s *scale) name() string {
	if s.Bytes == 0 {
		return s.rest
	}
	return strings.TrimSuffix(show.Size(s.Bytes)+", "+s.rest, ", ")
}

// scaling draws medians and intervals by number of nodes, if that is a factor.
func (src *source) scaling() []chart.Chart {
	var out []chart.Chart
	by := src.scales()
	for _, k := range by.Keys {
		all := by.Of(k)
		n := 0
		for part := range slices.Chunk(all, maxLines) {
			title := k
			if n++; len(all) > maxLines {
				title += fmt.Sprintf(" (%d of %d)", n, (len(all)+maxLines-1)/maxLines)
			}
			out = append(out, src.scalingChart(fmt.Sprintf("scaling-%d", len(out)+1), title, part, all))
		}
	}
	return out
}

func (src *source) scales() (by group.By[string, *scale]) {
	spec := src.Data.Spec
	var lines []*scale
	compared := groups(src.Result.Comparisons).Keys
	for _, cell := range spec.Cells() {
		settings := spec.Settings(cell)
		nodes, err := strconv.Atoi(settings[study.FactorMPINodes])
		if err != nil {
			continue
		}
		text := spec.CellText(cell)
		for i := range src.Result.Series {
			s := &src.Result.Series[i]
			if s.Cell != text || !slices.Contains(compared, s.Quantity) || !finite(s.Low) || !finite(s.High) {
				continue
			}
			others := spec.WhereText(settings, study.FactorMPINodes)
			k := slices.IndexFunc(lines, func(l *scale) bool { return l.Quantity == s.Quantity && l.rest == others })
			if k < 0 {
				k = len(lines)
				lines = append(lines, &scale{Quantity: s.Quantity, rest: others})
			}
			lines[k].points = append(lines[k].points, src.scalingPoint(nodes, s))
		}
	}
	for _, l := range lines {
		if len(l.points) < 2 {
			continue
		}
		slices.SortFunc(l.points, func(a, b chart.Point) int { return int(a.X - b.X) })
		all := l.Quantity
		all.Bytes = 0
		by.Add(nameOf(all), l)
	}
	return by
}

// scalingPoint has the range if there are too few runs for an interval.
func (src *source) scalingPoint(nodes int, s *study.Series) chart.Point {
	p := chart.Point{X: float64(nodes), Y: s.Median, Low: s.Low, High: s.High, Value: show.Exact(s.Median),
		Bytes: s.Bytes}
	how := "range of"
	if i := stats.MedianInterval(s.Values, src.Result.Confidence); i.Bounded() {
		p.Low, p.High, how = i.Low, i.High, percent(src.Result.Confidence)+" interval of the median of"
	}
	p.Title = fmt.Sprintf("%s, %s: %s %s; %s to %s, %s %s", s.Cell, words.Count(nodes, "node"), show.Figure(s.Median),
		src.unit(s.Unit), show.Figure(p.Low), show.Figure(p.High), how, words.Count(len(s.Values), "run"))
	return p
}

func (src *source) scalingChart(id, title string, drawn, all []*scale) chart.Chart {
	c := chart.New(id, title, chart.Width)
	var legend []chart.Series
	for i, l := range drawn {
		legend = append(legend, chart.Series{Name: l.name(), Color: i, Dash: i, Marker: i})
	}
	if len(legend) > 1 || legend[0].Name != "" {
		c.Legend(legend...)
	}
	x := chart.Axis{Lo: all[0].points[0].X, Hi: all[0].points[0].X, Log: true,
		Label: func(v float64) string { return strconv.Itoa(int(v)) }}
	lo, hi := all[0].points[0].Low, all[0].points[0].High
	var ticks []float64
	for _, l := range all {
		for _, p := range l.points {
			x.Lo, x.Hi, lo, hi = min(x.Lo, p.X), max(x.Hi, p.X), min(lo, p.Low), max(hi, p.High)
			ticks = append(ticks, p.X)
		}
	}
	ticks = lists.Distinct(ticks)
	x.Candidates = [][]float64{ticks, {x.Lo, x.Hi}}
	y := chart.ValueAxis(lo, hi)
	p := c.Plot(x, y, "nodes", y.Unit(src.unit(all[0].Unit)))
	for i, l := range drawn {
		p.Curve(legend[i], l.points, true)
	}
	c.Desc = fmt.Sprintf("%s by the number of nodes, %s: medians of the runs with their intervals of %s, or with "+
		"their ranges where there are fewer runs than such an interval takes.", title, words.Count(len(drawn), "line"),
		percent(src.Result.Confidence))
	return c.Done()
}
