package build_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

type tester interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// An index out of range would panic elsewhere.
func checkWellFormed(t tester, p *plan.Problem) {
	t.Helper()
	if p.Schema != plan.ProblemSchema || p.HugepageBytes != 0 && p.HugepageBytes != 1<<30 && p.HugepageBytes != 2<<20 ||
		p.PageBytes < 2<<20 || p.PageBytes > 1<<30 || p.HugepageBytes > 0 && p.PageBytes%p.HugepageBytes != 0 {
		t.Errorf("schema %q, hugepages of %d bytes, memory in steps of %d", p.Schema, p.HugepageBytes, p.PageBytes)
	}
	nodes := map[int]bool{}
	for i, n := range p.NUMANodes {
		if nodes[n.ID] || i > 0 && n.ID < p.NUMANodes[i-1].ID {
			t.Errorf("NUMA node %d is there twice or out of order", n.ID)
		}
		nodes[n.ID] = true
		if len(n.Distances) != len(p.NUMANodes) || n.Distances[i] != 10 || slices.Min(n.Distances) < 10 ||
			slices.Max(n.Distances) > build.MaxDistance {
			t.Errorf("NUMA node %d: distances %v", n.ID, n.Distances)
		}
		if n.Pages != nil && (*n.Pages < 0 || *n.Pages > build.MaxHostMemory/int64(p.PageBytes)) {
			t.Errorf("NUMA node %d: %d pages", n.ID, *n.Pages)
		}
		if n.ReserveCores < 0 || n.ReserveCores > p.ReserveCores {
			t.Errorf("NUMA node %d: %d of %d cores reserved", n.ID, n.ReserveCores, p.ReserveCores)
		}
	}
	checkCoresWellFormed(t, p, nodes)
	checkDevicesWellFormed(t, p, nodes)
	checkRequestsWellFormed(t, p)
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back plan.Problem
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&back)
	if err != nil || string(again) != string(raw) {
		t.Errorf("the JSON form changes when it is read and written: %v\n%s", err, cmp.Diff(string(raw), string(again)))
	}
}

func checkCoresWellFormed(t tester, p *plan.Problem, nodes map[int]bool) {
	t.Helper()
	packages := map[int]bool{-1: true}
	for i, k := range p.Packages {
		if k.ID < 0 || i > 0 && k.ID <= p.Packages[i-1].ID {
			t.Errorf("package %d is out of order", k.ID)
		}
		packages[k.ID] = true
	}
	owner := map[int]int{}
	free := 0
	for i, c := range p.Cores {
		if i > 0 && c.ID <= p.Cores[i-1].ID {
			t.Errorf("core %d is out of order", c.ID)
		}
		if len(c.CPUs) == 0 || !slices.IsSorted(c.CPUs) || !nodes[c.NUMANode] || !packages[c.Package] || c.L3 < -1 {
			t.Errorf("core %+v", c)
		}
		for _, cpu := range c.CPUs {
			if _, twice := owner[cpu]; twice {
				t.Errorf("CPU %d is in two cores", cpu)
			}
			owner[cpu] = c.ID
		}
		if c.Tenant == "" {
			free++
		}
	}
	if p.ReserveCores < 1 || p.ReserveCores > max(free, 2) {
		t.Errorf("%d cores reserved of %d", p.ReserveCores, free)
	}
}

func checkDevicesWellFormed(t tester, p *plan.Problem, nodes map[int]bool) {
	t.Helper()
	ids := map[string]bool{}
	gpus := 0
	for i, d := range p.Devices {
		if d.ID == "" || ids[d.Kind+d.ID] || d.Kind != plan.KindGPU && d.Kind != plan.KindNIC || i > 0 &&
			d.Kind < p.Devices[i-1].Kind {
			t.Errorf("device %q of kind %q is there twice or out of order", d.ID, d.Kind)
		}
		ids[d.Kind+d.ID] = true
		if d.NUMANode != nil && !nodes[*d.NUMANode] {
			t.Errorf("%s is on node %d", d.ID, *d.NUMANode)
		}
		if d.Whole != (d.Refused == "") || d.VFs != len(d.FreeVFs) || d.VFs > build.MaxNICVFs || d.RateMbps < 0 ||
			!slices.IsSorted(d.FreeVFs) {
			t.Errorf("device %+v", d)
		}
		if len(d.Functions) > 0 && d.Functions[0] != d.ID {
			t.Errorf("%s: functions %v do not begin with its own", d.ID, d.Functions)
		}
		for _, o := range p.Devices[:i] {
			if o.Bundle == d.Bundle && o.Whole != d.Whole {
				t.Errorf("%s and %s go together, and only one may go", o.ID, d.ID)
			}
		}
		if d.Kind == plan.KindGPU {
			gpus++
		}
	}
	if want := gpus*(gpus-1)/2 + gpus*(len(p.Devices)-gpus); len(p.Paths) != want {
		t.Errorf("%d paths, want %d", len(p.Paths), want)
	}
	for _, q := range p.Paths {
		loss := q.LossPercent
		if q.A >= gpus || q.B <= q.A || q.B >= len(p.Devices) || q.Steps < 0 || q.Steps > 4 || loss != nil &&
			(*loss < 0 || *loss > 100) {
			t.Errorf("path %+v", q)
		}
	}
}

func checkRequestsWellFormed(t tester, p *plan.Problem) {
	t.Helper()
	for i, r := range p.Requests {
		if r.VCPUs < 1 || r.Threads < 1 || r.Threads&(r.Threads-1) != 0 || r.Cores*r.Threads != r.VCPUs ||
			r.Pages < 1 || r.Class < 0 || r.Class > i {
			t.Errorf("request %+v", r)
		}
		for kind, wants := range map[string][]plan.Want{plan.KindGPU: r.GPUs, plan.KindNIC: r.NICs,
			plan.KindVF: r.VFs} {
			for _, w := range wants {
				if w.Count < 1 || len(w.Any) == 0 || !slices.IsSorted(w.Any) || w.Text == "" {
					t.Errorf("%s of %s: %+v", kind, r.Name, w)
				}
				for _, d := range w.Any {
					if dev := p.Devices[d]; kind == plan.KindVF && dev.VFs == 0 || kind != plan.KindVF &&
						(dev.Kind != kind || !dev.Whole) {
						t.Errorf("%s of %s: %+v offers %+v", kind, r.Name, w, dev)
					}
				}
			}
		}
	}
	for _, a := range p.Affinity {
		if len(a.Requests) < 2 || !slices.IsSorted(a.Requests) || a.Requests[len(a.Requests)-1] >= len(p.Requests) {
			t.Errorf("affinity %+v", a)
		}
	}
}

// The worst problem that Problem can make keeps the bound in MaxHostCores.
func TestNoCostOverflows(t *testing.T) {
	t.Parallel()
	const (
		distance = build.MaxDistance - 10
		nodes    = 500
		devices  = build.MaxNodeDevices
		classes  = nodes / 2
	)
	mul := func(factors ...int64) float64 {
		v := 1.0
		for _, f := range factors {
			v *= float64(f)
		}
		return v
	}
	// The weight of one of n parts is at most the whole and, times n, at most 1.5 wholes or n.
	parts := func(n int64) float64 { return max(1.5*build.MaxWeight, float64(n)) }
	own := mul(devices, 100, build.MaxWeight) + // gpu_nic_measured; steps are fewer
		mul(devices, devices, 2, build.MaxWeight) + // gpu_gpu_path: half as many pairs, 4 steps
		mul(devices, distance, build.MaxWeight) + // device_nearest
		distance*parts(build.MaxHostCores*devices) + // device_distance
		mul(build.MaxHostNodes, build.MaxWeight) + // numa_span
		parts(build.MaxHostCores) + mul(devices, 5, build.MaxWeight) // efficiency_cores, nic_rate and nic_rdma
	rest := mul(devices, nodes, build.MaxWeight) + // nic_shared
		(distance+1)*parts(build.MaxHostMemory/(2<<20)) + // memory
		mul(build.MaxHostCores, build.MaxWeight) + mul(distance, build.MaxWeight) // l3_shared, emulator_distance
	if own > 1e13 || rest > 1e13 {
		t.Errorf("a lab node costs up to %g and %g, documented is 10^13", own, rest)
	}
	if sum := nodes*(own+rest) + classes*own/100*build.MaxWeight; sum > 1e18 || sum > math.MaxInt64 {
		t.Errorf("a plan costs up to %g, documented is 10^18", sum)
	}
}
