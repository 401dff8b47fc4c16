package planview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/rivals"
	"github.com/rackless/rackless/report/show"
)

// maxRivalTerms is how many terms are named of each rival.
const maxRivalTerms = 3

// Compare prints a plan beside what others would have done with the same request: what it costs
// under our model, what it breaks, and where most of the difference is. It goes below what Table
// prints.
func Compare(w io.Writer, pl *plan.Plan, outcomes []rivals.Outcome, o Options) error {
	p := newPage(w, o)
	p.title("The same lab as placed by the rules of others")
	names := map[string]string{}
	for _, r := range rivals.All() {
		names[r.ID] = r.Name
	}
	name := func(o *rivals.Outcome) string { return cmp.Or(names[o.Rival], o.Rival) }
	rows := [][]string{{strconv.FormatInt(pl.Cost, 10), "", "none", "rackless"}}
	for i := range outcomes {
		out := &outcomes[i]
		if out.Placement == nil {
			rows = append(rows, []string{"-", "", "refuses", name(out)})
			continue
		}
		broken := "none"
		if n := len(out.Broken); n > 0 {
			broken = words.Count(n, "rule")
		}
		against := "same"
		if out.Cost != pl.Cost {
			against = fmt.Sprintf("%+d", out.Cost-pl.Cost)
		}
		rows = append(rows, []string{strconv.FormatInt(out.Cost, 10), against, broken, name(out)})
	}
	p.table(show.Columns("cost>", "against ours>", "breaks", "placed by"), rows)
	for i := range outcomes {
		p.rival(pl, &outcomes[i], name(&outcomes[i]))
	}
	return p.flush()
}

// rival prints what is to be said of one rival.
func (p *page) rival(pl *plan.Plan, o *rivals.Outcome, name string) {
	p.title(name)
	if o.Placement == nil {
		p.wrap("  refuses: ", 4, o.Refused)
	}
	for _, b := range o.Broken {
		p.wrap("  breaks: ", 4, b)
	}
	if o.Placement != nil {
		if len(o.Broken) > 0 {
			p.wrap("  ", 4, "Its cost is of the nearest placement by whole cores, rounded in its favour.")
		}
		if s := termsAgainst(pl.Terms, o.Terms); s != "" {
			p.wrap("  costs: ", 4, s)
		} else {
			p.wrap("  ", 4, "Each term is as ours.")
		}
	}
	for _, n := range o.Notes {
		p.wrap("  note: ", 4, n)
	}
}

// termsAgainst names the terms, summed over lab nodes, that differ most from ours.
func termsAgainst(ours, theirs []plan.Term) string {
	type sum struct {
		term      string
		our, them int64
	}
	var all []sum
	at := func(term string) *sum {
		i := slices.IndexFunc(all, func(s sum) bool { return s.term == term })
		if i < 0 {
			all = append(all, sum{term: term})
			i = len(all) - 1
		}
		return &all[i]
	}
	for _, t := range ours {
		at(t.Term).our += t.Cost
	}
	for _, t := range theirs {
		at(t.Term).them += t.Cost
	}
	size := func(s sum) int64 { return max(s.them-s.our, s.our-s.them) }
	all = slices.DeleteFunc(all, func(s sum) bool { return s.them == s.our })
	slices.SortStableFunc(all, func(a, b sum) int { return cmp.Compare(size(b), size(a)) })
	var words []string
	for i, s := range all {
		if i == maxRivalTerms {
			break
		}
		words = append(words, fmt.Sprintf("%s %+d", meaningOr(s.term), s.them-s.our))
	}
	return strings.Join(words, "; ")
}
