package studyview

import (
	"math"
	"slices"

	"github.com/rackless/rackless/report/show"
)

// A chart is a picture ready to print: paths and texts, from the back to the front.
type chart struct {
	ID, Title, Desc string // Desc is for those who cannot see the picture
	Class           string // wide or narrow where there is one for each kind of screen
	Width, Height   int
	Shapes          []shape
}

// A shape is a path, or a text where D is empty.
type shape struct {
	Class, D   string
	X, Y, Text string
	Title      string // what browsers show on pointing at it
}

// Geometry of a chart, in units of its viewBox. 400 wide is a phone's width: text of size 12 stays
// readable there, and a laptop shows two or three charts in a row.
const (
	chartWidth = 400
	wideWidth  = 1200
	margin     = 8  // around the texts
	inset      = 22 // of the plot: half of the longest label of a tick
	lineHeight = 16
)

// Fonts of the charts, as the style sheet has them.
var (
	fontText = show.Font{Size: 12}
	fontTick = show.Font{Size: 11}
)

// A canvas is a chart that grows downwards.
type canvas struct {
	chart
	y float64 // where the next thing goes
}

// newCanvas returns an empty chart.
func newCanvas(id, title string, width int) *canvas {
	return &canvas{chart: chart{ID: id, Title: title, Width: width}, y: 4}
}

// path adds a path with a class of the style sheet.
func (c *canvas) path(class, d, title string) {
	c.Shapes = append(c.Shapes, shape{Class: class, D: d, Title: title})
}

func (c *canvas) rect(class string, x, y, w, h float64, title string) {
	c.path(class, show.Path("M%s %sh%sv%sh-%sz", x, y, w, h, w), title)
}

// text adds a line of text. It is not cut: the caller knows the room.
func (c *canvas) text(class string, x, y float64, s string) {
	c.Shapes = append(c.Shapes, shape{Class: class, X: show.Px(x), Y: show.Px(y), Text: s})
}

// paragraph writes text over the width of the chart in as many lines as it takes.
func (c *canvas) paragraph(class string, f show.Font, indent float64, s string) {
	// SVG does not fold text: the lines are broken here, by widths that Font knows.
	for _, line := range f.Lines(s, c.Width-2*margin-int(indent)) {
		c.y += lineHeight
		c.text(class, margin+indent, c.y-4, line)
	}
}

// done is the chart, as high as what was drawn.
func (c *canvas) done() chart {
	c.Height = int(math.Ceil(c.y)) + 4
	return c.chart
}

// scale gives the axis the finest ticks whose labels do not touch: candidates are from fine to coarse, and the first
// with at most eight labels, six units apart, is taken.
func scale(a show.Axis, candidates [][]float64, label func(float64) string) show.Axis {
	for _, ticks := range candidates {
		ticks = slices.DeleteFunc(slices.Clone(ticks), func(v float64) bool { return v < a.Lo || v > a.Hi })
		end, last := math.Inf(-1), ""
		fits := len(ticks) > 0 && len(ticks) <= 8
		for _, v := range ticks {
			half := float64(fontTick.Width(label(v))) / 2
			at := math.Abs(a.At(v) - a.From)
			// on a short axis neighbours may differ in a digit that is not shown
			fits = fits && at-half > end+6 && label(v) != last
			end, last = at+half, label(v)
		}
		a.Ticks = ticks
		if fits {
			return a
		}
	}
	a.Ticks = a.Ticks[:min(len(a.Ticks), 1)] // only where one label is as wide as the plot
	return a
}

// steps are candidates for the ticks of a linear axis, from fine to coarse, each holding zero or a
// multiple of its step.
func steps(lo, hi float64) [][]float64 {
	var out [][]float64
	// The finest step makes ten to a hundred ticks of the span. The coarsest is wider than all of it.
	unit := math.Pow(10, math.Floor(math.Log10(hi-lo))-1)
	for _, m := range []float64{1, 2, 5, 10, 20, 50, 100} {
		step := m * unit
		var ticks []float64
		// Multiples of the step, and not sums: sums of 0.1 drift away from the labels.
		for k := math.Ceil(lo/step - 1e-9); k*step <= hi*(1+1e-12) && len(ticks) < 100; k++ {
			ticks = append(ticks, k*step)
		}
		out = append(out, ticks)
	}
	return out
}

// decades are candidates for the ticks of a logarithmic axis, from fine to coarse. Between values that are less than
// five times apart there may be no power of ten, so these have regular steps too.
func decades(lo, hi float64) [][]float64 {
	out := steps(lo, hi)[:4]
	if hi/lo > 5 {
		out = nil
	}
	first, last := int(math.Floor(math.Log10(lo))), int(math.Ceil(math.Log10(hi)))
	for _, factors := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
		var ticks []float64
		for e := first; e <= last; e++ {
			for _, f := range factors {
				ticks = append(ticks, f*math.Pow10(e))
			}
		}
		out = append(out, ticks)
	}
	// A span of many decades has room only for every second, fourth, ... power. Exponents are multiples of that step,
	// so that the axes of several charts agree.
	for every := 2; every <= 64; every *= 2 {
		var ticks []float64
		for e := -every * (-first / every); e <= last; e += every {
			ticks = append(ticks, math.Pow10(e))
		}
		out = append(out, ticks)
	}
	return out
}

// far reports whether values are so far apart that the small ones would be crowded on a linear axis.
func far(lo, hi float64) bool { return lo > 0 && hi/lo > 8 }

// valueAxis holds values of a metric: logarithmic where they are far apart and all positive. It
// need not start at zero, since points and not lengths are read off it.
func valueAxis(lo, hi, from, to float64) show.Axis {
	if far(lo, hi) {
		a := show.Axis{Lo: lo / 1.1, Hi: hi * 1.1, From: from, To: to, Log: true}
		return scale(a, decades(a.Lo, a.Hi), show.Tick)
	}
	// No narrower than four digits can tell: ticks have that many.
	pad := max(0.05*(hi-lo), 0.002*max(math.Abs(lo), math.Abs(hi)), 1e-9)
	a := show.Axis{Lo: lo - pad, Hi: hi + pad, From: from, To: to}
	if lo >= 0 && a.Lo < 0 {
		a.Lo = 0
	}
	return scale(a, steps(a.Lo, a.Hi), show.Tick)
}

// xAxis draws the labels of a horizontal axis below the plot; grid lines are part of the strips above.
func (c *canvas) xAxis(a show.Axis, label func(float64) string) {
	c.y += 14
	for _, v := range a.Ticks {
		half := float64(fontTick.Width(label(v))) / 2
		at := min(max(a.At(v), half+2), float64(c.Width)-half-2) // whole, if not quite below its line
		c.text("tick m", at, c.y-2, label(v))
	}
}

// strip draws the ground of one row of a plot, with the grid.
func (c *canvas) strip(a show.Axis, height float64) (top, middle float64) {
	top = c.y + 2
	// 14 beyond both ends: the sign of an estimate at the end of the axis is a disc of radius 7, and stays on the
	// ground.
	c.rect("ground", a.From-14, top, a.To-a.From+28, height, "")
	for _, v := range a.Ticks {
		c.path("grid", show.Path("M%s %sv%s", a.At(v), top, height), "")
	}
	c.y = top + height + 4
	return top, top + height/2
}
