package stats

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// Defaults of a Question.
const (
	DefaultConfidence = 0.95
	DefaultResamples  = 10_000
)

// Limits of what is computed in one call, far above any study.
const (
	// MaxBlocks bounds the blocks of a contrast.
	MaxBlocks = 1000
	// MaxResamples bounds Question.Resamples.
	MaxResamples = 1_000_000
)

// A Direction says which values of a metric are the good ones. It has no default: a latency taken
// for a bandwidth would turn every verdict around.
type Direction string

// The directions.
const (
	HigherIsBetter Direction = "higher"
	LowerIsBetter  Direction = "lower"
)

// A Scale says how two levels are compared. The zero value means Ratio.
type Scale string

// The scales.
const (
	// Ratio compares by B/A, on logarithms. Most figures of a machine are positive and their noise
	// grows with them (a host that is 5 % slower is so at 1 Gb/s and at 100), their logarithms are
	// closer to symmetric, and a ratio needs no unit: 1.03 means the same for all metrics. All
	// values must be positive.
	Ratio Scale = "ratio"
	// Difference compares by B-A in the metric's unit. It is for metrics that can be 0 or negative,
	// such as retransmits.
	Difference Scale = "difference"
)

// ErrNotPositive is why values cannot be compared by Ratio: there is no logarithm of 0. The caller
// may ask again by Difference, with a margin in the metric's unit. Adding a small number instead
// would let that number decide the result.
var ErrNotPositive = errors.New("only positive values can be compared by ratio")

// errNoValues is why a block cannot be compared.
var errNoValues = errors.New("no values: leave the block out, or run it again")

// A Block holds the values of one metric in one block: one for each run of a level.
type Block struct {
	A, B []float64
}

// A Question is what is asked about two levels A and B.
type Question struct {
	// Direction is required.
	Direction Direction
	// Scale is Ratio unless set.
	Scale Scale
	// Margin is the largest effect that does not matter. For Ratio it is relative: 0.02 takes all
	// ratios from 1/1.02 to 1.02 for equivalent (the same whether A is compared with B or B with
	// A). For Difference it is in the metric's unit. With 0 nothing is equivalent.
	Margin float64
	// Confidence of the interval; 0 means DefaultConfidence. What is left to 1 is the rate of false
	// alarms that is accepted.
	Confidence float64
	// Seed of the random numbers.
	Seed uint64
	// Resamples is how many are drawn where there are too many to go through all of them; 0 means DefaultResamples.
	Resamples int
}

// An Effect is what the blocks say about B compared with A.
type Effect struct {
	Direction Direction `json:"direction"`
	Scale     Scale     `json:"scale"`
	Margin    float64   `json:"margin"`
	// Confidence that was asked for.
	Confidence float64 `json:"confidence"`
	// Quantile is that of a QuantileContrast (0.99), else 0.
	Quantile float64 `json:"quantile,omitempty"`
	Blocks   int     `json:"blocks"`
	// A and B are the levels themselves: means over blocks, for Ratio geometric ones; of a
	// QuantileContrast the quantiles of all blocks merged.
	A float64 `json:"a"`
	B float64 `json:"b"`
	// Estimate is B/A or B-A, by Scale.
	Estimate float64 `json:"estimate"`
	// Interval holds the true effect with at least Confidence. It has no limits where there are too few blocks for any.
	Interval Interval `json:"interval"`
	// Inner is the interval for equivalence: with alpha = 1 - Confidence it has confidence 1 - 2
	// alpha, since each of its limits is a test of its own (Schuirmann 1987, "A comparison of the
	// two one-sided tests procedure and the power approach", J. Pharmacokinetics and
	// Biopharmaceutics 15).
	Inner Interval `json:"inner"`
	// P is the two-sided p value against no effect, before any correction for the number of comparisons.
	P float64 `json:"p"`
	// Exact is true if P rests on all ways to flip the blocks, and not on a sample of them.
	Exact bool `json:"exact"`
	// SmallestP is the smallest value that P could have had with so many blocks and resamples.
	SmallestP float64 `json:"smallest_p"`
	// Spread is the standard deviation of the block differences, for Ratio on the scale of natural
	// logarithms: the noise that Power asks for.
	Spread float64 `json:"spread"`
	// Differences are the effects block by block, on the scale of Estimate.
	Differences []float64 `json:"differences,omitempty"`
}

// NoEffect is the value of Estimate that stands for no effect: 1 for Ratio, 0 for Difference.
func (e Effect) NoEffect() float64 {
	if e.Scale == Difference {
		return 0
	}
	return 1
}

// Bounds are the effects between which all are equivalent.
func (e Effect) Bounds() Interval {
	if e.Scale == Difference {
		return Interval{Low: -e.Margin, High: e.Margin}
	}
	return Interval{Low: 1 / (1 + e.Margin), High: 1 + e.Margin}
}

// Contrast compares two levels by the differences within blocks.
//
// The estimate is the mean over blocks of d, the difference between the means of B and of A in the
// block; for Ratio of logarithms, so that the estimate is the ratio of geometric means.
//
// The p value is that of Fisher's randomisation test (Fisher 1935, The Design of Experiments,
// section 21; Ernst 2004, "Permutation methods: a basis for exact inference", Statistical Science
// 19): if the levels do not differ, each d might as well have had the other sign, so the mean of d
// is compared with those of all 2^b ways to choose signs. No form of noise is assumed. Up to 16
// blocks all ways are tried; above, Question.Resamples random ones, counted as 2 (count+1)/(n+1)
// from the side where fewer lie (Phipson and Smyth 2010, "Permutation p-values should never be
// zero", Statistical Applications in Genetics and Molecular Biology 9).
//
// The interval holds the effects that this test does not reject. Its limits are order statistics of
// the means of all subsets of blocks, or of random ones (Hartigan 1969, "Using subsample values as
// typical values", JASA 64; Efron 1982, The Jackknife, the Bootstrap and Other Resampling Plans,
// chapter 10), so the interval and the p value never contradict each other. It holds the true
// effect as often as promised with any number of blocks, if the differences are independent and
// symmetric about it, however heavy their tails. Usual bootstrap intervals hold it too rarely with
// few blocks; docs/statistics.md has the figures.
func Contrast(blocks []Block, q Question) (Effect, error) {
	e, err := q.effect(len(blocks))
	if err != nil {
		return Effect{}, err
	}
	as, bs, d, err := levels(blocks, e.Scale)
	if err != nil {
		return Effect{}, err
	}
	e.A, e.B = e.back(mean(as)), e.back(mean(bs))
	e.Spread = deviation(d)
	r := resample(d, q.resamples(), q.Seed)
	e.P, e.Exact, e.SmallestP = r.p, r.exact, r.smallestP
	e.setEstimate(mean(d), r)
	e.Differences = lists.Map(d, e.back)
	return e, e.finite()
}

// effect checks the question and starts its answer.
func (q Question) effect(blocks int) (Effect, error) {
	e := Effect{Direction: q.Direction, Scale: cmp.Or(q.Scale, Ratio), Margin: q.Margin,
		Confidence: cmp.Or(q.Confidence, DefaultConfidence), Blocks: blocks}
	switch {
	case q.Direction != HigherIsBetter && q.Direction != LowerIsBetter:
		return e, fmt.Errorf("direction %q: say %q or %q", q.Direction, HigherIsBetter, LowerIsBetter)
	case e.Scale != Ratio && e.Scale != Difference:
		return e, fmt.Errorf("scale %q: say %q or %q", q.Scale, Ratio, Difference)
	case !(q.Margin >= 0) || math.IsInf(q.Margin, 0):
		return e, fmt.Errorf("margin %v: must be 0 or more", q.Margin)
	case !(e.Confidence >= 0.5 && e.Confidence < 1):
		return e, fmt.Errorf("confidence %v: must be at least 0.5 and below 1", q.Confidence)
	case q.Resamples < 0 || q.Resamples > MaxResamples:
		return e, fmt.Errorf("resamples %d: must be 0 to %d", q.Resamples, MaxResamples)
	case blocks == 0:
		return e, errors.New("no blocks")
	case blocks > MaxBlocks:
		return e, fmt.Errorf("%d blocks: at most %d", blocks, MaxBlocks)
	}
	return e, nil
}

// resamples is the number of resamples with its default.
func (q Question) resamples() int { return cmp.Or(q.Resamples, DefaultResamples) }

// setEstimate fills in the estimate and the intervals, which are given on the scale of the arithmetic.
func (e *Effect) setEstimate(estimate float64, r resampled) {
	alpha := 1 - e.Confidence
	e.Estimate = e.back(estimate)
	e.Interval, e.Inner = r.interval(alpha/2), r.interval(alpha)
	for _, i := range []*Interval{&e.Interval, &e.Inner} {
		i.Low, i.High = e.back(i.Low), e.back(i.High)
	}
}

// back takes a value from the scale of the arithmetic to that of the effect.
func (e *Effect) back(v float64) float64 {
	if e.Scale == Difference {
		return v
	}
	return math.Exp(v)
}

// finite refuses results that have left the range of numbers, which only absurd values lead to.
func (e *Effect) finite() error {
	wild := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	if slices.ContainsFunc([]float64{e.A, e.B, e.Estimate, e.Spread}, wild) || e.Scale == Ratio && e.Estimate == 0 {
		return fmt.Errorf("the values are too far apart to be compared (A %v, B %v)", e.A, e.B)
	}
	return nil
}

// levels returns both levels of all blocks on the scale of the arithmetic, and their differences.
func levels(blocks []Block, scale Scale) (as, bs, d []float64, err error) {
	for i, block := range blocks {
		a, err := level(block.A, scale)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("block %d, level A: %w", i+1, err)
		}
		b, err := level(block.B, scale)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("block %d, level B: %w", i+1, err)
		}
		as, bs, d = append(as, a), append(bs, b), append(d, b-a)
	}
	return as, bs, d, nil
}

// level returns the mean of the values on the scale of the arithmetic: of their logarithms for Ratio.
func level(values []float64, scale Scale) (float64, error) {
	if len(values) == 0 {
		return 0, errNoValues
	}
	var sum float64
	for _, v := range values {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
			return 0, fmt.Errorf("value %v is not a number to compute with", v)
		case scale == Difference:
			sum += v
		case v <= 0:
			return 0, fmt.Errorf("value %v: %w", v, ErrNotPositive)
		default:
			sum += math.Log(v)
		}
	}
	return sum / float64(len(values)), nil
}

// mean of the values; 0 of none.
func mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum := lists.Sum(values, func(v float64) float64 { return v })
	return sum / float64(len(values))
}

// deviation is the standard deviation, with n-1; 0 of fewer than two values.
func deviation(values []float64) float64 {
	if len(values) < 2 {
		return 0
	}
	m := mean(values)
	sum := lists.Sum(values, func(v float64) float64 { return (v - m) * (v - m) })
	return math.Sqrt(sum / float64(len(values)-1))
}
