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

// usualSizes are commonly quoted, enough for the shape of a curve.
var usualSizes = []int64{2, 64, 512, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 8 << 20}

// pickSizes takes the nearest to each usual size, and the largest: in a memory curve the memory behind all caches.
func pickSizes(sizes []int64) []int64 {
	if len(sizes) <= len(usualSizes) {
		return sizes
	}
	distance := func(a, b int64) float64 { return math.Abs(math.Log(max(1, float64(a))) - math.Log(float64(b))) }
	var out []int64
	// By ratio, 2 KiB is as near to 1 KiB as to 4 KiB.
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
	return slices.Compact(out)
}

func (t *terminal) picked(sizes []int64) []int64 {
	if t.AllSizes {
		return sizes
	}
	return pickSizes(sizes)
}

func (r *results) sizes(of func(k figureKey) bool) []int64 {
	return lists.Distinct(lists.Map(lists.Filter(r.keys, of), func(k figureKey) int64 { return k.Bytes }))
}

type testKind int

const (
	bandwidthTest testKind = iota
	latencyTest
	otherTest
)

// kind goes by name if the test only failed.
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

// sizesOf always shows a size at which a test failed.
func (t *terminal) sizesOf(p pair, tests ...string) (shown []int64, measured int) {
	var all []int64
	for _, test := range tests {
		sizes := t.r.sizes(func(k figureKey) bool { return k.Pair == p && k.Test == test })
		all = append(all, sizes...)
		shown = append(shown, t.picked(sizes)...)
	}
	// A failed run over all sizes gets a row only if there is no other.
	wholeRun := false
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

func (r *results) failedAt(k figureKey) bool {
	row := k
	row.Metric = ""
	_, measured := r.iters[row]
	return slices.ContainsFunc(r.failures, func(f failure) bool {
		s := f.Sample
		switch {
		case f.pair() != k.Pair || s.Test != k.Test || s.Bytes != 0 && s.Bytes != k.Bytes:
			return false
		case s.Metric == "": // no other run has figures here
			return !measured
		}
		return s.Metric == k.Metric
	})
}

// text has three digits, divided by ten to the power of shift. A computed figure has no more digits than its source.
func (r *results) text(k figureKey, shift int) string {
	s := spreadOf(r.values[k])
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
	// A figure computed from 0.01 is only known to one digit.
	if of := r.values[from]; len(of) > 0 {
		digits = min(digits, show.Digits(spreadOf(of).Median))
	}
	return "~" + show.Number(v, digits, math.MaxInt)
}

type notes struct {
	derived bool
	repeats [2]int
}

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

// bandwidth prints a second table if tests do not fit side by side.
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
	// A message rate stays beside its bandwidth.
	w := fill(header, rows, columns)
	if width(w) > 80 && len(tests) > 1 {
		t.bandwidth(p, tests[:len(tests)/2])
		t.bandwidth(p, tests[len(tests)/2:])
		return
	}
	t.print(p.String()+": average bandwidth and message rate", p.Emulated, w)
	n.print(t, len(shown), measured)
}

// rateOf picks the unit by the largest figure.
func (r *results) rateOf(p pair, tests []string, sizes []int64) (test, unit string, shift int) {
	for _, test := range tests {
		highest := 0.0
		for _, size := range sizes {
			if v := r.values[figureKey{p, test, size, bench.MetricMessageRate}]; len(v) > 0 {
				highest = max(highest, spreadOf(v).Median)
			}
		}
		switch {
		// Emulated nodes send few: 3.2 kpps is easier to read than 0.0032 Mpps.
		case highest >= 1:
			return test, "Mpps", 0
		case highest > 0:
			return test, "kpps", 3
		}
	}
	return "", "", 0
}

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

// other is for tests such as iperf3, which has no sizes.
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

// shortTest returns "write_bw" for "ib_write_bw".
func shortTest(test string) string { return cmp.Or(strings.TrimPrefix(test, "ib_"), test) }

// shortName returns "write" for "ib_write_bw".
func shortName(test string) string { return cmp.Or(strings.TrimSuffix(shortTest(test), "_bw"), test) }
