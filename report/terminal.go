package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/report/show"
)

// TerminalOptions say what the terminal can do.
type TerminalOptions struct {
	Color bool // use colours; the caller decides, for instance by NO_COLOR
	// columns, 0 means 80, at least 60; sentences are folded to it, tables are never cut but fit
	// into 80 columns
	Width    int
	AllSizes bool // show every message size; without it, a test of more than eight sizes shows the usual eight
}

// Terminal writes the results as text: two tables for each pair, or one over all pairs when there
// are many, then what failed and what the checks found. Names and messages from outside cannot
// control the terminal.
func Terminal(w io.Writer, d Data, o TerminalOptions) error {
	if o.Width == 0 {
		o.Width = 80
	}
	o.Width = max(o.Width, 60)
	d = d.clean(show.Printable)
	r := collect(d)
	t := &terminal{Writer: bufio.NewWriter(w), TerminalOptions: o, r: r}

	t.paint(text.Bold, d.title())
	t.wrap("", "", d.summary(r, func(u string) string { return u }))
	if b := d.banner(r); b != "" {
		t.paint(text.FgYellow, b)
	}
	if pairs := r.pairsTried(); len(pairs) <= maxPairCharts {
		for _, p := range pairs {
			t.pairTables(p)
		}
	} else {
		t.manyPairs(false)
		t.manyPairs(true)
		for _, l := range r.pairLists() {
			t.pairList(l, 0, len(l.Columns))
		}
		for _, m := range r.matrices(d.Nodes) {
			t.matrix(m)
		}
	}
	t.expectations(d)
	t.beside(d)
	t.failed()
	t.findings(d.Findings)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the results of lab %q: %w", d.Lab, err)
	}
	return nil
}

// A terminal is where Terminal prints. Errors of writing stay in the bufio.Writer until Flush.
type terminal struct {
	*bufio.Writer
	TerminalOptions
	r *results
}

// paint prints text in a colour, folded to the width.
func (t *terminal) paint(c text.Color, s string) {
	for _, line := range strings.Split(text.WrapSoft(s, t.Width), "\n") {
		fmt.Fprintln(t, t.colored(c, strings.TrimRight(line, " ")))
	}
}

func (t *terminal) colored(c text.Color, s string) string {
	if !t.Color {
		return s
	}
	// Not c.Sprint: it asks the environment, and the caller has decided.
	return c.EscapeSeq() + s + text.Reset.EscapeSeq()
}

// wrap prints text folded to the width; the first line starts with first, the others with rest.
func (t *terminal) wrap(first, rest, s string) {
	for i, line := range strings.Split(text.WrapSoft(s, t.Width-len(rest)), "\n") {
		prefix := rest
		if i == 0 {
			prefix = first
		}
		t.line(prefix + line)
	}
}

// line prints a line. That something failed can be seen in it from afar.
func (t *terminal) line(s string) {
	fmt.Fprintln(t, strings.ReplaceAll(strings.TrimRight(s, " "), failedWord, t.colored(text.FgRed, failedWord)))
}

// newTable is a table without borders: the columns' own spaces part them, and 80 columns go further.
func newTable(header table.Row) table.Writer {
	w := table.NewWriter()
	style := table.StyleLight
	style.Options = table.Options{SeparateHeader: true}
	style.Format.Header = text.FormatDefault
	w.SetStyle(style)
	w.AppendHeader(header)
	configs := []table.ColumnConfig{{Number: 1, WidthMax: 18, WidthMaxEnforcer: text.WrapHard}}
	for i := 2; i <= len(header); i++ {
		configs = append(configs, table.ColumnConfig{Number: i, WidthMax: 18, WidthMaxEnforcer: text.WrapHard,
			Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	w.SetColumnConfigs(configs)
	return w
}

// print writes a table under its title.
func (t *terminal) print(title string, emulated bool, w table.Writer) {
	if emulated {
		title += ", emulated"
	}
	fmt.Fprintln(t)
	t.paint(text.Bold, title)
	for line := range strings.SplitSeq(w.Render(), "\n") {
		t.line(line)
	}
}

// width is how many columns of a terminal the table needs.
func width(w table.Writer) int {
	most := 0
	for line := range strings.SplitSeq(w.Render(), "\n") {
		most = max(most, text.StringWidth(strings.TrimRight(line, " ")))
	}
	return most
}

const failedWord = "FAILED"

// fill makes a table of rows that have their first cells and of the columns to the right of these.
// The figures of a column stand with their decimal points below each other, so that one ten times
// as large can be seen to be.
func fill(header table.Row, rows []table.Row, columns [][]string) table.Writer {
	for _, column := range columns {
		decimals := func(s string) int { // with the point
			if i := strings.IndexByte(s, '.'); i >= 0 {
				return len(s) - i
			}
			return 0
		}
		most := 0
		for _, s := range column {
			most = max(most, decimals(s))
		}
		for i, s := range column {
			if s != "" && '0' <= s[len(s)-1] && s[len(s)-1] <= '9' { // words stay at the right edge
				s += strings.Repeat(" ", most-decimals(s))
			}
			rows[i] = append(rows[i], s)
		}
	}
	w := newTable(header)
	w.AppendRows(rows)
	return w
}

const resultLegend = "result: average for bandwidth, typical (median) for latency"

// headlineUnit is the unit of a result, with a word where the legend above would be wrong about it.
func headlineUnit(metric string) string {
	_, unit, _ := metricInfo(metric)
	if metric == bench.MetricLatencyAverage {
		unit += ", average"
	}
	return unit
}

// sizeOrDash is a size, or a dash for a tool that has none.
func sizeOrDash(n int64) string {
	if n == 0 {
		return "-"
	}
	return show.Size(n)
}

// pairsTried are the pairs with figures, then those where every measurement failed.
func (r *results) pairsTried() []pair {
	out := slices.Clone(r.pairs)
	for _, f := range r.failures {
		if p := f.pair(); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// manyPairs prints one row for each test and size over all pairs of a kind.
func (t *terminal) manyPairs(emulated bool) {
	w := newTable(table.Row{"test", "size", "pairs", "failed", "lowest", "median", "highest", "unit"})
	total := 0
	for _, p := range t.r.pairsTried() {
		if p.Emulated == emulated {
			total++
		}
	}
	failed := make(map[headline]int) // by test and size, without those that a later attempt made good
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
		sizes := t.r.sizesOfTest(test)
		picked[test] = sizes
		if !t.AllSizes {
			picked[test] = pickSizes(sizes)
		}
		shown, measured = max(shown, len(picked[test])), max(measured, len(sizes))
	}
	// by test and size: the keys are in the order of metrics, so the better one comes first
	seen := make(map[headline]bool)
	for _, k := range t.r.keys {
		h := headline{k.Test, k.Metric, k.Bytes}
		at := headline{Test: k.Test, Bytes: k.Bytes}
		if k.Pair.Emulated != emulated || seen[at] || !slices.Contains(headlineMetrics, k.Metric) {
			continue
		}
		if !slices.Contains(picked[k.Test], k.Bytes) && failed[at] == 0 {
			continue
		}
		seen[at] = true
		pairs, repeats := t.r.over(h, emulated)
		s := spreadOfMedians(repeats)
		w.AppendRow(table.Row{h.Test, sizeOrDash(h.Bytes), len(pairs), failed[at],
			s.short(s.Min), s.short(s.Median), s.short(s.Max), headlineUnit(h.Metric)})
		delete(failed, at)
	}
	for _, f := range t.r.failures { // what has no row yet, in the order of the samples
		at := headline{Test: f.Sample.Test, Bytes: f.Sample.Bytes}
		if n := failed[at]; n > 0 && f.Emulated == emulated {
			w.AppendRow(table.Row{at.Test, sizeOrDash(at.Bytes), 0, n, failedWord, "-", "-", ""})
			delete(failed, at)
		}
	}
	t.print(show.Count(total, "pair", "pairs"), emulated, w)
	fmt.Fprintln(t, resultLegend)
	notes{}.print(t, shown, measured)
}

// pairList prints the comparison of few pairs among many nodes, its columns from first to before
// last. Columns that do not fit beside each other get a second table.
func (t *terminal) pairList(l pairList, first, last int) {
	header := table.Row{"client to server"}
	for _, c := range l.Columns[first:last] {
		head := strings.ReplaceAll(shortTest(c.Test), "_", "\n")
		if c.Bytes > 0 {
			head += "\n" + show.Size(c.Bytes)
		}
		header = append(header, head+"\n"+asciiUnit(c.Unit))
	}
	var rows []table.Row
	columns := make([][]string, last-first)
	for _, row := range l.Rows {
		rows = append(rows, table.Row{row.String()})
		for i, c := range row.Cells[first:last] {
			columns[i] = append(columns[i], cellText(c))
		}
	}
	w := fill(header, rows, columns)
	if width(w) > 80 && last-first > 1 {
		middle := (first + last) / 2
		t.pairList(l, first, middle)
		t.pairList(l, middle, last)
		return
	}
	t.print("Pairs side by side", l.Emulated, w)
}

// cellText is a cell of a comparison as a terminal shows it.
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

// asciiUnit takes back what show.Unit does for the page.
func asciiUnit(s string) string { return strings.ReplaceAll(s, "µs", "us") }

// matrix prints the comparison of pairs if its columns fit; if not, the table over all pairs must do.
func (t *terminal) matrix(m matrix) {
	header := table.Row{"client"}
	columns := make([][]string, len(m.Servers))
	for _, s := range m.Servers {
		header = append(header, s)
	}
	var rows []table.Row
	for _, row := range m.Rows {
		rows = append(rows, table.Row{row.Client})
		for i, c := range row.Cells {
			columns[i] = append(columns[i], cellText(c))
		}
	}
	w := fill(header, rows, columns)
	if width(w) <= t.Width {
		t.print(asciiUnit(m.Title)+", columns: servers", m.Emulated, w)
	}
}

// failed lists the measurements that gave no figure, with what was run.
func (t *terminal) failed() {
	if len(t.r.failures) == 0 {
		return
	}
	fmt.Fprintln(t)
	t.paint(text.FgRed, show.Count(len(t.r.failures), "failed measurement", "failed measurements")+":")
	for _, f := range t.r.failures {
		s := f.Sample
		what := s.Test
		if s.Bytes != 0 {
			what += " " + show.Size(s.Bytes)
		}
		what += ", " + between(s.Client, s.Server)
		if f.Retried {
			what += " (a later attempt succeeded)"
		}
		t.wrap("- ", "  ", what+": "+f.Reason)
		// A command is not folded: it is there to be copied.
		if s.ServerCommand != "" {
			fmt.Fprintf(t, "  server: %s\n", s.ServerCommand)
		}
		if s.Command != "" {
			fmt.Fprintf(t, "  client: %s\n", s.Command)
		}
	}
}

// findings prints the checks in one line, then those that are not ok.
func (t *terminal) findings(all []finding.Finding) {
	fmt.Fprintln(t)
	color := text.FgGreen
	if finding.Count(all, finding.OK) < len(all) {
		color = text.FgRed
	} else if len(all) == 0 {
		color = text.FgYellow
	}
	t.paint(color, FindingsText(all)+".")
	for _, f := range faults(all) {
		t.wrap("- ", "  ", fmt.Sprintf("%s: %s, %s: have %s, want %s", f.Status, f.Subject, f.Title, orDash(f.Have),
			orDash(f.Want)))
		if f.Fix != "" {
			t.wrap("  fix: ", "       ", f.Fix)
		}
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
