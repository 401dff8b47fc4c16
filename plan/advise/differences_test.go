package advise

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func TestWhatAChangeDoesIsSaidInWords(t *testing.T) {
	t.Parallel()
	h, l := readHost(t, "epyc-7551p.ttar"), readLab(t, "epyc-pair.yaml")
	before := planned(t, h, l)
	first := func(change func(n *lab.Node)) *lab.Lab {
		l := deepCopy(l)
		change(&l.Nodes[0])
		return l
	}
	alone, compute, small := deepCopy(l), deepCopy(l), deepCopy(l)
	alone.Nodes = alone.Nodes[:1]
	compute.Workload = lab.WorkloadGPUCompute
	small.Hugepages = lab.Hugepages2MiB
	for _, c := range []struct {
		name string
		h    *topology.Host
		l    *lab.Lab
		want []string
	}{
		{"a card in another slot", moved(t, h, move{device: "0000:41:00.0"}), l, []string{"score from ", " lower",
			"vm00: GPU-NIC distance (PIX=0 to SYS=4): score 1200 to 600"}},
		{"a node less", h, alone, []string{"vm01 is gone", "the host keeps CPUs ", "hugepages from "}},
		{"fewer CPUs", h, first(func(n *lab.Node) { n.CPUs = 14 }),
			[]string{"vm00: CPUs from ", "other kernel arguments"}},
		{"less memory", h, first(func(n *lab.Node) { n.Memory = 8 * lab.GiB }), []string{"vm00: memory from ", " to "}},
		{"another workload", h, compute,
			[]string{"workload from rdma-latency to gpu-compute: scores are in other weights"}},
		{"hidden NUMA nodes", h, first(func(n *lab.Node) { n.GuestNUMA = lab.Off }), []string{"score from ", " higher",
			"vm00: guest NUMA nodes from 2 to 1", "vm00: NUMA nodes beyond the first: score 300 to 1200"}},
		{"small pages", h, small, []string{"hugepages from ", " x 2 MiB on NUMA node"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Join(Differences(before.Plan, planned(t, c.h, c.l).Plan), "\n")
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("want %q in\n%s", want, text)
				}
			}
		})
	}
	two := with(l, func(n *lab.Node) { n.CPUs = 12 })
	three := with(two, func(n *lab.Node) {
		n.Memory = 8 * lab.GiB
		n.GPUs, n.GPURequests = 0, nil
		n.NICs, n.NICRequests = nil, nil
	})
	more := deepCopy(three.Nodes[1])
	more.Name = "vm02"
	three.Nodes = append(three.Nodes, more)
	got := strings.Join(Differences(planned(t, h, two).Plan, planned(t, h, three).Plan), "\n")
	if !strings.Contains(got, "vm02 is new: CPUs ") || !strings.Contains(got, "vm00: devices: ") {
		t.Errorf("a new node and fewer devices: got\n%s", got)
	}
	if got := Differences(before.Plan, before.Plan); got != nil {
		t.Errorf("a plan differs from itself in %q", got)
	}
}

func TestOtherDevicesAreNamedWithTheOnesThatTheyReplace(t *testing.T) {
	t.Parallel()
	node := func(cards ...plan.NodeDevice) *plan.Plan {
		return &plan.Plan{Nodes: []plan.Node{{Name: "a", Cards: cards}}}
	}
	gpu, nic := plan.NodeDevice{ID: "GPU0", Kind: plan.KindGPU}, plan.NodeDevice{ID: "0000:41:00.0", Kind: plan.KindNIC,
		NUMANode: new(2)}
	moved := nic
	moved.NUMANode = new(0)
	vf := plan.NodeDevice{ID: "0000:41:00.0", Kind: plan.KindVF, VF: new(3)}
	for _, c := range []struct {
		name          string
		before, after *plan.Plan
		want          []string
	}{
		{"a card in another slot", node(gpu, nic), node(gpu, moved),
			[]string{"a: devices: NIC 0000:41:00.0 (NUMA node 0) instead of NIC 0000:41:00.0 (NUMA node 2)"}},
		{"a card that is gone", node(gpu, nic), node(nic), []string{"a: devices: none instead of GPU0"}},
		{"one virtual function more", node(vf), node(vf, vf),
			[]string{"a: devices: VF of 0000:41:00.0 instead of none"}},
		{"the same in another order", node(gpu, nic), node(nic, gpu), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Differences(c.before, c.after)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTermsAreComparedByWhoseTheyAreAndTheLargestChangeComesFirst(t *testing.T) {
	t.Parallel()
	before := []plan.Term{{Node: "a", Term: "x", Cost: 10}, {Node: "a", Term: "y", Cost: 5},
		{Among: []string{"a", "b"}, Term: "unequal", Cost: 7}}
	after := []plan.Term{{Node: "a", Term: "x", Cost: 9}, {Node: "a", Term: "y", Cost: 5},
		{Node: "b", Term: "x", Cost: 3}}
	var got []string
	for _, c := range termChanges(before, after) {
		got = append(got, c.String())
	}
	want := []string{"a, b: percents between the best and the worst placed of equal lab nodes: score 7 to 0",
		"b: x: score 0 to 3", "a: x: score 10 to 9"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
