package report

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/finding"
)

func TestFindingsSayBelowWhatIsNotOKWhatWasWanted(t *testing.T) {
	all := []finding.Finding{
		{Code: "RL401", Subject: "vm00", Title: "link", Status: finding.OK, Have: "up", Want: "up"},
		{Code: "RL402", Subject: "vm01 eth0", Title: "MTU", Status: finding.Failed, Have: "1500", Want: "4200",
			Fix: "set it"},
	}
	want := "ok      vm00       link  up\n" +
		"FAILED  vm01 eth0  MTU   1500\n        want  4200\n        fix   set it\n        more  rackless " +
		"explain RL402\n"
	if got := Findings(all, false); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := Findings(all, true); !strings.Contains(got, "\x1b[31mFAILED \x1b[0m") {
		t.Errorf("without colour: %q", got)
	}
}

// Checks that are OK have a line for each node; the others stay.
func TestFindingsFoldByNodeIfTheyDoNotFit(t *testing.T) {
	var all []finding.Finding
	for _, subject := range []string{"vm00 eth0", "vm01 eth0", "vm00", "vm01", "lab", "NUMA node 0", "NUMA node 1"} {
		all = append(all, finding.Finding{Code: "RL401", Subject: subject, Title: "link", Status: finding.OK,
			Have: "operstate up, carrier 1, and more words than fit into a narrow terminal"})
	}
	all[3].Status, all[3].Have, all[3].Fix = finding.Failed, "down", "ip link set eth0 up"
	got, folded := FoldedFindings(all, false, 80)
	want := "ok      vm00         2 checks\nok      vm01         1 check\nok      lab          1 check\n" +
		"ok      NUMA node 0  1 check\nok      NUMA node 1  1 check\n" +
		"FAILED  vm01  link  down\n        fix   ip link set eth0 up\n        more  rackless explain RL401\n"
	if !folded || got != want {
		t.Errorf("at 80 columns: got\n%swant\n%s", got, want)
	}
	for _, width := range []int{0, 200} {
		if got, folded := FoldedFindings(all, false, width); folded || got != Findings(all, false) {
			t.Errorf("at %d columns: folded %v\n%s", width, folded, got)
		}
	}
}
