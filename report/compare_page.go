package report

import (
	"bufio"
	"crypto/sha256"
	_ "embed" // for the template
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/report/show"
)

//go:embed compare.html
var compareHTML string

// compareTemplate has the pictures and terms of the page of one result, too.
var compareTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(parsePage().New("compare.html").Parse(compareHTML))
})

// A comparePage is what the template prints.
type comparePage struct {
	Comparison
	Heading, Warning, NoVerdict string
	AName, BName                string
	Sentences                   []string
	Style                       template.CSS
	Script                      template.JS
	StyleHash, ScriptHash       string
	Groups                      []chartGroup
	Rows                        []comparedRow
	Pairs                       int // of nodes: with one, the table has no column for it
	CSV                         template.URL
	CSVName                     string
	Emulated                    bool // both are
}

// A comparedRow is a row of the table, with the values that it is sorted by.
type comparedRow struct {
	ComparedFigure
	Pair, Size, Name                        string
	AText, BText, RatioText, ChangeText     string
	AValue, BValue, RatioValue, ChangeValue string
	ARepeats, BRepeats                      string
}

// ComparePage writes two results side by side as one HTML page that needs nothing else. Its policy
// lets the browser load nothing, and apply and run only what is in it.
func ComparePage(w io.Writer, a, b Data) error {
	p, err := newComparePage(a, b)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(w)
	if err := compareTemplate().Execute(buffered, p); err != nil {
		return fmt.Errorf("write the comparison of lab %q with lab %q: %w", a.Lab, b.Lab, err)
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write the comparison of lab %q with lab %q: %w", a.Lab, b.Lab, err)
	}
	return nil
}

func newComparePage(a, b Data) (*comparePage, error) {
	var raw strings.Builder
	if err := CompareCSV(&raw, Compare(a, b)); err != nil {
		return nil, err
	}
	a, b = a.clean(show.Visible), b.clean(show.Visible)
	c := Compare(a, b)
	style := show.Style + show.SortStyle + pageCSS
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
	}
	sentences := c.sentences(a, show.Unit)
	for i, text := range sentences {
		sentences[i] = keepUnits(strings.NewReplacer(" -> ", "\u00a0→\u00a0").Replace(text))
	}
	p := &comparePage{
		Comparison: c, Heading: "Two results of lab " + a.Lab, Warning: c.warning(), NoVerdict: noVerdict,
		AName: c.A.name(), BName: c.B.name(), Sentences: sentences,
		Style: template.CSS(style), Script: template.JS(show.SortScript), StyleHash: hash(style),
		ScriptHash: hash(show.SortScript),
		Groups:     comparedCharts(a, b), Emulated: c.A.Emulated && c.B.Emulated,
		CSV: template.URL("data:text/csv;charset=utf-8;base64," +
			base64.StdEncoding.EncodeToString([]byte(raw.String()))), CSVName: "comparison.csv",
	}
	if a.Lab != b.Lab {
		p.Heading = fmt.Sprintf("Lab %s and lab %s side by side", a.Lab, b.Lab)
	}
	var pairs []string
	for _, f := range c.Figures {
		pairs = append(pairs, between(f.Client, f.Server))
	}
	slices.Sort(pairs)
	p.Pairs = len(slices.Compact(pairs))
	exact := func(v *float64) string {
		if v == nil {
			return ""
		}
		return show.Exact(*v)
	}
	repeats := func(n int, s spread) string {
		if n < 2 {
			return ""
		}
		return fmt.Sprintf("n=%d, %s to %s", n, s.figure(s.Min), s.figure(s.Max))
	}
	for _, f := range c.Figures {
		_, _, label := metricInfo(f.Metric)
		row := comparedRow{ComparedFigure: f, Pair: between(f.Client, f.Server), Size: notRecorded, Name: label + ", " +
			show.Unit(f.Unit),
			AText: comparedText(f.A, f.a), BText: comparedText(f.B, f.b), RatioText: f.ratioText(),
			ChangeText: f.changeText(),
			AValue:     exact(f.A), BValue: exact(f.B), RatioValue: exact(f.Ratio), ChangeValue: exact(f.Change),
			ARepeats: repeats(f.CountA, f.a), BRepeats: repeats(f.CountB, f.b)}
		if f.Bytes > 0 {
			row.Size = show.Size(f.Bytes)
		}
		p.Rows = append(p.Rows, row)
	}
	return p, nil
}

// comparedCharts draws what both have in the same pictures. An emulated line never stands in one
// picture with one of hardware.
func comparedCharts(a, b Data) []chartGroup {
	named, _ := namedAs(a, b)
	sa, sb := collect(a).scopes(), collect(named).scopes()
	var out []chartGroup
	for i, x := range sa {
		k := slices.IndexFunc(sb, func(y scope) bool { return y.pair == x.pair })
		if k < 0 {
			continue
		}
		s := x
		if y := sb[k]; y.Title != x.Title { // "20 pairs together", and 12
			s.Title = fmt.Sprintf("A: %s, B: %s", x.Title, y.Title)
		}
		s.points, s.derived, s.limits, s.keys = map[chartPoint]spread{}, map[chartPoint]bool{},
			map[chartPoint]float64{}, nil
		for run, of := range map[string]scope{"A": x, "B": sb[k]} {
			for _, key := range of.keys {
				as := key
				as.Run = run
				s.points[as], s.derived[as], s.limits[as] = of.points[key], of.derived[key], of.limits[key]
				s.keys = append(s.keys, as)
			}
		}
		slices.SortFunc(s.keys, comparePoints)
		g := chartGroup{scope: s}
		if c, ok := s.ratioChart(fmt.Sprintf("r%d", i+1)); ok {
			g.Charts = append(g.Charts, c)
		}
		// A picture for each test: six lines that lie close to each other would tell nothing.
		for n, test := range testsOf(s.keys) {
			one := s
			one.keys = slices.DeleteFunc(slices.Clone(s.keys), func(k chartPoint) bool { return k.Test != test })
			for _, c := range one.charts(fmt.Sprintf("c%d-%d", i+1, n+1)) {
				if !strings.Contains(c.Title, test) {
					c.Title = strings.TrimSuffix(c.Title, " by message size") + ", " + test
				}
				g.Charts = append(g.Charts, c)
			}
		}
		var of []ranOf
		for run, d := range map[string]Data{"A": a, "B": named} {
			for n := range d.Distributions {
				if y := &d.Distributions[n]; s.Pairs == 1 && y.pair(d.Emulated) == s.pair {
					of = append(of, ranOf{y, run})
				}
			}
		}
		g.Charts = append(g.Charts, distributionCharts(fmt.Sprintf("d%d", i+1), s.Emulated, of)...)
		if len(g.Charts) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// testsOf are the tests of points, in their order.
func testsOf(keys []chartPoint) []string {
	var tests []string
	for _, k := range keys {
		if !slices.Contains(tests, k.Test) {
			tests = append(tests, k.Test)
		}
	}
	return tests
}

// ratioChart draws B / A over the message size, for every test of bandwidth: on the axes of the
// figures themselves a tenth can hardly be seen. ok is false where there are not three sizes that
// both have.
func (s scope) ratioChart(id string) (c chart, ok bool) {
	c = chart{ID: id, Title: "B / A: bandwidth by message size", Emulated: s.Emulated, YLabel: "B / A, average",
		XLabel: "message size", LimitKey: &series{Name: "the same"}}
	var all []series
	var ratios [][]float64
	high, small, large := 1.2, int64(0), int64(0)
	for _, test := range testsOf(s.keys) {
		se := series{Name: test, testName: test, Color: len(all), marker: len(all)}
		var of []float64
		for _, k := range s.keys {
			b := k
			b.Run = "B"
			if y, both := s.points[b]; k.Test == test && k.Metric == bench.MetricBWAverage && k.Run == "A" &&
				k.Bytes > 0 && both && s.points[k].Median > 0 {
				se.points, of = append(se.points, k), append(of, y.Median/s.points[k].Median)
			}
		}
		if len(of) < 3 {
			continue
		}
		high, large = max(high, slices.Max(of)), max(large, se.points[len(of)-1].Bytes)
		if first := se.points[0].Bytes; small == 0 || first < small {
			small = first
		}
		all, ratios = append(all, se), append(ratios, of)
	}
	if len(all) == 0 {
		return c, false
	}
	x, y := show.SizeAxis(small, large), show.LinearAxis(high)
	c.frame(all, &x, &y, show.Tick, func(v float64) string { return show.Size(int64(v)) })
	c.Limits = []string{fmt.Sprintf("M%s %sH%s", show.Px(x.From), show.Px(y.At(1)), show.Px(x.To))}
	for i := range all {
		se := &all[i]
		for n, k := range se.points {
			verb := "L"
			if n == 0 {
				verb = "M"
			}
			px, py, ratio := x.At(float64(k.Bytes)), y.At(ratios[i][n]), ratioNumber(ratios[i][n])
			se.Line += fmt.Sprintf("%s%s %s", verb, show.Px(px), show.Px(py))
			se.Marks = append(se.Marks, mark{Path: show.Marker(se.marker, px, py), Bytes: k.Bytes,
				Value: show.Exact(ratios[i][n]), Title: fmt.Sprintf("%s, %s: B is %s times A", k.Test,
					show.Size(k.Bytes), ratio)})
		}
	}
	c.Desc = "Lines over message size (to the base of two): the average bandwidth of B as a multiple of that of A, " +
		"linear from zero. A dashed line is where both are the same. The figures are in the table below."
	return c, true
}

// CompareCSV writes one line for each figure, for other programs.
func CompareCSV(w io.Writer, c Comparison) error {
	out := csv.NewWriter(w)
	optional := func(v *float64) string {
		if v == nil {
			return ""
		}
		return show.Exact(*v)
	}
	records := [][]string{{"client", "server", "test", "bytes", "metric", "unit", "a", "a_count", "b", "b_count",
		"ratio", "difference", "problem"}}
	for _, f := range c.Figures {
		size := ""
		if f.Bytes > 0 {
			size = strconv.FormatInt(f.Bytes, 10)
		}
		records = append(records, []string{f.Client, f.Server, f.Test, size, f.Metric, f.Unit, optional(f.A),
			strconv.Itoa(f.CountA), optional(f.B), strconv.Itoa(f.CountB),
			optional(f.Ratio), optional(f.Change), f.Problem})
	}
	if err := out.WriteAll(records); err != nil {
		return fmt.Errorf("write a comparison as CSV: %w", err)
	}
	return nil
}
