package chart

import (
	"fmt"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/stats"
)

// landmarks are the quantiles that have a mark and a line of the grid on an axis of probability.
var landmarks = []float64{0.5, 0.9, 0.99, 0.999, 0.9999}

// depth is the place of a quantile on an axis that widens the slowest: as far apart as 90 % and 99
// % are 99 % and 99.9 %.
func depth(quantile float64) float64 { return -math.Log10(1 - min(quantile, 1-1e-12)) }

// IsLandmark reports whether a quantile is one of the landmarks, but for rounding.
func IsLandmark(quantile float64) bool {
	return slices.ContainsFunc(landmarks, func(q float64) bool { return math.Abs(q-quantile) < 1e-9 })
}

// A Distribution is the single latencies of a test. Its points have to rise, in both coordinates.
type Distribution struct {
	Series
	Points []stats.Point
	Title  func(p stats.Point) string // of a landmark, in words
}

// Latencies draws some distributions by the share of latencies that is at most as long. The axes hold all of them, so
// that several charts of one test can be compared. what names them in the description.
func (c *Canvas) Latencies(what, unit string, drawn, all []Distribution) Chart {
	keys := lists.Map(drawn, func(d Distribution) Series { return d.Series })
	c.Legend(keys...)
	lo, hi, deepest := math.Inf(1), 0.0, 0.99
	for _, d := range all {
		for _, p := range d.Points {
			lo, hi, deepest = min(lo, p.Us), max(hi, p.Us), max(deepest, p.Quantile)
		}
	}
	x := Axis{Hi: depth(deepest), Label: func(v float64) string { return show.Figure(100-100*math.Pow(10, -v)) + "%" }}
	ticks := lists.Map(landmarks, depth)
	x.Candidates = [][]float64{ticks}
	y := ValueAxis(lo, hi)
	p := c.Plot(x, y, "share of latencies up to this one", "latency, "+y.Unit(unit))
	faint := false
	for _, d := range drawn {
		var points []Point
		for _, at := range d.Points {
			// Low quantiles have few latencies on their side, too. There it is the fastest that are not sure, and no
			// one decides by these.
			x := Point{X: depth(at.Quantile), Y: at.Us, Faint: !at.Supported && at.Quantile >= 0.5}
			faint = faint || x.Faint
			if IsLandmark(at.Quantile) {
				x.Title, x.Value = d.Title(at), show.Exact(at.Us)
			}
			points = append(points, x)
		}
		p.Curve(d.Series, points, false)
	}
	if faint {
		c.Note("Faint: fewer than ten latencies lie beyond, so that another run may show others.")
	}
	c.Desc = fmt.Sprintf("Latencies%s by the share that is at most as long, on an axis that widens the slowest: "+
		"90, 99, 99.9 and 99.99 per cent are equally far apart. %s.", what, words.Count(len(drawn), "line"))
	return c.Done()
}

// Unit is the unit of an axis, and that it is logarithmic, which the ticks alone do not tell at once.
func (a Axis) Unit(unit string) string {
	unit += words.If(a.Log, ", logarithmic")
	return unit
}
