package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// CSV writes one line for each sample, for other programs: failed measurements too, so that none is
// lost. The text is as it was recorded.
func CSV(w io.Writer, d Data) error {
	// 0 stands for what was not recorded: no run takes no time, and no wire carries nothing. An empty cell is no number
	// for a spreadsheet.
	known := func(v float64) string { return words.If(v != 0, show.Exact(v)) }
	records := [][]string{{"run", "started", "seconds", "attempt", "client", "server", "test", "metric", "bytes",
		"value", "unit", "limit", "derived", "iterations", "tool", "version", "placement", "accelerator", "emulated",
		"command", "server_command", "error"}}
	// A failed measurement has no value, and not 0: a spreadsheet would take that into its mean.
	for _, s := range d.Samples {
		value := words.If(s.Error == "", show.Exact(s.Value))
		records = append(records, []string{s.Run, s.Started.UTC().Format(time.RFC3339Nano), known(s.Seconds),
			number(s.Attempt), s.Client, s.Server, s.Test, s.Metric, number(s.Bytes), value, s.Unit, known(s.Limit),
			strconv.FormatBool(s.Derived), number(s.Iterations), s.Tool, s.Version, s.Placement, s.Accelerator,
			strconv.FormatBool(s.Emulated), s.Command, s.ServerCommand, s.Error})
	}
	return show.Wrapf(csv.NewWriter(w).WriteAll(records), "write the report of lab %q as CSV", d.Lab)
}

// Markdown writes the report for a page of a repository: what the page says in words, and its tables.
func Markdown(w io.Writer, d Data) error {
	// The model of the page, so that the two cannot say different things of one result.
	p := newPage(d)
	m := show.NewMarkdownWriter(w)
	md := show.Markdown
	fmt.Fprintf(m, "# %s\n\n", md(p.Heading))
	if p.Banner != "" {
		fmt.Fprintf(m, "> %s\n\n", md(p.Banner))
	}
	fmt.Fprintf(m, "%s %s.\n", md(p.Summary), md(p.FindingsText))
	if len(p.Judged) > 0 || p.NoExpectation != "" {
		m.Title("Against what the path carries")
		if p.NoExpectation != "" {
			fmt.Fprintln(m, md(p.NoExpectation))
		}
		for _, j := range p.Judged {
			fmt.Fprintf(m, "- %s: %s. %s.\n", md(judgedName(j)), md(judgedFigure(j)), md(j.Text))
			for _, c := range j.Causes {
				fmt.Fprintf(m, "  - **%s**: %s. What to do: %s.\n", md(causeTitle(c)), md(c.Evidence), md(c.Fix))
			}
		}
	}
	for _, t := range p.Tables {
		m.Title(t.Test)
		fmt.Fprintf(m, "%s\n\n", md(t.Caption))
		m.Table(t.plain())
	}
	if len(p.Failures) > 0 {
		m.Title("Failed measurements")
		for _, f := range p.Failures {
			fmt.Fprintf(m, "- %s: %s\n", md(f.What()), md(f.Reason))
		}
	}
	if len(p.Faults) > 0 {
		m.Title("Checks that are not ok")
		for _, f := range p.Faults {
			fmt.Fprintf(m, "- %s: %s, %s: have %s, want %s. %s\n", md(string(f.Status)), md(f.Title), md(f.Subject),
				md(orDash(f.Have)), md(orDash(f.Want)), md(f.Fix))
		}
	}
	if len(p.Environment) > 0 {
		m.Title("Environment")
		rows := lists.Map(p.Environment, func(e Fact) []string { return []string{e.Key, e.Value} })
		m.Table([]string{"", ""}, rows)
	}
	if len(p.Commands) > 0 {
		m.Title("Command lines")
		for _, c := range p.Commands {
			lines := slices.DeleteFunc([]string{c.ServerCommand, c.Command}, func(s string) bool { return s == "" })
			// A client that is started before its server gives up at once.
			fmt.Fprintf(m, "%s, the server's first:\n\n", md(c.What))
			m.Code(strings.Join(lines, "\n"))
			fmt.Fprintln(m)
		}
	}
	return show.Wrapf(m.Flush(), "write the report of lab %q as Markdown", d.Lab)
}

// plain is the table as texts.
func (t figureTable) plain() (heads []string, rows [][]string) {
	heads = []string{"client to server", "size>"}
	heads = append(heads, lists.Map(t.Columns, func(c figureColumn) string { return c.Title + ">" })...)
	for _, r := range t.Rows {
		row := []string{r.pair.String(), r.Size}
		for _, c := range r.Cells {
			text := c.Text
			text += words.If(c.Repeats != "", " ("+c.Repeats+")")
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	return heads, rows
}
