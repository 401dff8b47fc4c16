package conduct_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/store"
)

// Earlier runs of the study itself predict better than other studies with the same tests.
func TestEarlierRunsSayHowLongOneTakes(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	spec := func(name, measure string) *study.Spec {
		s, err := study.Parse("s.yaml", fmt.Appendf(nil,
			"name: %s\nlab: l\nfactors: {placement: [default, pin]}\nmeasure: [%s]\nbudget: 20m\n", name, measure))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	add := func(s *study.Spec, imported string, seconds ...float64) {
		s.Imported = imported
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		x := &store.Study{Name: s.Name, Spec: text, Created: time.Unix(0, 0)}
		if err := db.Create(t.Context(), x); err != nil {
			t.Fatal(err)
		}
		for i, took := range seconds {
			r := &study.Observation{Block: 1, Place: i + 1, Attempt: 1, Cell: map[string]string{},
				Started: time.Unix(0, 0)}
			if err := db.Begin(t.Context(), x.ID, r); err != nil {
				t.Fatal(err)
			}
			if r.Status, r.Seconds = study.StatusDone, took; i == len(seconds)-1 {
				r.Status = study.StatusFailed
			}
			if err := db.End(t.Context(), r, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	const tests = "{test: iperf3, seconds: 3}, {test: ib_write_lat, bytes: 2, iterations: 200}"
	asked := spec("asked", tests)
	earlier := func(want time.Duration, wantRuns int) {
		t.Helper()
		if got, runs, err := conduct.Earlier(t.Context(), db, asked); err != nil || got != want || runs != wantRuns {
			t.Errorf("%v of %d runs, %v; want %v of %d", got, runs, err, want, wantRuns)
		}
	}
	earlier(0, 0)
	add(spec("longer", "{test: iperf3, seconds: 30}, {test: ib_write_lat, bytes: 2, iterations: 200}"), "", 60, 600)
	add(spec("fewer", "{test: iperf3, seconds: 3}"), "", 4, 600)
	add(spec("elsewhere", tests), "perftest", 9, 600)
	earlier(0, 0)
	// Order, metrics and CPUs do not matter.
	add(spec("other", "{test: ib_write_lat, bytes: 2, iterations: 200, metrics: [latency_p99], cpu: \"0\"}, {test: "+
		"iperf3, seconds: 3, control: true}"), "", 5, 6, 600)
	add(spec("another", tests), "", 10, 600)
	earlier(7*time.Second, 3)
	add(asked, "", 8, 600)
	earlier(8*time.Second, 1)
}
