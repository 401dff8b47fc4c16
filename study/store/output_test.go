package store_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/store"
)

func endedRun(t testing.TB, db *store.DB, s *store.Study, block int, samples []store.Sample,
	failed ...json.RawMessage) *study.Observation {
	t.Helper()
	r := &study.Observation{Block: block, Place: 1, Attempt: 1, Cell: map[string]string{},
		Started: time.Unix(int64(block), 0)}
	if err := db.Begin(t.Context(), s.ID, r); err != nil {
		t.Fatal(err)
	}
	r.Status = study.StatusDone
	if err := db.End(t.Context(), r, samples, failed...); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatToolsPrintedIsKeptByteByByte(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	db := open(t, path)
	s := newStudy(t, db)
	one, two, bad := json.RawMessage(`{"test":"a"}`), json.RawMessage(`{"test":"b"}`),
		json.RawMessage(`{"test":"c","error":"no"}`)
	printed := []bench.Stream{{Name: "client stderr", Text: []byte("\xff\x00\r\n")},
		{Name: "client stdout", Text: []byte(" a table \n\n")},
		{Name: "server stdout", Text: bytes.Repeat([]byte("1.25\n"), 5000)}}
	r := endedRun(t, db, s, 1, []store.Sample{
		{Test: "a", Metric: "m", Value: 1, Unit: "us", Raw: one, Printed: printed},
		{Test: "a", Metric: "n", Value: 1, Unit: "us"},
		{Test: "b", Metric: "m", Value: 1, Unit: "us", Raw: two},
	}, bad)
	endedRun(t, db, s, 2, nil)
	reader, err := store.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	got, err := reader.Invocations(t.Context(), r.Run)
	if err != nil {
		t.Fatal(err)
	}
	want := []store.Invocation{{N: 0, Raw: one, Printed: printed}, {N: 2, Raw: two}, {N: -1, Raw: bad}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := reader.Invocations(t.Context(), r.Run+1); err != nil || got != nil {
		t.Errorf("a run that started nothing: %v, %v", got, err)
	}
	if _, err := reader.Invocations(t.Context(), 99); err == nil || !strings.Contains(err.Error(), "has no run 99") {
		t.Errorf("a run that is not there: %v", err)
	}
	if err := db.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if err := db.Query(t.Context(), "SELECT count(*) FROM output", func([]string) error {
		return nil
	}, func(v []any) error {
		if v[0] != int64(0) {
			t.Errorf("%v streams are left of a study that was removed", v[0])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Published files may be read-only, so they are read without an upgrade.
func TestAFileWithoutOutputsIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	db := open(t, path)
	raw := json.RawMessage(`{"test":"a"}`)
	r := endedRun(t, db, newStudy(t, db), 1, []store.Sample{{Test: "a", Metric: "m", Value: 1, Unit: "us", Raw: raw}})
	old, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Exec("DROP TABLE output; PRAGMA user_version = 3"); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := store.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	got, err := reader.Invocations(t.Context(), r.Run)
	if diff := cmp.Diff([]store.Invocation{{Raw: raw}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if samples, err := reader.Samples(t.Context(), 1); err != nil || len(samples) != 1 {
		t.Errorf("%d figures, %v", len(samples), err)
	}
}

// BenchmarkOutputs stores a hundred latency tests of 20,000 latencies, and reports a stream's size.
func BenchmarkOutputs(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var text bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&text, "%d, %.3f\n", i, 120+20*rng.ExpFloat64())
	}
	var size int64
	for b.Loop() {
		path := filepath.Join(b.TempDir(), "s.db")
		db := open(b, path)
		s := newStudy(b, db)
		for i := range 100 {
			endedRun(b, db, s, i+1, []store.Sample{{Test: "ib_write_lat", Metric: "latency_p99", Bytes: 2, Value: 1,
				Unit: "us", Raw: json.RawMessage(`{}`),
				Printed: []bench.Stream{{Name: "client stdout", Text: text.Bytes()}}}})
		}
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		size = info.Size()
	}
	b.ReportMetric(float64(text.Len()), "B/printed")
	b.ReportMetric(float64(size)/100, "B/stored")
	b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(100*b.N), "ms/run")
}
