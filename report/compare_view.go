package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

type compareView struct {
	AName, BName string
	Warning      string // how far the comparison can be trusted, if limited
	NoVerdict    string
	Sentences    []string
	Differences  []Difference
}

func newCompareView(c Comparison, a record.Record, unit func(string) string) compareView {
	return compareView{AName: c.A.name(), BName: c.B.name(), Warning: c.warning(), NoVerdict: noVerdict,
		Sentences: c.sentences(a, unit), Differences: c.Differences}
}

func (c Compared) name() string {
	s := fmt.Sprintf("lab %s, measured %s, rackless %s", orDash(c.Lab), show.Time(c.Measured), orDash(c.Rackless))
	if c.Emulated {
		s += ", emulated"
	}
	if c.Failed > 0 {
		s += ", " + words.Count(c.Failed, "failed measurement")
	}
	return s
}

func (c Comparison) graveDifferences() int {
	return lists.Count(c.Differences, func(d Difference) bool { return d.Matters })
}

func (c Comparison) warning() string {
	switch n := c.graveDifferences(); {
	case c.A.Emulated != c.B.Emulated:
		return "One is emulated and the other is not: their figures are not compared. Nothing that an emulated lab " +
			"measures says anything about hardware."
	case n > 0:
		return fmt.Sprintf("The conditions differ in %s, listed below. What differs between the figures is no effect "+
			"of any one of them.", words.Count(n, "point"))
	}
	return ""
}

const noVerdict = "One run against one other has no interval: chance alone moves figures, and how far is not known. " +
	"For a verdict make a study (rackless study run)."

func comparedText(v *float64, s spread) string {
	if v == nil {
		return notRecorded
	}
	return s.figure(*v)
}

func (f ComparedFigure) ratioText() string {
	if f.Ratio == nil {
		return notRecorded
	}
	return ratioNumber(*f.Ratio)
}

// ratioNumber has three decimals: trailing zeros of a computed ratio are significant.
func ratioNumber(v float64) string {
	if v >= 100 {
		return show.Figure(v)
	}
	return fmt.Sprintf("%.3f", v)
}

// changeText has no more decimals than the figures.
func (f ComparedFigure) changeText() string {
	if f.Change == nil {
		return notRecorded
	}
	text := show.Number(*f.Change, 3, max(f.a.Decimals, f.b.Decimals))
	if *f.Change > 0 {
		text = "+" + text
	}
	return strings.Replace(text, "-", "−", 1)
}

func (c Comparison) sentences(a record.Record, unit func(string) string) []string {
	var out []string
	for _, h := range collect(a).headlines() {
		var ratios []float64
		var first *ComparedFigure
		for i := range c.Figures {
			f := &c.Figures[i]
			if f.Test == h.Test && f.Metric == h.Metric && f.Bytes == h.Bytes && f.Ratio != nil {
				ratios = append(ratios, *f.Ratio)
				first = cmp.Or(first, f)
			}
		}
		if first == nil {
			continue
		}
		m := bench.MetricOf(h.Metric)
		// For one pair, figures say more than their ratio. No single figure represents many pairs.
		if len(ratios) == 1 {
			out = append(out, fmt.Sprintf("%s, %s: %s -> %s %s, B/A %s", h.name(), m.Label,
				comparedText(first.A, first.a), comparedText(first.B, first.b), unit(m.Unit), first.ratioText()))
			continue
		}
		s := spreadOf(ratios)
		out = append(out, fmt.Sprintf("%s, %s, %d pairs: B/A %s (median; %s to %s)", h.name(), m.Label, len(ratios),
			ratioNumber(s.Median), ratioNumber(s.Min), ratioNumber(s.Max)))
	}
	return out
}
