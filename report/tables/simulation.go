//go:build linux

package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/simulate"
	"github.com/rackless/rackless/report/show"
)

// busiest queues are listed; the JSON has all.
const busiest = 10

// Simulation returns flows, totals, and the longest queues as text.
func Simulation(r *simulate.Result) string {
	var b strings.Builder
	end := "until the last flow ended, " + words.Rate(r.Goodput) + " of payload"
	if r.Unfinished > 0 {
		end = fmt.Sprintf("until it stopped, with %s that had not ended", words.Count(r.Unfinished, "flow"))
	}
	fmt.Fprintf(&b, "%s, simulated: %s, %s, %s, seed %d; %s %s\n\n", r.Name, words.Count(r.Hosts, "host"),
		words.Count(r.Switches, "switch"), words.Count(len(r.Flows), "flow"), r.Seed, virtual(float64(r.Time)), end)
	if c, s := r.Completion, r.Slowdown; c != nil {
		g := show.NewGrid("of flows that ended", "median>", "p95>", "p99>", "most>")
		g.Add("completion", virtual(c.Median), virtual(c.P95), virtual(c.P99), virtual(c.Most))
		times := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
		g.Add("slowdown", times(s.Median), times(s.P95), times(s.P99), times(s.Most))
		b.WriteString(g.String() + "\n")
	}
	k := r.Counts
	g := show.NewGrid("count", "of packets>")
	for _, row := range []struct {
		name string
		n    uint64
	}{
		{"marked by ECN", k.Marks}, {"CNPs that slowed a sender", k.CNPsUsed}, {"pauses", k.Pauses}, {"dropped",
			k.Drops},
		{"out of sequence", k.OutOfSequence}, {"repeated without need", k.Duplicates},
		{"NAKs that made a sender go back", k.GoBacks}, {"timeouts", k.Timeouts},
	} {
		g.Add(row.name, strconv.FormatUint(row.n, 10))
	}
	b.WriteString(g.String())
	if len(r.Queues) > 0 {
		b.WriteString("\n" + queueGrid(r.Queues).String())
	}
	if n := len(r.Queues) - busiest; n > 0 {
		fmt.Fprintf(&b, "and %s; -o json has all\n", words.Count(n, "other queue"))
	}
	return b.String()
}

// queueGrid keeps equal queues in the order of ports.
func queueGrid(queues []simulate.QueueResult) *show.Grid {
	list := slices.Clone(queues)
	slices.SortStableFunc(list, func(a, b simulate.QueueResult) int { return cmp.Compare(b.P99, a.P99) })
	g := show.NewGrid("queue", "median>", "p99>", "most>", "marked>", "drops>", "pauses>", "sender paused>")
	for _, q := range list[:min(len(list), busiest)] {
		g.Add(q.Port, words.Bytes(q.Median), words.Bytes(q.P99), words.Bytes(q.Most), strconv.FormatUint(q.Marks, 10),
			strconv.FormatUint(q.Drops, 10), strconv.FormatUint(q.Pauses, 10), virtual(float64(q.SenderPause)))
	}
	return g
}

// virtual takes nanoseconds.
func virtual(ns float64) string {
	d := time.Duration(ns)
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return strings.ReplaceAll(d.Round(unit/1000).String(), "µ", "u")
		}
	}
	return d.String()
}
