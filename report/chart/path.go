package chart

import (
	"fmt"
	"strings"
)

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
	verb := "L"
	if len(*l) == 0 {
		verb = "M"
	}
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
