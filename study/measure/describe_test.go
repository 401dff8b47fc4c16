package measure

import (
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/study/record"
)

// Memory is measured on NUMA nodes with CPUs that every node has.
func TestNUMANodesThatAllNodesHave(t *testing.T) {
	t.Parallel()
	node := func(cpus ...int) *facts.Node {
		n := &facts.Node{}
		for id, c := range cpus {
			n.NUMANodes = append(n.NUMANodes, topology.NUMANode{ID: id})
			if c >= 0 {
				n.NUMANodes[id].CPUs = topology.CPUs(c)
			}
		}
		return n
	}
	for _, tt := range []struct {
		nodes []*facts.Node
		want  []int
	}{
		{[]*facts.Node{node(0, 1, 2), node(0, 1, 2)}, []int{0, 1, 2}},
		{[]*facts.Node{node(0, 1, 2), node(0, 1)}, []int{0, 1}},
		{[]*facts.Node{node(0, -1, 2), node(0, 1, 2)}, []int{0, 2}},
		{[]*facts.Node{node(0), node()}, nil},
		{nil, nil},
	} {
		if got := numaNodes(tt.nodes); !slices.Equal(got, tt.want) {
			t.Errorf("got %v, want %v", got, tt.want)
		}
	}
}

// A node on a real host may have no NIC.
func TestAReportHasNodesWithoutNICs(t *testing.T) {
	t.Parallel()
	l, err := lab.Parse("lab.yaml", []byte("name: x\ndriver: libvirt\nnodes:\n  a: {cpus: 1, memory: 256MiB, nics: "+
		"0}\n  b: {cpus: 2, memory: 1GiB}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []record.Node{
		{Name: "a", CPUs: 1, Memory: 256 << 20},
		{Name: "b", CPUs: 2, Memory: 1 << 30, Address: l.Nodes[1].NICs[0].Addr.String(), MAC: l.Nodes[1].NICs[0].MAC,
			MTU: l.Fabric.MTU},
	}
	var data record.Record
	for _, n := range l.Nodes {
		data.Nodes = append(data.Nodes, reportNode(l, n))
	}
	if diff := cmp.Diff(want, data.Nodes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := report.Page(io.Discard, data); err != nil {
		t.Error(err)
	}
}
