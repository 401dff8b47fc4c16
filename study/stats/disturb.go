package stats

import (
	"fmt"
	"math"
	"slices"
)

// A RunValue is what one run gave, with what is needed to tell whether it was disturbed.
type RunValue struct {
	// Level only says which runs belong together. What it is called makes no difference.
	Level string
	// Value of the metric.
	Value float64
	// Noise is the noise floor that was measured with the run, more being worse; NaN where there is none.
	Noise float64
}

// A Disturbance is a run that something else seems to have moved.
type Disturbance struct {
	// Run is the index of the run.
	Run int `json:"run"`
	// By is what shows it: NoiseFloor or OwnValue.
	By Evidence `json:"by"`
	// Reason is a sentence for people.
	Reason string `json:"reason"`
}

// Evidence is what shows that a run was disturbed.
type Evidence string

// The kinds of evidence.
const (
	// NoiseFloor is evidence beside the result: such a run may be taken out.
	NoiseFloor Evidence = "noise floor"
	// OwnValue is the result itself: such a run deserves a remark, and a look.
	OwnValue Evidence = "value"
)

// A DisturbRule says what counts as an outlier. The zero value is a sensible rule.
type DisturbRule struct {
	// Scale of Value is Ratio unless set.
	Scale Scale
	// Score is the modified z score above which a run is an outlier; 0 means DefaultScore.
	Score float64
	// LeastValue and LeastNoise are deviations from the median that never count: of the value
	// relative (0.01) for Ratio and in its unit for Difference, of the noise in its unit.
	LeastValue, LeastNoise float64
}

const (
	// DefaultScore is more than the 3.5 that the literature advises: a run that is taken out
	// wrongly costs more than a noisy one that stays.
	DefaultScore = 5.0
	// MinRuns is how many runs a level needs before any of them can be called an outlier.
	MinRuns = 5
)

// Disturbed returns the runs whose noise floor is too high, or whose value is too far off, among
// the runs of the same level, in the order of the runs.
//
// Far off is a modified z score above the rule's: the distance from the median of the level, in
// units of 1.4826 times the median absolute deviation, which is the standard deviation of normal
// noise (Iglewicz and Hoaglin 1993, How to Detect and Handle Outliers, ASQC, volume 16). If that is
// 0 because most runs are equal, the mean absolute deviation times 1.2533 is taken, as there. The
// deviations of all levels are taken together: with a unit of its own a level that happens to look
// steady would lose more runs than the others.
//
// The rule does not know which level is which. Even so, take runs out by their noise floor only: to
// choose by the result makes false alarms more frequent where the noise is skewed
// (docs/statistics.md has the figures), and the test of Contrast needs no such help with heavy
// tails. Take the whole block out, or make it again, so that blocks stay complete.
func Disturbed(runs []RunValue, rule DisturbRule) ([]Disturbance, error) {
	if rule.Score == 0 {
		rule.Score = DefaultScore
	}
	least := rule.LeastValue
	if rule.Scale != Difference {
		rule.Scale = Ratio
		least = math.Log1p(least)
	}
	var values, noises grouped
	for i, r := range runs {
		v, err := level([]float64{r.Value}, rule.Scale)
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		values.add(i, r.Level, v)
		if !math.IsNaN(r.Noise) {
			noises.add(i, r.Level, r.Noise)
		}
	}
	var found []Disturbance
	for _, s := range noises.scores(rule.LeastNoise) {
		if s.score > rule.Score {
			found = append(found, Disturbance{s.run, NoiseFloor,
				fmt.Sprintf("its noise floor of %.4g is too high: the median of %d runs of its level is %.4g "+
					"(modified z score %.1f)",
					runs[s.run].Noise, s.runs, s.median, s.score)})
		}
	}
	for _, s := range values.scores(least) {
		if math.Abs(s.score) > rule.Score {
			if rule.Scale == Ratio {
				s.median = math.Exp(s.median)
			}
			found = append(found, Disturbance{s.run, OwnValue,
				fmt.Sprintf("its value of %.4g is an outlier: the median of %d runs of its level is %.4g (modified z "+
					"score %.1f)",
					runs[s.run].Value, s.runs, s.median, s.score)})
		}
	}
	slices.SortStableFunc(found, func(a, b Disturbance) int { return a.Run - b.Run })
	return found, nil
}

// grouped are values of runs by level.
type grouped struct {
	runs   []int
	levels []string
	values []float64
}

// add a value.
func (g *grouped) add(run int, level string, value float64) {
	g.runs, g.levels, g.values = append(g.runs, run), append(g.levels, level), append(g.values, value)
}

// scored is how far a run is off.
type scored struct {
	run    int
	score  float64 // modified z
	median float64 // of the level
	runs   int     // of the level
}

// scores are those of all runs whose deviation counts, and of whose level there are enough to tell.
func (g *grouped) scores(least float64) []scored {
	byLevel := make(map[string][]float64)
	for i, l := range g.levels {
		byLevel[l] = append(byLevel[l], g.values[i])
	}
	medians := make(map[string]float64)
	for l, values := range byLevel {
		medians[l] = median(values)
	}
	var deviations []float64
	for i, l := range g.levels {
		if len(byLevel[l]) >= MinRuns {
			deviations = append(deviations, math.Abs(g.values[i]-medians[l]))
		}
	}
	unit := 1.4826 * median(deviations)
	if unit == 0 {
		unit = 1.2533 * mean(deviations)
	}
	var out []scored
	for i, l := range g.levels {
		if d := g.values[i] - medians[l]; len(byLevel[l]) >= MinRuns && unit > 0 && math.Abs(d) > least {
			out = append(out, scored{g.runs[i], d / unit, medians[l], len(byLevel[l])})
		}
	}
	return out
}

// median of the values, which are left as they are; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
