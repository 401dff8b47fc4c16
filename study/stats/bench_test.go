package stats

import (
	"math"
	"testing"
)

func BenchmarkContrast16BlocksExact(b *testing.B) {
	study := exponents(noiseModels[0].simulate(newRand(1), 16, 0))
	for b.Loop() {
		if _, err := Contrast(study, Question{Direction: HigherIsBetter}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkContrast40Blocks10000Resamples(b *testing.B) {
	study := exponents(noiseModels[0].simulate(newRand(1), 40, 0))
	for b.Loop() {
		if _, err := Contrast(study, Question{Direction: HigherIsBetter}); err != nil {
			b.Fatal(err)
		}
	}
}

// histograms has two runs of each level in a block, with noise between blocks.
func histograms(tb testing.TB, seed uint64, blocks, samples int, factor float64) []HistogramBlock {
	tb.Helper()
	rng := newRand(seed)
	study := make([]HistogramBlock, blocks)
	for i := range study {
		machine := math.Exp(0.1 * rng.NormFloat64())
		for range 2 {
			for side, runs := range []*[]*Histogram{&study[i].A, &study[i].B} {
				h := NewHistogram()
				run := machine * math.Exp(0.03*rng.NormFloat64())
				if side == 1 {
					run *= factor
				}
				for range samples {
					if err := h.Record(5 * run * math.Exp(0.3*rng.NormFloat64())); err != nil {
						tb.Fatal(err)
					}
				}
				*runs = append(*runs, h)
			}
		}
	}
	return study
}

func BenchmarkQuantileContrast40Blocks10000Resamples(b *testing.B) {
	study := histograms(b, 1, 40, 2000, 1)
	for b.Loop() {
		if _, err := QuantileContrast(study, 0.99, Question{Direction: LowerIsBetter}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkQuantileContrast16BlocksExact(b *testing.B) {
	study := histograms(b, 1, 16, 2000, 1)
	for b.Loop() {
		if _, err := QuantileContrast(study, 0.99, Question{Direction: LowerIsBetter}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDetectable12Blocks(b *testing.B) {
	for b.Loop() {
		Power{Spread: 0.03}.Detectable(12)
	}
}

// BenchmarkReportOfAMillionSamples has 1,040,000 latencies, three quantiles and twelve metrics of 40 blocks.
func BenchmarkReportOfAMillionSamples(b *testing.B) {
	for b.Loop() {
		const blocks = 40
		study := histograms(b, 1, blocks, 6500, 1.05)
		merged := [2]*Histogram{NewHistogram(), NewHistogram()}
		for _, block := range study {
			for side, runs := range [][]*Histogram{block.A, block.B} {
				for i, h := range runs {
					data, err := h.Encode()
					if err != nil {
						b.Fatal(err)
					}
					if runs[i], err = DecodeHistogram(data); err != nil {
						b.Fatal(err)
					}
					if err := merged[side].Merge(runs[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		var family []Effect
		for _, q := range []float64{0.5, 0.99, 0.999} {
			e, err := QuantileContrast(study, q, Question{Direction: LowerIsBetter, Margin: 0.02})
			if err != nil {
				b.Fatal(err)
			}
			family = append(family, e)
		}
		rng := newRand(2)
		for range 12 {
			metric := exponents(noiseModels[2].simulate(rng, blocks, 0))
			q := Question{Direction: HigherIsBetter, Margin: 0.02}
			e, err := Contrast(metric, q)
			if err != nil {
				b.Fatal(err)
			}
			family = append(family, e)
			if _, err := Drifting(metric, q); err != nil {
				b.Fatal(err)
			}
			Power{Spread: e.Spread, Comparisons: 15}.Detectable(blocks)
		}
		Judge(family)
		merged[0].Distribution()
		merged[1].Distribution()
	}
}
