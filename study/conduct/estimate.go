package conduct

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/store"
)

// Earlier returns how long the runs took that make the same tests as a study, on average, and how
// many there are: of that study itself where it has been begun, else of all others in the file.
// Only runs that are done count: one that failed may have waited for minutes.
func Earlier(ctx context.Context, db *store.DB, spec *study.Spec) (mean time.Duration, runs int, err error) {
	studies, err := db.Studies(ctx)
	if err != nil {
		return 0, 0, err
	}
	var own, others tally
	want := timings(spec)
	for _, s := range studies {
		var have study.Spec
		if err := json.Unmarshal(s.Spec, &have); err != nil {
			return 0, 0, fmt.Errorf("study %s: %w", s.Name, err)
		}
		if have.Imported != "" || !slices.Equal(timings(&have), want) {
			continue
		}
		all, err := db.Runs(ctx, s.ID)
		if err != nil {
			return 0, 0, err
		}
		into := &others
		if s.Name == spec.Name {
			into = &own
		}
		for _, r := range all {
			if r.Status == store.Done {
				into.seconds += r.Seconds
				into.runs++
			}
		}
	}
	t := others
	if own.runs > 0 {
		t = own
	}
	return time.Duration(t.seconds / float64(max(1, t.runs)) * float64(time.Second)), t.runs, nil
}

type tally struct {
	seconds float64
	runs    int
}

// A timing is what of a test makes a run long or short.
type timing struct {
	test       string
	bytes      int64
	iterations int
	seconds    int
	warmUps    int
	coolDown   time.Duration
}

// timings are those of the tests of a study, in an order of their own.
func timings(s *study.Spec) []timing {
	var all []timing
	for _, m := range s.Measure {
		all = append(all, timing{m.Test, m.Bytes, m.Iterations, m.Seconds, m.WarmUps, m.CoolDown})
	}
	// no two have both
	slices.SortFunc(all, func(a, b timing) int {
		return cmp.Or(cmp.Compare(a.test, b.test), cmp.Compare(a.bytes, b.bytes))
	})
	return all
}
