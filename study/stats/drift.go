package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

type trend struct {
	// slope is the median change per value, over all pairs (Sen 1968, "Estimates of the regression coefficient based on
	// Kendall's tau", JASA 63).
	slope float64
	// p is the two-sided p value of the Mann-Kendall test (Mann 1945, "Nonparametric tests against trend", Econometrica
	// 13).
	p float64
	// lag1 correlates each value with its predecessor.
	lag1 float64
	// lag1P is by random orders, and one-sided: only similar neighbours make intervals too narrow.
	lag1P float64
}

// driftAlpha gives about 2 of 100 studies without drift a remark, by two tests.
const driftAlpha = 0.01

// Drifting returns remarks if an effect changed over the blocks, which must be in order of time. Changes that affect
// both levels of a block alike cancel out.
func Drifting(blocks []Block, q Question) ([]string, error) {
	e, err := q.effect(len(blocks))
	if err != nil {
		return nil, err
	}
	_, _, differences, err := levels(blocks, e.Scale)
	if err != nil {
		return nil, err
	}
	switch t := trendOf(differences, q.Seed); {
	case t.p <= driftAlpha:
		return []string{fmt.Sprintf("the effect itself changed by %s from the first block to the last (Mann-Kendall "+
			"p = %.2g): the estimate is an average over the study",
			change(t.slope*float64(len(blocks)-1), e.Scale), t.p)}, nil
	case t.lag1P <= driftAlpha: // neighbours are similar in every trend, too
		return []string{fmt.Sprintf("the effects of neighbouring blocks are alike (correlation %.2f, p = %.2g): the "+
			"interval may be too narrow", t.lag1, t.lag1P)}, nil
	}
	return nil, nil
}

// change takes the internal scale.
func change(v float64, scale Scale) string {
	if scale == Difference {
		return fmt.Sprintf("%+.3g", v)
	}
	return fmt.Sprintf("%+.1f %%", 100*math.Expm1(v))
}

func trendOf(values []float64, seed uint64) trend {
	n := len(values)
	t := trend{p: 1, lag1P: 1}
	if n < 3 {
		return t
	}
	var slopes []float64
	s := 0 // rising pairs minus falling pairs
	for i := range n {
		for j := i + 1; j < n; j++ {
			slopes = append(slopes, (values[j]-values[i])/float64(j-i))
			s += cmp.Compare(values[j], values[i])
		}
	}
	t.slope, t.p = Median(slopes), kendallP(s, values)
	t.lag1, t.lag1P = lag1(values, seed)
	return t
}

// kendallP is the two-sided p value of Kendall's S, exact without ties and up to 60 values, from the orders with as
// many inversions. Otherwise it is the normal approximation with corrections for ties and continuity (Kendall 1975,
// Rank Correlation Methods, 4th edition, chapter 4).
func kendallP(s int, values []float64) float64 {
	n := len(values)
	sorted := slices.Sorted(slices.Values(values))
	variance := float64(n * (n - 1) * (2*n + 5))
	ties := false
	for i := 0; i < n; {
		j := i
		for j < n && sorted[j] == sorted[i] {
			j++
		}
		if t := j - i; t > 1 {
			ties = true
			variance -= float64(t * (t - 1) * (2*t + 5))
		}
		i = j
	}
	s = max(s, -s)
	if variance <= 0 || s == 0 {
		return 1
	}
	if ties || n > 60 {
		z := float64(s-1) / math.Sqrt(variance/18)
		return math.Erfc(z / math.Sqrt2)
	}
	// share[k] of the orders of m values have k inversions; each value adds 0 to m.
	share := []float64{1}
	for m := 1; m < n; m++ {
		next := make([]float64, len(share)+m)
		for k, v := range share {
			for add := range m + 1 {
				next[k+add] += v / float64(m+1)
			}
		}
		share = next
	}
	inversions := (n*(n-1)/2 - s) / 2 // of an order with S
	p := 0.0
	p += lists.Sum(share[:inversions+1], func(v float64) float64 { return v })
	return min(1, 2*p)
}

// lag1 returns the share of random orders with at least the correlation.
func lag1(values []float64, seed uint64) (r, p float64) {
	centred := slices.Clone(values)
	m := mean(values)
	var squares float64
	for i := range centred {
		centred[i] -= m
		squares += centred[i] * centred[i]
	}
	if squares == 0 {
		return 0, 1
	}
	products := func() float64 {
		var sum float64
		for i := 1; i < len(centred); i++ {
			sum += centred[i] * centred[i-1]
		}
		return sum
	}
	// Permutations assume no distribution, and allow for the bias of few blocks.
	observed := products()
	rng := newRand(seed)
	const orders = 1999
	count := 0
	for range orders {
		rng.Shuffle(len(centred), func(i, j int) { centred[i], centred[j] = centred[j], centred[i] })
		if products() >= observed-1e-12*squares {
			count++
		}
	}
	return observed / squares, float64(count+1) / (orders + 1)
}

// Median returns the median without reordering values, or 0 if there are none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
