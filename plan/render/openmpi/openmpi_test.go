package openmpi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

func TestRankfiles(t *testing.T) {
	t.Parallel()
	// Two sockets of two cores with two threads each, a node with only memory, and the NIC at the second socket.
	placed := &plan.Plan{Nodes: []plan.Node{
		{Name: "a", SMT: true, Threads: 2, VCPUs: []int{2, 18, 3, 19, 10, 26, 11, 27}, NICs: []lab.NIC{{Name: "eth0"}},
			Cells: []plan.Cell{{Cell: 0, VCPUs: 4, Distances: []int{10, 21}},
				{Cell: 1, FirstVCPU: 4, VCPUs: 4, Distances: []int{21, 10}}, {Cell: 2}},
			Cards: []plan.NodeDevice{{ID: "gpu", Kind: plan.KindGPU, Cell: new(0)},
				{ID: "nic", Kind: plan.KindNIC, Cell: new(1)}}},
		{Name: "b", Unpinned: true, VCPUs: []int{4}, Cells: []plan.Cell{{VCPUs: 1, Distances: []int{10}}}},
	}}
	nodes := func(a, b int) []Node { return []Node{{Name: "a", CPUs: 8, Ranks: a}, {Name: "b", CPUs: 1, Ranks: b}} }
	for name, c := range map[string]struct {
		plan  *plan.Plan
		nodes []Node
		want  string
	}{
		"no plan": {nil, nodes(2, 1), `
rank 0=a slot=0
rank 1=a slot=1
rank 2=b slot=0
`},
		"cores next to the NIC, then others, then threads": {placed, nodes(5, 1), `
rank 0=a slot=2 # NUMA node 1, which has eth0; CPUs 10, 26 of the host
rank 1=a slot=3 # NUMA node 1, which has eth0; CPUs 11, 27 of the host
rank 2=a slot=0 # NUMA node 0, at distance 21 from that of eth0; CPUs 2, 18 of the host
rank 3=a slot=1 # NUMA node 0, at distance 21 from that of eth0; CPUs 3, 19 of the host
rank 4=a slot=2 # NUMA node 1, which has eth0; CPUs 10, 26 of the host
rank 5=b slot=0 # NUMA node 0; not pinned on the host
`},
	} {
		head, rest, _ := strings.Cut(Rankfile("x", c.plan, c.nodes), "\n")
		if diff := cmp.Diff(c.want, "\n"+rest); diff != "" || !strings.HasPrefix(head, "# Ranks of lab x, ") ||
			strings.Contains(head, "No plan") != (c.plan == nil) {
			t.Errorf("%s: %s (-want +got):\n%s", name, head, diff)
		}
	}
	if diff := cmp.Diff("a slots=4\nb slots=1\n", Hostfile(NodesOf(placed))); diff != "" {
		t.Error(diff)
	}
}
