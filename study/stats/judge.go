package stats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
)

// A Verdict is a verdict on B compared with A.
type Verdict string

// Verdicts of a comparison.
const (
	Better     Verdict = "better"
	Worse      Verdict = "worse"
	Equivalent Verdict = "equivalent"
	Undecided  Verdict = "undecided"
)

// A Judgement is a verdict with its reason.
type Judgement struct {
	Verdict Verdict `json:"verdict"`
	// P is corrected by Holm.
	P float64 `json:"p"`
	// Reason is a sentence.
	Reason string `json:"reason"`
}

// Holm corrects the p values of a family, so that the probability of even one false alarm stays below the level (Holm
// 1979, "A simple sequentially rejective multiple test procedure", Scandinavian J. of Statistics 6). It is valid for
// any dependence between the metrics. NaN counts as 1.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	adjusted := make([]float64, len(p))
	for i, v := range p {
		order[i] = i
		adjusted[i] = min(1, max(0, v))
		if v != v {
			adjusted[i] = 1
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(adjusted[i], adjusted[j]) })
	floor := 0.0
	for rank, i := range order {
		floor = max(floor, min(1, adjusted[i]*float64(len(p)-rank)))
		adjusted[i] = floor
	}
	return adjusted
}

// Judge gives a verdict on every effect of a family, which is read together, with p values corrected by Holm.
//
//  1. equivalent: the inner interval lies within the margin, or no block differs. This rule comes first, because an
//     effect that is certain but too small to matter does not matter.
//  2. better or worse: the corrected p value is at most 1 - Confidence, and the interval excludes
//     "no effect". The effect may still be smaller than the margin.
//  3. undecided: everything else. The reason says how to decide.
//
// Equivalence is not corrected: for each comparison, the probability of calling a difference that matters equivalent is
// at most 1 - Confidence.
func Judge(family []Effect) []Judgement {
	judgements := make([]Judgement, len(family))
	for i, adjusted := range Holm(lists.Map(family, func(e Effect) float64 { return e.P })) {
		judgements[i] = judge(family[i], adjusted, len(family))
	}
	return judgements
}

func judge(e Effect, adjusted float64, comparisons int) Judgement {
	alpha := 1 - e.Confidence
	j := Judgement{P: adjusted}
	significant := adjusted <= alpha+1e-12 && e.Interval.Bounded() && !e.Interval.Contains(e.NoEffect())
	switch {
	// Equivalence is checked first: a small effect that is certain still does not matter.
	case e.Margin > 0 && e.Inner.Bounded() && e.Inner.Within(e.Bounds()):
		j.Verdict = Equivalent
		j.Reason = "the effect is smaller than what matters"
		if significant {
			j.Reason = "there is an effect, and it is smaller than what matters"
		}
	case e.Inner.Bounded() && e.Inner.Low == e.NoEffect() && e.Inner.High == e.NoEffect():
		j.Verdict = Equivalent
		j.Reason = "no run differs"
	case significant:
		j.Verdict = Worse
		if (e.Estimate > e.NoEffect()) == (e.Direction == HigherIsBetter) {
			j.Verdict = Better
		}
		j.Reason = fmt.Sprintf("p = %.3g after correction for %s", adjusted, words.Count(comparisons, "comparison"))
	default:
		j.Verdict = Undecided
		j.Reason = undecided(e, adjusted, comparisons)
	}
	return j
}

func undecided(e Effect, adjusted float64, comparisons int) string {
	alpha := 1 - e.Confidence
	if least := MinBlocks(alpha, comparisons); e.Blocks < least {
		return fmt.Sprintf("%s cannot show an effect in %s: at least %d are needed", words.Count(e.Blocks, "block"),
			words.Count(comparisons, "comparison"), least)
	}
	// Too few resamples come first: no figure could change that.
	if e.SmallestP*float64(comparisons) > alpha {
		return fmt.Sprintf("too few resamples for %s: ask for at least %.0f", words.Count(comparisons, "comparison"),
			2*float64(comparisons)/alpha)
	}
	if adjusted <= alpha {
		return fmt.Sprintf("p = %.3g, but the interval holds no effect too: more blocks would decide it", adjusted)
	}
	if e.P <= alpha {
		return fmt.Sprintf("p = %.3g alone, but %.3g after correction for %s: more blocks would decide it", e.P,
			adjusted, words.Count(comparisons, "comparison"))
	}
	if e.Margin > 0 {
		return "the interval holds no effect and effects that matter: more blocks would narrow it"
	}
	return "the interval holds no effect, and without a margin nothing is equivalent"
}

// Moved returns the indexes of the controls that moved, which makes a comparison confounded.
//
// Controls are a family of their own, so that adding them does not weaken the comparison. Without Holm's correction,
// one of ten sound studies with two controls would be discarded. One that moved by less than its margin has not moved.
func Moved(controls []Effect) []int {
	var moved []int
	for i, j := range Judge(controls) {
		if j.Verdict == Better || j.Verdict == Worse {
			moved = append(moved, i)
		}
	}
	return moved
}

// An Interval is the range from Low to High; without limits, -Inf to +Inf for a difference and 0 to +Inf for a ratio.
type Interval struct {
	Low, High float64
	// Confidence is at least the requested one, because few blocks allow only some steps. It is 0 if there are too few
	// blocks, or if the interval is not an estimate.
	Confidence float64
}

// Bounded reports whether the interval has limits.
func (i Interval) Bounded() bool { return !math.IsInf(i.Low, -1) && !math.IsInf(i.High, 1) }

// Contains reports whether v lies in the interval, with its limits.
func (i Interval) Contains(v float64) bool { return i.Low <= v && v <= i.High }

// Within reports whether the interval lies within o.
func (i Interval) Within(o Interval) bool { return o.Low <= i.Low && i.High <= o.High }

// intervalJSON has null for a missing limit, because JSON has no infinity.
type intervalJSON struct {
	Low        *float64 `json:"low"`
	High       *float64 `json:"high"`
	Confidence float64  `json:"confidence"`
}

// MarshalJSON writes null for a missing limit.
func (i Interval) MarshalJSON() ([]byte, error) {
	out := intervalJSON{Confidence: i.Confidence}
	if i.Bounded() {
		out.Low, out.High = &i.Low, &i.High
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads null as -Inf or +Inf, even for a ratio.
func (i *Interval) UnmarshalJSON(data []byte) error {
	var in intervalJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("interval: %w", err)
	}
	*i = Interval{Low: math.Inf(-1), High: math.Inf(1), Confidence: in.Confidence}
	if in.Low != nil {
		i.Low = *in.Low
	}
	if in.High != nil {
		i.High = *in.High
	}
	return nil
}

// MedianInterval returns a confidence interval for the median of the distribution of values. The limits are two of the
// values and hold for any distribution (David and Nagaraja 2003, Order Statistics, 3rd edition, section 7.1). With
// fewer than 6 values, 95 % has no limits.
func MedianInterval(values []float64, confidence float64) Interval {
	n := len(values)
	sorted := slices.Sorted(slices.Values(values))
	out := Interval{Low: math.Inf(-1), High: math.Inf(1)}
	// At most k of n values lie below the median, as in n tosses of a coin.
	share, term := 0.0, math.Exp2(-float64(n))
	for k := 0; k < n/2; k++ {
		if share += term; 2*share > 1-confidence+1e-12 {
			break
		}
		out = Interval{Low: sorted[k], High: sorted[n-1-k], Confidence: 1 - 2*share}
		term *= float64(n-k) / float64(k+1)
	}
	return out
}
