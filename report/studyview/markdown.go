package studyview

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
)

// Markdown writes the study for a page of a repository.
func Markdown(w io.Writer, d *Document) error {
	v, err := newView(d, show.Visible, show.Unit)
	if err != nil {
		return err
	}
	m := &markdown{bufio.NewWriter(w), v}
	m.write()
	if err := m.Flush(); err != nil {
		return fmt.Errorf("write study %q as Markdown: %w", v.Result.Study, err)
	}
	return nil
}

// A markdown is where Markdown prints. Errors of writing stay in the bufio.Writer until Flush.
type markdown struct {
	*bufio.Writer
	*view
}

func (m *markdown) write() {
	fmt.Fprintf(m, "# %s\n\n", show.Markdown(m.heading()))
	if m.Emulated {
		fmt.Fprintf(m, "> **Emulated.**%s\n\n", strings.TrimPrefix(emulatedText, "Emulated."))
	}
	if len(m.Result.Words) > 0 {
		m.list(m.Result.Words)
		fmt.Fprintln(m)
	}
	fmt.Fprintf(m, "%s %s %s\n", m.tally(), m.counts(), m.rule())
	m.title("Comparisons")
	m.comparisons(m.Result.Comparisons)
	m.title("Controls")
	if len(m.Result.Controls) == 0 {
		fmt.Fprintln(m, "The study has no controls: metrics that no factor can move, and that would tell if "+
			"something else did.")
	} else {
		fmt.Fprint(m, "No factor can move these metrics. One that moves says that something else differed between "+
			"the levels.\n\n")
		m.comparisons(m.Result.Controls)
	}
	m.title("What could have fooled this study")
	if len(m.Result.Confounds) == 0 {
		fmt.Fprint(m, "None of what was looked for was found. Looked for:\n\n")
	} else {
		fmt.Fprint(m, "Found:\n\n")
		m.list(m.Result.Confounds)
		fmt.Fprint(m, "\nLooked for:\n\n")
	}
	m.list(m.Result.LookedFor())
	if len(m.Result.Failures) > 0 {
		m.title("Failures")
		rows := [][]string{{"cell", "failed", "of", "last error"}, {"---", "---:", "---:", "---"}}
		for _, f := range m.Result.Failures {
			rows = append(rows, []string{show.Markdown(f.Cell), fmt.Sprint(f.Runs), fmt.Sprint(f.Tried),
				show.Markdown(f.Error)})
		}
		m.table(rows)
	}
	m.title("How it was made")
	rows := [][]string{{"", ""}, {"---", "---"}}
	for _, s := range m.made() {
		rows = append(rows, []string{show.Markdown(s.Name), show.Markdown(s.Value)})
	}
	if m.Lab != nil {
		rows = append(rows, []string{"checks before the first run", show.Markdown(report.FindingsText(m.Lab.Findings))})
	}
	for _, f := range m.Environment {
		rows = append(rows, []string{show.Markdown(f.Name), show.Markdown(f.Value)})
	}
	m.table(rows)
	m.title("To repeat it")
	if m.Repeat != "" {
		fmt.Fprintln(m, show.Fenced(m.Repeat))
	}
	for _, c := range m.Commands {
		name := c.Test
		if c.Tool != "" {
			name += " (" + c.Tool + ")"
		}
		fmt.Fprintf(m, "\n%s:\n\n", show.Markdown(name))
		var lines []string
		if c.Server != "" {
			lines = append(lines, "# server", c.Server, "# client")
		}
		fmt.Fprintln(m, show.Fenced(strings.Join(append(lines, c.Client), "\n")))
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

func (m *markdown) title(s string) { fmt.Fprintf(m, "\n## %s\n\n", s) }

func (m *markdown) list(items []string) {
	for _, s := range items {
		fmt.Fprintf(m, "- %s\n", show.Markdown(s))
	}
}

func (m *markdown) comparisons(all []study.Comparison) {
	rows := [][]string{{"factor", "A", "B", "at", "metric", "value at A", "value at B", "effect of B (interval)",
		"block bootstrap", "p", "verdict"}, {"---", "---", "---", "---", "---", "---:", "---:", "---", "---", "---:",
		"---"}}
	for i := range all {
		c := &all[i]
		a, b := m.sides(c)
		verdict := verdictOf(c).Word
		if len(c.Confounded) > 0 {
			verdict += " (confounded)"
		}
		rows = append(rows, []string{
			show.Markdown(c.Factor), show.Markdown(c.A), show.Markdown(c.B), show.Markdown(c.Where),
			show.Markdown(comparedName(c)),
			show.Markdown(a), show.Markdown(b), show.Markdown(c.Text()), show.Markdown(c.BootstrapText()),
			show.Markdown(pText(c)), show.Markdown(verdict),
		})
	}
	m.table(rows)
	if notes := notes(all); len(notes) > 0 {
		fmt.Fprintln(m)
		m.list(notes)
	}
}

func (m *markdown) table(rows [][]string) {
	for _, r := range rows {
		fmt.Fprintf(m, "| %s |\n", strings.Join(r, " | "))
	}
}
