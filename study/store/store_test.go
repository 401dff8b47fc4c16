package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/store"
)

func open(t testing.TB, path string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func newStudy(t testing.TB, db *store.DB) *store.Study {
	t.Helper()
	s := &store.Study{Name: "one", Spec: json.RawMessage(`{"name":"one"}`), Digest: "00", Lab: "name: pair\n",
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Rackless: "test"}
	if err := db.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	// special characters of URIs
	path := filepath.Join(t.TempDir(), "a?b%20 c", "studies.db")
	db := open(t, path)
	s := newStudy(t, db)
	r := &study.Observation{Block: 1, Place: 1, Attempt: 1, Cell: map[string]string{"placement": "pin"},
		Started: time.Date(2026, 1, 2, 3, 4, 6, 7, time.UTC), Before: &study.HostState{BootID: "a", CPUs: 2}}
	if err := db.Begin(t.Context(), s.ID, r); err != nil {
		t.Fatal(err)
	}
	samples := []store.Sample{
		{Run: r.Run, Test: "ib_write_lat", Metric: "latency_p99", Bytes: 2, Value: 12.5, Unit: "us",
			Raw: json.RawMessage(`{"tool":"perftest"}`)},
		{Run: r.Run, Test: "ib_write_lat", Metric: "latency_min", Bytes: 2, Value: 1e-300, Unit: "us"},
	}
	latencies := []study.Latencies{{Test: "ib_write_lat", Bytes: 2, Data: []byte{0, 1, 0xff}}}
	r.Status, r.Seconds, r.After, r.Histograms = study.StatusDone, 1.5, &study.HostState{BootID: "b"}, latencies
	if err := db.End(t.Context(), r, samples); err != nil {
		t.Fatal(err)
	}
	again, err := store.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	gotStudy, err := again.Find(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	gotRuns, err := again.Runs(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	gotSamples, err := again.Samples(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	gotLatencies, err := again.Latencies(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.Histograms = nil // returned by Latencies
	for _, diff := range []string{cmp.Diff(s, gotStudy), cmp.Diff([]study.Observation{*r}, gotRuns),
		cmp.Diff(samples, gotSamples), cmp.Diff(map[int64][]study.Latencies{r.Run: latencies}, gotLatencies)} {
		if diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if _, err := again.Find(t.Context(), "two"); !errors.Is(err, store.ErrNoStudy) || !strings.Contains(err.Error(),
		"has one") {
		t.Errorf("got %v", err)
	}
}

func closedFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.db")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	newStudy(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// No log stays after the last writer, not even after reading.
func TestAClosedFileIsRead(t *testing.T) {
	t.Parallel()
	path := closedFile(t)
	for range 2 {
		r, err := store.OpenReader(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		other, err := store.OpenReader(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []*store.DB{r, other} {
			if _, err := d.Find(t.Context(), "one"); err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if len(files) != 1 || err != nil {
		t.Errorf("%q, %v: a file that is read is to be the only one", files, err)
	}
}

// A reader does not remove the log of an active writer.
func TestAReaderThatClosesLeavesTheWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	first, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := store.OpenReader(t.Context(), path) // while there is no log
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	newStudy(t, db)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path + "-wal"); err != nil {
		t.Error(err)
	}
	if _, err := db.Find(t.Context(), "one"); err != nil {
		t.Error(err)
	}
}

// A read-only file system can be read.
func TestAFileThatCannotBeWrittenIsRead(t *testing.T) {
	const inside = "RACKLESS_TEST_READ_ONLY"
	if path := os.Getenv(inside); path != "" {
		r, err := store.OpenReader(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := r.Find(t.Context(), "one"); err != nil {
			t.Error(err)
		}
		return
	}
	t.Parallel()
	path := closedFile(t)
	if out, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces for this user: %v: %s", err, out)
	}
	cmd := exec.Command("unshare", "-rm", "sh", "-c",
		`mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -test.run="^$3\$"`, "sh",
		filepath.Dir(path), os.Args[0], t.Name())
	cmd.Env = append(os.Environ(), inside+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestReadersReadWhileOneWrites(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	db := open(t, path)
	s := newStudy(t, db)
	done := make(chan error)
	go func() {
		var err error
		for i := 1; i <= 50 && err == nil; i++ {
			r := &study.Observation{Block: i, Place: 1, Attempt: 1, Cell: map[string]string{},
				Started: time.Unix(int64(i), 0)}
			if err = db.Begin(context.Background(), s.ID, r); err == nil {
				r.Status = study.StatusDone
				err = db.End(context.Background(), r, []store.Sample{{Test: "t", Metric: "m", Value: 1, Unit: "us"},
					{Test: "t", Metric: "n", Value: 1, Unit: "us"}})
			}
		}
		done <- err
	}()
	for ended := false; !ended; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			ended = true
		default:
		}
		r, err := store.OpenReader(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := r.Runs(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		samples, err := r.Samples(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		finished := 0
		for _, run := range runs {
			if run.Status == study.StatusDone {
				finished++
			}
		}
		// All figures of a run become visible together.
		if len(samples)%2 != 0 || len(samples) < 2*finished {
			t.Errorf("%d runs are done, and there are %d figures", finished, len(samples))
		}
		r.Close()
	}
}

func TestAFileOfANewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	db := open(t, path)
	if err := db.Query(t.Context(), "PRAGMA user_version = 99", func([]string) error {
		return nil
	}, func([]any) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(),
		"its schema has version 99") {
		t.Errorf("got %v", err)
	}
}

func TestAFileThatIsNone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsRemovedIsGoneWithItsRuns(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "s.db"))
	s := newStudy(t, db)
	r := &study.Observation{Block: 1, Place: 1, Attempt: 1, Cell: map[string]string{}, Started: time.Unix(1, 0)}
	if err := db.Begin(t.Context(), s.ID, r); err != nil {
		t.Fatal(err)
	}
	if err := db.Begin(t.Context(), s.ID, &study.Observation{Block: 1, Place: 1, Attempt: 1,
		Cell: map[string]string{}}); err == nil {
		t.Error("one attempt was entered twice")
	}
	r.Status = study.StatusDone
	if err := db.End(t.Context(), r, []store.Sample{{Test: "t", Metric: "m", Value: 1, Unit: "us"}}); err != nil {
		t.Fatal(err)
	}
	if err := db.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if err := db.Remove(t.Context(), "one"); !errors.Is(err, store.ErrNoStudy) {
		t.Errorf("got %v", err)
	}
	for _, table := range []string{"study", "run", "sample"} {
		if err := db.Query(t.Context(), "SELECT 1 FROM "+table, func([]string) error {
			return nil
		}, func([]any) error { t.Errorf("%s has rows left", table); return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkSamples stores a million figures in a thousand runs, as the largest studies.
func BenchmarkSamples(b *testing.B) {
	samples := make([]store.Sample, 1000)
	for i := range samples {
		samples[i] = store.Sample{Test: "ib_write_lat", Metric: "latency_p99", Bytes: 1 << (i % 20), Value: float64(i) +
			0.25, Unit: "us"}
	}
	for b.Loop() {
		db := open(b, filepath.Join(b.TempDir(), "s.db"))
		s := newStudy(b, db)
		for i := range 1000 {
			r := &study.Observation{Block: i, Place: 1, Attempt: 1, Cell: map[string]string{"a": "b"},
				Started: time.Unix(int64(i), 0)}
			if err := db.Begin(b.Context(), s.ID, r); err != nil {
				b.Fatal(err)
			}
			r.Status = study.StatusDone
			if err := db.End(b.Context(), r, samples); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(1e6*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

// docs/study.md lists exactly the existing tables and columns.
func TestTheSchemaIsAsDocumented(t *testing.T) {
	t.Parallel()
	const doc = "../../docs/study.md"
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n| table | a row is | columns |\n")
	if !found {
		t.Fatalf("%s has no table of tables", doc)
	}
	section, _, _ = strings.Cut(section, "\n\n")
	remark, name := regexp.MustCompile(`\([^)]*\)`), regexp.MustCompile("`([a-z_]+)`")
	documented := make(map[string][]string)
	for _, row := range strings.Split(section, "\n")[1:] {
		var names []string
		for _, m := range name.FindAllStringSubmatch(remark.ReplaceAllString(row, ""), -1) {
			names = append(names, m[1])
		}
		documented[names[0]] = names[1:]
	}
	db := open(t, filepath.Join(t.TempDir(), "studies.db"))
	real := make(map[string][]string)
	const question = "SELECT o.name, c.name FROM sqlite_schema o, pragma_table_info(o.name) c WHERE o.type IN " +
		"('table', 'view') AND o.name NOT LIKE 'sqlite%' ORDER BY o.name, c.cid"
	err = db.Query(t.Context(), question, func([]string) error { return nil }, func(values []any) error {
		table, column := fmt.Sprint(values[0]), fmt.Sprint(values[1])
		real[table] = append(real[table], column)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(real, documented); diff != "" {
		t.Errorf("%s (-is +documented):\n%s", doc, diff)
	}
}

// A file on a network file system has no shared memory, which a reader of a log would need.
func TestAFileThatNobodyWritesNeedsNoSharedMemory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "part.db")
	w, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Create(t.Context(), &store.Study{Name: "a", Spec: []byte("{}"), Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if r, err := store.OpenFixed(t.Context(), path); err == nil {
		r.Close()
		t.Error("a file that is being written was opened")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := store.OpenFixed(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Find(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if files, err := filepath.Glob(path + "-*"); err != nil || len(files) > 0 {
		t.Errorf("files beside it: %q, %v", files, err)
	}
}
