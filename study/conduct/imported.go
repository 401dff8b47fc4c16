package conduct

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/importer"
	"github.com/rackless/rackless/study/store"
)

// maxFailures is how many failures a run of imported results tells of; a file may hold thousands.
const maxFailures = 5

// Keep writes imported studies down, all of them or none. now is when, and rackless the version
// that does. A name that is taken is an error, unless replace is set.
func Keep(ctx context.Context, db *store.DB, studies []*importer.Study, rackless string, now time.Time,
	replace bool) error {
	var all []*store.Made
	for _, s := range studies {
		spec, err := json.Marshal(s.Spec)
		if err != nil {
			return err
		}
		m := &store.Made{Study: &store.Study{Name: s.Spec.Name, Spec: spec, Digest: s.Digest, Created: now,
			Rackless: rackless, Environment: s.Environment}}
		for _, r := range s.Runs {
			run, err := keptRun(r)
			if err != nil {
				return err
			}
			m.Runs = append(m.Runs, run)
		}
		all = append(all, m)
	}
	return db.AddAll(ctx, all, replace)
}

// keptRun is an imported run as the store has it. What all figures of a test have in common is kept
// with the first, and where they stood with it.
func keptRun(r importer.Run) (*store.MadeRun, error) {
	out := &store.MadeRun{Observation: study.Observation{Block: r.Block, Place: r.Place, Attempt: 1, Cell: r.Cell,
		Status: study.StatusDone, Started: r.Started}}
	if n := len(r.Failures); n > 0 {
		out.Status, out.Error = study.StatusFailed, strings.Join(r.Failures[:min(n, maxFailures)], "; ")
		out.Error += words.If(n > maxFailures, fmt.Sprintf("; and %d more", n-maxFailures))
	}
	// As in rows: the raw sample, with tool and origin, is written once for all figures of a test, which are most of a
	// file.
	seen := map[string]bool{}
	for _, x := range r.Samples {
		if err := addLatencies(&out.Observation, &x.Sample); err != nil {
			return nil, err
		}
		s := store.Sample{Test: x.Test, Metric: x.Metric, Bytes: x.Bytes, Value: x.Value, Unit: x.Unit}
		if key := x.Run + "\x00" + x.Test; !seen[key] {
			seen[key] = true
			raw, err := json.Marshal(x)
			if err != nil {
				return nil, err
			}
			s.Raw = raw
		}
		out.Samples = append(out.Samples, s)
	}
	return out, nil
}
