package main

import (
	"slices"
	"testing"

	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/topology"
)

// Memory is measured by the NUMA nodes that every node has, and that have CPUs to measure from.
func TestNUMANodesThatAllNodesHave(t *testing.T) {
	t.Parallel()
	node := func(cpus ...int) *facts.Node {
		n := &facts.Node{NUMA: map[int]*facts.NUMANode{}}
		for id, c := range cpus {
			n.NUMA[id] = &facts.NUMANode{}
			if c >= 0 {
				n.NUMA[id].CPUs = topology.CPUs(c)
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
