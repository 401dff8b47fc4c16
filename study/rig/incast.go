package rig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/vm/guest"
)

// In an incast many nodes send to one at the same time, which congests a switch. The client also sends small messages
// to the last node, which receives nothing else: a victim if the client is paused because of its traffic to the server
// (head-of-line blocking).
//
// Nodes sleep until completions come: with polling, CPUs would limit emulated nodes.

// Defaults of an incast.
const (
	incastBytes      = 64 << 10
	incastMessages   = 600
	victimBytes      = 64
	victimIterations = 300
	leastIncast      = 4 // minimum number of nodes
)

// mostLate limits the last flow's late start, as a share of the time: flows must run together.
const mostLate = 0.3

func bits(s bench.Sample) float64 { return 8 * float64(s.Bytes) * float64(s.Iterations) }

func incastEngines(word string) (flow, victim bench.Engine, err error) {
	if word != "" {
		word = "/" + word
	}
	flow, err1 := tool.EngineByName("ib_send_bw" + word + "/events")
	victim, err2 := tool.EngineByName("ib_send_lat" + word + "/events")
	return flow, victim, cmp.Or(err1, err2)
}

func (r *Rig) checkIncast(l *lab.Lab) error {
	for _, m := range r.spec.Measure {
		word, ok := m.Incast()
		if !ok {
			continue
		}
		if r.options.Place != nil {
			return fmt.Errorf("measure: %s: it takes the counters of an emulated lab's switch", m.Test)
		}
		if _, _, err := incastEngines(word); err != nil {
			return fmt.Errorf("measure: %s: %w", m.Test, err)
		}
		if len(l.Nodes) < leastIncast {
			return fmt.Errorf("measure: %s: it takes %d nodes or more: one that receives, two that send, and one "+
				"for the victim; lab %s has %d", m.Test, leastIncast, l.Name, len(l.Nodes))
		}
	}
	return nil
}

// incast's figures are named after the test; each flow's goodput also has its sender.
func (r *Rig) incast(ctx context.Context, m study.Measure, word string) ([]bench.Sample, error) {
	flow, victim, err := incastEngines(word)
	if err != nil {
		return nil, err
	}
	client, server, err := r.pair(r.lab)
	if err != nil {
		return nil, err
	}
	rest := others(r.lab, client, server)
	if len(rest) < leastIncast-2 {
		return nil, fmt.Errorf("incast: lab %s has %d nodes with a NIC beside %s and %s", r.lab.Name, len(rest), client,
			server)
	}
	last := rest[len(rest)-1].Name
	senders := []string{client}
	senders = append(senders, lists.Map(rest[:len(rest)-1], func(n lab.Node) string { return n.Name })...)
	before, err := r.incastCounts(ctx, senders)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	flows, seen, err := r.incastFlows(ctx, m, flow, victim, append(senders, client), append(
		slices.Repeat([]string{server}, len(senders)), last))
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := r.incastCounts(ctx, senders)
	if err != nil {
		return nil, err
	}
	return summarize(m, senders, flows, seen, after.since(before), took), nil
}

// incastFlows runs all flows at the same time. The last one is the victim.
func (r *Rig) incastFlows(ctx context.Context, m study.Measure, flow, victim bench.Engine, from, to []string) (
	flows [][]bench.Sample, seen []bench.Sample, err error) {
	// A shared runner asks for a tool's version once and uses different ports.
	if r.flows == nil {
		r.flows = r.runner(m)
		r.flows.Retries = -1 // a repeat would run alone
	}
	r.flows.Exec = r.rack
	all, errs := make([][]bench.Sample, len(from)), make([]error, len(from))
	var wg sync.WaitGroup
	for i := range from {
		nic, _ := flow.NIC()
		a, err1 := r.rack.EndpointOf(from[i], nic)
		b, err2 := r.rack.EndpointOf(to[i], nic)
		if err := cmp.Or(err1, err2); err != nil {
			return nil, nil, err
		}
		e, o := flow, options(m)
		o.Bytes, o.Iterations, o.Raw = cmp.Or(m.Bytes, incastBytes), cmp.Or(m.Iterations, incastMessages), false
		if i == len(from)-1 {
			e, o.Bytes, o.Iterations, o.Raw = victim, victimBytes, victimIterations, true
		}
		wg.Go(func() { all[i], errs[i] = r.flows.Run(ctx, e, a, b, o) })
	}
	wg.Wait()
	last := len(all) - 1
	return all[:last], all[last], errors.Join(errs...)
}

type incastCounts struct {
	drops, marks, pauses, cnps, goBacks uint64
	paused                              time.Duration
	rate                                int64 // bits per second of the slowest link; 0 if none has one
}

func (c incastCounts) since(o incastCounts) incastCounts {
	return incastCounts{c.drops - o.drops, c.marks - o.marks, c.pauses - o.pauses, c.cnps - o.cnps,
		c.goBacks - o.goBacks, c.paused - o.paused, c.rate}
}

// hwCounters gives 0 for soft RoCE, which has other counters.
const hwCounters = `cd /sys/class/infiniband 2>/dev/null || exit 0
for f in */ports/*/hw_counters; do
	for c in rp_cnp_handled packet_seq_err local_ack_timeout_err; do [ ! -f $f/$c ] || echo $c $(cat $f/$c); done
done`

func (r *Rig) incastCounts(ctx context.Context, senders []string) (incastCounts, error) {
	var c incastCounts
	sw, err := r.rack.Switch()
	if err != nil {
		return c, err
	}
	ports, err := sw.Counters(ctx)
	if err != nil {
		return c, err
	}
	c.ofSwitch(ports)
	for _, n := range senders {
		res, err := r.rack.Run(ctx, n, guest.Command{Argv: []string{"sh", "-c", hwCounters}})
		if err != nil {
			return c, err
		}
		c.ofAdapter(res.Stdout)
	}
	return c, nil
}

func (c *incastCounts) ofSwitch(s fabric.Counters) {
	for _, p := range s.Ports {
		c.drops += p.Drops.Total()
		c.marks += p.ECNMarked
		c.pauses += p.Pauses
		c.paused += p.Paused
		if r := p.Link.Rate; r > 0 && (c.rate == 0 || r < c.rate) {
			c.rate = r
		}
	}
}

// ofAdapter ignores other lines: a node may print anything.
func (c *incastCounts) ofAdapter(text []byte) {
	for line := range bytes.Lines(text) {
		name, number, _ := strings.Cut(string(bytes.TrimSpace(line)), " ")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			continue
		}
		if name == "rp_cnp_handled" {
			c.cnps += n
		} else {
			c.goBacks += n
		}
	}
}

// summarize returns only errors if a flow has failed.
func summarize(m study.Measure, senders []string, flows [][]bench.Sample, seen []bench.Sample, c incastCounts,
	took time.Duration) []bench.Sample {
	var out []bench.Sample
	var rates []float64
	pick := func(list []bench.Sample, test, metric string) (value float64) {
		for _, s := range list {
			if s.Metric == metric || s.Error != "" {
				s.Printed = list[0].Printed
				s.Test, s.Bytes, s.Limit = test, m.Bytes, 0
				out = append(out, s)
				value = s.Value
			}
		}
		return value
	}
	var began, ended []float64 // of the flows' data, in seconds
	first := flows[0][0].Started
	for i, f := range flows {
		rates = append(rates, pick(f, m.Test+"/"+senders[i], bench.MetricBWAverage))
		end := f[0].Started.Sub(first).Seconds() + f[0].Seconds
		began, ended = append(began, end-bits(f[0])/(rates[i]*1e9)), append(ended, end)
	}
	pick(seen, m.Test, bench.MetricLatencyTypical)
	pick(seen, m.Test, bench.MetricLatencyP99)
	if slices.ContainsFunc(out, func(s bench.Sample) bool { return s.Error != "" }) {
		return slices.DeleteFunc(out, func(s bench.Sample) bool { return s.Error == "" })
	}
	length := slices.Max(ended) - slices.Min(began)
	if late := slices.Max(began) - slices.Min(began); late > mostLate*length {
		out[0].Error = fmt.Sprintf("the last flow began %.1f s after the first, and all took %.1f s: this machine "+
			"was too busy to start them together", late, length)
		return out[:1]
	}
	// A busy machine ends a program late; the sum may then exceed the link's rate.
	goodput := float64(len(flows)) * bits(flows[0][0]) / length
	if wire := float64(c.rate); wire > 0 && goodput > wire {
		out[0].Error = fmt.Sprintf("a goodput of %.4g Gb/s over a link of %.4g: this machine was too busy to time "+
			"the flows", goodput/1e9, wire/1e9)
		return out[:1]
	}
	sum, squares := 0.0, 0.0
	for _, v := range rates {
		sum, squares = sum+v, squares+v*v
	}
	base := flows[0][0]
	base.Run += "-all"
	base.Printed, base.Latencies, base.Limit = nil, nil, 0
	for _, f := range []struct {
		metric string
		value  float64
	}{
		{bench.MetricGoodput, goodput / 1e9},
		{bench.MetricGoodputMin, slices.Min(rates)},
		{bench.MetricFairness, 100 * sum * sum / (float64(len(rates)) * squares)},
		{bench.MetricDrops, float64(c.drops)}, {bench.MetricGoBacks, float64(c.goBacks)},
		{bench.MetricMarks, float64(c.marks)}, {bench.MetricCNPs, float64(c.cnps)},
		{bench.MetricPauses, float64(c.pauses)},
		{bench.MetricPausedTime, 100 * c.paused.Seconds() / (took.Seconds() * float64(len(rates)))},
	} {
		base.Test, base.Bytes, base.Metric, base.Value = m.Test, m.Bytes, f.metric, f.value
		base.Unit = bench.MetricOf(f.metric).Unit
		out = append(out, base)
	}
	return out
}
