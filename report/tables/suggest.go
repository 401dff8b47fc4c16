//go:build linux

package tables

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/stats"
	"github.com/rackless/rackless/study/suggest"
)

// Suggestion returns the values that a search found, with the effect of each, and the commands that set them.
func Suggestion(s *suggest.Suggestion) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, simulated: %s of %s", s.Name, words.Count(s.Trials, "trial"),
		strings.Join(s.Searched, ", "))
	if s.Stopped {
		b.WriteString("; stopped before the end")
	}
	b.WriteString("\n\n")
	switch {
	case len(s.Changes) > 0:
		g := show.NewGrid("parameter", "in the file>", "suggested>", "p99 of the slowdown>", "95 % interval>", "alone")
		for _, c := range s.Changes {
			g.Add(c.Name, c.From, c.To, effect(c.Scale, c.Estimate), interval(c.Effect), string(c.Verdict))
		}
		b.WriteString(g.String() + "\n")
		g = show.NewGrid("all together", "in the file>", "suggested>", "difference>", "95 % interval>", "verdict")
		for _, t := range s.Totals {
			g.Add(t.Figure, figure(t.Own), figure(t.Suggested), effect(t.Scale, t.Estimate), interval(t.Effect),
				string(t.Verdict))
		}
		b.WriteString(g.String())
		fmt.Fprintf(&b, "simulated differences to the file's own values, over %s that the search did not use\n",
			words.Count(s.Seeds, "seed"))
	case s.Stopped:
		b.WriteString("nothing better has been measured until it stopped\n")
	default:
		b.WriteString("nothing better was found: the values below are those of the file\n")
	}
	b.WriteString("\nfor each host, with its own names of devices:\n")
	for _, line := range s.Host {
		b.WriteString("  " + line + "\n")
	}
	b.WriteString("\nfor each switch:\n")
	g := show.NewGrid("  setting", "value>")
	for _, v := range s.Switch {
		g.Add("  "+v.Name, v.Value)
	}
	b.WriteString(g.String())
	return b.String()
}

// effect formats a ratio as a difference in percent, and a difference as it is.
func effect(scale stats.Scale, v float64) string {
	if scale == stats.Difference {
		return fmt.Sprintf("%+.4g", v)
	}
	return fmt.Sprintf("%+.1f %%", 100*(v-1))
}

func interval(e suggest.Effect) string {
	if e.Low == nil {
		return "too few seeds"
	}
	return effect(e.Scale, *e.Low) + " to " + effect(e.Scale, *e.High)
}

func figure(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
