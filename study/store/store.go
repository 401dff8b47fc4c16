// Package store keeps studies in one SQLite file: what was asked, every run with the state of the
// host around it, every figure, every latency histogram, raw. What it all comes to is computed again
// from there. docs/study.md documents the tables for whoever reads them with SQL.
//
// One process writes, any number read while it does (write-ahead log).
//
// Values are by far the most rows. So a row of theirs has two numbers beside its key, and what values have in
// common (test, metric, size, unit) stands in the table series. The view sample puts both together for SQL.
package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"modernc.org/sqlite" // the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/study"
)

// A DB is an open file of studies.
type DB struct {
	sql    *sql.DB
	path   string
	url    string // of the path alone, as SQLite takes it
	how    way
	insert *sql.Stmt // rowsAtOnce values; nil of a DB for questions alone
	old    bool      // a file, opened for questions alone, that has no table output

	mu     sync.Mutex
	series map[series]int64 // those that are known to be in the file; they never leave it
}

// ErrNoStudy is returned where the file has no study of a name.
var ErrNoStudy = errors.New("there is no such study")

//go:embed schema
var schemaFiles embed.FS

// migrations lead a file from each version of the schema to the next. They are never changed, only
// added to: files of any age are out there.
var migrations = sync.OnceValue(func() (all []string) {
	for {
		text, err := schemaFiles.ReadFile(fmt.Sprintf("schema/%d.sql", len(all)+1))
		if err != nil {
			return all
		}
		all = append(all, string(text))
	}
})

// readable is the oldest version of the schema that can be asked without being brought up to date:
// what came later are tables that files without them have nothing for.
const readable = 3

// outputSince is the version with which the table output came.
const outputSince = 4

// Open opens the file at a path, and makes it if need be. Files of older versions of rackless are
// brought up to date; one of a newer version is an error.
func Open(ctx context.Context, path string) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	trace.Changes("open %s to write", path)
	// SQLite makes its files with the mode of the first: host names and addresses are in them.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	return open(ctx, path, writer)
}

// OpenReader opens a file for questions alone: what is asked cannot change it.
func OpenReader(ctx context.Context, path string) (*DB, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	d, err := open(ctx, path, reader)
	var coded *sqlite.Error
	if errors.As(err, &coded) && coded.Code()&0xff == sqlite3.SQLITE_CANTOPEN {
		// SQLite reads a file with a write-ahead log beside it, even an empty one, which a file
		// system that is mounted read-only does not take.
		if _, e := os.Lstat(path + "-wal"); errors.Is(e, os.ErrNotExist) {
			return open(ctx, path, immutable)
		}
	}
	return d, err
}

// Ways to open a file.
type way int

const (
	writer way = iota
	reader
	immutable // a reader of a file that nobody can write, which is not looked at for changes
)

// open sets what SQLite is told on each connection. A writer waits for another one up to ten seconds instead of
// failing at once, transactions take the write lock when they begin (immediate), since one that reads first and writes
// later can only fail where two do so, and synchronous(FULL) keeps a run that has been reported as done through a
// power cut.
func open(ctx context.Context, path string, how way) (*DB, error) {
	// Names with "?" or "%" in them are paths too; a relative one would be taken for a host.
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	trace.Reads(full)
	u := url.URL{Scheme: "file", Path: full}
	d := &DB{path: path, url: u.String(), how: how, series: map[series]int64{}}
	q := url.Values{"_pragma": {"busy_timeout(10000)", "foreign_keys(1)", "synchronous(FULL)"},
		"_txlock": {"immediate"}}
	if how == writer {
		q.Add("_pragma", "journal_mode(WAL)")
	} else {
		q.Set("mode", "ro") // query_only alone could be switched off by the question itself
		q["_pragma"] = append(q["_pragma"], "query_only(1)", "trusted_schema(0)")
	}
	if how == immutable {
		q.Set("immutable", "1")
	}
	u.RawQuery = q.Encode()
	if d.sql, err = sql.Open("sqlite", u.String()); err != nil {
		return nil, err
	}
	err = d.migrate(ctx, how != writer)
	if err == nil && how == writer {
		d.insert, err = d.sql.PrepareContext(ctx, insertValues(rowsAtOnce))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), d.Close())
	}
	return d, nil
}

// migrate brings the schema up to date in one transaction: a kill leaves the file as it was. A reader cannot do that,
// and is let in where its queries do not need what is missing.
func (d *DB) migrate(ctx context.Context, readOnly bool) error {
	var have int
	if err := d.sql.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return err
	}
	switch {
	case have > len(migrations()):
		return fmt.Errorf("its schema has version %d, and this rackless knows %d: it was written by a newer one", have,
			len(migrations()))
	case have == len(migrations()):
		return nil
	case readOnly && have >= readable:
		d.old = have < outputSince
		return nil
	case readOnly:
		return fmt.Errorf("its schema has version %d of %d: rackless study run or results import brings it up to date",
			have, len(migrations()))
	}
	return d.change(ctx, func(tx *sql.Tx) error {
		// Another process may have been first.
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
			return err
		}
		for ; have < len(migrations()); have++ {
			if _, err := tx.ExecContext(ctx, migrations()[have]); err != nil {
				return fmt.Errorf("migrate schema from version %d: %w", have, err)
			}
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", have))
		return err
	})
}

// change makes changes in one transaction: all of them, or none where do fails.
func (d *DB) change(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it has nothing to do
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// query returns the rows of an answer, each as scan reads it.
func query[T any](ctx context.Context, d *DB, scan func(row *sql.Rows, into *T) error, question string,
	args ...any) ([]T, error) {
	var all []T
	err := d.ask(ctx, func(rows *sql.Rows) error {
		for rows.Next() {
			all = append(all, *new(T))
			if err := scan(rows, &all[len(all)-1]); err != nil {
				return err
			}
		}
		return nil
	}, question, args...)
	return all, err
}

// text is a column of JSON that may be absent, to write. To read one, its address as that of bytes does.
func text(j json.RawMessage) sql.NullString {
	return sql.NullString{String: string(j), Valid: j != nil}
}

// stamp is how the file has a time.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// A stampOf reads a time.
type stampOf struct{ *time.Time }

// Scan implements [sql.Scanner].
func (s stampOf) Scan(column any) (err error) {
	*s.Time, err = time.Parse(time.RFC3339Nano, fmt.Sprint(column))
	return err
}

// A jsonOf is a column of JSON: of a pointer to what is read, or of what is written. Nil is absent.
type jsonOf struct{ of any }

// Scan implements [sql.Scanner].
func (j jsonOf) Scan(column any) error {
	if column == nil {
		return nil
	}
	return json.Unmarshal([]byte(fmt.Sprint(column)), j.of)
}

// Value implements [driver.Valuer].
func (j jsonOf) Value() (driver.Value, error) {
	b, err := json.Marshal(j.of)
	if string(b) == "null" {
		return nil, err
	}
	return string(b), err
}

// Close closes the file. Where nobody else has it open, no log is beside it any more.
func (d *DB) Close() error {
	var err error
	if d.insert != nil {
		err = d.insert.Close()
	}
	err = errors.Join(err, d.sql.Close())
	if log, e := os.Lstat(d.path + "-wal"); d.how == reader && e == nil && log.Size() == 0 {
		// SQLite leaves the empty log that it makes for readers, and takes it away where the last
		// one to close the file may write it. Where that cannot be done it stays, which harms
		// nobody.
		if w, err := sql.Open("sqlite", d.url); err == nil {
			w.Exec("PRAGMA schema_version")
			w.Close()
		}
	}
	return err
}

// A Study is a study in the file.
type Study struct {
	ID       int64
	Name     string
	Spec     json.RawMessage
	Digest   string
	Lab      string
	Created  time.Time
	Rackless string
	// Environment is what the first run was made on; nil before it.
	Environment []study.Fact
	// Survey are nodes, machine and checks of the lab as the first run found them; nil before it,
	// and of studies that were made elsewhere or by early releases.
	Survey json.RawMessage
}

// Create adds a study. The error of one whose name is taken is [ErrTaken].
func (d *DB) Create(ctx context.Context, s *Study) error {
	return d.change(ctx, func(tx *sql.Tx) error { return d.insertStudy(ctx, tx, s) })
}

func (d *DB) insertStudy(ctx context.Context, tx *sql.Tx, s *Study) error {
	r, err := tx.ExecContext(ctx, "INSERT INTO study (name, spec, digest, lab, created, rackless, environment) "+
		"VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
		s.Name, string(s.Spec), s.Digest, s.Lab, stamp(s.Created), s.Rackless, jsonOf{s.Environment})
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, fmt.Errorf("study %s: %w in %s", s.Name, ErrTaken, d.path))
	}
	s.ID, err = r.LastInsertId()
	return err
}

// SetEnvironment enters what the first run of a study was made on.
func (d *DB) SetEnvironment(ctx context.Context, s *Study) error {
	_, err := d.sql.ExecContext(ctx, "UPDATE study SET environment = ? WHERE id = ?", jsonOf{s.Environment}, s.ID)
	return err
}

// SetSurvey enters what the first run of a study found.
func (d *DB) SetSurvey(ctx context.Context, s *Study) error {
	_, err := d.sql.ExecContext(ctx, "UPDATE study SET survey = ? WHERE id = ?", text(s.Survey), s.ID)
	return err
}

// Remove takes a study away, with all that is of it.
func (d *DB) Remove(ctx context.Context, name string) error {
	r, err := d.sql.ExecContext(ctx, "DELETE FROM study WHERE name = ?", name)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, fmt.Errorf("study %s: %w", name, ErrNoStudy))
	}
	return nil
}

// Studies returns all studies, the oldest first.
func (d *DB) Studies(ctx context.Context) ([]*Study, error) {
	scan := func(row *sql.Rows, into **Study) error {
		s := &Study{}
		*into = s
		return row.Scan(&s.ID, &s.Name, (*[]byte)(&s.Spec), &s.Digest, &s.Lab, stampOf{&s.Created}, &s.Rackless,
			jsonOf{&s.Environment}, (*[]byte)(&s.Survey))
	}
	return query(ctx, d, scan, "SELECT id, name, spec, digest, lab, created, rackless, environment, survey FROM study "+
		"ORDER BY id")
}

// Find returns the study of a name; [ErrNoStudy] where there is none.
func (d *DB) Find(ctx context.Context, name string) (*Study, error) {
	all, err := d.Studies(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("study %s: %w: %s has none", name, ErrNoStudy, d.path)
	}
	return nil, fmt.Errorf("study %s: %w; %s has %s", name, ErrNoStudy, d.path, strings.Join(names, ", "))
}

// A Sample is one figure of a run.
type Sample struct {
	Run    int64
	Test   string
	Metric string
	Bytes  int64
	Value  float64
	Unit   string
	Raw    json.RawMessage // nil on all but the first of an invocation
	// Printed is what the programs of the invocation printed, where Raw is set. It is written by
	// End, and read back by Invocations.
	Printed []bench.Stream
}

// Begin enters a run of a study that starts now, and sets its number.
func (d *DB) Begin(ctx context.Context, of int64, r *study.Observation) error {
	r.Status = study.StatusRunning
	return d.change(ctx, func(tx *sql.Tx) error { return insertRun(ctx, tx, of, r) })
}

// insertRun leaves the duration empty of a run that has only begun, so that a query can tell it from one that took no
// time.
func insertRun(ctx context.Context, tx *sql.Tx, of int64, r *study.Observation) error {
	res, err := tx.ExecContext(ctx, "INSERT INTO run (study, block, place, attempt, cell, status, started, seconds, "+
		"error, before) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", of, r.Block, r.Place, r.Attempt, jsonOf{r.Cell},
		r.Status, stamp(r.Started), sql.NullFloat64{Float64: r.Seconds, Valid: r.Status != study.StatusRunning},
		nullable(r.Error), jsonOf{r.Before})
	if err != nil {
		return err
	}
	r.Run, err = res.LastInsertId()
	return err
}

// nullable is a column that is absent where there is no text.
func nullable(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

// End enters how a run ended, with its figures and latencies: all of it or nothing. failed are the starts of tools that
// gave no figure, each a sample as bench writes it.
func (d *DB) End(ctx context.Context, r *study.Observation, samples []Sample, failed ...json.RawMessage) error {
	ids := map[series]int64{}
	err := d.change(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE run SET status = ?, seconds = ?, error = ?, before = ?, after = ? "+
			"WHERE id = ?",
			r.Status, r.Seconds, nullable(r.Error), jsonOf{r.Before}, jsonOf{r.After}, r.Run); err != nil {
			return err
		}
		for i, raw := range failed {
			if err := insertInvocation(ctx, tx, r.Run, -1-i, raw); err != nil {
				return err
			}
		}
		return d.insertFigures(ctx, tx, r, samples, ids)
	})
	return d.learn(ids, err)
}

// learn keeps the series that a transaction entered, once it is sure that they are in the file.
func (d *DB) learn(ids map[series]int64, err error) error {
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		maps.Copy(d.series, ids)
	}
	return err
}

// insertFigures enters the figures and latencies of a run, and adds their series to ids.
func (d *DB) insertFigures(ctx context.Context, tx *sql.Tx, r *study.Observation, samples []Sample,
	ids map[series]int64) error {
	if err := d.insertSeries(ctx, tx, samples, ids); err != nil {
		return err
	}
	if err := d.insertSamples(ctx, tx, r.Run, samples, ids); err != nil {
		return err
	}
	for _, h := range r.Histograms {
		if _, err := tx.ExecContext(ctx, "INSERT INTO histogram (run, test, metric, bytes, data) VALUES (?, ?, "+
			"'latency', ?, ?)", r.Run, h.Test, h.Bytes, h.Data); err != nil {
			return err
		}
	}
	return nil
}

func insertInvocation(ctx context.Context, tx *sql.Tx, run int64, n int, raw json.RawMessage) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO invocation (run, n, raw) VALUES (?, ?, ?)", run, n, string(raw))
	return err
}

// rowsAtOnce values go into one statement: a statement costs more than a row, but the driver looks
// for each argument among all of them.
const rowsAtOnce = 100

// A series is what values of many runs have in common.
type series struct {
	test, metric string
	bytes        int64
	unit         string
}

func (x *Sample) series() series { return series{x.Test, x.Metric, x.Bytes, x.Unit} }

// insertSeries finds the numbers of the series of some samples, and enters those that are new.
func (d *DB) insertSeries(ctx context.Context, tx *sql.Tx, samples []Sample, ids map[series]int64) error {
	// A copy, so that nobody waits for the lock while the database is asked.
	d.mu.Lock()
	known := maps.Clone(d.series)
	d.mu.Unlock()
	for i := range samples {
		k := samples[i].series()
		if _, ok := ids[k]; ok {
			continue
		}
		id, ok := known[k]
		if !ok {
			// DO UPDATE and not DO NOTHING: that would return no row.
			err := tx.QueryRowContext(ctx, "INSERT INTO series (test, metric, bytes, unit) VALUES (?, ?, ?, ?) ON "+
				"CONFLICT DO UPDATE SET bytes = bytes RETURNING id", k.test, k.metric, k.bytes, k.unit).Scan(&id)
			if err != nil {
				return err
			}
		}
		ids[k] = id
	}
	return nil
}

// insertSamples enters the figures of a run. What a tool printed and how it was started is kept with its first figure:
// it would otherwise be most of the file.
func (d *DB) insertSamples(ctx context.Context, tx *sql.Tx, run int64, samples []Sample, ids map[series]int64) error {
	for i, x := range samples {
		if x.Raw == nil {
			continue
		}
		if err := insertInvocation(ctx, tx, run, i, x.Raw); err != nil {
			return err
		}
		if err := insertStreams(ctx, tx, run, i, x.Printed); err != nil {
			return err
		}
	}
	enter := func(st *sql.Stmt, from, n int) error {
		args := make([]any, 2+2*n)
		args[0], args[1] = run, int64(from)
		for i, x := range samples[from : from+n] {
			args[2+2*i], args[3+2*i] = ids[x.series()], x.Value
		}
		_, err := st.ExecContext(ctx, args...)
		return err
	}
	from := 0
	many := tx.StmtContext(ctx, d.insert)
	defer many.Close() // that of the transaction; it is gone with it
	for ; len(samples)-from >= rowsAtOnce; from += rowsAtOnce {
		if err := enter(many, from, rowsAtOnce); err != nil {
			return err
		}
	}
	if from == len(samples) {
		return nil
	}
	rest, err := tx.PrepareContext(ctx, insertValues(len(samples)-from))
	if err != nil {
		return err
	}
	return errors.Join(enter(rest, from, len(samples)-from), rest.Close())
}

// insertValues returns the statement that enters n values: the run, the number of the first, then
// series and value of each. With ROLLBACK a value that is there already ends the transaction; the
// usual way, which ends the statement alone, would have SQLite keep what every page was before it.
func insertValues(n int) string {
	var b strings.Builder
	b.WriteString("WITH first(run, n) AS (SELECT ?, ?) INSERT OR ROLLBACK INTO value SELECT run, n + column1, " +
		"column2, column3 FROM (VALUES (0, ?, ?)")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, ", (%d, ?, ?)", i)
	}
	b.WriteString("), first")
	return b.String()
}

// Runs returns the runs of a study in the order in which they were made, without figures and latencies.
func (d *DB) Runs(ctx context.Context, of int64) ([]study.Observation, error) {
	return query(ctx, d, func(row *sql.Rows, r *study.Observation) error {
		return row.Scan(&r.Run, &r.Block, &r.Place, &r.Attempt, jsonOf{&r.Cell}, &r.Status, stampOf{&r.Started},
			&r.Seconds, &r.Error, jsonOf{&r.Before}, jsonOf{&r.After})
	}, "SELECT id, block, place, attempt, cell, status, started, coalesce(seconds, 0), coalesce(error, ''), before, "+
		"after FROM run WHERE study = ? ORDER BY id", of)
}

// A figure is where a value is.
type figure struct{ run, n int64 }

// Samples returns the figures of a study, run by run.
func (d *DB) Samples(ctx context.Context, study int64) ([]Sample, error) {
	type value struct {
		at     figure
		series int64
		value  float64
	}
	values, err := query(ctx, d, func(row *sql.Rows, v *value) error {
		return row.Scan(&v.at.run, &v.at.n, &v.series, &v.value)
	}, "SELECT run, n, series, value FROM value WHERE run IN (SELECT id FROM run WHERE study = ?) ORDER BY run, n",
		study)
	if err != nil {
		return nil, err
	}
	// Names and invocations are put in here, because joined they cost more than the values; and
	// after the values, so that those of a run that ends meanwhile are there, too.
	names := map[int64]series{}
	if _, err := query(ctx, d, func(row *sql.Rows, s *series) error {
		var id int64
		err := row.Scan(&id, &s.test, &s.metric, &s.bytes, &s.unit)
		names[id] = *s
		return err
	}, "SELECT id, test, metric, bytes, unit FROM series"); err != nil {
		return nil, err
	}
	raws := map[figure]json.RawMessage{}
	if _, err := query(ctx, d, func(row *sql.Rows, raw *json.RawMessage) error {
		var at figure
		err := row.Scan(&at.run, &at.n, (*[]byte)(raw))
		raws[at] = *raw
		return err
	}, "SELECT run, n, raw FROM invocation WHERE run IN (SELECT id FROM run WHERE study = ?)", study); err != nil {
		return nil, err
	}
	all := make([]Sample, len(values))
	for i, v := range values {
		of := names[v.series]
		all[i] = Sample{Run: v.at.run, Test: of.test, Metric: of.metric, Bytes: of.bytes, Value: v.value, Unit: of.unit,
			Raw: raws[v.at]}
	}
	return all, nil
}

// Latencies returns the latencies of a study by run.
func (d *DB) Latencies(ctx context.Context, of int64) (map[int64][]study.Latencies, error) {
	all := map[int64][]study.Latencies{}
	_, err := query(ctx, d, func(row *sql.Rows, l *study.Latencies) error {
		var run int64
		err := row.Scan(&run, &l.Test, &l.Bytes, &l.Data)
		all[run] = append(all[run], *l)
		return err
	}, "SELECT run, test, bytes, data FROM histogram WHERE run IN (SELECT id FROM run WHERE study = ?) "+
		"ORDER BY histogram.rowid", of)
	return all, err
}
