package browsertest

import _ "embed"

// Measure is a probe that returns a Measured.
//
//go:embed measure.js
var Measure string

// Measured is the result of Measure. Clipped, Overlapping and Tiny are texts of charts that extend beyond their
// picture, cover another text, or are smaller than 9 pixels.
type Measured struct {
	Unlabelled, Unscoped       int // pictures without a title or description, table headers without a scope
	Sideways, Charts           int // pixels to scroll sideways; visible charts
	Banner, Background         string
	Clipped, Overlapping, Tiny []string
}
