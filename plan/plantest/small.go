// Package plantest makes small random Problems with all special cases, for tests.
package plantest

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// Small returns a problem for which every placement can be tried, with unusual properties such as gaps in numbers. Many
// have no solution.
func Small(seed uint64) *plan.Problem {
	r := NewRand(seed)
	w := Pick(r, lab.WorkloadMixed, lab.WorkloadRDMALatency, lab.WorkloadGPUCollective, lab.WorkloadCPUBandwidth,
		lab.WorkloadGPUCompute, lab.WorkloadRDMABandwidth)
	p := Empty(w)
	// Zeros and ties are the hard cases for bounds.
	if r.Chance(25) {
		for _, v := range []*int64{&p.Weights.NUMASpan, &p.Weights.L3Shared, &p.Weights.EmulatorDistance,
			&p.Weights.MemoryBalance, &p.Weights.NICShared, &p.Weights.CardShared, &p.Weights.DeviceShare,
			&p.Weights.CoreBalance,
			&p.Weights.DeviceDistance, &p.Weights.Unequal, &p.Weights.MemoryDistance, &p.Weights.DeviceNearest} {
			*v = int64(Pick(r, 0, 1, 7, 100, 900))
		}
	}
	nodes := r.In(1, 3)
	smallNodes(r, p, nodes)
	smallCores(r, p, nodes)
	smallDevices(r, p, nodes)
	smallRequests(r, p)
	if r.Chance(30) {
		for d := range p.Devices {
			if p.Devices[d].Kind == plan.KindNIC {
				p.Devices[d].Net = r.In(0, 2)
			}
		}
	}
	return p
}

// Empty returns an empty problem.
func Empty(w lab.Workload) *plan.Problem {
	return &plan.Problem{Schema: plan.ProblemSchema, Lab: "lab", Host: "host", Workload: w, PageBytes: 1 << 30,
		HugepageBytes: 1 << 30, Weights: plan.DefaultWeights(w)}
}

func smallNodes(r *Rand, p *plan.Problem, nodes int) {
	symmetric := r.Chance(80)
	ids := []int{0, 1, 2}
	if r.Chance(20) {
		ids = []int{3, 5, 8}
	}
	d := make([][]int, nodes)
	for i := range d {
		d[i] = make([]int, nodes)
		for j := range d[i] {
			d[i][j] = Pick(r, 11, 12, 20, 21, 32)
			if symmetric && j < i {
				d[i][j] = d[j][i]
			}
			if i == j {
				d[i][j] = 10
				if r.Chance(2) {
					d[i][j] = 13
				}
			}
		}
	}
	limited := r.Chance(50)
	for i := range nodes {
		n := plan.NUMANode{ID: ids[i], Distances: d[i]}
		if limited && r.Chance(90) {
			n.Pages = new(int64(r.In(0, 5)))
		}
		if r.Chance(15) {
			n.ReserveCores = 1
		}
		p.NUMANodes = append(p.NUMANodes, n)
	}
	for i := range r.In(1, 2) {
		q := plan.Package{ID: i}
		if r.Chance(30) {
			q.Busy = "a disk"
		}
		p.Packages = append(p.Packages, q)
	}
	p.ReserveCores = r.In(0, 2)
}

func smallCores(r *Rand, p *plan.Problem, nodes int) {
	cores := r.In(3, 8)
	tidy := r.Chance(60)
	l3s := r.In(1, 4)
	cpu := 0
	for i := range cores {
		n := i * nodes / cores
		c := plan.Core{ID: 2 * i, NUMANode: p.NUMANodes[n].ID, Package: n % len(p.Packages), L3: i * l3s / cores}
		if !tidy {
			c.NUMANode = p.NUMANodes[r.Intn(nodes)].ID
			c.Package = r.In(-1, len(p.Packages)-1)
			c.L3 = r.In(-1, l3s-1)
			c.Efficiency = r.Chance(20)
		}
		threads := 2
		if c.Efficiency || r.Chance(5) {
			threads = 1
		}
		for range threads {
			c.CPUs = append(c.CPUs, cpu)
			cpu++
		}
		if r.Chance(10) {
			c.Tenant = "old"
		}
		p.Cores = append(p.Cores, c)
	}
}

func smallDevices(r *Rand, p *plan.Problem, nodes int) {
	gpus, nics := r.In(0, 3), r.In(0, 3)
	for k := range gpus + nics {
		d := plan.Device{ID: fmt.Sprintf("dev%d", k), Kind: plan.KindGPU, Bundle: k, Whole: r.Chance(90)}
		if r.Chance(90) {
			d.NUMANode = &p.NUMANodes[r.Intn(nodes)].ID
		}
		if r.Chance(15) {
			d.Bundle = r.Intn(gpus + nics)
		}
		if k >= gpus {
			d.Kind, d.ID = plan.KindNIC, fmt.Sprintf("0000:%02x:00.%d", (k-gpus)/2, (k-gpus)%2) // two per card
			d.RateMbps = Pick(r, int64(0), 10_000, 25_000, 100_000)
			d.RDMA = r.Chance(70)
			if r.Chance(60) {
				d.VFs = r.In(1, 3)
			}
		}
		p.Devices = append(p.Devices, d)
	}
	for a := range gpus {
		for b := a + 1; b < gpus+nics; b++ {
			q := plan.PairPath{A: a, B: b, Steps: r.In(0, 4), Class: "?"}
			if r.Chance(20) {
				q.LossPercent = new(r.In(0, 100))
			}
			p.Paths = append(p.Paths, q)
		}
	}
}

func smallRequests(r *Rand, p *plan.Problem) {
	kinds := [][]int{nil, nil, nil}
	for i, d := range p.Devices {
		if d.Whole && d.Kind == plan.KindGPU {
			kinds[0] = append(kinds[0], i)
		}
		if d.Whole && d.Kind == plan.KindNIC {
			kinds[1] = append(kinds[1], i)
		}
		if d.VFs > 0 {
			kinds[2] = append(kinds[2], i)
		}
	}
	wants := func(kind, most int) []plan.Want {
		any := kinds[kind]
		var out []plan.Want
		for len(any) > 0 && most > 0 && r.Chance(45) {
			w := plan.Want{Count: r.In(1, most), Any: slices.Clone(any)}
			if r.Chance(30) {
				w.Any = slices.DeleteFunc(w.Any, func(int) bool { return r.Chance(30) })
			}
			if len(w.Any) == 0 || kind != 2 && len(w.Any) < w.Count {
				break
			}
			out = append(out, w)
			most -= w.Count
		}
		return out
	}
	count := r.In(1, 3)
	for i := range count {
		q := plan.Request{Name: fmt.Sprintf("vm%d", i), Threads: Pick(r, 1, 2, 2), Cores: r.In(1, 3),
			Pages: int64(r.In(0, 3)), Class: i, GuestNUMA: Pick(r, "auto", "auto", "on", "off")}
		q.GPUs, q.NICs, q.VFs = wants(0, 2), wants(1, 2), wants(2, 2)
		if i > 0 && r.Chance(40) {
			q = p.Requests[i-1]
			q.Name = fmt.Sprintf("vm%d", i)
		}
		q.VCPUs = q.Cores * q.Threads
		p.Requests = append(p.Requests, q)
	}
	if count > 1 && r.Chance(25) {
		a := plan.Affinity{Requests: []int{0, 1}}
		if r.Chance(60) {
			a.NUMA = Pick(r, plan.Same, plan.Different)
		} else {
			a.NIC = Pick(r, plan.Same, plan.Different)
		}
		if count > 2 && r.Chance(50) {
			a.Requests = []int{0, 1, 2}
		}
		p.Affinity = append(p.Affinity, a)
		// Requests with an affinity cannot be swapped.
		for _, i := range a.Requests {
			p.Requests[i].Class = 10 + i
		}
	}
}
