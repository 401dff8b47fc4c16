package show

import "math"

// Landmarks are the quantiles that have a mark and a line of the grid on an axis of probability.
var Landmarks = []float64{0.5, 0.9, 0.99, 0.999, 0.9999}

// Depth is the place of a quantile on an axis that widens the slowest: as far apart as 90 % and 99
// % are 99 % and 99.9 %.
func Depth(quantile float64) float64 { return -math.Log10(1 - min(quantile, 1-1e-12)) }

// IsLandmark reports whether a quantile is one of the Landmarks, but for rounding.
func IsLandmark(quantile float64) bool {
	for _, q := range Landmarks {
		if math.Abs(q-quantile) < 1e-9 {
			return true
		}
	}
	return false
}
