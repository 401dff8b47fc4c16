// Package report turns the results of a lab into a self-contained HTML page and terminal tables. The same Data gives
// the same bytes.
//
// An emulated figure is marked as such, a failed measurement is listed and never drawn as a zero, and a median never
// mixes emulated and hardware figures.
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

func titleOf(d record.Record) string {
	switch {
	case d.Title != "":
		return d.Title
	case d.Lab != "":
		return "Lab " + d.Lab
	}
	return "Lab without a name"
}

// CSV writes one line for each sample, failed ones included. Texts are as recorded.
func CSV(w io.Writer, d record.Record) error {
	// 0 means not recorded. It is empty, so that a spreadsheet does not use it as a number.
	known := func(v float64) string {
		if v == 0 {
			return ""
		}
		return show.Exact(v)
	}
	records := [][]string{{"run", "started", "seconds", "attempt", "client", "server", "test", "metric", "bytes",
		"value", "unit", "limit", "derived", "iterations", "tool", "version", "placement", "accelerator", "emulated",
		"command", "server_command", "error"}}
	// A failed measurement is empty: a spreadsheet would include a 0 in its mean.
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

var markdownPage = show.MarkdownTemplate(markdownText, template.FuncMap{"orDash": orDash, "table": figureTable.plain,
	"gpuGrid": gpuTable.grid, "gpuRows": gpuTable.rows,
	"facts": func(all []record.Fact) show.MarkdownTable {
		rows := lists.Map(all, func(e record.Fact) []string { return []string{e.Key, e.Value} })
		return show.MarkdownTable{Heads: []string{"", ""}, Rows: rows}
	},
})

// Markdown writes the texts and tables of the report for a page of a repository.
func Markdown(w io.Writer, d record.Record) error {
	return show.Wrapf(markdownPage.Execute(w, newPage(d)), "write the report of lab %q as Markdown", d.Lab)
}

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
