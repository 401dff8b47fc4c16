package main

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/terminal"
)

// Formats of a listing.
const (
	formatText = "text"
	formatJSON = "json"
)

// outputFlag adds -o to a verb that lists something; format is text after it. The shapes of the
// JSON are in docs/json.md.
func outputFlag(cmd *cobra.Command, format *string) {
	*format = formatText
	enumFlag(cmd, format, "output", "o", "how to print the result", formatText, formatJSON)
}

// list prints a value as JSON, or as text by the function.
func (a *app) list(format string, v any, text func() error) error {
	if format == formatJSON {
		return a.printJSON(v)
	}
	return text()
}

// printJSON prints a result as JSON for people and programs alike.
func (a *app) printJSON(v any) error { return writeJSON(a.out, v) }

// color reports whether results may be coloured: on a terminal, unless NO_COLOR is set to anything (no-color.org).
func (a *app) color() bool { return terminal.Of(a.out) != nil && a.env("NO_COLOR") == "" }

// width returns the columns of the terminal that results go to, or 0 where they do not go to one.
func (a *app) width() int {
	f := terminal.Of(a.out)
	if f == nil {
		return 0
	}
	w, _ := terminal.Size(f)
	return w
}

// writeJSON prints one value, indented. Characters such as ">" stay as they are: the result is
// read, not put into a web page.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeJSONLine prints one value of a stream of them.
func writeJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// A grid is a table of texts: a head in capitals, and columns that stand apart by spaces, so that
// it reads well on a terminal and in a file. There are no lines and no colours in it.
type grid struct {
	head  []string
	right []bool // columns of numbers
	rows  [][]string
}

// newGrid takes the column heads; one that ends with ">" is a column of numbers, aligned to the right.
func newGrid(head ...string) *grid {
	g := &grid{right: make([]bool, len(head))}
	for i, h := range head {
		name, isRight := strings.CutSuffix(h, ">")
		g.head, g.right[i] = append(g.head, name), isRight
	}
	return g
}

// add appends a row. Empty cells are shown as "-".
func (g *grid) add(cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	g.rows = append(g.rows, cells)
}

func (g *grid) String() string {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Box:     table.BoxStyle{PaddingRight: "  "},
		Format:  table.FormatOptions{Header: text.FormatUpper},
		Options: table.Options{SeparateColumns: false},
	})
	var configs []table.ColumnConfig
	for i, r := range g.right {
		if r {
			configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight,
				AlignHeader: text.AlignRight})
		}
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(tableRow(g.head))
	for _, r := range g.rows {
		t.AppendRow(tableRow(r))
	}
	var b strings.Builder
	for line := range strings.Lines(t.Render()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

func tableRow(cells []string) table.Row {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		row[i] = c
	}
	return row
}
