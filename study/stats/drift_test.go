package stats

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTrendOfKnownValues(t *testing.T) {
	got := trend([]float64{1, 2, 3, 5, 4}, 1)
	// One inversion of ten pairs; of 120 orders, 1 + 4 have at most one, and as many at least nine.
	if got.Tau != 0.8 || !near(got.P, 10.0/120) || got.Slope != 1 {
		t.Errorf("trend = %+v; want tau 0.8, p 10/120, slope 1", got)
	}
	if flat := trend([]float64{2, 2, 2, 2}, 1); flat != (Trend{P: 1, Lag1P: 1}) {
		t.Errorf("trend of equal values = %+v", flat)
	}
	if few := trend([]float64{1, 2}, 1); few != (Trend{P: 1, Lag1P: 1}) {
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
	// With ties, S = 8 of 5 values with one pair alike has the normal p value of the books' formula.
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
		a, b := trend(values, 1), trend(down, 1)
		if a.Tau != -b.Tau || a.P != b.P || a.Slope != -b.Slope || !near(a.Lag1, b.Lag1) {
			t.Errorf("trend %+v became %+v", a, b)
		}
	})
}

func TestDriftIsRemarkedAndNoiseIsNot(t *testing.T) {
	t.Parallel()
	n := studies(200)
	share := func(m noiseModel, change float64) (level, effect float64) {
		rng := newRand(8)
		for range n {
			study := m.simulate(rng, 20, 0)
			for i := range study {
				for j := range study[i].B {
					study[i].B[j] += change * float64(i) / 19
				}
			}
			d, err := Drifting(exponents(study), Question{Direction: HigherIsBetter, Seed: rng.Uint64()})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range d.Remarks {
				if strings.HasPrefix(r, "drift: both levels together moved by") {
					level++
				} else {
					effect++
				}
			}
		}
		return 100 * level / float64(n), 100 * effect / float64(n)
	}
	for _, c := range []struct {
		name            string
		model           noiseModel
		change          float64
		minLevel, maxEf float64
		maxLevel, minEf float64
	}{
		{"noise", noiseModels[0], 0, 0, 5, 3, 0},
		{"heavy tails", noiseModels[2], 0, 0, 5, 3, 0},
		{"a trend of the machine", noiseModels[4], 0, 99, 5, 100, 0},
		{"an effect that grows by 10 %", noiseModels[0], 0.1, 0, 100, 100, 80},
	} {
		level, effect := share(c.model, c.change)
		t.Logf("20 blocks, %-28s remarked: drift of the level in %5.1f %%, of the effect in %5.1f %% of %d studies",
			c.name, level, effect, n)
		if level < c.minLevel || level > c.maxLevel || effect < c.minEf || effect > c.maxEf {
			t.Errorf("%s: remarks on level %.1f %%, effect %.1f %%", c.name, level, effect)
		}
	}
}

func TestAlikeNeighboursAreRemarked(t *testing.T) {
	// The effect swings slowly: no trend, but the blocks are not independent.
	var blocks []Block
	for i := range 24 {
		blocks = append(blocks, Block{A: []float64{1}, B: []float64{math.Exp(0.1 * math.Sin(float64(i)/24*4*math.Pi))}})
	}
	d, err := Drifting(blocks, Question{Direction: HigherIsBetter})
	if err != nil {
		t.Fatal(err)
	}
	// Both level and effect swing; the level's trend is none.
	if len(d.Remarks) != 1 || !strings.HasPrefix(d.Remarks[0],
		"the effects of neighbouring blocks are alike (correlation 0.87, p = ") {
		t.Errorf("remarks = %q", d.Remarks)
	}
	if _, err := Drifting([]Block{{A: []float64{1}, B: []float64{0}}},
		Question{Direction: HigherIsBetter}); err == nil {
		t.Error("a value of 0 is compared by ratio")
	}
}
