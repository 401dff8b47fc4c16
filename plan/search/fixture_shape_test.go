package search

import (
	"cmp"
	"fmt"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
)

type shape struct {
	Packages, Nodes int // NUMA nodes are per socket
	// per NUMA node and per cache; with L3s 0, each package has one L3 and Cores is per NUMA node
	L3s, Cores        int
	Threads           int // per core
	GPUs, NICs        int // in all
	OneNode           bool
	OneBundle         bool
	VFs               int   // per NIC
	Pages             int64 // per NUMA node; 0 means plenty
	Far, Near         int   // distances to other packages and within one; 0 means 32 and 12
	EfficiencyCores   int   // additional small cores per NUMA node, one thread each, four per L3
	MemoryNodes       int   // additional ones without cores, each with Pages
	NoMemoryNodes     int   // number of last ones with cores but no memory
	Tenants           int   // cores per NUMA node
	Reserve           int
	NodeReserve       int
	Busy              bool
	Workload          lab.Workload
	PairsUnderSwitch  bool
	UnknownDeviceHome bool
}

// Problem returns the machine without requests.
func (s shape) Problem() *plan.Problem {
	s.Workload = cmp.Or(s.Workload, lab.WorkloadMixed)
	p := plantest.Empty(s.Workload)
	p.ReserveCores = s.Reserve
	withCores := s.Packages * s.Nodes
	total := withCores + s.MemoryNodes
	for i := range total {
		n := plan.NUMANode{ID: i}
		for j := range total {
			switch {
			case i == j:
				n.Distances = append(n.Distances, 10)
			case i < withCores && j < withCores && i/s.Nodes == j/s.Nodes:
				n.Distances = append(n.Distances, cmp.Or(s.Near, 12))
			default:
				n.Distances = append(n.Distances, cmp.Or(s.Far, 32))
			}
		}
		n.Pages = new(cmp.Or(s.Pages, 1<<20))
		if i < withCores {
			n.ReserveCores = s.NodeReserve
			if i >= withCores-s.NoMemoryNodes {
				*n.Pages = 0
			}
		}
		p.NUMANodes = append(p.NUMANodes, n)
	}
	for i := range s.Packages {
		q := plan.Package{ID: i}
		if s.Busy {
			q.Busy = "the root disk is there"
		}
		p.Packages = append(p.Packages, q)
	}
	s.addCores(p)
	s.addDevices(p)
	return p
}

// addCores numbers second threads above all first threads, as on Linux.
func (s shape) addCores(p *plan.Problem) {
	threads := max(1, s.Threads)
	cores := s.Packages * s.Nodes * max(1, s.L3s) * s.Cores
	l3, id := 0, 0
	for n := range s.Packages * s.Nodes {
		tenants := s.Tenants
		add := func(l3, threads int, efficiency bool) {
			c := plan.Core{ID: id, NUMANode: n, Package: n / s.Nodes, L3: l3, Efficiency: efficiency}
			for t := range threads {
				c.CPUs = append(c.CPUs, id+t*(cores+64*s.EfficiencyCores))
			}
			if tenants > 0 {
				c.Tenant = "tenant"
				tenants--
			}
			p.Cores = append(p.Cores, c)
			id++
		}
		if s.L3s == 0 {
			for range s.Cores {
				add(n/s.Nodes, threads, false)
			}
			l3 = s.Packages
		}
		for range s.L3s {
			for range s.Cores {
				add(l3, threads, false)
			}
			l3++
		}
		for k := range s.EfficiencyCores {
			add(l3+k/4, 1, true)
		}
		l3 += (s.EfficiencyCores + 3) / 4
	}
}

func (s shape) addDevices(p *plan.Problem) {
	nodes := s.Packages * s.Nodes
	home := func(k, of int) *int {
		if s.UnknownDeviceHome {
			return nil
		}
		n := k * nodes / of
		if s.OneNode {
			n = 0
		}
		return &n
	}
	for k := range s.GPUs {
		p.Devices = append(p.Devices, plan.Device{ID: fmt.Sprintf("0000:%02x:00.0", 0x10+k), Kind: plan.KindGPU,
			NUMANode: home(k, s.GPUs), Bundle: k, Whole: true})
	}
	for k := range s.NICs {
		d := plan.Device{ID: fmt.Sprintf("0000:%02x:00.0", 0x80+k), Kind: plan.KindNIC, NUMANode: home(k, s.NICs),
			Bundle: s.GPUs + k, Whole: true, RateMbps: 100_000, RDMA: true, VFs: s.VFs}
		for v := range s.VFs {
			d.FreeVFs = append(d.FreeVFs, v)
		}
		p.Devices = append(p.Devices, d)
	}
	if s.OneBundle {
		for i := range p.Devices {
			p.Devices[i].Bundle = 0
		}
	}
	for a := range s.GPUs {
		for b := a + 1; b < len(p.Devices); b++ {
			p.Paths = append(p.Paths, s.path(p, a, b))
		}
	}
}

func (s shape) path(p *plan.Problem, a, b int) plan.PairPath {
	q := plan.PairPath{A: a, B: b, Class: "SYS", Steps: 4}
	x, y := p.Devices[a].NUMANode, p.Devices[b].NUMANode
	if x != nil && y != nil && *x == *y {
		q.Class, q.Steps = "NODE", 3
	}
	if !s.PairsUnderSwitch || s.NICs == 0 {
		return q
	}
	per := max(1, s.GPUs/s.NICs)
	left, right := a/per, b/per
	if p.Devices[b].Kind == plan.KindNIC {
		right = b - s.GPUs
	}
	if left == right {
		q.Class, q.Steps = "PIX", 0
	}
	return q
}
