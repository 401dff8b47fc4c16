package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/term"
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
func (a *app) color() bool { return terminal(a.out) != nil && a.env("NO_COLOR") == "" }

// width returns the columns of the terminal that results go to, or 0 where they do not go to one.
func (a *app) width() int {
	f := terminal(a.out)
	if f == nil {
		return 0
	}
	w, _ := columns(f)
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

// cutLine shortens a line to at most width columns, and shows that it did.
func cutLine(line string, width int) string {
	if text.StringWidthWithoutEscSequences(line) <= width {
		return line
	}
	return text.Snip(line, max(width, 1), "~")
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

// terminal returns the file behind w if it is a terminal, else nil.
func terminal(w any) *os.File {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// columns returns the size of a terminal in characters, or the usual one if the terminal does not know.
func columns(f *os.File) (width, height int) {
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// seconds prints a duration as "1.23 s".
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// ago prints how long something has lasted in its largest unit, as a person says it: "42s", "3m", "5h", "2d".
func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "0s" // the clock was set back
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
