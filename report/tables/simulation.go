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

// mostPauses stopped senders are listed.
const mostPauses = 20

// Simulation returns flows, totals, and the longest queues as text.
func Simulation(r *simulate.Result) string {
	var b strings.Builder
	end := "until the last flow ended, " + words.Rate(r.Goodput) + " of payload"
	if r.Unfinished > 0 {
		end = fmt.Sprintf("until it stopped, with %s that had not ended", words.Count(r.Unfinished, "flow"))
	}
	how := "simulated"
	if r.Level == simulate.FlowLevel {
		how += " at flow level"
	}
	fmt.Fprintf(&b, "%s, %s: %s, %s, %s, seed %d; %s %s\n\n", r.Name, how, words.Count(r.Hosts, "host"),
		words.Count(r.Switches, "switch"), words.Count(len(r.Flows), "flow"), r.Seed, virtual(float64(r.Time)), end)
	if c, s := r.Completion, r.Slowdown; c != nil {
		g := show.NewGrid("of flows that ended", "median>", "p95>", "p99>", "p99.9>", "most>")
		g.Add("completion", virtual(c.Median), virtual(c.P95), virtual(c.P99), virtual(c.P999), virtual(c.Most))
		g.Add("slowdown", times(s.Median), times(s.P95), times(s.P99), times(s.P999), times(s.Most))
		b.WriteString(g.String() + "\n")
	}
	flows(&b, r)
	if r.Level == simulate.FlowLevel {
		usages(&b, r.Usages)
		return b.String()
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
	pauses(&b, r)
	return b.String()
}

// usages writes that no packet was simulated, and how far links are used.
func usages(b *strings.Builder, list []simulate.Usage) {
	b.WriteString("Rates were computed, and no packets but those that measured how far flows use a link together:\n")
	for i, u := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%d flows %.0f %%", u.Flows, 100*u.Share)
	}
	b.WriteString(". There are no queues, marks or pauses to show.\n")
}

// times formats a slowdown.
func times(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// flows writes how flows of each size did, if there are several sizes, collectives, and how fairly flows shared.
func flows(b *strings.Builder, r *simulate.Result) {
	if len(r.Sizes) > 1 {
		g := show.NewGrid("slowdown of", "flows>", "median>", "p95>", "p99>", "p99.9>")
		for _, s := range r.Sizes {
			q := s.Slowdown
			g.Add("up to "+strconv.FormatInt(s.To, 10)+" bytes", strconv.Itoa(s.Flows), times(q.Median), times(q.P95),
				times(q.P99), times(q.P999))
		}
		b.WriteString(g.String() + "\n")
	}
	if len(r.Collectives) > 0 {
		g := show.NewGrid("collective", "ranks>", "bytes>", "completion>", "on an empty network>", "bus bandwidth>")
		for i, k := range r.Collectives {
			if i == busiest {
				break
			}
			done, rate := virtual(float64(k.Completion)), words.Rate(k.BusBandwidth)
			if k.Completion == 0 {
				done, rate = "did not end", ""
			}
			g.Add(k.Pattern, strconv.Itoa(k.Ranks), words.Bytes(k.Bytes), done, virtual(float64(k.Ideal)), rate)
		}
		b.WriteString(g.String())
		if n := len(r.Collectives) - busiest; n > 0 {
			fmt.Fprintf(b, "and %s; -o json has all\n", words.Count(n, "other ring"))
		}
		b.WriteString("\n")
	}
	for _, f := range r.Fairness {
		fmt.Fprintf(b, "fairness of traffic[%d], %s, %s: %s (1 is equal rates)\n", f.Traffic, f.Pattern,
			words.Count(f.Flows, "flow"), times(f.Index))
	}
	if len(r.Fairness) > 0 {
		b.WriteString("\n")
	}
}

// pauses writes deadlocks, and the tree in which pauses spread from the queues at which congestion began.
func pauses(b *strings.Builder, r *simulate.Result) {
	for _, d := range r.Deadlocks {
		fmt.Fprintf(b, "\ndeadlock of pauses of priority %d since %s: %s wait for each other in a circle\n", d.Priority,
			virtual(float64(d.At)), strings.Join(d.Cycle, ", "))
	}
	by := map[string][]simulate.SpreadResult{}
	var roots []string
	for _, s := range r.Spread {
		if s.Root && len(by[s.Queue]) == 0 {
			roots = append(roots, s.Queue)
		}
		by[s.Queue] = append(by[s.Queue], s)
	}
	left := mostPauses
	var branch func(queue, indent string, seen map[string]bool)
	branch = func(queue, indent string, seen map[string]bool) {
		seen[queue] = true
		for _, s := range by[queue] {
			if left--; left < 0 {
				return
			}
			fmt.Fprintf(b, "%s%s, %s, %s\n", indent, s.Stopped, words.Count(int(s.Times), "time"),
				virtual(float64(s.Time)))
			if !seen[s.Stopped] {
				branch(s.Stopped, indent+"  ", seen)
			}
		}
	}
	for _, queue := range roots {
		if left > 0 {
			fmt.Fprintf(b, "\nqueue %s stopped\n", queue)
			branch(queue, "  ", map[string]bool{})
		}
	}
	if left < 0 {
		b.WriteString("and others; -o json has all\n")
	}
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
