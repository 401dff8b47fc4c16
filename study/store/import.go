package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
)

// ErrTaken is returned where the file has a study of a name already.
var ErrTaken = errors.New("there is a study of this name already")

// A Made is a study whose runs have all been made, elsewhere.
type Made struct {
	Study *Study
	Runs  []*MadeRun
}

// A MadeRun is a run with its figures, and the latencies that some of them come from.
type MadeRun struct {
	Run
	Samples    []Sample
	Histograms []Histogram
}

// AddAll adds studies with all their runs: all of them or none. A study whose name is taken is
// refused with [ErrTaken], or takes the place of the other one where replace is set.
func (d *DB) AddAll(ctx context.Context, all []*Made, replace bool) error {
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it has nothing to do
	ids := map[series]int64{}
	for _, m := range all {
		s := m.Study
		if replace {
			if _, err := tx.ExecContext(ctx, "DELETE FROM study WHERE name = ?", s.Name); err != nil {
				return err
			}
		}
		r, err := tx.ExecContext(ctx, "INSERT INTO study (name, spec, digest, lab, created, rackless, environment) "+
			"VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
			s.Name, string(s.Spec), s.Digest, s.Lab, s.Created.UTC().Format(time.RFC3339Nano), s.Rackless,
			text(s.Environment))
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("study %s: %w in %s", s.Name, ErrTaken, d.path))
		}
		if s.ID, err = r.LastInsertId(); err != nil {
			return err
		}
		for _, run := range m.Runs {
			run.Study = s.ID
			cell, err := json.Marshal(run.Cell)
			if err != nil {
				return err
			}
			r, err := tx.ExecContext(ctx, "INSERT INTO run (study, block, place, attempt, cell, status, started, "+
				"seconds, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
				run.Study, run.Block, run.Place, run.Attempt, string(cell), run.Status,
				run.Started.UTC().Format(time.RFC3339Nano), run.Seconds, nullable(run.Error))
			if err != nil {
				return err
			}
			if run.ID, err = r.LastInsertId(); err != nil {
				return err
			}
			known, err := d.seriesIDs(ctx, tx, run.Samples)
			if err != nil {
				return err
			}
			maps.Copy(ids, known)
			if err := d.insertSamples(ctx, tx, run.ID, run.Samples, ids); err != nil {
				return err
			}
			if err := insertHistograms(ctx, tx, run.ID, run.Histograms); err != nil {
				return err
			}
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.Copy(d.series, ids)
	return nil
}

// nullable is a column that is absent where there is no text.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}
