package planview

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// Options say how to print.
type Options struct {
	Width int // columns: 0 means 100, at least 60
}

// A page is what is printed.
type page struct{ *show.Terminal }

func newPage(w io.Writer, o Options) page { return page{show.NewTerminal(w, o.Width, 100, false)} }

func (p page) flush() error {
	return show.Wrapf(p.Flush(), "print plan")
}

// wrap prints text folded to the width: the first line behind first, the others behind as many spaces
// as indent says. Names in it may come from a dump or a file, so nothing in it reaches the terminal
// that could steer it.
func (p page) wrap(first string, indent int, s string) {
	p.Line(show.Hang(first+strings.Join(strings.Fields(words.Printable(s)), " "), p.Width, indent))
}

// labelColumn is the width of the labels of a block.
const labelColumn = 14

// labelled prints "label  text" with the text in a column of its own.
func (p page) labelled(label, s string) {
	p.wrap(fmt.Sprintf("  %-*s", labelColumn, words.Printable(label)), labelColumn+2, s)
}

// title prints a heading below an empty line.
func (p page) title(s string) {
	p.Line("")
	p.wrap("", 2, s)
}

// table prints rows in the house style: no borders, two spaces between columns. The last column is
// folded to the width, but never below 12 columns: a narrower one could not be read.
func (p page) table(columns []show.Column, rows [][]string) {
	used := 0
	for i, c := range columns {
		widest := text.StringWidth(c.Name)
		for _, r := range rows {
			r[i] = words.Printable(r[i])
			widest = max(widest, text.StringWidth(r[i]))
		}
		if room := max(p.Width-used, 12); i == len(columns)-1 && widest > room {
			columns[i].Fold = room
		}
		used += widest + 2
	}
	for _, line := range show.Lines(columns, rows) {
		p.Line(line)
	}
}
