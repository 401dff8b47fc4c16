package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"

	"github.com/rackless/rackless/bench"
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
