package rivals

import (
	"fmt"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// A machine has equal NUMA nodes. CPUs c and c + cores are siblings.
type machine struct {
	nodes, cores, threads int // cores per node
	packages              int
	l3                    int // cores per L3 cache
	far                   int // distance to another node
	pages                 int64
}

func (m machine) problem() *plan.Problem {
	p := &plan.Problem{
		Schema: plan.ProblemSchema, Lab: "lab", Host: "host", Workload: lab.WorkloadMixed, PageBytes: 1 << 30,
		HugepageBytes: 1 << 30,
		Weights:       plan.DefaultWeights(lab.WorkloadMixed),
	}
	total := m.nodes * m.cores
	for n := range m.nodes {
		node := plan.NUMANode{ID: n, Pages: new(m.pages)}
		for other := range m.nodes {
			d := m.far
			if other == n {
				d = 10
			}
			node.Distances = append(node.Distances, d)
		}
		p.NUMANodes = append(p.NUMANodes, node)
	}
	for k := range m.packages {
		p.Packages = append(p.Packages, plan.Package{ID: k})
	}
	for c := range total {
		core := plan.Core{ID: c, NUMANode: c / m.cores, Package: c / m.cores * m.packages / m.nodes, L3: c / m.l3}
		for t := range m.threads {
			core.CPUs = append(core.CPUs, c+t*total)
		}
		p.Cores = append(p.Cores, core)
	}
	return p
}

// Paths are NODE within a NUMA node and SYS between nodes, unless class returns another.
func addPaths(p *plan.Problem, class func(a, b plan.Device) (string, int)) {
	for a := range p.Devices {
		for b := a + 1; b < len(p.Devices); b++ {
			if p.Devices[a].Kind != plan.KindGPU {
				continue
			}
			name, steps := class(p.Devices[a], p.Devices[b])
			p.Paths = append(p.Paths, plan.PairPath{A: a, B: b, Class: name, Steps: steps})
		}
	}
}

func byNUMA(a, b plan.Device) (string, int) {
	if a.NUMANode != nil && b.NUMANode != nil && *a.NUMANode == *b.NUMANode {
		return "NODE", 3
	}
	return "SYS", 4
}

// Each device is on a NUMA node of its own.
func epycPair() *plan.Problem {
	p := machine{nodes: 4, cores: 8, threads: 2, packages: 1, l3: 4, far: 16, pages: 62}.problem()
	gpu := func(id string, node, bundle int) plan.Device {
		return plan.Device{ID: id, Kind: plan.KindGPU, NUMANode: &node, Vendor: "nvidia", Model: "RTX 3090",
			Bundle: bundle, Whole: true}
	}
	nic := func(id string, node, bundle int) plan.Device {
		return plan.Device{ID: id, Kind: plan.KindNIC, NUMANode: &node, Vendor: "mellanox", Model: "ConnectX-4 Lx",
			Bundle: bundle, Whole: true, RateMbps: 25_000, RDMA: true}
	}
	p.Devices = []plan.Device{gpu("0000:06:00.0", 0, 0), gpu("0000:21:00.0", 1, 1), nic("0000:41:00.0", 2, 2),
		nic("0000:61:00.0", 3, 3)}
	addPaths(p, byNUMA)
	p.ReserveCores = 4
	for _, name := range []string{"vm00", "vm01"} {
		p.Requests = append(p.Requests, plan.Request{
			Name: name, VCPUs: 28, Threads: 2, Cores: 14, Pages: 32, GuestNUMA: "auto",
			GPUs: []plan.Want{{Count: 1, Any: []int{0, 1}}}, NICs: []plan.Want{{Count: 1, Any: []int{2, 3}}},
		})
	}
	return p
}

// h20 has two NICs of each socket beside a GPU.
func h20() *plan.Problem {
	p := machine{nodes: 2, cores: 48, threads: 2, packages: 2, l3: 48, far: 21, pages: 480}.problem()
	for i := range 8 {
		p.Devices = append(p.Devices, plan.Device{ID: fmt.Sprintf("GPU%d", i), Kind: plan.KindGPU, NUMANode: new(i / 4),
			Vendor: "nvidia", Model: "H20", Bundle: i, Whole: true})
	}
	for i := range 4 {
		p.Devices = append(p.Devices, plan.Device{ID: fmt.Sprintf("NIC%d", i), Kind: plan.KindNIC, NUMANode: new(i / 2),
			Vendor: "mellanox", Model: "ConnectX-7", Bundle: 8 + i, Whole: true, RateMbps: 400_000, RDMA: true})
	}
	beside := map[string]string{"NIC0": "GPU1", "NIC1": "GPU3", "NIC2": "GPU4", "NIC3": "GPU6"}
	addPaths(p, func(a, b plan.Device) (string, int) {
		switch {
		case b.Kind == plan.KindGPU:
			return "NV", 0
		case beside[b.ID] == a.ID:
			return "PIX", 0
		}
		return byNUMA(a, b)
	})
	p.ReserveCores = 4
	for i := range 4 {
		p.Requests = append(p.Requests, plan.Request{
			Name: fmt.Sprintf("vm%02d", i), VCPUs: 44, Threads: 2, Cores: 22, Pages: 200, GuestNUMA: "auto",
			GPUs: []plan.Want{{Count: 2, Any: []int{0, 1, 2, 3, 4, 5, 6, 7}}},
			NICs: []plan.Want{{Count: 1, Any: []int{8, 9, 10, 11}}},
		})
	}
	return p
}

func request(name string, cores int, pages int64) plan.Request {
	return plan.Request{Name: name, VCPUs: 2 * cores, Threads: 2, Cores: cores, Pages: pages, GuestNUMA: "auto"}
}

func place(t *testing.T, p *plan.Problem, id string) Outcome {
	t.Helper()
	for _, o := range Compare(p) {
		if o.Rival == id {
			return o
		}
	}
	t.Fatalf("no rival %q", id)
	return Outcome{}
}
