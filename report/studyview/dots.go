package studyview

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
)

// A canvas is a chart that has the signs of studies: dots, verdicts, runs.
type canvas struct{ *chart.Canvas }

// maxDots is how many runs of a cell are drawn; of more, every second, third, ... in order of size,
// so that the picture is the same.
const maxDots = 400

// dots draws all runs that count, by cell, one picture for each compared metric.
func (v *view) dots() []chart.Chart {
	var out []chart.Chart
	for _, m := range groups(v.Result.Comparisons).Keys {
		var all []*study.Series
		lo, hi := math.Inf(1), math.Inf(-1)
		for i := range v.Result.Series {
			s := &v.Result.Series[i]
			if m == s.Quantity && finite(s.Low) && finite(s.High) && finite(s.Median) {
				all = append(all, s)
				lo, hi = min(lo, s.Low), max(hi, s.High)
			}
		}
		if len(all) == 0 {
			continue
		}
		unit := v.unit(m.Unit)
		c := canvas{chart.New(fmt.Sprintf("runs-%d", len(out)+1), nameOf(m), chart.Width)}
		a := chart.ValueAxis(lo, hi).Over(chart.Inset, chart.Width-chart.Inset)
		total := 0
		for i, s := range all {
			if i > 0 {
				c.Y += 4
			}
			total += len(s.Values)
			c.Paragraph("", chart.TextFont, s.Cell)
			c.Note(fmt.Sprintf("median %s %s; %s to %s in %s", show.Figure(s.Median), unit,
				show.Figure(s.Low), show.Figure(s.High), words.Count(len(s.Values), "run")))
			c.dotStrip(a, s, unit)
		}
		// One axis for all cells of a metric: that strips lie below each other is what makes them comparable.
		c.XAxis(a)
		c.AxisName(a.Unit(unit))
		c.Desc = fmt.Sprintf("A dot for each of %s that count, by cell, with a line at the median: %s in %s, %s scale.",
			words.Count(total, "run"), nameOf(m), unit, scaleWord(a.Log))
		out = append(out, c.Done())
	}
	return out
}

func scaleWord(log bool) string {
	if log {
		return "logarithmic"
	}
	return "linear"
}

// dotStrip draws the runs of one cell as dots on a strip, and their median.
func (c canvas) dotStrip(a chart.Axis, s *study.Series, unit string) {
	_, middle := c.Strip(a, 24)
	every := (len(s.Values) + maxDots - 1) / maxDots
	order := make([]int, len(s.Values))
	for i := range order {
		order[i] = i
	}
	// By size where some are left out, so that the extremes and the shape stay. Else in the order of time, which the
	// titles tell.
	if every > 1 {
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(s.Values[i], s.Values[j]) })
	}
	for n, i := range order {
		value := s.Values[i]
		if n%every != 0 || !finite(value) {
			continue
		}
		// Beside each other in height, so that equal runs can be told apart; the order of the heights means nothing.
		y := middle + float64(n*5%9-4)*2
		c.Path("dot", chart.Circle(a.At(value), y, 2.6),
			fmt.Sprintf("block %d: %s %s", s.Blocks[i], show.Figure(value), unit))
	}
	c.Path("median", chart.Path("M%s %sv28", a.At(s.Median), middle-14),
		fmt.Sprintf("median %s %s", show.Figure(s.Median), unit))
}
