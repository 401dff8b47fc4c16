package study

import (
	"testing"

	"github.com/rackless/rackless/study/stats"
)

// The verb says in which direction a difference goes, so the numbers have no sign.
func TestSpanOfADifference(t *testing.T) {
	for _, c := range []struct {
		low, estimate, high float64
		want                string
	}{
		{-68149, -68126, -68103, "falls by 68103 to 68149 frames"},
		{11.7, 14.5, 17.3, "rises by 11.7 to 17.3 frames"},
	} {
		e := &stats.Effect{Scale: stats.Difference, Estimate: c.estimate,
			Interval: stats.Interval{Low: c.low, High: c.high, Confidence: 0.95}}
		one := &Comparison{Quantity: Quantity{Unit: "frames"}, Effect: e}
		if got := verb(one) + " by " + span(one); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
