package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackless/rackless/study/store"
)

// hostile statements would change the file, its directory or later statements. DIR and DB stand for them.
var hostile = []string{
	"DELETE FROM study",
	"DROP TABLE run",
	"INSERT INTO study DEFAULT VALUES",
	"UPDATE study SET name = 'x'",
	"WITH one AS (SELECT 1) DELETE FROM study",
	"WITH one AS (SELECT 1) INSERT INTO study DEFAULT VALUES",
	"REPLACE INTO study(id) VALUES (1)",
	"PRAGMA user_version = 7",
	"PRAGMA query_only = 0",
	"PRAGMA query_only(0)",
	"EXPLAIN PRAGMA query_only = 0",
	"PRAGMA query_only = 0; DELETE FROM study",
	"PRAGMA query_only=0; ATTACH 'DB' AS y; DELETE FROM y.study",
	"ATTACH 'DIR/new.db' AS y",
	"ATTACH 'file:DB?mode=rwc' AS y",
	"PRAGMA query_only=0; ATTACH 'DIR/new.db' AS y; CREATE TABLE y.t(a)",
	"VACUUM",
	"VACUUM INTO 'DIR/copy.db'",
	"PRAGMA query_only=0; VACUUM INTO 'DIR/copy.db'",
	"CREATE TABLE t(a)",
	"CREATE TEMP TABLE t(a)",
	"CREATE TEMP TRIGGER t AFTER INSERT ON study BEGIN DELETE FROM run; END",
	"CREATE VIRTUAL TABLE temp.t USING fts5(a)",
	"ALTER TABLE study RENAME TO gone",
	"PRAGMA journal_mode = DELETE",
	"PRAGMA main.journal_mode(OFF)",
	"PRAGMA wal_checkpoint(TRUNCATE)",
	"PRAGMA writable_schema = 1",
	"PRAGMA trusted_schema = 1",
	"PRAGMA temp_store_directory = 'DIR'",
	"PRAGMA locking_mode = EXCLUSIVE",
	"PRAGMA incremental_vacuum",
	"ANALYZE",
	"REINDEX",
	"BEGIN IMMEDIATE",
	"SAVEPOINT s",
	"DETACH main",
	"SELECT load_extension('DIR/evil.so')",
	"SELECT writefile('DIR/new', 'x')",
	"SELECT edit('x', 'touch DIR/new')",
	"SELECT fts3_tokenizer('x', x'0000000000000000')",
	"SELECT 1; SELECT 2",
	"SELECT 1 /* ; */; -- two\nDELETE FROM study",
	"SELECT ';', \";\", [;], `;` -- ;\n; DELETE FROM study",
	"SELECT $x(';); DELETE FROM study --')",
	"SELECT ?",
	"SELECT 'not closed",
	"/* not closed",
	" ; -- nothing",
	"",
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(b))
	}
	return files
}

func ask(t *testing.T, path, question string) (rows []string, err error) {
	t.Helper()
	r, err := store.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	err = r.Query(t.Context(), question, func([]string) error { return nil }, func(v []any) error {
		rows = append(rows, fmt.Sprint(v...))
		return nil
	})
	return rows, err
}

func TestNoStatementChangesTheFileOrItsDirectory(t *testing.T) {
	t.Parallel()
	closed := closedFile(t)
	written := filepath.Join(t.TempDir(), "s.db")
	newStudy(t, open(t, written))
	for what, path := range map[string]string{"nobody writes": closed, "somebody writes": written} {
		dir := filepath.Dir(path)
		before := contents(t, dir)
		// The log's index changes with each reader, and has no data.
		delete(before, "s.db-shm")
		for _, q := range hostile {
			q = strings.NewReplacer("DIR", dir, "DB", path).Replace(q)
			if rows, err := ask(t, path, q); err == nil {
				t.Errorf("%s: %q: no error, and answers %q", what, q, rows)
			}
			after := contents(t, dir)
			delete(after, "s.db-shm")
			if !maps.Equal(before, after) {
				t.Fatalf("%s: %q changes the directory from %v to %v", what, q, before, after)
			}
		}
	}
}

func TestStatementsThatReadAreAnswered(t *testing.T) {
	t.Parallel()
	written := filepath.Join(t.TempDir(), "s.db")
	newStudy(t, open(t, written))
	for _, path := range []string{closedFile(t), written} {
		for q, want := range map[string]string{
			"SELECT name FROM study":                             "[one]",
			"select name from study ; ; -- the only one\n;":      "[one]",
			"/* a ; b */ SELECT name FROM study":                 "[one]",
			"-- first\nVALUES (1), (2);":                         "[1 2]",
			"VALUES(';')":                                        "[;]",
			`SELECT ';', "name", [name], ` + "`name` FROM study": "[;oneoneone]",
			"SELECT 'it''s; so'":                                 "[it's; so]",
			"WITH t(a) AS (SELECT 1) SELECT a FROM t":            "[1]",
			"SELECT json_extract(spec, '$.name') FROM study":     "[one]",
			"SELECT spec ->> 'name' FROM study":                  "[one]",
			"SELECT count(*) FROM pragma_table_info('study')":    "[9]",
			"SELECT DISTINCT 'DELETE FROM study' FROM study":     "[DELETE FROM study]",
			"SELECT 1 AS drop_it ORDER BY 1":                     "[1]",
			"SELECT count(*) FROM sample":                        "[0]",
		} {
			if got, err := ask(t, path, q); err != nil || fmt.Sprint(got) != want {
				t.Errorf("%q: got %v, %v, want %s", q, got, err, want)
			}
		}
		for _, q := range []string{"PRAGMA table_info(study)", "pragma table_list", "EXPLAIN SELECT 1",
			"EXPLAIN QUERY PLAN SELECT * FROM study"} {
			if got, err := ask(t, path, q); err != nil || len(got) == 0 {
				t.Errorf("%q: got %v, %v", q, got, err)
			}
		}
	}
}

// A query without a second row ends with its context.
func TestAQueryWithoutEndIsStopped(t *testing.T) {
	t.Parallel()
	path := closedFile(t)
	before := contents(t, filepath.Dir(path))
	r, err := store.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("long enough")
	err = r.Query(ctx, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "+
		"SELECT 0 UNION ALL SELECT count(*) FROM c", func([]string) error { return nil }, func([]any) error {
		cancel(why)
		return nil
	})
	if !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if after := contents(t, filepath.Dir(path)); !maps.Equal(before, after) {
		t.Errorf("the directory changed from %v to %v", before, after)
	}
}

// A limit may pass at any moment, also between the beginning of a query and its first step.
func TestAQueryIsStoppedFromItsFirstMoment(t *testing.T) {
	t.Parallel()
	r, err := store.OpenReader(t.Context(), closedFile(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for limit := time.Duration(0); limit < 2*time.Millisecond; limit += 50 * time.Microsecond {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := r.Query(ctx, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
			func([]string) error { return nil }, func([]any) error { return nil })
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("after %v: %v", limit, err)
		}
	}
}

func TestWhatIsNoFileIsNotOpened(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero", t.TempDir()} {
		if _, err := store.OpenReader(t.Context(), path); err == nil {
			t.Errorf("%s was opened to be read", path)
		}
		if _, err := store.Open(t.Context(), path); err == nil {
			t.Errorf("%s was opened to be written", path)
		}
	}
}
