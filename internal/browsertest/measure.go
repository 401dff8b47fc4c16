package browsertest

import _ "embed"

// Measure is a probe that returns a Measured.
//
//go:embed measure.js
var Measure string

// Measured is the result of Measure. Clipped, Overlapping and Tiny are texts of charts beyond their picture, over
// another text, or smaller than 9 pixels.
type Measured struct {
	Unlabelled, Unscoped       int
	Sideways, Charts           int
	Banner, Background         string
	Clipped, Overlapping, Tiny []string
}
