package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Each form has the hosts, switches and ports that its numbers say, and all hosts reach each other on shortest paths.
func TestTopologies(t *testing.T) {
	for _, c := range []struct {
		text            string
		hosts, switches int
		ports           int // of all switches
		hops            int // links of the longest path
		paths           int // equal ones from the first host to the last, at its first switch
	}{
		{"form: star, hosts: 5", 5, 1, 5, 2, 0},
		{"form: leaf-spine, hosts: 3, leaves: 4, spines: 2", 12, 6, 12 + 16, 4, 2},
		{"form: leaf-spine, hosts: 3, leaves: 4, spines: 2, lag: 3", 12, 6, 12 + 48, 4, 6},
		{"form: fat-tree, k: 4", 16, 20, 80, 6, 2},
		{"form: fat-tree, k: 8", 128, 80, 640, 6, 4},
		{"form: rail-optimized, hosts: 4, rails: 3, spines: 2", 12, 5, 12 + 12, 4, 2},
		{"form: links, links: [{from: h1, to: s0}, {from: s1, to: h0}, {from: s0, to: s1, lag: 2}]", 2, 2, 6, 3, 2},
	} {
		t.Run(c.text, func(t *testing.T) {
			n := newNetwork(config(t, "topology: {"+c.text+", rate: 100Gbit}\nswitch: {buffer: 32MiB}\n"+
				"traffic: [{pattern: all-to-all, bytes: 1B}]"))
			most := 0
			for _, f := range n.flows {
				most = max(most, len(f.path()))
			}
			if len(n.hosts) != c.hosts || len(n.switches) != c.switches || len(n.ports) != c.ports || most != c.hops {
				t.Errorf("%d hosts, %d switches, %d ports, %d hops; want %d, %d, %d, %d", len(n.hosts),
					len(n.switches), len(n.ports), most, c.hosts, c.switches, c.ports, c.hops)
			}
			first, last := n.hosts[0], n.hosts[len(n.hosts)-1]
			if c.paths > 0 && len(first.edge.sw.towards(last)) != c.paths {
				t.Errorf("%d paths, want %d", len(first.edge.sw.towards(last)), c.paths)
			}
			n.run(int64(time.Second), never)
			if n.open > 0 || n.stats.Drops > 0 {
				t.Errorf("%d flows did not end, %d drops", n.open, n.stats.Drops)
			}
		})
	}
}

// A flow that is alone takes the closed form on each topology, with the rates and delays of its links.
func TestLoneFlowOnEachTopology(t *testing.T) {
	for _, text := range []string{
		"form: fat-tree, k: 4, uplink: 40Gbit, uplink_delay: 3us",
		"form: rail-optimized, hosts: 2, rails: 2, spines: 1",
		"form: links, links: [{from: h0, to: s0, rate: 25Gbit}, {from: h1, to: s1, delay: 5us}, {from: s0, to: s1, " +
			"rate: 10Gbit, lag: 2}]",
	} {
		c := config(t, "topology: {"+text+", rate: 100Gbit}\ntraffic: [{pattern: permutation, bytes: 300000B}]")
		n := newNetwork(c)
		for _, f := range n.flows[1:] {
			f.start = int64(time.Hour)
		}
		n.run(int64(time.Second), never)
		f := n.flows[0]
		if d := time.Duration(f.end) - f.best; f.end == none || d < -10 || d > 10 {
			t.Errorf("%s: ended at %v, closed form %v", text, time.Duration(f.end), f.best)
		}
	}
}

// Members of a LAG share its flows by the hash that chooses among switches too: one queue pair takes one member.
func TestLAGSharesByHash(t *testing.T) {
	const text = "topology: {form: links, rate: 100Gbit, links: [{from: h0, to: s0}, {from: h1, to: s1}, {from: s0, " +
		"to: s1, rate: 25Gbit, lag: 4}]}\ntraffic: [{pattern: flow, from: [h0], to: h1, bytes: 4MiB, qps: QPS}]"
	used := func(qps string) (n int) {
		for _, q := range Run(config(t, strings.Replace(text, "QPS", qps, 1)), never).Queues {
			if strings.HasPrefix(q.Port, "s0:") && q.Port != "s0:0" {
				n++
			}
		}
		return n
	}
	if one, many := used("1"), used("64"); one != 1 || many != 4 {
		t.Errorf("one queue pair took %d members, 64 took %d; want 1 and 4", one, many)
	}
}

// A link that becomes slow in the middle of a flow carries the rest at its new rate, whichever direction is needed.
func TestSlowLink(t *testing.T) {
	for _, link := range []string{"h0", "h1", "s0:0", "s0:1"} {
		c := config(t, "topology: {form: star, hosts: 2, rate: 100Gbit}\nnic: {congestion: none}\ntraffic: "+
			"[{pattern: flow, from: [h1], to: h0, bytes: 10MiB}]\nfaults: [{link: \""+link+
			"\", at: 400us, rate: 10Gbit}]")
		r := Run(c, never)
		sent := 400e-6 * 100e9 / 8 * 1024 / 1106
		want := 400e-6 + (10<<20-sent)*1106/1024*8/10e9
		if got := r.Flows[0].Completion.Seconds(); got < want*0.99 || got > want*1.01 {
			t.Errorf("%s: completion after %v s, want %v", link, got, want)
		}
	}
}

// A dead link loses what it carries. Its flows go on over another path, and fail if there is none.
func TestDeadLink(t *testing.T) {
	const text = "topology: {form: leaf-spine, hosts: 1, leaves: 2, spines: 2, rate: 100Gbit}\nnic: {congestion: " +
		"none, ack_timeout: 8}\ntraffic: [{pattern: flow, from: [h0], to: h1, bytes: 8MiB, qps: 16}]\nfaults: [%s]"
	r := Run(config(t, fmt.Sprintf(text, `{link: "s0:1", at: 100us, down: true}`)), never)
	if r.Unfinished > 0 || r.Counts.Drops == 0 || r.Counts.GoBacks+r.Counts.Timeouts == 0 {
		t.Errorf("one of two paths: %+v, %d unfinished", r.Counts, r.Unfinished)
	}
	for _, q := range r.Queues {
		if q.Port == "s0:2" && q.Busy == 0 {
			t.Error("the other path was not used")
		}
	}
	for _, link := range []string{"h0", "h1", "s1:0"} {
		r = Run(config(t, fmt.Sprintf(text, `{link: "`+link+`", at: 100us, down: true}`)), never)
		for _, f := range r.Flows {
			if !f.Failed {
				t.Errorf("%s is down: flow %+v did not fail", link, f)
				break
			}
		}
	}
}
