//go:build linux

package tables

import (
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/simulate"
)

// The text has the longest queues only, and the number of others.
func TestSimulation(t *testing.T) {
	r := &simulate.Result{Name: "incast", Seed: 7, Hosts: 9, Switches: 1, Time: 1234567 * time.Nanosecond,
		Goodput:    9.2e10,
		Completion: &simulate.Quantiles{Median: 980, P95: 12345, P99: 1234567, P999: 1.3e9, Most: 1.5e9},
		Slowdown:   &simulate.Quantiles{Median: 1, P95: 2.5, P99: 3.25, P999: 3.5, Most: 4},
		Counts:     simulate.Counts{Marks: 11, CNPsUsed: 3, Pauses: 2, Drops: 1},
		Flows:      make([]simulate.FlowResult, 8)}
	for i := range 12 {
		r.Queues = append(r.Queues, simulate.QueueResult{Port: "s0:" + string(rune('a'+i)), P99: int64(1 + i%3),
			SenderPause: 5 * time.Microsecond})
	}
	got := Simulation(r)
	lines := map[string]bool{}
	for line := range strings.Lines(got) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"incast, simulated: 9 hosts, 1 switch, 8 flows, seed 7; 1.235ms until the last flow ended, " +
			"92.0 Gb/s of payload",
		"completion 980ns 12.345us 1.235ms 1.3s 1.5s", "slowdown 1.00 2.50 3.25 3.50 4.00", "marked by ECN 11",
		"and 2 other queues; -o json has all",
	} {
		if !lines[want] {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	r.Switches = 6
	r.Unfinished, r.Completion, r.Slowdown = 8, nil, nil
	if text := Simulation(r); strings.Contains(text, "completion") ||
		!strings.Contains(text, "9 hosts, 6 switches, ") || !strings.Contains(text, "8 flows that had not ended") {
		t.Errorf("without a flow that ended:\n%s", text)
	}
	if first, last := strings.Index(got, "s0:c"), strings.Index(got, "s0:a"); first < 0 || first > last {
		t.Errorf("the longest queue is not first:\n%s", got)
	}
}

// The text has slowdowns by size, collectives, fairness, deadlocks, and pauses as a tree that begins at its roots.
func TestSimulationParts(t *testing.T) {
	q := &simulate.Quantiles{Median: 1, P95: 2, P99: 3, P999: 4}
	r := &simulate.Result{Sizes: []simulate.SizeResult{{To: 1000, Flows: 7, Slowdown: q},
		{From: 1000, To: 10000, Flows: 8, Slowdown: q}},
		Collectives: []simulate.CollectiveResult{{Pattern: "ring-all-reduce", Ranks: 8, Bytes: 1 << 20,
			Completion: time.Millisecond, Ideal: 900 * time.Microsecond, BusBandwidth: 3e10}, {Pattern: "x"}},
		Fairness:  []simulate.FairnessResult{{Traffic: 1, Pattern: "incast", Flows: 8, Index: 0.987}},
		Deadlocks: []simulate.Deadlock{{At: time.Millisecond, Priority: 3, Cycle: []string{"s0:1", "s1:2"}}},
		Spread: []simulate.SpreadResult{{Queue: "s0:0", Root: true, Stopped: "h1", Times: 1, Time: time.Microsecond},
			{Queue: "s0:0", Root: true, Stopped: "s3:0", Times: 5, Time: time.Millisecond},
			{Queue: "s3:0", Stopped: "h7", Times: 2, Time: 3 * time.Microsecond},
			{Queue: "s3:0", Stopped: "s0:0", Times: 2, Time: 3 * time.Microsecond}}}
	got := Simulation(r)
	for _, want := range []string{
		"up to 10000 bytes", "ring-all-reduce", "did not end",
		"fairness of traffic[1], incast, 8 flows: 0.99 (1 is equal rates)",
		"deadlock of pauses of priority 3 since 1ms: s0:1, s1:2 wait for each other in a circle",
		"queue s0:0 stopped\n  h1, 1 time, 1us\n  s3:0, 5 times, 1ms\n    h7, 2 times, 3us\n    s0:0, 2 times, 3us\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
