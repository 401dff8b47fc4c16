package stats

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// A HistogramBlock holds the latencies of one block, a histogram per run of a level.
type HistogramBlock struct {
	A, B []*Histogram
}

// QuantileContrast compares a quantile of two levels, for example 0.99, of the merged histograms of all blocks.
//
// It uses the subsets of Contrast. The p value swaps A and B in the blocks of a subset and merges: a randomisation test
// that is exact for any noise. A quantile is not a mean, so the interval is approximate; simulations show that it errs
// on the safe side (docs/statistics.md).
//
// It returns an error if a level has too few values; see Supported.
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
		// Swapping the complementary blocks gives the mirror image, so the other side has the same number.
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

// A merger computes quantiles of combinations of histograms without merging: by cumulative counts for each block and
// level, a quantile is a binary search.
type merger struct {
	quantile float64
	ratio    bool
	a, b     []cumulative
	// buckets are the used ones, ascending.
	buckets []int
	all     []int
}

// A cumulative is, for each bucket, the number of values in it or below.
type cumulative []int64

func (c cumulative) total() int64 {
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1]
}

type counts map[int]int64

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
				// Half, so that both levels together fit.
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

func mergerOf(sparse [][2]counts, quantile float64) *merger {
	// Every resample visits all buckets.
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

func (c *merger) accumulate(n counts) cumulative {
	sums := make(cumulative, len(c.buckets))
	var sum int64
	for i, bucket := range c.buckets {
		sum += n[bucket]
		sums[i] = sum
	}
	return sums
}

// effect is on the internal scale; subset nil means all blocks.
func (c *merger) effect(a, b []cumulative, subset []int) float64 {
	va, vb := c.value(c.quantileOf(a, subset)), c.value(c.quantileOf(b, subset))
	if !c.ratio {
		return vb - va
	}
	// 0 ns is below the clock's resolution, and counts as half a nanosecond.
	return math.Log(max(vb, 0.5/nsPerUs) / max(va, 0.5/nsPerUs))
}

// quantileOf returns a position in buckets, by the rule of Histogram.Quantile.
func (c *merger) quantileOf(blocks []cumulative, subset []int) int {
	if subset == nil {
		subset = c.all
	}
	total := lists.Sum(subset, func(i int) int64 { return blocks[i].total() })
	// As in the library, for the same rounding.
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

// value is in microseconds.
func (c *merger) value(position int) float64 {
	return float64(highestOfBucket(c.buckets[position])) / nsPerUs
}

// halfGroup is half of HdrHistogram's 2048 buckets of 1 ns with three digits. Groups of 1024 follow, each twice as wide
// as the last.
const halfGroup = 1024

func highestOfBucket(index int) int64 {
	if index < 2*halfGroup {
		return int64(index)
	}
	shift := index/halfGroup - 1
	lowest := int64(index%halfGroup+halfGroup) << shift
	return lowest + 1<<shift - 1
}
