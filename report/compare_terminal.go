package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// CompareTerminal writes two results side by side as text: what differs in their conditions first, then the figures.
func CompareTerminal(w io.Writer, a, b Data, o TerminalOptions) error {
	a, b = show.Clean(a, words.Printable), show.Clean(b, words.Printable)
	c := Compare(a, b)
	t := newTerminal(w, o)
	t.Wrap("", "", "Two results side by side", text.Bold)
	t.Wrap("A  ", "   ", c.A.name())
	t.Wrap("B  ", "   ", c.B.name())
	fmt.Fprintln(t)
	if s := c.warning(); s != "" {
		t.Wrap("", "", s, text.FgYellow)
	}
	t.Wrap("", "", noVerdict)
	t.differences(c)
	if s := c.sentences(a, func(u string) string { return u }); len(s) > 0 {
		fmt.Fprintln(t)
		for _, line := range s {
			t.Wrap("- ", "  ", line)
		}
	}
	// The figures are sorted by pair.
	for rest := c.Figures; len(rest) > 0; {
		// A table for each pair: more columns than these do not fit beside each other.
		n := slices.IndexFunc(rest, func(f ComparedFigure) bool {
			return f.Client != rest[0].Client || f.Server != rest[0].Server
		})
		if n < 0 {
			n = len(rest)
		}
		t.comparedPair(rest[:n])
		rest = rest[n:]
	}
	if len(c.Figures) == 0 {
		t.Line("Neither has a figure.")
	}
	return show.Wrapf(t.Flush(), "print the comparison of lab %q with lab %q", a.Lab, b.Lab)
}

// asciiDash is for terminals, where figures have no signs beyond ASCII.
var asciiDash = strings.NewReplacer(notRecorded, "-", "−", "-")

// differences prints the conditions that are not the same, those that matter first.
func (t *terminal) differences(c Comparison) {
	fmt.Fprintln(t)
	if len(c.Differences) == 0 {
		t.Line("Nothing that was recorded of the conditions differs.")
		return
	}
	t.Wrap("", "", "What differs in the conditions", text.Bold)
	for _, d := range c.Differences {
		sign := words.Either(!d.Matters, "  ", "! ")
		t.Wrap(sign, "  ", d.What)
		t.Wrap("    A  ", "       ", asciiDash.Replace(d.A))
		t.Wrap("    B  ", "       ", asciiDash.Replace(d.B))
	}
	if c.graveDifferences() > 0 {
		t.Line("!: it can move figures")
	}
}

// comparedPair prints the figures of a pair.
func (t *terminal) comparedPair(all []ComparedFigure) {
	sizes := map[string][]int64{}
	for _, f := range all {
		sizes[f.Test] = append(sizes[f.Test], f.Bytes)
	}
	// The same sizes for both results, chosen from what either has: a row with a dash says that one did not measure it.
	for test, s := range sizes {
		slices.Sort(s)
		sizes[test] = slices.Compact(s)
		if !t.AllSizes {
			sizes[test] = pickSizes(sizes[test])
		}
	}
	rows, columns := [][]string{}, make([][]string, 4)
	left, one := 0, ""
	for _, f := range all {
		shown := slices.Contains(sizes[f.Test], f.Bytes) && slices.Contains(compareMetricsShown, f.Metric)
		if !t.AllSizes && !shown {
			left++
			continue
		}
		rows = append(rows, []string{f.Test, sizeOrDash(f.Bytes), bench.MetricOf(f.Metric).Label + ", " + f.Unit})
		for i, s := range []string{comparedText(f.A, f.a), comparedText(f.B, f.b), f.ratioText(), f.changeText()} {
			columns[i] = append(columns[i], asciiDash.Replace(s))
		}
		// One line explains the dashes. What is missing usually has one reason, and a line for each would hide the
		// figures.
		if f.Problem != "" && one == "" {
			one = fmt.Sprintf("-: %s (%s, %s)", f.Problem, f.Test, sizeOrDash(f.Bytes))
		}
	}
	if len(rows) == 0 {
		return
	}
	w := fill([]string{"test", "size", "figure", "A", "B", "B/A", "B-A"}, rows, columns)
	t.print(between(all[0].Client, all[0].Server), false, w)
	if left > 0 {
		t.Wrap("", "", fmt.Sprintf("%s more; --all and the page show all of them", words.Count(left, "figure")))
	}
	if one != "" {
		t.Wrap("", "", one)
	}
}
