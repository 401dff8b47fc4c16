//go:build linux

package tables

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/study/stats"
	"github.com/rackless/rackless/study/suggest"
)

// A suggestion has each effect with its interval, and the commands; without changes it says why.
func TestSuggestion(t *testing.T) {
	low, high := 0.7, 0.9
	s := &suggest.Suggestion{Name: "incast", Trials: 12, Seeds: 8, Searched: []string{"kmin", "alpha"},
		Changes: []suggest.Change{{Name: "kmin", From: "1.00 KiB", To: "4.00 KiB", Effect: suggest.Effect{Estimate: 0.8,
			Low: &low, High: &high, Verdict: stats.Better}}},
		Totals: []suggest.Total{{Figure: "pauses", Effect: suggest.Effect{Scale: stats.Difference, Own: 1, Suggested: 4,
			Estimate: 3, Verdict: stats.Undecided}}},
		Host:   []string{"mlnx_qos -i eth0 --trust dscp"},
		Switch: []suggest.Plain{{Name: "ECN Kmin", Value: "4096 bytes"}}}
	lines := map[string]bool{}
	got := Suggestion(s)
	for line := range strings.Lines(got) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"incast, simulated: 12 trials of kmin, alpha",
		"kmin 1.00 KiB 4.00 KiB -20.0 % -30.0 % to -10.0 % better",
		"pauses 1 4 +3 too few seeds undecided",
		"simulated differences to the file's own values, over 8 seeds that the search did not use",
		"mlnx_qos -i eth0 --trust dscp", "ECN Kmin 4096 bytes",
	} {
		if !lines[want] {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	s.Changes = nil
	if got := Suggestion(s); !strings.Contains(got, "nothing better was found") {
		t.Errorf("without changes:\n%s", got)
	}
	s.Stopped = true
	if got := Suggestion(s); !strings.Contains(got, "until it stopped") || !strings.Contains(got, "before the end") {
		t.Errorf("stopped:\n%s", got)
	}
}
