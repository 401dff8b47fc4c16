package change_test

import (
	"context"
	"testing"

	"github.com/rackless/rackless/host/change"
)

// A guard must not use a result from before a change.
func TestOneLookServesASurveyAndEachStepThatIsMadeHasItsOwn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	steps := m.steps()[:3]
	looks := 0
	for i := range steps {
		steps[i].Guard = func(ctx context.Context, _ *change.System) error {
			for range 2 { // also within one guard
				if _, err := change.Seen(ctx, "machine", func() (int, error) {
					looks++
					return looks, nil
				}); err != nil {
					return err
				}
			}
			return nil
		}
	}
	s := &change.System{Root: m.root}
	if _, err := change.Survey(t.Context(), s, steps); err != nil {
		t.Fatal(err)
	}
	if looks != 1 {
		t.Errorf("a survey looked %d times, want 1", looks)
	}
	looks = 0
	j, err := change.Open(m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := change.Make(t.Context(), s, j, steps, nil); err != nil {
		t.Fatal(err)
	}
	if want := 1 + len(steps); looks != want {
		t.Errorf("making %d steps looked %d times, want %d: once for the survey, and right before each step",
			len(steps), looks, want)
	}
}
