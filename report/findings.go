package report

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// Findings has one line a finding, and below what is not OK what was wanted and the fix.
func Findings(all []finding.Finding, color bool) string {
	var w strings.Builder
	t := &show.Terminal{Color: color}
	status := map[finding.Status]string{finding.OK: t.Colored("ok     ", text.FgGreen),
		finding.Failed: t.Colored("FAILED ", text.FgRed), finding.Unknown: t.Colored("unknown", text.FgYellow)}
	all = show.Clean(all, words.Visible)
	// Plain columns: a finding is one line that grep finds whole, with the same words before it each time.
	subject, title := 0, 0
	for _, f := range all {
		subject, title = max(subject, len(f.Subject)), max(title, len(f.Title))
	}
	for _, f := range all {
		fmt.Fprintf(&w, "%s %-*s  %-*s  %s\n", status[f.Status], subject, f.Subject, title, f.Title, f.Have)
		if f.Status == finding.OK {
			continue
		}
		for _, line := range []struct{ what, said string }{{"want", f.Want}, {"read", f.Evidence}, {"fix", f.Fix},
			{"more", "rackless explain " + f.Code}} {
			if line.said != "" {
				fmt.Fprintf(&w, "        %-4s  %s\n", line.what, line.said)
			}
		}
	}
	return w.String()
}
