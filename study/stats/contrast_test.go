package stats

import (
	"encoding/json"
	"errors"
	"math"
	"math/bits"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func near(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b))
}

func TestContrastOfKnownValues(t *testing.T) {
	// B is exactly 10 % faster in six blocks, so p is 2 of 64.
	var blocks []Block
	for _, v := range []float64{10, 11, 9, 20, 10.5, 12} {
		blocks = append(blocks, Block{A: []float64{v, 4 * v}, B: []float64{2 * 1.1 * v, 2 * 1.1 * v}})
	}
	e, err := Contrast(blocks, Question{Direction: HigherIsBetter})
	if err != nil {
		t.Fatal(err)
	}
	if !near(e.Estimate, 1.1) || !near(e.Interval.Low, 1.1) || !near(e.Interval.High, 1.1) || e.P != 2.0/64 ||
		e.SmallestP != 2.0/64 || !e.Exact || e.Scale != Ratio || e.Spread > 1e-9 {
		t.Errorf("Contrast = %+v; want a ratio of 1.1 and p = 2/64", e)
	}
	if want := 1 - 2.0/64; e.Interval.Confidence != want {
		t.Errorf("confidence of the interval = %v, want %v: with 6 blocks there is no other", e.Interval.Confidence,
			want)
	}
	if !near(e.B/e.A, 1.1) || !near(e.Differences[3], 1.1) {
		t.Errorf("A = %v, B = %v, Differences = %v; want ratios of 1.1", e.A, e.B, e.Differences)
	}
}

func TestContrastByDifferenceTakesZeros(t *testing.T) {
	blocks := []Block{
		{A: []float64{0}, B: []float64{3}}, {A: []float64{0}, B: []float64{2}}, {A: []float64{1}, B: []float64{2}},
		{A: []float64{0}, B: []float64{4}}, {A: []float64{0}, B: []float64{1}}, {A: []float64{-1}, B: []float64{5}},
		{A: []float64{0}, B: []float64{0}},
	}
	_, err := Contrast(blocks, Question{Direction: LowerIsBetter})
	if !errors.Is(err, ErrNotPositive) || err.Error() != "block 1, level A: value 0: only positive values can be "+
		"compared by ratio" {
		t.Errorf("Contrast by ratio: %v; want ErrNotPositive with its place", err)
	}
	e, err := Contrast(blocks, Question{Direction: LowerIsBetter, Scale: Difference, Margin: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	// d = 3, 2, 1, 4, 1, 6, 0: 4 of 128 choices have equal signs for all but the last.
	if !near(e.Estimate, 17.0/7) || e.P != 4.0/128 || e.A != 0 || !near(e.B, 17.0/7) {
		t.Errorf("Contrast by difference = %+v; want 17/7 and p = 4/128", e)
	}
	if j := Judge([]Effect{e})[0]; j.Verdict != Worse {
		t.Errorf("verdict on more retransmits = %v, want worse", j)
	}
}

func TestEqualValuesAreEquivalent(t *testing.T) {
	var blocks []Block
	for range 6 {
		blocks = append(blocks, Block{A: []float64{0, 0}, B: []float64{0, 0}})
	}
	e, err := Contrast(blocks, Question{Direction: LowerIsBetter, Scale: Difference, Margin: 1})
	if err != nil {
		t.Fatal(err)
	}
	if j := Judge([]Effect{e})[0]; e.P != 1 || j.Verdict != Equivalent {
		t.Errorf("six blocks without a retransmit: p = %v, %v; want 1, equivalent", e.P, j)
	}
}

func TestContrastRefusesWhatCannotBeCompared(t *testing.T) {
	good := []Block{{A: []float64{1}, B: []float64{1}}}
	for _, c := range []struct {
		name   string
		blocks []Block
		q      Question
		want   string
	}{
		{"no direction", good, Question{}, `direction "": say "higher" or "lower"`},
		{"no such scale", good, Question{Direction: HigherIsBetter, Scale: "log"},
			`scale "log": say "ratio" or "difference"`},
		{"a negative margin", good, Question{Direction: HigherIsBetter, Margin: -1}, "margin -1: must be 0 or more"},
		{"a margin that is no number", good, Question{Direction: HigherIsBetter, Margin: math.NaN()},
			"margin NaN: must be 0 or more"},
		{"confidence in percent", good, Question{Direction: HigherIsBetter, Confidence: 95},
			"confidence 95: must be at least 0.5 and below 1"},
		{"too many resamples", good, Question{Direction: HigherIsBetter, Resamples: 1e7},
			"resamples 10000000: must be 0 to 1000000"},
		{"no blocks", nil, Question{Direction: HigherIsBetter}, "no blocks"},
		{"too many blocks", make([]Block, 1001), Question{Direction: HigherIsBetter}, "1001 blocks: at most 1000"},
		{"a block without a run", []Block{{A: []float64{1}}}, Question{Direction: HigherIsBetter},
			"block 1, level B: no values: leave the block out, or run it again"},
		{"a value that is no number", []Block{{A: []float64{1}, B: []float64{math.NaN()}}},
			Question{Direction: HigherIsBetter}, "block 1, level B: value NaN is not a number to compute with"},
		{"an infinite value", []Block{{A: []float64{math.Inf(1)}, B: []float64{1}}},
			Question{Direction: HigherIsBetter}, "block 1, level A: value +Inf is not a number to compute with"},
		{"values beyond all numbers", []Block{{A: []float64{1e-300}, B: []float64{1e300}}},
			Question{Direction: HigherIsBetter}, "the values are too far apart"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Contrast(c.blocks, c.q); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("Contrast: %v; want %q", err, c.want)
			}
		})
	}
}

func TestSameSeedGivesTheSameAndAnotherOneNearlyTheSame(t *testing.T) {
	study := exponents(noiseModels[2].simulate(newRand(5), 30, 0.02))
	q := Question{Direction: HigherIsBetter, Seed: 1}
	first, err := Contrast(study, q)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := Contrast(study, q)
	if d := cmp.Diff(first, again); d != "" {
		t.Errorf("same seed (-first +again):\n%s", d)
	}
	q.Seed = 2
	other, _ := Contrast(study, q)
	if first.Exact || other.Interval == first.Interval || math.Abs(other.Interval.Low-first.Interval.Low) > 0.003 {
		t.Errorf("other seed: %v after %v; want a little different", other.Interval, first.Interval)
	}
}

func drawStudy(t *rapid.T, low, high int) []Block {
	value := rapid.Float64Range(0.5, 2)
	blocks := make([]Block, rapid.IntRange(low, high).Draw(t, "blocks"))
	for i := range blocks {
		blocks[i].A = rapid.SliceOfN(value, 1, 3).Draw(t, "A")
		blocks[i].B = rapid.SliceOfN(value, 1, 3).Draw(t, "B")
	}
	return blocks
}

var mirrored = map[Verdict]Verdict{Better: Worse, Worse: Better, Equivalent: Equivalent, Undecided: Undecided}

func TestSwappingLevelsMirrorsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := drawStudy(t, 1, 20)
		q := Question{Direction: HigherIsBetter, Margin: 0.1, Seed: 3, Resamples: 200,
			Confidence: rapid.SampledFrom([]float64{0, 0.8}).Draw(t, "confidence")}
		swapped := make([]Block, len(blocks))
		for i, b := range blocks {
			swapped[i] = Block{A: b.B, B: b.A}
		}
		e, err := Contrast(blocks, q)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Contrast(swapped, q)
		if err != nil {
			t.Fatal(err)
		}
		if !near(e.Estimate*s.Estimate, 1) || !near(e.P, s.P) {
			t.Errorf("ratio %v and p %v became %v and %v", e.Estimate, e.P, s.Estimate, s.P)
		}
		if e.Interval.Bounded() != s.Interval.Bounded() || e.Interval.Bounded() &&
			(!near(e.Interval.Low*s.Interval.High, 1) || !near(e.Inner.High*s.Inner.Low, 1)) {
			t.Errorf("intervals %v, %v became %v, %v", e.Interval, e.Inner, s.Interval, s.Inner)
		}
		if v, w := Judge([]Effect{e})[0].Verdict, Judge([]Effect{s})[0].Verdict; mirrored[v] != w {
			t.Errorf("verdict %s became %s", v, w)
		}
	})
}

func TestUnitsAndOrderOfBlocksMakeNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := drawStudy(t, 1, 10)
		factor := rapid.Float64Range(1e-3, 1e3).Draw(t, "factor")
		order := rapid.Permutation(blocks).Draw(t, "order")
		scaled := make([]Block, len(order))
		for i, b := range order {
			for _, v := range b.A {
				scaled[i].A = append(scaled[i].A, v*factor)
			}
			for _, v := range b.B {
				scaled[i].B = append(scaled[i].B, v*factor)
			}
		}
		q := Question{Direction: LowerIsBetter}
		e, err := Contrast(blocks, q)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Contrast(scaled, q)
		if err != nil {
			t.Fatal(err)
		}
		if !near(e.Estimate, s.Estimate) || !near(e.P, s.P) || !near(e.A*factor, s.A) || !near(e.Spread, s.Spread) {
			t.Errorf("Contrast = %+v, of the same in other units and order %+v", e, s)
		}
		if e.Interval.Bounded() && (!near(e.Interval.Low, s.Interval.Low) || !near(e.Interval.High, s.Interval.High)) {
			t.Errorf("interval %v became %v", e.Interval, s.Interval)
		}
	})
}

func TestExactTestEqualsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Whole numbers make ties.
		var d []float64
		for _, v := range rapid.SliceOfN(rapid.IntRange(-5, 5), 1, 9).Draw(t, "d") {
			d = append(d, float64(v))
		}
		observed := math.Abs(mean(d))
		extreme := 0
		for signs := range 1 << len(d) {
			var sum float64
			for i, v := range d {
				if signs>>i&1 == 1 {
					v = -v
				}
				sum += v
			}
			if math.Abs(sum/float64(len(d))) >= observed-1e-9 {
				extreme++
			}
		}
		want := float64(extreme) / float64(int(1)<<len(d))
		if got := resample(d, 0, 0).p; !near(got, want) {
			t.Errorf("p of %v = %v, by brute force %v", d, got, want)
		}
	})
}

func TestSampledTestIsCloseToTheExactOne(t *testing.T) {
	rng := newRand(1)
	for range 5 {
		d := make([]float64, 16)
		for i := range d {
			d[i] = rng.NormFloat64() + 0.4
		}
		exact := resample(d, 0, 0)
		below := 0
		const n = 50_000
		eachSubset(len(d), n, 9, func(subset []int) {
			var sum float64
			for _, i := range subset {
				sum += d[i]
			}
			if sum <= 0 {
				below++
			}
		})
		if got := 2 * float64(below+1) / (n + 1); math.Abs(got-exact.p) > 4*math.Sqrt(exact.p/n*2)+1e-4 {
			t.Errorf("p = %v by %d random subsets, %v by all", got, n, exact.p)
		}
	}
}

func TestIntervalAndPValueNeverContradictEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := Contrast(drawStudy(t, 5, 24), Question{Direction: HigherIsBetter, Resamples: 399})
		if err != nil {
			t.Fatal(err)
		}
		if excludes := !e.Interval.Contains(1); excludes != (e.P <= 0.05+1e-12) {
			t.Errorf("p = %v, interval %v", e.P, e.Interval)
		}
	})
}

func TestSubsets(t *testing.T) {
	if d := cmp.Diff([]float64{0, 1, 2, 3, 4, 5, 6, 7}, subsetSums(nil, []float64{1, 2, 4})); d != "" {
		t.Errorf("subsetSums (-want +got):\n%s", d)
	}
	var hits [70]int
	eachSubset(70, 4000, 1, func(subset []int) {
		var seen [2]uint64
		for _, i := range subset {
			hits[i]++
			seen[i/64] |= 1 << (i % 64)
		}
		if bits.OnesCount64(seen[0])+bits.OnesCount64(seen[1]) != len(subset) || len(subset) == 0 {
			t.Fatalf("subset %v is empty or has a member twice", subset)
		}
	})
	for i, n := range hits {
		if n < 1840 || n > 2160 { // five standard deviations
			t.Errorf("index %d is in %d of 4000 subsets, want about half", i, n)
		}
	}
}

func TestKthSmallest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 50).Draw(t, "values")
		k := rapid.IntRange(0, len(values)-1).Draw(t, "k")
		got := kthSmallest(values, k)
		below, equal := 0, 0
		for _, v := range values {
			if v < got {
				below++
			} else if v == got {
				equal++
			}
		}
		if k < below || k >= below+equal {
			t.Errorf("kthSmallest(%v, %d) = %v, which has %d below", values, k, got, below)
		}
	})
}

func TestEffectSurvivesJSON(t *testing.T) {
	for name, blocks := range map[string]int{"with limits": 8, "without limits": 3} {
		t.Run(name, func(t *testing.T) {
			e, err := Contrast(exponents(noiseModels[0].simulate(newRand(1), blocks, 0)),
				Question{Direction: HigherIsBetter, Scale: Difference})
			if err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if want := blocks == 3; strings.Contains(string(data),
				`"interval":{"low":null,"high":null,"confidence":0}`) != want {
				t.Errorf("JSON %s; null limits want %v", data, want)
			}
			var back Effect
			if err := json.Unmarshal(data, &back); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(e, back); d != "" {
				t.Errorf("after JSON (-want +got):\n%s", d)
			}
		})
	}
	if err := new(Interval).UnmarshalJSON([]byte(`{"low":"x"}`)); err == nil {
		t.Error("an interval with a text for a limit is read")
	}
}
