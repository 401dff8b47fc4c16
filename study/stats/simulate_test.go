package stats

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
)

type noiseModel struct {
	name string
	// run is a single run's noise, on the internal scale.
	run    func(*rand.Rand) float64
	spread float64
	// machine is the noise of all runs by time (0 to 1), or nil.
	machine func(*rand.Rand) func(time float64) float64
}

func normal(rng *rand.Rand) float64 { return 0.03 * rng.NormFloat64() }

// student3 has 3 degrees of freedom, and a standard deviation of 0.03.
func student3(rng *rand.Rand) float64 {
	z, x, y, w := rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()
	return 0.03 / math.Sqrt(3) * z / math.Sqrt((x*x+y*y+w*w)/3)
}

func skewed(rng *rand.Rand) float64 { return 0.03 * (rng.ExpFloat64() - 1) }

var noiseModels = []noiseModel{
	{name: "normal", run: normal, spread: 0.03},
	{name: "skewed", run: skewed, spread: 0.03},
	{name: "student t3", run: student3, spread: 0.03},
	{name: "normal, AR(1) drift", run: normal, spread: 0.03, machine: func(rng *rand.Rand) func(float64) float64 {
		// Correlated by 0.9, with drift three times the noise.
		x := 0.09 * rng.NormFloat64()
		return func(float64) float64 {
			x = 0.9*x + 0.09*math.Sqrt(1-0.81)*rng.NormFloat64()
			return x
		}
	}},
	{name: "normal, trend of 30 %", run: normal, spread: 0.03, machine: func(*rand.Rand) func(float64) float64 {
		return func(time float64) float64 { return 0.3 * time }
	}},
}

// simulate has two runs of each level per block, A B B A or B A A B, as logarithms with effect added for B.
func (m noiseModel) simulate(rng *rand.Rand, blocks int, effect float64) []Block {
	machine := func(float64) float64 { return 0 }
	if m.machine != nil {
		machine = m.machine(rng)
	}
	study := make([]Block, blocks)
	for i := range study {
		first := rng.IntN(2)
		for place := range 4 {
			v := m.run(rng) + machine(float64(4*i+place)/float64(4*blocks))
			if isB := place == 1 || place == 2; isB != (first == 1) {
				study[i].B = append(study[i].B, v+effect)
			} else {
				study[i].A = append(study[i].A, v)
			}
		}
	}
	return study
}

func exponents(study []Block) []Block {
	for _, b := range study {
		for _, values := range [][]float64{b.A, b.B} {
			for i := range values {
				values[i] = math.Exp(values[i])
			}
		}
	}
	return study
}

// blockSpread is without drift. Each difference is of means of 2 runs: sqrt(1/2 + 1/2).
func (m noiseModel) blockSpread() float64 { return m.spread }

// tolerance is 2.6 standard errors, which 1 of 200 exceeds.
func tolerance(share float64, n int) float64 {
	return 2.6 * math.Sqrt(share*(1-share)/float64(n))
}

var long = flag.Bool("long", false, "simulate four times as many studies")

// studies returns more if the tests are long, for a smaller tolerance.
func studies(full int) int {
	switch {
	case testing.Short():
		return max(100, full/10)
	case !*long:
		return max(100, full/4)
	}
	return full
}

var question = Question{Direction: HigherIsBetter, Margin: 0.02, Resamples: 2000, Seed: 7}

func TestSameAgainstSameRaisesFewFalseAlarms(t *testing.T) {
	t.Parallel()
	n := studies(1000)
	t.Logf("%d simulated studies each, margin 2 %%; false alarms are \"better\" or \"worse\", and at most 5 %% + "+
		"%.1f %% are allowed", n, 100*tolerance(0.05, n))
	for _, blocks := range []int{6, 12, 20} {
		for _, m := range noiseModels {
			rng := newRand(uint64(blocks))
			counts := make(map[Verdict]int)
			for range n {
				e, err := Contrast(exponents(m.simulate(rng, blocks, 0)), question)
				if err != nil {
					t.Fatal(err)
				}
				counts[Judge([]Effect{e})[0].Verdict]++
			}
			alarms := float64(counts[Better]+counts[Worse]) / float64(n)
			t.Logf("%2d blocks, %-22s false alarms %4.1f %% (better %.1f, worse %.1f), equivalent %4.1f %%, "+
				"undecided %4.1f %%", blocks, m.name, 100*alarms,
				percent(counts[Better], n), percent(counts[Worse], n), percent(counts[Equivalent], n),
				percent(counts[Undecided], n))
			if alarms > 0.05+tolerance(0.05, n) {
				t.Errorf("%d blocks, %s: %.1f %% false alarms, want at most 5 %%", blocks, m.name, 100*alarms)
			}
		}
	}
}

func percent(count, n int) float64 { return 100 * float64(count) / float64(n) }

func TestFamilyOfComparisonsRaisesFewFalseAlarms(t *testing.T) {
	t.Parallel()
	n := studies(2000)
	const blocks, metrics = 10, 10
	m := noiseModels[2]
	rng := newRand(3)
	alarmed, uncorrected := 0, 0
	for range n {
		var family []Effect
		low := false
		for range metrics {
			e, err := Contrast(exponents(m.simulate(rng, blocks, 0)), Question{Direction: LowerIsBetter, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			family = append(family, e)
			low = low || e.P <= 0.05
		}
		any := false
		for _, j := range Judge(family) {
			any = any || j.Verdict == Better || j.Verdict == Worse
		}
		if any {
			alarmed++
		}
		if low {
			uncorrected++
		}
	}
	t.Logf("%d studies of %d blocks and %d metrics, %s: %.1f %% with a false alarm (without Holm's correction %.1f %%)",
		n, blocks, metrics, m.name, percent(alarmed, n), percent(uncorrected, n))
	if share := float64(alarmed) / float64(n); share > 0.05+tolerance(0.05, n) {
		t.Errorf("%.1f %% of families with a false alarm, want at most 5 %%", 100*share)
	}
}

func TestDifferenceThatMattersIsRarelyCalledEquivalent(t *testing.T) {
	t.Parallel()
	// The worst true effect equals the margin.
	n := studies(1000)
	for _, m := range noiseModels {
		rng := newRand(11)
		wrong := 0
		for range n {
			e, err := Contrast(exponents(m.simulate(rng, 12, math.Log(1.02))), question)
			if err != nil {
				t.Fatal(err)
			}
			if Judge([]Effect{e})[0].Verdict == Equivalent {
				wrong++
			}
		}
		t.Logf("12 blocks, %-22s a ratio of 1.02 with a margin of 2 %%: called equivalent %.1f %%", m.name,
			percent(wrong, n))
		if share := float64(wrong) / float64(n); share > 0.05+tolerance(0.05, n) {
			t.Errorf("%s: %.1f %% called equivalent, want at most 5 %%", m.name, 100*share)
		}
	}
}
