package stats

import (
	"math"
	"slices"
)

// MedianInterval returns the interval of the median of a distribution of which values were drawn: two of the values,
// equally many places from both ends, which enclose it with at least the confidence that is asked for, whatever the
// distribution (David and Nagaraja 2003, Order Statistics, 3rd edition, section 7.1). It takes 6 values for 95 %; with
// fewer the interval has no limits.
func MedianInterval(values []float64, confidence float64) Interval {
	n := len(values)
	sorted := slices.Sorted(slices.Values(values))
	out := Interval{Low: math.Inf(-1), High: math.Inf(1)}
	// The share of draws in which at most k of n values lie below the median: of n throws of a coin.
	share, term := 0.0, math.Exp2(-float64(n))
	for k := 0; k < n/2; k++ {
		if share += term; 2*share > 1-confidence+1e-12 {
			break
		}
		out = Interval{Low: sorted[k], High: sorted[n-1-k], Confidence: 1 - 2*share}
		term *= float64(n-k) / float64(k+1)
	}
	return out
}
