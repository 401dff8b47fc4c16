package report

import (
	"cmp"
	_ "embed" // for the template
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

//go:embed compare.html
var compareHTML string

var compareTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(parsePage().New("compare.html").Parse(compareHTML))
})

type comparePage struct {
	show.Head
	compareView
	Heading, Rackless string
	Emulated          bool // both results are emulated
	Groups            []chartGroup
	Figures           []comparedRow
	Caption           string // of the table of figures
	ManyPairs         bool
	CSV               template.URL
	CSVName           string
}

// A comparedRow has exact fields named Value, for sorting.
type comparedRow struct {
	Pair, Test, Size, Name                  string
	Bytes                                   int64
	AText, BText, RatioText, ChangeText     string
	AValue, BValue, RatioValue, ChangeValue string
	ARepeats, BRepeats                      string
	Problem                                 string
}

// ComparePage writes two results side by side as one self-contained HTML page. Its content security policy forbids
// loading anything.
func ComparePage(w io.Writer, a, b record.Record) error {
	p, err := newComparePage(a, b)
	if err != nil {
		return err
	}
	return show.Wrapf(show.Execute(w, compareTemplate(), p), "write the comparison of lab %q with lab %q", a.Lab, b.Lab)
}

// newComparePage keeps the original data in the CSV, for programs; people see cleaned text.
func newComparePage(a, b record.Record) (*comparePage, error) {
	var raw strings.Builder
	if err := CompareCSV(&raw, Compare(a, b)); err != nil {
		return nil, err
	}
	a, b = show.Clean(a, words.Visible), show.Clean(b, words.Visible)
	c := Compare(a, b)
	p := &comparePage{Head: show.NewHead(show.Style+show.SortStyle+show.TileStyle+pageCSS, show.SortScript),
		compareView: newCompareView(c, a, show.Unit), Heading: "Two results of lab " + a.Lab, Rackless: c.B.Rackless,
		Emulated: c.A.Emulated && c.B.Emulated, Groups: comparedCharts(a, b), Figures: comparedRows(c.Figures),
		CSV: show.DataURL(show.CSV, raw.String()), CSVName: "comparison.csv"}
	if a.Lab != b.Lab {
		p.Heading = fmt.Sprintf("Lab %s and lab %s side by side", a.Lab, b.Lab)
	}
	for i, s := range p.Sentences {
		p.Sentences[i] = keepUnits(strings.ReplaceAll(s, " -> ", "\u00a0→\u00a0"))
	}
	pairs := lists.Distinct(lists.Map(p.Figures, func(r comparedRow) string { return r.Pair }))
	p.ManyPairs = len(pairs) > 1
	p.Caption = fmt.Sprintf("%d figures", len(p.Figures))
	if len(pairs) == 1 {
		p.Caption += ", " + pairs[0]
	}
	p.Caption += "; press a head to sort"
	return p, nil
}

func comparedRows(all []ComparedFigure) []comparedRow {
	return lists.Map(all, func(f ComparedFigure) comparedRow {
		return comparedRow{Pair: between(f.Client, f.Server), Test: f.Test, Bytes: f.Bytes,
			Size:  cmp.Or(sizeText(f.Bytes), notRecorded),
			Name:  bench.MetricOf(f.Metric).Label + ", " + show.Unit(f.Unit),
			AText: comparedText(f.A, f.a), BText: comparedText(f.B, f.b), RatioText: f.ratioText(),
			ChangeText: f.changeText(), AValue: optional(f.A), BValue: optional(f.B), RatioValue: optional(f.Ratio),
			ChangeValue: optional(f.Change), ARepeats: f.a.repeats(), BRepeats: f.b.repeats(), Problem: f.Problem}
	})
}

// comparedCharts never draws emulated and hardware lines in one chart.
func comparedCharts(a, b record.Record) []chartGroup {
	named, _ := namedAs(a, b)
	sa, sb := collect(a).scopes(), collect(named).scopes()
	var out []chartGroup
	for i, x := range sa {
		k := slices.IndexFunc(sb, func(y scope) bool { return y.pair == x.pair })
		if k < 0 {
			continue
		}
		// Run tells the results apart, so that charts need not know about two.
		s := x
		if y := sb[k]; y.Title != x.Title { // "20 pairs together" and "12 pairs together"
			s.Title = fmt.Sprintf("A: %s, B: %s", x.Title, y.Title)
		}
		s.points = map[chartPoint]point{}
		for run, of := range map[string]scope{"A": x, "B": sb[k]} {
			for key, p := range of.points {
				key.Run = run
				s.points[key] = p
			}
		}
		s.keys = slices.SortedFunc(maps.Keys(s.points), comparePoints)
		g := s.group()
		if c, ok := s.ratioChart(fmt.Sprintf("r%d", i+1)); ok {
			g.Charts = append(g.Charts, c)
		}
		// Six lines close to each other would be unreadable.
		for n, test := range testsOf(s.keys) {
			one := s
			one.keys = slices.DeleteFunc(slices.Clone(s.keys), func(k chartPoint) bool { return k.Test != test })
			for _, c := range one.charts(fmt.Sprintf("c%d-%d", i+1, n+1)) {
				// Charts of different tests stand side by side, so titles name the test.
				if !strings.Contains(c.Title, test) {
					c.Title = strings.TrimSuffix(c.Title, " by message size") + ", " + test
				}
				g.Charts = append(g.Charts, c)
			}
		}
		var of []ranOf
		for run, d := range map[string]record.Record{"A": a, "B": named} {
			of = append(of, distributionsOf(d, s, run)...)
		}
		g.Charts = append(g.Charts, distributionCharts(fmt.Sprintf("d%d", i+1), s.Emulated, of)...)
		if len(g.Charts) > 0 {
			out = append(out, g)
		}
	}
	return out
}

func testsOf(keys []chartPoint) []string {
	var tests []string
	for _, k := range keys {
		tests = lists.Add(tests, k.Test)
	}
	return tests
}

// ratioChart draws B / A by size, because a difference of a tenth is hardly visible in figures. ok is false unless
// there are three common sizes.
func (s scope) ratioChart(id string) (out chart.Chart, ok bool) {
	ratio := func(k chartPoint) float64 {
		b := k
		b.Run = "B"
		return s.points[b].Median / s.points[k].Median
	}
	both := slices.DeleteFunc(slices.Clone(s.keys), func(k chartPoint) bool {
		return k.Metric != bench.MetricBWAverage || k.Run != "A" || k.Bytes == 0 || s.points[k].Median <= 0 ||
			ratio(k) <= 0
	})
	high := 1.2
	var used []chartPoint
	var legend []chart.Series
	var curves [][]chart.Point
	for _, test := range testsOf(both) {
		var points []chart.Point
		keys := slices.DeleteFunc(slices.Clone(both), func(k chartPoint) bool { return k.Test != test })
		if len(keys) < 3 {
			continue
		}
		for _, k := range keys {
			high = max(high, ratio(k))
			title := fmt.Sprintf("%s: B is %s times A", chartPoint{Test: test, Bytes: k.Bytes}.name(),
				ratioNumber(ratio(k)))
			points = append(points, chart.Point{X: float64(k.Bytes), Y: ratio(k), Bytes: k.Bytes,
				Value: show.Exact(ratio(k)), Title: title})
		}
		legend = append(legend, chart.Series{Name: test, Color: len(legend), Marker: len(legend)})
		curves, used = append(curves, points), append(used, keys...)
	}
	if len(curves) == 0 {
		return out, false
	}
	c := chart.New(id, "B / A: bandwidth by message size", chart.Width)
	same := chart.Series{Name: "the same", Class: wireLimit}
	c.Legend(append(slices.Clone(legend), same)...)
	x, _, _ := s.span(used)
	p := c.Plot(x, chart.LinearAxis(high), "message size", "B / A, average")
	p.Line(same, []chart.Point{{X: x.Lo, Y: 1}, {X: x.Hi, Y: 1}})
	for i, points := range curves {
		p.Curve(legend[i], points, false)
	}
	c.Desc = "Lines over message size (to the base of two): the average bandwidth of B as a multiple of that of A, " +
		"linear from zero. A dashed line is where both are the same. The figures are in the table below."
	return c.Done(), true
}
