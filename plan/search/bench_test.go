package search_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rackless/rackless/internal/planfixture"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/search"
)

// bench solves p again and again, and reports the gap that is left in percent of the bound.
func bench(b *testing.B, p *plan.Problem) {
	b.Helper()
	b.ReportAllocs()
	var r *search.Result
	for b.Loop() {
		var err error
		if r, err = search.Solve(context.Background(), p, search.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(100*float64(r.Cost-r.Bound)/float64(max(1, r.Bound)), "%gap")
	b.ReportMetric(float64(r.Steps), "steps")
}

func BenchmarkCases(b *testing.B) {
	for _, c := range []struct {
		name string
		p    *plan.Problem
	}{
		{"epyc-pair", planfixture.EPYCPair()},
		{"h20-4x(2gpu,1nic)", planfixture.Add(planfixture.H20().Problem(),
			planfixture.Times(4, planfixture.Ask{Cores: 22, Pages: 400, GPUs: 2, NICs: 1})...)},
		{"h20-8x(1gpu,1vf)", planfixture.Add(planfixture.H20().Problem(),
			planfixture.Times(8, planfixture.Ask{Cores: 11, Pages: 200, GPUs: 1, VFs: 1})...)},
		{"h20-2x(4gpu,2nic)", planfixture.Add(planfixture.H20().Problem(),
			planfixture.Times(2, planfixture.Ask{Cores: 44, Pages: 800, GPUs: 4, NICs: 2})...)},
		{"r740-1x44", planfixture.Add(planfixture.R740().Problem(), planfixture.Ask{Cores: 44, Pages: 300, VFs: 1})},
		{"r740-8", planfixture.Add(planfixture.R740().Problem(),
			planfixture.Times(8, planfixture.Ask{Cores: 5, Pages: 40, VFs: 1})...)},
	} {
		b.Run(c.name, func(b *testing.B) { bench(b, c.p) })
	}
}

// BenchmarkSingle is what planning a fleet does: one lab node on a large host.
func BenchmarkSingle(b *testing.B) {
	for _, a := range []planfixture.Ask{
		{Cores: 4, Pages: 16},
		{Cores: 8, Pages: 64, VFs: 1},
		{Cores: 16, Pages: 128, GPUs: 1, NICs: 1},
		{Cores: 28, Pages: 200, GPUs: 2, VFs: 1},
		{Cores: 64, Pages: 512, GPUs: 4, NICs: 4},
		{Cores: 128, Pages: 1024, GPUs: 8, NICs: 8},
	} {
		b.Run(fmt.Sprintf("%dcores,%dgpus,%dnics,%dvfs", a.Cores, a.GPUs, a.NICs, a.VFs), func(b *testing.B) {
			bench(b, planfixture.Add(planfixture.Large().Problem(), a))
		})
	}
}

func BenchmarkLarge(b *testing.B) {
	b.Run("equal", func(b *testing.B) { bench(b, planfixture.LargeEqual()) })
	b.Run("mixed", func(b *testing.B) { bench(b, planfixture.LargeMixed()) })
	b.Run("unequal", func(b *testing.B) { bench(b, planfixture.LargeUnequal(1, 0)) })
	b.Run("unequal,vfs", func(b *testing.B) { bench(b, planfixture.LargeUnequal(1, 64)) })
}

// BenchmarkGrowth shows how the work grows with lab nodes, devices and NUMA nodes.
func BenchmarkGrowth(b *testing.B) {
	for _, n := range []int{2, 4, 8, 16, 32, 64} {
		b.Run(fmt.Sprintf("labs=%d", n), func(b *testing.B) {
			bench(b, planfixture.Add(planfixture.Large().Problem(),
				planfixture.Times(n, planfixture.Ask{Cores: 7, Pages: 48, VFs: 1})...))
		})
	}
	for _, n := range []int{2, 4, 8, 16, 32} {
		b.Run(fmt.Sprintf("devices=%d", 2*n), func(b *testing.B) {
			s := planfixture.Large()
			s.GPUs, s.NICs = n, n
			bench(b, planfixture.Add(s.Problem(), planfixture.Times(2, planfixture.Ask{Cores: 12, Pages: 48, GPUs: 1,
				NICs: 1})...))
		})
	}
	for _, n := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("nodes=%d", 4*n), func(b *testing.B) {
			s := planfixture.Large()
			s.Nodes = n
			bench(b, planfixture.Add(s.Problem(), planfixture.Times(8, planfixture.Ask{Cores: 12, Pages: 48,
				VFs: 1})...))
		})
	}
}
