package stats

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// An Interval from Low to High. For a difference, -Inf and +Inf stand for no limit; for a ratio, 0 and +Inf.
type Interval struct {
	Low, High float64
	// Confidence that the interval has: at least what was asked for, since with few blocks there
	// are only some steps to choose from. 0 where there are too few blocks for limits, and for
	// intervals that are no estimates.
	Confidence float64
}

// Bounded reports whether the interval has limits: whether there were blocks enough for it.
func (i Interval) Bounded() bool { return !math.IsInf(i.Low, -1) && !math.IsInf(i.High, 1) }

// Contains reports whether the value lies in the interval; its limits do.
func (i Interval) Contains(v float64) bool { return i.Low <= v && v <= i.High }

// Within reports whether the interval lies in another one.
func (i Interval) Within(o Interval) bool { return o.Low <= i.Low && i.High <= o.High }

// intervalJSON has null where there is no limit: JSON has no infinity.
type intervalJSON struct {
	Low        *float64 `json:"low"`
	High       *float64 `json:"high"`
	Confidence float64  `json:"confidence"`
}

// MarshalJSON writes null for a limit that does not exist.
func (i Interval) MarshalJSON() ([]byte, error) {
	out := intervalJSON{Confidence: i.Confidence}
	if i.Bounded() {
		out.Low, out.High = &i.Low, &i.High
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads null as no limit: -Inf and +Inf, for a ratio too.
func (i *Interval) UnmarshalJSON(data []byte) error {
	var in intervalJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("interval: %w", err)
	}
	*i = Interval{Low: math.Inf(-1), High: math.Inf(1), Confidence: in.Confidence}
	if in.Low != nil {
		i.Low = *in.Low
	}
	if in.High != nil {
		i.High = *in.High
	}
	return nil
}

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
