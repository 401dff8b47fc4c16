package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/store"
)

func TestResultsRawPrintsWhatToolsPrinted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	s := &store.Study{Name: "one", Spec: json.RawMessage(`{}`), Created: time.Unix(0, 0)}
	if err := db.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	raw := func(s bench.Sample) json.RawMessage {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for block := 1; block <= 2; block++ {
		r := &study.Observation{Block: block, Place: 1, Attempt: 1, Cell: map[string]string{},
			Started: time.Unix(1, 0)}
		if err := db.Begin(t.Context(), s.ID, r); err != nil {
			t.Fatal(err)
		}
		r.Status = study.StatusFailed
		var samples []store.Sample
		var failed []json.RawMessage
		if block == 1 {
			failed = []json.RawMessage{raw(bench.Sample{Test: "iperf3", Client: "vm01", Server: "vm00",
				Command: "iperf3 -c", Error: "attempt 1: refused",
				Output: "attempt 1:\nclient on vm01, stdout:\nno\n"})}
			samples = []store.Sample{
				{Test: "ib_write_lat", Metric: "latency_p99", Bytes: 2, Value: 1, Unit: "us",
					Raw: raw(bench.Sample{Test: "ib_write_lat", Client: "vm01", Server: "vm00",
						Command: "ib_write_lat -F 10.0.0.1", ServerCommand: "ib_write_lat -F"}),
					Printed: []bench.Stream{{Name: "client stdout", Text: []byte(" #bytes\n 2\n\n")},
						{Name: "server stderr", Text: []byte("no newline")}}},
				{Test: "ping", Metric: "latency_average", Value: 1, Unit: "us", Raw: raw(bench.Sample{Test: "ping"})},
			}
		}
		if err := db.End(t.Context(), r, samples, failed...); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	const all = `== ib_write_lat
client on vm01: ib_write_lat -F 10.0.0.1
server on vm00: ib_write_lat -F
-- client stdout
 #bytes
 2

-- server stderr
no newline

== ping
nothing of what it printed was kept

== iperf3
client on vm01: iperf3 -c
failed: attempt 1: refused
attempt 1:
client on vm01, stdout:
no
`
	for _, tt := range []struct {
		run  string
		code int
		want string
	}{
		{"1", 0, all},
		{"2", exitFailed, "rackless: run 2 has started no tool\n"},
		{"3", exitFailed, fmt.Sprintf("rackless: %s has no run 3\n", path)},
		{"one", exitUsage, "rackless: study raw: run \"one\": want a number, as the column run of the view sample " +
			"has them\nsee: rackless study raw --help\n"},
		{"-1", exitUsage, "rackless: study raw: run \"-1\": want a number"},
	} {
		a, out, stderr := testApp(t)
		code := a.run(t.Context(), []string{"study", "raw", "--db", path, "--", tt.run})
		if got := out.String() + stderr.String(); code != tt.code || !strings.HasPrefix(got, tt.want) {
			t.Errorf("run %s: status %d, got\n%s\nwant status %d and\n%s", tt.run, code, got, tt.code, tt.want)
		}
	}
}
