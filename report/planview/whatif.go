package planview

import (
	"io"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

// WhatIf prints what an edit would do: both costs, and the differences in words, as package
// plan/advise finds them. The plan with the edit goes below it, by Table.
func WhatIf(w io.Writer, before, after *plan.Plan, differences []string, o Options) error {
	p := newPage(w, o)
	p.wrap("as it is:   ", 12, costText(before)+".")
	p.wrap("what if:    ", 12, costText(after)+".")
	if len(differences) == 0 {
		p.title("Nothing would be different.")
	} else {
		p.title(words.Count(len(differences), "difference") + ":")
	}
	for _, d := range differences {
		p.wrap("  ", 4, d)
	}
	p.Line("")
	return p.flush()
}
