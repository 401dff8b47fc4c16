package planview

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/report/show"
)

// Options say how to print.
type Options struct {
	Width int // columns: 0 means 100, at least 60
	Terms int // most terms of the cost that are listed: 0 means 8
}

// Bounds of Options.
const (
	defaultWidth = 100
	leastWidth   = 60
	defaultTerms = 8
)

// A page is what is printed. Errors of writing stay in the bufio.Writer until flush, so that printing needs
// no error on each line.
type page struct {
	*bufio.Writer
	Options
}

func newPage(w io.Writer, o Options) *page {
	if o.Width <= 0 {
		o.Width = defaultWidth
	}
	o.Width = max(o.Width, leastWidth)
	if o.Terms <= 0 {
		o.Terms = defaultTerms
	}
	return &page{bufio.NewWriter(w), o}
}

func (p *page) flush() error {
	if err := p.Flush(); err != nil {
		return fmt.Errorf("print plan: %w", err)
	}
	return nil
}

// line prints a line as it is.
func (p *page) line(s string) { fmt.Fprintln(p, s) }

// wrap prints text folded to the width: the first line behind first, the others behind as many spaces
// as indent says. Names in it may come from a dump or a file, so nothing in it reaches the terminal
// that could steer it.
func (p *page) wrap(first string, indent int, s string) {
	p.fold(first, indent, strings.Fields(show.Printable(s)))
}

// fold prints words with as many on a line as there is room for. A word that is longer than a line,
// such as a kernel argument with a long list of CPUs, stands alone and is not cut: it may be
// copied.
func (p *page) fold(first string, indent int, words []string) {
	line, width := first, text.StringWidth(first)
	for i, w := range words {
		wide := text.StringWidth(w)
		switch {
		case i == 0:
		case width+1+wide > p.Width:
			p.line(strings.TrimRight(line, " "))
			line, width = strings.Repeat(" ", indent), indent
		default:
			line += " "
			width++
		}
		line += w
		width += wide
	}
	p.line(strings.TrimRight(line, " "))
}

// labelColumn is the width of the labels of a block.
const labelColumn = 14

// labelled prints "label  text" with the text in a column of its own.
func (p *page) labelled(label, s string) {
	p.wrap(fmt.Sprintf("  %-*s", labelColumn, show.Printable(label)), labelColumn+2, s)
}

// title prints a heading below an empty line.
func (p *page) title(s string) {
	p.line("")
	p.wrap("", 2, s)
}

// table prints rows in the house style: no borders, two spaces between columns. The last column is
// folded to the width, but never below 12 columns: a narrower one could not be read.
func (p *page) table(columns []show.Column, rows [][]string) {
	used := 0
	for i, c := range columns {
		widest := text.StringWidth(c.Name)
		for _, r := range rows {
			r[i] = show.Printable(r[i])
			widest = max(widest, text.StringWidth(r[i]))
		}
		if room := max(p.Width-used, 12); i == len(columns)-1 && widest > room {
			columns[i].Fold = room
		}
		used += widest + 2
	}
	for _, line := range show.Lines(columns, rows) {
		p.line(line)
	}
}
