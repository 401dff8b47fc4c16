package browsertest

import _ "embed"

// Measure is an expression for a probe: an object of what a reader has in front of them on any page, as Measured.
//
//go:embed measure.js
var Measure string

// Measured is what Measure returns. Clipped, Overlapping and Tiny are texts of charts: outside of their picture, over
// another text, and in less than 9 pixels.
type Measured struct {
	Unlabelled, Unscoped       int // pictures without a title or description, heads of tables without a scope
	Sideways, Charts           int // pixels to scroll sideways; charts that are shown
	Banner, Background         string
	Clipped, Overlapping, Tiny []string
}
