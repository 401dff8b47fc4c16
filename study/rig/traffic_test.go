package rig

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/vm/guest"
)

func TestTrafficTakesNodesThatAreNotMeasured(t *testing.T) {
	t.Parallel()
	const factors = "  contention: [idle, network]\n"
	if _, err := newRig(t, "name: four\nnodes:\n  vm: {count: 4}\n", factors); err != nil {
		t.Error(err)
	}
	const want = "it takes two nodes with a NIC that are not measured, and lab three has one besides vm01 and vm00: " +
		"give nodes a count of 4"
	if _, err := newRig(t, "name: three\nnodes:\n  vm: {count: 3}\n", factors); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := newRig(t, pairLab, factors); err == nil || !strings.Contains(err.Error(), "has none besides") {
		t.Errorf("a pair: %v", err)
	}
}

// Real nodes send until traffic is stopped.
func TestTrafficFlowsBetweenNodesUntilItIsStopped(t *testing.T) {
	t.Parallel()
	dirs := nodeDirs(t)
	file := filepath.Join(dirs.Run, "lab.yaml")
	if err := os.WriteFile(file, []byte("name: crowd\nnodes:\n  vm: {count: 4}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec, err := study.Parse("study.yaml",
		[]byte("name: s\nlab: lab.yaml\nmeasure: [{test: iperf3}]\nfactors:\n  contention: [idle, network]\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(dirs, spec, file, rack.Options{Accel: "tcg"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	t.Cleanup(func() {
		if _, err := rack.Down(context.Background(), dirs, "crowd"); err != nil {
			t.Error(err)
		}
	})
	network := map[string]string{study.FactorContention: study.ContentionNetwork}
	if err := r.Apply(ctx, network); err != nil {
		t.Fatal(err)
	}
	if r.load != nil {
		t.Error("there is load before the noise floor could be measured")
	}
	if err := r.Load(ctx, network); err != nil {
		t.Fatal(err)
	}
	load := r.load.(*traffic)
	if len(load.among) != 2 || load.among[0].Name != "vm02" || load.among[1].Name != "vm03" {
		t.Errorf("load between %v, want the two nodes that are not measured", load.among)
	}
	// The rate depends on this machine.
	before, err := load.sent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first node goes on sending", func() bool {
		now, err := load.sent(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return now-before > leastTraffic
	})
	if err := r.Rest(ctx); err != nil {
		t.Fatal(err)
	}
	for _, n := range load.among {
		eventually(t, "no stream is left on "+n.Name, func() bool {
			script := guest.Command{Argv: []string{"sh", "-c", "grep -lx iperf3 /proc/[0-9]*/comm 2>/dev/null"}}
			res, err := r.rack.Run(ctx, n.Name, script)
			if err != nil {
				t.Fatal(err)
			}
			return len(res.Stdout) == 0
		})
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("after two minutes it is not so that %s", what)
		}
	}
}
