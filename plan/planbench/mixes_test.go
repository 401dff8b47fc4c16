package planbench

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// Some mixed labs fill the large host, others leave a part of it free.
func mixedLab(seed uint64) string {
	draw := rand.New(rand.NewPCG(seed, 64))
	workload := []string{"rdma-latency", "rdma-bandwidth", "gpu-compute", "gpu-collective", "cpu-bandwidth", "mixed"}
	gpus, nics, cores, gib := 16, 8, 500-draw.IntN(80), 1000-40
	var b strings.Builder
	fmt.Fprintf(&b, "name: mix\nworkload: %s\nhugepages: 1GiB\nnodes:\n", workload[draw.IntN(len(workload))])
	for i := range 64 {
		left := 63 - i
		ask := func(most, each, all int) int { return min(1+draw.IntN(most), all-each*left) }
		wide := 1 + draw.IntN(4)*draw.IntN(3)
		g := min(gpus, []int{0, 0, 0, 0, 0, 1, 1, 2, 4}[draw.IntN(9)])
		n := min(nics, []int{0, 0, 0, 0, 1, 1, 2}[draw.IntN(7)])
		c := 1 + ask(3*wide, 2, cores-1)
		m := 3 + ask(6*wide, 4, gib-3)
		gpus, nics, cores, gib = gpus-g, nics-n, cores-c, gib-m
		fmt.Fprintf(&b, "  vm%02d: {cpus: %d, memory: %dGiB, gpus: %d, nics: %d, vfs: %d}\n", i, 2*c, m, g, n,
			draw.IntN(3)*draw.IntN(2))
	}
	return b.String()
}

// BenchmarkMixes has a limit of 2 s each.
func BenchmarkMixes(b *testing.B) {
	h, err := largeHost()
	check(b, err)
	for seed := range uint64(12) {
		b.Run(fmt.Sprint(seed), func(b *testing.B) { timePlans(b, h, mixedLab(seed), 2*time.Second) })
	}
}

var long = flag.Bool("long", false, "plan all mixes, and not a quarter of them")

// TestMixesHaveSoundPlans plans a quarter of the mixed labs, or all with -long. Each plan must keep all rules and have
// a bound not above its cost.
func TestMixesHaveSoundPlans(t *testing.T) {
	t.Parallel()
	h, err := largeHost()
	if err != nil {
		t.Fatal(err)
	}
	step := uint64(4)
	switch {
	case *long:
		step = 1
	case testing.Short():
		step = 12
	}
	for seed := uint64(0); seed < 12; seed += step {
		p, err := makePlan(t, h, mixedLab(seed), time.Hour) // the limit of steps is reached long before
		if err != nil || !p.feasible {
			t.Fatalf("mix %d: got %+v, %v; want a plan", seed, p, err)
		}
		if p.bound <= 0 || p.bound > p.cost {
			t.Errorf("mix %d: cost %d, bound %d; want a bound above 0 and not above the cost", seed, p.cost, p.bound)
		}
		t.Logf("mix %d: cost %d, gap %.1f %%", seed, p.cost, 100*float64(p.cost-p.bound)/float64(max(1, p.bound)))
	}
}
