//go:build linux

package tables

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/rackless/rackless/host/change"
)

// The last line of a check says whether prepare would go through.
func TestACheckEndsWithTheOutcome(t *testing.T) {
	t.Parallel()
	step := func(status change.Status, err error) change.Result {
		return change.Result{Step: change.Step{Op: &change.Value{Path: "/sys/x", Want: "1"}, What: "set x"},
			Status: status, Err: err}
	}
	boot := step(change.Pending, nil)
	boot.Boot = true
	forbidden := fmt.Errorf("/sys/x: %w", fs.ErrPermission)
	for _, c := range []struct {
		name    string
		survey  []change.Result
		user    bool
		outcome Outcome
		want    []string
	}{
		{"all steps are left", []change.Result{step(change.Pending, nil), step(change.InPlace, nil)}, false, WouldPass,
			[]string{"  1  would do    set x\n", "  2  already so  set x\n",
				"\nprepare would go through; 2 steps: 1 would do, 1 already so\n"}},
		{"a reboot", []change.Result{boot, step(change.Waiting, nil)}, false, WouldPass,
			[]string{"  2  at reboot   set x\n",
				"prepare would go through, with a reboot; 2 steps: 1 would do, 1 at reboot\n"}},
		{"a refusal beside a step that cannot be read", []change.Result{
			step(change.Refused, errors.New("a disk is on it")),
			step(change.Failed, errors.New("input/output error"))}, false, WouldRefuse,
			[]string{"  1  refused     set x\n               why   a disk is on it\n",
				"  2  not known   set x\n               why   input/output error\n",
				"prepare would refuse, and change nothing; 2 steps: 1 refused, 1 not known\n"}},
		{"a step that cannot be read", []change.Result{step(change.Failed, errors.New("input/output error"))}, false,
			Unknown, []string{"\nnot known whether prepare would go through; 1 step: 1 not known\n"}},
		{"a guard that needs root", []change.Result{step(change.Refused, forbidden)}, true, Unknown,
			[]string{"  1  not known   set x\n",
				"not known whether prepare would go through: only root sees all; run this as root; 1 step"}},
		{"a guard that sees nothing without root", []change.Result{step(change.Pending, nil)}, true, Unknown,
			[]string{"  1  would do    set x\n", "run this as root; 1 step: 1 would do\n"}},
		{"nothing is left to do, without root", []change.Result{step(change.InPlace, nil)}, true, WouldPass,
			[]string{"prepare would go through; 1 step: 1 already so\n"}},
		{"a guard that root may not look at", []change.Result{step(change.Refused, forbidden)}, false, WouldRefuse,
			[]string{"  1  refused     set x\n"}},
		{"no step", nil, false, WouldPass, []string{"prepare would go through; 0 steps\n"}},
	} {
		out := NewSurvey("pair", c.survey, c.user)
		if out.Outcome != c.outcome {
			t.Errorf("%s: outcome %q, want %q", c.name, out.Outcome, c.outcome)
		}
		var b strings.Builder
		WriteCheck(&b, c.survey, out)
		for _, want := range c.want {
			if !strings.Contains("\n"+b.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, b.String())
			}
		}
	}
}
