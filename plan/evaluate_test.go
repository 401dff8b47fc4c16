package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
)

// smallProblem has two NUMA nodes at distance 21 with four cores of two threads each, and an L3 for every two cores.
// GPU 0 and NIC 2 are on node 0, GPU 1 and NIC 3 on node 1.
func smallProblem() *Problem {
	zero, one := 0, 1
	pages := int64(16)
	p := &Problem{
		Schema: ProblemSchema, Lab: "small", Host: "small", Workload: lab.WorkloadMixed, PageBytes: 1 << 30,
		HugepageBytes: 1 << 30, ReserveCores: 1,
		NUMANodes: []NUMANode{{ID: 0, Distances: []int{10, 21}, Pages: &pages}, {ID: 1, Distances: []int{21, 10},
			Pages: &pages}},
		Packages: []Package{{ID: 0}, {ID: 1}},
		Devices: []Device{
			{ID: "0000:01:00.0", Kind: KindGPU, NUMANode: &zero, Bundle: 0, Functions: []string{"0000:01:00.0",
				"0000:01:00.1"}, Whole: true},
			{ID: "0000:81:00.0", Kind: KindGPU, NUMANode: &one, Bundle: 1, Functions: []string{"0000:81:00.0"},
				Whole: true},
			{ID: "0000:02:00.0", Kind: KindNIC, NUMANode: &zero, Bundle: 2, Functions: []string{"0000:02:00.0"},
				Whole: true, RateMbps: 100_000, RDMA: true, VFs: 4, FreeVFs: []int{0, 1, 2, 3}},
			{ID: "0000:82:00.0", Kind: KindNIC, NUMANode: &one, Bundle: 3, Functions: []string{"0000:82:00.0"},
				Whole: true, RateMbps: 25_000},
		},
		Paths: []PairPath{
			{A: 0, B: 1, Class: "SYS", Steps: 4},
			{A: 0, B: 2, Class: "PIX", Steps: 0}, {A: 0, B: 3, Class: "SYS", Steps: 4},
			{A: 1, B: 2, Class: "SYS", Steps: 4}, {A: 1, B: 3, Class: "PHB", Steps: 2},
		},
		Requests: []Request{{
			Name: "vm00", VCPUs: 4, Threads: 2, Cores: 2, Pages: 4, GuestNUMA: "auto",
			GPUs: []Want{{Count: 1, Any: []int{0, 1}}}, NICs: []Want{{Count: 1, Any: []int{2, 3}}},
		}},
		Weights: DefaultWeights(lab.WorkloadMixed),
	}
	for c := range 8 {
		p.Cores = append(p.Cores, Core{ID: c, CPUs: []int{c, c + 8}, NUMANode: c / 4, Package: c / 4, L3: c / 2})
	}
	return p
}

func valuesOf(terms []Term, node string) map[string]int64 {
	values := map[string]int64{}
	for _, t := range terms {
		if t.Node == node && t.Value != 0 {
			values[t.Term] = t.Value
		}
	}
	return values
}

func TestEvaluateCountsEachShortcoming(t *testing.T) {
	t.Parallel()
	local := func() NodePlacement {
		return NodePlacement{Cores: []int{0, 1}, Memory: []NodePage{{0, 4}}, GPUs: []int{0}, NICs: []int{2}}
	}
	for _, tt := range []struct {
		name   string
		change func(*Problem, *NodePlacement)
		want   map[string]int64
	}{
		{"everything on one node costs nothing", func(*Problem, *NodePlacement) {}, map[string]int64{}},
		{"a GPU far from the NIC and from the cores", func(_ *Problem, n *NodePlacement) { n.GPUs = []int{1} },
			map[string]int64{TermGPUNICPath: 4, TermDeviceNearest: 11, TermDeviceDistance: 22, TermDeviceShare: 22}},
		{"a measured pair counts by its loss", func(p *Problem, n *NodePlacement) {
			loss := 37
			p.Paths[2].LossPercent = &loss
			n.NICs = []int{3}
		}, map[string]int64{TermGPUNICMeasured: 37, TermDeviceNearest: 11, TermDeviceDistance: 22,
			TermDeviceShare: 22, TermNICRate: 1, TermNICRDMA: 1}},
		{"all cores on the other node", func(_ *Problem, n *NodePlacement) { n.Cores = []int{4, 5} },
			map[string]int64{TermDeviceNearest: 22, TermDeviceDistance: 44, TermMemoryDistance: 44,
				TermMemoryBalance: 4}},
		{"one core on each node, memory on one", func(_ *Problem, n *NodePlacement) { n.Cores = []int{0, 4} },
			map[string]int64{TermDeviceDistance: 22, TermNUMASpan: 1, TermMemoryBalance: 2}},
		{"one core on each node, memory with them", func(_ *Problem, n *NodePlacement) {
			n.Cores, n.Memory = []int{0, 4}, []NodePage{{0, 2}, {1, 2}}
		}, map[string]int64{TermDeviceDistance: 22, TermNUMASpan: 1}},
		{"pages on the other node", func(_ *Problem, n *NodePlacement) { n.Memory = []NodePage{{0, 1}, {1, 3}} },
			map[string]int64{TermMemoryDistance: 33, TermMemoryBalance: 3}},
		{"a tenant in the same L3", func(p *Problem, n *NodePlacement) {
			p.Cores[2].Tenant, n.Cores = "web", []int{0, 3}
		},
			map[string]int64{TermL3Shared: 1}},
		{"small cores of a hybrid machine", func(p *Problem, _ *NodePlacement) {
			p.Cores[1].Efficiency = true
		}, map[string]int64{TermEfficiencyCores: 1}},
		{"no housekeeping core on the node", func(p *Problem, n *NodePlacement) {
			p.Cores[2].Tenant, p.Cores[3].Tenant = "web", "web"
		}, map[string]int64{TermEmulatorDistance: 11}},
		{"a device whose node is not known counts no distance", func(p *Problem, _ *NodePlacement) {
			p.Devices[0].NUMANode = nil
		}, map[string]int64{}},
		{"virtual functions are ports like NICs", func(_ *Problem, n *NodePlacement) {
			n.NICs, n.VFs = nil, []VFCount{{3, 2}}
		},
			map[string]int64{TermGPUNICPath: 8, TermDeviceNearest: 22, TermDeviceDistance: 44, TermDeviceShare: 33,
				TermNICRate: 2, TermNICRDMA: 2}},
		{"two GPUs with one NIC", func(_ *Problem, n *NodePlacement) { n.GPUs = []int{0, 1} },
			map[string]int64{TermGPUNICPath: 4, TermGPUGPUPath: 4, TermDeviceNearest: 11, TermDeviceDistance: 22,
				TermDeviceShare: 33}},
		{"a core with each GPU", func(_ *Problem, n *NodePlacement) {
			n.GPUs, n.Cores, n.Memory = []int{0, 1}, []int{0, 4}, []NodePage{{0, 2}, {1, 2}}
		}, map[string]int64{TermGPUNICPath: 4, TermGPUGPUPath: 4, TermDeviceDistance: 33, TermNUMASpan: 1}},
		{"three cores beside one of two GPUs", func(_ *Problem, n *NodePlacement) {
			n.GPUs, n.Cores, n.Memory = []int{0, 1}, []int{0, 1, 2, 4}, []NodePage{{0, 3}, {1, 1}}
		}, map[string]int64{TermGPUNICPath: 4, TermGPUGPUPath: 4, TermDeviceDistance: 55, TermDeviceShare: 33,
			TermNUMASpan: 1, TermCoreBalance: 1}},
		{"a guest that sees no NUMA nodes: each core counts, none is the nearest", func(p *Problem, n *NodePlacement) {
			p.Requests[0].GuestNUMA = "off"
			n.Cores, n.Memory = []int{0, 4}, []NodePage{{0, 2}, {1, 2}}
		}, map[string]int64{TermDeviceNearest: 22, TermDeviceDistance: 22, TermNUMASpan: 1}},
		{"its cores belong to its GPU and its far NIC", func(p *Problem, n *NodePlacement) {
			p.Requests[0].GuestNUMA, n.NICs = "off", []int{3}
		}, map[string]int64{TermGPUNICPath: 4, TermDeviceNearest: 22, TermDeviceDistance: 22, TermDeviceShare: 22,
			TermNICRate: 1, TermNICRDMA: 1}},
		{"or to two GPUs alone", func(p *Problem, n *NodePlacement) {
			p.Requests[0].GuestNUMA, n.NICs, n.GPUs = "off", []int{3}, []int{0, 1}
			p.Devices[1].NUMANode = p.Devices[0].NUMANode
		}, map[string]int64{TermGPUNICPath: 6, TermGPUGPUPath: 4, TermDeviceNearest: 22, TermDeviceDistance: 22,
			TermNICRate: 1, TermNICRDMA: 1}},
		{"two NICs with one GPU", func(_ *Problem, n *NodePlacement) { n.NICs = []int{2, 3} },
			map[string]int64{TermGPUNICPath: 4, TermDeviceNearest: 11, TermDeviceDistance: 22, TermNICRate: 1,
				TermNICRDMA: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, n := smallProblem(), local()
			tt.change(p, &n)
			terms := Evaluate(p, &Placement{Nodes: []NodePlacement{n}})
			if diff := cmp.Diff(tt.want, valuesOf(terms, "vm00")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for _, term := range terms {
				if term.Cost != term.Value*term.Weight {
					t.Errorf("%s costs %d, and is %d times %d", term.Term, term.Cost, term.Value, term.Weight)
				}
			}
		})
	}
}

func twoNodes() (*Problem, *Placement) {
	p := smallProblem()
	p.Requests = append(p.Requests, p.Requests[0])
	p.Requests[1].Name = "vm01"
	return p, &Placement{Nodes: []NodePlacement{
		{Cores: []int{0, 1}, Memory: []NodePage{{0, 4}}, GPUs: []int{0}, NICs: []int{2}},
		{Cores: []int{4, 5}, Memory: []NodePage{{1, 4}}, GPUs: []int{1}, NICs: []int{3}},
	}}
}

func TestEvaluateComparesEqualLabNodes(t *testing.T) {
	t.Parallel()
	p, pl := twoNodes()
	terms := Evaluate(p, pl)
	last := terms[len(terms)-1]
	// vm01 pays for PHB (2 x 600), for 25 Gb/s (200) and for missing RDMA (2000).
	want := Term{Among: []string{"vm00", "vm01"}, Term: TermUnequal, Value: 34, Weight: 10, Cost: 340}
	if diff := cmp.Diff(want, last); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	p.Requests[1].Class = 1
	if slices.ContainsFunc(Evaluate(p, pl), func(t Term) bool { return t.Term == TermUnequal }) {
		t.Error("lab nodes of different classes are compared")
	}
}

func TestEvaluateCountsWhatLabNodesShare(t *testing.T) {
	t.Parallel()
	p, pl := twoNodes()
	pl.Nodes[0].Cores, pl.Nodes[1].Cores = []int{0, 2}, []int{1, 3}
	for i := range pl.Nodes {
		pl.Nodes[i].NICs, pl.Nodes[i].VFs = nil, []VFCount{{2, 1}}
		p.Requests[i].NICs, p.Requests[i].VFs = nil, []Want{{Count: 1, Any: []int{2}}}
	}
	terms := Evaluate(p, pl)
	for _, node := range []string{"vm00", "vm01"} {
		got := valuesOf(terms, node)
		if got[TermL3Shared] != 2 || got[TermNICShared] != 1 {
			t.Errorf("%s shares %d L3 caches and its port with %d, want 2 and 1", node, got[TermL3Shared],
				got[TermNICShared])
		}
	}
}
