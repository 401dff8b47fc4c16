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
					Lines: []string{"NUMA node 1 of the host"}},
				{ID: "0000:81:00.0", NIC: true, Title: "NIC 0000:81:00.0"}}},
		{Title: "guest NUMA node 1", Lines: []string{"on NUMA node 1 of the host", "virtual CPUs 4-7, 1 GiB"},
			Devices: []hostview.GuestDevice{{ID: "0000:41:00.0", NIC: true, Title: "NIC 0000:41:00.0"}}}}
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

// A port with a peer has a line to it; a cable between two lab nodes stands once, and an unknown peer is said so.
func TestCablesAreDrawn(t *testing.T) {
	nic := func(at string, p topology.Netdev) topology.NIC {
		a, _ := topology.ParsePCIAddr(at)
		return topology.NIC{Address: &a, Ports: []topology.Netdev{p}}
	}
	up := topology.Netdev{Name: "a", State: "up", SpeedMbps: new(int64(25000))}
	h := twoNodes()
	h.NICs = []topology.NIC{nic("0000:41:00.0", up), nic("0000:61:00.0", up), nic("0000:81:00.0", up),
		nic("0000:a1:00.0", topology.Netdev{Name: "d", Carrier: new(false)}),
		nic("0000:c1:00.0", topology.Netdev{Name: "e"})}
	card := func(id string, peers ...string) plan.NodeDevice {
		return plan.NodeDevice{ID: id, Kind: plan.KindNIC, Peers: peers}
	}
	end := func(owner int, title string, lines ...string) hostview.CableEnd {
		return hostview.CableEnd{Owner: owner, Title: title, Lines: lines}
	}
	tests := []struct {
		name string
		a, b plan.NodeDevice
		want []hostview.Cable
	}{
		{"a cable between two lab nodes", card("0000:41:00.0", "0000:61:00.0"), card("0000:61:00.0", "0000:41:00.0"),
			[]hostview.Cable{{From: end(0, "NIC 0000:41:00.0"), To: end(1, "NIC 0000:61:00.0"), State: "25 Gb/s"}}},
		{"a cable to a port of the host", card("0000:41:00.0", "0000:61:00.0"), card("0000:c1:00.0"),
			[]hostview.Cable{{From: end(0, "NIC 0000:41:00.0"), To: end(-1, "NIC 0000:61:00.0", "of the host"),
				State: "25 Gb/s"}}},
		{"a switch", card("0000:41:00.0", "0000:61:00.0", "0000:81:00.0"), card("0000:c1:00.0"),
			[]hostview.Cable{{From: end(0, "NIC 0000:41:00.0"),
				To: end(-1, "switch", "also has 0000:61:00.0, 0000:81:00.0"), State: "25 Gb/s"}}},
		{"nothing names the peer, and a port without a link", card("0000:41:00.0"), card("0000:a1:00.0"),
			[]hostview.Cable{{From: end(0, "NIC 0000:41:00.0"), To: end(-1, "peer not known",
				"rackless host links --probe finds it"), State: "25 Gb/s", Unknown: true},
				{From: end(1, "NIC 0000:a1:00.0"), State: "no link", Down: true}}},
		{"nothing is known", card("0000:c1:00.0"), card("0000:c1:00.0"), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pl := &plan.Plan{Nodes: []plan.Node{{Name: "a", Cards: []plan.NodeDevice{tt.a}},
				{Name: "b", Cards: []plan.NodeDevice{tt.b}}}}
			if diff := cmp.Diff(tt.want, cables(pl, h)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
