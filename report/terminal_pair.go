package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// usualSizes are the message sizes at which RDMA figures are commonly quoted: enough to see the shape of a curve.
var usualSizes = []int64{2, 64, 512, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 8 << 20}

// pickSizes leaves few of the sorted sizes: for each usual one that which is nearest by ratio, and
// the largest, which in a curve of memory is the memory behind all caches.
func pickSizes(sizes []int64) []int64 {
	if len(sizes) <= len(usualSizes) {
		return sizes
	}
	distance := func(a, b int64) float64 { return math.Abs(math.Log(max(1, float64(a))) - math.Log(float64(b))) }
	var out []int64
	// By ratio: between 1 KiB and 4 KiB, 2 KiB is as near to the one as to the other.
	for _, usual := range usualSizes {
		nearest := sizes[0]
		for _, s := range sizes {
			if distance(s, usual) < distance(nearest, usual) {
				nearest = s
			}
		}
		out = append(out, nearest)
	}
	out = append(out, sizes[len(sizes)-1])
	return slices.Compact(out) // sorted: of two usual sizes the larger never has the smaller neighbour
}

// picked leaves few of the sizes of a test, unless all were asked for.
func (t *terminal) picked(sizes []int64) []int64 {
	if t.AllSizes {
		return sizes
	}
	return pickSizes(sizes)
}

// sizes are those of some figures, each once and sorted.
func (r *results) sizes(of func(k figureKey) bool) []int64 {
	return lists.Distinct(lists.Map(lists.Filter(r.keys, of), func(k figureKey) int64 { return k.Bytes }))
}

// A testKind says which table a test is in.
type testKind int

const (
	bandwidthTest testKind = iota
	latencyTest
	otherTest
)

// kind goes by what the test measured. The name must do for a test that only failed.
func (r *results) kind(test string) testKind {
	for _, k := range r.keys {
		switch {
		case k.Test != test:
		case slices.Contains([]string{bench.MetricBWAverage, bench.MetricBWPeak, bench.MetricMessageRate}, k.Metric):
			return bandwidthTest
		case strings.HasPrefix(k.Metric, "latency_"), strings.HasPrefix(k.Metric, "tps_"):
			return latencyTest
		default:
			return otherTest
		}
	}
	switch {
	case strings.HasSuffix(test, "_bw"):
		return bandwidthTest
	case strings.HasSuffix(test, "_lat"):
		return latencyTest
	}
	return otherTest
}

// testsOf are the tests that a pair tried, by their kind.
func (r *results) testsOf(p pair) map[testKind][]string {
	figures := lists.Filter(r.keys, func(k figureKey) bool { return k.Pair == p })
	failures := lists.Filter(r.failures, func(f failure) bool { return f.pair() == p })
	tests := slices.Concat(lists.Map(figures, func(k figureKey) string { return k.Test }),
		lists.Map(failures, func(f failure) string { return f.Sample.Test }))
	slices.SortFunc(tests, compareTests)
	out := make(map[testKind][]string)
	for _, t := range slices.Compact(tests) {
		kind := r.kind(t)
		out[kind] = append(out[kind], t)
	}
	return out
}

// sizesOf are the sizes to show of a pair's tests, and how many there are to show. A size where a
// test failed is always shown.
func (t *terminal) sizesOf(p pair, tests ...string) (shown []int64, measured int) {
	var all []int64
	for _, test := range tests {
		sizes := t.r.sizes(func(k figureKey) bool { return k.Pair == p && k.Test == test })
		all = append(all, sizes...)
		shown = append(shown, t.picked(sizes)...)
	}
	// A run over all sizes that failed has no size to be shown at: it gets a row only if nothing else has one.
	wholeRun := false // something failed that would have measured all sizes
	for _, f := range t.r.failures {
		switch s := f.Sample; {
		case f.pair() != p || !slices.Contains(tests, s.Test):
		case s.Bytes == 0:
			wholeRun = true
		case !f.Retried:
			all, shown = append(all, s.Bytes), append(shown, s.Bytes)
		}
	}
	if len(shown) == 0 && wholeRun {
		all, shown = []int64{0}, []int64{0}
	}
	return lists.Distinct(shown), len(lists.Distinct(all))
}

// failedAt reports whether the figure is missing because its measurement failed.
func (r *results) failedAt(k figureKey) bool {
	row := k
	row.Metric = ""
	_, measured := r.iters[row]
	return slices.ContainsFunc(r.failures, func(f failure) bool {
		s := f.Sample
		switch {
		case f.pair() != k.Pair || s.Test != k.Test || s.Bytes != 0 && s.Bytes != k.Bytes:
			return false
		case s.Metric == "": // the whole run failed, and no other gave a figure here
			return !measured
		}
		return s.Metric == k.Metric
	})
}

// text is the median of a figure's repeats with three digits, in its unit times ten to the power of
// shift. A computed figure has no more digits than the one it was computed from.
func (r *results) text(k figureKey, shift int) string {
	s := spreadOf(r.values[k])
	// The shift moves digits from behind the point to before it, so that as many decimals less are left.
	v := s.Median * math.Pow10(shift)
	if !r.derived[k] {
		return show.Number(v, 3, max(0, s.Decimals-shift))
	}
	digits := 3
	from := k
	from.Metric = bench.MetricMessageRate
	if k.Metric == bench.MetricMessageRate {
		from.Metric = bench.MetricBWAverage
	}
	// What was computed from 0.01 is known to one digit, whatever the division prints.
	if of := r.values[from]; len(of) > 0 {
		digits = min(digits, show.Digits(spreadOf(of).Median))
	}
	return "~" + show.Number(v, digits, math.MaxInt)
}

// notes are what a table needs said below it.
type notes struct {
	derived bool
	repeats [2]int // fewest and most of a cell
}

// cell is a figure, or the word for why there is none.
func (t *terminal) cell(n *notes, k figureKey, shift int) string {
	v := t.r.values[k]
	switch {
	case len(v) == 0 && t.r.failedAt(k):
		return failedWord
	case len(v) == 0:
		return "-"
	}
	n.derived = n.derived || t.r.derived[k]
	n.repeats[0] = cmp.Or(n.repeats[0], len(v))
	n.repeats = [2]int{min(n.repeats[0], len(v)), max(n.repeats[1], len(v))}
	return t.r.text(k, shift)
}

// print writes what the reader of the table above must know.
func (n notes) print(t *terminal, shown, measured int) {
	if shown < measured {
		t.Wrap("", "", fmt.Sprintf("%d of %d sizes; --all and the page show all of them", shown, measured))
	}
	if n.repeats[1] > 1 {
		of := words.Count(n.repeats[1], "repeat")
		if n.repeats[0] < n.repeats[1] {
			of = fmt.Sprintf("%d to %s", n.repeats[0], of)
		}
		t.Wrap("", "", "each figure is the median of "+of)
	}
	if n.derived {
		t.Wrap("", "", "~: the tool printed 0, for want of decimals; "+derivedText)
	}
}

// pairTables prints what was measured between two nodes: a table of bandwidth, one of latency, and
// a line for each other test.
func (t *terminal) pairTables(p pair) {
	tests := t.r.testsOf(p)
	if of := tests[bandwidthTest]; len(of) > 0 {
		t.bandwidth(p, of)
	}
	if of := tests[latencyTest]; len(of) > 0 {
		t.latency(p, of)
	}
	if len(tests[otherTest]) > 0 {
		fmt.Fprintln(t)
	}
	for _, test := range tests[otherTest] {
		t.other(p, test)
	}
}

// bandwidth prints a row for each message size and a column for each test. More tests than fit
// beside each other get a second table.
func (t *terminal) bandwidth(p pair, tests []string) {
	var n notes
	shown, measured := t.sizesOf(p, tests...)
	header := []string{"size"}
	var columns [][]string
	add := func(test, unit, metric string, shift int) {
		header = append(header, shortName(test)+"\n"+unit)
		column := lists.Map(shown,
			func(size int64) string { return t.cell(&n, figureKey{p, test, size, metric}, shift) })
		columns = append(columns, column)
	}
	for _, test := range tests {
		add(test, "Gb/s", bench.MetricBWAverage, 0)
	}
	if test, unit, shift := t.r.rateOf(p, tests, shown); test != "" {
		add(test, unit, bench.MetricMessageRate, shift)
	}
	rows := lists.Map(shown, func(size int64) []string { return []string{sizeOrDash(size)} })
	// The tests are halved, not the columns: a rate stays beside the bandwidth that it belongs to.
	w := fill(header, rows, columns)
	if width(w) > 80 && len(tests) > 1 {
		t.bandwidth(p, tests[:len(tests)/2])
		t.bandwidth(p, tests[len(tests)/2:])
		return
	}
	t.print(p.String()+": average bandwidth and message rate", p.Emulated, w)
	n.print(t, len(shown), measured)
}

// rateOf picks the test whose message rate has a column, the first that has one, and the unit that
// suits its largest figure.
func (r *results) rateOf(p pair, tests []string, sizes []int64) (test, unit string, shift int) {
	for _, test := range tests {
		highest := 0.0
		for _, size := range sizes {
			if v := r.values[figureKey{p, test, size, bench.MetricMessageRate}]; len(v) > 0 {
				highest = max(highest, spreadOf(v).Median)
			}
		}
		switch {
		// Emulated nodes send a few thousand messages a second, and 3.2 kpps is read more easily than 0.0032 Mpps.
		case highest >= 1:
			return test, "Mpps", 0
		case highest > 0:
			return test, "kpps", 3
		}
	}
	return "", "", 0
}

// latency prints a row for each test and size.
func (t *terminal) latency(p pair, tests []string) {
	metrics := []string{bench.MetricLatencyTypical, bench.MetricLatencyAverage, bench.MetricLatencyP99,
		bench.MetricLatencyP999, bench.MetricLatencyMax}
	header := []string{"test", "size"}
	for _, name := range metrics {
		m := bench.MetricOf(name)
		header = append(header, m.Label+"\n"+m.Unit)
	}
	var n notes
	shown, measured := 0, 0
	var rows [][]string
	columns := make([][]string, len(metrics))
	for _, test := range tests {
		sizes, all := t.sizesOf(p, test)
		shown, measured = max(shown, len(sizes)), max(measured, all)
		for _, size := range sizes {
			rows = append(rows, []string{test, sizeOrDash(size)})
			failed := false
			for i, m := range metrics {
				c := t.cell(&n, figureKey{p, test, size, m}, 0)
				if c == failedWord && failed { // once in a row is enough
					c = "-"
				}
				failed = failed || c == failedWord
				columns[i] = append(columns[i], c)
			}
		}
	}
	t.print(p.String()+": latency", p.Emulated, fill(header, rows, columns))
	n.print(t, shown, measured)
}

// other prints a test that has neither table in one line for each size, as iperf3, which has no sizes.
func (t *terminal) other(p pair, test string) {
	where := p.String()
	if p.Emulated {
		where += ", emulated"
	}
	var n notes
	sizes, measured := t.sizesOf(p, test)
	for _, size := range sizes {
		what := test
		if size != 0 {
			what += " at " + show.Size(size)
		}
		var parts []string
		for _, k := range t.r.keys {
			if k.Pair == p && k.Test == test && k.Bytes == size {
				parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", bench.MetricOf(k.Metric).Label,
					t.cell(&n, k, 0), t.r.unitOf(k.Test, k.Metric))))
			}
		}
		if len(parts) == 0 {
			parts = []string{failedWord}
		}
		t.Wrap("", "  ", where+": "+what+" "+strings.Join(parts, ", "))
	}
	n.print(t, len(sizes), measured)
}

// shortTest is the name of a test without what most of them share: "write_bw" for "ib_write_bw".
func shortTest(test string) string { return cmp.Or(strings.TrimPrefix(test, "ib_"), test) }

// shortName is the name of a test in a table of bandwidth: "write" for "ib_write_bw".
func shortName(test string) string { return cmp.Or(strings.TrimSuffix(shortTest(test), "_bw"), test) }
