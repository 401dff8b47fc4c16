package hosts_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

// The lab's author published these facts about the machine. The readers must find the same in the example.
func TestTheEPYCLabsMachineIsAsItsAuthorDescribesIt(t *testing.T) {
	h, err := inspect.ReadFile(t.Context(), "epyc-7551p.ttar")
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Unread) > 0 {
		t.Errorf("unread: %v; want nothing", h.Unread)
	}
	if len(h.Cores) != 32 || h.CPUs.Online.Len() != 64 || len(h.Packages) != 1 {
		t.Errorf("%d cores, %d CPUs, %d packages; want 32, 64, 1", len(h.Cores), h.CPUs.Online.Len(), len(h.Packages))
	}
	for _, c := range h.Cores {
		if first := c.CPUs.Min(); !c.CPUs.Equal(topology.CPUs(first, first+32)) {
			t.Errorf("core %d has CPUs %s; want %d,%d", c.ID, c.CPUs, first, first+32)
		}
	}
	var nodes []string
	for _, n := range h.NUMANodes {
		nodes = append(nodes, n.CPUs.String())
	}
	if diff := cmp.Diff([]string{"0-7,32-39", "8-15,40-47", "16-23,48-55", "24-31,56-63"}, nodes); diff != "" {
		t.Errorf("CPUs of the NUMA nodes (-want +got):\n%s", diff)
	}

	type device struct {
		Address, Functions, Netdev string
		Node                       int
	}
	var got []device
	for _, g := range h.GPUs {
		if g.Kind == topology.GPUDiscrete {
			got = append(got, device{g.Address.String(), g.Functions[len(g.Functions)-1].String(), "", *g.NUMANode})
		}
	}
	for _, n := range h.NICs {
		if n.SpeedMbps != nil && *n.SpeedMbps == 25000 && n.Address.Function == 0 {
			got = append(got, device{n.Address.String(), "", n.Netdevs[0], *n.NUMANode})
		}
	}
	want := []device{
		{"0000:06:00.0", "0000:06:00.1", "", 0},
		{"0000:21:00.0", "0000:21:00.1", "", 1},
		{"0000:41:00.0", "", "enp65s0f0np0", 2},
		{"0000:61:00.0", "", "enp97s0f0np0", 3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if p := h.Path("0000:06:00.0", "0000:41:00.0"); p.Class != topology.PathSYS {
		t.Errorf("path from GPU 0 to NIC 0 is %s; want SYS", p.Label())
	}
	const roceV2OnIPv4 = 3
	for _, g := range h.NICs[1].Devices[0].Ports[0].GIDs {
		if g.Index == roceV2OnIPv4 && (g.Type != "RoCE v2" || g.GID != "0000:0000:0000:0000:0000:ffff:0a00:0001") {
			t.Errorf("GID 3 is %+v; want RoCE v2 on IPv4", g)
		}
	}
}
