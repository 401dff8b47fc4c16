package show

import (
	"math"
	"slices"
)

// landmarks are the quantiles that have a mark and a line of the grid on an axis of probability.
var landmarks = []float64{0.5, 0.9, 0.99, 0.999, 0.9999}

// Depth is the place of a quantile on an axis that widens the slowest: as far apart as 90 % and 99
// % are 99 % and 99.9 %.
func Depth(quantile float64) float64 { return -math.Log10(1 - min(quantile, 1-1e-12)) }

// DepthAxis is an axis of depths to that of the deepest quantile, with ticks at the landmarks up to there.
func DepthAxis(deepest float64) Axis {
	a := Axis{Hi: Depth(deepest)}
	for _, q := range landmarks {
		if q <= deepest {
			a.Ticks = append(a.Ticks, Depth(q))
		}
	}
	return a
}

// DepthTick prints a depth as the share that it stands for: "99.9%".
func DepthTick(depth float64) string { return Figure(100-100*math.Pow(10, -depth)) + "%" }

// IsLandmark reports whether a quantile is one of the landmarks, but for rounding.
func IsLandmark(quantile float64) bool {
	return slices.ContainsFunc(landmarks, func(q float64) bool { return math.Abs(q-quantile) < 1e-9 })
}
