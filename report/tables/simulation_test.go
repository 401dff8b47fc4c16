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
		Completion: &simulate.Quantiles{Median: 980, P95: 12345, P99: 1234567, Most: 1.5e9},
		Slowdown:   &simulate.Quantiles{Median: 1, P95: 2.5, P99: 3.25, Most: 4},
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
		"completion 980ns 12.345us 1.235ms 1.5s", "slowdown 1.00 2.50 3.25 4.00", "marked by ECN 11",
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
