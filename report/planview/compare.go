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
	"github.com/rackless/rackless/report/show"
)

const maxRivalTerms = 3

// Compare prints a plan beside the placements of other tools for the same request: their cost under our model, the
// rules that they break, and the terms with the largest difference. It follows the output of Table.
func Compare(w io.Writer, pl *plan.Plan, outcomes []rivals.Outcome, o Options) error {
	p := newPage(w, o)
	p.title("The same lab as placed by the rules of others")
	name := func(o *rivals.Outcome) string {
		r := lists.Find(rivals.All(), func(r rivals.Rival) bool { return r.ID == o.Rival })
		return cmp.Or(r.Name, o.Rival)
	}
	// Names come last, because they may be long and only the last column wraps.
	rows := [][]string{{strconv.FormatInt(pl.Cost, 10), "", "none", "rackless"}}
	for i := range outcomes {
		out := &outcomes[i]
		cost, against, broken := "-", "", "refuses"
		if out.Placement != nil {
			cost, against, broken = strconv.FormatInt(out.Cost, 10), "same", "none"
			if out.Cost != pl.Cost {
				against = fmt.Sprintf("%+d", out.Cost-pl.Cost)
			}
			if n := len(out.Broken); n > 0 {
				broken = words.Count(n, "rule")
			}
		}
		rows = append(rows, []string{cost, against, broken, name(out)})
	}
	p.table(show.Columns("cost>", "against ours>", "breaks", "placed by"), rows)
	for i := range outcomes {
		p.rival(pl, &outcomes[i], name(&outcomes[i]))
	}
	return p.flush()
}

func (p page) rival(pl *plan.Plan, o *rivals.Outcome, name string) {
	p.title(name)
	for _, b := range o.Broken {
		p.wrap("  breaks: ", 4, b)
	}
	if len(o.Broken) > 0 {
		p.wrap("  ", 4, "Its cost is of the nearest placement by whole cores, rounded in its favour.")
	}
	if o.Placement == nil {
		p.wrap("  refuses: ", 4, o.Refused)
	} else if s := termsAgainst(pl.Terms, o.Terms); s != "" {
		p.wrap("  costs: ", 4, s)
	} else {
		p.wrap("  ", 4, "Each term is as ours.")
	}
}

// termsAgainst names the terms that differ most from ours, summed over lab nodes. Single lab nodes would say little,
// because rivals often swap the places of equal nodes.
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

// Against prints how a plan differs from an earlier one: both costs, and the differences in words from package
// plan/advise. Table prints the plan below it.
func Against(w io.Writer, before, after *plan.Plan, differences []string, o Options) error {
	p := newPage(w, o)
	p.wrap("before:  ", 9, costText(before)+".")
	p.wrap("now:     ", 9, costText(after)+".")
	if len(differences) == 0 {
		p.title("Nothing is different.")
	} else {
		p.title(words.Count(len(differences), "difference") + ":")
	}
	for _, d := range differences {
		p.wrap("  ", 4, d)
	}
	p.Line("")
	return p.flush()
}
