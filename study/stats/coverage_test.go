package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var rivals = []string{"percentile", "BCa", "Student's t"}

// studentTable has two-sided 95 % quantiles of Student's t by blocks, from published tables.
var studentTable = map[int]float64{5: 2.7764, 6: 2.5706, 8: 2.3646, 12: 2.2010, 20: 2.0930, 40: 2.0227}

func rivalIntervals(d []float64, rng *rand.Rand) []Interval {
	const resamples = 399
	const low, high = 9, 389 // of the sorted values, from 0
	m, se := mean(d), deviation(d)/math.Sqrt(float64(len(d)))
	sample := make([]float64, len(d))
	var means []float64
	for range resamples {
		for i := range sample {
			sample[i] = d[rng.IntN(len(d))]
		}
		means = append(means, mean(sample))
	}
	slices.Sort(means)
	t := studentTable[len(d)]
	return []Interval{
		{Low: means[low], High: means[high]},
		{Low: bca(d, means, 0.025), High: bca(d, means, 0.975)},
		{Low: m - t*se, High: m + t*se},
	}
}

// bca returns a limit of the bias-corrected and accelerated interval (Efron 1987, JASA 82).
func bca(d, means []float64, p float64) float64 {
	below := 0
	for _, v := range means {
		if v < mean(d) {
			below++
		}
	}
	z0 := normalQuantile(min(0.999, max(0.001, float64(below)/float64(len(means)))))
	var cubes, squares float64
	for _, v := range d {
		x := v - mean(d)
		cubes += x * x * x
		squares += x * x
	}
	a := cubes / (6 * math.Pow(squares, 1.5))
	z := z0 + normalQuantile(p)
	share := 0.5 * math.Erfc(-(z0+z/(1-a*z))/math.Sqrt2)
	return means[min(len(means)-1, max(0, int(share*float64(len(means)))))]
}

func TestIntervalsHoldTheTruth(t *testing.T) {
	t.Parallel()
	n := studies(1000)
	rivalStudies := 10 // slow, and no check depends on them
	if *long {
		rivalStudies = 200
	}
	t.Logf("share of %d studies whose 95 %% interval holds the true effect, and in brackets its median width in "+
		"standard deviations of block differences; others in %d studies", n, rivalStudies)
	models := []struct {
		name string
		draw func(*rand.Rand) float64 // block difference with mean 0
		// symmetric differences have promised coverage.
		symmetric bool
	}{
		{"normal", func(r *rand.Rand) float64 { return r.NormFloat64() }, true},
		// Lognormal with sigma 1, by Difference.
		{"lognormal values", func(r *rand.Rand) float64 {
			return (math.Exp(r.NormFloat64()) - math.Exp(r.NormFloat64())) / math.Sqrt(2*(math.E-1)*math.E)
		}, true},
		{"student t3", func(r *rand.Rand) float64 { return student3(r) / 0.03 }, true},
		// Only B has a tail.
		{"skewed differences", func(r *rand.Rand) float64 {
			return (r.ExpFloat64() - 1 + 0.3*r.NormFloat64()) / math.Sqrt(1.09)
		}, false},
	}
	for _, m := range models {
		for _, blocks := range []int{5, 6, 8, 12, 20, 40} {
			rng := newRand(uint64(blocks))
			held := make([]int, 1+len(rivals))
			widths := make([][]float64, 1+len(rivals))
			for study := range n {
				d := make([]float64, blocks)
				for i := range d {
					d[i] = m.draw(rng)
				}
				r := resample(d, 999, rng.Uint64())
				intervals := []Interval{r.interval(0.025)}
				if study < rivalStudies {
					intervals = append(intervals, rivalIntervals(d, rng)...)
				}
				for k, i := range intervals {
					if i.Contains(0) {
						held[k]++
					}
					widths[k] = append(widths[k], i.High-i.Low)
				}
			}
			line := fmt.Sprintf("%-18s %2d blocks: used %5.1f %% (%.2f)", m.name, blocks, percent(held[0], n),
				Median(widths[0]))
			for k, name := range rivals {
				line += fmt.Sprintf(", %s %.1f %% (%.2f)", name, percent(held[k+1], rivalStudies), Median(widths[k+1]))
			}
			t.Log(line)
			if share := float64(held[0]) / float64(n); m.symmetric && share < 0.95-tolerance(0.05, n) {
				t.Errorf("%s, %d blocks: the interval holds the truth in %.1f %% of studies, want 95 %%", m.name,
					blocks, 100*share)
			}
		}
	}
}

func TestIntervalsOfQuantilesHoldTheTruth(t *testing.T) {
	t.Parallel()
	n := studies(200)
	const factor, samples, quantile = 1.05, 100, 0.99
	t.Logf("p99 of two runs of %d latencies a block and level, true ratio %v; share of %d studies", samples, factor, n)
	for _, blocks := range []int{6, 8, 20} {
		rng := newRand(uint64(blocks))
		held, alarms := 0, 0
		for range n {
			q := Question{Direction: LowerIsBetter, Resamples: 399, Seed: rng.Uint64()}
			c := latencies(rng, blocks, samples, factor, quantile)
			e := contrastOf(t, c, q)
			if e.Interval.Contains(factor) {
				held++
			}
			same := contrastOf(t, latencies(rng, blocks, samples, 1, quantile), q)
			if v := Judge([]Effect{same})[0].Verdict; v == Better || v == Worse {
				alarms++
			}
		}
		t.Logf("%2d blocks: the interval holds the truth in %.1f %%, false alarms without an effect %.1f %%", blocks,
			percent(held, n), percent(alarms, n))
		if share := float64(alarms) / float64(n); share > 0.05+tolerance(0.05, n) {
			t.Errorf("%d blocks: %.1f %% false alarms, want at most 5 %%", blocks, 100*share)
		}
		if share := float64(held) / float64(n); share < 0.95-tolerance(0.05, n) {
			t.Errorf("%d blocks: the interval holds the truth in %.1f %% of studies, want 95 %%", blocks, 100*share)
		}
	}
}

// latencies spares the histograms, which take most of the time.
func latencies(rng *rand.Rand, blocks, samples int, factor, quantile float64) *merger {
	sparse := make([][2]counts, blocks)
	for i := range sparse {
		machine := math.Exp(0.1 * rng.NormFloat64())
		for side, f := range []float64{1, factor} {
			c := make(counts)
			for range 2 {
				run := 5 * f * machine * math.Exp(0.03*rng.NormFloat64())
				for range samples {
					c[bucketOf(int64(nsPerUs*run*math.Exp(0.3*rng.NormFloat64())))]++
				}
			}
			sparse[i][side] = c
		}
	}
	return mergerOf(sparse, quantile)
}

func bucketOf(ns int64) int {
	shift := 0
	for ns>>shift >= 2*halfGroup {
		shift++
	}
	return shift*halfGroup + int(ns>>shift)
}

func contrastOf(t *testing.T, c *merger, q Question) Effect {
	t.Helper()
	e, err := q.effect(len(c.a))
	if err != nil {
		t.Fatal(err)
	}
	if e, err = c.contrast(e, q); err != nil {
		t.Fatal(err)
	}
	return e
}
