package search

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
	"github.com/rackless/rackless/plan/verify"
)

func hostOf(p *plan.Problem) *topology.Host {
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceSynthetic, Name: p.Host}}
	tenants := map[string]topology.CPUSet{}
	caches := map[int]topology.CPUSet{}
	nodes := map[int]topology.CPUSet{}
	for i := range p.Cores {
		k := &p.Cores[i]
		c := topology.Core{ID: k.ID, NUMANode: &k.NUMANode, CPUs: topology.CPUs(k.CPUs...)}
		if k.Package >= 0 {
			c.Package = &k.Package
		}
		if k.L3 >= 0 {
			c.L3 = &k.L3
			caches[k.L3] = caches[k.L3].Union(c.CPUs)
		}
		if k.Efficiency {
			c.Kind = topology.KindEfficiency
		}
		if k.Tenant != "" {
			tenants[k.Tenant] = tenants[k.Tenant].Union(c.CPUs)
		}
		nodes[k.NUMANode] = nodes[k.NUMANode].Union(c.CPUs)
		h.CPUs.Online = h.CPUs.Online.Union(c.CPUs)
		h.Cores = append(h.Cores, c)
	}
	for name, cpus := range tenants { // at most one
		h.Tenants = append(h.Tenants, topology.Tenant{Name: name, VCPUs: 1, Pins: []topology.Pin{{CPUs: cpus}}})
	}
	for i := range p.Packages {
		h.Packages = append(h.Packages, topology.Package{ID: p.Packages[i].ID})
	}
	for i := range p.NUMANodes {
		n := &p.NUMANodes[i]
		m := topology.NUMANode{ID: n.ID, CPUs: nodes[n.ID], Distances: n.Distances}
		if n.Pages != nil {
			m.MemoryBytes = new(uint64(*n.Pages) * p.PageBytes)
		}
		h.NUMANodes = append(h.NUMANodes, m)
	}
	for i := range p.Devices {
		d := &p.Devices[i]
		if d.Kind == plan.KindGPU {
			h.GPUs = append(h.GPUs, topology.GPU{Name: d.ID, NUMANode: d.NUMANode, Kind: topology.GPUDiscrete})
			continue
		}
		h.NICs = append(h.NICs, topology.NIC{Name: d.ID, NUMANode: d.NUMANode, Netdevs: []string{}, RDMA: []string{}})
	}
	return h
}

func labOfProblem(p *plan.Problem) *lab.Lab {
	l := &lab.Lab{Name: p.Lab, Workload: p.Workload, Hugepages: lab.Hugepages1GiB, Tenants: lab.TenantsRead}
	l.Reserve.Cores, l.Reserve.Memory = &p.ReserveCores, new(lab.Bytes(0))
	for i := range p.Requests {
		r := &p.Requests[i]
		n := lab.Node{Name: r.Name, CPUs: r.VCPUs, Memory: lab.Bytes(r.Pages) * lab.Bytes(p.PageBytes), SMT: lab.Auto,
			GuestNUMA: lab.On}
		if r.GuestNUMA == string(lab.Off) { // in a problem, auto shows NUMA nodes; in a lab it need not
			n.GuestNUMA = lab.Off
		}
		for _, w := range r.GPUs {
			n.GPUs += w.Count
		}
		for _, w := range r.NICs {
			n.NICs = append(n.NICs, make([]lab.NIC, w.Count)...)
		}
		for _, w := range r.VFs {
			n.NICs = append(n.NICs, make([]lab.NIC, w.Count)...)
			n.VFs += w.Count
		}
		l.Nodes = append(l.Nodes, n)
	}
	for _, a := range p.Affinity {
		var names []string
		for _, i := range a.Requests {
			names = append(names, p.Requests[i].Name)
		}
		l.Affinity = append(l.Affinity, lab.Affinity{Nodes: names, NUMA: lab.Togetherness(a.NUMA),
			NIC: lab.Togetherness(a.NIC)})
	}
	return l
}

// fillIn returns false if a lab node has no memory, which no lab can have.
func fillIn(p *plan.Problem) bool {
	for i := range p.NUMANodes {
		p.NUMANodes[i].Distances[i] = 10
	}
	for i := range p.Devices {
		d := &p.Devices[i]
		for v := len(d.FreeVFs); v < d.VFs; v++ {
			d.FreeVFs = append(d.FreeVFs, v)
		}
	}
	for i := range p.Requests {
		if p.Requests[i].Pages == 0 {
			return false
		}
	}
	return true
}

// The search's result must make a plan without faults for the checker, which shares no code with it.
func TestRandomProblemsMakePlansThatPassCheck(t *testing.T) {
	t.Parallel()
	const small, mixed = 8000, 300
	problems := map[string]func(seed uint64) *plan.Problem{
		"small": plantest.Small,
		"mixed": func(seed uint64) *plan.Problem { _, p := mix(seed); return p },
	}
	for name, count := range map[string]int{"small": small, "mixed": mixed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				count /= 5
			}
			planned, none, proved := 0, 0, 0
			for seed := range uint64(count) {
				p := problems[name](seed)
				if !fillIn(p) {
					continue
				}
				r, err := Solve(t.Context(), p, Options{Steps: 200_000})
				if errors.Is(err, ErrInfeasible) || errors.Is(err, ErrStopped) {
					none++
					continue
				}
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				h, l := hostOf(p), labOfProblem(p)
				judge(t, seed, h, l, p, r)
				planned++
				if r.Optimal {
					proved++
				}
				if t.Failed() {
					return
				}
			}
			t.Logf("%d plans, %d of them proved; %d have none", planned, proved, none)
			if planned < count/5 {
				t.Errorf("%d plans of %d problems: most say nothing", planned, count)
			}
		})
	}
}

func judge(t *testing.T, seed uint64, h *topology.Host, l *lab.Lab, p *plan.Problem, r *Result) {
	t.Helper()
	pl := plan.Assemble(h, l, p, r.Outcome)
	if err := verify.Plan(h, l, p, pl); err != nil {
		t.Errorf("seed %d: the check of its own plan:\n%v", seed, err)
	}
	if got := plan.Cost(pl.Terms); got != pl.Cost || r.Cost != pl.Cost {
		t.Errorf("seed %d: the plan costs %d, its terms add up to %d, the search says %d", seed, pl.Cost, got, r.Cost)
	}
	if pl.Bound > pl.Cost || pl.Optimal != (pl.Bound == pl.Cost) || pl.Optimal == (pl.Stopped != "") {
		t.Errorf("seed %d: cost %d, bound %d, optimal %v, stopped %q: want a proof, or what stopped it", seed, pl.Cost,
			pl.Bound, pl.Optimal, pl.Stopped)
	}
	text, err := json.Marshal(pl)
	if err != nil {
		t.Fatal(err)
	}
	var back plan.Plan
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatalf("seed %d: reading the plan back: %v", seed, err)
	}
	if err := verify.Plan(h, l, p, &back); err != nil {
		t.Errorf("seed %d: the check of the plan read back from its JSON:\n%v", seed, err)
	}
	if again, err := json.Marshal(&back); err != nil || !bytes.Equal(text, again) {
		t.Errorf("seed %d: the plan read back from its JSON gives other JSON (%v):\n%s\n%s", seed, err, text, again)
	}
}
