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
