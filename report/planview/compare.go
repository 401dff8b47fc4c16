package planview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/rivals"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
)

const maxRivalTerms = 3

// Compare prints a plan beside placements of other tools: costs under our model, broken rules, and the terms that
// differ most. It follows the output of Table.
func Compare(w io.Writer, pl *plan.Plan, outcomes []rivals.Outcome, o Options) error {
	p := newPrinter(w, o)
	p.rivals(newRivalsText(pl, outcomes))
	return p.flush()
}

type rivalsText struct {
	Table  hostview.Table
	Rivals []rivalText
}

type rivalText struct {
	Name  string
	Lines []string
}

func (p printer) rivals(t rivalsText) {
	p.table(t.Table)
	for _, r := range t.Rivals {
		p.title(r.Name)
		p.list(r.Lines)
	}
}

func newRivalsText(pl *plan.Plan, outcomes []rivals.Outcome) rivalsText {
	// Only the last column wraps, and names may be long.
	t := rivalsText{Table: hostview.Table{Title: "The same lab as placed by the rules of others",
		Columns: show.Columns("score>", "against ours>", "breaks", "placed by"),
		Rows:    [][]string{{strconv.FormatInt(pl.Cost, 10), "", "none", "rackless"}}}}
	for i := range outcomes {
		o := &outcomes[i]
		known := lists.Find(rivals.All(), func(r rivals.Rival) bool { return r.ID == o.Rival })
		name := cmp.Or(known.Name, o.Rival)
		t.Table.Rows = append(t.Table.Rows, rivalRow(pl, o, name))
		t.Rivals = append(t.Rivals, rivalText{Name: name, Lines: rivalLines(pl, o)})
	}
	return t
}

func rivalRow(pl *plan.Plan, o *rivals.Outcome, name string) []string {
	if o.Placement == nil {
		return []string{"-", "", "refuses", name}
	}
	against, broken := "same", "none"
	if o.Cost != pl.Cost {
		against = fmt.Sprintf("%+d", o.Cost-pl.Cost)
	}
	if n := len(o.Broken); n > 0 {
		broken = words.Count(n, "rule")
	}
	return []string{strconv.FormatInt(o.Cost, 10), against, broken, name}
}

func rivalLines(pl *plan.Plan, o *rivals.Outcome) []string {
	var lines []string
	for _, b := range o.Broken {
		lines = append(lines, "breaks: "+b)
	}
	if len(o.Broken) > 0 {
		lines = append(lines, "Its score is of the nearest placement by whole cores, rounded in its favour.")
	}
	if o.Placement == nil {
		return append(lines, "refuses: "+o.Refused)
	}
	if s := termsAgainst(pl.Terms, o.Terms); s != "" {
		return append(lines, "score: "+s)
	}
	return append(lines, "Each term is as ours.")
}

// termsAgainst sums over lab nodes, because rivals often swap the places of equal nodes.
func termsAgainst(ours, theirs []plan.Term) string {
	more := map[string]int64{}
	var names []string
	for k, t := range slices.Concat(ours, theirs) {
		if _, known := more[t.Term]; !known {
			names = append(names, t.Term)
		}
		if k < len(ours) {
			more[t.Term] -= t.Cost
		} else {
			more[t.Term] += t.Cost
		}
	}
	size := func(name string) int64 { return max(more[name], -more[name]) }
	names = slices.DeleteFunc(names, func(name string) bool { return more[name] == 0 })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(size(b), size(a)) })
	words := lists.Map(names[:min(len(names), maxRivalTerms)],
		func(name string) string { return fmt.Sprintf("%s %+d", meaningOr(name), more[name]) })
	return strings.Join(words, "; ")
}

// Against prints how a plan differs from an earlier one, in words from package plan/advise. Table prints the plan
// below.
func Against(w io.Writer, before, after *plan.Plan, differences []string, o Options) error {
	title := "Nothing is different."
	if len(differences) > 0 {
		title = words.Count(len(differences), "difference") + ":"
	}
	p := newPrinter(w, o)
	p.wrap("before:  ", 9, scoreText(before)+".")
	p.wrap("now:     ", 9, scoreText(after)+".")
	p.title(title)
	p.list(differences)
	p.Line("")
	return p.flush()
}
