package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/report/show"
)

// A chartPoint is where a point of a chart comes from.
type chartPoint struct {
	Test   string
	Bytes  int64 // 0: the tool has no message size
	Metric string
	Run    string // "A" or "B" where two results are compared
}

// A scope is what one group of charts is about: a pair, or all pairs of one kind together. In a
// pair a spread is over the repeats of a measurement; over many pairs it is over the pairs'
// medians.
type scope struct {
	Title    string
	Emulated bool
	Pairs    int
	pair     pair // no names where it is many
	points   map[chartPoint]spread
	derived  map[chartPoint]bool    // in points with true: at least one value was computed from another column
	limits   map[chartPoint]float64 // what the wire carries, of bandwidths where every pair says so: the least
	keys     []chartPoint           // of points, sorted
}

// maxPairCharts is the number of pairs up to which each pair gets its own charts. Beyond it nobody
// compares charts: the pairs are drawn as one median with a band, and beside each other in a
// matrix.
const maxPairCharts = 3

// scopes groups the figures for the charts.
func (r *results) scopes() []scope {
	group := func(p pair) pair { return p }
	if len(r.pairs) > maxPairCharts {
		group = func(p pair) pair { return pair{Emulated: p.Emulated} }
	}
	var out []scope
	index := make(map[pair]int)
	for _, p := range r.pairs {
		g := group(p)
		i, ok := index[g]
		if !ok {
			i = len(out)
			index[g] = i
			out = append(out, scope{Title: p.String(), pair: g, Emulated: p.Emulated,
				points: make(map[chartPoint]spread), derived: make(map[chartPoint]bool),
				limits: make(map[chartPoint]float64)})
		}
		out[i].Pairs++
	}
	medians := make([]map[chartPoint][]spread, len(out))
	for _, k := range r.keys {
		i := index[group(k.Pair)]
		c := chartPoint{Test: k.Test, Bytes: k.Bytes, Metric: k.Metric}
		s := spreadOf(r.values[k])
		if least, ok := out[i].limits[c]; !ok || r.limits[k] < least {
			out[i].limits[c] = r.limits[k]
		}
		out[i].derived[c] = out[i].derived[c] || r.derived[k]
		if len(r.pairs) <= maxPairCharts {
			out[i].points[c] = s
			out[i].keys = append(out[i].keys, c)
			continue
		}
		if medians[i] == nil {
			medians[i] = make(map[chartPoint][]spread)
		}
		if medians[i][c] == nil {
			out[i].keys = append(out[i].keys, c)
		}
		medians[i][c] = append(medians[i][c], s)
	}
	for i := range out {
		for c, m := range medians[i] {
			out[i].points[c] = spreadOfMedians(m)
		}
		if len(r.pairs) > maxPairCharts {
			out[i].Title = show.Count(out[i].Pairs, "pair", "pairs") + " together"
		}
		slices.SortFunc(out[i].keys, comparePoints)
	}
	return out
}

func comparePoints(a, b chartPoint) int {
	return cmp.Or(compareTests(a.Test, b.Test), compareMetrics(a.Metric, b.Metric), cmp.Compare(a.Run, b.Run),
		cmp.Compare(a.Bytes, b.Bytes))
}

// limit is what the wire carries at a point, in the unit of its metric; 0 where that is not known.
func (s scope) limit(k chartPoint) float64 {
	switch k.Metric {
	case bench.MetricBWAverage:
		return s.limits[k]
	case bench.MetricMessageRate: // as many messages as the bandwidth has
		of := k
		of.Metric = bench.MetricBWAverage
		return s.limits[of] * 1e3 / (8 * float64(k.Bytes))
	}
	return 0
}

// Geometry of a chart, in units of its viewBox. 400 wide is a phone's width: text of size 12 stays
// readable there, and a laptop shows two or three charts in a row.
const (
	chartWidth  = 400
	plotHeight  = 210
	plotRight   = 388
	lineHeight  = 18
	letterWidth = 6.6 // of a letter of size 12, on average and a little too wide
)

// A chart is one picture of lines over message sizes, ready to print.
type chart struct {
	ID, Title, Desc string // Desc is for those who cannot see the picture
	Emulated        bool
	Height          int
	YLabel          string // the unit and, if all series share it, the metric
	YLabelY         int
	Top, Bottom     int    // of the plot
	Left            string // of the plot, as far right as the longest label of the axis needs
	XTicks, YTicks  []tick
	XLabel          string
	Series          []series
	Limits          []string // paths: what the wire carries
	LimitKey        *series  // of Limits, in the legend; nil where there are none
	Bars            []bar    // instead of Series
}

// A tick is a gridline and its label.
type tick struct{ At, Label string }

// A series is a line of a chart.
type series struct {
	Name          string // in the legend: the test, or the metric where all series are of one test
	Color, Dash   int    // classes of the style sheet
	Line, Band    string // paths; Band is empty unless the series is over many pairs
	Key           string // the marker in the legend
	KeyX, KeyY    string // where the legend's piece of line starts,
	KeyEnd, TextX string // where it ends, and where the name starts
	Marks         []mark

	marker                int // the shape, so that series differ in more than colour
	points                []chartPoint
	testName, metric, run string
}

// A mark is a point of a line or a bar: an element that can be pointed at, with the figure in it.
type mark struct {
	Path    string // the marker's shape; a bar has none
	Whisker string // a line from the lowest to the highest value; empty if there is one value
	Title   string // the figure in words, which browsers show on pointing at the mark
	Value   string // the figure exactly, for programs
	Bytes   int64  // message size; 0: the tool has none
}

// charts draws everything in a scope that can be drawn. Lines need three sizes: a line between two
// would claim something about all that lies between them. What was measured at fewer sizes, or
// without one, becomes bars. Every figure with one of the metrics below is drawn exactly once.
func (s scope) charts(id string) []chart {
	var out []chart
	// scale are points of other charts with which the bars share their scale.
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
	add("Bandwidth", " by message size", is(bench.MetricBWAverage), true)
	add("Message rate", " by message size", is(bench.MetricMessageRate), true)
	add("Throughput", "", is(bench.MetricThroughput), false)
	// by test; an average is drawn only where there is no median, which is the better figure
	withTypical := make(map[string]bool)
	for _, k := range s.keys {
		withTypical[k.Test] = withTypical[k.Test] || k.Metric == bench.MetricLatencyTypical
	}
	percentile := is(bench.MetricLatencyTypical, bench.MetricLatencyP99, bench.MetricLatencyP999)
	latency := func(k chartPoint) bool {
		return percentile(k) || k.Metric == bench.MetricLatencyAverage && !withTypical[k.Test]
	}
	var tests []string
	for _, k := range s.keys {
		if latency(k) && !slices.Contains(tests, k.Test) {
			tests = append(tests, k.Test)
		}
	}
	// The bars of all latency tests share one scale: they stand beside each other and are compared by their length.
	latencyOf := func(t string) func(chartPoint) bool {
		return func(k chartPoint) bool { return k.Test == t && latency(k) }
	}
	var bars []chartPoint
	for _, t := range tests {
		_, rest := s.linesAndBars(latencyOf(t))
		bars = append(bars, rest...)
	}
	for _, t := range tests {
		add("Latency of "+t, " by size", latencyOf(t), true, bars...)
	}
	add("Collective operations", " by size", is(bench.MetricCollectiveTime), true)
	add("Loads from memory", " by how much is read", is(bench.MetricLoadLatency), true)
	return out
}

// linesAndBars parts the wanted points by how they are drawn.
func (s scope) linesAndBars(wanted func(chartPoint) bool) (lines, bars []chartPoint) {
	sizes := make(map[int64]bool)
	for _, k := range s.keys {
		if wanted(k) && k.Bytes > 0 {
			sizes[k.Bytes] = true
		}
	}
	for _, k := range s.keys {
		switch {
		case !wanted(k):
		case len(sizes) >= 3 && k.Bytes > 0:
			lines = append(lines, k)
		default:
			bars = append(bars, k)
		}
	}
	return lines, bars
}

// axes finds the two axes for the points, spreads included. Charts of lines do not share them: a
// latency of a read may be ten times that of a write, and both must be readable.
func (s scope) axes(keys []chartPoint, logY bool) (x, y show.Axis) {
	var lo, hi float64
	var small, large int64
	for i, k := range keys {
		p := s.points[k]
		if i == 0 {
			lo, hi, small, large = p.Min, p.Max, k.Bytes, k.Bytes
		}
		lo, hi = min(lo, p.Min), max(hi, p.Max)
		if logY {
			hi = max(hi, s.limit(k))
		}
		small, large = min(small, k.Bytes), max(large, k.Bytes)
	}
	if logY {
		y = show.LogAxis(lo, hi)
	} else {
		y = show.LinearAxis(hi)
	}
	return show.SizeAxis(small, large), y
}

// lineChart draws the points as lines, one for each test, metric and run.
func (s scope) lineChart(id, title string, keys []chartPoint, logY bool) chart {
	c := chart{ID: id, Title: title, Emulated: s.Emulated, XLabel: "message size"}
	var all []series
	for _, k := range keys {
		if n := len(all); n == 0 || all[n-1].testName != k.Test || all[n-1].metric != k.Metric ||
			all[n-1].run != k.Run {
			all = append(all, series{testName: k.Test, metric: k.Metric, run: k.Run})
		}
		last := &all[len(all)-1]
		last.points = append(last.points, k)
	}
	if all[0].metric == bench.MetricLoadLatency {
		c.XLabel = "size of what is read"
	}
	oneTest := all[0].testName == all[len(all)-1].testName && all[0].metric != all[len(all)-1].metric
	x, y := s.axes(keys, logY)
	_, unit, label := metricInfo(all[0].metric)
	c.YLabel = show.Unit(unit)
	if !oneTest && label != "message rate" {
		c.YLabel += ", " + label
	}
	for i := range all {
		se := &all[i]
		se.Name = se.testName
		if oneTest { // same test: the lines differ in metric
			_, _, se.Name = metricInfo(se.metric)
			se.Dash = i
		}
		se.Color, se.marker = i, i
		if i > 0 && se.run != "" && all[i-1].testName == se.testName && all[i-1].metric == se.metric {
			// the other run of the same
			se.Color = all[i-1].Color
		} else if i > 0 && se.run != "" {
			se.Color = all[i-1].Color + 1
		}
		se.asRun()
	}
	colorRuns(all)
	limits := s.limitLines(all)
	if len(limits) > 0 {
		c.LimitKey = &series{Name: "wire limit, headers counted"}
	}
	c.frame(all, &x, &y, show.Tick, func(v float64) string { return show.Size(int64(v)) })
	for i := range all {
		s.draw(&all[i], x, y)
	}
	for _, line := range limits {
		var d strings.Builder
		for i, p := range line {
			verb := "L"
			if i == 0 {
				verb = "M"
			}
			fmt.Fprintf(&d, "%s%s %s", verb, show.Px(x.At(float64(p.Bytes))), show.Px(y.At(s.limit(p))))
		}
		c.Limits = append(c.Limits, d.String())
	}
	scale := "linear from zero"
	if logY {
		scale = "logarithmic"
	}
	c.Desc = fmt.Sprintf("Lines over %s (to the base of two), %s in %s, %s. %s.", c.XLabel, strings.ToLower(title),
		show.Unit(unit), scale, show.Count(len(keys), "point", "points"))
	if len(limits) > 0 {
		c.Desc += " A dashed line is what the wire carries."
	}
	c.Desc += " The figures are in the tables below."
	return c
}

// asRun makes the line of a run look as such where two results are compared: the colour says what,
// dash and marker whose.
func (se *series) asRun() {
	switch se.run {
	case "":
		return
	case "A":
		se.Dash, se.marker = 0, 0
	default:
		se.Dash, se.marker = 1, 1
	}
	se.Name = se.run + ": " + se.Name
}

// colorRuns gives two lines that are the runs of one thing a colour each, as the bars have them.
func colorRuns(all []series) {
	if len(all) == 2 && all[0].run == "A" && all[1].run == "B" {
		all[0].Color, all[1].Color = 0, 1
	}
}

// limitLines are the lines of what the wire carries. Tests whose limits are nearly the same, since
// they differ in headers alone, share one.
func (s scope) limitLines(all []series) [][]chartPoint {
	const near = 1.3
	var out [][]chartPoint
	for _, se := range all {
		known := slices.DeleteFunc(slices.Clone(se.points), func(k chartPoint) bool { return s.limit(k) <= 0 })
		if len(known) < 2 {
			continue
		}
		if !slices.ContainsFunc(out, func(other []chartPoint) bool {
			for _, k := range known {
				at := slices.IndexFunc(other, func(o chartPoint) bool { return o.Bytes == k.Bytes })
				if at < 0 || s.limit(k)/s.limit(other[at]) > near || s.limit(other[at])/s.limit(k) > near {
					return false
				}
			}
			return true
		}) {
			out = append(out, known)
		}
	}
	return out
}

// frame lays out legend, plot and ticks, and gives the axes their coordinates.
func (c *chart) frame(all []series, x, y *show.Axis, yLabel, xLabel func(float64) string) {
	left := 14.0
	for _, t := range y.Ticks {
		left = max(left, 14+letterWidth*float64(len([]rune(yLabel(t)))))
	}
	c.Left = show.Px(left)
	x.From, x.To = left, plotRight-8
	if n := len(x.Ticks); n > 0 { // the last label, which stands below the end, whole
		x.To = min(x.To, chartWidth-2-letterWidth/2*float64(len([]rune(xLabel(x.Ticks[n-1])))))
	}

	// The legend stands above the plot and wraps like text.
	legendX, legendY := 8.0, 14
	entries := make([]*series, len(all))
	for i := range all {
		entries[i] = &all[i]
	}
	if c.LimitKey != nil {
		entries = append(entries, c.LimitKey)
	}
	for _, se := range entries {
		se.Color %= 6
		se.Dash %= 4
		se.Name = show.Cut(se.Name, 40)
		width := 34 + letterWidth*float64(len([]rune(se.Name))) + 14
		if legendX > 8 && legendX+width > chartWidth {
			legendX, legendY = 8, legendY+lineHeight
		}
		se.KeyX, se.KeyEnd, se.KeyY = show.Px(legendX), show.Px(legendX+26), show.Px(float64(legendY)-4)
		se.TextX = show.Px(legendX + 31)
		se.Key = show.Marker(se.marker, legendX+13, float64(legendY)-4)
		legendX += width
	}
	c.YLabelY = legendY + lineHeight + 4
	c.Top = c.YLabelY + 12
	c.Bottom = c.Top + plotHeight
	c.Height = c.Bottom + 42
	y.From, y.To = float64(c.Bottom), float64(c.Top)
	for _, t := range y.Ticks {
		c.YTicks = append(c.YTicks, tick{show.Px(y.At(t)), yLabel(t)})
	}
	for _, t := range x.Ticks {
		c.XTicks = append(c.XTicks, tick{show.Px(x.At(t)), xLabel(t)})
	}
	c.Series = all
}

// draw fills in the line, the band between lowest and highest, and the marks of a series.
func (s scope) draw(se *series, x, y show.Axis) {
	var line, upper, lower strings.Builder
	spreads := false
	for i, k := range se.points {
		p := s.points[k]
		at, verb := x.At(float64(k.Bytes)), "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&line, "%s%s %s", verb, show.Px(at), show.Px(y.At(p.Median)))
		fmt.Fprintf(&upper, "%s%s %s", verb, show.Px(at), show.Px(y.At(p.Max)))
		spreads = spreads || p.Min < p.Max
		m := s.mark(k)
		m.Path = show.Marker(se.marker, at, y.At(p.Median))
		if p.Min < p.Max && s.Pairs == 1 {
			m.Whisker = fmt.Sprintf("M%s %sV%s", show.Px(at), show.Px(y.At(p.Min)), show.Px(y.At(p.Max)))
		}
		se.Marks = append(se.Marks, m)
	}
	for _, k := range slices.Backward(se.points) {
		fmt.Fprintf(&lower, "L%s %s", show.Px(x.At(float64(k.Bytes))), show.Px(y.At(s.points[k].Min)))
	}
	se.Line = line.String()
	if spreads && s.Pairs > 1 {
		se.Band = upper.String() + lower.String() + "z"
	}
}

// derivedText says of a figure that no tool printed it.
const derivedText = "computed from another column"

// mark is the text and the data of a point; its shape is the caller's.
func (s scope) mark(k chartPoint) mark {
	p := s.points[k]
	_, unit, label := metricInfo(k.Metric)
	unit = show.Unit(unit)
	title := k.Test
	if k.Run != "" {
		title = k.Run + ": " + title
	}
	if k.Bytes > 0 {
		title += ", " + show.Size(k.Bytes)
	}
	title += fmt.Sprintf(": %s %s %s", p.figure(p.Median), unit, label)
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
	if s.derived[k] {
		title += ", " + derivedText
	}
	if s.Emulated {
		title += ", emulated"
	}
	return mark{Title: title, Bytes: k.Bytes, Value: show.Exact(p.Median)}
}

// A bar is a row of a chart of bars.
type bar struct {
	mark
	Label, Text string // what was measured, above the bar; the figure, behind it
	LabelY, Y   int
	Color       int // of the style sheet
	Width       string
	TextX       string
}

// barChart draws the points as horizontal bars with their figures written at the end. They start at
// zero, and the longest that there could be is the largest of these points and of those in scale.
func (s scope) barChart(id, title string, keys, scale []chartPoint) chart {
	c := chart{ID: id, Title: title, Emulated: s.Emulated}
	_, y := s.axes(slices.Concat(keys, scale), false)
	_, unit, _ := metricInfo(keys[0].Metric)
	y.From, y.To = 8, plotRight-90 // 90: room for the figure after the longest bar
	for i, k := range keys {
		m := s.mark(k)
		p := s.points[k]
		_, _, metric := metricInfo(k.Metric)
		label := k.Test
		if k.Bytes > 0 {
			label += ", " + show.Size(k.Bytes)
		}
		if k.Run != "" {
			label = k.Run + ": " + label
		}
		b := bar{mark: m, Label: show.Cut(label+", "+metric, 56), Text: p.figure(p.Median) + " " + show.Unit(unit)}
		if k.Run == "B" {
			b.Color = 1
		}
		b.LabelY = 16 + i*44
		b.Y = b.LabelY + 6
		b.Width = show.Px(max(1, y.At(p.Median)-y.From)) // 1: the smallest that can be seen and pointed at
		b.TextX = show.Px(y.At(p.Max) + 6)
		if p.Min < p.Max {
			b.Whisker = fmt.Sprintf("M%s %dH%s", show.Px(y.At(p.Min)), b.Y+8, show.Px(y.At(p.Max)))
		}
		c.Bars = append(c.Bars, b)
	}
	c.Height = 16 + len(keys)*44
	c.Desc = fmt.Sprintf("Bars from zero, %s in %s. %s. The figures are in the tables below.",
		strings.ToLower(title), show.Unit(unit), show.Count(len(keys), "bar", "bars"))
	return c
}
