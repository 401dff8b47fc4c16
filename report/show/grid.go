package show

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
)

// A Column is a column of a table.
type Column struct {
	Name  string
	Right bool // right-aligned, for numbers
	Fold  int  // maximum width; 0: not wrapped
}

// Columns returns columns with these names. One that ends with ">" is for numbers.
func Columns(names ...string) []Column {
	all := make([]Column, len(names))
	for i, n := range names {
		all[i].Name, all[i].Right = strings.CutSuffix(n, ">")
	}
	return all
}

// Lines formats a table in the house style: no borders, two spaces between columns. The first line has the names.
func Lines(columns []Column, rows [][]string) []string {
	style := plain()
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	return render(style, columns, rows, text.WrapSoft)
}

// Ruled formats figures with a rule below the heads, right-aligned but the first. Cells have at most eighteen columns,
// so that a terminal of 80 has room for four.
func Ruled(heads []string, rows [][]string) []string {
	columns := make([]Column, len(heads))
	for i, h := range heads {
		columns[i] = Column{Name: h, Right: i > 0, Fold: 18}
	}
	style := plain()
	style.Options.SeparateHeader = true
	return render(style, columns, rows, text.WrapHard)
}

func plain() table.Style {
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	return style
}

func render(style table.Style, columns []Column, rows [][]string, fold table.WidthEnforcer) []string {
	w := table.NewWriter()
	w.SetStyle(style)
	// go-pretty measures display columns.
	names := make([]string, len(columns))
	configs := make([]table.ColumnConfig, len(columns))
	for i, c := range columns {
		names[i] = c.Name
		configs[i] = table.ColumnConfig{Number: i + 1, WidthMax: c.Fold, WidthMaxEnforcer: fold}
		if c.Right {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	w.SetColumnConfigs(configs)
	w.AppendHeader(row(names))
	for _, r := range rows {
		w.AppendRow(row(r))
	}
	lines := strings.Split(w.Render(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return lines
}

func row(cells []string) table.Row {
	out := make(table.Row, len(cells))
	for i, c := range cells {
		out[i] = c
	}
	return out
}

// A Grid is a table of texts with upper-case heads, readable on a terminal and in a file.
type Grid struct {
	columns []Column
	rows    [][]string
}

// NewGrid returns a grid. A head that ends with ">" makes a right-aligned column.
func NewGrid(head ...string) *Grid {
	g := &Grid{columns: Columns(head...)}
	for i := range g.columns {
		g.columns[i].Name = strings.ToUpper(g.columns[i].Name)
	}
	return g
}

// Add appends a row. Empty cells are shown as "-".
func (g *Grid) Add(cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	g.rows = append(g.rows, cells)
}

// Empty reports whether the grid has no rows.
func (g *Grid) Empty() bool { return len(g.rows) == 0 }

// WithoutEmpty drops columns that are empty in all rows.
func (g *Grid) WithoutEmpty() *Grid {
	out := &Grid{rows: make([][]string, len(g.rows))}
	for i, c := range g.columns {
		if !slices.ContainsFunc(g.rows, func(row []string) bool { return row[i] != "-" }) {
			continue
		}
		out.columns = append(out.columns, c)
		for j, row := range g.rows {
			out.rows[j] = append(out.rows[j], row[i])
		}
	}
	return out
}

// String returns the table, with a line for each row.
func (g *Grid) String() string { return strings.Join(Lines(g.columns, g.rows), "\n") + "\n" }

// Fit wraps the widest columns to fit width columns. 0 is no terminal.
func (g *Grid) Fit(width int) *Grid {
	widths := make([]int, len(g.columns))
	total := 2 * (len(widths) - 1)
	for i, c := range g.columns {
		widths[i] = text.StringWidth(c.Name)
		for _, row := range g.rows {
			widths[i] = max(widths[i], text.StringWidth(row[i]))
		}
		total += widths[i]
	}
	if width <= 0 || total <= width || len(widths) == 0 {
		return g
	}
	const least = 8 // narrower columns would break words
	out := &Grid{columns: slices.Clone(g.columns), rows: g.rows}
	for ; total > width; total-- {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= least {
			break
		}
		widths[widest]--
		out.columns[widest].Fold = widths[widest]
	}
	return out
}

// A table is laid out in memory; longer ones are unreadable anyway.
const (
	maxTableRows = 10_000
	maxTableText = 16 << 20 // bytes
)

// ErrFull is returned for rows beyond the limits of a table.
var ErrFull = errors.New("there is more: a table shows the first 10000 rows or 16 MiB, -o csv and json print all")

// Rows returns functions that print CSV, a stream of JSON or YAML objects, or else a table. A table holds all its rows,
// because a column is as wide as its widest cell, so it is limited.
func Rows(out io.Writer, form string) (head func([]string) error, row func([]any) error, end func() error) {
	switch form {
	case "csv":
		w := csv.NewWriter(out)
		return w.Write, func(v []any) error { return w.Write(cellTexts(v)) }, func() error {
			w.Flush()
			return w.Error()
		}
	case JSON, YAML:
		var columns []string
		return func(c []string) error { columns = c; return nil }, func(v []any) error {
			object := make(map[string]any, len(v))
			for i, c := range columns {
				object[c] = v[i]
			}
			return EncodeNext(out, form, object)
		}, func() error { return nil }
	}
	var g *Grid
	rows, size := 0, 0
	return func(c []string) error {
			g = NewGrid(printable(c)...)
			return nil
		}, func(v []any) error {
			cells := printable(cellTexts(v))
			rows, size = rows+1, size+len(strings.Join(cells, ""))
			if rows > maxTableRows || size > maxTableText {
				return ErrFull
			}
			g.Add(cells...)
			return nil
		}, func() error {
			_, err := fmt.Fprint(out, g)
			return err
		}
}

// cellTexts shows NULL as empty, and a blob by its size. Numbers keep all digits: programs read CSV.
func cellTexts(values []any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case nil:
		case float64:
			out[i] = strconv.FormatFloat(v, 'g', -1, 64)
		case []byte:
			out[i] = fmt.Sprintf("%d bytes", len(v))
		default:
			out[i] = fmt.Sprint(v)
		}
	}
	return out
}

func printable(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = words.Printable(s)
	}
	return out
}

// Markdown escapes text on one line. An underscore inside a word needs no escape.
func Markdown(s string) string {
	var b strings.Builder
	runes := []rune(strings.Join(strings.Fields(s), " "))
	word := func(i int) bool {
		return i >= 0 && i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i]))
	}
	for i, r := range runes {
		switch {
		case r == '<':
			b.WriteString("&lt;")
		case r == '&':
			b.WriteString("&amp;")
		case strings.ContainsRune("\\`*[]|#>~$", r), r == '_' && (!word(i-1) || !word(i+1)),
			i == 0 && strings.ContainsRune("-+=", r) && !word(1):
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// MarkdownTemplate parses a template for Markdown pages, with more functions. md escapes a text, list and code format
// plain texts.
func MarkdownTemplate(text string, more template.FuncMap) *template.Template {
	own := template.FuncMap{"md": func(v any) string { return Markdown(fmt.Sprint(v)) }, "list": markdownList,
		"code": markdownCode}
	return template.Must(template.New("Markdown").Funcs(own).Funcs(more).Parse(text))
}

func markdownList(items []string) string {
	return strings.Join(lists.Map(items, func(s string) string { return "- " + Markdown(s) + "\n" }), "")
}

// A MarkdownTable is a table of plain texts, with heads as in Columns.
type MarkdownTable struct {
	Heads []string
	Rows  [][]string
}

// String formats the table as Markdown.
func (t MarkdownTable) String() string {
	var names, rules []string
	for _, c := range Columns(t.Heads...) {
		rule := "---"
		if c.Right {
			rule = "---:"
		}
		names, rules = append(names, Markdown(c.Name)), append(rules, rule)
	}
	rows := [][]string{names, rules}
	for _, r := range t.Rows {
		rows = append(rows, lists.Map(r, Markdown))
	}
	return strings.Join(lists.Map(rows, func(r []string) string { return "| " + strings.Join(r, " | ") + " |\n" }), "")
}

// markdownCode has a fence longer than any in the text.
func markdownCode(lines ...string) string {
	s, fence := strings.Join(lines, "\n"), "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "\n" + s + "\n" + fence + "\n"
}
