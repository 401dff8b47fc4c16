package studyview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
)

// wideWidth fills a row of a large screen.
const wideWidth = 1200

// timeLines returns nil for imported runs, whose order is unknown.
func (src *source) timeLines() []chart.Chart {
	if len(src.Data.Runs) == 0 || src.Data.Spec.Imported != "" {
		return nil
	}
	return []chart.Chart{src.timeLine("time-narrow", "narrow", chart.Width),
		src.timeLine("time-wide", "wide", wideWidth)}
}

// dotSize keeps neighbours apart unless there are too many runs.
func dotSize(x chart.Axis) float64 { return min(3.2, max(1, (x.At(1)-x.At(0))*0.42)) }

// timeLine puts cells outside the plan, as of an earlier version of the study, into rows at the bottom.
func (src *source) timeLine(id, class string, width int) chart.Chart {
	runs := src.Data.Runs
	c := canvas{chart.New(id, "Time line of the runs", width)}
	c.Class = class
	x := chart.Axis{Hi: float64(len(runs)), From: chart.Inset, To: float64(width - chart.Inset)}
	c.statuses()
	cells := src.Data.Spec.CellTexts()
	rows := make([]string, len(runs))
	for i := range runs {
		rows[i] = src.Data.Spec.SettingsText(runs[i].Cell)
		cells = lists.Add(cells, rows[i])
	}
	for _, cell := range cells {
		c.Paragraph("", chart.TextFont, cell)
		top, middle := c.Strip(x, 14)
		c.blockLines(runs, x, top, 14)
		var done strings.Builder
		var others []int
		for i, o := range runs {
			switch {
			// The run is in another row at the same position, so that readers see how the cells alternated.
			case rows[i] != cell:
			case o.Status == study.StatusDone: // one path, because there may be thousands
				done.WriteString(chart.Circle(x.At(float64(i)+0.5), middle, dotSize(x)))
			default:
				others = append(others, i)
			}
		}
		if done.Len() > 0 {
			c.Path("done", done.String(), "")
		}
		for _, i := range others {
			o := &runs[i]
			title := fmt.Sprintf("run %d, block %d, attempt %d: %s", o.Run, o.Block, o.Attempt, o.Status)
			if o.Error != "" {
				title += ": " + words.Fold(o.Error).Text
			}
			c.run(o.Status, x.At(float64(i)+0.5), middle, 3.6, title)
		}
	}
	c.blockLabels(runs, x)
	c.floor(runs, x)
	c.Desc = fmt.Sprintf("%s in the order in which they were made, from left to right, a row for each cell: %d done, "+
		"%d failed, %d disturbed. The table of all runs is below.",
		words.Count(len(runs), "run"), src.Result.Runs.Done, src.Result.Runs.Failed, src.Result.Runs.Disturbed)
	return c.Done()
}

func (c canvas) statuses() {
	x := float64(chart.Margin)
	c.Y += chart.LineHeight
	for _, l := range []struct{ status, word string }{{study.StatusDone, "done"}, {study.StatusFailed, "failed"},
		{study.StatusDisturbed, "disturbed, not counted"}} {
		c.run(l.status, x+5, c.Y-8, 3.6, "")
		c.Text("", x+14, c.Y-4, l.word)
		x += 30 + float64(chart.TextFont.Width(l.word))
	}
	c.Y += 6
}

// run draws a dot, a cross if failed, a triangle if disturbed.
func (c canvas) run(status string, x, y, size float64, title string) {
	switch status {
	case study.StatusDone:
		c.Path("done", chart.Circle(x, y, size), title)
	// Shapes are for print and colour-blind readers.
	case study.StatusDisturbed:
		c.Path("disturbed", chart.Path("M%s %sl%s %sh-%sz", x, y-size-1, size+1, 2*size+1, 2*size+2), title)
	default:
		w := 2 * size
		c.Path("failed", chart.Path("M%s %sl%s %sm0 -%sl-%s %s", x-size, y-size, w, w, w, w, w), title)
	}
}

func (c canvas) blockLines(runs []study.Observation, x chart.Axis, top, height float64) {
	var d strings.Builder
	for i := 1; i < len(runs); i++ {
		if runs[i].Block != runs[i-1].Block {
			d.WriteString(chart.Path("M%s %sv%s", x.At(float64(i)), top, height))
		}
	}
	if d.Len() > 0 {
		c.Path("grid", d.String(), "")
	}
}

func (c canvas) blockLabels(runs []study.Observation, x chart.Axis) {
	c.Y += 14
	end := 0.0
	for i := 0; i < len(runs); {
		j := i
		for j < len(runs) && runs[j].Block == runs[i].Block {
			j++
		}
		label := fmt.Sprint(runs[i].Block)
		if i == 0 {
			label = "block " + label
		}
		half := chart.LabelWidth(label) / 2
		if at := max(x.At(float64(i+j)/2), chart.Margin+half); at-half > end+6 || i == 0 {
			c.Text("tick m", at, c.Y-2, label)
			end = at + half
		}
		i = j
	}
}

const floorHeight = 80

// floor draws changes that affect every figure and are not due to any factor.
func (c canvas) floor(runs []study.Observation, x chart.Axis) {
	var all []float64
	for _, o := range runs {
		if o.Before != nil && o.Before.Loop > 0 && finite(o.Before.Loop) {
			all = append(all, o.Before.Loop)
		}
	}
	if len(all) == 0 {
		return
	}
	// A few disturbed runs do not move the median. Package study has the same limit.
	usual := slices.Sorted(slices.Values(all))[len(all)/2]
	limit := usual * (1 + study.MaxLoop)
	c.Y += 10
	c.Paragraph("", chart.TextFont, "Noise floor: time of a fixed piece of arithmetic before each run, ms")
	top := c.Y + 4
	lowest, highest := slices.Min(all), slices.Max(all)
	// With the limit in the plot, a quiet machine looks quiet.
	pad := 0.08 * (max(highest, limit) - lowest)
	y := chart.Axis{Lo: lowest - pad, Hi: max(highest, limit) + pad, From: top + floorHeight, To: top}
	c.Rect("ground", x.From-14, top, x.To-x.From+28, floorHeight, "")
	c.blockLines(runs, x, top, floorHeight)
	c.Path("limit", chart.Path("M%s %sH%s", x.From-14, y.At(limit), x.To+14), "")
	var line chart.Line
	var dots strings.Builder
	for i, o := range runs {
		if o.Before == nil || o.Before.Loop <= 0 || !finite(o.Before.Loop) {
			continue
		}
		px, py := x.At(float64(i)+0.5), y.At(o.Before.Loop)
		line.To(px, py)
		dots.WriteString(chart.Circle(px, py, min(2.2, dotSize(x))))
	}
	c.Path("line l0 thin", line.String(), "")
	c.Path("s0", dots.String(), "")
	c.Y = top + floorHeight + chart.LineHeight
	c.Text("tick", chart.Margin, c.Y-3, fmt.Sprintf("from %s to %s ms, usually %s", show.Figure(lowest),
		show.Figure(highest), show.Figure(usual)))
	c.Note(fmt.Sprintf("Dashed: %s above the usual. A run that starts above it counts as "+
		"disturbed.", percent(study.MaxLoop)))
}
