package planview

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/report/hostview"
)

func TestGuestsHaveTheirNUMANodesDevicesAndCables(t *testing.T) {
	t.Parallel()
	nic := func(address string, p topology.Netdev) topology.NIC {
		a, err := topology.ParsePCIAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		return topology.NIC{Address: &a, Ports: []topology.Netdev{{Name: "rep", PhysPort: "pf0vf1", State: "down"}, p}}
	}
	h := twoNodes()
	h.NICs = []topology.NIC{nic("0000:41:00.0", topology.Netdev{Name: "a", State: "up", SpeedMbps: new(int64(25000))}),
		nic("0000:61:00.0", topology.Netdev{Name: "b", Carrier: new(false)}),
		nic("0000:81:00.0", topology.Netdev{Name: "c"})}
	n := &plan.Node{GuestNUMA: true, Cells: []plan.Cell{{Cell: 0, NUMANodes: []int{0}, VCPUs: 4, Bytes: 1 << 30},
		{Cell: 1, NUMANodes: []int{1}, FirstVCPU: 4, VCPUs: 4, Bytes: 1 << 30}},
		Cards: []plan.NodeDevice{{ID: "0000:06:00.0", Kind: plan.KindGPU, Model: "GA102", NUMANode: new(0),
			Cell: new(0)},
			{ID: "0000:41:00.0", Kind: plan.KindNIC, NUMANode: new(1), Cell: new(1)},
			{ID: "0000:61:00.0", Kind: plan.KindVF, VF: new(3), NUMANode: new(1), Cell: new(0)},
			{ID: "0000:81:00.0", Kind: plan.KindNIC}}}
	want := []hostview.GuestNode{
		{Title: "guest NUMA node 0", Lines: []string{"on NUMA node 0 of the host", "virtual CPUs 0-3, 1 GiB"},
			Devices: []hostview.GuestDevice{{ID: "0000:06:00.0", Title: "GPU 0000:06:00.0", Lines: []string{"GA102"}},
				{ID: "0000:61:00.0/3", NIC: true, Title: "VF 3 of 0000:61:00.0",
					Lines: []string{"cable: no link", "NUMA node 1 of the host"}},
				{ID: "0000:81:00.0", NIC: true, Title: "NIC 0000:81:00.0"}}},
		{Title: "guest NUMA node 1", Lines: []string{"on NUMA node 1 of the host", "virtual CPUs 4-7, 1 GiB"},
			Devices: []hostview.GuestDevice{{ID: "0000:41:00.0", NIC: true, Title: "NIC 0000:41:00.0",
				Lines: []string{"cable: link up, 25 Gb/s"}}}}}
	if diff := cmp.Diff(want, guestNodes(n, h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Without a PCI tree nothing is said of paths.
	paths := []hostview.GuestPath{{GPU: "0000:06:00.0", NIC: "0000:41:00.0",
		Text: "GPU 0000:06:00.0 to NIC 0000:41:00.0: path not known"}}
	if diff := cmp.Diff(paths, guestPaths(n, h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := guestPaths(&plan.Node{Cards: n.Cards[1:]}, h); got != nil {
		t.Errorf("paths without a GPU: %+v", got)
	}
}
