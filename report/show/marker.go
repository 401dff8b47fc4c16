package show

import "fmt"

// Marker draws the marker of a series: shapes tell series apart where colours do not.
func Marker(shape int, x, y float64) string {
	switch shape % 4 {
	case 1: // square
		return fmt.Sprintf("M%s %sh6v6h-6z", Px(x-3), Px(y-3))
	case 2: // triangle
		return fmt.Sprintf("M%s %sl4 7h-8z", Px(x), Px(y-4))
	case 3: // diamond
		return fmt.Sprintf("M%s %sl4 4l-4 4l-4 -4z", Px(x), Px(y-4))
	}
	return fmt.Sprintf("M%s %sa3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0z", Px(x-3.2), Px(y)) // circle
}

// Px prints a coordinate. A tenth of a unit is finer than any screen here.
func Px(v float64) string { return trimZeros(fmt.Sprintf("%.1f", v)) }
