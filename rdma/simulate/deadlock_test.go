package simulate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// circleText is a ring of switches with a host each, whose flows take two links of the ring, so that each link of it
// has twice the traffic that it carries, and each waits for the next one.
func circleText(switches int, links string) string {
	var b strings.Builder
	b.WriteString("topology: {form: links, rate: 100Gbit, links: [")
	for i := range switches {
		fmt.Fprintf(&b, "{from: h%d, to: s%d}, {from: s%d, to: s%d}, ", i, i, i, (i+1)%switches)
	}
	b.WriteString(links + "]}\nswitch: {buffer: 512KiB}\nnic: {congestion: none, window: 100000, ack_timeout: 6}\n" +
		"until: 200ms\ntraffic:\n")
	for i := range switches {
		fmt.Fprintf(&b, "- {pattern: flow, from: [h%d], to: h%d, bytes: 20MiB}\n", i, (i+2)%switches)
	}
	return b.String()
}

// A circle of switches that pause each other is a deadlock, with all of its links in their order.
func TestDeadlockIsNamedWithItsCircle(t *testing.T) {
	r := Run(config(t, circleText(5, "")), never)
	want := []string{"s0:1", "s1:2", "s2:2", "s3:2", "s4:2"}
	if len(r.Deadlocks) != 1 || !slices.Equal(r.Deadlocks[0].Cycle, want) || r.Deadlocks[0].Priority != 3 ||
		r.Deadlocks[0].At > 5*time.Millisecond {
		t.Fatalf("%+v, want one of %v", r.Deadlocks, want)
	}
	if r.Unfinished == 0 {
		t.Error("all flows ended")
	}
}

// Pauses of a network without a circle are no deadlock, however long they last.
func TestIncastIsNoDeadlock(t *testing.T) {
	r := Run(config(t, "topology: {form: leaf-spine, hosts: 4, leaves: 3, spines: 1, rate: 100Gbit}\n"+
		"switch: {buffer: 1MiB}\nnic: {congestion: none, window: 4000000}\n"+
		"faults: [{link: h0, rate: 100Mbit, at: 10us}]\nuntil: 100ms\n"+
		"traffic: [{pattern: incast, to: h0, senders: 11, bytes: 2MiB}]"), never)
	if r.Counts.Pauses == 0 || len(r.Deadlocks) > 0 {
		t.Errorf("%d pauses, deadlocks %+v", r.Counts.Pauses, r.Deadlocks)
	}
}

// Pauses spread from the queue of the receiver to its leaf's hosts and to the spine, and from there on.
func TestTreeOfPauses(t *testing.T) {
	r := Run(config(t, "topology: {form: leaf-spine, hosts: 4, leaves: 3, spines: 1, rate: 100Gbit}\n"+
		"switch: {buffer: 1MiB}\nnic: {congestion: none, window: 4000000}\n"+
		"traffic: [{pattern: incast, to: h0, senders: 11, bytes: 2MiB}]"), never)
	stopped := map[string]bool{}
	for _, s := range r.Spread {
		if s.Root != (s.Queue == "s0:0") || s.Times == 0 || s.Time <= 0 {
			t.Errorf("%+v", s)
		}
		stopped[s.Queue+" "+s.Stopped] = true
	}
	for _, want := range []string{"s0:0 h1", "s0:0 s3:0", "s3:0 s1:4", "s1:4 h4"} {
		if !stopped[want] {
			t.Errorf("no pause %q among %v", want, stopped)
		}
	}
	var times time.Duration
	for _, q := range r.Queues {
		times += q.SenderPause
	}
	for _, s := range r.Spread {
		times -= s.Time
	}
	if times != 0 {
		t.Errorf("times of pauses differ by %v", times)
	}
}
