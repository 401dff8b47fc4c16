package chart

import (
	"cmp"
	"fmt"
	"slices"
)

// A Series is how the line of a series looks, and its name in the legend.
type Series struct {
	Name        string
	Color, Dash int    // the style sheet has six colours and four dashes, which are used in turn
	Marker      int    // the shape at its points, so that series differ in more than colour
	Class       string // in place of colour and dash, for a line that has no markers
}

// line is the class of the line.
func (s Series) line() string {
	return cmp.Or(s.Class, fmt.Sprintf("line l%d d%d", s.Color%6, s.Dash%4))
}

// fill is the class of the markers and of the band.
func (s Series) fill() string { return fmt.Sprintf("s%d", s.Color%6) }

// Legend writes the names of series beside each other as far as there is room, each behind a piece of its line.
func (c *Canvas) Legend(all ...Series) {
	const key = 31.0 // the piece of line, and the gap to the name
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

// A Plot is the part of a chart that has two axes, with what is drawn between them.
type Plot struct {
	*Canvas
	X, Y Axis
}

// plotHeight is that of a plot without its labels.
const plotHeight = 210

// Plot draws two axes with their names and the grid.
func (c *Canvas) Plot(x, y Axis, xName, yName string) Plot {
	c.Y += LineHeight + 2
	c.Text("tick", Margin, c.Y-4, yName)
	top, right := c.Y+6, float64(c.Width-Margin)
	bottom := top + plotHeight
	// The y axis first: how wide its labels are decides where the plot begins.
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

// A Point is one of a line. It has a marker if it has a Title.
type Point struct {
	X, Y      float64 // values
	Low, High float64 // of the spread around Y
	Title     string
	Value     string
	Bytes     int64
	Faint     bool // it rests on too little to be relied on
}

// Line draws a line through points, without markers.
func (p Plot) Line(s Series, points []Point) {
	var line Line
	for _, at := range points {
		line.To(p.X.At(at.X), p.Y.At(at.Y))
	}
	p.Path(s.line(), line.String(), "")
}

// Band draws the spread of points as an area. It takes the place of whiskers where these would hide each other.
func (p Plot) Band(s Series, points []Point) {
	var band Line
	for _, at := range points {
		band.To(p.X.At(at.X), p.Y.At(at.High))
	}
	// Back along the lowest values, so that the path encloses the band.
	for _, at := range slices.Backward(points) {
		band.To(p.X.At(at.X), p.Y.At(at.Low))
	}
	p.Path("band "+s.fill(), band.String()+"z", "")
}

// Curve draws points with their markers, and a line through them. What is faint is a line of its own: a reader takes
// the end of a curve for a property of what was measured, also where it is chance.
func (p Plot) Curve(s Series, points []Point, whiskers bool) {
	for rest := points; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Faint == rest[0].Faint {
			n++
		}
		from := len(points) - len(rest)
		if rest[0].Faint {
			// It begins where the other ends, without a gap.
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
