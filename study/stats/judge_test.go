package stats

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestHolm(t *testing.T) {
	for _, c := range []struct {
		name    string
		p, want []float64
	}{
		{"none", nil, []float64{}},
		{"one is not corrected", []float64{0.03}, []float64{0.03}},
		{"the worked example", []float64{0.01, 0.04, 0.03, 0.005}, []float64{0.03, 0.06, 0.06, 0.02}},
		{"never above 1", []float64{0.6, 0.7}, []float64{1, 1}},
		{"not a number counts as 1", []float64{math.NaN(), 0.02}, []float64{1, 0.04}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Holm(c.p)
			if !slices.EqualFunc(got, c.want, near) {
				t.Errorf("Holm(%v) = %v, want %v", c.p, got, c.want)
			}
		})
	}
}

func TestHolmKeepsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 20).Draw(t, "p")
		adjusted := Holm(p)
		for i := range p {
			if adjusted[i] < p[i] || adjusted[i] > 1 {
				t.Errorf("Holm(%v)[%d] = %v", p, i, adjusted[i])
			}
			for j := range p {
				if p[i] < p[j] && adjusted[i] > adjusted[j] || p[i] == p[j] && adjusted[i] != adjusted[j] {
					t.Errorf("Holm(%v) = %v: %d and %d are out of order", p, adjusted, i, j)
				}
			}
		}
		// Holm finds at least as much as Bonferroni, and a first effect if and only if Bonferroni does.
		if got, want := slices.Min(adjusted), min(1, slices.Min(p)*float64(len(p))); !near(got, want) {
			t.Errorf("smallest of Holm(%v) = %v, want %v", p, got, want)
		}
	})
}

func TestVerdicts(t *testing.T) {
	effect := func(low, estimate, high, p float64) Effect {
		return Effect{
			Direction: HigherIsBetter, Scale: Ratio, Margin: 0.02, Confidence: 0.95, Blocks: 12, P: p,
			SmallestP: 2.0 / 4096,
			Estimate:  estimate, Interval: Interval{low, high, 0.95}, Inner: Interval{low, high, 0.9},
		}
	}
	lower := effect(1.05, 1.1, 1.15, 0.001)
	lower.Direction = LowerIsBetter
	noMargin := effect(0.99, 1, 1.01, 0.6)
	noMargin.Margin = 0
	none := Effect{Direction: LowerIsBetter, Scale: Difference, Confidence: 0.95, Blocks: 12, P: 1,
		SmallestP: 2.0 / 4096, Interval: Interval{0, 0, 0.95}, Inner: Interval{0, 0, 0.9}}
	few := effect(math.Inf(-1), 1.1, math.Inf(1), 0.0625)
	few.Blocks, few.SmallestP = 5, 2.0/32
	coarse := effect(1.05, 1.1, 1.15, 0.04)
	coarse.Blocks, coarse.SmallestP = 20, 0.06
	for _, c := range []struct {
		name  string
		e     Effect
		other int // each with p = 1
		want  Judgement
	}{
		{"more bandwidth", effect(1.05, 1.1, 1.15, 0.001), 0,
			Judgement{Better, 0.001, "p = 0.001 after correction for 1 comparison"}},
		{"less bandwidth", effect(0.8, 0.9, 0.95, 0.001), 2,
			Judgement{Worse, 0.003, "p = 0.003 after correction for 3 comparisons"}},
		{"more latency", lower, 0, Judgement{Worse, 0.001, "p = 0.001 after correction for 1 comparison"}},
		{"within the margin", effect(0.99, 1, 1.01, 0.7), 0,
			Judgement{Equivalent, 0.7, "the effect is smaller than what matters"}},
		{"surely there and surely small", effect(1.002, 1.005, 1.01, 0.001), 0, Judgement{Equivalent, 0.001,
			"there is an effect, and it is smaller than what matters"}},
		{"too wide", effect(0.97, 1, 1.05, 0.7), 0,
			Judgement{Undecided, 0.7, "the interval holds no effect and effects that matter: more blocks would " +
				"narrow it"}},
		{"without a margin", noMargin, 0, Judgement{Undecided, 0.6,
			"the interval holds no effect, and without a margin nothing is equivalent"}},
		{"no block differs", none, 3, Judgement{Equivalent, 1, "no run differs"}},
		{"significant only alone", effect(1.05, 1.1, 1.15, 0.02), 9,
			Judgement{Undecided, 0.2, "p = 0.02 alone, but 0.2 after correction for 10 comparisons: more blocks " +
				"would decide it"}},
		{"too few blocks", few, 0, Judgement{Undecided, 0.0625,
			"5 blocks cannot show an effect in 1 comparison: at least 6 are needed"}},
		{"too few resamples", coarse, 0, Judgement{Better, 0.04, "p = 0.04 after correction for 1 comparison"}},
		{"too few resamples for a family", coarse, 1,
			Judgement{Undecided, 0.08, "too few resamples for 2 comparisons: ask for at least 80"}},
		{"p and interval disagree, as they may for quantiles", effect(0.99, 1.1, 1.2, 0.01), 0,
			Judgement{Undecided, 0.01, "p = 0.01, but the interval holds no effect too: more blocks would decide it"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			family := []Effect{c.e}
			for range c.other {
				family = append(family, effect(0.9, 1, 1.1, 1))
			}
			got := Judge(family)[0]
			if !near(got.P, c.want.P) {
				t.Errorf("p = %v, want %v", got.P, c.want.P)
			}
			got.P = c.want.P
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("Judge (-want +got):\n%s", d)
			}
		})
	}
}

func TestControls(t *testing.T) {
	effect := func(effect float64, blocks int) Effect {
		e, err := Contrast(exponents(noiseModels[0].simulate(newRand(21), blocks, effect)),
			Question{Direction: HigherIsBetter, Margin: 0.02})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	weak := effect(0.0, 12)
	weak.P, weak.Interval, weak.Inner = 0.03, Interval{1.001, 1.1, 0.95}, Interval{1.01, 1.09, 0.9}
	// The second moved; the third has too few blocks, and the last moved only alone.
	if got := Moved([]Effect{effect(0, 40), effect(0.2, 12), effect(0, 6), weak}); !slices.Equal(got, []int{1}) {
		t.Errorf("moved %v, want the second", got)
	}
	if got := Moved([]Effect{weak}); !slices.Equal(got, []int{0}) {
		t.Errorf("alone moved %v, want it", got)
	}
	if got := Moved(nil); len(got) > 0 {
		t.Errorf("of no controls moved %v", got)
	}
}
