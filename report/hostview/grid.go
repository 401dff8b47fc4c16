package hostview

import (
	"slices"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/topology"
)

// A grid is a table before anybody has decided how wide it may be. The terminal and the page print the same grids.
type grid struct {
	Title string
	Heads []head
	Rows  [][]cell
	More  int    // rows that were left out
	Note  string // below the table; empty for none
}

// A head is a column.
type head struct {
	Name  string
	Right bool // numbers stand at the right
	Least int  // letters to which its cells may be shortened when there is no room; 0: they may not
	Keep  bool // that nothing is known of it is worth a column
	Drop  int  // when there still is no room, the column with the highest Drop goes; 0: it stays
}

// A cell is a text, or a set of CPUs, which cpusText shortens.
type cell struct {
	text string
	cpus *topology.CPUSet
}

// fit is the cell in at most so many letters.
func (c cell) fit(letters int) string {
	if c.cpus != nil && !c.cpus.IsEmpty() {
		return cpusText(*c.cpus, letters)
	}
	s := c.String()
	if text.StringWidth(s) <= letters {
		return s
	}
	return text.Trim(show.Cut(s, letters), letters) // letters that take two columns need the second
}

// String is the whole cell.
func (c cell) String() string {
	if c.cpus != nil {
		return setText(c.cpus, 1<<20)
	}
	return c.text
}

// cells makes a row of texts.
func cells(texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, t := range texts {
		row[i].text = t
	}
	return row
}

// tell drops the columns in which no cell says anything, but for the first three, which say what a row is.
func (g *grid) tell() {
	// From the right, so that places of columns that are still to be looked at stay.
	for i := len(g.Heads) - 1; i >= 3; i-- {
		says := slices.ContainsFunc(g.Rows, func(r []cell) bool {
			s := r[i].String()
			return s != unknown && s != none && s != ""
		})
		if says || g.Heads[i].Keep {
			continue
		}
		g.Heads = slices.Delete(slices.Clone(g.Heads), i, i+1)
		for j, r := range g.Rows {
			g.Rows[j] = slices.Delete(r, i, i+1)
		}
	}
}

// fitted is a grid that is at most width letters wide, if that can be had, with gap letters between its columns: the
// names of its columns, which of them are to the right, and its rows. It stays wider where all columns that are left
// have to be whole.
func (g *grid) fitted(width, gap int) (heads []head, rows [][]string) {
	keep := make([]int, len(g.Heads)) // places of the columns that stay
	widths := make([]int, len(g.Heads))
	for i, h := range g.Heads {
		keep[i] = i
		widths[i] = text.StringWidth(h.Name)
		for _, r := range g.Rows {
			widths[i] = max(widths[i], text.StringWidth(r[i].String()))
		}
	}
	total := func() int {
		sum := gap * (len(keep) - 1)
		sum += lists.Sum(keep, func(i int) int { return widths[i] })
		return sum
	}
	for total() > width {
		// The widest column that can give gives; columns go only when none can.
		// One letter at a time, always from the widest: long models and lists shrink together, instead of one to
		// nothing.
		widest := -1
		for _, i := range keep {
			if least := g.Heads[i].Least; least > 0 && widths[i] > max(least, len(g.Heads[i].Name)) &&
				(widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest >= 0 {
			widths[widest]--
			continue
		}
		drop := -1
		for at, i := range keep {
			if d := g.Heads[i].Drop; d > 0 && (drop < 0 || d > g.Heads[keep[drop]].Drop) {
				drop = at
			}
		}
		if drop < 0 {
			break
		}
		keep = append(keep[:drop:drop], keep[drop+1:]...)
	}
	heads = append(heads, lists.Map(keep, func(i int) head { return g.Heads[i] })...)
	for _, r := range g.Rows {
		row := make([]string, 0, len(keep))
		row = append(row, lists.Map(keep, func(i int) string { return r[i].fit(widths[i]) })...)
		rows = append(rows, row)
	}
	return heads, rows
}

// limit leaves out the rows after the first n, and counts them.
func (g *grid) limit(n int) {
	if len(g.Rows) > n {
		g.More = len(g.Rows) - n
		g.Rows = g.Rows[:n]
	}
}
