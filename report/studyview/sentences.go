package studyview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

func (src *source) heading() string { return cmp.Or(src.Result.Question, "Study "+src.Result.Study) }

func (src *source) tally() string {
	var parts []string
	all := src.Result.Comparisons
	// The sentence reads alike in every study.
	for _, word := range []string{"better", "worse", "equivalent", "undecided", "not compared"} {
		n := 0
		for i := range all {
			if verdictOf(&all[i]).Word == word {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	s := words.Count(len(all), "comparison")
	if len(parts) > 0 {
		s += ": " + strings.Join(parts, ", ")
	}
	return s + "."
}

func (src *source) counts() string {
	n := src.Result.Runs
	s := fmt.Sprintf("%s: %d done", words.Count(n.Done+n.Failed+n.Disturbed, "run"), n.Done)
	if n.Failed > 0 {
		s += fmt.Sprintf(", %d failed", n.Failed)
	}
	if n.Disturbed > 0 {
		s += fmt.Sprintf(", %d disturbed and not counted", n.Disturbed)
	}
	s += fmt.Sprintf("; %s complete", words.Count(src.Result.Blocks, "block"))
	if d := time.Duration(src.Result.Seconds * float64(time.Second)); d > 0 {
		s += ", in " + durationText(d)
	}
	if first := src.Data.Began(); !first.IsZero() {
		s += ", begun " + show.Time(first)
	}
	return s + "."
}

func durationText(d time.Duration) string {
	switch minutes := int(d.Round(time.Minute) / time.Minute); {
	// Rounding 95 s to "2 min" would lose too much.
	case d < 100*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case minutes < 100:
		return fmt.Sprintf("%d min", minutes)
	default:
		return fmt.Sprintf("%d h %d min", minutes/60, minutes%60)
	}
}

func percent(share float64) string { return show.Figure(100*share) + "%" }

func (src *source) rule() string {
	s := fmt.Sprintf("Intervals have a confidence of %s; p is corrected for the number of comparisons.",
		percent(src.Result.Confidence))
	if src.Result.Margin > 0 {
		return s + fmt.Sprintf(" Differences within %s do not matter.", percent(src.Result.Margin))
	}
	return s
}

// nameOf returns text such as "ib_write_bw, 64 KiB: bw average".
func nameOf(q study.Quantity) string {
	name := q.Test
	if q.Bytes > 0 {
		name += ", " + show.Size(q.Bytes)
	}
	return name + ": " + strings.ReplaceAll(q.Metric, "_", " ")
}

// levels returns text such as "placement: pin against default".
func (src *source) levels(c *study.Comparison) string {
	a, b := src.names(c)
	return fmt.Sprintf("%s: %s against %s", c.Factor, b, a)
}

func (src *source) names(c *study.Comparison) (a, b string) {
	return src.Data.Spec.LevelName(c.Factor, c.A), src.Data.Spec.LevelName(c.Factor, c.B)
}

// constants returns a sentence, or "".
func (src *source) constants() string {
	all := src.Data.Spec.Constants()
	if len(all) == 0 {
		return ""
	}
	return "The same in all runs: " + strings.Join(all, ", ") + "."
}

func pText(c *study.Comparison) string {
	switch {
	case c.Judged == nil:
		return "–"
	// Smaller digits only reflect the number of runs.
	case c.Judged.P < 0.0001:
		return "<0.0001"
	}
	return show.Short(c.Judged.P)
}

// remarks omits confounding, which is shown with the verdict.
func remarks(c *study.Comparison) []string {
	var out []string
	switch {
	case c.Judged == nil:
		out = append(out, c.Problem)
	case c.Judged.Verdict == stats.Undecided:
		out = append(out, c.Judged.Reason)
	}
	out = append(out, c.Drift...)
	if c.Lost > 0 {
		out = append(out, words.Count(c.Lost, "block")+" without a figure of both levels")
	}
	return out
}

func (src *source) notes(all []study.Comparison) []string {
	var of group.By[string, *study.Comparison]
	for i := range all {
		for _, r := range remarks(&all[i]) {
			of.Add(r, &all[i])
		}
	}
	var out []string
	for _, r := range of.Keys {
		c := of.Of(r)[0]
		// Forty equal lines would hide a different one.
		_, b := src.names(c)
		who := fmt.Sprintf("%s, %s %s", nameOf(c.Quantity), c.Factor, b)
		switch n := len(of.Of(r)); {
		case n > 1:
			who = fmt.Sprintf("%d comparisons", n)
		case c.Where != "":
			who += " at " + c.Where
		}
		out = append(out, who+": "+r)
	}
	return out
}

func (src *source) made() []setting {
	s := src.Data.Spec
	out := []setting{{"Study", s.Name}}
	for _, f := range s.Factors {
		if len(f.Levels) == 1 {
			out = append(out, setting{"Constant: " + f.Name, f.Levels[0]})
			continue
		}
		levels := slices.Clone(f.Levels)
		for i, l := range levels {
			if name := s.LevelName(f.Name, l); name != l {
				levels[i] = fmt.Sprintf("%s (%s)", name, l)
			}
		}
		out = append(out, setting{"Varied: " + f.Name, strings.Join(levels, ", ")})
	}
	for _, m := range s.Measure {
		text := m.Key()
		if m.Bytes > 0 {
			text = m.Test + ", " + show.Size(m.Bytes)
		}
		if m.Iterations > 0 {
			text += fmt.Sprintf(", %d iterations", m.Iterations)
		}
		if m.Seconds > 0 {
			text += fmt.Sprintf(", %d s", m.Seconds)
		}
		if len(m.Metrics) > 0 {
			text += "; compared: " + strings.ReplaceAll(strings.Join(m.Metrics, ", "), "_", " ")
		}
		name := "Measured"
		if m.Control {
			name = "Control"
		}
		out = append(out, setting{name, text})
	}
	design := "every combination of levels"
	if s.Design == study.DesignHalf {
		design = "half of the combinations of levels"
	}
	order := fmt.Sprintf("blocks of %s, twice each, in random order and the same order backwards; seed %d",
		words.Count(len(s.Cells()), "cell")+" ("+design+")", s.Seed)
	// Imported runs were not made as blocks, which protect against drift.
	if s.Imported != "" {
		order = fmt.Sprintf("not known: imported (%s); blocks are the numbers of repeats", s.Imported)
	}
	out = append(out, setting{"Order", order}, setting{"Judged", src.rule()})
	if s.Lab != "" {
		out = append(out, setting{"Lab", s.Lab})
	}
	if len(s.Pair) == 2 {
		out = append(out, setting{"Between", fmt.Sprintf("%s (client) and %s (server)", s.Pair[0], s.Pair[1])})
	}
	return out
}
