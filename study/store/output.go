package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study"
)

// An Invocation is one start of a tool in a run.
type Invocation struct {
	N       int64           // of its first figure; below zero: it failed and has none
	Raw     json.RawMessage // a sample as bench writes it
	Printed []bench.Stream  // in the order of their names; none of one that failed, whose Raw has it
}

// maxPrinted bounds what is unpacked of one stream. What a node prints has to fit into an answer of
// its agent, which is less.
const maxPrinted = 256 << 20

// insertStreams enters what the programs of an invocation printed. Lists of latencies shrink to
// well below a half (BenchmarkOutputs), and the fastest level is nearly as good at that as the slow
// ones. gzip, because whoever asks the file in SQL has something at hand that reads it.
func insertStreams(ctx context.Context, tx *sql.Tx, run int64, n int, streams []bench.Stream) error {
	for _, s := range streams {
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
		if err != nil {
			return err
		}
		if _, err := w.Write(s.Text); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO output (run, n, stream, data) VALUES (?, ?, ?, ?)", run, n,
			s.Name, packed.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// Invocations returns the starts of tools of a run with what they printed: those that gave figures
// in their order, then those that failed. Files of early releases, and runs that were imported,
// have nothing of what was printed.
func (d *DB) Invocations(ctx context.Context, run int64) ([]Invocation, error) {
	var found bool
	if err := d.sql.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM run WHERE id = ?)",
		run).Scan(&found); err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("%s has no run %d", d.path, run)
	}
	all, err := query(ctx, d, func(row *sql.Rows, x *Invocation) error { return row.Scan(&x.N, (*[]byte)(&x.Raw)) },
		"SELECT n, raw FROM invocation WHERE run = ? ORDER BY n < 0, abs(n)", run)
	if err != nil || d.old {
		return all, err
	}
	for i := range all {
		all[i].Printed, err = query(ctx, d, func(row *sql.Rows, s *bench.Stream) error {
			var packed []byte
			if err := row.Scan(&s.Name, &packed); err != nil {
				return err
			}
			if s.Text, err = unpack(packed); err != nil {
				return fmt.Errorf("run %d, %s: %w", run, s.Name, err)
			}
			return nil
		}, "SELECT stream, data FROM output WHERE run = ? AND n = ? ORDER BY stream", run, all[i].N)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// unpack bounds its result: a few bytes of gzip can unpack to gigabytes, and the file may be somebody else's.
func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxPrinted+1))
	if err == nil && len(text) > maxPrinted {
		err = fmt.Errorf("more than %d MiB", maxPrinted>>20)
	}
	return text, err
}

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

// An Outcome counts what has come of the runs of a study.
type Outcome struct {
	Done, Failed, Disturbed int
	GivenUp                 int               // places in the order whose run was tried as often as runs are, in vain
	Took                    float64           // seconds of the runs that are done
	Spent                   float64           // and of all others, too
	Last                    time.Time         // when a run was begun last
	Cell                    map[string]string // of that run, where it is under way or was cut off
	Emulated                bool              // a figure was
}

// outcomes has a row for each study with runs. SQL counts: a file of studies may be large, and rackless ui asks every
// second. Beside the one max(), SQLite takes the plain columns from the row that has it: cell, status and start are
// those of the last run.
//
//go:embed outcomes.sql
var outcomes string

// Outcomes counts the runs of all studies, by the number of the study. A run is given up after so many attempts, of
// which those whose error begins with noAttempt are none.
func (d *DB) Outcomes(ctx context.Context, attempts int, noAttempt string) (map[int64]Outcome, error) {
	all := map[int64]Outcome{}
	_, err := query(ctx, d, func(row *sql.Rows, o *Outcome) error {
		var study, last int64
		err := row.Scan(&study, &o.Done, &o.Failed, &o.Disturbed, &o.GivenUp, &o.Took, &o.Spent, stampOf{&o.Last},
			jsonOf{&o.Cell}, &o.Emulated, &last)
		all[study] = *o
		return err
	}, outcomes, noAttempt, attempts)
	return all, err
}
