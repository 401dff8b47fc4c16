package advise

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
)

func TestWhatAnEditChangesIsSaidInWords(t *testing.T) {
	t.Parallel()
	h, l := readHost(t, "epyc-7551p.ttar"), readLab(t, "epyc-pair.yaml")
	before := planned(t, h, l)
	for _, c := range []struct {
		edit string
		want []string
	}{
		{"move 0000:41:00.0 to 0", []string{"cost from ", " less",
			"vm00: steps of path between GPUs and NICs: cost 1200 to 600"}},
		{"remove node vm01", []string{"vm01 is gone", "the host keeps CPUs ", "hugepages from "}},
		{"cpus vm00 14", []string{"vm00: CPUs from ", "other kernel arguments"}},
		{"memory vm00 8GiB", []string{"vm00: memory from ", " to "}},
		{"workload gpu-compute", []string{"workload from rdma-latency to gpu-compute: costs are in other weights"}},
		{"guest-numa off vm00", []string{"cost from ", " more", "vm00: guest NUMA nodes from 2 to 1",
			"vm00: NUMA nodes beyond the first: cost 300 to 1200"}},
		{"hugepages 2MiB", []string{"hugepages from ", " x 2 MiB on NUMA node"}},
	} {
		t.Run(c.edit, func(t *testing.T) {
			h, l := edited(t, h, l, c.edit)
			got := Differences(before.Plan, planned(t, h, l).Plan)
			text := strings.Join(got, "\n")
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("want %q in\n%s", want, text)
				}
			}
		})
	}
	h2, l2 := edited(t, h, l, "cpus 12")
	small := planned(t, h2, l2)
	h3, l3 := edited(t, h2, l2, "add node vm02", "memory 8GiB")
	for i := range l3.Nodes {
		l3.Nodes[i].GPUs, l3.Nodes[i].GPURequests = 0, nil
	}
	if got := strings.Join(Differences(small.Plan, planned(t, h3, l3).Plan), "\n"); !strings.Contains(got,
		"vm02 is new: CPUs ") ||
		!strings.Contains(got, "vm00: devices: ") {
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
	want := []string{"a, b: percents between the best and the worst placed of equal lab nodes: cost 7 to 0",
		"b: x: cost 0 to 3", "a: x: cost 10 to 9"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
