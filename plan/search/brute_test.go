package search

import (
	"context"
	"errors"
	"testing"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
)

// brute tries every placement, core by core and page by page. ok is false if there are too many.
func brute(p *plan.Problem, most int) (cost int64, found, ok bool) {
	b := &bruteForce{p: p, left: most}
	b.pl.Nodes = make([]plan.NodePlacement, len(p.Requests))
	b.request(0)
	return b.cost, b.found, b.left > 0
}

type bruteForce struct {
	p     *plan.Problem
	pl    plan.Placement
	cost  int64
	found bool
	left  int
}

func (b *bruteForce) request(i int) {
	if b.left <= 0 {
		return
	}
	if i == len(b.p.Requests) {
		b.left--
		if violation(b.p, &b.pl) != "" {
			return
		}
		if c := plan.Cost(plan.Evaluate(b.p, &b.pl)); !b.found || c < b.cost {
			b.cost, b.found = c, true
		}
		return
	}
	b.pl.Nodes[i] = plan.NodePlacement{}
	b.cores(i, 0)
}

func (b *bruteForce) cores(i, from int) {
	n, r := &b.pl.Nodes[i], &b.p.Requests[i]
	if len(n.Cores) == r.Cores {
		b.memory(i, 0, r.Pages)
		return
	}
	for k := from; k < len(b.p.Cores); k++ {
		c := &b.p.Cores[k]
		if c.Tenant != "" || len(c.CPUs) < r.Threads || b.given(i, c.ID) {
			continue
		}
		n.Cores = append(n.Cores, c.ID)
		b.cores(i, k+1)
		n.Cores = n.Cores[:len(n.Cores)-1]
	}
}

func (b *bruteForce) given(i, id int) bool {
	for j := range i {
		for _, c := range b.pl.Nodes[j].Cores {
			if c == id {
				return true
			}
		}
	}
	return false
}

func (b *bruteForce) memory(i, node int, pages int64) {
	n := &b.pl.Nodes[i]
	if node == len(b.p.NUMANodes) {
		if pages == 0 {
			b.whole(i, 0, 0)
		}
		return
	}
	for k := int64(0); k <= pages; k++ {
		if k > 0 {
			n.Memory = append(n.Memory, plan.NodePage{NUMANode: b.p.NUMANodes[node].ID, Pages: k})
		}
		b.memory(i, node+1, pages-k)
		if k > 0 {
			n.Memory = n.Memory[:len(n.Memory)-1]
		}
	}
}

func (b *bruteForce) whole(i, from, picked int) {
	n, r := &b.pl.Nodes[i], &b.p.Requests[i]
	gpus, nics, _ := counts(r)
	if len(n.GPUs) == gpus && len(n.NICs) == nics {
		b.virtual(i, 0)
		return
	}
	for d := from; d < len(b.p.Devices); d++ {
		list := &n.GPUs
		most := gpus
		if b.p.Devices[d].Kind == plan.KindNIC {
			list, most = &n.NICs, nics
		}
		if len(*list) == most {
			continue
		}
		*list = append(*list, d)
		if wantsMet(r, n, false) || len(n.GPUs) < gpus || len(n.NICs) < nics {
			b.whole(i, d+1, picked+1)
		}
		*list = (*list)[:len(*list)-1]
	}
}

func (b *bruteForce) virtual(i, from int) {
	n, r := &b.pl.Nodes[i], &b.p.Requests[i]
	_, _, vfs := counts(r)
	have := 0
	for _, v := range n.VFs {
		have += v.Count
	}
	if have == vfs {
		if devicesWrong(b.p, &b.pl, i+1) == "" {
			b.request(i + 1)
		}
		return
	}
	for d := from; d < len(b.p.Devices); d++ {
		for k := 1; k <= min(vfs-have, b.p.Devices[d].VFs); k++ {
			n.VFs = append(n.VFs, plan.VFCount{Device: d, Count: k})
			b.virtual(i, d+1)
			n.VFs = n.VFs[:len(n.VFs)-1]
		}
	}
}

func TestSolveAgreesWithBruteForce(t *testing.T) {
	t.Parallel()
	problems := 1000
	switch {
	case *long:
		problems = 3000
	case testing.Short():
		problems = 300
	}
	var solved, infeasible, skipped int
	for seed := range uint64(problems) {
		p := plantest.Small(seed)
		cost, found, ok := brute(p, 4000)
		if !ok {
			skipped++
			continue
		}
		r, err := Solve(context.Background(), p, Options{})
		if !found {
			infeasible++
			if !errors.Is(err, ErrInfeasible) {
				t.Fatalf("seed %d: Solve: %v, %v; want ErrInfeasible", seed, r, err)
			}
			continue
		}
		solved++
		if err != nil {
			t.Fatalf("seed %d: Solve: %v; want cost %d", seed, err, cost)
		}
		if v := violation(p, &r.Placement); v != "" {
			t.Fatalf("seed %d: %s", seed, v)
		}
		if r.Cost != cost || r.Bound != cost || !r.Optimal || r.Stopped != "" {
			t.Fatalf("seed %d: cost %d, bound %d, optimal %v, stopped %q; want cost %d, proved", seed, r.Cost, r.Bound,
				r.Optimal, r.Stopped, cost)
		}
	}
	t.Logf("%d solved, %d infeasible, %d too large", solved, infeasible, skipped)
	if solved < problems/5 {
		t.Errorf("only %d of %d problems had a solution", solved, problems)
	}
}
