package planview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
)

// Options control the output.
type Options struct {
	Width int // at least 60; 0 means 100

	// Reboot says whether a reboot is needed, and Apply has the commands. Both may be empty.
	Reboot, Apply string
	Explained     bool // Explain follows
}

type printer struct{ *show.Terminal }

func newPrinter(w io.Writer, o Options) printer {
	return printer{show.NewTerminal(w, o.Width, 100, false)}
}

func (p printer) flush() error { return show.Wrapf(p.Flush(), "print plan") }

// wrap begins with first, then indents. Texts may be from a dump or a file, so control characters are removed.
func (p printer) wrap(first string, indent int, s string) {
	p.Line(show.Hang(first+strings.Join(strings.Fields(words.Printable(s)), " "), p.Width, indent))
}

func (p printer) list(all []string) {
	for _, s := range all {
		p.wrap("  ", 4, s)
	}
}

// A fact has an empty Label if it is that of the fact before.
type fact struct{ Label, Text string }

const labelColumn = 14

func (p printer) fact(f fact) {
	p.wrap(fmt.Sprintf("  %-*s", labelColumn, words.Printable(f.Label)), labelColumn+2, f.Text)
}

func (p printer) title(s string) {
	p.Line("")
	p.wrap("", 2, s)
}

// table wraps the last column, of at least 12 columns, to the width.
func (p printer) table(t hostview.Table) {
	p.title(t.Title)
	columns := slices.Clone(t.Columns)
	rows := lists.Map(t.Rows, func(r []string) []string { return lists.Map(r, words.Printable) })
	used := 0
	for i, c := range columns {
		widest := text.StringWidth(c.Name)
		for _, r := range rows {
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

func setOrNone(s topology.CPUSet) string { return cmp.Or(s.String(), "none") }

// cardText returns text such as "GPU 0000:06:00.0 (NUMA node 0, guest node 0) with 0000:06:00.1".
func cardText(c *plan.NodeDevice, guestNUMA bool) string {
	s := shortCard(c)
	if c.Kind == plan.KindVF {
		// A VF that does not exist yet is named after its PF.
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

// scoreText is "score 1240, proven the lowest", or the distance and the reason for stopping.
func scoreText(p *plan.Plan) string {
	if p.Optimal {
		return fmt.Sprintf("score %d, proven the lowest", p.Cost)
	}
	s := fmt.Sprintf("score %d, not proven the lowest", p.Cost)
	if p.Bound > 0 {
		s = fmt.Sprintf("score %d, within %d %% of the lowest: no placement scores below %d", p.Cost, gapOf(p), p.Bound)
	}
	if p.Stopped != "" {
		s += ", stopped by " + p.Stopped
	}
	return s
}

// gapOf is in percent, rounded up: "within 0 %" would claim a proof.
func gapOf(p *plan.Plan) int64 { return (100*(p.Cost-p.Bound) + p.Bound - 1) / p.Bound }

func bestText(p *plan.Plan) string {
	s := "the best found, without a proof"
	switch {
	case p.Optimal:
		return "proven best"
	case p.Bound > 0:
		s = fmt.Sprintf("within %d %% of the best", gapOf(p))
	}
	if p.Stopped != "" {
		s += "; the search was stopped by " + p.Stopped
	}
	return s
}

// subject shortens the term "unequal", which may have hundreds of lab nodes.
func subject(t *plan.Term) string {
	switch {
	case t.Node != "":
		return t.Node
	case len(t.Among) > 3:
		return words.Names(t.Among, 1)
	}
	return words.List(t.Among)
}
