package change_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
)

// A step that cannot be read does not hide the state of the others, and Make changes nothing then.
func TestASurveyNamesEveryStepThatCannotBeRead(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, path := range []string{"etc/old.conf", "etc/default/grub"} {
		full := filepath.Join(m.root, path)
		if err := errors.Join(os.Remove(full), os.Mkdir(full, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	before := m.snapshot(t)
	s := &change.System{Root: m.root}
	survey, err := change.Survey(t.Context(), s, m.steps())
	var got []change.Status
	for _, r := range survey {
		got = append(got, r.Status)
		if (r.Status == change.Failed) != (r.Err != nil) {
			t.Errorf("%s: status %s with error %v", r.What, r.Status, r.Err)
		}
	}
	want := []change.Status{change.Failed, change.Pending, change.Pending, change.Failed, change.Pending,
		change.Pending}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	for _, name := range []string{"/etc/default/grub: ", "/etc/old.conf: "} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one that names %s", err, name)
		}
	}
	j, err := change.Open(m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := change.Make(t.Context(), s, j, m.steps(), nil); err == nil {
		t.Error("steps that cannot be read were made")
	}
	if diff := cmp.Diff(before, m.snapshot(t)); diff != "" {
		t.Errorf("changed (-before +after):\n%s", diff)
	}
}
