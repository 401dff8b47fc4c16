package studyview

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

// groups are the comparisons by what they compare.
func groups(all []study.Comparison) (by group.By[study.Quantity, *study.Comparison]) {
	for i := range all {
		by.Add(all[i].Quantity, &all[i])
	}
	return by
}

// forests draws the effects with their intervals, a picture for each metric: a reader compares settings by one metric
// at a time, and only effects on one metric can share an axis.
func (v *view) forests() []chart.Chart {
	var out []chart.Chart
	by := groups(v.Result.Comparisons)
	for _, m := range by.Keys {
		// Effects by ratio and by difference cannot share an axis.
		for _, s := range []stats.Scale{stats.Ratio, stats.Difference} {
			part := slices.DeleteFunc(slices.Clone(by.Of(m)), func(c *study.Comparison) bool {
				return (c.Effect != nil && c.Effect.Scale == stats.Difference) != (s == stats.Difference)
			})
			if len(part) > 0 {
				out = append(out, v.forest(fmt.Sprintf("effect-%d", len(out)+1), m, part))
			}
		}
	}
	return out
}

// forest draws comparisons of one metric below each other, on one axis.
func (v *view) forest(id string, m study.Quantity, all []*study.Comparison) chart.Chart {
	c := canvas{chart.New(id, nameOf(m), chart.Width)}
	a := effectAxis(all)
	drawn := 0
	for i, x := range all {
		if i > 0 {
			c.Y += 6
		}
		c.Paragraph("", chart.TextFont, levels(x))
		if x.Where != "" {
			c.Note("at " + x.Where)
		}
		e := x.Effect
		if e == nil {
			c.Note("not compared: " + x.Problem)
			continue
		}
		drawn++
		verdict := verdictOf(x)
		says := verdict.Word + ": " + x.Text()
		if len(x.Confounded) > 0 {
			says += ", confounded: do not rely on it"
		}
		c.Paragraph("strong", show.Font{Size: 12, Bold: true}, verdict.Sign+" "+says)
		top, middle := c.Strip(a, 20)
		if e.Margin > 0 {
			b := e.Bounds()
			low, high := a.At(max(b.Low, a.Lo)), a.At(min(b.High, a.Hi))
			c.Rect("margin", low, top, high-low, 20, "")
		}
		c.Path("no-effect", chart.Path("M%s %sv20", a.At(e.NoEffect()), top), "")
		// An interval without bounds goes over the whole plot: so few blocks exclude nothing.
		class, d := "interval open", chart.Path("M%s %sH%s", a.From-14, middle, a.To+14)
		if e.Interval.Bounded() { // with ends, so that a narrow interval can still be seen
			low, high := a.At(max(e.Interval.Low, a.Lo)), a.At(min(e.Interval.High, a.Hi))
			class, d = "interval", chart.Path("M%s %sH%sM%s %sv10M%s %sv10", low, middle, high, low, middle-5, high,
				middle-5)
		}
		c.Path(class+" v-"+verdict.Class, d, "")
		c.sign(verdict, a.At(e.Estimate), middle, fmt.Sprintf("%s, %s", levels(x), says))
	}
	// The axis says in words which side is better: for a latency it is the left one.
	if drawn > 0 {
		c.XAxis(a)
		left, right := "← lower, better", "higher, worse →"
		// All have the same metric, and so the same better side.
		if all[0].Better == stats.HigherIsBetter {
			left, right = "← lower, worse", "higher, better →"
		}
		c.Y += chart.LineHeight
		c.Text("tick", chart.Margin, c.Y-4, left)
		c.Text("tick r", chart.Width-chart.Margin, c.Y-4, right)
		if unit := v.unit(m.Unit); !a.Log && unit != "" {
			c.Text("tick m", chart.Width/2, c.Y-4, show.Font{Size: 11}.Fit("in "+unit, chart.Width/3))
		}
	}
	c.Desc = fmt.Sprintf("Effects on %s with their intervals, %s. A vertical line stands for no effect, the band "+
		"around it for effects too small to matter. The figures are in the table of comparisons below.",
		nameOf(m), words.Count(drawn, "comparison"))
	return c.Done()
}

// sign draws the verdict at the estimate: a disc of its colour with its sign in it. The signs are
// paths and not letters, because not every font has them.
func (c canvas) sign(v verdict, x, y float64, title string) {
	c.Path("disc f-"+v.Class, chart.Circle(x, y, 7), title)
	glyph := chart.Path("M%s %sc0 -3.4 5 -3.4 5 0c0 1.9 -2.5 1.6 -2.5 3.4m0 1.6v1.2", x-2.5, y-1.6) // a question mark
	switch v.Class {
	case "better":
		glyph = chart.Path("M%s %sl2.5 3l4.5 -6", x-3.5, y+0.5)
	case "worse":
		glyph = chart.Path("M%s %sl6 6m0 -6l-6 6", x-3, y-3)
	case "equivalent":
		glyph = chart.Path("M%s %sh7m-7 4h7", x-3.5, y-2)
	}
	c.Path("glyph", glyph, "")
}

// effectAxis holds the effects, their intervals and their margins: logarithmic for ratios, since
// half is as far from one as double.
func effectAxis(all []*study.Comparison) chart.Axis {
	lo, hi := math.Inf(1), math.Inf(-1)
	ratio := true
	include := func(values ...float64) {
		for _, v := range values {
			if finite(v) {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	for _, x := range all {
		if e := x.Effect; e != nil {
			ratio = e.Scale != stats.Difference
			// No effect is always on the axis: whether an interval crosses it is what the picture is for.
			include(e.Estimate, e.NoEffect(), e.Bounds().Low, e.Bounds().High)
			if e.Interval.Bounded() {
				include(e.Interval.Low, e.Interval.High)
			}
		}
	}
	if lo > hi { // nothing is compared
		lo, hi = 1, 1
	}
	a := chart.Axis{Lo: lo, Hi: hi, Log: ratio, Label: ratioLabel}
	if !ratio {
		pad := cmp.Or(0.05*(hi-lo), 1)
		a.Lo, a.Hi = lo-pad, hi+pad
		a.Label, a.Candidates = signed, chart.Steps(a.Lo, a.Hi)
		return a.Over(chart.Inset, chart.Width-chart.Inset)
	}
	a.Lo = max(a.Lo, 1e-15) // the logarithm of an underflow is none
	pad := max(math.Pow(a.Hi/a.Lo, 0.05), 1.001)
	a.Lo, a.Hi = a.Lo/pad, a.Hi*pad
	a.Candidates = chart.LogTicks(a.Lo, a.Hi)
	return a.Over(chart.Inset, chart.Width-chart.Inset)
}

// ratioLabel writes a ratio as study's texts do: per cent, and a factor where per cent would be hard to read.
func ratioLabel(v float64) string {
	switch {
	case math.Abs(v-1) < 1e-9:
		return "0%"
	case v >= 9.999:
		return "x" + show.Short(v)
	case v < 0.1001:
		return "/" + show.Short(1/v)
	}
	return signed(100*(v-1)) + "%"
}

// signed writes a figure with its sign; zero has none.
func signed(v float64) string {
	v = math.Round(v*1e9) / 1e9 // sums of steps are not exact
	switch {
	case v == 0: // also the negative one
		return "0"
	case v > 0:
		return "+" + show.Short(v)
	}
	return show.Short(v)
}
