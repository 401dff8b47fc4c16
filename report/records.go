package report

import (
	_ "embed" // for the template
	"encoding/csv"
	"io"
	"strconv"
	"text/template"
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

//go:embed report.md.tmpl
var markdownText string

var markdownPage = show.MarkdownTemplate(markdownText, template.FuncMap{"name": judgedName, "figure": judgedFigure,
	"cause": causeTitle, "orDash": orDash, "table": figureTable.plain,
	"facts": func(all []Fact) show.MarkdownTable {
		rows := lists.Map(all, func(e Fact) []string { return []string{e.Key, e.Value} })
		return show.MarkdownTable{Heads: []string{"", ""}, Rows: rows}
	},
})

// Markdown writes the report for a page of a repository: what the page says in words, and its tables.
func Markdown(w io.Writer, d Data) error {
	// The model of the page, so that the two cannot say different things of one result.
	return show.Wrapf(markdownPage.Execute(w, newPage(d)), "write the report of lab %q as Markdown", d.Lab)
}

// plain is the table as texts.
func (t figureTable) plain() show.MarkdownTable {
	all := show.MarkdownTable{Heads: []string{"client to server", "size>"}}
	all.Heads = append(all.Heads, lists.Map(t.Columns, func(c figureColumn) string { return c.Title + ">" })...)
	for _, r := range t.Rows {
		row := []string{r.pair.String(), r.Size}
		for _, c := range r.Cells {
			text := c.Text
			text += words.If(c.Repeats != "", " ("+c.Repeats+")")
			row = append(row, text)
		}
		all.Rows = append(all.Rows, row)
	}
	return all
}
