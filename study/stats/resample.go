package stats

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// exactBlocks allow for all subsets: 65,536 take milliseconds.
const exactBlocks = 16

type resampled struct {
	p         float64
	exact     bool
	smallestP float64
	// values are of non-empty subsets; interval reorders them.
	values []float64
}

// resample tests the mean of d against 0 by flipping signs, and collects the means of subsets.
//
// Flipping the signs of the blocks in F turns the sum S into S - 2 sum(F), which is S or more if and only if the mean
// of F is 0 or less. So the share of subsets with a mean of 0 or less, with the empty one, is the one-sided p value.
func resample(d []float64, resamples int, seed uint64) resampled {
	r := resampled{exact: len(d) <= exactBlocks}
	// The order of additions must not matter.
	tolerance := lists.Sum(d, math.Abs)
	tolerance *= 1e-12
	var low, high int // sums of at most 0, and of at least 0
	add := func(sum float64, n int) {
		if sum <= tolerance {
			low++
		}
		if sum >= -tolerance {
			high++
		}
		r.values = append(r.values, sum/float64(n))
	}
	if r.exact {
		sums := subsetSums(nil, d)
		r.values = make([]float64, 0, len(sums)-1)
		for subset, sum := range sums[1:] {
			add(sum, bits.OnesCount(uint(subset+1)))
		}
	} else {
		r.values = make([]float64, 0, resamples)
		eachSubset(len(d), resamples, seed, func(subset []int) {
			sum := lists.Sum(subset, func(i int) float64 { return d[i] })
			add(sum, len(subset))
		})
	}
	r.setP(min(low, high))
	return r
}

// setP takes the side with fewer, and adds the observation, which is the empty subset.
func (r *resampled) setP(extreme int) {
	total := float64(len(r.values) + 1)
	r.p = min(1, 2*float64(extreme+1)/total)
	r.smallestP = min(1, 2/total)
}

// interval relies on the n+1 gaps of n values, in each of which the true effect lies with the same probability.
func (r *resampled) interval(tail float64) Interval {
	n := len(r.values)
	// Keeps 0.025 x 80 from becoming 1.9999.
	k := int(tail*float64(n+1) + 1e-9)
	if k < 1 {
		return Interval{Low: math.Inf(-1), High: math.Inf(1)}
	}
	return Interval{Low: kthSmallest(r.values, k-1), High: kthSmallest(r.values, n-k),
		Confidence: 1 - 2*float64(k)/float64(n+1)}
}

// subsetSums reuses the memory of sums. Bit i of an index tells whether d[i] is in the subset.
func subsetSums(sums, d []float64) []float64 {
	sums = append(slices.Grow(sums[:0], 1<<len(d)), 0)
	for _, v := range d {
		for _, s := range sums {
			sums = append(sums, s+v)
		}
	}
	return sums
}

// eachSubset takes each index with probability 1/2, and redraws the empty subset, which is the observation.
func eachSubset(size, n int, seed uint64, f func(subset []int)) {
	rng := newRand(seed)
	subset := make([]int, 0, size)
	for range n {
		subset = subset[:0]
		for len(subset) == 0 {
			for base := 0; base < size; base += 64 {
				word := rng.Uint64()
				if rest := size - base; rest < 64 {
					word &= 1<<rest - 1
				}
				for ; word != 0; word &= word - 1 {
					subset = append(subset, base+bits.TrailingZeros64(word))
				}
			}
		}
		f(subset)
	}
}

// kthSmallest counts from 0, and reorders the values (Hoare 1961, "Algorithm 65: Find", CACM 4).
func kthSmallest(values []float64, k int) float64 {
	// Faster than sorting: designing a study takes the k-th of thousands of means, thousands of times.
	for low, high := 0, len(values)-1; low < high; {
		pivot := values[(low+high)/2]
		i, j := low, high
		for i <= j {
			for values[i] < pivot {
				i++
			}
			for values[j] > pivot {
				j--
			}
			if i <= j {
				values[i], values[j] = values[j], values[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			high = j
		case k >= i:
			low = i
		default:
			return values[k]
		}
	}
	return values[k]
}

func newRand(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) // the second half is arbitrary but fixed
}
