package advise

import (
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/synthetic"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
)

func TestANICOnAnotherNodeThanItsGPUIsToBeMoved(t *testing.T) {
	t.Parallel()
	h, l := readHost(t, "epyc-7551p.ttar"), readLab(t, "epyc-pair.yaml")
	before := planned(t, h, l)
	all := before.advise(t)
	i := slices.IndexFunc(all, func(a plan.Advice) bool {
		return a.What == "move NIC 0000:41:00.0 to a slot of NUMA node 0"
	})
	if i < 0 {
		t.Fatalf("got %+v, want the NIC to be moved to its GPU's node", all)
	}
	if want := "GPU-NIC path of vm00 from SYS to PHB"; !strings.HasPrefix(all[i].Why, want) {
		t.Errorf("why: got %q, want %q first", all[i].Why, want)
	}
	// Planning the changed host gains the same.
	after := moved(t, h, move{device: "0000:41:00.0"})
	if got, want := before.Cost-all[i].Gain, planned(t, after, l).Cost; got != want {
		t.Errorf("after the move the plan should cost %d, and planned anew it costs %d", got, want)
	}
	for k, a := range all {
		if a.Gain <= 0 || k > 0 && a.Gain > all[k-1].Gain {
			t.Errorf("gains %+v, want positive ones, the largest first", all)
		}
	}
	if len(all) > MaxAdvice {
		t.Errorf("%d pieces of advice, want at most %d", len(all), MaxAdvice)
	}
}

func TestAFreePortOfTheGPUsRootIsNamed(t *testing.T) {
	t.Parallel()
	h, l := readHost(t, "epyc-7551p.ttar"), readLab(t, "epyc-pair.yaml")
	gpu, _ := topology.ParsePCIAddr("0000:06:00.0")
	port := *topology.NewTree(h).Device(gpu).Parent
	h = deepCopy(h)
	free := deepCopy(*topology.NewTree(h).Device(port))
	free.Address.Device, free.Address.Function = 0x1e, 3
	free.Link = &topology.Link{MaxWidth: new(16)}
	free.Bridge = &topology.Bridge{Port: "root port"}
	h.PCI = append(h.PCI, free)
	h.Complete()
	for _, a := range planned(t, h, l).advise(t) {
		if strings.HasPrefix(a.What, "move NIC 0000:41:00.0") {
			if want := "port " + free.Address.String() + " has nothing below it and 16 lanes"; !strings.Contains(a.Why,
				want) {
				t.Errorf("why: got %q, want %q in it", a.Why, want)
			}
			return
		}
	}
	t.Error("the NIC is not to be moved")
}

func TestCardsInEachOthersSlotsAreToBeSwapped(t *testing.T) {
	t.Parallel()
	h := moved(t, readHost(t, "epyc-7551p.ttar"), move{device: "0000:41:00.0", node: 1})
	h = without(t, without(t, h, "0000:21:00.0"), "0000:61:00.0")
	l := readLab(t, "epyc-pair.yaml")
	l.Nodes = l.Nodes[:1]
	all := planned(t, h, l).advise(t)
	if len(all) == 0 || !strings.Contains(all[0].What, "NUMA node") {
		t.Errorf("got %+v, want the NIC brought to the GPU", all)
	}
}

func TestAHostAtItsBestGetsNoAdvice(t *testing.T) {
	t.Parallel()
	h, err := synthetic.Host("pack:1 l3:2 core:4 pu:2")
	if err != nil {
		t.Fatal(err)
	}
	l := parseLab(t, "name: x\nnodes:\n  a: {cpus: 4, memory: 4GiB}\n")
	l.Nodes[0].NICs, l.Nodes[0].NICRequests = nil, nil
	if all := planned(t, h, l).advise(t); len(all) != 0 {
		t.Errorf("got %+v, want nothing", all)
	}
}

func bench(change func(p *plan.Problem)) *plan.Problem {
	far := []plan.NUMANode{{ID: 0, Distances: []int{10, 20}, Pages: new(int64(64))}, {ID: 1, Distances: []int{20, 10},
		Pages: new(int64(64))}}
	p := &plan.Problem{
		Schema: plan.ProblemSchema, Lab: "x", Host: "host", Workload: lab.WorkloadMixed, PageBytes: 1 << 30,
		HugepageBytes: 1 << 30, ReserveCores: 1,
		NUMANodes: far, Weights: plan.DefaultWeights(lab.WorkloadMixed),
		Devices: []plan.Device{
			{ID: "0000:10:00.0", Kind: plan.KindGPU, NUMANode: new(0), Bundle: 0, Whole: true},
			{ID: "0000:20:00.0", Kind: plan.KindNIC, NUMANode: new(0), Model: "CX", Bundle: 1, Whole: true,
				RateMbps: 10_000, RDMA: true},
			{ID: "0000:30:00.0", Kind: plan.KindNIC, NUMANode: new(0), Model: "CX", Bundle: 2, Whole: true,
				RateMbps: 10_000, RDMA: true},
		},
		Paths: []plan.PairPath{{A: 0, B: 1, Class: "PHB", Steps: 2}, {A: 0, B: 2, Class: "PHB", Steps: 2}},
		Requests: []plan.Request{{Name: "a", VCPUs: 2, Threads: 1, Cores: 2, Pages: 8, GuestNUMA: "auto", Class: 0,
			GPUs: []plan.Want{{Count: 1, Any: []int{0}}}, NICs: []plan.Want{{Count: 1, Any: []int{1, 2}}}}},
	}
	for c := range 8 {
		p.Cores = append(p.Cores, plan.Core{ID: c, CPUs: []int{c}, NUMANode: c / 4, Package: c / 4, L3: c / 4})
	}
	change(p)
	return p
}

func TestEachShortcomingHasItsAdvice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want, why string
		change          func(p *plan.Problem)
	}{
		{"a port that is down and of a faster model is to be turned up", "turn up the link of NIC 0000:20:00.0",
			"100 Gb/s", func(p *plan.Problem) {
				p.Devices[1].RateMbps = 0
				p.Devices[2].RateMbps, p.Devices[2].Whole = 100_000, false
				p.Requests[0].NICs[0].Any = []int{1}
			}},
		{"a core that the lab file keeps beside the devices", "keep 0 cores of NUMA node 0 for the host instead of 1",
			"host.reserve.numa_nodes", func(p *plan.Problem) {
				p.NUMANodes[0].ReserveCores = 1
				p.Requests[0].VCPUs, p.Requests[0].Cores = 4, 4
			}},
		{"memory that is short beside the cores",
			"free or add memory on NUMA node 0, which has room for 2 GiB of the lab", "a: distance from devices",
			func(p *plan.Problem) {
				p.NUMANodes[0].Pages = new(int64(2))
			}},
		{"two cards in one IOMMU group", "let the IOMMU tell 0000:10:00.0 and 0000:20:00.0 apart", "link rate",
			func(p *plan.Problem) {
				p.Devices[1].Bundle = 0
				p.Devices[1].RateMbps = 100_000
				p.Requests = append(p.Requests, plan.Request{Name: "b", VCPUs: 1, Threads: 1, Cores: 1, Pages: 1,
					GuestNUMA: "auto", Class: 1,
					NICs: []plan.Want{{Count: 1, Any: []int{1}}}})
				p.Requests[0].NICs = nil
				p.Requests[1].NICs[0].Any = []int{1, 2}
				p.Devices[2].RateMbps = 1000
			}},
		{"virtual functions that are all taken", "give NIC 0000:20:00.0 2 virtual functions instead of 1", "NUM_OF_VFS",
			func(p *plan.Problem) {
				p.Devices[1].VFs, p.Devices[1].FreeVFs, p.Devices[1].RateMbps = 1, []int{0}, 100_000
				p.Devices[2].VFs, p.Devices[2].FreeVFs, p.Devices[2].RateMbps = 8, []int{0, 1, 2, 3, 4, 5, 6, 7}, 1000
				p.Requests[0].NICs = nil
				p.Requests[0].VFs = []plan.Want{{Count: 2, Any: []int{1, 2}}}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := bench(c.change)
			r, err := solve(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			all, err := Advice(t.Context(), p, &topology.Host{}, r, solve)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(all, func(a plan.Advice) bool { return a.What == c.want })
			if i < 0 {
				t.Fatalf("got %+v, want %q", all, c.want)
			}
			if !strings.Contains(all[i].Why, c.why) {
				t.Errorf("why: got %q, want %q in it", all[i].Why, c.why)
			}
		})
	}
}

func TestAdviceNeverPromisesMoreThanThereIsToGain(t *testing.T) {
	t.Parallel()
	given := 0
	for seed := range uint64(600) {
		p := plantest.Small(seed)
		r, err := solve(t.Context(), p)
		if err != nil {
			continue
		}
		all, err := Advice(t.Context(), p, &topology.Host{}, r, solve)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		given += len(all)
		for _, a := range all {
			if a.Gain <= 0 || a.Gain > r.Cost || a.What == "" || a.Why == "" {
				t.Errorf("seed %d: %+v of a plan that costs %d", seed, a, r.Cost)
			}
		}
	}
	if given < 10 {
		t.Errorf("%d pieces of advice in all, want at least 10", given)
	}
}
