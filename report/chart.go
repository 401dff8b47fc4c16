package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/words"
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
	points   map[chartPoint]point
	keys     []chartPoint // of points, sorted
}

// A point is a figure of a chart.
type point struct {
	spread
	derived bool    // at least one value was computed from another column
	limit   float64 // what the wire carries: the least of all pairs; 0 where one does not say so
}

// maxPairCharts is the number of pairs up to which each pair gets its own charts. More charts than that
// cannot be compared by eye: the pairs are drawn as one median with a band, and beside each other in a
// matrix.
const maxPairCharts = 3

// scopes groups the figures for the charts.
func (r *results) scopes() []scope {
	// Emulated pairs never join those of hardware: whether a pair is emulated stays in the key of the group.
	together := len(r.pairs) > maxPairCharts
	group := func(p pair) pair {
		if together {
			p.Client, p.Server = "", ""
		}
		return p
	}
	var out []scope
	var figures []map[chartPoint][]figureKey // of each scope
	index := make(map[pair]int)
	for _, p := range r.pairs {
		g := group(p)
		i, ok := index[g]
		if !ok {
			i = len(out)
			index[g] = i
			out = append(out, scope{Title: p.String(), pair: g, Emulated: p.Emulated,
				points: make(map[chartPoint]point)})
			figures = append(figures, make(map[chartPoint][]figureKey))
		}
		out[i].Pairs++
	}
	for _, k := range r.keys {
		i := index[group(k.Pair)]
		c := chartPoint{Test: k.Test, Bytes: k.Bytes, Metric: k.Metric}
		figures[i][c] = append(figures[i][c], k)
	}
	for i := range out {
		s := &out[i]
		for c, keys := range figures[i] {
			s.points[c] = r.point(keys, together)
		}
		s.keys = slices.SortedFunc(maps.Keys(s.points), comparePoints)
		if together {
			s.Title = words.Count(s.Pairs, "pair") + " together"
		}
	}
	return out
}

// point is the figure of one pair, or of all pairs together.
func (r *results) point(keys []figureKey, together bool) point {
	// The least limit, so that no pair is held against more than its own wire carries.
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

// comparePoints orders points so that those of one line follow each other by size: lineChart starts a new line where
// test, metric or run change.
func comparePoints(a, b chartPoint) int {
	return cmp.Or(compareTests(a.Test, b.Test), compareMetrics(a.Metric, b.Metric), cmp.Compare(a.Run, b.Run),
		cmp.Compare(a.Bytes, b.Bytes))
}

// limit is what the wire carries at a point, in the unit of its metric; 0 where that is not known.
func (s scope) limit(k chartPoint) float64 {
	switch k.Metric {
	case bench.MetricBWAverage:
		return s.points[k].limit
	case bench.MetricMessageRate: // as many messages as the bandwidth has: Gb/s are 1e3 Mb/s, of 8 bits a byte
		of := k
		of.Metric = bench.MetricBWAverage
		return s.points[of].limit * 1e3 / (8 * float64(k.Bytes))
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
	Limits          []show.Line // what the wire carries
	LimitKey        *series     // of Limits, in the legend; nil where there are none
	Bars            []bar       // instead of Series
}

// A tick is a gridline and its label.
type tick struct{ At, Label string }

// A series is a line of a chart.
type series struct {
	Name          string    // in the legend: the test, or the metric where all series are of one test
	Color, Dash   int       // classes of the style sheet
	Line, Band    show.Line // Band is empty unless the series is over many pairs
	Key           string    // the marker in the legend
	KeyX, KeyY    string    // where the legend's piece of line starts,
	KeyEnd, TextX string    // where it ends, and where the name starts
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
	// Logarithmic: bandwidths of 2 bytes and of 8 MiB are four powers of ten apart, and a linear axis would show the
	// large ones alone.
	add("Bandwidth", " by message size", is(bench.MetricBWAverage), true)
	add("Message rate", " by message size", is(bench.MetricMessageRate), true)
	add("Throughput", "", is(bench.MetricThroughput), false)
	// An average is drawn only of tests that have no median, which is the better figure.
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
	// The bars of all latency tests share one scale: they stand beside each other and are compared by their length.
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

// linesAndBars parts the wanted points by how they are drawn. The number of sizes is that of all wanted points
// together, so that the runs of one test are drawn in the same way.
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
	lo, hi, small, large := math.Inf(1), 0.0, int64(math.MaxInt64), int64(0)
	for _, k := range keys {
		p := s.points[k]
		lo, hi = min(lo, p.Min), max(hi, p.Max)
		// Bars are of few figures, and have their limits in words.
		if logY {
			hi = max(hi, s.limit(k))
		}
		small, large = min(small, k.Bytes), max(large, k.Bytes)
	}
	y = show.LinearAxis(hi)
	if logY {
		y = show.LogAxis(lo, hi)
	}
	return show.SizeAxis(small, large), y
}

// lineChart draws the points as lines, one for each test, metric and run.
func (s scope) lineChart(id, title string, keys []chartPoint, logY bool) chart {
	c := chart{ID: id, Title: title, Emulated: s.Emulated, XLabel: "message size"}
	var all []series
	for _, k := range keys {
		if n := len(all); n == 0 || !all[n-1].like(k.Test, k.Metric) || all[n-1].run != k.Run {
			all = append(all, series{testName: k.Test, metric: k.Metric, run: k.Run})
		}
		last := &all[len(all)-1]
		last.points = append(last.points, k)
	}
	first, last := all[0], all[len(all)-1]
	if first.metric == bench.MetricLoadLatency {
		c.XLabel = "size of what is read"
	}
	oneTest := first.testName == last.testName && first.metric != last.metric
	x, y := s.axes(keys, logY)
	// All lines of a chart have one unit: lines of two units would share an axis that is true for one of them.
	metric := bench.MetricOf(first.metric)
	c.YLabel = show.Unit(metric.Unit)
	if !oneTest && metric.Label != "message rate" {
		c.YLabel += ", " + metric.Label
	}
	for i := range all {
		se := &all[i]
		se.Name = se.testName
		if oneTest { // same test: the lines differ in metric
			se.Name = bench.MetricOf(se.metric).Label
			se.Dash = i
		}
		se.Color, se.marker = i, i
		if i > 0 && se.run != "" {
			se.Color = all[i-1].Color
			if !all[i-1].like(se.testName, se.metric) { // else it is the other run of the same
				se.Color++
			}
		}
		se.asRun()
	}
	colorRuns(all)
	limits := s.limitLines(all)
	if len(limits) > 0 {
		c.LimitKey = &series{Name: "wire limit, headers counted"}
	}
	c.frame(all, &x, &y, sizeTick)
	for i := range all {
		s.draw(&all[i], x, y)
	}
	for _, points := range limits {
		var line show.Line
		for _, p := range points {
			line.To(x.At(float64(p.Bytes)), y.At(s.limit(p)))
		}
		c.Limits = append(c.Limits, line)
	}
	scale := "linear from zero"
	if logY {
		scale = "logarithmic"
	}
	c.Desc = fmt.Sprintf("Lines over %s (to the base of two), %s in %s, %s. %s.", c.XLabel, strings.ToLower(title),
		show.Unit(metric.Unit), scale, words.Count(len(keys), "point"))
	if len(limits) > 0 {
		c.Desc += " A dashed line is what the wire carries."
	}
	c.Desc += " The figures are in the tables below."
	return c
}

// sizeTick is a tick of an axis of message sizes.
func sizeTick(v float64) string { return show.Size(int64(v)) }

// like reports whether a line is of a test and metric.
func (se *series) like(test, metric string) bool { return se.testName == test && se.metric == metric }

// asRun makes the line of a run look as such where two results are compared: the colour says what,
// dash and marker whose.
func (se *series) asRun() {
	if se.run == "" {
		return
	}
	se.Dash, se.marker = 0, 0
	if se.run == "B" {
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
		same := func(line []chartPoint) bool {
			// At each of its sizes: lines that cross are not near.
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

// frame lays out legend, plot and ticks, and gives the axes their coordinates.
func (c *chart) frame(all []series, x, y *show.Axis, xLabel func(float64) string) {
	width := func(s string) float64 { return letterWidth * float64(utf8.RuneCountInString(s)) }
	// The labels of the y axis end five units left of the plot: 14 is that gap and the margin. Labels are measured by
	// letterWidth, since the page may have any font.
	left := 14.0
	for _, t := range y.Ticks {
		left = max(left, 14+width(show.Tick(t)))
	}
	c.Left = show.Px(left)
	x.From, x.To = left, plotRight-8
	if n := len(x.Ticks); n > 0 { // the last label, which stands below the end, whole
		x.To = min(x.To, chartWidth-2-width(xLabel(x.Ticks[n-1]))/2)
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
		// The style sheet has so many colours and dashes. Lines that share both still differ in their markers.
		se.Color %= 6
		se.Dash %= 4
		se.Name = show.Cut(se.Name, 40)
		// 26 for the piece of line, 8 for the gaps around it, and 14 to the next entry.
		room := 34 + width(se.Name) + 14
		if legendX > 8 && legendX+room > chartWidth {
			legendX, legendY = 8, legendY+lineHeight
		}
		middle := float64(legendY) - 4
		se.KeyX, se.KeyEnd, se.KeyY = show.Px(legendX), show.Px(legendX+26), show.Px(middle)
		se.TextX = show.Px(legendX + 31)
		se.Key = show.Marker(se.marker, legendX+13, middle)
		legendX += room
	}
	c.YLabelY = legendY + lineHeight + 4
	c.Top = c.YLabelY + 12
	c.Bottom = c.Top + plotHeight
	c.Height = c.Bottom + 42
	y.From, y.To = float64(c.Bottom), float64(c.Top)
	for _, t := range y.Ticks {
		c.YTicks = append(c.YTicks, tick{show.Px(y.At(t)), show.Tick(t)})
	}
	for _, t := range x.Ticks {
		c.XTicks = append(c.XTicks, tick{show.Px(x.At(t)), xLabel(t)})
	}
	c.Series = all
}

// to draws the line on to a point, and the mark there.
func (se *series) to(x, y float64, m mark) {
	se.Line.To(x, y)
	m.Path = show.Marker(se.marker, x, y)
	se.Marks = append(se.Marks, m)
}

// draw fills in the line and the marks of a series, and the band between lowest and highest.
func (s scope) draw(se *series, x, y show.Axis) {
	// Over many pairs the spread is a band: whiskers of ten lines would hide each other.
	spreads := false
	for _, k := range se.points {
		p, at, m := s.points[k], x.At(float64(k.Bytes)), s.mark(k)
		if p.Min < p.Max && s.Pairs == 1 {
			m.Whisker = show.Path("M%s %sV%s", at, y.At(p.Min), y.At(p.Max))
		}
		se.to(at, y.At(p.Median), m)
		spreads = spreads || p.Min < p.Max
	}
	if !spreads || s.Pairs == 1 {
		return
	}
	for _, k := range se.points {
		se.Band.To(x.At(float64(k.Bytes)), y.At(s.points[k].Max))
	}
	// Back along the lowest values, so that the path encloses the band.
	for _, k := range slices.Backward(se.points) {
		se.Band.To(x.At(float64(k.Bytes)), y.At(s.points[k].Min))
	}
	se.Band = append(se.Band, 'z')
}

// derivedText says of a figure that no tool printed it.
const derivedText = "computed from another column"

// name is "A: ib_write_bw, 64 KiB".
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

// mark is the text and the data of a point; its shape is the caller's.
func (s scope) mark(k chartPoint) mark {
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
	unit := show.Unit(bench.MetricOf(keys[0].Metric).Unit)
	y.From, y.To = 8, plotRight-90 // 90: room for the figure after the longest bar
	for i, k := range keys {
		m := s.mark(k)
		p := s.points[k]
		b := bar{mark: m, Label: show.Cut(k.name()+", "+bench.MetricOf(k.Metric).Label, 56),
			Text: p.figure(p.Median) + " " + unit}
		if k.Run == "B" {
			b.Color = 1
		}
		b.LabelY = 16 + i*44
		b.Y = b.LabelY + 6
		b.Width = show.Px(max(1, y.At(p.Median)-y.From)) // 1: the smallest that can be seen and pointed at
		b.TextX = show.Px(y.At(p.Max) + 6)
		if p.Min < p.Max {
			b.Whisker = show.Path("M%s %sH%s", y.At(p.Min), float64(b.Y+8), y.At(p.Max))
		}
		c.Bars = append(c.Bars, b)
	}
	c.Height = 16 + len(keys)*44
	c.Desc = fmt.Sprintf("Bars from zero, %s in %s. %s. The figures are in the tables below.",
		strings.ToLower(title), unit, words.Count(len(keys), "bar"))
	return c
}
