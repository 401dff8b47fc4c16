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

// Limits of one call, far above any study.
const (
	// MaxBlocks limits the blocks of a contrast.
	MaxBlocks = 1000
	// MaxResamples limits Question.Resamples.
	MaxResamples = 1_000_000
)

// A Direction says which values are better. It has no default: a wrong one would reverse every verdict.
type Direction string

// Directions of a metric.
const (
	HigherIsBetter Direction = "higher"
	LowerIsBetter  Direction = "lower"
)

// A Scale is the way two levels are compared; zero means Ratio.
type Scale string

// Scales of a comparison.
const (
	// Ratio compares by B/A, on logarithms of positive values. Most figures have noise that grows with them (5 % slower
	// at 1 Gb/s and at 100), and a ratio has no unit.
	Ratio Scale = "ratio"
	// Difference compares by B-A in the metric's unit, for metrics that can be 0 or negative, such as retransmits.
	Difference Scale = "difference"
)

// ErrNotPositive is returned for Ratio if a value is not positive. The caller may retry with Difference and a margin in
// the metric's unit; adding a small number would let that number decide the result.
var ErrNotPositive = errors.New("only positive values can be compared by ratio")

var errNoValues = errors.New("no values: leave the block out, or run it again")

// A Block holds a metric's values in one block, one per run of a level.
type Block struct {
	A, B []float64
}

// A Question defines a comparison of two levels A and B.
type Question struct {
	// Direction is required.
	Direction Direction
	// Scale is Ratio unless set.
	Scale Scale
	// Margin is the largest effect that does not matter; with 0, nothing is equivalent. For Ratio it is relative (0.02
	// means 1/1.02 to 1.02), for Difference in the metric's unit.
	Margin float64
	// Confidence of the interval; 0 means DefaultConfidence. The rest is the accepted rate of false alarms.
	Confidence float64
	// Seed of the random numbers.
	Seed uint64
	// Resamples is the number of random subsets if not all are tried; 0 means DefaultResamples.
	Resamples int
}

// An Effect is the result of comparing B with A.
type Effect struct {
	Direction Direction `json:"direction"`
	Scale     Scale     `json:"scale"`
	Margin    float64   `json:"margin"`
	// Confidence is the requested confidence.
	Confidence float64 `json:"confidence"`
	// Quantile is that of a QuantileContrast, or 0.
	Quantile float64 `json:"quantile,omitempty"`
	Blocks   int     `json:"blocks"`
	// A and B are means over blocks, geometric ones for Ratio, or quantiles of all blocks merged.
	A float64 `json:"a"`
	B float64 `json:"b"`
	// Estimate is B/A or B-A, by Scale.
	Estimate float64 `json:"estimate"`
	// Interval contains the true effect with at least Confidence. With too few blocks it has no limits.
	Interval Interval `json:"interval"`
	// Inner is the interval for equivalence, with confidence 1 - 2 alpha: each limit is a separate test (Schuirmann
	// 1987, "A comparison of the two one-sided tests procedure and the power approach", J. Pharmacokinetics and
	// Biopharmaceutics 15).
	Inner Interval `json:"inner"`
	// P is the two-sided p value against no effect, not corrected for the number of comparisons.
	P float64 `json:"p"`
	// Exact reports whether P comes from all ways to flip the blocks.
	Exact bool `json:"exact"`
	// SmallestP is the smallest possible P with these blocks and resamples.
	SmallestP float64 `json:"smallest_p"`
	// Spread is the standard deviation of block differences, of natural logarithms for Ratio, as in Power.Spread.
	Spread float64 `json:"spread"`
	// Differences are the effects of the blocks, on the scale of Estimate.
	Differences []float64 `json:"differences,omitempty"`
}

// NoEffect returns the Estimate of no effect: 1 for Ratio, 0 for Difference.
func (e Effect) NoEffect() float64 {
	if e.Scale == Difference {
		return 0
	}
	return 1
}

// Bounds returns the range of effects that are equivalent to none.
func (e Effect) Bounds() Interval {
	if e.Scale == Difference {
		return Interval{Low: -e.Margin, High: e.Margin}
	}
	return Interval{Low: 1 / (1 + e.Margin), High: 1 + e.Margin}
}

// Contrast compares two levels by the differences within blocks.
//
// The estimate is the mean over blocks of d, the difference of the means of B and A in the block, of logarithms for
// Ratio.
//
// The p value is that of Fisher's randomisation test (Fisher 1935, The Design of Experiments, section 21; Ernst 2004,
// "Permutation methods: a basis for exact inference", Statistical Science 19): if the levels do not differ, each d
// could have the other sign. No form of noise is assumed. Up to 16 blocks all signs are tried. Above,
// Question.Resamples random ones are, and the p value is 2 (count+1)/(n+1) from the side with fewer (Phipson and Smyth
// 2010, "Permutation p-values should never be zero", Statistical Applications in Genetics and Molecular Biology 9).
//
// The interval contains the effects that this test does not reject. Its limits are order statistics of the means of
// subsets of blocks (Hartigan 1969, "Using subsample values as typical values", JASA 64; Efron 1982, The Jackknife, the
// Bootstrap and Other Resampling Plans, chapter 10). It keeps its promise with any number of blocks, if the differences
// are independent and symmetric about the true effect. Usual bootstrap intervals do not with few blocks;
// docs/statistics.md has the figures.
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

func (q Question) resamples() int { return cmp.Or(q.Resamples, DefaultResamples) }

func (e *Effect) setEstimate(estimate float64, r resampled) {
	alpha := 1 - e.Confidence
	e.Estimate = e.back(estimate)
	e.Interval, e.Inner = r.interval(alpha/2), r.interval(alpha)
	for _, i := range []*Interval{&e.Interval, &e.Inner} {
		i.Low, i.High = e.back(i.Low), e.back(i.High)
	}
}

func (e *Effect) back(v float64) float64 {
	if e.Scale == Difference {
		return v
	}
	return math.Exp(v)
}

// finite returns an error for results that only absurd values cause.
func (e *Effect) finite() error {
	wild := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	if slices.ContainsFunc([]float64{e.A, e.B, e.Estimate, e.Spread}, wild) || e.Scale == Ratio && e.Estimate == 0 {
		return fmt.Errorf("the values are too far apart to be compared (A %v, B %v)", e.A, e.B)
	}
	return nil
}

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

func mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum := lists.Sum(values, func(v float64) float64 { return v })
	return sum / float64(len(values))
}

// deviation divides by n-1, and is 0 for fewer than two values.
func deviation(values []float64) float64 {
	if len(values) < 2 {
		return 0
	}
	m := mean(values)
	sum := lists.Sum(values, func(v float64) float64 { return (v - m) * (v - m) })
	return math.Sqrt(sum / float64(len(values)-1))
}
