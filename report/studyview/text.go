package studyview

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

// Bounds of Options.
const (
	defaultWidth = 100
	leastWidth   = 60
)

// Text writes the study for a terminal: what it comes to in words, then the comparisons and
// everything that speaks against them. Names and messages from outside cannot control the terminal.
func Text(w io.Writer, d *Document, o Options) error {
	v, err := newView(d, show.Printable, func(u string) string { return u })
	if err != nil {
		return err
	}
	if o.Width <= 0 {
		o.Width = defaultWidth
	}
	o.Width = max(o.Width, leastWidth)
	t := &terminal{bufio.NewWriter(w), o, v}
	t.write()
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print study %q: %w", v.Result.Study, err)
	}
	return nil
}

// A terminal is where Text prints. Errors of writing stay in the bufio.Writer until Flush.
type terminal struct {
	*bufio.Writer
	Options
	*view
}

func (t *terminal) write() {
	t.wrap("", text.Bold, t.heading())
	if t.Emulated {
		t.wrap("", text.FgYellow, emulatedText)
	}
	fmt.Fprintln(t)
	for _, s := range t.Result.Words {
		t.wrap("  ", 0, s)
	}
	if len(t.Result.Words) > 0 {
		fmt.Fprintln(t)
	}
	for _, s := range []string{t.tally(), t.counts(), t.rule()} {
		t.wrap("", 0, s)
	}
	t.comparisons("Comparisons", t.Result.Comparisons)
	if len(t.Result.Controls) == 0 {
		t.title("Controls")
		t.wrap("  ", 0, "none: no metric was named that no factor can move, and that would tell if something else did")
	} else {
		t.comparisons("Controls, which no factor can move", t.Result.Controls)
	}
	t.title("What could have fooled this study")
	if len(t.Result.Confounds) == 0 {
		t.wrap("  ", 0, "none of what was looked for was found; looked for:")
		for _, s := range t.Result.LookedFor() {
			t.wrap("  - ", 0, s)
		}
	}
	for _, s := range t.Result.Confounds {
		t.wrap("  ! ", text.FgYellow, s)
	}
	if len(t.Result.Failures) > 0 {
		t.title("Failures")
		for _, f := range t.Result.Failures {
			t.wrap("  ", 0, fmt.Sprintf("%s: %d of %d runs failed, the last with: %s", f.Cell, f.Runs, f.Tried,
				f.Error))
		}
	}
	if t.Repeat != "" {
		t.title("To repeat it")
		fmt.Fprintln(t, "  "+t.Repeat) // not folded: it may be copied
	}
}

func (t *terminal) title(s string) {
	fmt.Fprintln(t)
	t.wrap("", text.Bold, s)
}

// wrap prints text folded to the width; lines after the first stand below the text of the first.
func (t *terminal) wrap(first string, c text.Color, s string) {
	for i, line := range strings.Split(text.WrapSoft(s, max(20, t.Width-len(first))), "\n") {
		if i > 0 {
			first = strings.Repeat(" ", len(first))
		}
		fmt.Fprintln(t, first+t.colored(c, strings.TrimRight(line, " ")))
	}
}

func (t *terminal) colored(c text.Color, s string) string {
	if !t.Color || c == 0 || s == "" {
		return s
	}
	// Not c.Sprint: it asks the environment, and the caller has decided.
	return c.EscapeSeq() + s + text.Reset.EscapeSeq()
}

// A column of the table of comparisons. Its texts are folded to Most.
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

// comparisons prints one table whose rows stand below what is compared with what: three metrics of
// a pairing are read together.
func (t *terminal) comparisons(title string, all []study.Comparison) {
	t.title(title)
	columns := []column{{Head: "metric, unit", Most: 44}, {Head: "A", Most: 14, Right: true},
		{Head: "B", Most: 14, Right: true}, {Head: "effect (interval)", Most: 40}, {Head: "p", Most: 9, Right: true},
		{Head: "verdict", Most: 14}}
	rows := make([][]string, len(all))
	for i := range all {
		c := &all[i]
		v := verdictOf(c)
		a, b := "-", "-"
		if c.Effect != nil {
			a, b = show.Figure(c.Effect.A), show.Figure(c.Effect.B)
		}
		name := strings.TrimSuffix(comparedName(c)+", "+t.unit(c.Unit), ", ")
		rows[i] = []string{name, a, b, c.Text(), pText(c), v.Sign + " " + v.Word}
	}
	total := -columnGap
	for i := range columns {
		c := &columns[i]
		c.width = text.StringWidth(c.Head)
		for _, r := range rows {
			c.width = min(c.Most, max(c.width, text.StringWidth(r[i])))
		}
		total += c.width + columnGap
	}
	// What is too wide is taken from the effect first, which folds well before its interval, then from the metric.
	interval := 16
	for _, r := range rows {
		_, s, _ := strings.Cut(r[effectColumn], " (")
		interval = max(interval, text.StringWidth(s)+1)
	}
	for _, take := range []struct{ column, least int }{{effectColumn, interval}, {metricColumn, 16},
		{effectColumn, 16}} {
		if over := total - t.Width; over > 0 {
			less := min(over, max(0, columns[take.column].width-take.least))
			columns[take.column].width -= less
			total -= less
		}
	}
	header := make([]string, len(columns))
	for i, c := range columns {
		header[i] = c.Head
	}
	t.row(columns, header, 0)
	last := ""
	for i := range all {
		c := &all[i]
		group := fmt.Sprintf("%s: A = %s, B = %s", c.Factor, c.A, c.B)
		if c.Where != "" {
			group += ", at " + c.Where
		}
		if group != last {
			fmt.Fprintln(t)
			t.wrap("", text.Bold, group)
			last = group
		}
		t.row(columns, rows[i], verdictColor(c))
		for _, s := range c.Confounded {
			t.wrap("    ! ", text.FgYellow, "confounded, so do not rely on it: "+s)
		}
	}
	if notes := notes(all); len(notes) > 0 {
		fmt.Fprintln(t)
		for _, s := range notes {
			t.wrap("  - ", 0, s)
		}
	}
}

func verdictColor(c *study.Comparison) text.Color {
	if c.Judged == nil {
		return 0
	}
	switch c.Judged.Verdict {
	case stats.Better:
		return text.FgGreen
	case stats.Worse:
		return text.FgRed
	}
	return 0
}

// row prints a row; its last cell has the colour.
func (t *terminal) row(columns []column, cells []string, c text.Color) {
	lines := make([][]string, len(cells))
	tall := 0
	for i, s := range cells {
		lines[i] = strings.Split(fold(s, columns[i].width), "\n")
		tall = max(tall, len(lines[i]))
	}
	for n := range tall {
		var b strings.Builder
		for i, column := range columns {
			s := ""
			if n < len(lines[i]) {
				s = strings.TrimRight(lines[i][n], " ")
			}
			align := text.AlignLeft
			if column.Right {
				align = text.AlignRight
			}
			if i == len(columns)-1 {
				b.WriteString(t.colored(c, s))
				continue
			}
			b.WriteString(align.Apply(s, column.width) + strings.Repeat(" ", columnGap))
		}
		fmt.Fprintln(t, strings.TrimRight(b.String(), " "))
	}
}

// fold breaks text before an interval where it does not fit into one line, else at spaces.
func fold(s string, width int) string {
	if text.StringWidth(s) <= width {
		return s
	}
	if estimate, interval, ok := strings.Cut(s, " ("); ok && text.StringWidth(interval)+1 <= width {
		return estimate + "\n(" + interval
	}
	return text.WrapSoft(s, width)
}
