package planview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

// Explain prints the reasons for a plan: each choice with its runner-up and extra cost, the evidence, and advice for
// the host. Evidence shared by several choices is listed once, with a number. It follows the output of Table.
func Explain(w io.Writer, pl *plan.Plan, o Options) error {
	p := newPage(w, o)
	e := newExplanation(pl)
	for i, g := range e.groups {
		if i == 0 {
			p.title("Why")
		} else {
			p.Line("")
		}
		p.wrap("", 2, g.title)
		for _, d := range g.decisions {
			p.decision(d, e)
		}
	}
	p.advice(pl)
	if len(e.shared) > 0 {
		p.title("Evidence")
		for i, s := range e.shared {
			label := fmt.Sprintf("  [%d] ", i+1)
			p.wrap(label, len(label), capital(s)+".")
		}
	}
	return p.flush()
}

// shortEvidence is the length in bytes up to which shared evidence is repeated. A short line is easier to read than a
// reference to it.
const shortEvidence = 80

type explanation struct {
	groups []decisionGroup
	shared []string // evidence of several decisions, numbered from 1
}

// A decisionGroup holds the decisions for the host, one lab node, or several lab nodes with equal decisions.
type decisionGroup struct {
	title     string
	rank      int // 0 the host, 1 all lab nodes, 2 several, 3 one
	decisions []*plan.Decision
}

func newExplanation(pl *plan.Plan) *explanation {
	e := &explanation{}
	// Equal decisions of several lab nodes are printed once.
	keyOf := func(d *plan.Decision) string {
		alike := *d
		alike.Node = ""
		key, _ := json.Marshal(alike) // cannot fail: only texts and numbers
		return string(key)
	}
	nodes := map[string][]string{}
	for i := range pl.Decisions {
		if d := &pl.Decisions[i]; d.Node != "" {
			nodes[keyOf(d)] = append(nodes[keyOf(d)], d.Node)
		}
	}
	rests := map[string]int{} // number of printed decisions by line of evidence
	for i := range pl.Decisions {
		d := &pl.Decisions[i]
		title, rank := "Host", 0
		if d.Node != "" {
			alike := nodes[keyOf(d)]
			// Print it with the first lab node, under the names of all.
			if alike[0] != d.Node {
				continue
			}
			title, rank = someNames(alike, len(pl.Nodes)), 2
			switch len(alike) {
			case 1:
				rank = 3
			case len(pl.Nodes):
				rank = 1
			}
		}
		at := slices.IndexFunc(e.groups, func(g decisionGroup) bool { return g.title == title })
		if at < 0 {
			e.groups = append(e.groups, decisionGroup{title: title, rank: rank})
			at = len(e.groups) - 1
		}
		e.groups[at].decisions = append(e.groups[at].decisions, d)
		for _, line := range d.Evidence {
			rests[line]++
		}
	}
	// Groups of several lab nodes come before single ones.
	slices.SortStableFunc(e.groups, func(a, b decisionGroup) int { return cmp.Compare(a.rank, b.rank) })
	// Print a long line of evidence shared by several decisions only once. Number these lines by first appearance.
	for _, g := range e.groups {
		for _, d := range g.decisions {
			for _, line := range d.Evidence {
				if rests[line] > 1 && len(line) > shortEvidence && !slices.Contains(e.shared, line) {
					e.shared = append(e.shared, line)
				}
			}
		}
	}
	return e
}

// someNames returns text such as "vm00", "vm00 and vm01", or "All lab nodes". Two nodes are always named, because
// "All lab nodes" is no shorter.
func someNames(names []string, all int) string {
	switch {
	case len(names) == all && all > 2:
		return "All lab nodes"
	case len(names) > 6:
		return words.Names(names, 5)
	}
	return words.List(names)
}

func (p page) decision(d *plan.Decision, e *explanation) {
	margin := strings.Repeat(" ", labelColumn+2)
	p.labelled(strings.ReplaceAll(d.What, "_", " "), capital(d.Choice)+".")
	if d.RunnerUp != "" {
		p.wrap(margin+"Next best: ", len(margin)+2, d.RunnerUp+", "+priceText(d.RunnerUpCost)+".")
	}
	var refs []string
	for _, line := range d.Evidence {
		if i := slices.Index(e.shared, line); i >= 0 {
			refs = append(refs, fmt.Sprintf("[%d]", i+1))
			continue
		}
		p.wrap(margin+"- ", len(margin)+2, capital(line)+".")
	}
	if len(refs) > 0 {
		p.wrap(margin+"- ", len(margin)+2, "See "+words.List(refs)+".")
	}
}

// priceText describes the cost of a runner-up. A nil cost means that there is no such alternative on this host.
func priceText(cost *int64) string {
	switch {
	case cost == nil:
		return "which is not possible here"
	case *cost == 0:
		return "at the same cost"
	case *cost < 0:
		// This happens only if the search was stopped before its proof.
		return fmt.Sprintf("which costs %d less: the search was stopped too early", -*cost)
	}
	return fmt.Sprintf("which costs %d more", *cost)
}

// capital capitalizes the first letter of a sentence, unless its first word is the name of a program or an option,
// with digits, underscores, dots or an equals sign: ib_write_lat, isolcpus=.
func capital(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if s == "" || strings.ContainsAny(word, "_0123456789=.") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func (p page) advice(pl *plan.Plan) {
	if len(pl.Advice) == 0 {
		return
	}
	p.title("What would make the host better for this lab")
	for i, a := range pl.Advice {
		label := fmt.Sprintf("  %d. ", i+1)
		p.wrap(label, len(label), fmt.Sprintf("%s: saves %d.", capital(a.What), a.Gain))
		if a.Why != "" {
			p.wrap(strings.Repeat(" ", len(label)), len(label), capital(a.Why)+".")
		}
	}
}
