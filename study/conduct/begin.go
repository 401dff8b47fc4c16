package conduct

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/store"
)

// A ChangedError reports that a study was begun with other files.
type ChangedError struct {
	Study string
	Begun time.Time
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("study %s was begun with other files: its study or lab file has changed since %s; give it "+
		"another name, or forget its runs with --restart", e.Study, e.Begun.Local().Format(time.DateTime))
}

// Begin finds the study by its name, or adds it; with restart it first removes the study and its runs. It returns a
// *ChangedError if digest, that of the study's files, has changed.
func Begin(ctx context.Context, db *store.DB, spec *study.Spec, digest, labText, by string,
	restart bool) (*store.Study, error) {
	s, err := db.Find(ctx, spec.Name)
	switch {
	case errors.Is(err, store.ErrNoStudy):
	case err != nil:
		return nil, err
	case restart:
		if err := db.Remove(ctx, spec.Name); err != nil {
			return nil, err
		}
	case s.Digest != digest:
		return nil, &ChangedError{spec.Name, s.Created}
	default:
		return s, nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	s = &store.Study{Name: spec.Name, Spec: text, Digest: digest, Lab: labText, Created: time.Now(), Rackless: by}
	return s, db.Create(ctx, s)
}

// Estimate returns the approximate time of one run, and its basis: the mean of earlier runs with the same tests in the
// database at path, or else byFile.
func Estimate(ctx context.Context, path string, s *study.Spec, byFile time.Duration) (run time.Duration, how string,
	err error) {
	const source = "by what the study's file says of its tests"
	db, err := store.OpenReader(ctx, path)
	if errors.Is(err, os.ErrNotExist) {
		return byFile, source, nil
	}
	if err != nil { // an early release's database is upgraded when the study begins
		return byFile, fmt.Sprintf("%s; earlier runs cannot be read: %v", source, err), nil
	}
	mean, runs, err := Earlier(ctx, db, s)
	if err = errors.Join(err, db.Close()); err != nil {
		return 0, "", err
	}
	if runs == 0 {
		return byFile, source, nil
	}
	return mean, fmt.Sprintf("the mean of %s with these tests in %s", words.Count(runs, "run"), path), nil
}

// Earlier returns the mean time and number of successful runs with the same tests, of this study or else of all. Failed
// runs may have waited for minutes.
func Earlier(ctx context.Context, db *store.DB, spec *study.Spec) (perRun time.Duration, runs int, err error) {
	studies, err := db.Studies(ctx)
	if err != nil {
		return 0, 0, err
	}
	var own, others []float64 // seconds per run
	want := timings(spec)
	for _, s := range studies {
		var have study.Spec
		if err := json.Unmarshal(s.Spec, &have); err != nil {
			return 0, 0, fmt.Errorf("study %s: %w", s.Name, err)
		}
		// Imported runs say nothing about this machine.
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
			if r.Status == study.StatusDone {
				*into = append(*into, r.Seconds)
			}
		}
	}
	took := own
	if len(took) == 0 {
		took = others
	}
	if len(took) == 0 {
		return 0, 0, nil
	}
	return seconds(mean(took)), len(took), nil
}

// timings returns, sorted, the parameters that determine the length of a run.
func timings(s *study.Spec) []string {
	var all []string
	for _, m := range s.Measure {
		all = append(all, fmt.Sprint(m.Test, " ", m.Bytes, m.Iterations, m.Seconds, m.WarmUps, m.CoolDown))
	}
	slices.Sort(all)
	return all
}
