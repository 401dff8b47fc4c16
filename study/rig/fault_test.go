package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/store"
	"github.com/rackless/rackless/vm/guest"
)

type faultyRig struct {
	*Rig
	t     *testing.T
	run   int                      // starts at 1
	fault map[int]func(*faultyRig) // by run, called before measuring
}

func (f *faultyRig) Measure(ctx context.Context, m study.Measure) ([]bench.Sample, error) {
	f.run++
	if fault := f.fault[f.run]; fault != nil {
		fault(f)
	}
	return f.Rig.Measure(ctx, m)
}

// State omits this machine's load: other tests would disturb each run.
func (f *faultyRig) State(float64) (*study.HostState, error) {
	s, err := f.Rig.State(0)
	if err == nil {
		s.Steal, s.Busy, s.Own, s.Throttles = 0, 0, 0, 0
	}
	return s, err
}

func (f *faultyRig) sh(node, script string) {
	f.t.Helper()
	res, err := f.rack.Run(f.t.Context(), node, guest.Command{Argv: []string{"sh", "-c", script}})
	if err != nil || res.ExitCode != 0 {
		f.t.Errorf("%s: %s: %v: %s", node, script, err, res.Stderr)
	}
}

func (f *faultyRig) kill(node string) {
	f.t.Helper()
	for _, n := range f.rack.State.Nodes {
		if n.Name == node {
			if err := syscall.Kill(n.Process.PID, syscall.SIGKILL); err != nil {
				f.t.Error(err)
			}
		}
	}
}

// A failed run has a reason and no figures, and the study continues.
func TestFaultsOfNodesAndToolsLeaveNoFigure(t *testing.T) {
	t.Parallel()
	dirs := nodeDirs(t)
	file := filepath.Join(dirs.Run, "lab.yaml")
	if err := os.WriteFile(file, []byte("name: faulty\nnodes:\n  vm: {count: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec, err := study.Parse("study.yaml",
		[]byte("name: faulty\nlab: lab.yaml\nblocks: 2\nmeasure: [{test: ib_write_lat, bytes: 2, iterations: "+
			"20}]\nfactors:\n  link.delay: [\"0\", 1ms]\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(dirs, spec, file, rack.Options{Accel: "tcg"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := rack.Down(context.Background(), dirs, "faulty"); err != nil {
			t.Error(err)
		}
	})
	const program = "/usr/bin/ib_write_lat"
	f := &faultyRig{Rig: r, t: t}
	stand := func(script string) func(*faultyRig) { // on the client
		return func(f *faultyRig) {
			f.sh("vm01", "cp "+program+" /tmp/real; printf '#!/bin/sh\\n"+script+
				"\\n' > /tmp/false; chmod +x /tmp/false; mount --bind /tmp/false "+program)
		}
	}
	f.fault = map[int]func(*faultyRig){
		2: func(f *faultyRig) {
			go func() {
				time.Sleep(200 * time.Millisecond)
				f.kill("vm00")
			}()
		},
		4: stand("echo all is lost; echo garbage"),
		5: func(f *faultyRig) { // digits of another locale
			f.sh("vm01", "umount "+program)
			stand(`LC_ALL=C /tmp/real "$@" | sed "s/\\\\([0-9]\\\\)[.]\\\\([0-9]\\\\)/\\\\1,\\\\2/g"`)(f)
		},
		6: func(f *faultyRig) { f.sh("vm01", "umount "+program) },
		7: func(f *faultyRig) { // hangs after printing some output
			f.limit = 3 * time.Second
			stand(`[ "$1" != --version ] || exec /tmp/real --version; echo half a table; exec sleep 4242`)(f)
		},
		8: func(f *faultyRig) {
			f.limit = 0
			f.sh("vm01", "umount "+program+"; ! grep -l -a [4]242 /proc/[0-9]*/cmdline 2>/dev/null")
		},
	}
	db, err := store.Open(t.Context(), filepath.Join(dirs.Run, "s.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	s := &store.Study{Name: "faulty", Spec: text, Created: time.Unix(0, 0), Rackless: "test"}
	if err := db.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	c := &conduct.Conductor{DB: db, Study: s, Spec: spec, Rig: f}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	rec, err := conduct.Load(t.Context(), db, "faulty")
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	for _, o := range rec.Data.Runs {
		if (o.Status == study.StatusFailed) != (len(o.Values) == 0) {
			t.Errorf("run %d: %s with %d figures", o.Run, o.Status, len(o.Values))
		}
		if o.Status == study.StatusFailed {
			failed = append(failed, o.Error)
			t.Logf("failed: %s", o.Error)
		}
	}
	if len(failed) != 4 {
		t.Fatalf("%d runs failed, want 4: %q", len(failed), failed)
	}
	var outputs []string
	err = db.Query(t.Context(), "SELECT coalesce(json_extract(raw, '$.output'), '') FROM invocation WHERE n < 0 "+
		"ORDER BY run", func([]string) error {
		return nil
	}, func(values []any) error {
		outputs = append(outputs, fmt.Sprint(values...))
		return nil
	})
	if err != nil || len(outputs) != 4 {
		t.Fatalf("what the tools printed in %d runs is kept, want 4: %v", len(outputs), err)
	}
	for i, want := range []struct{ reason, output string }{
		{"", ""}, // gone with the node
		{"garbage", "all is lost\ngarbage\n"},
		{"read result of perftest", "#bytes"},
		{"no result within 8s", "client on vm01, stdout:\nhalf a table\n"},
	} {
		if !strings.Contains(failed[i], want.reason) || !strings.Contains(outputs[i], want.output) {
			t.Errorf("run %d failed for %s, and its output is\n%s\nwant %q and %q", i+1, failed[i], outputs[i],
				want.reason, want.output)
		}
	}
}
