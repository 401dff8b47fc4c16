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

// Power computes the effects that a study can show, before it is made.
type Power struct {
	// Spread is as in Effect.Spread.
	Spread float64
	// Scale is Ratio by default: then Spread is of logarithms, and effects are relative.
	Scale Scale
	// Alpha is the rate of false alarms in the family; 0 means DefaultAlpha.
	Alpha float64
	// Comparisons is the size of the family, for Holm; 0 means 1. The strictest step is assumed.
	Comparisons int
	// Power is the probability of finding the effect; 0 means DefaultPower.
	Power float64
	// Seed of the simulation.
	Seed uint64
}

// MinBlocks returns the fewest blocks for a significant result. Two of the 2^b ways to flip b blocks are the
// observation and its mirror image, so p is at least 2/2^b: at 0.05, one comparison needs 6 blocks, ten need 9.
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

// Detectable returns the smallest effect that a study finds with the requested power: relative for Ratio (0.03 is 1.03
// or 1/1.03), in the metric's unit for Difference. It is math.Inf(1) below MinBlocks or with unknown spread.
//
// Up to 12 blocks, if the required p value is among the smallest possible, it simulates 2000 studies with normal noise.
// With more blocks the test of Contrast is close to Student's (Abramowitz and Stegun 1964, Handbook of Mathematical
// Functions, 26.7.5 and 26.7.10). Results are rounded up by their possible error. Heavier tails make effects easier to
// find. Above 16 blocks, Question.Resamples must be at least 10 Comparisons/Alpha; the default suffices for 50.
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

func (w Power) defaults() (alpha float64, comparisons int, power float64) {
	return cmp.Or(w.Alpha, DefaultAlpha), max(1, w.Comparisons), cmp.Or(w.Power, DefaultPower)
}

// Parameters of Detectable.
const (
	simulatedStudies = 2000
	simulatedBlocks  = 12
	// approximationError is for many blocks; the simulations of the tests show less.
	approximationError = 1.03
)

// standardEffect is in standard deviations of the block differences, for a single comparison.
func standardEffect(blocks int, alpha, power float64, seed uint64) float64 {
	// k subset means may lie on the wrong side, as in resampled.interval.
	k := int(math.Ldexp(alpha/2, min(blocks, 62)) + 1e-9)
	if blocks <= simulatedBlocks || blocks <= exactBlocks && k < 50 {
		return simulatedEffect(blocks, k, power, seed)
	}
	freedom := float64(blocks - 1)
	t := studentQuantile(1-alpha/2, freedom)
	noncentral := t*(1-1/(4*freedom)) + normalQuantile(power)*math.Sqrt(1+t*t/(2*freedom))
	return approximationError * noncentral / math.Sqrt(float64(blocks))
}

// simulatedEffect is significant in a share power of studies.
func simulatedEffect(blocks, k int, power float64, seed uint64) float64 {
	rng := newRand(seed)
	d := make([]float64, blocks)
	var sums, means []float64
	// Fewer from 14 blocks on; the effect is then rounded up by more.
	needed := make([]float64, min(simulatedStudies, 1<<24>>blocks))
	// The effect that would have made pure noise significant, by study.
	for i := range needed {
		for j := range d {
			d[j] = rng.NormFloat64()
		}
		sums, means = subsetSums(sums, d), means[:0]
		for subset, sum := range sums[1:] {
			means = append(means, sum/float64(bits.OnesCount(uint(subset+1))))
		}
		// It is significant if the k-th smallest subset mean is above 0.
		needed[i] = -kthSmallest(means, k-1)
	}
	slices.Sort(needed)
	// Two standard errors allow for the noise of the simulation.
	n := float64(len(needed))
	rank := int(math.Ceil(n*power + 2*math.Sqrt(n*power*(1-power))))
	return needed[min(rank, len(needed))-1]
}

func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// studentQuantile is by Abramowitz and Stegun 26.7.5, accurate to 0.1 % for p up to 0.9995 and at least 12 degrees of
// freedom.
func studentQuantile(p, freedom float64) float64 {
	z := normalQuantile(p)
	z2 := z * z
	g1 := z * (z2 + 1) / 4
	g2 := z * ((5*z2+16)*z2 + 3) / 96
	g3 := z * (((3*z2+19)*z2+17)*z2 - 15) / 384
	g4 := z * ((((79*z2+776)*z2+1482)*z2-1920)*z2 - 945) / 92160
	return z + (g1+(g2+(g3+g4/freedom)/freedom)/freedom)/freedom
}
