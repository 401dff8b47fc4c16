package stats

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestDisturbed(t *testing.T) {
	runs := func(level string, values ...float64) []RunValue {
		var r []RunValue
		for _, v := range values {
			r = append(r, RunValue{Level: level, Value: v, Noise: math.NaN()})
		}
		return r
	}
	noisy := runs("a", 10, 10.1, 9.9, 10.2, 9.8, 10)
	for i := range noisy {
		noisy[i].Noise = 0.1 + 0.01*float64(i)
	}
	noisy[2].Noise = 3
	for _, c := range []struct {
		name string
		runs []RunValue
		rule DisturbRule
		want []int
	}{
		{"none", runs("a", 10, 10.1, 9.9, 10.2, 9.8), DisturbRule{}, nil},
		{"a slow run", runs("a", 10, 10.1, 9.9, 10.2, 5), DisturbRule{}, []int{4}},
		{"a fast one is no less wrong", runs("a", 10, 10.1, 20, 10.2, 9.9), DisturbRule{}, []int{2}},
		{"four runs are too few to tell", runs("a", 10, 10.1, 9.9, 1), DisturbRule{}, nil},
		{"levels are judged apart", append(runs("a", 10, 10.1, 9.9, 10.2, 9.8), runs("b", 20, 20.2, 19.8, 20.1,
			19.9)...), DisturbRule{}, nil},
		{"a high noise floor", noisy, DisturbRule{}, []int{2}},
		{"a small deviation of steady values does not count", runs("a", 10, 10.0001, 9.9999, 10, 10.01),
			DisturbRule{LeastValue: 0.01}, nil},
		{"one retransmit among none", runs("a", 0, 0, 0, 0, 0, 0, 0, 0, 1), DisturbRule{Scale: Difference,
			LeastValue: 5}, nil},
		{"many retransmits among none", runs("a", 0, 0, 0, 0, 0, 0, 0, 0, 900), DisturbRule{Scale: Difference,
			LeastValue: 5}, []int{8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Disturbed(c.runs, c.rule)
			if err != nil {
				t.Fatal(err)
			}
			var found []int
			for _, d := range got {
				found = append(found, d.Run)
			}
			if d := cmp.Diff(c.want, found); d != "" {
				t.Errorf("Disturbed (-want +got):\n%s%v", d, got)
			}
		})
	}
	got, err := Disturbed(noisy, DisturbRule{})
	if err != nil || len(got) != 1 || got[0].Reason != "its noise floor of 3 is too high: the median of 6 runs of "+
		"its level is 0.135 (modified z score 96.6)" {
		t.Errorf("Disturbed = %v, %v", got, err)
	}
	if _, err := Disturbed(runs("a", 0), DisturbRule{}); err == nil {
		t.Error("a value of 0 is compared by ratio")
	}
}

func TestDisturbedIsBlindToTheNamesOfLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runs, renamed []RunValue
		for range rapid.IntRange(0, 30).Draw(t, "runs") {
			r := RunValue{Level: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "level"), Value: rapid.Float64Range(1,
				3).Draw(t, "value"), Noise: rapid.Float64Range(0, 1).Draw(t, "noise")}
			runs = append(runs, r)
			r.Level = map[string]string{"a": "pin", "b": "default"}[r.Level]
			renamed = append(renamed, r)
		}
		a, err := Disturbed(runs, DisturbRule{Score: 2})
		if err != nil {
			t.Fatal(err)
		}
		b, err := Disturbed(renamed, DisturbRule{Score: 2})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(a, b); d != "" {
			t.Errorf("other names, other outliers (-want +got):\n%s", d)
		}
	})
}

func TestTakingDisturbedBlocksOutRaisesNoFalseAlarms(t *testing.T) {
	t.Parallel()
	n := studies(1000)
	const blocks = 10
	// What is taken out, and whether no more false alarms than usual are promised. The others are
	// why the advice is what it is.
	ways := []struct {
		name     string
		promised bool
		of       func(a, b []RunValue) ([]Disturbance, error)
	}{
		{"noise floor", true, func(a, b []RunValue) ([]Disturbance, error) {
			return by(NoiseFloor, slices.Concat(a, b))
		}},
		{"value", false, func(a, b []RunValue) ([]Disturbance, error) { return by(OwnValue, slices.Concat(a, b)) }},
		{"value, each level by its own unit", false, func(a, b []RunValue) ([]Disturbance, error) {
			found, err := by(OwnValue, a)
			if err != nil {
				return nil, err
			}
			more, err := by(OwnValue, b)
			return append(found, more...), err // indexes of b are those of the same blocks
		}},
	}
	for _, m := range noiseModels[:3] {
		rng := newRand(17)
		alarms, out := make([]int, len(ways)), make([]int, len(ways))
		for range n {
			study := exponents(m.simulate(rng, blocks, 0))
			var runs [2][]RunValue
			for _, b := range study {
				for side, values := range [][]float64{b.A, b.B} {
					for _, v := range values {
						// The noise floor has a tail of its own, and nothing to do with the level.
						runs[side] = append(runs[side], RunValue{string(rune('a' + side)), v, rng.ExpFloat64()})
					}
				}
			}
			for w, way := range ways {
				found, err := way.of(runs[0], runs[1])
				if err != nil {
					t.Fatal(err)
				}
				bad := make(map[int]bool)
				for _, d := range found {
					bad[d.Run%len(runs[0])/2] = true
				}
				var kept []Block
				for i, b := range study {
					if !bad[i] {
						kept = append(kept, b)
					}
				}
				out[w] += len(bad)
				if e, err := Contrast(kept, Question{Direction: HigherIsBetter}); err != nil {
					t.Fatal(err)
				} else if v := Judge([]Effect{e})[0].Verdict; v != Undecided {
					alarms[w]++
				}
			}
		}
		for w, way := range ways {
			t.Logf("%d blocks, %-12s %4.1f %% of blocks taken out by %-34s false alarms %4.1f %% of %d studies", blocks,
				m.name, percent(out[w], blocks*n), way.name+":", percent(alarms[w], n), n)
			if share := float64(alarms[w]) / float64(n); way.promised && share > 0.05+tolerance(0.05, n) {
				t.Errorf("%s: %.1f %% false alarms, want at most 5 %%", m.name, 100*share)
			}
		}
	}
}

// by returns the runs that are disturbed by evidence of one kind.
func by(kind Evidence, runs []RunValue) ([]Disturbance, error) {
	found, err := Disturbed(runs, DisturbRule{})
	return slices.DeleteFunc(found, func(d Disturbance) bool { return d.By != kind }), err
}
