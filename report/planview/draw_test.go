package planview

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/report/hostview"
)

// twoNodes has four cores of two threads on each node.
func twoNodes() *topology.Host {
	h := &topology.Host{}
	for n := range 2 {
		var all topology.CPUSet
		for c := range 4 {
			own := topology.CPUs(4*n+c, 8+4*n+c)
			h.Cores = append(h.Cores, topology.Core{ID: 4*n + c, CPUs: own})
			all = all.Union(own)
		}
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: n, CPUs: all, MemoryBytes: new(uint64(64 << 30))})
	}
	return h
}

func TestWhatCrossesNUMANodesIsAWarning(t *testing.T) {
	t.Parallel()
	gpu := plan.NodeDevice{ID: "0000:41:00.0", Kind: plan.KindGPU, NUMANode: new(0)}
	for _, tt := range []struct {
		name string
		node plan.Node
		want string
	}{
		{"nothing", plan.Node{VCPUs: []int{1, 9}, EmulatorCPUs: topology.CPUs(0), Cards: []plan.NodeDevice{gpu},
			Memory: []plan.NodeMemory{{NUMANode: 0, Bytes: 1}}}, ""},
		{"cores on both", plan.Node{VCPUs: []int{1, 5}}, "warning vm node 1: it spans NUMA nodes 0 and 1"},
		{"a device elsewhere", plan.Node{VCPUs: []int{5}, Cards: []plan.NodeDevice{gpu}},
			"warning vm 0000:41:00.0: device on NUMA node 0: it spans NUMA node 1"},
		{"memory elsewhere", plan.Node{VCPUs: []int{5}, Memory: []plan.NodeMemory{{NUMANode: 0, Bytes: 1}}},
			"warning vm node 0: memory on another NUMA node: it spans NUMA node 1"},
		{"a NIC that is not beside the GPU", plan.Node{VCPUs: []int{1, 5}, Cards: []plan.NodeDevice{gpu,
			{ID: "0000:81:00.0", Kind: plan.KindNIC, NUMANode: new(1)}}},
			"warning vm node 1: it spans NUMA nodes 0 and 1; " +
				"warning vm 0000:41:00.0: no NIC of the lab node is on the NUMA node of its GPU"},
		{"emulator threads elsewhere are a note", plan.Node{VCPUs: []int{5}, EmulatorCPUs: topology.CPUs(0)},
			"info vm node 0: emulator threads on NUMA node 0: it spans NUMA node 1"},
		{"a device whose node is not known", plan.Node{VCPUs: []int{5}, Cards: []plan.NodeDevice{{ID: "x",
			Kind: plan.KindNIC}}}, ""},
	} {
		tt.node.Name = "vm"
		var got []string
		for _, f := range crossings(&plan.Plan{Nodes: []plan.Node{tt.node}}, twoNodes()) {
			got = append(got, fmt.Sprintf("%s %s %s: %s", f.Severity, f.ID, f.Subject, f.Title))
		}
		if s := strings.Join(got, "; "); s != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, s, tt.want)
		}
	}
}

// Idle siblings have no owner.
func TestEveryCPUHasOneOwner(t *testing.T) {
	t.Parallel()
	pl := &plan.Plan{Housekeeping: plan.Housekeeping{CPUs: topology.CPUs(0, 8, 4, 12), TenantCPUs: topology.CPUs(7)},
		Nodes: []plan.Node{{Name: "vm", VCPUs: []int{1, 9, 2}, EmulatorCPUs: topology.CPUs(0, 8)}}}
	got := map[hostview.Role]string{}
	for _, o := range owners(pl, twoNodes()) {
		got[o.Role] = o.CPUs.String()
	}
	want := map[hostview.Role]string{hostview.RoleGuest: "1-2,9", hostview.RoleHost: "4,12",
		hostview.RoleEmulator: "0,8",
		hostview.RoleTenant:   "7", hostview.RoleFree: "3,5-6,11,13-15"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMemoryOfANodeIsSharedOut(t *testing.T) {
	t.Parallel()
	pl := &plan.Plan{Nodes: []plan.Node{{Memory: []plan.NodeMemory{{NUMANode: 0, Bytes: 16 << 30}}}},
		Hugepages: []plan.Hugepages{{NUMANode: 0, PageBytes: 1 << 30, Count: 16, Held: 4}}}
	got := shares(pl, twoNodes())
	want := map[int]hostview.NodeShare{
		0: {Bytes: map[int]uint64{0: 16 << 30, 1: 44 << 30, 3: 4 << 30},
			Lines: []string{"hugepages: 16 x 1 GiB beside 4 in use"}},
		1: {Bytes: map[int]uint64{1: 64 << 30}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
