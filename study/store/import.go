package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/rackless/rackless/study"
)

// ErrTaken is returned where the file has a study of a name already.
var ErrTaken = errors.New("there is a study of this name already")

// A Made is a study whose runs have all been made, elsewhere.
type Made struct {
	Study *Study
	Runs  []*MadeRun
}

// A MadeRun is a run with its figures.
type MadeRun struct {
	study.Observation
	Samples []Sample
}

// AddAll adds studies with all their runs: all of them or none. A study whose name is taken is
// refused with [ErrTaken], or takes the place of the other one where replace is set.
func (d *DB) AddAll(ctx context.Context, all []*Made, replace bool) error {
	// Series are shared by all studies. Those of a transaction that failed are forgotten with it.
	ids := map[series]int64{}
	err := d.change(ctx, func(tx *sql.Tx) error {
		for _, m := range all {
			if replace {
				if _, err := tx.ExecContext(ctx, "DELETE FROM study WHERE name = ?", m.Study.Name); err != nil {
					return err
				}
			}
			if err := d.insertStudy(ctx, tx, m.Study); err != nil {
				return err
			}
			for _, run := range m.Runs {
				if err := insertRun(ctx, tx, m.Study.ID, &run.Observation); err != nil {
					return err
				}
				if err := d.insertFigures(ctx, tx, &run.Observation, run.Samples, ids); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return d.learn(ids, err)
}
