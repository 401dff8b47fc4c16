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

type canvas struct{ *chart.Canvas }

// maxDots limits the runs of a cell. Of more, every second, third, ... by size is drawn, which keeps the shape.
const maxDots = 400

func (src *source) dots() []chart.Chart {
	var out []chart.Chart
	for _, m := range groups(src.Result.Comparisons).Keys {
		var all []*study.Series
		lo, hi := math.Inf(1), math.Inf(-1)
		for i := range src.Result.Series {
			s := &src.Result.Series[i]
			if m == s.Quantity && finite(s.Low) && finite(s.High) && finite(s.Median) {
				all = append(all, s)
				lo, hi = min(lo, s.Low), max(hi, s.High)
			}
		}
		if len(all) == 0 {
			continue
		}
		unit := src.unit(m.Unit)
		c := canvas{chart.New(fmt.Sprintf("runs-%d", len(out)+1), nameOf(m), chart.Width)}
		a := chart.ValueAxis(lo, hi).Over(chart.Inset, chart.Width-chart.Inset)
		total := 0
		for i, s := range all {
			if i > 0 {
				c.Y += 4
			}
			total += len(s.Values)
			c.Paragraph("", chart.TextFont, s.Cell)
			c.Note(fmt.Sprintf("median %s %s; %s to %s in %s", show.Figure(s.Median), unit,
				show.Figure(s.Low), show.Figure(s.High), words.Count(len(s.Values), "run")))
			c.dotStrip(a, s, unit)
		}
		// With one axis, the strips can be compared.
		c.XAxis(a)
		c.AxisName(a.Unit(unit))
		scale := "linear"
		if a.Log {
			scale = "logarithmic"
		}
		c.Desc = fmt.Sprintf("A dot for each of %s that count, by cell, with a line at the median: %s in %s, %s scale.",
			words.Count(total, "run"), nameOf(m), unit, scale)
		out = append(out, c.Done())
	}
	return out
}

func (c canvas) dotStrip(a chart.Axis, s *study.Series, unit string) {
	_, middle := c.Strip(a, 24)
	every := (len(s.Values) + maxDots - 1) / maxDots
	order := make([]int, len(s.Values))
	for i := range order {
		order[i] = i
	}
	// By value, the extremes and the shape remain if runs are left out; the order of time is in the titles.
	if every > 1 {
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(s.Values[i], s.Values[j]) })
	}
	for n, i := range order {
		value := s.Values[i]
		if n%every != 0 || !finite(value) {
			continue
		}
		// Equal runs can be told apart by their height, which has no meaning.
		y := middle + float64(n*5%9-4)*2
		c.Path("dot", chart.Circle(a.At(value), y, 2.6),
			fmt.Sprintf("block %d: %s %s", s.Blocks[i], show.Figure(value), unit))
	}
	c.Path("median", chart.Path("M%s %sv28", a.At(s.Median), middle-14),
		fmt.Sprintf("median %s %s", show.Figure(s.Median), unit))
}

// maxLines is the most that can be told apart.
const maxLines = 6

// distributions draws the pictures of one test with the same axes.
func (src *source) distributions() []chart.Chart {
	type key struct {
		test  string
		bytes int64
	}
	var by group.By[key, chart.Distribution]
	for i := range src.Result.Series {
		if s := &src.Result.Series[i]; len(s.Quantiles) > 1 {
			k := key{s.Test, s.Bytes}
			n := len(by.Of(k)) % maxLines
			by.Add(k, chart.Distribution{Series: chart.Series{Name: s.Cell, Color: n, Dash: n, Marker: n},
				Points: s.Quantiles, Title: func(p stats.Point) string { return src.latencyTitle(s, p) }})
		}
	}
	var out []chart.Chart
	for _, k := range by.Keys {
		all := by.Of(k)
		parts := (len(all) + maxLines - 1) / maxLines
		n := 0
		for part := range slices.Chunk(all, maxLines) {
			n++
			title := k.test
			if k.bytes > 0 {
				title += ", " + show.Size(k.bytes)
			}
			if parts > 1 {
				title += fmt.Sprintf(" (%d of %d)", n, parts)
			}
			c := chart.New(fmt.Sprintf("latency-%d", len(out)+1), title, chart.Width)
			out = append(out, c.Latencies(" of "+title, src.unit("us"), part, all))
		}
	}
	return out
}

func (src *source) latencyTitle(s *study.Series, p stats.Point) string {
	return fmt.Sprintf("%s: %s of %d are at most %s %s", s.Cell, percent(p.Quantile), s.Count, show.Figure(p.Us),
		src.unit("us"))
}

func groups(all []study.Comparison) (by group.By[study.Quantity, *study.Comparison]) {
	for i := range all {
		by.Add(all[i].Quantity, &all[i])
	}
	return by
}

// forests draws one picture for each metric, because only its effects can share an axis.
func (src *source) forests() []chart.Chart {
	var out []chart.Chart
	by := groups(src.Result.Comparisons)
	for _, m := range by.Keys {
		for _, s := range []stats.Scale{stats.Ratio, stats.Difference} {
			part := slices.DeleteFunc(slices.Clone(by.Of(m)), func(c *study.Comparison) bool {
				return (c.Effect != nil && c.Effect.Scale == stats.Difference) != (s == stats.Difference)
			})
			if len(part) > 0 {
				out = append(out, src.forest(fmt.Sprintf("effect-%d", len(out)+1), m, part))
			}
		}
	}
	return out
}

func (src *source) forest(id string, m study.Quantity, all []*study.Comparison) chart.Chart {
	c := canvas{chart.New(id, nameOf(m), chart.Width)}
	a := effectAxis(all)
	drawn := 0
	for i, x := range all {
		if i > 0 {
			c.Y += 6
		}
		c.Paragraph("", chart.TextFont, src.levels(x))
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
		// Too few blocks exclude nothing.
		class, d := "interval open", chart.Path("M%s %sH%s", a.From-14, middle, a.To+14)
		if e.Interval.Bounded() { // ends make a narrow interval visible
			low, high := a.At(max(e.Interval.Low, a.Lo)), a.At(min(e.Interval.High, a.Hi))
			class, d = "interval", chart.Path("M%s %sH%sM%s %sv10M%s %sv10", low, middle, high, low, middle-5, high,
				middle-5)
		}
		c.Path(class+" v-"+verdict.Class, d, "")
		c.sign(verdict, a.At(e.Estimate), middle, fmt.Sprintf("%s, %s", src.levels(x), says))
	}
	// For a latency, the left side is the better one.
	if drawn > 0 {
		c.XAxis(a)
		left, right := "← lower, better", "higher, worse →"
		if all[0].Better == stats.HigherIsBetter {
			left, right = "← lower, worse", "higher, better →"
		}
		c.Y += chart.LineHeight
		c.Text("tick", chart.Margin, c.Y-4, left)
		c.Text("tick r", chart.Width-chart.Margin, c.Y-4, right)
		if unit := src.unit(m.Unit); !a.Log && unit != "" {
			c.Text("tick m", chart.Width/2, c.Y-4, show.Font{Size: 11}.Fit("in "+unit, chart.Width/3))
		}
	}
	c.Desc = fmt.Sprintf("Effects on %s with their intervals, %s. A vertical line stands for no effect, the band "+
		"around it for effects too small to matter. The figures are in the table of comparisons below.",
		nameOf(m), words.Count(drawn, "comparison"))
	return c.Done()
}

// sign uses paths, because not every font has these characters.
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

// effectAxis is logarithmic for ratios: half is as far from one as double.
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
			// The picture shows whether an interval crosses the value of no effect.
			include(e.Estimate, e.NoEffect(), e.Bounds().Low, e.Bounds().High)
			if e.Interval.Bounded() {
				include(e.Interval.Low, e.Interval.High)
			}
		}
	}
	if lo > hi { // no effects
		lo, hi = 1, 1
	}
	a := chart.Axis{Lo: lo, Hi: hi, Log: ratio, Label: ratioLabel}
	if !ratio {
		pad := cmp.Or(0.05*(hi-lo), 1)
		a.Lo, a.Hi = lo-pad, hi+pad
		a.Label, a.Candidates = signed, chart.Steps(a.Lo, a.Hi)
		return a.Over(chart.Inset, chart.Width-chart.Inset)
	}
	a.Lo = max(a.Lo, 1e-15) // 0 has no logarithm
	pad := max(math.Pow(a.Hi/a.Lo, 0.05), 1.001)
	a.Lo, a.Hi = a.Lo/pad, a.Hi*pad
	a.Candidates = chart.LogTicks(a.Lo, a.Hi)
	return a.Over(chart.Inset, chart.Width-chart.Inset)
}

// ratioLabel is in percent, or a factor, as in study.
func ratioLabel(v float64) string {
	switch {
	case math.Abs(v-1) < 1e-9:
		return "0%"
	case v >= 9.999:
		return "×" + show.Short(v)
	case v < 0.1001:
		return "÷" + show.Short(1/v)
	}
	return signed(100*(v-1)) + "%"
}

func signed(v float64) string {
	v = math.Round(v*1e9) / 1e9 // sums are not exact
	switch {
	case v == 0: // also minus zero
		return "0"
	case v > 0:
		return "+" + show.Short(v)
	}
	return show.Short(v)
}
