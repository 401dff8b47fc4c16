package studyview

import (
	"fmt"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
)

// maxLines is how many cells one picture of latencies has: more lines cannot be told apart.
const maxLines = 6

// Geometry of a plot with two axes.
const plotHeight = 210

// distributions draws the latencies of cells, from the fastest to the slowest, for every test that has them.
func (v *view) distributions() []chart {
	type key struct {
		test  string
		bytes int64
	}
	var by group.By[key, *study.Series]
	for i := range v.Result.Series {
		s := &v.Result.Series[i]
		if len(s.Quantiles) > 1 {
			by.Add(key{s.Test, s.Bytes}, s)
		}
	}
	var out []chart
	for _, k := range by.Keys {
		lo, hi, deepest := math.Inf(1), 0.0, 0.99
		for _, s := range by.Of(k) {
			for _, p := range s.Quantiles {
				lo, hi, deepest = min(lo, p.Us), max(hi, p.Us), max(deepest, p.Quantile)
			}
		}
		parts := (len(by.Of(k)) + maxLines - 1) / maxLines
		n := 0
		for part := range slices.Chunk(by.Of(k), maxLines) {
			n++
			title := k.test
			if k.bytes > 0 {
				title += ", " + show.Size(k.bytes)
			}
			if parts > 1 {
				title += fmt.Sprintf(" (%d of %d)", n, parts)
			}
			out = append(out, v.distribution(fmt.Sprintf("latency-%d", len(out)+1), title, part, lo, hi, deepest))
		}
	}
	return out
}

// distribution draws the latencies of a few cells. lo, hi and deepest are those of all cells of the test, so that the
// pictures of one test have the same axes and can be compared.
func (v *view) distribution(id, title string, all []*study.Series, lo, hi, deepest float64) chart {
	c := newCanvas(id, title, chartWidth)
	for i, s := range all {
		c.y += lineHeight
		mid := c.y - 8
		c.path(fmt.Sprintf("line l%d d%d", i%6, i%4), show.Path("M%s %sh26", margin, mid), "")
		c.path(fmt.Sprintf("s%d", i%6), show.Marker(i, margin+13, mid), "")
		c.y -= lineHeight
		c.paragraph("", fontText, 34, s.Cell)
	}
	c.y += lineHeight + 2
	c.text("tick", margin, c.y-4, "latency, "+axisName(v.unit("us"), far(lo, hi)))
	top := c.y + 6
	bottom := top + plotHeight
	// The y axis first: how wide its labels are decides where the plot begins.
	y := valueAxis(lo, hi, bottom, top)
	left := margin + 6.0
	for _, t := range y.Ticks {
		left = max(left, margin+6+float64(fontTick.Width(show.Tick(t))))
	}
	x := show.DepthAxis(deepest)
	x.From, x.To = left+2, chartWidth-inset
	for _, t := range y.Ticks {
		c.path("grid", show.Path("M%s %sH%s", left, y.At(t), chartWidth-margin), "")
		c.text("tick r", left-4, y.At(t)+4, show.Tick(t))
	}
	for _, t := range x.Ticks {
		c.path("grid", show.Path("M%s %sV%s", x.At(t), top, bottom), "")
		c.text("tick m", x.At(t), bottom+14, show.DepthTick(t))
	}
	c.path("axis", show.Path("M%s %sH%s", left, bottom, chartWidth-margin), "")
	guessed := false
	for i, s := range all {
		guessed = c.curve(i, s, x, y, v.unit("us")) || guessed
	}
	c.y = bottom + 14 + lineHeight
	c.text("tick r", chartWidth-margin, c.y, "share of latencies up to this one")
	if guessed {
		c.y += 4
		c.paragraph("tick", fontTick, 0, "Faint: fewer than ten latencies lie beyond, so another study may see others.")
	}
	c.Desc = fmt.Sprintf("Latencies of %s by the share that is at most as long, on an axis that widens the slowest: "+
		"90, 99, 99.9 and 99.99 per cent are equally far apart. %s.", title, words.Count(len(all), "cell"))
	return c.done()
}

// curve draws the latencies of a cell. It reports whether its end rests on too few.
func (c *canvas) curve(i int, s *study.Series, x, y show.Axis, unit string) (guessed bool) {
	// Two lines, because a reader takes the end of a curve for a property of the cell: where fewer than ten latencies
	// lie beyond it is chance.
	var sure, faint show.Line
	var marks []shape
	var lastX, lastY float64
	for n, p := range s.Quantiles {
		px, py := x.At(show.Depth(p.Quantile)), y.At(p.Us)
		// Low quantiles have few latencies on their side, too. There it is the fastest that are not
		// sure, and no one decides by these.
		if p.Supported || p.Quantile < 0.5 {
			sure.To(px, py)
		} else {
			// It begins where the other ends, without a gap.
			if len(faint) == 0 && n > 0 {
				faint.To(lastX, lastY)
			}
			faint.To(px, py)
		}
		lastX, lastY = px, py
		if show.IsLandmark(p.Quantile) {
			marks = append(marks, shape{Class: fmt.Sprintf("pt s%d", i%6), D: show.Marker(i, px, py),
				Title: fmt.Sprintf("%s: %s of %d are at most %s %s", s.Cell, percent(p.Quantile), s.Count,
					show.Figure(p.Us), unit)})
		}
	}
	if len(sure) > 0 {
		c.path(fmt.Sprintf("line l%d d%d", i%6, i%4), sure.String(), "")
	}
	if len(faint) > 0 {
		c.path(fmt.Sprintf("line faint l%d", i%6), faint.String(), "")
	}
	c.Shapes = append(c.Shapes, marks...)
	return len(faint) > 0
}
