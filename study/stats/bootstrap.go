package stats

import "math"

// bootstrapResamples is how many times the blocks are drawn anew: 50 of 2000 lie beyond each limit of a 95 % interval.
const bootstrapResamples = 2000

// bootstrapMean is the block bootstrap's interval of a mean: whole blocks are drawn with
// replacement, and the mean of what was drawn is measured in its own standard errors (Efron and
// Tibshirani 1993, An Introduction to the Bootstrap, chapter 12, "bootstrap-t"), since limits taken
// from the means themselves hold the truth too rarely with few blocks.
func bootstrapMean(d []float64, tail float64, seed uint64) Interval {
	m, root := mean(d), math.Sqrt(float64(len(d)))
	se := deviation(d) / root
	ts := make([]float64, 0, bootstrapResamples)
	drawn := make([]float64, len(d))
	eachDraw(len(d), seed, func(blocks []int) {
		for i, block := range blocks {
			drawn[i] = d[block]
		}
		// The same block each time has no standard error: it says nothing, and is rare with as many
		// blocks as an interval needs.
		if s := deviation(drawn) / root; s > 0 {
			ts = append(ts, (mean(drawn)-m)/s)
		}
	})
	if len(ts) == 0 || se == 0 { // all blocks are alike
		return Interval{Low: m, High: m, Confidence: 1 - 2*tail}
	}
	t := tails(ts, tail)
	return Interval{Low: m - t.High*se, High: m - t.Low*se, Confidence: t.Confidence}
}

// bootstrap is the block bootstrap's interval of an effect on a quantile: that of the quantiles of
// whole blocks that are drawn with replacement and merged.
func (c *merger) bootstrap(tail float64, seed uint64) Interval {
	effects := make([]float64, 0, bootstrapResamples)
	eachDraw(len(c.a), seed, func(blocks []int) { effects = append(effects, c.effect(c.a, c.b, blocks)) })
	return tails(effects, tail)
}

// tails cuts a share of the values off at either end, and reorders the values.
func tails(values []float64, tail float64) Interval {
	k := int(tail*float64(len(values)) + 1e-9)
	return Interval{Low: kthSmallest(values, k), High: kthSmallest(values, len(values)-1-k), Confidence: 1 - 2*tail}
}

// eachDraw draws as many indexes as there are, with replacement, bootstrapResamples times.
func eachDraw(size int, seed uint64, f func(blocks []int)) {
	rng := newRand(seed)
	blocks := make([]int, size)
	for range bootstrapResamples {
		for i := range blocks {
			blocks[i] = rng.IntN(size)
		}
		f(blocks)
	}
}
