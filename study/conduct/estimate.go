package conduct

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/store"
)

// Earlier returns how long the runs took that make the same tests as a study, on average, and how
// many there are: of that study itself where it has been begun, else of all others in the file.
// Only runs that are done count: one that failed may have waited for minutes.
func Earlier(ctx context.Context, db *store.DB, spec *study.Spec) (perRun time.Duration, runs int, err error) {
	studies, err := db.Studies(ctx)
	if err != nil {
		return 0, 0, err
	}
	var own, others []float64 // seconds of runs
	want := timings(spec)
	for _, s := range studies {
		var have study.Spec
		if err := json.Unmarshal(s.Spec, &have); err != nil {
			return 0, 0, fmt.Errorf("study %s: %w", s.Name, err)
		}
		// Imported runs are left out: how long others took says nothing about this machine.
		if have.Imported != "" || !slices.Equal(timings(&have), want) {
			continue
		}
		all, err := db.Runs(ctx, s.ID)
		if err != nil {
			return 0, 0, err
		}
		into := words.Either(s.Name == spec.Name, &own, &others)
		for _, r := range all {
			if r.Status == study.StatusDone {
				*into = append(*into, r.Seconds)
			}
		}
	}
	took := words.Either(len(own) > 0, own, others)
	if len(took) == 0 {
		return 0, 0, nil
	}
	return seconds(mean(took)), len(took), nil
}

// timings are what of the tests of a study makes a run long or short, a text for each test, sorted.
func timings(s *study.Spec) []string {
	var all []string
	for _, m := range s.Measure {
		all = append(all, fmt.Sprint(m.Test, " ", m.Bytes, m.Iterations, m.Seconds, m.WarmUps, m.CoolDown))
	}
	slices.Sort(all)
	return all
}
