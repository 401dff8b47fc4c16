package stats

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Defaults of Power.
const (
	DefaultAlpha = 0.05
	DefaultPower = 0.8
)

// Power asks what a study can show, before it is made.
type Power struct {
	// Spread is the standard deviation of block differences, as Effect.Spread has it.
	Spread float64
	// Scale is Ratio unless set: Spread is then on the scale of logarithms, and effects are relative.
	Scale Scale
	// Alpha is the rate of false alarms in the family; 0 means DefaultAlpha.
	Alpha float64
	// Comparisons is the size of the family, for Holm; 0 means 1. Its strictest step is reckoned
	// with, so the promise holds for each comparison, whatever becomes of the others.
	Comparisons int
	// Power is the probability with which the effect is to be found; 0 means DefaultPower.
	Power float64
	// Seed of the simulation.
	Seed uint64
}

// MinBlocks is the smallest number of blocks with which anything can be significant: of the 2^b
// ways to flip b blocks the observation and its mirror image are two, so no p value is below 2/2^b.
// At 0.05 that takes 6 blocks for one comparison, and 9 for ten of them.
func MinBlocks(alpha float64, comparisons int) int {
	if !(alpha > 0) {
		return MaxBlocks + 1 // no p value is 0
	}
	for b := 1; b < MaxBlocks; b++ {
		if math.Ldexp(2, -b) <= alpha/float64(max(1, comparisons))*(1+1e-9) {
			return b
		}
	}
	return MaxBlocks
}

// Detectable is the smallest effect that a study of so many blocks finds with the asked power: for
// Ratio relative (0.03: a ratio of 1.03 or of 1/1.03), for Difference in the metric's unit. It is
// math.Inf(1) if no effect can be shown, because there are fewer than MinBlocks or the spread is
// not known.
//
// It is that of the test that Contrast makes. Up to 12 blocks, and where the p value needed is
// among the smallest there are, 2000 studies with normal noise are simulated: for each of them the
// lower limit of the interval says how large an effect it would have needed. With more blocks the
// test is close to Student's, whose power is approximated (Abramowitz and Stegun 1964, Handbook of
// Mathematical Functions, 26.7.5 and 26.7.10). Both are rounded up by what simulation and
// approximation may be wrong. With tails heavier than normal at the same standard deviation effects
// are found more often. Above 16 blocks Question.Resamples must be at least 10 Comparisons/Alpha;
// the default is enough for 50 comparisons.
func (w Power) Detectable(blocks int) float64 {
	alpha, comparisons, power := w.defaults()
	if blocks < MinBlocks(alpha, comparisons) || blocks > MaxBlocks || !(w.Spread >= 0) || math.IsInf(w.Spread, 0) ||
		!(power < 1) {
		return math.Inf(1)
	}
	effect := w.Spread * standardEffect(blocks, alpha/float64(comparisons), power, w.Seed)
	if w.Scale == Difference {
		return effect
	}
	return math.Expm1(effect)
}

// defaults are the values to reckon with.
func (w Power) defaults() (alpha float64, comparisons int, power float64) {
	return cmp.Or(w.Alpha, DefaultAlpha), max(1, w.Comparisons), cmp.Or(w.Power, DefaultPower)
}

// How Detectable computes.
const (
	simulatedStudies = 2000
	simulatedBlocks  = 12
	// approximationError is how much the approximation for many blocks may be too small; the
	// simulations of the tests show less.
	approximationError = 1.03
)

// standardEffect is the smallest detectable effect in standard deviations of the block differences,
// at a level for a single comparison.
func standardEffect(blocks int, alpha, power float64, seed uint64) float64 {
	// k is how many subsets' means may lie on the wrong side, as in resampled.interval.
	k := int(math.Ldexp(alpha/2, min(blocks, 62)) + 1e-9)
	if blocks <= simulatedBlocks || blocks <= exactBlocks && k < 50 {
		return simulatedEffect(blocks, k, power, seed)
	}
	freedom := float64(blocks - 1)
	t := studentQuantile(1-alpha/2, freedom)
	noncentral := t*(1-1/(4*freedom)) + normalQuantile(power)*math.Sqrt(1+t*t/(2*freedom))
	return approximationError * noncentral / math.Sqrt(float64(blocks))
}

// simulatedEffect finds by simulation the effect that is significant in a share of all studies.
func simulatedEffect(blocks, k int, power float64, seed uint64) float64 {
	rng := newRand(seed)
	d := make([]float64, blocks)
	var sums, means []float64
	// From 14 blocks on fewer, for the sake of time; the effect is then rounded up by more.
	needed := make([]float64, min(simulatedStudies, 1<<24>>blocks))
	// Each study of pure noise says how large an effect would have had to be in it to be found. The quantile of these
	// is the effect that most studies find.
	for i := range needed {
		for j := range d {
			d[j] = rng.NormFloat64()
		}
		sums, means = subsetSums(sums, d), means[:0]
		for subset, sum := range sums[1:] {
			means = append(means, sum/float64(bits.OnesCount(uint(subset+1))))
		}
		// Noise plus an effect is significant if its k-th smallest subset mean is above 0.
		needed[i] = -kthSmallest(means, k-1)
	}
	slices.Sort(needed)
	// Two standard errors more than the share, so that the promise is kept in spite of the simulation's own noise.
	n := float64(len(needed))
	rank := int(math.Ceil(n*power + 2*math.Sqrt(n*power*(1-power))))
	return needed[min(rank, len(needed))-1]
}

// normalQuantile of the standard normal distribution.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// studentQuantile of Student's t, by Abramowitz and Stegun 26.7.5; right to 0.1 % for p up to
// 0.9995 from 12 degrees of freedom on.
func studentQuantile(p, freedom float64) float64 {
	z := normalQuantile(p)
	z2 := z * z
	g1 := z * (z2 + 1) / 4
	g2 := z * ((5*z2+16)*z2 + 3) / 96
	g3 := z * (((3*z2+19)*z2+17)*z2 - 15) / 384
	g4 := z * ((((79*z2+776)*z2+1482)*z2-1920)*z2 - 945) / 92160
	return z + (g1+(g2+(g3+g4/freedom)/freedom)/freedom)/freedom
}
