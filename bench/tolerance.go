package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseTolerances reads tolerances for people: "10%" or "0.1" of all metrics, "latency_p99=20%" of one
// on its bad side, and "bw_average=2%:5%" of one on both sides, below and above.
func ParseTolerances(words []string) (all Tolerance, byMetric map[string]Tolerance, err error) {
	all.Bad, byMetric = DefaultTolerance, map[string]Tolerance{}
	for _, word := range words {
		// One flag for both, given as often as needed: the last word on a metric counts.
		metric, shares, own := strings.Cut(word, "=")
		if !own {
			if all.Bad, err = parseShare(word); err != nil {
				return all, nil, err
			}
			continue
		}
		var t Tolerance
		if lower, upper, both := strings.Cut(shares, ":"); !both {
			t.Bad, err = parseShare(shares)
		} else if t.Lower, err = parseShare(lower); err == nil {
			t.Upper, err = parseShare(upper)
		}
		if err != nil {
			return all, nil, fmt.Errorf("%s: %w", metric, err)
		}
		byMetric[metric] = t
	}
	return all, byMetric, nil
}

// parseShare reads 10% or 0.1.
func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || math.IsNaN(v) || v <= 0 || v >= 1 {
		return 0, fmt.Errorf("%q: want more than 0%% and less than 100%%, as 10%% or 0.1", text)
	}
	return v, nil
}
