package search

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
)

// huge returns a problem at the limits.
func huge(gpus bool) *plan.Problem {
	s := shape{Packages: 8, Nodes: 8, L3s: 8, Cores: 8, Threads: 2, GPUs: 500, NICs: 1500, VFs: 64,
		Pages: 512, Reserve: 16}
	r := plantest.NewRand(1)
	var asks []ask
	for k := range 500 {
		a := ask{Cores: r.In(1, 12), Pages: int64(r.In(1, 40)), VFs: r.Intn(3)}
		if gpus && k%2 == 0 {
			a.GPUs, a.NICs = 1+r.Intn(2), r.Intn(3)
		}
		asks = append(asks, a)
	}
	return withAsks(s.Problem(), asks...)
}

// The search would take days, so its return shows that it was cancelled.
func TestAHugeProblemIsCancelled(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	limits := []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond}
	if *long {
		limits = append(limits, 2*time.Second)
	}
	for _, gpus := range []bool{false, true} {
		p := huge(gpus)
		for _, after := range limits {
			var before, now runtime.MemStats
			runtime.ReadMemStats(&before)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			start := time.Now()
			r, err := Solve(ctx, p, Options{Steps: 1 << 40})
			late := time.Since(start) - after
			cancel()
			runtime.ReadMemStats(&now)
			if err != nil && !errors.Is(err, ErrStopped) {
				t.Errorf("GPUs %v, %v: %v", gpus, after, err)
			}
			if err == nil {
				if v := violation(p, &r.Placement); v != "" {
					t.Errorf("GPUs %v, %v: %s", gpus, after, v)
				}
			}
			if used := int64(now.HeapSys) - int64(before.HeapSys); used > 512<<20 {
				t.Errorf("GPUs %v: %d MiB", gpus, used>>20)
			}
			t.Logf("GPUs %v, cancelled at %v: %v late, %d MiB, placed %v", gpus, after, late, now.HeapSys>>20,
				err == nil)
		}
	}
}

// As by --explain.
func TestRestrictedDevicesArePlaced(t *testing.T) {
	t.Parallel()
	p := withAsks(h20Shape().Problem(), times(4, ask{Cores: 22, Pages: 400,
		GPUs: 2, NICs: 1})...)
	var gpu, nic int
	for d := len(p.Devices) - 1; d >= 0; d-- {
		if p.Devices[d].Kind == plan.KindGPU {
			gpu = d
		} else {
			nic = d
		}
	}
	r0 := &p.Requests[0]
	r0.GPUs = []plan.Want{{Count: 1, Any: []int{gpu}}, {Count: 1, Any: slices.DeleteFunc(slices.Clone(r0.GPUs[0].Any),
		func(d int) bool {
			return d == gpu
		})}}
	r0.NICs = []plan.Want{{Count: 1, Any: slices.DeleteFunc(slices.Clone(r0.NICs[0].Any), func(d int) bool {
		return d == nic
	})}}
	r0.Class = 1000
	r, err := Solve(t.Context(), p, Options{Steps: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	if v := violation(p, &r.Placement); v != "" {
		t.Error(v)
	}
	t.Logf("cost %d, bound %d, %d steps", r.Cost, r.Bound, r.Steps)
}

// TestALargeLabSaysItsGap: 16 of 64 lab nodes must be near their GPU, which counting caches does not see.
func TestALargeLabSaysItsGap(t *testing.T) {
	t.Parallel()
	p := largeMixed()
	r, err := Solve(context.Background(), p, Options{Steps: DefaultSteps / 10})
	if err != nil {
		t.Fatal(err)
	}
	if v := violation(p, &r.Placement); v != "" {
		t.Error(v)
	}
	if r.Optimal || r.Stopped == "" || r.Bound < 33200 || r.Cost <= r.Bound || r.Cost > 36000 {
		t.Errorf("Solve: cost %d, bound %d, optimal %v, stopped by %q; want 33200 <= bound < cost <= 36000", r.Cost,
			r.Bound, r.Optimal, r.Stopped)
	}
}
