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
	"github.com/rackless/rackless/check"
)

// TerminalOptions say what the terminal can do.
type TerminalOptions struct {
	Color bool // use colours; the caller decides, for instance by NO_COLOR
	Width int  // columns, 0 means 80, at least 60; sentences are folded to it, tables are never cut but fit into 80 columns
}

// Terminal writes the results as text: a table for each pair, or one over all pairs when there are many, then what failed and what
// the checks found. Names and messages from outside cannot control the terminal.
func Terminal(w io.Writer, d Data, o TerminalOptions) error {
	if o.Width == 0 {
		o.Width = 80
	}
	o.Width = max(o.Width, 60)
	d = d.clean(printable)
	r := collect(d)
	t := &terminal{Writer: bufio.NewWriter(w), TerminalOptions: o, r: r}

	t.paint(text.Bold, d.title())
	t.wrap("", "", d.summary(r, func(u string) string { return u }))
	if b := d.banner(r); b != "" {
		t.paint(text.FgYellow, b)
	}
	if pairs := r.pairsTried(); len(pairs) <= maxPairCharts {
		for _, p := range pairs {
			t.pairTable(p)
		}
	} else {
		t.manyPairs(false)
		t.manyPairs(true)
		for _, m := range r.matrices(d.Nodes) {
			t.matrix(m)
		}
	}
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
		fmt.Fprintln(t, prefix+strings.TrimRight(line, " "))
	}
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
		configs = append(configs, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
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
	for _, line := range strings.Split(w.Render(), "\n") {
		line = strings.TrimRight(line, " ")
		if strings.Contains(line, failedWord) {
			line = t.colored(text.FgRed, line)
		}
		fmt.Fprintln(t, line)
	}
}

const failedWord = "FAILED"

// pairTable prints a row for each test and size of a pair; what failed there stands in the same table.
func (t *terminal) pairTable(p pair) {
	w := newTable(table.Row{"test", "size", "result", "p99", "p99.9", "Mpps", "unit"})
	type place struct {
		test  string
		bytes int64
	}
	var rows []place
	for _, k := range t.r.keys {
		if at := (place{k.Test, k.Bytes}); k.Pair == p && !slices.Contains(rows, at) {
			rows = append(rows, at)
		}
	}
	derived := false
	for _, at := range rows {
		get := func(metric string) string {
			k := figureKey{p, at.test, at.bytes, metric}
			switch v := t.r.values[k]; {
			case len(v) == 0:
				return "-"
			case t.r.derived[k]:
				derived = true
				return "~" + figureText(spreadOf(v).Median)
			default:
				return figureText(spreadOf(v).Median)
			}
		}
		result, unit := "-", ""
		for _, m := range headlineMetrics {
			if result = get(m); result != "-" {
				unit = headlineUnit(m)
				break
			}
		}
		w.AppendRow(table.Row{at.test, sizeOrDash(at.bytes), result, get(bench.MetricLatencyP99), get(bench.MetricLatencyP999), get(bench.MetricMessageRate), unit})
	}
	for _, f := range t.r.failures {
		s := f.Sample
		at := place{s.Test, s.Bytes}
		if f.pair() != p || slices.Contains(rows, at) {
			continue
		}
		rows = append(rows, at)
		w.AppendRow(table.Row{s.Test, sizeOrDash(s.Bytes), failedWord, "-", "-", "-", ""})
	}
	t.print(p.String(), p.Emulated, w)
	fmt.Fprintln(t, resultLegend)
	if derived {
		fmt.Fprintln(t, "~: the tool printed 0, for want of decimals; "+derivedText)
	}
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
	return sizeText(n)
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
	seen := make(map[headline]bool) // by test and size: the keys are in the order of metrics, so the better one comes first
	for _, k := range t.r.keys {
		h := headline{k.Test, k.Metric, k.Bytes}
		at := headline{Test: k.Test, Bytes: k.Bytes}
		if k.Pair.Emulated != emulated || seen[at] || !slices.Contains(headlineMetrics, k.Metric) {
			continue
		}
		seen[at] = true
		pairs, medians := t.r.over(h, emulated)
		s := spreadOf(medians)
		w.AppendRow(table.Row{h.Test, sizeOrDash(h.Bytes), len(pairs), failed[at],
			figureText(s.Min), figureText(s.Median), figureText(s.Max), headlineUnit(h.Metric)})
		delete(failed, at)
	}
	for _, f := range t.r.failures { // what has no row yet, in the order of the samples
		at := headline{Test: f.Sample.Test, Bytes: f.Sample.Bytes}
		if n := failed[at]; n > 0 && f.Emulated == emulated {
			w.AppendRow(table.Row{at.Test, sizeOrDash(at.Bytes), 0, n, failedWord, "-", "-", ""})
			delete(failed, at)
		}
	}
	t.print(countText(total, "pair", "pairs"), emulated, w)
	fmt.Fprintln(t, resultLegend)
}

// matrix prints the comparison of pairs if its columns fit; if not, the table over all pairs must do.
func (t *terminal) matrix(m matrix) {
	header := table.Row{"client"}
	for _, s := range m.Servers {
		header = append(header, s)
	}
	w := newTable(header)
	for _, row := range m.Rows {
		cells := table.Row{row.Client}
		for _, c := range row.Cells {
			switch c.State {
			case "":
				cells = append(cells, c.Text)
			case "failed":
				cells = append(cells, failedWord)
			case "self":
				cells = append(cells, "")
			default:
				cells = append(cells, "-")
			}
		}
		w.AppendRow(cells)
	}
	for _, line := range strings.Split(w.Render(), "\n") {
		if text.StringWidth(strings.TrimRight(line, " ")) > t.Width {
			return
		}
	}
	t.print(strings.ReplaceAll(m.Title, "µs", "us")+", columns: servers", m.Emulated, w)
}

// failed lists the measurements that gave no figure, with what was run.
func (t *terminal) failed() {
	if len(t.r.failures) == 0 {
		return
	}
	fmt.Fprintln(t)
	t.paint(text.FgRed, countText(len(t.r.failures), "failed measurement", "failed measurements")+":")
	for _, f := range t.r.failures {
		s := f.Sample
		what := fmt.Sprintf("%s %s, %s to %s", s.Test, sizeOrDash(s.Bytes), s.Client, s.Server)
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
func (t *terminal) findings(all []check.Finding) {
	fmt.Fprintln(t)
	color := text.FgGreen
	if ok, _, _ := countFindings(all); ok < len(all) {
		color = text.FgRed
	} else if len(all) == 0 {
		color = text.FgYellow
	}
	t.paint(color, findingsText(all)+".")
	faults := slices.DeleteFunc(slices.Clone(all), func(f check.Finding) bool { return f.Status == check.OK })
	slices.SortStableFunc(faults, func(a, b check.Finding) int { return faultRank(a) - faultRank(b) })
	for _, f := range faults {
		t.wrap("- ", "  ", fmt.Sprintf("%s: %s, %s: have %s, want %s", f.Status, f.Subject, f.Title, orDash(f.Have), orDash(f.Want)))
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
