package studyview

import (
	"fmt"
	"io"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
)

// Markdown writes the study for a page of a repository.
func Markdown(w io.Writer, d *Document) error {
	v, err := newView(d, words.Visible, show.Unit)
	if err != nil {
		return err
	}
	m := &markdown{show.NewMarkdownWriter(w), v}
	m.write()
	return show.Wrapf(m.Flush(), "write study %q as Markdown", v.Result.Study)
}

// A markdown is where Markdown prints.
type markdown struct {
	show.MarkdownWriter
	*view
}

// write says what the page says, in the same order; pictures are left out.
func (m *markdown) write() {
	fmt.Fprintf(m, "# %s\n\n", show.Markdown(m.heading()))
	if m.Emulated {
		fmt.Fprintf(m, "> **Emulated.**%s\n\n", strings.TrimPrefix(emulatedText, "Emulated."))
	}
	if len(m.Result.Words) > 0 {
		m.List(m.Result.Words)
		fmt.Fprintln(m)
	}
	if o := m.opposite(); o != "" {
		fmt.Fprintf(m, "> **%s** %s\n\n", oppositeTitle, show.Markdown(o))
	}
	fmt.Fprintf(m, "%s %s %s\n", m.tally(), m.counts(), m.rule())
	m.Title("Comparisons")
	m.comparisons(m.Result.Comparisons)
	m.Title("Controls")
	// That there are none is said: a reader of a table that is not there would think that they held.
	if len(m.Result.Controls) == 0 {
		fmt.Fprintln(m, "The study has no controls: metrics that no factor can move, and that would tell if "+
			"something else did.")
	} else {
		fmt.Fprint(m, "No factor can move these metrics. One that moves says that something else differed between "+
			"the levels.\n\n")
		m.comparisons(m.Result.Controls)
	}
	m.Title("What could have fooled this study")
	if len(m.Result.Confounds) == 0 {
		fmt.Fprint(m, "None of what was looked for was found. Looked for:\n\n")
	} else {
		fmt.Fprint(m, "Found:\n\n")
		m.List(m.Result.Confounds)
		fmt.Fprint(m, "\nLooked for:\n\n")
	}
	// What was looked for is listed even where something was found: what is not on the list may still be wrong.
	m.List(m.Result.LookedFor())
	if len(m.Result.Failures) > 0 {
		m.Title("Failures")
		var rows [][]string
		for _, f := range m.Result.Failures {
			rows = append(rows, []string{f.Cell, fmt.Sprint(f.Runs), fmt.Sprint(f.Tried), f.Error})
		}
		m.Table([]string{"cell", "failed>", "of>", "last error"}, rows)
	}
	m.Title("How it was made")
	rows := lists.Map(m.made(), func(s setting) []string { return []string{s.Name, s.Value} })
	if m.Lab != nil {
		rows = append(rows, []string{"checks before the first run", report.FindingsText(m.Lab.Findings)})
	}
	rows = append(rows, lists.Map(m.Environment, func(f study.Fact) []string { return []string{f.Name, f.Value} })...)
	m.Table([]string{"", ""}, rows)
	m.Title("To repeat it")
	if m.Repeat != "" {
		m.Code(m.Repeat)
	}
	for _, c := range m.Commands {
		name := c.Test
		name += words.If(c.Tool != "", " ("+c.Tool+")")
		fmt.Fprintf(m, "\n%s:\n\n", show.Markdown(name))
		// One block, in the order in which the commands have to be started.
		lines := words.Either(c.Server != "", "# server\n"+c.Server+"\n# client\n"+c.Client, c.Client)
		m.Code(lines)
	}
	if m.Repeat == "" && len(m.Commands) == 0 {
		fmt.Fprintln(m, "No command was recorded.")
	}
	made := "This report was made " + show.Time(m.Generated) + "."
	if m.Rackless != "" {
		made = "Recorded by rackless " + m.Rackless + ". " + made
	}
	fmt.Fprintf(m, "\n%s\n", show.Markdown(made))
}

// comparisons writes a table of comparisons, and below it what is to be said of its rows.
func (m *markdown) comparisons(all []study.Comparison) {
	var rows [][]string
	for c := range lists.Refs(all) {
		a, b := m.sides(c)
		// The word alone: signs and colours of the page do not survive every renderer of Markdown.
		verdict := verdictOf(c).Word
		verdict += words.If(len(c.Confounded) > 0, " (confounded)")
		rows = append(rows, []string{c.Factor, c.A, c.B, c.Where, nameOf(c.Quantity), a, b, c.Text(), c.BootstrapText(),
			pText(c), verdict})
	}
	m.Table([]string{"factor", "A", "B", "at", "metric", "value at A>", "value at B>", "effect of B (interval)",
		"block bootstrap", "p>", "verdict"}, rows)
	if notes := notes(all); len(notes) > 0 {
		fmt.Fprintln(m)
		m.List(notes)
	}
}
