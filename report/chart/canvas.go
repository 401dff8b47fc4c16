package chart

import (
	_ "embed" // for the template
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/report/show"
)

// Template defines "chart", which renders a Chart as a figure element.
//
//go:embed chart.html
var Template string

// A Chart is a picture: paths and texts, from back to front.
type Chart struct {
	ID, Title, Desc string // Desc replaces the picture for screen readers
	Class           string // "wide" or "narrow" for variants by screen
	Width, Height   int
	Shapes          []Shape
}

// A Shape is a path, or a text if D is empty.
type Shape struct {
	Class, D   string
	X, Y, Text string
	Title      string // shown by browsers on hover
	Value      string // exact, for programs; empty without a figure
	Bytes      int64  // message size, or 0
}

// Sizes in units of the viewBox. A width of 400 fits a phone, with text of size 12 readable; a laptop shows two or
// three in a row.
const (
	Width      = 400
	Margin     = 8 // around texts
	Inset      = 22
	LineHeight = 16
)

// Fonts match the style sheet.
var (
	TextFont = show.Font{Size: 12}
	tickFont = show.Font{Size: 11}
)

// A Canvas is a chart that grows downwards.
type Canvas struct {
	Chart
	Y float64 // top of the next element
}

// New returns an empty chart.
func New(id, title string, width int) *Canvas {
	return &Canvas{Chart: Chart{ID: id, Title: title, Width: width}, Y: 4}
}

// Path adds a path.
func (c *Canvas) Path(class, d, title string) {
	c.Shapes = append(c.Shapes, Shape{Class: class, D: d, Title: title})
}

// Rect adds a rectangle.
func (c *Canvas) Rect(class string, x, y, w, h float64, title string) {
	c.Path(class, Path("M%s %sh%sv%sh-%sz", x, y, w, h, w), title)
}

// Box adds a rectangle with round corners, in whole units.
func (c *Canvas) Box(class string, x, y, w, h, r int, title string) {
	corner := func(dx, dy int) string { return fmt.Sprintf("a%d %[1]d 0 0 1 %d %d", r, dx, dy) }
	c.Path(class, fmt.Sprintf("M%d %dh%d%sv%d%sh-%[3]d%[7]sv-%[5]d%[8]sz", x+r, y, w-2*r, corner(r, r), h-2*r,
		corner(-r, r), corner(-r, -r), corner(r, -r)), title)
}

// Text adds a line of text. The caller makes sure that it fits.
func (c *Canvas) Text(class string, x, y float64, s string) {
	c.Shapes = append(c.Shapes, Shape{Class: class, X: Px(x), Y: Px(y), Text: s})
}

// Paragraph breaks text into lines by the font's glyph widths, because SVG does not wrap.
func (c *Canvas) Paragraph(class string, f show.Font, s string) {
	for _, line := range f.Lines(s, c.Width-2*Margin) {
		c.Y += LineHeight
		c.Text(class, Margin, c.Y-4, line)
	}
}

// Note is a Paragraph of small text.
func (c *Canvas) Note(s string) { c.Paragraph("tick", tickFont, s) }

// Done returns the chart, cut to its content.
func (c *Canvas) Done() Chart {
	c.Height = int(math.Ceil(c.Y)) + 4
	return c.Chart
}

// XAxis draws labels below the plot; Strip and Plot draw the grid.
func (c *Canvas) XAxis(a Axis) {
	c.Y += 14
	for _, v := range a.Ticks {
		half := float64(tickFont.Width(a.Label(v))) / 2
		at := min(max(a.At(v), half+2), float64(c.Width)-half-2) // keeps the label inside
		c.Text("tick m", at, c.Y-2, a.Label(v))
	}
}

// AxisName writes right-aligned on a line of its own.
func (c *Canvas) AxisName(s string) {
	c.Y += LineHeight
	c.Text("tick r", float64(c.Width-Margin), c.Y-4, tickFont.Fit(s, c.Width-2*Margin))
}

// Strip draws background and grid of one row.
func (c *Canvas) Strip(a Axis, height float64) (top, middle float64) {
	top = c.Y + 2
	// 14 units keep a disc of radius 7 at the end of the axis on the ground.
	c.Rect("ground", a.From-14, top, a.To-a.From+28, height, "")
	for _, v := range a.Ticks {
		c.Path("grid", Path("M%s %sv%s", a.At(v), top, height), "")
	}
	c.Y = top + height + 4
	return top, top + height/2
}

// LabelWidth returns the width of text in the font of ticks.
func LabelWidth(s string) float64 { return float64(tickFont.Width(s)) }

// Px formats a coordinate to a tenth of a unit, finer than any screen.
func Px(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// Path formats an SVG path; each %s is a coordinate.
func Path(format string, coordinates ...float64) string {
	px := make([]any, len(coordinates))
	for i, v := range coordinates {
		px[i] = Px(v)
	}
	return fmt.Sprintf(format, px...)
}

// A Line is the SVG path of a line.
type Line []byte

// To extends the line; the first call sets the start.
func (l *Line) To(x, y float64) {
	verb := "L"
	if len(*l) == 0 {
		verb = "M"
	}
	*l = append(*l, verb+Path("%s %s", x, y)...)
}

func (l Line) String() string { return string(l) }

// Circle returns the path of a disc.
func Circle(x, y, r float64) string {
	return Path("M%s %sa%s %s 0 1 0 %s 0a%s %s 0 1 0 -%s 0z", x-r, y, r, r, 2*r, r, r, 2*r)
}

// Marker returns a marker's path. Its shape tells series apart if colours cannot.
func Marker(shape int, x, y float64) string {
	switch shape % 4 {
	case 1: // square
		return Path("M%s %sh6v6h-6z", x-3, y-3)
	case 2: // triangle
		return Path("M%s %sl4 7h-8z", x, y-4)
	case 3: // diamond
		return Path("M%s %sl4 4l-4 4l-4 -4z", x, y-4)
	}
	return Circle(x, y, 3.2)
}

// An Axis maps values to coordinates.
type Axis struct {
	Lo, Hi   float64 // values at the two ends
	From, To float64 // falling for a vertical axis, as SVG counts downwards
	Log      bool
	Ticks    []float64
	Label    func(float64) string // formats a tick
	// Candidates are sets of ticks, from fine to coarse. Over picks one.
	Candidates [][]float64
}

// At returns the coordinate of a value.
func (a Axis) At(v float64) float64 {
	if a.Log {
		return a.From + (a.To-a.From)*math.Log(v/a.Lo)/math.Log(a.Hi/a.Lo)
	}
	return a.From + (a.To-a.From)*(v-a.Lo)/(a.Hi-a.Lo)
}

const maxTicks = 8

// Over lays the axis out with the finest candidate whose labels do not overlap.
func (a Axis) Over(from, to float64) Axis {
	a.From, a.To = from, to
	for _, ticks := range a.Candidates {
		a.Ticks = slices.DeleteFunc(slices.Clone(ticks), func(v float64) bool { return v < a.Lo || v > a.Hi })
		if a.fits() {
			return a
		}
	}
	a.Ticks = a.Ticks[:min(len(a.Ticks), 1)]
	return a
}

// fits requires distinct labels at least six units apart.
func (a Axis) fits() bool {
	end, last := math.Inf(-1), ""
	for _, v := range a.Ticks {
		label := a.Label(v)
		half := float64(tickFont.Width(label)) / 2
		if a.To < a.From { // vertical
			half = float64(tickFont.Size) / 2
		}
		at := math.Abs(a.At(v) - a.From)
		// Neighbours may differ only in a digit that is not shown.
		if at-half <= end+6 || label == last {
			return false
		}
		end, last = at+half, label
	}
	return len(a.Ticks) > 0 && len(a.Ticks) <= maxTicks
}

// LinearAxis returns an axis from zero, so that lengths are proportional to values, to the first tick at or above top.
func LinearAxis(top float64) Axis {
	if top <= 0 {
		top = 1
	}
	for _, ticks := range Steps(0, top) {
		step := ticks[1]
		// A top that is a tick except for rounding adds no step.
		if n := math.Ceil(top/step - 1e-9); n <= 6 {
			hi := n * step
			return Axis{Hi: hi, Label: show.Tick, Candidates: [][]float64{multiples(step, 0, hi)}}
		}
	}
	panic("a step of half of top or more is among the steps")
}

// SizeAxis returns a logarithmic axis with ticks at powers of two.
func SizeAxis(smallest, largest int64) Axis {
	// 62: a tick must fit an int64
	first, last := bits.Len64(uint64(smallest))-1, min(bits.Len64(uint64(largest-1)), 62)
	last = max(last, first+1)
	a := Axis{Lo: math.Ldexp(1, first), Hi: math.Ldexp(1, last), Log: true,
		Label: func(v float64) string { return show.Size(int64(v)) }}
	for every := 1; every <= last-first; every++ {
		var ticks []float64
		// Ldexp is exact, so a tick prints as "8 KiB".
		for e := first; e <= last; e += every {
			ticks = append(ticks, math.Ldexp(1, e))
		}
		a.Candidates = append(a.Candidates, ticks)
	}
	return a
}

// ValueAxis returns a logarithmic axis if a linear one would crowd small values. It need not start at zero: readers
// take points and not lengths from it.
func ValueAxis(lo, hi float64) Axis {
	if lo > 0 && hi/lo > 8 {
		return LogAxis(lo, hi)
	}
	// Ticks must differ within the four digits that they show.
	pad := max(0.05*(hi-lo), 0.002*max(math.Abs(lo), math.Abs(hi)), 1e-9)
	a := Axis{Lo: lo - pad, Hi: hi + pad, Label: show.Tick}
	if lo >= 0 && a.Lo < 0 {
		a.Lo = 0
	}
	a.Candidates = Steps(a.Lo, a.Hi)
	return a
}

// LogAxis returns a logarithmic axis with room at both ends.
func LogAxis(lo, hi float64) Axis {
	a := Axis{Lo: lo / 1.1, Hi: hi * 1.1, Log: true, Label: show.Tick}
	a.Candidates = LogTicks(a.Lo, a.Hi)
	return a
}

// multiples does not add steps, because sums of 0.1 drift away from the labels.
func multiples(step, lo, hi float64) []float64 {
	var ticks []float64
	// + 0 turns minus zero into 0.
	for k := math.Ceil(lo/step-1e-9) + 0; k*step <= hi*(1+1e-12) && len(ticks) < 100; k++ {
		ticks = append(ticks, k*step)
	}
	return ticks
}

// Steps returns ticks of a linear axis, from fine to coarse: multiples of each candidate's step.
func Steps(lo, hi float64) [][]float64 {
	var out [][]float64
	// From ten to a hundred ticks, to a step wider than the span.
	unit := math.Pow(10, math.Floor(math.Log10(hi-lo))-1)
	for _, m := range []float64{1, 2, 5, 10, 20, 50, 100} {
		out = append(out, multiples(m*unit, lo, hi))
	}
	return out
}

// LogTicks returns ticks from fine to coarse. Below a factor of five there may be no power of ten, so it adds regular
// steps. Every candidate contains 1, the ratio of no effect, if it is between the ends.
func LogTicks(lo, hi float64) [][]float64 {
	var out [][]float64
	if hi/lo <= 5 {
		out = Steps(lo, hi)
	}
	first, last := int(math.Floor(math.Log10(lo))), int(math.Ceil(math.Log10(hi)))
	powers := func(first, every int, factors ...float64) {
		var ticks []float64
		for e := first; e <= last; e += every {
			ticks = append(ticks, lists.Map(factors, func(f float64) float64 { return f * math.Pow10(e) })...)
		}
		out = append(out, ticks)
	}
	if hi/lo < 200 { // powers of ten are easier to read if there are three
		powers(first, 1, 1, 2, 5)
		powers(first, 1, 1, 3)
	}
	powers(first, 1, 1)
	// Exponents are multiples of a step, so that the axes of several charts agree.
	for every := 2; every <= 64; every *= 2 {
		powers(-every*(-first/every), every, 1)
	}
	return out
}
