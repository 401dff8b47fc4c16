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
	Right bool // numbers stand at the right
	Fold  int  // letters to which cells are folded; 0: they are not
}

// Columns are columns with these names; one that ends with ">" is a column of numbers.
func Columns(names ...string) []Column {
	all := make([]Column, len(names))
	for i, n := range names {
		all[i].Name, all[i].Right = strings.CutSuffix(n, ">")
	}
	return all
}

// Lines are a table in the house style: no borders, two spaces between columns, none at the end of a
// line. The first line has the names.
func Lines(columns []Column, rows [][]string) []string {
	style := plain()
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	return render(style, columns, rows, text.WrapSoft)
}

// Ruled are the lines of a table of figures: a rule below its heads, which may have several lines, all columns but the
// first to the right, and no cell wider than its eighteen columns, so that a terminal of 80 has room for four or more.
func Ruled(heads []string, rows [][]string) []string {
	columns := make([]Column, len(heads))
	for i, h := range heads {
		columns[i] = Column{Name: h, Right: i > 0, Fold: 18}
	}
	style := plain()
	style.Options.SeparateHeader = true
	return render(style, columns, rows, text.WrapHard)
}

// plain is a style without lines that leaves heads as they are.
func plain() table.Style {
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	return style
}

// render lays a table out. Cells may have several lines; those of fold are made where a column is narrower than a cell.
func render(style table.Style, columns []Column, rows [][]string, fold table.WidthEnforcer) []string {
	w := table.NewWriter()
	w.SetStyle(style)
	// go-pretty measures letters by the columns they take, so that wide ones and combining ones stay aligned.
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

// A Grid is a table of texts: a head in capitals, and columns that stand apart by spaces, so that
// it reads well on a terminal and in a file. There are no lines and no colours in it.
type Grid struct {
	columns []Column
	rows    [][]string
}

// NewGrid takes the column heads; one that ends with ">" is a column of numbers, aligned to the right.
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

// Empty reports whether there is no row.
func (g *Grid) Empty() bool { return len(g.rows) == 0 }

// WithoutEmpty leaves out the columns in which no row has anything.
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

// String is the table, a line for each row.
func (g *Grid) String() string { return strings.Join(Lines(g.columns, g.rows), "\n") + "\n" }

// Fit is the table for a terminal of width columns: cells of its widest columns are folded until it has room. 0 is no
// terminal.
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
	const least = 8 // narrower, words would be broken
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

// A table is laid out in memory, and nobody reads one that is longer.
const (
	maxTableRows = 10_000
	maxTableText = 16 << 20 // bytes
)

// ErrFull is the error of a row that a table does not take any more.
var ErrFull = errors.New("there is more: a table shows the first 10000 rows or 16 MiB, --format csv and json print all")

// Rows returns what prints rows of any columns: as CSV, as JSON or YAML of one object after another, and else as a
// table. CSV and objects are written as they come, so that a million rows take no memory. A table needs all of its rows
// before the first can be printed, since a column is as wide as its widest cell: it has a limit.
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
	// The head comes even where there are no rows, so the grid is made there.
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

// cellTexts writes values for people and spreadsheets. NULL is an empty cell. Numbers have all of their digits, as CSV
// is read by programs; blobs are not for people.
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

// printable makes texts from outside safe to show in a table.
func printable(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = words.Printable(s)
	}
	return out
}

// Markdown makes text mean itself in Markdown, on one line. An underscore inside a word marks
// nothing and stays readable.
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

// MarkdownTemplate makes a template of a page of a repository, with further functions. In it, md makes a text mean
// itself, list and code write lists and blocks of code of plain texts.
func MarkdownTemplate(text string, more template.FuncMap) *template.Template {
	own := template.FuncMap{"md": func(v any) string { return Markdown(fmt.Sprint(v)) }, "list": markdownList,
		"code": markdownCode}
	return template.Must(template.New("Markdown").Funcs(own).Funcs(more).Parse(text))
}

func markdownList(items []string) string {
	return strings.Join(lists.Map(items, func(s string) string { return "- " + Markdown(s) + "\n" }), "")
}

// A MarkdownTable is a table of plain texts. The heads are as Columns takes them.
type MarkdownTable struct {
	Heads []string
	Rows  [][]string
}

// String writes the table as Markdown.
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

// markdownCode is a block of code; its fence is longer than any in the text.
func markdownCode(lines ...string) string {
	s, fence := strings.Join(lines, "\n"), "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "\n" + s + "\n" + fence + "\n"
}
