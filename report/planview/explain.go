package planview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/report/hostview"
)

// Explain prints a plan's score and reasons: each choice with its runner-up, the evidence, and advice. Shared evidence
// is listed once. It follows the output of Table.
func Explain(w io.Writer, pl *plan.Plan, o Options) error {
	p := newPrinter(w, o)
	p.explanation(newExplanation(pl))
	return p.flush()
}

type explanation struct {
	Score     string
	Terms     hostview.Table // without rows if nothing costs
	MoreTerms string         // counts terms left out, or empty
	Groups    []reasonGroup
	Advice    []adviceText
	Evidence  []numbered
}

// A reasonGroup is for the host, a lab node, or several with equal decisions.
type reasonGroup struct {
	Title   string
	Reasons []reason
}

type reason struct {
	Choice   fact
	NextBest string // empty without another choice
	Evidence []string
}

type adviceText struct {
	numbered
	Why string
}

type numbered struct{ Label, Text string }

func (p printer) explanation(e explanation) {
	margin := strings.Repeat(" ", labelColumn+2)
	p.title(e.Score)
	if len(e.Terms.Rows) > 0 {
		p.table(e.Terms)
	}
	if e.MoreTerms != "" {
		p.Line(e.MoreTerms)
	}
	for i, g := range e.Groups {
		if i == 0 {
			p.title("Why")
		} else {
			p.Line("")
		}
		p.wrap("", 2, g.Title)
		for _, r := range g.Reasons {
			p.fact(r.Choice)
			if r.NextBest != "" {
				p.wrap(margin+"Next best: ", len(margin)+2, r.NextBest)
			}
			for _, s := range r.Evidence {
				p.wrap(margin+"- ", len(margin)+2, s)
			}
		}
	}
	if len(e.Advice) > 0 {
		p.title("What would make the host better for this lab")
	}
	for _, a := range e.Advice {
		p.numbered(a.numbered)
		if a.Why != "" {
			p.wrap(strings.Repeat(" ", len(a.Label)), len(a.Label), a.Why)
		}
	}
	if len(e.Evidence) > 0 {
		p.title("Evidence")
	}
	for _, n := range e.Evidence {
		p.numbered(n)
	}
}

func (p printer) numbered(n numbered) { p.wrap(n.Label, len(n.Label), n.Text) }

func newExplanation(pl *plan.Plan) explanation {
	e := explanation{Score: capital(scoreText(pl)) + "."}
	var more int
	if e.Terms, more = termTable(pl); more > 0 {
		e.MoreTerms = fmt.Sprintf("and %d more; -o json has all", more)
	}
	groups := decisionGroups(pl)
	shared := sharedEvidence(groups)
	for _, g := range groups {
		out := reasonGroup{Title: g.title}
		for _, d := range g.decisions {
			out.Reasons = append(out.Reasons, newReason(d, shared))
		}
		e.Groups = append(e.Groups, out)
	}
	for i, a := range pl.Advice {
		t := adviceText{numbered: numbered{fmt.Sprintf("  %d. ", i+1),
			fmt.Sprintf("%s: saves %d.", capital(a.What), a.Gain)}}
		if a.Why != "" {
			t.Why = capital(a.Why) + "."
		}
		e.Advice = append(e.Advice, t)
	}
	for i, s := range shared {
		e.Evidence = append(e.Evidence, numbered{fmt.Sprintf("  [%d] ", i+1), capital(s) + "."})
	}
	return e
}

// newReason refers to shared evidence by number.
func newReason(d *plan.Decision, shared []string) reason {
	r := reason{Choice: fact{strings.ReplaceAll(d.What, "_", " "), capital(d.Choice) + "."}}
	if d.RunnerUp != "" {
		r.NextBest = d.RunnerUp + ", " + priceText(d.RunnerUpCost) + "."
	}
	var refs []string
	for _, line := range d.Evidence {
		if i := slices.Index(shared, line); i >= 0 {
			refs = append(refs, fmt.Sprintf("[%d]", i+1))
			continue
		}
		r.Evidence = append(r.Evidence, capital(line)+".")
	}
	if len(refs) > 0 {
		r.Evidence = append(r.Evidence, "See "+words.List(refs)+".")
	}
	return r
}

type decisionGroup struct {
	title     string
	rank      int // 0 host, 1 all lab nodes, 2 several, 3 one
	decisions []*plan.Decision
}

// decisionGroups puts equal decisions of several lab nodes into one group.
func decisionGroups(pl *plan.Plan) []decisionGroup {
	nodes := map[string][]string{} // with equal decisions
	for i := range pl.Decisions {
		if d := &pl.Decisions[i]; d.Node != "" {
			nodes[withoutNode(d)] = append(nodes[withoutNode(d)], d.Node)
		}
	}
	var groups []decisionGroup
	for i := range pl.Decisions {
		d := &pl.Decisions[i]
		title, rank := "Host", 0
		if d.Node != "" {
			alike := nodes[withoutNode(d)]
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
		at := slices.IndexFunc(groups, func(g decisionGroup) bool { return g.title == title })
		if at < 0 {
			groups = append(groups, decisionGroup{title: title, rank: rank})
			at = len(groups) - 1
		}
		groups[at].decisions = append(groups[at].decisions, d)
	}
	slices.SortStableFunc(groups, func(a, b decisionGroup) int { return cmp.Compare(a.rank, b.rank) })
	return groups
}

func withoutNode(d *plan.Decision) string {
	alike := *d
	alike.Node = ""
	key, _ := json.Marshal(alike) // cannot fail: only texts and numbers
	return string(key)
}

// shortEvidence is the length in bytes up to which a repeated line is easier to read than a reference.
const shortEvidence = 80

func sharedEvidence(groups []decisionGroup) []string {
	rests := map[string]int{} // number of decisions by line
	var all []string
	for _, g := range groups {
		for _, d := range g.decisions {
			for _, line := range d.Evidence {
				if rests[line]++; rests[line] == 1 {
					all = append(all, line)
				}
			}
		}
	}
	return lists.Filter(all, func(line string) bool { return rests[line] > 1 && len(line) > shortEvidence })
}

// someNames returns "vm00", "vm00 and vm01", or "All lab nodes". Two are always named.
func someNames(names []string, all int) string {
	switch {
	case len(names) == all && all > 2:
		return "All lab nodes"
	case len(names) > 6:
		return words.Names(names, 5)
	}
	return words.List(names)
}

// priceText takes nil for no alternative on this host.
func priceText(cost *int64) string {
	switch {
	case cost == nil:
		return "which is not possible here"
	case *cost == 0:
		return "with the same score"
	case *cost < 0:
		// The search was stopped before its proof.
		return fmt.Sprintf("which scores %d lower: the search was stopped too early", -*cost)
	}
	return fmt.Sprintf("which scores %d higher", *cost)
}

// capital leaves names of programs and options alone: ib_write_lat, isolcpus=.
func capital(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if s == "" || strings.ContainsAny(word, "_0123456789=.") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
