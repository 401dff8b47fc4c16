package planview

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/report/show"
)

// Options say how to print.
type Options struct {
	Width int // columns: 0 means 100, at least 60
}

// A page is what is printed.
type page struct{ *show.Terminal }

func newPage(w io.Writer, o Options) page { return page{show.NewTerminal(w, o.Width, 100, false)} }

func (p page) flush() error { return show.Wrapf(p.Flush(), "print plan") }

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

// setOrNone is the set as the kernel writes it, "none" where it is empty.
func setOrNone(s topology.CPUSet) string { return cmp.Or(s.String(), "none") }

// cardText is "GPU 0000:06:00.0 (NUMA node 0, guest node 0) with 0000:06:00.1". The guest's node is
// worth a word only if there are several.
func cardText(c *plan.NodeDevice, guestNUMA bool) string {
	s := plan.DeviceName(c.Kind, c.ID)
	if c.Kind == plan.KindVF {
		s = "VF of " + c.ID
		if c.VF != nil {
			s = fmt.Sprintf("VF %d of %s", *c.VF, c.ID)
		}
		// One that does not exist yet is named after its PF.
		if len(c.Functions) > 0 {
			if _, err := topology.ParsePCIAddr(c.Functions[0]); err == nil {
				s += ": " + c.Functions[0]
			}
		}
	}
	var where []string
	if c.NUMANode != nil {
		where = append(where, fmt.Sprintf("NUMA node %d", *c.NUMANode))
	}
	if c.Cell != nil && guestNUMA {
		where = append(where, fmt.Sprintf("guest node %d", *c.Cell))
	}
	if len(where) > 0 {
		s += " (" + strings.Join(where, ", ") + ")"
	}
	if c.Kind != plan.KindVF && len(c.Functions) > 1 {
		s += " with " + words.List(c.Functions[1:])
	}
	return s
}

// costText is "cost 1240 basis points, proved optimal", or how far from the bound the plan may be and why.
func costText(p *plan.Plan) string {
	if p.Optimal {
		return fmt.Sprintf("cost %d basis points, proved optimal", p.Cost)
	}
	s := fmt.Sprintf("cost %d basis points, not proved optimal", p.Cost)
	if p.Bound > 0 {
		// Rounded up: "within 0 %" would claim a proof.
		gap := (100*(p.Cost-p.Bound) + p.Bound - 1) / p.Bound
		s = fmt.Sprintf("cost %d basis points, within %d %% of the least: no plan costs less than %d", p.Cost, gap,
			p.Bound)
	}
	if p.Stopped != "" {
		s += ", stopped by " + p.Stopped
	}
	return s
}

// subject names the lab nodes of a term. The term "unequal" may have hundreds.
func subject(t *plan.Term) string {
	switch {
	case t.Node != "":
		return t.Node
	case len(t.Among) > 3:
		return words.Names(t.Among, 1)
	}
	return words.List(t.Among)
}
