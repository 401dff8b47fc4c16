// Package store keeps studies in one SQLite file: the definition and, raw, every run, figure and latency histogram.
// docs/study.md documents the tables for SQL users.
//
// One process writes, and any number may read at the same time (write-ahead log). Properties that values share are in
// the table series, to keep rows small.
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

	"modernc.org/sqlite" // driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/study"
)

// A DB is an open file of studies, an SQLite database.
type DB struct {
	sql    *sql.DB
	path   string
	url    string // without options
	how    way
	insert *sql.Stmt // rowsAtOnce values; nil for readers
	old    bool      // opened by a reader, without the table output

	mu     sync.Mutex
	series map[series]int64 // in the file; never deleted
}

// ErrNoStudy is returned for a name that the file lacks.
var ErrNoStudy = errors.New("there is no such study")

//go:embed schema
var schemaFiles embed.FS

// migrations must never be changed, only extended.
var migrations = sync.OnceValue(func() (all []string) {
	for {
		text, err := schemaFiles.ReadFile(fmt.Sprintf("schema/%d.sql", len(all)+1))
		if err != nil {
			return all
		}
		all = append(all, string(text))
	}
})

// readable is the oldest version without an upgrade: later ones only add tables for which it has no data.
const readable = 3

const outputSince = 4

// Open opens or creates the file. It upgrades older versions; a newer one is an error.
func Open(ctx context.Context, path string) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	trace.Changes("open %s to write", path)
	// Host names and addresses are inside. SQLite creates its other files with the same mode.
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

// OpenReader opens a file read-only, so that queries cannot change it.
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
		// SQLite creates a missing write-ahead log, which a read-only file system does not allow.
		if _, e := os.Lstat(path + "-wal"); errors.Is(e, os.ErrNotExist) {
			return open(ctx, path, immutable)
		}
	}
	return d, err
}

// OpenFixed opens a file that nobody writes, without locks and shared memory, which network file systems may not have.
func OpenFixed(ctx context.Context, path string) (*DB, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if log, err := os.Lstat(path + "-wal"); err == nil && log.Size() > 0 {
		return nil, fmt.Errorf("%s: it is being written, or its last writer was killed: %[1]s-wal is not empty", path)
	}
	return open(ctx, path, immutable)
}

type way int

const (
	writer way = iota
	reader
	immutable // not checked for changes
)

// open lets a writer wait up to ten seconds. Transactions take the write lock at once (immediate): if two read first
// and write later, one must fail. synchronous(FULL) keeps finished runs through a power cut.
func open(ctx context.Context, path string, how way) (*DB, error) {
	// Paths may contain "?" or "%", and a relative one would be a host.
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
		q.Set("mode", "ro") // a query could switch off query_only
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

// migrate uses one transaction, so that a kill leaves the file unchanged. A reader accepts an old schema if its queries
// do not need the missing tables.
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
		// Another process may have upgraded it.
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

func (d *DB) change(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after a commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

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

// text writes JSON, or nil. To read such a column, pass its address as *[]byte.
func text(j json.RawMessage) sql.NullString {
	return sql.NullString{String: string(j), Valid: j != nil}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

type stampOf struct{ *time.Time }

// Scan implements [sql.Scanner].
func (s stampOf) Scan(column any) (err error) {
	*s.Time, err = time.Parse(time.RFC3339Nano, fmt.Sprint(column))
	return err
}

// A jsonOf holds the value to write, or a pointer to read into. nil is NULL.
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

// Close closes the file. Without other processes, no log is left.
func (d *DB) Close() error {
	var err error
	if d.insert != nil {
		err = d.insert.Close()
	}
	err = errors.Join(err, d.sql.Close())
	if log, e := os.Lstat(d.path + "-wal"); d.how == reader && e == nil && log.Size() == 0 {
		// SQLite removes a reader's log when a connection that may write is closed, so open one. A log that stays does
		// no harm.
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
	// Environment is of the first run; nil before.
	Environment []study.Fact
	// Survey is the lab's nodes, machine and checks at the first run. It is nil before, for imported studies, and of
	// early releases.
	Survey json.RawMessage
}

// Create adds a study, or returns [ErrTaken].
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

// SetEnvironment stores s.Environment.
func (d *DB) SetEnvironment(ctx context.Context, s *Study) error {
	_, err := d.sql.ExecContext(ctx, "UPDATE study SET environment = ? WHERE id = ?", jsonOf{s.Environment}, s.ID)
	return err
}

// SetSurvey stores s.Survey.
func (d *DB) SetSurvey(ctx context.Context, s *Study) error {
	_, err := d.sql.ExecContext(ctx, "UPDATE study SET survey = ? WHERE id = ?", text(s.Survey), s.ID)
	return err
}

// Remove deletes a study with all its data.
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

// Find returns the study of a name, or [ErrNoStudy].
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
	Raw    json.RawMessage // in the first sample of an invocation
	// Printed is the programs' output, set together with Raw. End writes it, Invocations reads it.
	Printed []bench.Stream
}

// Begin stores a run that starts now, and sets its number.
func (d *DB) Begin(ctx context.Context, of int64, r *study.Observation) error {
	r.Status = study.StatusRunning
	return d.change(ctx, func(tx *sql.Tx) error { return insertRun(ctx, tx, of, r) })
}

// insertRun stores NULL as the duration of a begun run, unlike that of one that took no time.
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

func nullable(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

// End stores the outcome of a run completely or not at all. failed are invocations without figures, as samples of
// bench.
func (d *DB) End(ctx context.Context, r *study.Observation, samples []Sample, failed ...json.RawMessage) error {
	ids := map[series]int64{}
	err := d.change(ctx, func(tx *sql.Tx) error { return d.end(ctx, tx, r, samples, failed, ids) })
	return d.learn(ids, err)
}

func (d *DB) end(ctx context.Context, tx *sql.Tx, r *study.Observation, samples []Sample, failed []json.RawMessage,
	ids map[series]int64) error {
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
}

// Add adds runs that were made in another file to a study, all or none, and gives them new numbers.
func (d *DB) Add(ctx context.Context, of int64, runs []*ImportedRun) error {
	ids := map[series]int64{}
	err := d.change(ctx, func(tx *sql.Tx) error {
		for _, r := range runs {
			if err := insertRun(ctx, tx, of, &r.Observation); err != nil {
				return err
			}
			if err := d.end(ctx, tx, &r.Observation, r.Samples, r.Failed, ids); err != nil {
				return err
			}
		}
		return nil
	})
	return d.learn(ids, err)
}

// Whole returns the runs of a study with their figures, in order of execution. It leaves out what tools have printed,
// which may unpack to any size.
func (d *DB) Whole(ctx context.Context, of int64) ([]*ImportedRun, error) {
	runs, err := d.Runs(ctx, of)
	if err != nil {
		return nil, err
	}
	samples, err := d.Samples(ctx, of)
	if err != nil {
		return nil, err
	}
	latencies, err := d.Latencies(ctx, of)
	if err != nil {
		return nil, err
	}
	var all []*ImportedRun
	for _, r := range runs {
		m := &ImportedRun{Observation: r}
		m.Histograms = latencies[r.Run]
		for len(samples) > 0 && samples[0].Run == r.Run {
			m.Samples, samples = append(m.Samples, samples[0]), samples[1:]
		}
		if m.Failed, err = query(ctx, d, func(row *sql.Rows, raw *json.RawMessage) error {
			return row.Scan((*[]byte)(raw))
		}, "SELECT raw FROM invocation WHERE run = ? AND n < 0 ORDER BY abs(n)", r.Run); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// learn remembers series once they are committed.
func (d *DB) learn(ids map[series]int64, err error) error {
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		maps.Copy(d.series, ids)
	}
	return err
}

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

// rowsAtOnce is limited: a statement costs more than a row, but the driver searches all arguments for each.
const rowsAtOnce = 100

type series struct {
	test, metric string
	bytes        int64
	unit         string
}

func (x *Sample) series() series { return series{x.Test, x.Metric, x.Bytes, x.Unit} }

func (d *DB) insertSeries(ctx context.Context, tx *sql.Tx, samples []Sample, ids map[series]int64) error {
	// A copy: the lock must not be held during queries.
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
			// DO NOTHING would return no row.
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

// insertSamples stores output and command line with the first figure only: they would take most of the file.
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
	defer many.Close() // ends with the transaction
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

// insertValues takes the run, the first value's number, then series and value of each. ROLLBACK on a duplicate spares
// SQLite keeping every page's contents for a rollback of the statement alone.
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

// Runs returns the runs of a study in order of execution, without figures and latencies.
func (d *DB) Runs(ctx context.Context, of int64) ([]study.Observation, error) {
	return query(ctx, d, func(row *sql.Rows, r *study.Observation) error {
		return row.Scan(&r.Run, &r.Block, &r.Place, &r.Attempt, jsonOf{&r.Cell}, &r.Status, stampOf{&r.Started},
			&r.Seconds, &r.Error, jsonOf{&r.Before}, jsonOf{&r.After})
	}, "SELECT id, block, place, attempt, cell, status, started, coalesce(seconds, 0), coalesce(error, ''), before, "+
		"after FROM run WHERE study = ? ORDER BY id", of)
}

// A figure identifies a value.
type figure struct{ run, n int64 }

// Samples returns the figures of a study, ordered by run.
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
	// A join costs more than reading the values. Names are read after them, so that a run that ends meanwhile has them.
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
