package studyview

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
)

// Text writes the study for a terminal. Names and messages from outside cannot control it.
func Text(w io.Writer, d *study.Document, o Options) error {
	src, err := newSource(d, words.Printable, func(u string) string { return u })
	if err != nil {
		return err
	}
	v := src.view()
	t := terminal{show.NewTerminal(w, o.Width, 100, o.Color)}
	t.study(v)
	return show.Wrapf(t.Flush(), "print study %q", v.Study)
}

type terminal struct{ *show.Terminal }

func (t terminal) study(v view) {
	t.Wrap("", "", v.Heading, text.Bold)
	if v.Kind != "" {
		t.Wrap("", "", v.Kind+". "+v.Meaning, text.FgYellow)
	}
	fmt.Fprintln(t)
	t.list("  ", v.Words)
	if len(v.Words) > 0 {
		fmt.Fprintln(t)
	}
	if v.Opposite != "" {
		t.Wrap("", "", v.OppositeTitle+" "+v.Opposite)
		fmt.Fprintln(t)
	}
	t.list("", slices.DeleteFunc([]string{v.Tally, v.Counts, v.Rule, v.Constants},
		func(s string) bool { return s == "" }))
	t.Title("Comparisons")
	t.comparisons(v.Comparisons)
	if len(v.Controls.Rows) == 0 {
		t.Title("Controls")
		t.Wrap("  ", "  ", "none: no metric was named that no factor can move, and that would tell if something "+
			"else did")
	} else {
		t.Title("Controls, which no factor can move")
		t.comparisons(v.Controls)
	}
	t.Title("What could have fooled this study")
	// A list of checks would make the finding scroll away.
	if len(v.Confounds) == 0 {
		t.Wrap("  ", "  ", "none of what was looked for was found; looked for:")
		t.list("  - ", v.LookedFor)
	}
	t.list("  ! ", v.Confounds, text.FgYellow)
	if len(v.Failures) > 0 {
		t.Title("Failures")
	}
	for _, f := range v.Failures {
		t.Wrap("  ", "  ", f.Text)
	}
	if v.Repeat != "" {
		t.Title("To repeat it")
		fmt.Fprintln(t, "  "+v.Repeat) // not wrapped, to be copied
	}
}

func (t terminal) list(first string, all []string, colors ...text.Color) {
	for _, s := range all {
		t.Wrap(first, strings.Repeat(" ", len(first)), s, colors...)
	}
}

type column struct {
	Head        string
	Most, width int
	Right       bool
}

const (
	columnGap    = 2
	metricColumn = 0
	effectColumn = 3
)

// comparisons groups rows by the compared levels, because metrics of a pairing are read together.
func (t terminal) comparisons(all comparisonTable) {
	rows := make([][]string, len(all.Rows))
	for i, r := range all.Rows {
		rows[i] = []string{r.Metric, r.AFigure, r.BFigure, r.EffectText, r.PText, r.Verdict.Sign + " " + r.Verdict.Word}
	}
	columns := columnsOf(rows, t.Width)
	heads := headsOf(columns)
	head := show.Lines(heads, nil)
	for _, l := range head {
		t.Line(l)
	}
	for i, r := range all.Rows {
		if r.Heading != "" {
			t.Title(r.Heading)
		}
		for k := range columns {
			rows[i][k] = fold(rows[i][k], columns[k].width)
		}
		rows[i][len(columns)-1] = t.Colored(rows[i][len(columns)-1], r.Verdict.Color)
		// Padded heads give all rows the same column widths.
		for _, l := range show.Lines(heads, rows[i:i+1])[len(head):] {
			t.Line(l)
		}
		for _, s := range r.Confounded {
			t.Wrap("    ! ", "      ", s, text.FgYellow)
		}
	}
	if len(all.Notes) > 0 {
		fmt.Fprintln(t)
		t.list("  - ", all.Notes)
	}
}

func headsOf(columns []column) []show.Column {
	heads := make([]show.Column, len(columns))
	for i, c := range columns {
		align := text.AlignLeft
		if c.Right {
			align = text.AlignRight
		}
		lines := strings.Split(fold(c.Head, c.width), "\n")
		for n, l := range lines {
			lines[n] = align.Apply(l, c.width)
		}
		heads[i] = show.Column{Name: strings.Join(lines, "\n"), Right: c.Right}
	}
	return heads
}

func columnsOf(rows [][]string, width int) []column {
	columns := []column{{Head: "metric, unit", Most: 44}, {Head: "A", Most: 14, Right: true},
		{Head: "B", Most: 14, Right: true}, {Head: "effect (interval)", Most: 40}, {Head: "p", Most: 9, Right: true},
		{Head: "verdict", Most: 14}}
	total := -columnGap
	for i := range columns {
		c := &columns[i]
		c.width = text.StringWidth(c.Head)
		for _, r := range rows {
			c.width = min(c.Most, max(c.width, text.StringWidth(r[i])))
		}
		total += c.width + columnGap
	}
	// The effect shrinks first, because it can wrap before its interval.
	interval := 16
	for _, r := range rows {
		_, s, _ := strings.Cut(r[effectColumn], " (")
		interval = max(interval, text.StringWidth(s)+1)
	}
	for _, take := range []struct{ column, least int }{{effectColumn, interval}, {metricColumn, 16},
		{effectColumn, 16}} {
		c := &columns[take.column]
		less := min(max(0, total-width), max(0, c.width-take.least))
		c.width -= less
		total -= less
	}
	return columns
}

// fold breaks before an interval, or else at spaces.
func fold(s string, width int) string {
	if text.StringWidth(s) <= width {
		return s
	}
	if estimate, interval, ok := strings.Cut(s, " ("); ok && text.StringWidth(interval)+1 <= width {
		return estimate + "\n(" + interval
	}
	return text.WrapSoft(s, width)
}
