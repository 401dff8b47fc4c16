package chart

import (
	_ "embed" // for the template
	"fmt"
	"math"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// Template defines "chart", which prints a Chart as a figure. Templates of pages are parsed beside it.
//
//go:embed chart.html
var Template string

// A Chart is a picture ready to print: paths and texts, from the back to the front.
type Chart struct {
	ID, Title, Desc string // Desc is for those who cannot see the picture
	Class           string // wide or narrow where there is one for each kind of screen
	Emulated        bool   // its title says so
	Width, Height   int
	Shapes          []Shape
}

// A Shape is a path, or a text where D is empty.
type Shape struct {
	Class, D   string
	X, Y, Text string
	Title      string // what browsers show on pointing at it
	Value      string // the figure that it stands for, exactly, for programs; empty: none
	Bytes      int64  // message size of that figure; 0: none
}

// Geometry, in units of the viewBox. A chart 400 wide is as wide as a phone: text of size 12 stays readable there, and
// a laptop shows two or three charts in a row.
const (
	Width      = 400
	Margin     = 8  // around the texts
	Inset      = 22 // of the plot: half of the longest label of a tick
	LineHeight = 16
)

// Fonts of the charts, as the style sheet has them.
var (
	TextFont = show.Font{Size: 12}
	tickFont = show.Font{Size: 11}
)

// A Canvas is a chart that grows downwards.
type Canvas struct {
	Chart
	Y float64 // where the next thing goes
}

// New returns an empty chart.
func New(id, title string, width int) *Canvas {
	return &Canvas{Chart: Chart{ID: id, Title: title, Width: width}, Y: 4}
}

// Path adds a path with a class of the style sheet.
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

// Text adds a line of text. It is not cut: the caller knows the room.
func (c *Canvas) Text(class string, x, y float64, s string) {
	c.Shapes = append(c.Shapes, Shape{Class: class, X: Px(x), Y: Px(y), Text: s})
}

// Paragraph writes text over the width of the chart in as many lines as it takes. SVG does not fold text: the lines
// are broken here, by widths that the font knows.
func (c *Canvas) Paragraph(class string, f show.Font, s string) {
	for _, line := range f.Lines(s, c.Width-2*Margin) {
		c.Y += LineHeight
		c.Text(class, Margin, c.Y-4, line)
	}
}

// Note is a Paragraph of small text.
func (c *Canvas) Note(s string) { c.Paragraph("tick", tickFont, s) }

// Done is the chart, as high as what was drawn.
func (c *Canvas) Done() Chart {
	c.Height = int(math.Ceil(c.Y)) + 4
	return c.Chart
}

// XAxis draws the labels of a horizontal axis below the plot; grid lines are part of the strips above.
func (c *Canvas) XAxis(a Axis) {
	c.Y += 14
	for _, v := range a.Ticks {
		half := float64(tickFont.Width(a.Label(v))) / 2
		at := min(max(a.At(v), half+2), float64(c.Width)-half-2) // whole, if not quite below its line
		c.Text("tick m", at, c.Y-2, a.Label(v))
	}
}

// AxisName writes what an axis is of at the right end of a line of its own.
func (c *Canvas) AxisName(s string) {
	c.Y += LineHeight
	c.Text("tick r", float64(c.Width-Margin), c.Y-4, tickFont.Fit(s, c.Width-2*Margin))
}

// Strip draws the ground of one row of a plot, with the grid.
func (c *Canvas) Strip(a Axis, height float64) (top, middle float64) {
	top = c.Y + 2
	// 14 beyond both ends: the sign of an estimate at the end of the axis is a disc of radius 7, and stays on the
	// ground.
	c.Rect("ground", a.From-14, top, a.To-a.From+28, height, "")
	for _, v := range a.Ticks {
		c.Path("grid", Path("M%s %sv%s", a.At(v), top, height), "")
	}
	c.Y = top + height + 4
	return top, top + height/2
}

// LabelWidth is how wide the label of a tick is, or any text of its size.
func LabelWidth(s string) float64 { return float64(tickFont.Width(s)) }

// Px prints a coordinate. A tenth of a unit is finer than any screen here.
func Px(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// Path prints the path of an SVG element: each %s of the format is a coordinate.
func Path(format string, coordinates ...float64) string {
	px := make([]any, len(coordinates))
	for i, v := range coordinates {
		px[i] = Px(v)
	}
	return fmt.Sprintf(format, px...)
}

// A Line is the path of a line through points.
type Line []byte

// To draws the line on to a point; the first one is where it starts.
func (l *Line) To(x, y float64) {
	verb := words.Either(len(*l) == 0, "M", "L")
	*l = append(*l, verb+Path("%s %s", x, y)...)
}

func (l Line) String() string { return string(l) }

// Circle is the path of a disc.
func Circle(x, y, r float64) string {
	return Path("M%s %sa%s %s 0 1 0 %s 0a%s %s 0 1 0 -%s 0z", x-r, y, r, r, 2*r, r, r, 2*r)
}

// Marker is the path of the marker of a series: shapes tell series apart where colours do not.
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
