package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/report/show"
)

// CompareTerminal writes two results side by side as text: what differs in their conditions first, then the figures.
func CompareTerminal(w io.Writer, a, b Data, o TerminalOptions) error {
	if o.Width == 0 {
		o.Width = 80
	}
	o.Width = max(o.Width, 60)
	a, b = a.clean(show.Printable), b.clean(show.Printable)
	c := Compare(a, b)
	t := &terminal{Writer: bufio.NewWriter(w), TerminalOptions: o}

	t.paint(text.Bold, "Two results side by side")
	t.wrap("A  ", "   ", c.A.name())
	t.wrap("B  ", "   ", c.B.name())
	fmt.Fprintln(t)
	if s := c.warning(); s != "" {
		t.paint(text.FgYellow, s)
	}
	t.wrap("", "", noVerdict)
	t.differences(c)
	if s := c.sentences(a, func(u string) string { return u }); len(s) > 0 {
		fmt.Fprintln(t)
		for _, line := range s {
			t.wrap("- ", "  ", line)
		}
	}
	var of []ComparedFigure
	for i, f := range c.Figures {
		if i > 0 && (f.Client != of[0].Client || f.Server != of[0].Server) {
			t.comparedPair(of)
			of = nil
		}
		of = append(of, f)
	}
	if len(of) > 0 {
		t.comparedPair(of)
	} else {
		t.line("Neither has a figure.")
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the comparison of lab %q with lab %q: %w", a.Lab, b.Lab, err)
	}
	return nil
}

// asciiDash is for terminals, where figures have no signs beyond ASCII.
var asciiDash = strings.NewReplacer(notRecorded, "-", "−", "-")

// differences prints the conditions that are not the same, those that matter first.
func (t *terminal) differences(c Comparison) {
	fmt.Fprintln(t)
	if len(c.Differences) == 0 {
		t.line("Nothing that was recorded of the conditions differs.")
		return
	}
	t.paint(text.Bold, "What differs in the conditions")
	for _, d := range c.Differences {
		sign := "! "
		if !d.Matters {
			sign = "  "
		}
		t.wrap(sign, "  ", d.What)
		t.wrap("    A  ", "       ", asciiDash.Replace(d.A))
		t.wrap("    B  ", "       ", asciiDash.Replace(d.B))
	}
	if c.graveDifferences() > 0 {
		t.line("!: it can move figures")
	}
}

// comparedPair prints the figures of a pair.
func (t *terminal) comparedPair(all []ComparedFigure) {
	sizes := map[string][]int64{}
	for _, f := range all {
		sizes[f.Test] = append(sizes[f.Test], f.Bytes)
	}
	for test, s := range sizes {
		slices.Sort(s)
		sizes[test] = slices.Compact(s)
		if !t.AllSizes {
			sizes[test] = pickSizes(sizes[test])
		}
	}
	rows, columns := []table.Row{}, make([][]string, 4)
	left, one := 0, ""
	for _, f := range all {
		if !t.AllSizes && (!slices.Contains(sizes[f.Test], f.Bytes) || !slices.Contains(compareMetricsShown,
			f.Metric)) {
			left++
			continue
		}
		_, _, label := metricInfo(f.Metric)
		rows = append(rows, table.Row{f.Test, sizeOrDash(f.Bytes), label + ", " + f.Unit})
		for i, s := range []string{comparedText(f.A, f.a), comparedText(f.B, f.b), f.ratioText(), f.changeText()} {
			columns[i] = append(columns[i], asciiDash.Replace(s))
		}
		if f.Problem != "" && one == "" {
			one = fmt.Sprintf("-: %s (%s, %s)", f.Problem, f.Test, sizeOrDash(f.Bytes))
		}
	}
	if len(rows) == 0 {
		return
	}
	w := fill(table.Row{"test", "size", "figure", "A", "B", "B/A", "B-A"}, rows, columns)
	t.print(between(all[0].Client, all[0].Server), false, w)
	if left > 0 {
		t.wrap("", "", fmt.Sprintf("%s more; --all and the page show all of them",
			show.Count(left, "figure", "figures")))
	}
	if one != "" {
		t.wrap("", "", one)
	}
}
