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

// Explain prints why a plan is so: each choice, the next best one and what that would cost, the
// evidence, and what would make the host better. It goes below what Table prints. Evidence that
// several choices rest on is listed once, with a number. A plan without decisions has nothing to
// explain.
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

// shortEvidence is the length in bytes up to which a line is said again rather than referred to: a
// reference to a short line makes the reader look for what he could have read.
const shortEvidence = 80

// An explanation orders decisions for reading.
type explanation struct {
	groups []decisionGroup
	shared []string // evidence of several decisions, numbered from 1
}

// A decisionGroup is the decisions of the host, of a lab node, or of several that decide alike.
type decisionGroup struct {
	title     string
	rank      int // 0 the host, 1 all lab nodes, 2 several, 3 one
	decisions []*plan.Decision
}

// newExplanation groups the decisions of a plan, and numbers the evidence that several of them rest on.
func newExplanation(pl *plan.Plan) *explanation {
	e := &explanation{}
	// Alike decisions of several lab nodes are said once.
	keyOf := func(d *plan.Decision) string {
		alike := *d
		alike.Node = ""
		key, _ := json.Marshal(alike) // text and numbers: it cannot fail
		return string(key)
	}
	nodes := map[string][]string{}
	for i := range pl.Decisions {
		if d := &pl.Decisions[i]; d.Node != "" {
			nodes[keyOf(d)] = append(nodes[keyOf(d)], d.Node)
		}
	}
	rests := map[string]int{} // how many decisions that are printed rest on a line of evidence
	for i := range pl.Decisions {
		d := &pl.Decisions[i]
		title, rank := "Host", 0
		if d.Node != "" {
			alike := nodes[keyOf(d)]
			// Printed with the first of them, under the names of all.
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
	// What concerns several lab nodes at once comes before what concerns one.
	slices.SortStableFunc(e.groups, func(a, b decisionGroup) int { return cmp.Compare(a.rank, b.rank) })
	// Numbered in the order in which they are first met.
	// A long line of evidence that several decisions rest on is printed once, and referred to by its number.
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

// someNames is "vm00", "vm00 and vm01", or "all lab nodes". Two are always named: "all" is no shorter.
func someNames(names []string, all int) string {
	switch {
	case len(names) == all && all > 2:
		return "All lab nodes"
	case len(names) > 6:
		return words.Names(names, 5)
	}
	return words.List(names)
}

// decision prints one choice.
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

// priceText says what a runner-up costs. Without a cost it has been looked for, and there is none.
func priceText(cost *int64) string {
	switch {
	case cost == nil:
		return "which is not possible here"
	case *cost == 0:
		return "at the same cost"
	case *cost < 0:
		// Only where the search was stopped before its proof.
		return fmt.Sprintf("which costs %d less: the search was stopped too early", -*cost)
	}
	return fmt.Sprintf("which costs %d more", *cost)
}

// capital makes the first letter of a sentence a large one, but for words that are names of programs or
// of options, which have digits, underscores, dots or an equals sign in them: ib_write_lat, isolcpus=.
func capital(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if s == "" || strings.ContainsAny(word, "_0123456789=.") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// advice prints what would make the host better.
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
