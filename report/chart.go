package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
)

type chartPoint struct {
	Test   string
	Bytes  int64
	Metric string
	Run    string // "A" or "B" in a comparison
}

// A scope is one pair, with spreads over repeats, or all pairs of one kind, with spreads over medians of pairs.
type scope struct {
	Title    string
	Emulated bool
	Pairs    int
	pair     pair
	points   map[chartPoint]point
	keys     []chartPoint // keys of points, sorted
	figures  map[chartPoint][]figureKey
}

type point struct {
	spread
	derived bool
	limit   float64 // the least of all pairs; 0 if unknown for any
}

// maxPairCharts limits pairs with their own charts. More are one median with a band, and a matrix.
const maxPairCharts = 3

func (r *results) scopes() []scope {
	// Emulated and hardware pairs stay apart, because pair.Emulated is part of the key.
	together := len(r.pairs) > maxPairCharts
	of := func(p pair) pair {
		if together {
			p.Client, p.Server = "", ""
		}
		return p
	}
	var out group.List[pair, scope]
	for _, p := range r.pairs {
		out.At(of(p), scope{Title: p.String(), pair: of(p), Emulated: p.Emulated, points: map[chartPoint]point{},
			figures: map[chartPoint][]figureKey{}}).Pairs++
	}
	for _, k := range r.keys {
		s, c := out.At(of(k.Pair), scope{}), chartPoint{Test: k.Test, Bytes: k.Bytes, Metric: k.Metric}
		s.figures[c] = append(s.figures[c], k)
	}
	for i := range out.All {
		s := &out.All[i]
		for c, keys := range s.figures {
			s.points[c] = r.point(keys, together)
		}
		s.keys = slices.SortedFunc(maps.Keys(s.points), comparePoints)
		if together {
			s.Title = words.Count(s.Pairs, "pair") + " together"
		}
	}
	return out.All
}

func (r *results) point(keys []figureKey, together bool) point {
	// No pair is compared with more than its own wire carries.
	p := point{limit: math.Inf(1)}
	var all []spread
	for _, k := range keys {
		all = append(all, spreadOf(r.values[k]))
		p.derived = p.derived || r.derived[k]
		p.limit = min(p.limit, r.limits[k])
	}
	p.spread = all[0]
	if together {
		p.spread = spreadOfMedians(all)
	}
	return p
}

// comparePoints keeps the points of a line adjacent, by size; linesOf depends on it.
func comparePoints(a, b chartPoint) int {
	return cmp.Or(compareTests(a.Test, b.Test), compareMetrics(a.Metric, b.Metric), cmp.Compare(a.Run, b.Run),
		cmp.Compare(a.Bytes, b.Bytes))
}

// limit is in the unit of the metric, or 0.
func (s scope) limit(k chartPoint) float64 {
	switch k.Metric {
	case bench.MetricBWAverage:
		return s.points[k].limit
	case bench.MetricMessageRate: // 1 Gb/s is 1e3 Mb/s, with 8 bits per byte
		of := k
		of.Metric = bench.MetricBWAverage
		return s.points[of].limit * 1e3 / (8 * float64(k.Bytes))
	}
	return 0
}

// charts draws every figure once. Fewer than three sizes become bars: a line through two points would suggest values
// between them.
func (s scope) charts(id string) []chart.Chart {
	var out []chart.Chart
	add := func(title, by string, wanted func(chartPoint) bool, logY bool, scale ...chartPoint) {
		lines, rest := s.linesAndBars(wanted)
		if len(lines) > 0 {
			out = append(out, s.lineChart(fmt.Sprintf("%s-%d", id, len(out)+1), title+by, lines, logY))
		}
		if len(rest) > 0 {
			out = append(out, s.barChart(fmt.Sprintf("%s-%d", id, len(out)+1), title, rest, scale))
		}
	}
	is := func(names ...string) func(chartPoint) bool {
		return func(k chartPoint) bool { return slices.Contains(names, k.Metric) }
	}
	// A logarithmic axis: bandwidths at 2 bytes and 8 MiB differ by four powers of ten.
	add("Bandwidth", " by message size", is(bench.MetricBWAverage), true)
	add("Message rate", " by message size", is(bench.MetricMessageRate), true)
	add("Throughput", "", is(bench.MetricThroughput), false)
	// An average is drawn only without a median, which is the better figure.
	withTypical := make(map[string]bool)
	for _, k := range s.keys {
		withTypical[k.Test] = withTypical[k.Test] || k.Metric == bench.MetricLatencyTypical
	}
	percentile := is(bench.MetricLatencyTypical, bench.MetricLatencyP99, bench.MetricLatencyP999)
	latencyOf := func(t string) func(chartPoint) bool {
		return func(k chartPoint) bool {
			return k.Test == t && (percentile(k) || k.Metric == bench.MetricLatencyAverage && !withTypical[t])
		}
	}
	// Readers compare the lengths of bars side by side.
	var bars []chartPoint
	for _, t := range testsOf(s.keys) {
		_, rest := s.linesAndBars(latencyOf(t))
		bars = append(bars, rest...)
	}
	for _, t := range testsOf(s.keys) {
		add("Latency of "+t, " by size", latencyOf(t), true, bars...)
	}
	add("Collective operations", " by size", is(bench.MetricCollectiveTime), true)
	add("Loads from memory", " by how much is read", is(bench.MetricLoadLatency), true)
	return out
}

// linesAndBars counts all sizes together, so that both runs of a test look alike.
func (s scope) linesAndBars(wanted func(chartPoint) bool) (lines, bars []chartPoint) {
	all := lists.Filter(s.keys, wanted)
	sized := lists.Filter(all, func(k chartPoint) bool { return k.Bytes > 0 })
	if len(lists.SetOf(sized, func(k chartPoint) int64 { return k.Bytes })) < 3 {
		return nil, all
	}
	return sized, lists.Filter(all, func(k chartPoint) bool { return k.Bytes == 0 })
}

// lineChart shares no axes: a read's latency may be ten times a write's, and both must be readable.
func (s scope) lineChart(id, title string, keys []chartPoint, logY bool) chart.Chart {
	c := chart.New(id, title, chart.Width)
	all := linesOf(keys)
	limits := s.limitLines(all)
	legend := lists.Map(all, func(l line) chart.Series { return l.Series })
	if len(limits) > 0 {
		legend = append(legend, chart.Series{Name: "wire limit, headers counted", Class: wireLimit})
	}
	c.Legend(legend...)
	x, lo, hi := s.span(keys)
	y, scale := chart.LinearAxis(hi), "linear from zero"
	if logY {
		for _, k := range keys {
			hi = max(hi, s.limit(k))
		}
		y, scale = chart.LogAxis(lo, hi), "logarithmic"
	}
	xName := "message size"
	if keys[0].Metric == bench.MetricLoadLatency {
		xName = "size of what is read"
	}
	metric := bench.MetricOf(keys[0].Metric)
	unit := show.Unit(metric.Unit)
	yName := unit
	if !oneTest(all) && metric.Label != "message rate" {
		yName += ", " + metric.Label
	}
	p := c.Plot(x, y, xName, yName)
	for _, l := range limits {
		points := lists.Map(l,
			func(k chartPoint) chart.Point { return chart.Point{X: float64(k.Bytes), Y: s.limit(k)} })
		p.Line(chart.Series{Class: wireLimit}, points)
	}
	// Whiskers of ten lines would hide each other.
	for _, l := range all {
		points := s.pointsOf(l.keys)
		if s.Pairs > 1 && slices.ContainsFunc(points, func(p chart.Point) bool { return p.Low < p.High }) {
			p.Band(l.Series, points)
		}
	}
	for _, l := range all {
		p.Curve(l.Series, s.pointsOf(l.keys), s.Pairs == 1)
	}
	c.Desc = fmt.Sprintf("Lines over %s (to the base of two), %s in %s, %s. %s.", xName, strings.ToLower(title), unit,
		scale, words.Count(len(keys), "point"))
	if len(limits) > 0 {
		c.Desc += " A dashed line is what the wire carries."
	}
	c.Desc += " The figures are in the tables below."
	return c.Done()
}

const wireLimit = "wire-limit"

func (s scope) span(keys []chartPoint) (x chart.Axis, lo, hi float64) {
	small, large := int64(math.MaxInt64), int64(0)
	lo = math.Inf(1)
	for _, k := range keys {
		p := s.points[k]
		lo, hi = min(lo, p.Min), max(hi, p.Max)
		small, large = min(small, k.Bytes), max(large, k.Bytes)
	}
	return chart.SizeAxis(small, large), lo, hi
}

type line struct {
	chart.Series
	keys []chartPoint // equal except for their sizes
}

// linesOf uses colour for test and metric; dash and marker tell the runs of a comparison apart.
func linesOf(keys []chartPoint) []line {
	var all []line
	for _, k := range keys {
		if n := len(all); n > 0 {
			last := all[n-1].keys[0]
			if last.Bytes = k.Bytes; last == k {
				all[n-1].keys = append(all[n-1].keys, k)
				continue
			}
		}
		all = append(all, line{keys: []chartPoint{k}})
	}
	for i := range all {
		l, of := &all[i], all[i].keys[0]
		l.Series = chart.Series{Name: of.Test, Color: i, Marker: i}
		if oneTest(all) {
			l.Name, l.Dash = bench.MetricOf(of.Metric).Label, i
		}
		if i > 0 && of.Run != "" {
			l.Color = all[i-1].Color
			if before := all[i-1].keys[0]; before.Test != of.Test || before.Metric != of.Metric {
				l.Color++
			}
		}
		l.Series = asRun(l.Series, of.Run)
	}
	if len(all) == 2 && all[0].keys[0].Run != all[1].keys[0].Run {
		all[0].Color, all[1].Color = 0, 1
	}
	return all
}

func oneTest(all []line) bool {
	first, last := all[0].keys[0], all[len(all)-1].keys[0]
	return first.Test == last.Test && first.Metric != last.Metric
}

func asRun(s chart.Series, run string) chart.Series {
	if run != "" {
		s.Name = run + ": " + s.Name
		s.Dash = 0
		if run == "B" {
			s.Dash = 1
		}
		s.Marker = s.Dash
	}
	return s
}

// limitLines joins limits that nearly agree, because only headers differ.
func (s scope) limitLines(all []line) [][]chartPoint {
	const near = 1.3
	var out [][]chartPoint
	for _, l := range all {
		known := slices.DeleteFunc(slices.Clone(l.keys), func(k chartPoint) bool { return s.limit(k) <= 0 })
		if len(known) < 2 {
			continue
		}
		same := func(line []chartPoint) bool {
			// At every size: lines that cross are not near each other.
			return !slices.ContainsFunc(known, func(k chartPoint) bool {
				at := slices.IndexFunc(line, func(o chartPoint) bool { return o.Bytes == k.Bytes })
				return at < 0 || s.limit(k)/s.limit(line[at]) > near || s.limit(line[at])/s.limit(k) > near
			})
		}
		if !slices.ContainsFunc(out, same) {
			out = append(out, known)
		}
	}
	return out
}

const derivedText = "computed from another column"

// name returns text such as "A: ib_write_bw, 64 KiB".
func (k chartPoint) name() string {
	name := k.Test
	if k.Run != "" {
		name = k.Run + ": " + name
	}
	if k.Bytes > 0 {
		name += ", " + show.Size(k.Bytes)
	}
	return name
}

func (s scope) pointsOf(keys []chartPoint) []chart.Point {
	return lists.Map(keys, func(k chartPoint) chart.Point {
		p := s.points[k]
		return chart.Point{X: float64(k.Bytes), Y: p.Median, Low: p.Min, High: p.Max, Title: s.title(k),
			Value: show.Exact(p.Median), Bytes: k.Bytes}
	})
}

func (s scope) title(k chartPoint) string {
	p := s.points[k]
	m := bench.MetricOf(k.Metric)
	title := fmt.Sprintf("%s: %s %s %s", k.name(), p.figure(p.Median), show.Unit(m.Unit), m.Label)
	if p.N > 1 {
		what := "repeats"
		if s.Pairs > 1 {
			what = "pairs"
		}
		title += fmt.Sprintf(", median of %d %s, %s to %s", p.N, what, p.figure(p.Min), p.figure(p.Max))
	}
	if limit := s.limit(k); limit > 0 {
		title += fmt.Sprintf("; the wire carries %s", show.Short(limit))
	}
	if p.derived {
		title += ", " + derivedText
	}
	if s.Emulated {
		title += ", emulated"
	}
	return title
}

// barsVanish is the ratio of values above which the shortest bars would be a few pixels long.
const barsVanish = 40

// barChart ends the axis at the largest value of keys and scale.
func (s scope) barChart(id, title string, keys, scale []chartPoint) chart.Chart {
	c := chart.New(id, title, chart.Width)
	_, lo, hi := s.span(slices.Concat(keys, scale))
	if lo > 0 && hi/lo > barsVanish {
		return s.dotChart(c, keys, chart.LogAxis(lo, hi).Over(chart.Inset, chart.Width-chart.Inset))
	}
	a := chart.LinearAxis(hi).Over(chart.Margin, chart.Width-102) // 102: room for the figure
	unit := show.Unit(bench.MetricOf(keys[0].Metric).Unit)
	for _, k := range keys {
		p := s.points[k]
		c.Paragraph("", chart.TextFont, k.name()+", "+bench.MetricOf(k.Metric).Label)
		class := "pt s0"
		if k.Run == "B" {
			class = "pt s1"
		}
		y := c.Y + 2
		c.Rect(class, a.From, y, max(1, a.At(p.Median)-a.From), 16, s.title(k)) // 1: stays visible
		bar := &c.Shapes[len(c.Shapes)-1]
		bar.Value, bar.Bytes = show.Exact(p.Median), k.Bytes
		if p.Min < p.Max {
			c.Path("whisker", chart.Path("M%s %sH%s", a.At(p.Min), y+8, a.At(p.Max)), "")
		}
		c.Text("", a.At(p.Max)+6, y+12, p.figure(p.Median)+" "+unit)
		c.Y += 28
	}
	c.Desc = fmt.Sprintf("Bars from zero, %s in %s. %s. The figures are in the tables below.",
		strings.ToLower(title), unit, words.Count(len(keys), "bar"))
	return c.Done()
}

// dotChart has dots instead of bars, because the length of a bar means nothing on a logarithmic axis.
func (s scope) dotChart(c *chart.Canvas, keys []chartPoint, a chart.Axis) chart.Chart {
	unit := show.Unit(bench.MetricOf(keys[0].Metric).Unit)
	for _, k := range keys {
		p := s.points[k]
		c.Paragraph("", chart.TextFont, fmt.Sprintf("%s, %s: %s %s", k.name(), bench.MetricOf(k.Metric).Label,
			p.figure(p.Median), unit))
		_, middle := c.Strip(a, 16)
		if p.Min < p.Max {
			c.Path("whisker", chart.Path("M%s %sH%s", a.At(p.Min), middle, a.At(p.Max)), "")
		}
		at := asRun(chart.Series{}, k.Run)
		class := "pt s0"
		if k.Run == "B" {
			class = "pt s1"
		}
		c.Path(class, chart.Marker(at.Marker, a.At(p.Median), middle), s.title(k))
		dot := &c.Shapes[len(c.Shapes)-1]
		dot.Value, dot.Bytes = show.Exact(p.Median), k.Bytes
		c.Y += 4
	}
	c.XAxis(a)
	c.AxisName(a.Unit(unit))
	c.Desc = fmt.Sprintf("Dots on a logarithmic axis, %s in %s. %s. The figures are in the tables below.",
		strings.ToLower(c.Title), unit, words.Count(len(keys), "dot"))
	return c.Done()
}
