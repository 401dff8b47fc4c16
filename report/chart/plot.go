package chart

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/stats"
)

// A Series is the look of a line, and its name in the legend.
type Series struct {
	Name        string
	Color, Dash int    // indexes of six colours and four dashes, modulo their number
	Marker      int    // shape, so that series do not differ in colour alone
	Class       string // replaces colour and dash, without markers
}

func (s Series) line() string {
	return cmp.Or(s.Class, fmt.Sprintf("line l%d d%d", s.Color%6, s.Dash%4))
}

func (s Series) fill() string { return fmt.Sprintf("s%d", s.Color%6) }

// Legend writes the names of the series after samples of their lines, in as many rows as needed.
func (c *Canvas) Legend(all ...Series) {
	const key = 31.0
	x := float64(Margin)
	c.Y += LineHeight
	for _, s := range all {
		width := key + float64(TextFont.Width(s.Name))
		if x > Margin && x+width > float64(c.Width-Margin) {
			x = Margin
			c.Y += LineHeight
		}
		middle := c.Y - 8
		c.Path(s.line(), Path("M%s %sh26", x, middle), "")
		if s.Class == "" {
			c.Path(s.fill(), Marker(s.Marker, x+13, middle), "")
		}
		for i, line := range TextFont.Lines(s.Name, c.Width-2*Margin-int(key)) {
			if i > 0 {
				c.Y += LineHeight
			}
			c.Text("", x+key, c.Y-4, line)
		}
		x += width + 14
	}
}

// A Plot is the area of a chart between its two axes.
type Plot struct {
	*Canvas
	X, Y Axis
}

const plotHeight = 210

// Plot draws two axes with their names, and the grid.
func (c *Canvas) Plot(x, y Axis, xName, yName string) Plot {
	c.Y += LineHeight + 2
	c.Text("tick", Margin, c.Y-4, yName)
	top, right := c.Y+6, float64(c.Width-Margin)
	bottom := top + plotHeight
	// The width of its labels sets the left edge of the plot.
	y = y.Over(bottom, top)
	left := Margin + 6.0
	for _, t := range y.Ticks {
		left = max(left, Margin+6+LabelWidth(y.Label(t)))
	}
	x = x.Over(left+2, float64(c.Width)-Inset)
	for _, t := range y.Ticks {
		c.Path("grid", Path("M%s %sH%s", left, y.At(t), right), "")
		c.Text("tick r", left-4, y.At(t)+4, y.Label(t))
	}
	for _, t := range x.Ticks {
		c.Path("grid", Path("M%s %sV%s", x.At(t), top, bottom), "")
		c.Text("tick m", x.At(t), bottom+14, x.Label(t))
	}
	c.Path("axis", Path("M%s %sH%s", left, bottom, right), "")
	c.Y = bottom + 16
	c.AxisName(xName)
	return Plot{c, x, y}
}

// A Point of a line has a marker if it has a Title.
type Point struct {
	X, Y      float64 // values
	Low, High float64
	Title     string
	Value     string
	Bytes     int64
	Faint     bool // based on too few samples
}

// Line draws a line without markers.
func (p Plot) Line(s Series, points []Point) {
	var line Line
	for _, at := range points {
		line.To(p.X.At(at.X), p.Y.At(at.Y))
	}
	p.Path(s.line(), line.String(), "")
}

// Band draws spreads as an area, if whiskers would hide each other.
func (p Plot) Band(s Series, points []Point) {
	var band Line
	for _, at := range points {
		band.To(p.X.At(at.X), p.Y.At(at.High))
	}
	for _, at := range slices.Backward(points) {
		band.To(p.X.At(at.X), p.Y.At(at.Low))
	}
	p.Path("band "+s.fill(), band.String()+"z", "")
}

// Curve draws points with markers and a line. Faint stretches have their own style, because readers take the end of a
// curve for a property of the system even when it is chance.
func (p Plot) Curve(s Series, points []Point, whiskers bool) {
	for rest := points; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Faint == rest[0].Faint {
			n++
		}
		from := len(points) - len(rest)
		if rest[0].Faint {
			p.Line(Series{Class: fmt.Sprintf("line faint l%d", s.Color%6)}, points[max(0, from-1):from+n])
		} else {
			p.Line(s, rest[:n])
		}
		rest = rest[n:]
	}
	for _, at := range points {
		x, y := p.X.At(at.X), p.Y.At(at.Y)
		if whiskers && at.Low < at.High {
			p.Path("whisker", Path("M%s %sV%s", x, p.Y.At(at.Low), p.Y.At(at.High)), "")
		}
		if at.Title != "" {
			p.Shapes = append(p.Shapes, Shape{Class: "pt " + s.fill(), D: Marker(s.Marker, x, y), Title: at.Title,
				Value: at.Value, Bytes: at.Bytes})
		}
	}
}

// landmarks have a mark and a grid line.
var landmarks = []float64{0.5, 0.9, 0.99, 0.999, 0.9999}

// depth stretches the slowest latencies: 90 % and 99 % are as far apart as 99 % and 99.9 %.
func depth(quantile float64) float64 { return -math.Log10(1 - min(quantile, 1-1e-12)) }

// IsLandmark reports whether a quantile is a landmark except for rounding.
func IsLandmark(quantile float64) bool {
	return slices.ContainsFunc(landmarks, func(q float64) bool { return math.Abs(q-quantile) < 1e-9 })
}

// A Distribution of latencies must have points that rise in both coordinates.
type Distribution struct {
	Series
	Points []stats.Point
	Title  func(p stats.Point) string // describes a landmark in words
}

// Latencies draws the distributions in drawn. Axes fit all, so that charts of one test can be compared; what is their
// name in the description.
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
			// The fastest latencies are unsupported too, but do not matter for decisions.
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

// Unit returns an axis's unit, and that it is logarithmic, which ticks do not show at a glance.
func (a Axis) Unit(unit string) string {
	if a.Log {
		unit += ", logarithmic"
	}
	return unit
}
