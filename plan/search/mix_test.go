package search

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rackless/rackless/plan"
)

var (
	mixes   = flag.Int("mixes", 60, "how many generated labs on generated machines to solve")
	only    = flag.Int("only", -1, "solve only the lab of this number")
	long    = flag.Bool("long", false, "three times as many answers of other solvers, and hard problems for longer")
	slowest = flag.Duration("slowest", 0, "list labs that take longer")
)

// TestMixesAreProved stops at a tenth of the usual steps, unless -long is set: a few unproved labs take most of the
// time.
func TestMixesAreProved(t *testing.T) {
	limit := Options{Steps: DefaultSteps / 10}
	if *long {
		limit.Steps = 0
	}
	var times []time.Duration
	open, none := 0, 0
	labs := uint64(*mixes)
	if testing.Short() {
		labs /= 4
	}
	for seed := range labs {
		if *only >= 0 && seed != uint64(*only) {
			continue
		}
		name, p := mix(seed)
		start := time.Now()
		r, err := Solve(context.Background(), p, limit)
		d := time.Since(start)
		times = append(times, d)
		if err != nil {
			none++
			if *slowest > 0 {
				t.Logf("%d %s: %d requests: %v (%v)", seed, name, len(p.Requests), err, d)
			}
			continue
		}
		if v := violation(p, &r.Placement); v != "" {
			t.Errorf("%d %s: %s", seed, name, v)
		}
		if !r.Optimal {
			open++
		}
		if *slowest > 0 && (d > *slowest || !r.Optimal) {
			t.Logf("%d %s %s: %d requests: cost %d bound %d %q %d steps %v", seed, name, p.Workload, len(p.Requests),
				r.Cost, r.Bound, r.Stopped, r.Steps, d)
			t.Log(termSums(plan.Evaluate(p, &r.Placement)))
			var asks string
			for _, q := range p.Requests {
				gpus, nics, vfs := counts(&q)
				asks += fmt.Sprintf(" %d/%d:%d,%d,%d", q.Cores, q.Pages, gpus, nics, vfs)
			}
			t.Log(asks)
		}
	}
	slices.Sort(times)
	at := func(percent int) time.Duration { return times[min(len(times)-1, len(times)*percent/100)] }
	t.Logf("%d labs: %d not proved, %d without placement; median %v, 90%% %v, 95%% %v, 99%% %v, worst %v", len(times),
		open, none, at(50), at(90), at(95), at(99), at(100))
}

func termSums(terms []plan.Term) string {
	sums := map[string]int64{}
	for _, x := range terms {
		sums[x.Term] += x.Cost
	}
	var out string
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if sums[name] != 0 {
			out += fmt.Sprintf(" %s %d", name, sums[name])
		}
	}
	return out
}
