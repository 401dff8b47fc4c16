package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

type compareText struct {
	compareView
	Sign     string // explains the sign of differences that matter
	Tables   []comparedTable
	NoFigure bool // neither result has one
}

type comparedTable struct {
	Title   string
	Lines   []string
	LeftOut string // counts the figures left out, if any
	Dash    string // explains the dashes, if any
}

// CompareTerminal writes two results side by side as text.
func CompareTerminal(w io.Writer, a, b record.Record, o TerminalOptions) error {
	a, b = show.Clean(a, words.Printable), show.Clean(b, words.Printable)
	t := newTerminal(w, o)
	t.comparison(newCompareText(a, b, o.AllSizes))
	return show.Wrapf(t.Flush(), "print the comparison of lab %q with lab %q", a.Lab, b.Lab)
}

func (t *terminal) comparison(c compareText) {
	t.Wrap("", "", "Two results side by side", text.Bold)
	t.Wrap("A  ", "   ", c.AName)
	t.Wrap("B  ", "   ", c.BName)
	fmt.Fprintln(t)
	if c.Warning != "" {
		t.Wrap("", "", c.Warning, text.FgYellow)
	}
	t.Wrap("", "", c.NoVerdict)
	fmt.Fprintln(t)
	if len(c.Differences) == 0 {
		t.Line("Nothing that was recorded of the conditions differs.")
	} else {
		t.Wrap("", "", "What differs in the conditions", text.Bold)
	}
	for _, d := range c.Differences {
		sign := "  "
		if d.Matters {
			sign = "! "
		}
		t.Wrap(sign, "  ", d.What)
		t.Wrap("    A  ", "       ", d.A)
		t.Wrap("    B  ", "       ", d.B)
	}
	if c.Sign != "" {
		t.Line(c.Sign)
	}
	if len(c.Sentences) > 0 {
		fmt.Fprintln(t)
	}
	for _, s := range c.Sentences {
		t.Wrap("- ", "  ", s)
	}
	for _, table := range c.Tables {
		t.print(table.Title, false, table.Lines)
		if table.LeftOut != "" {
			t.Wrap("", "", table.LeftOut)
		}
		if table.Dash != "" {
			t.Wrap("", "", table.Dash)
		}
	}
	if c.NoFigure {
		t.Line("Neither has a figure.")
	}
}

// asciiDash keeps figures on a terminal plain ASCII.
var asciiDash = strings.NewReplacer(notRecorded, "-", "−", "-")

func newCompareText(a, b record.Record, all bool) compareText {
	c := Compare(a, b)
	out := compareText{compareView: newCompareView(c, a, func(u string) string { return u }),
		NoFigure: len(c.Figures) == 0}
	if c.graveDifferences() > 0 {
		out.Sign = "!: it can move figures"
	}
	for i := range out.Differences {
		d := &out.Differences[i]
		d.A, d.B = asciiDash.Replace(d.A), asciiDash.Replace(d.B)
	}
	var pairs group.By[pair, ComparedFigure]
	for _, f := range c.Figures {
		pairs.Add(pair{Client: f.Client, Server: f.Server}, f)
	}
	for _, p := range pairs.Keys {
		if table := newComparedTable(p, pairs.Of(p), all); len(table.Lines) > 0 {
			out.Tables = append(out.Tables, table)
		}
	}
	return out
}

var compareMetricsShown = []string{bench.MetricBWAverage, bench.MetricThroughput, bench.MetricRetransmits,
	bench.MetricLatencyTypical, bench.MetricLatencyP99, bench.MetricLatencyP999, bench.MetricEventRate,
	bench.MetricMemoryBandwidth, bench.MetricLoadLatency, bench.MetricBusBandwidth, bench.MetricCopyBandwidth,
	bench.MetricTPSAverage, bench.MetricLoss, bench.MetricCollectiveTime, bench.MetricRating}

// newComparedTable has no lines if none of the usual figures was measured.
func newComparedTable(p pair, figures []ComparedFigure, all bool) comparedTable {
	sizes := map[string][]int64{}
	for _, f := range figures {
		sizes[f.Test] = append(sizes[f.Test], f.Bytes)
	}
	for test, s := range sizes {
		sizes[test] = pickSizes(lists.Distinct(s))
	}
	out := comparedTable{Title: p.String()}
	rows, columns := [][]string{}, make([][]string, 4)
	left := 0
	for _, f := range figures {
		usual := slices.Contains(sizes[f.Test], f.Bytes) && slices.Contains(compareMetricsShown, f.Metric)
		if !all && !usual {
			left++
			continue
		}
		rows = append(rows, []string{f.Test, sizeOrDash(f.Bytes), bench.MetricOf(f.Metric).Label + ", " + f.Unit})
		for i, s := range []string{comparedText(f.A, f.a), comparedText(f.B, f.b), f.ratioText(), f.changeText()} {
			columns[i] = append(columns[i], asciiDash.Replace(s))
		}
		// Missing figures usually have one cause, and a line for each would hide the figures.
		if f.Problem != "" && out.Dash == "" {
			out.Dash = fmt.Sprintf("-: %s (%s, %s)", f.Problem, f.Test, sizeOrDash(f.Bytes))
		}
	}
	if len(rows) == 0 {
		return out
	}
	out.Lines = fill([]string{"test", "size", "figure", "A", "B", "B/A", "B-A"}, rows, columns)
	if left > 0 {
		out.LeftOut = fmt.Sprintf("%s more; --all and the page show all of them", words.Count(left, "figure"))
	}
	return out
}
