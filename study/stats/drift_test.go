package stats

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTrendOfKnownValues(t *testing.T) {
	got := trendOf([]float64{1, 2, 3, 5, 4}, 1)
	// Of 120 orders, 1 + 4 have at most one inversion of ten pairs, and as many at least nine.
	if !near(got.p, 10.0/120) || got.slope != 1 {
		t.Errorf("trend = %+v; want p 10/120, slope 1", got)
	}
	if flat := trendOf([]float64{2, 2, 2, 2}, 1); flat != (trend{p: 1, lag1P: 1}) {
		t.Errorf("trend of equal values = %+v", flat)
	}
	if few := trendOf([]float64{1, 2}, 1); few != (trend{p: 1, lag1P: 1}) {
		t.Errorf("trend of two values = %+v", few)
	}
}

func TestExactAndNormalKendallAgree(t *testing.T) {
	rng := newRand(2)
	values := make([]float64, 40)
	for i := range values {
		values[i] = rng.NormFloat64()
	}
	for _, s := range []int{0, 50, 150, 250} {
		z := float64(max(0, s-1)) / math.Sqrt(40*39*85/18.0)
		if got, want := kendallP(s, values), math.Erfc(z/math.Sqrt2); math.Abs(got-want) > 0.01 ||
			got != kendallP(-s, values) {
			t.Errorf("p of S = %d: %v, normal %v", s, got, want)
		}
	}
	// 5 values with one tie: S = 8, and the textbook's normal p value.
	if got, want := kendallP(8, []float64{1, 2, 2, 3, 4}),
		math.Erfc(7/math.Sqrt((5*4*15-2*1*9)/18.0)/math.Sqrt2); !near(got, want) {
		t.Errorf("p with ties = %v, want %v", got, want)
	}
}

func TestTrendMirrors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1, 1), 3, 20).Draw(t, "values")
		down := make([]float64, len(values))
		for i, v := range values {
			down[i] = -v
		}
		a, b := trendOf(values, 1), trendOf(down, 1)
		if a.p != b.p || a.slope != -b.slope || !near(a.lag1, b.lag1) {
			t.Errorf("trend %+v became %+v", a, b)
		}
	})
}

func TestDriftIsRemarkedAndNoiseIsNot(t *testing.T) {
	t.Parallel()
	n := studies(200)
	share := func(m noiseModel, change float64) float64 {
		rng := newRand(8)
		remarked := 0
		for range n {
			study := m.simulate(rng, 20, 0)
			for i := range study {
				for j := range study[i].B {
					study[i].B[j] += change * float64(i) / 19
				}
			}
			remarks, err := Drifting(exponents(study), Question{Direction: HigherIsBetter, Seed: rng.Uint64()})
			if err != nil {
				t.Fatal(err)
			}
			remarked += len(remarks)
		}
		return percent(remarked, n)
	}
	for _, c := range []struct {
		name        string
		model       noiseModel
		change      float64
		least, most float64
	}{
		{"noise", noiseModels[0], 0, 0, 5},
		{"heavy tails", noiseModels[2], 0, 0, 5},
		{"a trend of the machine", noiseModels[4], 0, 0, 5},
		{"an effect that grows by 10 %", noiseModels[0], 0.1, 80, 100},
	} {
		got := share(c.model, c.change)
		t.Logf("20 blocks, %-28s remarked in %5.1f %% of %d studies", c.name, got, n)
		if got < c.least || got > c.most {
			t.Errorf("%s: remarks in %.1f %% of studies, want %g to %g", c.name, got, c.least, c.most)
		}
	}
}

func TestAlikeNeighboursAreRemarked(t *testing.T) {
	// A slow swing is no trend, but the blocks are not independent.
	var blocks []Block
	for i := range 24 {
		blocks = append(blocks, Block{A: []float64{1}, B: []float64{math.Exp(0.1 * math.Sin(float64(i)/24*4*math.Pi))}})
	}
	remarks, err := Drifting(blocks, Question{Direction: HigherIsBetter})
	if err != nil {
		t.Fatal(err)
	}
	if len(remarks) != 1 || !strings.HasPrefix(remarks[0],
		"the effects of neighbouring blocks are alike (correlation 0.87, p = ") {
		t.Errorf("remarks = %q", remarks)
	}
	if _, err := Drifting([]Block{{A: []float64{1}, B: []float64{0}}},
		Question{Direction: HigherIsBetter}); err == nil {
		t.Error("a value of 0 is compared by ratio")
	}
}
