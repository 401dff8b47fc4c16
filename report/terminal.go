package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// TerminalOptions describe the terminal.
type TerminalOptions struct {
	Color bool // the caller decides, as by NO_COLOR
	// Width is in columns, at least 60; 0 means 80. Tables are never cut, but fit into 80.
	Width    int
	AllSizes bool // otherwise the usual eight message sizes
}

// Terminal writes two tables for each pair, or one for many pairs, then failures and findings. Texts from outside
// cannot control the terminal.
func Terminal(w io.Writer, d record.Record, o TerminalOptions) error {
	d = show.Clean(d, words.Printable)
	r := collect(d)
	t := newTerminal(w, o)
	t.r = r
	if d.Disturbed != "" {
		t.Wrap("", "", d.Disturbed, text.FgYellow)
	}
	t.Wrap("", "", titleOf(d), text.Bold)
	t.Wrap("", "", summaryOf(d, r, func(u string) string { return u }))
	if b := bannerOf(d, r); b != "" {
		t.Wrap("", "", b, text.FgYellow)
	}
	if t.gpuTables(d) {
		d = withoutGPUTable(d)
		t.r = collect(d)
	}
	// Two tables for each of many pairs would be unreadable.
	if pairs := t.r.pairsTried(); len(pairs) <= maxPairCharts {
		for _, p := range pairs {
			t.pairTables(p)
		}
	} else {
		t.manyPairs(false)
		t.manyPairs(true)
		for _, l := range t.r.pairLists() {
			t.pairList(l, 0, len(l.Columns))
		}
		for _, m := range t.r.matrices(d.Nodes) {
			t.matrix(m)
		}
	}
	t.expectations(d)
	t.beside(d)
	t.failed()
	t.findings(d.Findings)
	return show.Wrapf(t.Flush(), "print the results of lab %q", d.Lab)
}

type terminal struct {
	*show.Terminal
	AllSizes bool
	r        *results
}

func newTerminal(w io.Writer, o TerminalOptions) *terminal {
	t := &terminal{Terminal: show.NewTerminal(w, o.Width, 80, o.Color), AllSizes: o.AllSizes}
	t.Alarm = failedWord
	return t
}

func (t *terminal) print(title string, emulated bool, lines []string) {
	if emulated {
		title += ", emulated"
	}
	t.Title(title)
	for _, line := range lines {
		t.Line(line)
	}
}

func width(lines []string) int { return lists.Max(lines, text.StringWidth) }

// failedWord stands out without colours, too.
const failedWord = "FAILED"

// fill aligns decimal points, so that orders of magnitude are visible.
func fill(heads []string, rows, columns [][]string) []string {
	for _, column := range columns {
		decimals := func(s string) int { // includes the point
			if i := strings.IndexByte(s, '.'); i >= 0 {
				return len(s) - i
			}
			return 0
		}
		most := lists.Max(column, decimals)
		for i, s := range column {
			if s != "" && '0' <= s[len(s)-1] && s[len(s)-1] <= '9' { // words stay right-aligned
				s += strings.Repeat(" ", most-decimals(s))
			}
			rows[i] = append(rows[i], s)
		}
	}
	return show.Ruled(heads, rows)
}

// resultLegend is for the table over many pairs.
const resultLegend = "result: average for bandwidth, typical (median) for latency"

// headlineUnit has a word if resultLegend does not apply.
func headlineUnit(metric string) string {
	unit := bench.MetricOf(metric).Unit
	if metric == bench.MetricLatencyAverage {
		unit += ", average"
	}
	return unit
}

func sizeText(n int64) string {
	if n == 0 {
		return ""
	}
	return show.Size(n)
}

func sizeOrDash(n int64) string { return orDash(sizeText(n)) }

// pairsTried ends with pairs without figures.
func (r *results) pairsTried() []pair {
	out := slices.Clone(r.pairs)
	for _, f := range r.failures {
		if p := f.pair(); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func (t *terminal) manyPairs(emulated bool) {
	var rows [][]string
	// Failed pairs were tried, too.
	total := len(slices.DeleteFunc(t.r.pairsTried(), func(p pair) bool { return p.Emulated != emulated }))
	failed := make(map[headline]int) // without retried ones
	for _, f := range t.r.failures {
		if f.Emulated == emulated && !f.Retried {
			failed[headline{Test: f.Sample.Test, Bytes: f.Sample.Bytes}]++
		}
	}
	if total == 0 {
		return
	}
	picked := make(map[string][]int64) // sizes to show, by test
	shown, measured := 0, 0
	for _, test := range t.r.tests {
		sizes := t.r.sizes(func(k figureKey) bool { return k.Test == test })
		picked[test] = t.picked(sizes)
		shown, measured = max(shown, len(picked[test])), max(measured, len(sizes))
	}
	// Keys are in the order of metrics, so the better one is first.
	seen := make(map[headline]bool)
	for _, k := range t.r.keys {
		h := headline{k.Test, k.Metric, k.Bytes}
		at := headline{Test: k.Test, Bytes: k.Bytes}
		if k.Pair.Emulated != emulated || seen[at] || !slices.Contains(headlineMetrics, k.Metric) ||
			!slices.Contains(picked[k.Test], k.Bytes) && failed[at] == 0 {
			continue
		}
		seen[at] = true
		pairs, repeats := t.r.over(h, emulated)
		s := spreadOfMedians(repeats)
		rows = append(rows, []string{h.Test, sizeOrDash(h.Bytes), fmt.Sprint(len(pairs)), fmt.Sprint(failed[at]),
			s.short(s.Min), s.short(s.Median), s.short(s.Max), headlineUnit(h.Metric)})
		delete(failed, at)
	}
	for _, f := range t.r.failures {
		at := headline{Test: f.Sample.Test, Bytes: f.Sample.Bytes}
		if n := failed[at]; n > 0 && f.Emulated == emulated {
			rows = append(rows, []string{at.Test, sizeOrDash(at.Bytes), "0", fmt.Sprint(n), failedWord, "-", "-", ""})
			delete(failed, at)
		}
	}
	heads := []string{"test", "size", "pairs", "failed", "lowest", "median", "highest", "unit"}
	t.print(words.Count(total, "pair"), emulated, show.Ruled(heads, rows))
	fmt.Fprintln(t, resultLegend)
	notes{}.print(t, shown, measured)
}

// pairList prints columns first to last-1, or two tables if they do not fit.
func (t *terminal) pairList(l pairList, first, last int) {
	header := []string{"client to server"}
	for _, c := range l.Columns[first:last] {
		head := strings.ReplaceAll(shortTest(c.Test), "_", "\n")
		if c.Bytes > 0 {
			head += "\n" + show.Size(c.Bytes)
		}
		header = append(header, head+"\n"+asciiUnit(c.Unit))
	}
	var rows [][]string
	columns := make([][]string, last-first)
	for _, row := range l.Rows {
		rows = append(rows, []string{row.String()})
		for i, c := range row.Cells[first:last] {
			columns[i] = append(columns[i], cellText(c))
		}
	}
	// A line wrapped by a terminal loses its columns.
	w := fill(header, rows, columns)
	if width(w) > 80 && last-first > 1 {
		middle := (first + last) / 2
		t.pairList(l, first, middle)
		t.pairList(l, middle, last)
		return
	}
	t.print("Pairs side by side", l.Emulated, w)
}

func cellText(c matrixCell) string {
	switch c.State {
	case "":
		return c.Text
	case "failed":
		return failedWord
	case "self":
		return ""
	}
	return "-"
}

func asciiUnit(s string) string { return strings.ReplaceAll(s, "µs", "us") }

// matrix prints nothing if its columns do not fit; the table over all pairs must suffice.
func (t *terminal) matrix(m matrix) {
	header := append([]string{"client"}, m.Servers...)
	columns := make([][]string, len(m.Servers))
	var rows [][]string
	for _, row := range m.Rows {
		rows = append(rows, []string{row.Client})
		for i, c := range row.Cells {
			columns[i] = append(columns[i], cellText(c))
		}
	}
	if w := fill(header, rows, columns); width(w) <= t.Width {
		t.print(asciiUnit(m.Title)+", columns: servers", m.Emulated, w)
	}
}

func (t *terminal) failed() {
	if len(t.r.failures) == 0 {
		return
	}
	fmt.Fprintln(t)
	t.Wrap("", "", words.Count(len(t.r.failures), "failed measurement")+":", text.FgRed)
	for _, f := range t.r.failures {
		s := f.Sample
		what := strings.TrimSpace(s.Test+" "+sizeText(s.Bytes)) + ", " + f.pair().String()
		if f.Retried {
			what += " (a later attempt succeeded)"
		}
		t.Wrap("- ", "  ", what+": "+f.Reason)
		for _, c := range [][2]string{{"server", s.ServerCommand}, {"client", s.Command}} {
			if c[1] != "" { // not wrapped, to be copied
				fmt.Fprintf(t, "  %s: %s\n", c[0], c[1])
			}
		}
	}
}

func (t *terminal) findings(all []finding.Finding) {
	fmt.Fprintln(t)
	color := text.FgGreen
	if finding.Count(all, finding.OK) < len(all) {
		color = text.FgRed
	} else if len(all) == 0 {
		color = text.FgYellow
	}
	t.Wrap("", "", FindingsText(all)+".", color)
	for _, f := range faults(all) {
		t.Wrap("- ", "  ", fmt.Sprintf("%s: %s, %s: have %s, want %s", f.Status, f.Subject, f.Title, orDash(f.Have),
			orDash(f.Want)))
		if f.Fix != "" {
			t.Wrap("  fix: ", "       ", f.Fix)
		}
	}
}

func orDash(s string) string { return cmp.Or(s, "-") }

const (
	noExpectation   = "Emulated figures are compared with nothing: they say nothing about hardware."
	wireExpectation = "Emulated figures are compared with the emulated wire only: they say nothing about hardware."
)

func judgedOf(d record.Record) (all []expect.Judgement, note string) {
	for _, j := range d.Judgements {
		switch {
		case j.Emulated && j.Wire > 0 && (reached(j) || j.Verdict == expect.VerdictEmulated):
			note = wireExpectation
			all = append(all, j)
		// A verdict on an emulated figure, of an earlier release or by hand, is not repeated.
		case j.Emulated || d.Emulated:
			note = cmp.Or(note, noExpectation)
		default:
			all = append(all, j)
		}
	}
	return all, note
}

// open reports whether a judgement implies no verdict on the setup.
func open(j expect.Judgement) bool {
	return j.Verdict == expect.VerdictNone || j.Verdict == expect.VerdictEmulated
}

// judgedName returns text such as "ib_write_bw at 64 KiB, vm01 to vm00".
func judgedName(j expect.Judgement) string {
	name := headline{Test: j.Test, Bytes: j.Bytes}.name() + ", " + between(j.Client, j.Server)
	if j.Emulated {
		name += ", emulated"
	}
	return name
}

func judgedFigure(j expect.Judgement) string {
	return show.Figure(j.Value) + " " + show.Unit(bench.MetricOf(j.Metric).Unit)
}

func reached(j expect.Judgement) bool { return j.Verdict == expect.VerdictWire }

func causeTitle(c expect.Cause) string {
	if c.Possible {
		return "perhaps: " + c.What
	}
	return c.What
}

func (t *terminal) expectations(d record.Record) {
	all, note := judgedOf(d)
	if note != "" {
		fmt.Fprintln(t)
		t.Wrap("", "", note)
	}
	if len(all) == 0 {
		return
	}
	t.Title("Against what the path carries")
	for _, j := range all {
		// The sign is for output without colours.
		sign, color := "- ", text.FgYellow
		switch {
		case reached(j):
			sign, color = "ok ", text.FgGreen
		case j.Verdict == expect.VerdictNone:
			sign, color = "? ", text.Faint
		case open(j):
			color = text.Faint
		}
		t.Wrap("", "  ", fmt.Sprintf("%s%s: %s %s; %s", sign, judgedName(j), show.Figure(j.Value),
			bench.MetricOf(j.Metric).Unit, j.Text), color)
		for i, c := range j.Causes {
			first := fmt.Sprintf("  %d. ", i+1)
			t.Wrap(first, strings.Repeat(" ", len(first)), causeTitle(c)+": "+c.Evidence)
			t.Wrap("     fix: ", "          ", c.Fix)
		}
	}
}

func (t *terminal) beside(d record.Record) {
	all := shownBeside(d)
	if len(all) == 0 {
		return
	}
	t.Title("Beside published latencies, of other cards and machines: no verdict")
	for _, b := range all {
		t.Wrap("", "  ", besideText(b, "us"))
	}
}

// shownBeside is nil for an emulated lab; a file may still have some.
func shownBeside(d record.Record) []expect.PublishedComparison {
	if d.Emulated {
		return nil
	}
	return slices.Clone(d.Beside)
}

// besideText takes the spelling of microseconds as unit.
func besideText(b expect.PublishedComparison, unit string) string {
	return fmt.Sprintf("%s at %s, %s: %s %s %s; published: %s %s (%s)", b.Test, show.Size(b.Bytes),
		between(b.Client, b.Server), bench.MetricOf(b.Metric).Label, show.Figure(b.Value), unit,
		show.Figure(b.Published), unit, b.Of)
}
