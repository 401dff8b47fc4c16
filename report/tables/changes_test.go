//go:build linux

package tables

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/host/change"
)

// Names, then reasons, then commands.
func TestStepsShowTheirCommands(t *testing.T) {
	t.Parallel()
	op := &change.File{Path: "/etc/x.conf", Data: []byte("a\n\nEOF\n"), Mode: 0o644}
	results := []change.Result{{Step: change.Step{Op: op, What: "write x", Why: "it is read"}, Status: change.Pending}}
	const (
		name   = "  1  pending   write x\n"
		reason = "               why   it is read\n"
		typed  = "               type  install -D -m 0644 /dev/stdin /etc/x.conf <<'EOF_'\n" +
			"                     a\n\n" +
			"                     EOF\n" +
			"                     EOF_\n"
	)
	for detail, want := range map[StepDetail]string{StepNames: name, StepReasons: name + reason,
		StepCommands: name + reason + typed} {
		var b strings.Builder
		if WriteSteps(&b, results, detail); b.String() != want {
			t.Errorf("detail %d:\n%s\nwant\n%s", detail, b.String(), want)
		}
	}
	if all := SurveySteps(results); len(all) != 1 || len(all[0].Commands) != 5 {
		t.Errorf("for programs: %+v", all)
	}
}
