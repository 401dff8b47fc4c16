package studyview

import (
	_ "embed" // for the template
	"fmt"
	"io"
	"strings"
	"text/template"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

// Text writes the study for a terminal: the conclusions in words, then the comparisons and everything that weakens
// them. Names and messages from outside cannot control the terminal.
func Text(w io.Writer, d *study.Document, o Options) error {
	v, err := newView(d, words.Printable, func(u string) string { return u })
	if err != nil {
		return err
	}
	t := &terminal{show.NewTerminal(w, o.Width, 100, o.Color), v}
	t.write()
	return show.Wrapf(t.Flush(), "print study %q", v.Result.Study)
}

type terminal struct {
	*show.Terminal
	*view
}

func (t *terminal) write() {
	t.Wrap("", "", t.heading(), text.Bold)
	if t.Emulated {
		t.Wrap("", "", emulatedText, text.FgYellow)
	}
	fmt.Fprintln(t)
	t.list("  ", t.Result.Words)
	if len(t.Result.Words) > 0 {
		fmt.Fprintln(t)
	}
	if o := t.opposite(); o != "" {
		t.list("", []string{oppositeTitle + " " + o})
		fmt.Fprintln(t)
	}
	t.list("", []string{t.tally(), t.counts(), t.rule()})
	t.comparisons("Comparisons", t.Result.Comparisons)
	if len(t.Result.Controls) == 0 {
		t.Title("Controls")
		t.Wrap("  ", "  ", "none: no metric was named that no factor can move, and that would tell if something "+
			"else did")
	} else {
		t.comparisons("Controls, which no factor can move", t.Result.Controls)
	}
	t.Title("What could have fooled this study")
	// Unlike the page, a terminal omits the list of checks if any of them found something, so that the finding does
	// not scroll away.
	if len(t.Result.Confounds) == 0 {
		t.Wrap("  ", "  ", "none of what was looked for was found; looked for:")
		t.list("  - ", t.Result.LookedFor())
	}
	t.list("  ! ", t.Result.Confounds, text.FgYellow)
	if len(t.Result.Failures) > 0 {
		t.Title("Failures")
		for _, f := range t.Result.Failures {
			t.Wrap("  ", "  ", fmt.Sprintf("%s: %d of %d runs failed, the last with: %s", f.Cell, f.Runs, f.Tried,
				f.Error))
		}
	}
	if t.Repeat != "" {
		t.Title("To repeat it")
		fmt.Fprintln(t, "  "+t.Repeat) // not wrapped, so that it can be copied
	}
}

func (t *terminal) list(first string, all []string, colors ...text.Color) {
	for _, s := range all {
		t.Wrap(first, strings.Repeat(" ", len(first)), s, colors...)
	}
}

// A column is a column of the table of comparisons. Its texts are wrapped to at most Most.
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

// comparisons prints one table, with its rows grouped below the compared levels, because several metrics of a pairing
// are read together.
func (t *terminal) comparisons(title string, all []study.Comparison) {
	t.Title(title)
	rows := make([][]string, len(all))
	for i := range all {
		c := &all[i]
		v := verdictOf(c)
		a, b := "-", "-"
		if c.Effect != nil {
			a, b = show.Figure(c.Effect.A), show.Figure(c.Effect.B)
		}
		name := strings.TrimSuffix(nameOf(c.Quantity)+", "+t.unit(c.Unit), ", ")
		rows[i] = []string{name, a, b, c.Text(), pText(c), v.Sign + " " + v.Word}
	}
	columns := t.columns(rows)
	heads := make([]show.Column, len(columns))
	for i, c := range columns {
		align := text.AlignLeft
		if c.Right {
			align = text.AlignRight
		}
		lines := strings.Split(fold(c.Head, c.width), "\n")
		for n, l := range lines { // pad to the full width of the column
			lines[n] = align.Apply(l, c.width)
		}
		heads[i] = show.Column{Name: strings.Join(lines, "\n"), Right: c.Right}
	}
	head := show.Lines(heads, nil)
	for _, l := range head {
		t.Line(l)
	}
	last := ""
	for i := range all {
		c := &all[i]
		group := fmt.Sprintf("%s: A = %s, B = %s", c.Factor, c.A, c.B)
		if c.Where != "" {
			group += ", at " + c.Where
		}
		if group != last {
			t.Title(group)
			last = group
		}
		for k := range columns {
			rows[i][k] = fold(rows[i][k], columns[k].width)
		}
		rows[i][len(columns)-1] = t.Colored(rows[i][len(columns)-1], verdictColor(c))
		// Lay out each row separately, because headings stand between the rows. The padded heads give all rows the
		// same column widths.
		for _, l := range show.Lines(heads, rows[i:i+1])[len(head):] {
			t.Line(l)
		}
		for _, s := range c.Confounded {
			t.Wrap("    ! ", "      ", "confounded, so do not rely on it: "+s, text.FgYellow)
		}
	}
	if notes := notes(all); len(notes) > 0 {
		fmt.Fprintln(t)
		t.list("  - ", notes)
	}
}

// columns returns the columns of the table of comparisons, as wide as their texts need and the terminal allows.
func (t *terminal) columns(rows [][]string) []column {
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
	// Shrink the effect first, which can wrap before its interval, and then the metric.
	interval := 16
	for _, r := range rows {
		_, s, _ := strings.Cut(r[effectColumn], " (")
		interval = max(interval, text.StringWidth(s)+1)
	}
	for _, take := range []struct{ column, least int }{{effectColumn, interval}, {metricColumn, 16},
		{effectColumn, 16}} {
		c := &columns[take.column]
		less := min(max(0, total-t.Width), max(0, c.width-take.least))
		c.width -= less
		total -= less
	}
	return columns
}

// verdictColor returns green for better and red for worse. Other verdicts have no colour.
func verdictColor(c *study.Comparison) text.Color {
	switch {
	case c.Judged == nil:
	case c.Judged.Verdict == stats.Better:
		return text.FgGreen
	case c.Judged.Verdict == stats.Worse:
		return text.FgRed
	}
	return 0
}

// fold breaks text before an interval if it does not fit on one line, and otherwise at spaces.
func fold(s string, width int) string {
	if text.StringWidth(s) <= width {
		return s
	}
	if estimate, interval, ok := strings.Cut(s, " ("); ok && text.StringWidth(interval)+1 <= width {
		return estimate + "\n(" + interval
	}
	return text.WrapSoft(s, width)
}

//go:embed study.md.tmpl
var markdownText string

var markdownPage = show.MarkdownTemplate(markdownText, template.FuncMap{"heading": (*view).heading,
	"opposite": (*view).opposite, "tally": (*view).tally, "counts": (*view).counts, "rule": (*view).rule,
	"comparisons": (*view).comparisons, "made": (*view).madeTable, "failures": failuresTable, "time": show.Time,
	"notes": notes, "emulated": func() string { return strings.TrimPrefix(emulatedText, "Emulated.") },
	"oppositeTitle": func() string { return oppositeTitle },
})

// Markdown writes the study for a page of a repository: the texts of the page in the same order, without pictures.
func Markdown(w io.Writer, d *study.Document) error {
	v, err := newView(d, words.Visible, show.Unit)
	if err != nil {
		return err
	}
	return show.Wrapf(markdownPage.Execute(w, v), "write study %q as Markdown", v.Result.Study)
}

func failuresTable(all []study.Failure) show.MarkdownTable {
	return show.MarkdownTable{Heads: []string{"cell", "failed>", "of>", "last error"}, Rows: lists.Map(all,
		func(f study.Failure) []string {
			return []string{f.Cell, fmt.Sprint(f.Runs), fmt.Sprint(f.Tried), f.Error}
		})}
}

func (v *view) madeTable() show.MarkdownTable {
	rows := lists.Map(v.made(), func(s setting) []string { return []string{s.Name, s.Value} })
	if v.Lab != nil {
		rows = append(rows, []string{"checks before the first run", report.FindingsText(v.Lab.Findings)})
	}
	rows = append(rows, lists.Map(v.Environment, func(f study.Fact) []string { return []string{f.Name, f.Value} })...)
	return show.MarkdownTable{Heads: []string{"", ""}, Rows: rows}
}

func (v *view) comparisons(all []study.Comparison) show.MarkdownTable {
	var rows [][]string
	for i := range all {
		c := &all[i]
		a, b := v.sides(c)
		// Use only the word, because not every Markdown renderer keeps signs and colours.
		verdict := verdictOf(c).Word
		if len(c.Confounded) > 0 {
			verdict += " (confounded)"
		}
		rows = append(rows, []string{c.Factor, c.A, c.B, c.Where, nameOf(c.Quantity), a, b, c.Text(), pText(c),
			verdict})
	}
	return show.MarkdownTable{Heads: []string{"factor", "A", "B", "at", "metric", "value at A>", "value at B>",
		"effect of B (interval)", "p>", "verdict"}, Rows: rows}
}

// An Estimate returns the approximate duration of a study's run, and the basis for it. It is only called if the study
// has a budget.
type Estimate func() (run time.Duration, how string, err error)

// Design describes the runs of a study and the effects that they can show.
func Design(w io.Writer, s *study.Spec, estimate Estimate) error {
	cells, comparisons := s.Cells(), s.Comparisons()
	fmt.Fprintf(w, "study %s: %s, %s in a block, seed %d\n", s.Name, words.Count(len(cells), "cell"),
		words.Count(study.RunsPerCell*len(cells), "run"), s.Seed)
	for _, f := range s.Factors {
		fmt.Fprintf(w, "  %-12s %s\n", f.Name, strings.Join(f.Levels, " | "))
	}
	if s.TakesBoots() {
		fmt.Fprintln(w, "the host is booted anew two or three times in a block: some cells take it with the "+
			"lab's CPUs isolated, some without")
	}
	least := stats.MinBlocks(1-s.Confidence, comparisons)
	if s.Blocks == 0 {
		fmt.Fprintf(w, "as many blocks as fit into %v; fewer than %d can show nothing of %s\n", s.Budget, least,
			words.Count(comparisons, "comparison"))
		return printEstimate(w, s, estimate, least)
	}
	runs := s.Blocks * study.RunsPerCell * len(cells)
	fmt.Fprintf(w, "%s, %s in all, for %s\n", words.Count(s.Blocks, "block"), words.Count(runs, "run"),
		words.Count(comparisons, "comparison"))
	// So few blocks have too few permutations: the smallest possible p is above the corrected level, whatever the
	// figures.
	if s.Blocks < least {
		fmt.Fprintf(w, "so few blocks can show no effect at all, whatever its size: it takes %d or more\n", least)
		return nil
	}
	fmt.Fprintf(w, "smallest effect that is found in 4 of 5 such studies: %s\n", study.SmallestEffects(s, s.Blocks))
	if s.Budget > 0 {
		fmt.Fprintf(w, "fewer blocks are made where %v do not hold them\n", s.Budget)
		return printEstimate(w, s, estimate, least)
	}
	return nil
}

// printEstimate estimates, before any run, how many blocks fit into a budget and which effects they can show.
func printEstimate(w io.Writer, s *study.Spec, estimate Estimate, least int) error {
	run, how, err := estimate()
	if err != nil {
		return err
	}
	block := run * time.Duration(study.RunsPerCell*len(s.Cells()))
	blocks := max(1, int(s.Budget/block)) // a started block is finished
	all := s.Blocks > 0 && blocks >= s.Blocks
	if all {
		blocks = s.Blocks
	}
	// Print no more digits than the estimate justifies.
	round := 100 * time.Millisecond
	if run >= 10*time.Second {
		round = time.Second
	}
	fmt.Fprintf(w, "estimate: a run takes about %v (%s), so %v hold about %s\n", run.Round(round), how, s.Budget,
		words.Count(blocks, "block"))
	switch {
	case blocks < least:
		fmt.Fprintf(w, "so few blocks can show no effect at all, whatever its size: %d take about %v\n", least,
			(block * time.Duration(least)).Round(time.Second))
	case !all: // otherwise already printed
		fmt.Fprintf(w, "smallest effect that is found in 4 of 5 studies of %s: %s\n", words.Count(blocks, "block"),
			study.SmallestEffects(s, blocks))
	}
	return nil
}

// Order prints the order of the runs in the first blocks, at most three.
func Order(w io.Writer, s *study.Spec) {
	blocks := max(1, min(s.Blocks, 3))
	for b := 1; b <= blocks; b++ {
		for _, r := range s.Block(b) {
			fmt.Fprintf(w, "block %2d  run %2d  %s\n", r.Block, r.Place, s.CellText(r.Cell))
		}
	}
	if s.Blocks != blocks {
		fmt.Fprintln(w, "and so on")
	}
}
