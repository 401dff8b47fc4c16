package simulate

import (
	"math"
	"slices"
	"time"
)

// Counts are the totals of a run.
type Counts struct {
	Hops     uint64 `json:"hops"`  // packets that reached the end of a link
	Drops    uint64 `json:"drops"` // by switches, for lack of buffer space
	Marks    uint64 `json:"ecn_marks"`
	Pauses   uint64 `json:"pauses"` // times that a priority of a sender was stopped
	Resumes  uint64 `json:"resumes"`
	CNPs     uint64 `json:"cnps"`
	CNPsUsed uint64 `json:"cnps_handled"`
	// Packets that came to a NIC too early because one before was lost, and once more than needed.
	OutOfSequence uint64 `json:"out_of_sequence"`
	Duplicates    uint64 `json:"duplicates"`
	// Times that a NIC went back to repeat packets: after a NAK, and after a timeout.
	GoBacks  uint64 `json:"go_backs"`
	Timeouts uint64 `json:"timeouts"`
	Stopped  bool   `json:"interrupted"`
}

// A FlowResult is the result of one flow.
type FlowResult struct {
	From       string        `json:"from"`
	To         string        `json:"to"`
	Bytes      int64         `json:"bytes"`
	Start      time.Duration `json:"start_ns"`
	Completion time.Duration `json:"completion_ns,omitzero"` // 0 if it did not end
	Ideal      time.Duration `json:"ideal_ns"`               // on an empty network
	Failed     bool          `json:"failed"`
}

// Slowdown returns how many times longer the flow took than on an empty network.
func (f *FlowResult) Slowdown() float64 { return float64(f.Completion) / float64(f.Ideal) }

// Quantiles are quantiles of the flows that ended.
type Quantiles struct {
	Median float64 `json:"p50"`
	P95    float64 `json:"p95"`
	P99    float64 `json:"p99"`
	P999   float64 `json:"p99_9"`
	Most   float64 `json:"max"`
}

// A QueueResult is the result of one port of a switch. Quantiles are of the time in which its queue was not empty.
type QueueResult struct {
	Port        string        `json:"port"`
	Busy        time.Duration `json:"busy_ns"`
	Median      int64         `json:"p50_bytes"`
	P99         int64         `json:"p99_bytes"`
	Most        int64         `json:"max_bytes"`
	Marks       uint64        `json:"ecn_marks"`
	Drops       uint64        `json:"drops"` // of packets that came in
	Pauses      uint64        `json:"pauses"`
	SenderPause time.Duration `json:"sender_paused_ns"` // time for which it stopped the sender at its other end
}

// A Result is the result of a run.
type Result struct {
	Name       string        `json:"name"`
	Level      string        `json:"level"` // packet or flow
	Seed       uint64        `json:"seed"`
	Hosts      int           `json:"hosts"`
	Switches   int           `json:"switches"`
	Time       time.Duration `json:"time_ns"` // in the simulation, to the end of the last flow
	Unfinished int           `json:"unfinished"`
	Goodput    float64       `json:"goodput_bits_per_second"` // bytes of ended flows until Time
	Completion *Quantiles    `json:"completion_ns,omitempty"` // nil if no flow ended
	Slowdown   *Quantiles    `json:"slowdown,omitempty"`
	Counts     Counts        `json:"counts"`
	Queues     []QueueResult `json:"queues"` // of ports whose queue was not always empty
	Flows      []FlowResult  `json:"flows"`

	Usages []Usage `json:"usages,omitempty"` // of links, at flow level

	Collectives []CollectiveResult `json:"collectives,omitempty"`
	Sizes       []SizeResult       `json:"slowdown_by_size,omitempty"` // from the smallest
	Fairness    []FairnessResult   `json:"fairness,omitempty"`         // of traffic with two or more flows
	Spread      []SpreadResult     `json:"pause_spread,omitempty"`     // which queue stopped which sender
	Deadlocks   []Deadlock         `json:"deadlocks,omitempty"`
	Queue       []Curve            `json:"queue_curves,omitempty"` // bytes, the most in each interval
	Rate        []Curve            `json:"rate_curves,omitempty"`  // bits/s on the receiver's cable
}

// Run simulates a configuration. stop is asked now and then whether to end early.
func Run(c *Config, stop func() bool) *Result {
	n := newNetwork(c)
	if c.Level != FlowLevel {
		n.run(int64(c.Until), stop)
		return n.result(c)
	}
	used := c.usages(n.meanMessage(), n.mostSenders(), stop)
	n.share(c, used, int64(c.Until), stop)
	r := n.result(c)
	for _, u := range used {
		r.Usages = append(r.Usages, Usage{u.Flows, round4(u.Share)})
	}
	return r
}

func (n *network) result(c *Config) *Result {
	r := &Result{Name: c.Name, Level: c.Level, Seed: c.Seed, Hosts: len(n.hosts), Switches: len(n.switches),
		Time: time.Duration(n.now), Queues: []QueueResult{}, Flows: make([]FlowResult, len(n.flows)), Counts: n.stats}
	var times, slow []float64
	bytes := int64(0)
	for _, f := range n.flows {
		fr := FlowResult{From: f.from.name, To: f.to.name, Bytes: f.bytes, Start: time.Duration(f.start),
			Ideal: f.best, Failed: f.failed != 0}
		if f.end == none {
			r.Unfinished++
		} else {
			fr.Completion = time.Duration(f.end - f.start)
			times, slow = append(times, float64(fr.Completion)), append(slow, round4(fr.Slowdown()))
			bytes += f.bytes
		}
		r.Flows[f.index] = fr
	}
	r.Completion, r.Slowdown = quantiles(times), quantiles(slow)
	if n.now > 0 {
		r.Goodput = math.Round(float64(bytes) * 8e9 / float64(n.now))
	}
	k := &r.Counts
	for _, h := range n.hosts {
		if h.nic == nil {
			break
		}
		k.CNPs += h.nic.Counters.CNPSent
		k.CNPsUsed += h.nic.Counters.CNPHandled
	}
	t := n.transport
	k.OutOfSequence, k.Duplicates, k.Timeouts = t.OutOfSequence, t.DuplicateRequest, t.LocalAckTimeoutErr
	k.GoBacks = t.PacketSeqErr + t.ImpliedNakSeqErr
	r.Sizes, r.Fairness = n.bySize(), n.fairness(c)
	r.Spread, r.Deadlocks = n.spreadResult(), n.deadlocks.found
	r.Queue, r.Rate = n.curves()
	for _, g := range n.collectives {
		r.Collectives = append(r.Collectives, g.result(c))
	}
	for _, p := range n.ports {
		if q := p.result(); q.Busy > 0 || q.Drops > 0 || q.Pauses > 0 {
			r.Queues = append(r.Queues, q)
		}
	}
	return r
}

func (p *port) result() QueueResult {
	now := p.sw.net.now
	p.measure()
	q := QueueResult{Port: p.name, Busy: time.Duration(p.stat.busy()), Median: p.stat.quantile(0.5),
		P99: p.stat.quantile(0.99), Most: p.stat.most, Marks: p.ecns, Drops: p.drops, Pauses: p.pauses,
		SenderPause: time.Duration(p.pausedTime)}
	if p.stopped != 0 {
		q.SenderPause += time.Duration(now - p.stoppedAt)
	}
	return q
}

// quantiles returns quantiles of a list by the nearest rank, or nil if it is empty.
func quantiles(list []float64) *Quantiles {
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	at := func(share float64) float64 { return list[max(0, int(math.Ceil(share*float64(len(list))))-1)] }
	return &Quantiles{Median: at(0.5), P95: at(0.95), P99: at(0.99), P999: at(0.999), Most: at(1)}
}
