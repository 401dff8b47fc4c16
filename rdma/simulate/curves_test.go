package simulate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A timeline keeps the sum and the maximum of all values, however often its intervals double.
func TestTimelines(t *testing.T) {
	level, sum := newTimeline("a", false), newTimeline("b", true)
	r := rand.New(rand.NewPCG(5, 6))
	total, most := int64(0), int64(0)
	for now := int64(0); now < 40_000_000; now += int64(r.IntN(5000)) {
		v := int64(r.IntN(1000))
		level.level(now, v)
		sum.add(now, v)
		total, most = total+v, max(most, v)
	}
	got := int64(0)
	for _, v := range sum.values {
		got += v
	}
	if got != total || slices.Max(level.values) != most || len(level.values) > bins || sum.width < 40_000_000/bins {
		t.Errorf("sum %d, want %d; most %d, want %d; %d intervals of %d ns", got, total, slices.Max(level.values), most,
			len(level.values), sum.width)
	}
	level.level(60_000_000, 7)
	level.reach(80_000_000)
	if last := level.values[len(level.values)-1]; last != 7 {
		t.Errorf("level %d at the end, want the last one, 7", last)
	}
}

// Curves have the named queues and pairs, or choose the longest queues and the first pairs.
func TestCurves(t *testing.T) {
	const text = "topology: {form: star, hosts: 5, rate: 100Gbit}\nnic: {congestion: none}\n" +
		"traffic: [{pattern: incast, to: h0, senders: 4, bytes: 1MiB}]\n"
	r := Run(config(t, text), never)
	if r.Queue != nil || r.Rate != nil {
		t.Error("curves that were not asked for")
	}
	r = Run(config(t, text+"curves: {queues: [\"s0:3\"], flows: [h2>h0]}"), never)
	if len(r.Queue) != 1 || r.Queue[0].Name != "s0:3" || len(r.Rate) != 1 || r.Rate[0].Name != "h2>h0" {
		t.Fatalf("%+v %+v", r.Queue, r.Rate)
	}
	bits := 0.0
	for _, v := range r.Rate[0].Values {
		bits += float64(v) * r.Rate[0].Width.Seconds()
	}
	if want := 1024. * 1106 * 8; math.Abs(bits/want-1) > 0.01 {
		t.Errorf("%v bits, want %v", bits, want)
	}
	c := config(t, text)
	c.Curves = &Curves{}
	r = Run(c, never)
	if len(r.Rate) != 4 || r.Queue[0].Name != "s0:0" || slices.Max(r.Queue[0].Values) != r.queue("s0:0").Most {
		t.Errorf("%d rates, first queue %s", len(r.Rate), r.Queue[0].Name)
	}
	if w := r.Queue[0].Width * time.Duration(len(r.Queue[0].Values)); w < r.Time || w > r.Time+r.Queue[0].Width {
		t.Errorf("%v of %v are recorded", w, r.Time)
	}
}

// Slowdowns are listed by size, and equal flows share fairly.
func TestSizesAndFairness(t *testing.T) {
	r := Run(config(t, "topology: {form: star, hosts: 5, rate: 100Gbit}\nnic: {congestion: none}\ntraffic: [{pattern: "+
		"incast, to: h0, senders: 4, bytes: 1MiB}, {pattern: flow, from: [h1], to: h2, bytes: 10B, start: 1ms}, "+
		"{pattern: flow, from: [h1], to: h2, bytes: 11B, start: 2ms}]"), never)
	if len(r.Sizes) != 3 || r.Sizes[0].To != 10 || r.Sizes[0].Flows != 1 || r.Sizes[1].From != 10 ||
		r.Sizes[2].Flows != 4 || r.Sizes[2].To != 10_000_000 || r.Sizes[0].Slowdown.P999 > 1.01 {
		t.Errorf("%+v", r.Sizes)
	}
	if len(r.Fairness) != 1 || r.Fairness[0].Flows != 4 || r.Fairness[0].Index < 0.99 {
		t.Errorf("%+v", r.Fairness)
	}
}
