package store

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/study"
)

// The upgrade keeps all contents.
func TestAnOldFileIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	old, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		migrations()[0], "PRAGMA user_version = 1",
		"INSERT INTO study (id, name, spec, digest, lab, created, rackless) VALUES (1, 's', '{}', '', '', " +
			"'2026-01-02T03:04:05Z', 'v0')",
		"INSERT INTO run (id, study, block, place, attempt, cell, status, started) VALUES (7, 1, 1, 1, 1, '{}', " +
			"'done', '2026-01-02T03:04:05Z')",
		"INSERT INTO series (id, test, metric, bytes, unit) VALUES (3, 'ib_write_lat', 'latency_p99', 2, 'us')",
		"INSERT INTO value (run, n, series, value) VALUES (7, 0, 3, 1.25), (7, 1, 3, 2.5)",
	} {
		if _, err := old.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(t.Context(), path); err == nil {
		t.Error("a file of an older version was opened for questions, which cannot change it")
	}
	db, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	got, err := db.Samples(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []Sample{{Run: 7, Test: "ib_write_lat", Metric: "latency_p99", Bytes: 2, Value: 1.25, Unit: "us"},
		{Run: 7, Test: "ib_write_lat", Metric: "latency_p99", Bytes: 2, Value: 2.5, Unit: "us"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("figures (-old +new):\n%s", diff)
	}
	var seen, version int
	if err := db.sql.QueryRowContext(context.Background(), "SELECT count(*) FROM sample WHERE study = 's'").
		Scan(&seen); err != nil || seen != 2 {
		t.Errorf("the view has %d figures, %v", seen, err)
	}
	if err := db.sql.QueryRowContext(context.Background(), "PRAGMA user_version").Scan(&version); err != nil ||
		version != len(migrations()) {
		t.Errorf("version %d, %v", version, err)
	}
	lost := &study.Observation{Run: 99, Status: study.StatusDone, Started: time.Unix(0, 0)}
	if err := db.End(t.Context(), lost, got[:1]); err == nil {
		t.Error("figures of a run that is not there were taken")
	}
	if err := db.Remove(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if err := db.sql.QueryRowContext(context.Background(), "SELECT count(*) FROM value").Scan(&seen); err != nil ||
		seen != 0 {
		t.Errorf("%d figures of a study that was removed, %v", seen, err)
	}
}
