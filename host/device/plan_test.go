package device

import (
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

type wish struct {
	node  string
	cards []plan.NodeDevice
}

func wholeCard(kind string, functions ...string) plan.NodeDevice {
	return plan.NodeDevice{ID: functions[0], Kind: kind, Functions: functions}
}

func vfCard(pf string, index int) plan.NodeDevice {
	return plan.NodeDevice{ID: pf, Kind: plan.KindVF, VF: &index}
}

func testPlan(t testing.TB, vfs []plan.PFCount, wishes ...wish) (*plan.Plan, *lab.Lab) {
	t.Helper()
	text := "name: pair\nnodes:\n"
	for _, w := range wishes {
		text += "  " + w.node + ": {nics: 8}\n"
	}
	l, err := lab.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{Schema: plan.Schema, Lab: l.Name, VFs: vfs}
	for i, w := range wishes {
		n := plan.Node{
			Name: w.node, VCPUs: []int{i}, Cores: 1, Threads: 1, MemoryBytes: 1 << 30,
			Memory:       []plan.NodeMemory{{Bytes: 1 << 30}},
			EmulatorCPUs: topology.CPUs(0), IOThreadCPUs: topology.CPUs(0),
			Cells: []plan.Cell{{NUMANodes: []int{0}, VCPUs: 1, Bytes: 1 << 30, Distances: []int{10}}}, Cards: w.cards,
		}
		ports := 0
		for _, c := range w.cards {
			n.Devices = append(n.Devices, c.Functions...)
			if c.Kind != plan.KindGPU {
				ports++
			}
		}
		n.NICs = l.Nodes[i].NICs[:ports]
		p.Nodes = append(p.Nodes, n)
	}
	return p, l
}

type labType = lab.Lab
