package report

import (
	"fmt"
	"io"

	"github.com/rackless/rackless/finding"
)

// Findings prints one line a finding, and below what is not OK what was wanted and the fix.
func Findings(w io.Writer, all []finding.Finding, color bool) {
	paint := func(code, s string) string {
		if !color {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	subject, title := 0, 0
	for _, f := range all {
		subject, title = max(subject, len(f.Subject)), max(title, len(f.Title))
	}
	for _, f := range all {
		status := map[finding.Status]string{finding.OK: paint("32", "ok     "), finding.Failed: paint("31", "FAILED "),
			finding.Unknown: paint("33", "unknown")}[f.Status]
		fmt.Fprintf(w, "%s %-*s  %-*s  %s\n", status, subject, f.Subject, title, f.Title, f.Have)
		if f.Status == finding.OK {
			continue
		}
		for _, line := range []struct{ what, text string }{{"want", f.Want}, {"read", f.Evidence}, {"fix", f.Fix},
			{"more", "rackless explain " + f.Code}} {
			if line.text != "" {
				fmt.Fprintf(w, "        %-4s  %s\n", line.what, line.text)
			}
		}
	}
}
