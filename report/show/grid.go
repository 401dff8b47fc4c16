package show

import (
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
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
