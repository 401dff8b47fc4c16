package simulate

import (
	"cmp"
	"slices"
	"time"
)

// Curves are the queues and flows whose course over time is recorded. Without names, the longest queues and the first
// flows are.
type Curves struct {
	Queues []string `yaml:"queues"` // ports of switches, such as s0:0
	Flows  []string `yaml:"flows"`  // pairs of hosts, such as h1>h0: all flows between them
}

const (
	// bins limits the intervals of a curve. A run that takes longer has longer ones.
	bins      = 512
	firstBin  = 1024 // ns
	mostAuto  = 256  // queues that are recorded without a name
	mostDrawn = 8    // curves of a kind without names
)

// A timeline holds values by time, in a limited number of equal intervals. They double as the run goes on.
type timeline struct {
	name   string
	width  int64
	values []int64
	last   int64 // level now
	sum    bool  // values add up; otherwise the highest counts
}

func newTimeline(name string, sum bool) *timeline {
	return &timeline{name: name, width: firstBin, sum: sum}
}

// reach extends the values to a time, at the last level.
func (t *timeline) reach(now int64) int {
	for now/t.width >= bins {
		half := t.values[:0]
		for i := 0; i < len(t.values); i += 2 {
			v := t.values[i]
			if i+1 < len(t.values) {
				if t.sum {
					v += t.values[i+1]
				} else {
					v = max(v, t.values[i+1])
				}
			}
			half = append(half, v)
		}
		t.values = half
		t.width *= 2
	}
	i := int(now / t.width)
	for len(t.values) <= i {
		t.values = append(t.values, t.last)
	}
	return i
}

// add counts bytes at a time.
func (t *timeline) add(now, bytes int64) { t.values[t.reach(now)] += bytes }

// level records a new level at a time.
func (t *timeline) level(now, bytes int64) {
	i := t.reach(now)
	t.last = bytes
	t.values[i] = max(t.values[i], bytes)
}

// record makes the timelines that a file asks for.
func (n *network) record(c *Curves) {
	if c == nil {
		return
	}
	for _, p := range n.ports {
		if slices.Contains(c.Queues, p.name) || len(c.Queues) == 0 && len(n.ports) <= mostAuto {
			p.curve = newTimeline(p.name, false)
		}
	}
	pairs := map[string]*timeline{}
	for _, f := range n.flows {
		name := f.from.name + ">" + f.to.name
		if pairs[name] == nil && (slices.Contains(c.Flows, name) || len(c.Flows) == 0 && len(pairs) < mostDrawn) {
			pairs[name] = newTimeline(name, true)
			n.rates = append(n.rates, pairs[name])
		}
		f.curve = pairs[name]
	}
	n.chosen = len(c.Queues) > 0
	n.recorded = len(pairs) > 0
}

// A Curve is a course over time, in equal intervals.
type Curve struct {
	Name   string        `json:"name"`
	Width  time.Duration `json:"interval_ns"`
	Values []int64       `json:"values"`
}

// curves returns the recorded courses: of queues the chosen ones, or the longest.
func (n *network) curves() (queues, rates []Curve) {
	var list []*timeline
	for _, p := range n.ports {
		if p.curve != nil && (n.chosen || p.stat.most > 0) {
			p.curve.reach(n.now)
			list = append(list, p.curve)
		}
	}
	if !n.chosen {
		slices.SortStableFunc(list, func(a, b *timeline) int {
			return cmp.Compare(slices.Max(b.values), slices.Max(a.values))
		})
		list = list[:min(len(list), mostDrawn)]
	}
	for _, t := range list {
		queues = append(queues, Curve{t.name, time.Duration(t.width), t.values})
	}
	for _, t := range n.rates {
		t.reach(n.now)
		c := Curve{t.name, time.Duration(t.width), make([]int64, len(t.values))}
		for i, v := range t.values {
			// The run ends within the last interval.
			width := min(t.width, max(1, n.now-int64(i)*t.width))
			c.Values[i] = int64(float64(v) * 8e9 / float64(width))
		}
		rates = append(rates, c)
	}
	return queues, rates
}
