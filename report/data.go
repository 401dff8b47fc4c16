// Package report turns the results of a lab into something a person reads: one self-contained HTML
// page and terminal tables. It knows nothing of how the figures came to be, reads no clock and no
// file: the same Data gives the same bytes.
//
// Three rules hold in every output. A figure from emulation says so beside the figure. A failed
// measurement is listed, with its command, and never drawn as a zero. A median never mixes emulated
// figures with figures of hardware.
package report

import (
	_ "embed" // for the template
	"encoding/csv"
	"io"
	"strconv"
	"text/template"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// titleOf is the heading of the report.
func titleOf(d record.Record) string {
	switch {
	case d.Title != "":
		return d.Title
	case d.Lab != "":
		return "Lab " + d.Lab
	}
	return "Lab without a name"
}

// CSV writes one line for each sample, for other programs: failed measurements too, so that none is
// lost. The text is as it was recorded.
func CSV(w io.Writer, d record.Record) error {
	// 0 stands for what was not recorded: no run takes no time, and no wire carries nothing. An empty cell is no number
	// for a spreadsheet.
	known := func(v float64) string {
		if v == 0 {
			return ""
		}
		return show.Exact(v)
	}
	records := [][]string{{"run", "started", "seconds", "attempt", "client", "server", "test", "metric", "bytes",
		"value", "unit", "limit", "derived", "iterations", "tool", "version", "placement", "accelerator", "emulated",
		"command", "server_command", "error"}}
	// A failed measurement has no value, and not 0: a spreadsheet would take that into its mean.
	for _, s := range d.Samples {
		value := ""
		if s.Error == "" {
			value = show.Exact(s.Value)
		}
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
	"facts": func(all []record.Fact) show.MarkdownTable {
		rows := lists.Map(all, func(e record.Fact) []string { return []string{e.Key, e.Value} })
		return show.MarkdownTable{Heads: []string{"", ""}, Rows: rows}
	},
})

// Markdown writes the report for a page of a repository: what the page says in words, and its tables.
func Markdown(w io.Writer, d record.Record) error {
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
			if c.Repeats != "" {
				text += " (" + c.Repeats + ")"
			}
			row = append(row, text)
		}
		all.Rows = append(all.Rows, row)
	}
	return all
}
