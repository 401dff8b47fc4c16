package plan_test

import (
	"testing"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func TestEmulatorPinHasCPUsWhereverHugepagesAre(t *testing.T) {
	t.Parallel()
	h := &topology.Host{}
	for id, cpus := range []topology.CPUSet{topology.CPUs(0, 1, 2, 3), topology.CPUs(4, 5, 6, 7), {}} {
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: id, CPUs: cpus})
	}
	memory := func(nodes ...int) (all []plan.NodeMemory) {
		for _, n := range nodes {
			all = append(all, plan.NodeMemory{NUMANode: n, PageBytes: 2 << 20})
		}
		return all
	}
	tests := []struct {
		name   string
		keeps  topology.CPUSet
		node   plan.Node
		want   string
		noHost bool
	}{
		{"memory where the emulator is", topology.CPUs(0, 4), plan.Node{VCPUs: []int{1}, EmulatorCPUs: topology.CPUs(0),
			Memory: memory(0)}, "0", false},
		{"the host keeps a CPU on the other node", topology.CPUs(0, 4), plan.Node{VCPUs: []int{1, 5},
			EmulatorCPUs: topology.CPUs(0), Memory: memory(0, 1)}, "0,4", false},
		{"the host keeps none there", topology.CPUs(0), plan.Node{VCPUs: []int{1, 5, 6}, EmulatorCPUs: topology.CPUs(0),
			Memory: memory(0, 1)}, "0,6", false},
		{"ordinary pages", topology.CPUs(0, 4), plan.Node{VCPUs: []int{1, 5}, EmulatorCPUs: topology.CPUs(0),
			Memory: []plan.NodeMemory{{NUMANode: 0}, {NUMANode: 1}}}, "0", false},
		{"a node without CPUs", topology.CPUs(0), plan.Node{VCPUs: []int{1}, EmulatorCPUs: topology.CPUs(0),
			Memory: memory(0, 2)}, "0", false},
		{"no pin at all", topology.CPUs(0), plan.Node{VCPUs: []int{1}, Memory: memory(1)}, "", false},
		{"a host that is not known", topology.CPUs(0), plan.Node{VCPUs: []int{1}, EmulatorCPUs: topology.CPUs(0),
			Memory: memory(1)}, "0", true},
	}
	for _, tt := range tests {
		p := &plan.Plan{Housekeeping: plan.Housekeeping{CPUs: tt.keeps}}
		host := h
		if tt.noHost {
			host = nil
		}
		if got := p.EmulatorPin(&tt.node, host).String(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
