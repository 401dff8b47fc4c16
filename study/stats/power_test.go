package stats

import (
	"math"
	"testing"

	"github.com/rackless/rackless/internal/tally"
)

func TestEffectsAreFoundWithThePromisedPower(t *testing.T) {
	t.Parallel()
	n := studies(1000)
	t.Logf("share of %d studies that find an effect of the size that Detectable gives for a power of 80 %%", n)
	for _, comparisons := range []int{1, 10} {
		least, shown := 1.0, 0
		for _, blocks := range []int{6, 8, 10, 12, 13, 20, 40} {
			// All three models have the same standard deviation.
			effect := Power{Spread: noiseModels[0].blockSpread(), Comparisons: comparisons, Seed: 1}.Detectable(blocks)
			if math.IsInf(effect, 1) {
				if blocks >= MinBlocks(0.05, comparisons) {
					t.Errorf("Detectable(%d) of %d comparisons is infinite", blocks, comparisons)
				}
				continue
			}
			for _, m := range noiseModels[:3] {
				rng := newRand(uint64(blocks))
				found := 0
				for range n {
					e, err := Contrast(exponents(m.simulate(rng, blocks, math.Log1p(effect))),
						Question{Direction: HigherIsBetter, Resamples: 2000, Seed: rng.Uint64()})
					if err != nil {
						t.Fatal(err)
					}
					if judge(e, min(1, e.P*float64(comparisons)), comparisons).Verdict == Better {
						found++
					}
				}
				share := float64(found) / float64(n)
				t.Logf("%2d comparisons, %2d blocks, %-12s effect %.2f %%: found %.1f %%", comparisons, blocks, m.name,
					100*effect, 100*share)
				if share < 0.8-tolerance(0.8, n) {
					t.Errorf("%d blocks, %s: %.1f %% found, want 80 %%", blocks, m.name, 100*share)
				}
				least = min(least, share)
				shown++
			}
		}
		tally.Logf(t, "with a power of 80 %% promised, an effect was found by %.1f %% of %d studies or more, in %d "+
			"settings of blocks and noise, %d comparisons", 100*least, n, shown, comparisons)
	}
}

// If only one level has a tail, an effect away from "no effect" is found nearly always, and one towards it less often
// than promised, as docs/statistics.md says.
func TestATailOfOneLevelIsTheLimitOfThePromise(t *testing.T) {
	t.Parallel()
	n := studies(1000)
	for _, comparisons := range []int{1, 10} {
		for _, blocks := range []int{6, 8, 10, 12, 13, 20, 40} {
			effect := Power{Spread: 1, Scale: Difference, Comparisons: comparisons, Seed: 1}.Detectable(blocks)
			if math.IsInf(effect, 1) {
				continue
			}
			var shares [2]float64
			for i, side := range []float64{1, -1} {
				rng := newRand(uint64(blocks))
				found := 0
				for range n {
					d := make([]float64, blocks)
					for j := range d {
						d[j] = effect + side*(rng.ExpFloat64()-1+0.3*rng.NormFloat64())/math.Sqrt(1.09)
					}
					if resample(d, 2000, rng.Uint64()).p*float64(comparisons) <= 0.05 {
						found++
					}
				}
				shares[i] = float64(found) / float64(n)
			}
			t.Logf("%2d comparisons, %2d blocks: found %5.1f %% with the tail on the effect's side, %.1f %% with it "+
				"on the other", comparisons, blocks, 100*shares[0], 100*shares[1])
			if shares[0] < 0.8-tolerance(0.8, n) || shares[1] < 0.7-tolerance(0.7, n) {
				t.Errorf("%d comparisons, %d blocks: %.1f and %.1f %% found, want at least 80 and 70 %%", comparisons,
					blocks, 100*shares[0], 100*shares[1])
			}
		}
	}
}

func TestMinBlocks(t *testing.T) {
	for _, c := range []struct {
		alpha       float64
		comparisons int
		want        int
	}{
		{0.05, 1, 6}, {0.05, 0, 6}, {0.05, 2, 7}, {0.05, 10, 9}, {0.05, 100, 12}, {0.0625, 1, 5}, {0.1, 1, 5},
		{1, 1, 1}, {0, 1, MaxBlocks + 1}, {math.NaN(), 1, MaxBlocks + 1},
	} {
		if got := MinBlocks(c.alpha, c.comparisons); got != c.want {
			t.Errorf("MinBlocks(%v, %d) = %d, want %d", c.alpha, c.comparisons, got, c.want)
		}
	}
}

func TestNothingIsDetectableWithFewerThanMinBlocks(t *testing.T) {
	for blocks := range 9 {
		if got := (Power{Spread: 0.01}).Detectable(blocks); math.IsInf(got, 1) != (blocks < 6) {
			t.Errorf("Detectable(%d) = %v", blocks, got)
		}
		if got := (Power{Spread: 0.01, Comparisons: 10}).Detectable(blocks); !math.IsInf(got, 1) {
			t.Errorf("Detectable(%d) of ten comparisons = %v", blocks, got)
		}
	}
	for _, w := range []Power{{Spread: math.NaN()}, {Spread: -1}, {Spread: math.Inf(1)},
		{Spread: 1, Power: 1}, {Spread: 1, Power: math.NaN()}, {Spread: 1, Alpha: -1}} {
		if got := w.Detectable(20); !math.IsInf(got, 1) {
			t.Errorf("%+v: Detectable = %v, want +Inf", w, got)
		}
	}
}

func TestMoreBlocksFindSmallerEffects(t *testing.T) {
	t.Parallel()
	for _, comparisons := range []int{1, 8, 40} {
		if testing.Short() && comparisons > 1 {
			t.Skip("more comparisons take seconds")
		}
		w := Power{Spread: 0.03, Comparisons: comparisons}
		last := math.Inf(1)
		for _, blocks := range []int{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 40, 100} {
			effect := w.Detectable(blocks)
			if effect > last {
				t.Errorf("%d comparisons: Detectable(%d) = %v, with fewer blocks %v", comparisons, blocks, effect, last)
			}
			last = effect
		}
	}
}

func TestScaleOfPower(t *testing.T) {
	known := Power{Spread: 3, Scale: Difference}.Detectable(12)
	if ratio := (Power{Spread: 3}).Detectable(12); !near(ratio, math.Expm1(known)) {
		t.Errorf("Detectable by ratio = %v, by difference %v", ratio, known)
	}
}

func TestQuantilesOfDistributions(t *testing.T) {
	for _, c := range []struct {
		name            string
		got, want, rate float64
	}{
		{"normal 97.5 %", normalQuantile(0.975), 1.959964, 1e-6},
		{"normal 80 %", normalQuantile(0.8), 0.841621, 1e-6},
		{"Student 97.5 %, 12", studentQuantile(0.975, 12), 2.178813, 1e-4},
		{"Student 99.95 %, 12", studentQuantile(0.9995, 12), 4.317791, 1e-3},
		{"Student 97.5 %, 39", studentQuantile(0.975, 39), 2.022691, 1e-5},
	} {
		if math.Abs(c.got/c.want-1) > c.rate {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
}
