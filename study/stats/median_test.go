package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestIntervalsOfMedians(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values     []float64
		confidence float64
		low, high  float64
		has        float64
	}{
		{[]float64{1, 2, 3, 4, 5}, 0.95, math.Inf(-1), math.Inf(1), 0},
		{[]float64{6, 5, 4, 3, 2, 1}, 0.95, 1, 6, 1 - 2.0/64},
		{[]float64{1, 2, 3, 4, 5}, 0.9, 1, 5, 1 - 2.0/32},
		// 2 (1 + 12 + 66) / 4096 = 3.9 %
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 0.95, 3, 10, 1 - 2*79.0/4096},
		{nil, 0.95, math.Inf(-1), math.Inf(1), 0},
	} {
		got := MedianInterval(c.values, c.confidence)
		if got.Low != c.low || got.High != c.high || math.Abs(got.Confidence-c.has) > 1e-9 {
			t.Errorf("%v: %+v", c.values, got)
		}
	}
}

// The promise holds even for a very asymmetric distribution.
func TestMedianIntervalsKeepTheirPromise(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	const draws = 4000
	for _, n := range []int{6, 10, 17} {
		held := 0
		values := make([]float64, n)
		for range draws {
			for i := range values {
				values[i] = rng.ExpFloat64()
			}
			if MedianInterval(values, 0.95).Contains(math.Ln2) {
				held++
			}
		}
		if share := float64(held) / draws; share < 0.94 {
			t.Errorf("%d values: %.3f", n, share)
		}
	}
}
