package stats

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// A HistogramBlock holds the latencies of one block: a histogram for each run of a level.
type HistogramBlock struct {
	A, B []*Histogram
}

// QuantileContrast compares a quantile (0.99) of two levels. The levels' quantiles are those of the
// histograms of all blocks merged, never averages of the blocks' own.
//
// It rests on the same subsets of blocks as Contrast. The p value swaps A and B in the blocks of a
// subset, merges, and compares the quantiles again: a randomisation test, exact whatever the noise.
// The interval takes the quantiles of subsets of blocks, merged. A quantile is not a mean, so this
// holds approximately only, by simulation on the safe side (docs/statistics.md).
//
// A quantile that a level's values do not support (Supported) is refused.
func QuantileContrast(blocks []HistogramBlock, quantile float64, q Question) (Effect, error) {
	e, err := q.effect(len(blocks))
	if err != nil {
		return Effect{}, err
	}
	e.Quantile = quantile
	c, err := newMerger(blocks, quantile)
	if err != nil {
		return Effect{}, err
	}
	return c.contrast(e, q)
}

// contrast answers the question; e has what effect of the question has filled in.
func (c *merger) contrast(e Effect, q Question) (Effect, error) {
	e.Quantile = c.quantile
	e.A, e.B = c.value(c.quantileOf(c.a, nil)), c.value(c.quantileOf(c.b, nil))
	c.ratio = e.Scale == Ratio
	if c.ratio && (e.A <= 0 || e.B <= 0) {
		return Effect{}, fmt.Errorf("quantile %v: %w", c.quantile, ErrNotPositive)
	}
	estimate := c.effect(c.a, c.b, nil)
	d := make([]float64, len(c.a))
	for i := range d {
		d[i] = c.effect(c.a, c.b, c.all[i:i+1])
	}
	e.Spread = deviation(d)
	r := c.resample(estimate, q.resamples(), q.Seed)
	e.P, e.Exact, e.SmallestP = r.p, r.exact, r.smallestP
	e.setEstimate(estimate, r)
	e.Differences = lists.Map(d, e.back)
	return e, e.finite()
}

// resample does for a quantile what the function of this name does for a mean.
func (c *merger) resample(estimate float64, resamples int, seed uint64) resampled {
	size := len(c.a)
	r := resampled{exact: size <= exactBlocks}
	swappedA, swappedB := slices.Clone(c.a), slices.Clone(c.b)
	extreme := 0
	tolerance := 1e-12 * math.Abs(estimate)
	try := func(subset []int) {
		r.values = append(r.values, c.effect(c.a, c.b, subset))
		for _, i := range subset {
			swappedA[i], swappedB[i] = c.b[i], c.a[i]
		}
		swapped := c.effect(swappedA, swappedB, nil)
		for _, i := range subset {
			swappedA[i], swappedB[i] = c.a[i], c.b[i]
		}
		// From the side of the observation: swapping the other blocks gives the mirror image, so
		// the other side has as many.
		if estimate >= 0 && swapped >= estimate-tolerance || estimate < 0 && swapped <= estimate+tolerance {
			extreme++
		}
	}
	if r.exact {
		subset := make([]int, 0, size)
		for word := uint64(1); word < 1<<size; word++ {
			subset = subset[:0]
			for w := word; w != 0; w &= w - 1 {
				subset = append(subset, bits.TrailingZeros64(w))
			}
			try(subset)
		}
	} else {
		eachSubset(size, resamples, seed, try)
	}
	r.setP(extreme)
	return r
}

// A merger finds quantiles of many combinations of the same histograms without merging them: of
// each block and level it keeps the running counts over the buckets that any of them uses, so that
// a quantile is a binary search over sums of those.
type merger struct {
	quantile float64
	ratio    bool
	a, b     []cumulative
	// buckets are the used ones' indexes, ascending.
	buckets []int
	all     []int
}

// A cumulative has for each bucket how many values of a block lie in it or below.
type cumulative []int64

// total number of values.
func (c cumulative) total() int64 {
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1]
}

// counts are how many values lie in each bucket of a histogram.
type counts map[int]int64

// newMerger checks the blocks and sums up their histograms.
func newMerger(blocks []HistogramBlock, quantile float64) (*merger, error) {
	if !(quantile > 0 && quantile < 1) {
		return nil, fmt.Errorf("quantile %v: must be between 0 and 1", quantile)
	}
	sparse := make([][2]counts, len(blocks))
	var totals [2]int64
	for i, block := range blocks {
		for side, runs := range [2][]*Histogram{block.A, block.B} {
			sparse[i][side] = make(counts)
			for _, h := range runs {
				if h == nil {
					return nil, fmt.Errorf("block %d, level %c: a run without a histogram", i+1, 'A'+side)
				}
				// Half of what can be counted, so that both levels together can be too.
				if totals[side] > math.MaxInt64/2-h.Count() {
					return nil, fmt.Errorf("block %d, level %c: more values than can be counted", i+1, 'A'+side)
				}
				totals[side] += h.Count()
				for bucket, n := range h.h.Export().Counts {
					if n > 0 {
						sparse[i][side][bucket] += n
					}
				}
			}
			if len(sparse[i][side]) == 0 {
				return nil, fmt.Errorf("block %d, level %c: %w", i+1, 'A'+side, errNoValues)
			}
		}
	}
	for side, n := range totals {
		if !Supported(n, quantile) {
			return nil, fmt.Errorf("quantile %v of %d values of level %c: at least %d must lie beyond it", quantile, n,
				'A'+side, MinBeyond)
		}
	}
	return mergerOf(sparse, quantile), nil
}

// mergerOf sums up the counts of the levels by block.
func mergerOf(sparse [][2]counts, quantile float64) *merger {
	// Buckets that no block uses are left out: every resample goes through all that are kept.
	used := make(map[int]bool)
	for _, sides := range sparse {
		for _, c := range sides {
			for bucket := range c {
				used[bucket] = true
			}
		}
	}
	c := &merger{quantile: quantile, buckets: lists.Keys(used)}
	for i := range sparse {
		c.all = append(c.all, i)
		c.a = append(c.a, c.accumulate(sparse[i][0]))
		c.b = append(c.b, c.accumulate(sparse[i][1]))
	}
	return c
}

// accumulate sums up the counts over the buckets in use.
func (c *merger) accumulate(n counts) cumulative {
	sums := make(cumulative, len(c.buckets))
	var sum int64
	for i, bucket := range c.buckets {
		sum += n[bucket]
		sums[i] = sum
	}
	return sums
}

// effect compares the quantiles of the blocks in the subset (nil: all), on the scale of the arithmetic.
func (c *merger) effect(a, b []cumulative, subset []int) float64 {
	va, vb := c.value(c.quantileOf(a, subset)), c.value(c.quantileOf(b, subset))
	if !c.ratio {
		return vb - va
	}
	// A latency of 0 ns is one below the clock's resolution: half a nanosecond stands for it here,
	// since the quantiles of all blocks are above 0.
	return math.Log(max(vb, 0.5/nsPerUs) / max(va, 0.5/nsPerUs))
}

// quantileOf returns the position in buckets at which the quantile of the merged blocks lies, by
// the rule of Histogram.Quantile.
func (c *merger) quantileOf(blocks []cumulative, subset []int) int {
	if subset == nil {
		subset = c.all
	}
	total := lists.Sum(subset, func(i int) int64 { return blocks[i].total() })
	// The same expressions as the library's, so that rounding is the same too.
	rank := min(total, max(1, int64((100*c.quantile/100)*float64(total)+0.5)))
	low, high := 0, len(c.buckets)-1
	for low < high {
		middle := (low + high) / 2
		sum := lists.Sum(subset, func(i int) int64 { return blocks[i][middle] })
		if sum >= rank {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// value is the latency in microseconds that the bucket at a position stands for.
func (c *merger) value(position int) float64 {
	return float64(highestOfBucket(c.buckets[position])) / nsPerUs
}

// The layout of HdrHistogram with three digits: 2048 buckets of 1 ns, then groups of 1024 buckets,
// those of each group twice as wide as those before.
const halfGroup = 1024

// highestOfBucket is the highest value in nanoseconds that falls into the bucket at an index of the counts.
func highestOfBucket(index int) int64 {
	if index < 2*halfGroup {
		return int64(index)
	}
	shift := index/halfGroup - 1
	lowest := int64(index%halfGroup+halfGroup) << shift
	return lowest + 1<<shift - 1
}
