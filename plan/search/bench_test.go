package search

import (
	"context"
	"fmt"
	"testing"

	"github.com/rackless/rackless/plan"
)

func bench(b *testing.B, p *plan.Problem) {
	b.Helper()
	b.ReportAllocs()
	var r *Result
	for b.Loop() {
		var err error
		if r, err = Solve(context.Background(), p, Options{}); err != nil {
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
		{"epyc-pair", epycPair()},
		{"h20-4x(2gpu,1nic)", withAsks(h20Shape().Problem(),
			times(4, ask{Cores: 22, Pages: 400, GPUs: 2, NICs: 1})...)},
		{"h20-8x(1gpu,1vf)", withAsks(h20Shape().Problem(),
			times(8, ask{Cores: 11, Pages: 200, GPUs: 1, VFs: 1})...)},
		{"h20-2x(4gpu,2nic)", withAsks(h20Shape().Problem(),
			times(2, ask{Cores: 44, Pages: 800, GPUs: 4, NICs: 2})...)},
		{"r740-1x44", withAsks(r740Shape().Problem(), ask{Cores: 44, Pages: 300, VFs: 1})},
		{"r740-8", withAsks(r740Shape().Problem(),
			times(8, ask{Cores: 5, Pages: 40, VFs: 1})...)},
	} {
		b.Run(c.name, func(b *testing.B) { bench(b, c.p) })
	}
}

func BenchmarkSingle(b *testing.B) {
	for _, a := range []ask{
		{Cores: 4, Pages: 16},
		{Cores: 8, Pages: 64, VFs: 1},
		{Cores: 16, Pages: 128, GPUs: 1, NICs: 1},
		{Cores: 28, Pages: 200, GPUs: 2, VFs: 1},
		{Cores: 64, Pages: 512, GPUs: 4, NICs: 4},
		{Cores: 128, Pages: 1024, GPUs: 8, NICs: 8},
	} {
		b.Run(fmt.Sprintf("%dcores,%dgpus,%dnics,%dvfs", a.Cores, a.GPUs, a.NICs, a.VFs), func(b *testing.B) {
			bench(b, withAsks(largeShape().Problem(), a))
		})
	}
}

func BenchmarkLarge(b *testing.B) {
	b.Run("equal", func(b *testing.B) { bench(b, largeEqual()) })
	b.Run("mixed", func(b *testing.B) { bench(b, largeMixed()) })
	b.Run("unequal", func(b *testing.B) { bench(b, largeUnequal(1, 0)) })
	b.Run("unequal,vfs", func(b *testing.B) { bench(b, largeUnequal(1, 64)) })
}

// BenchmarkGrowth grows lab nodes, devices and NUMA nodes.
func BenchmarkGrowth(b *testing.B) {
	for _, n := range []int{2, 4, 8, 16, 32, 64} {
		b.Run(fmt.Sprintf("labs=%d", n), func(b *testing.B) {
			bench(b, withAsks(largeShape().Problem(),
				times(n, ask{Cores: 7, Pages: 48, VFs: 1})...))
		})
	}
	for _, n := range []int{2, 4, 8, 16, 32} {
		b.Run(fmt.Sprintf("devices=%d", 2*n), func(b *testing.B) {
			s := largeShape()
			s.GPUs, s.NICs = n, n
			bench(b, withAsks(s.Problem(), times(2, ask{Cores: 12, Pages: 48, GPUs: 1,
				NICs: 1})...))
		})
	}
	for _, n := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("nodes=%d", 4*n), func(b *testing.B) {
			s := largeShape()
			s.Nodes = n
			bench(b, withAsks(s.Problem(), times(8, ask{Cores: 12, Pages: 48,
				VFs: 1})...))
		})
	}
}
