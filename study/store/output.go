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

// An Invocation is one execution of a tool in a run.
type Invocation struct {
	N       int64           // of its first figure; negative if it failed
	Raw     json.RawMessage // as in bench
	Printed []bench.Stream  // by name; empty if failed, with output in Raw
}

// maxPrinted exceeds a node's output, which must fit into one answer of its agent.
const maxPrinted = 256 << 20

// insertStreams stores gzip, which SQL users can unpack. The fastest level shrinks latencies to well below half
// (BenchmarkOutputs).
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

// Invocations returns a run's invocations with output, the failed ones last. Files of early releases and imported runs
// have no output.
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

// unpack is limited: the file may be untrusted, and a few bytes of gzip can unpack to gigabytes.
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

// ErrTaken is returned for a name that the file already has.
var ErrTaken = errors.New("there is a study of this name already")

// A Made is a complete study with runs that were made elsewhere.
type Made struct {
	Study *Study
	Runs  []*ImportedRun
}

// An ImportedRun is a run with its figures.
type ImportedRun struct {
	study.Observation
	Samples []Sample
	Failed  []json.RawMessage // invocations without figures; AddAll leaves them out
}

// AddAll adds studies with all their runs, or none on an error. If a name is taken, it returns [ErrTaken], or replaces
// the study.
func (d *DB) AddAll(ctx context.Context, all []*Made, replace bool) error {
	// New ones are discarded if the transaction fails.
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

// An Outcome summarizes the runs of a study.
type Outcome struct {
	Done, Failed, Disturbed int
	GivenUp                 int               // places at which all attempts failed
	Took                    float64           // seconds of successful runs
	Spent                   float64           // seconds of all runs
	Last                    time.Time         // start of the last run
	Cell                    map[string]string // of the last run, if begun or interrupted
	Emulated                bool              // whether any figure was emulated
}

// outcomes counts in SQL: files may be large, and rackless ui asks every second. Next to max(), SQLite takes plain
// columns from the row with the maximum, here the last run.
//
//go:embed outcomes.sql
var outcomes string

// Outcomes summarizes the runs by the study's ID. A run is given up after so many attempts; errors that begin with
// noAttempt do not count.
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
