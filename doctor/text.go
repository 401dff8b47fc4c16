package doctor

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
)

// Text has a line for each check, with its fix below. paint colours a text, where that is wanted.
func (r Report) Text(paint func(code, s string) string) string {
	var b strings.Builder
	for _, p := range []struct {
		title, lacking string
		Part
	}{
		{"labs", "rackless up will not work before that is there", Part{r.Ready, r.Checks}},
		{"emulated hosts", "rackless emulate will not work before that is there", r.Emulated},
		{"this host as a real host", "no lab gets devices of this host before that is there", r.RealHost},
	} {
		fmt.Fprintf(&b, "%s\n", paint("1", p.title))
		lines(&b, p.Checks, paint)
		lacks, warns := finding.Count(p.Checks, finding.Lack), finding.Count(p.Checks, finding.Warn)
		switch {
		case lacks > 0:
			fmt.Fprintf(&b, "lacking: %s, with %s: %s\n\n", words.Count(lacks, "thing"), words.Count(warns, "warning"),
				p.lacking)
		case warns > 0:
			fmt.Fprintf(&b, "ready, with %s\n\n", words.Count(warns, "warning"))
		default:
			b.WriteString("ready\n\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func lines(b *strings.Builder, checks []finding.Finding, paint func(code, s string) string) {
	// Green, yellow and red of ECMA-48. The words say the same, for those who see or have no colours.
	color := map[finding.Status]string{finding.OK: "32", finding.Warn: "33", finding.Lack: "31"}
	width := lists.Max(checks, func(c finding.Finding) int { return len(c.Title) })
	for _, c := range checks {
		fmt.Fprintf(b, "  %s  %-*s  %s\n", paint(color[c.Status], fmt.Sprintf("%-4s", c.Status)), width, c.Title,
			c.Evidence)
		if c.Fix != "" {
			fmt.Fprintf(b, "        fix: %s\n", c.Fix)
		}
	}
}
