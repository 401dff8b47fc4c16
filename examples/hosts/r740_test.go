package hosts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

// The readers must find the facts that the report on the cluster states about its hosts.
func TestTheR740IsAsTheReportDescribesIt(t *testing.T) {
	t.Parallel()
	h, err := inspect.ReadFile(t.Context(), "r740.ttar")
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Unread) > 0 {
		t.Errorf("unread: %v; want nothing", h.Unread)
	}
	if len(h.Cores) != 48 || h.CPUs.Online.Len() != 96 || len(h.Packages) != 2 || len(h.L3) != 2 {
		t.Errorf("%d cores, %d CPUs, %d packages, %d L3 caches; want 48, 96, 2, 2", len(h.Cores), h.CPUs.Online.Len(),
			len(h.Packages), len(h.L3))
	}
	for _, c := range h.Cores {
		first := c.CPUs.Min()
		if !c.CPUs.Equal(topology.CPUs(first, first+48)) || *c.Package != first%2 || *c.NUMANode != first%2 {
			t.Errorf("core %d has CPUs %s in package %d on node %d; want %d,%d, even ones on node 0 and odd ones "+
				"on node 1", c.ID, c.CPUs, *c.Package,
				*c.NUMANode, first, first+48)
		}
	}
	const gib = 1 << 30
	if m := *h.Memory.TotalBytes; m > 384*gib || m < 370*gib {
		t.Errorf("%d bytes of memory; want 384 GiB less what the kernel and the firmware take", m)
	}
	if !strings.Contains(h.System.CPUModel, "6248R") {
		t.Errorf("CPU model %q; want a Xeon Gold 6248R", h.System.CPUModel)
	}

	type nic struct {
		Address, Netdev, Firmware string
		Node, Mbps, VFs           int
	}
	var got []nic
	for _, n := range h.NICs {
		row := nic{n.Address.String(), n.Netdevs[0], n.Devices[0].Firmware, *n.NUMANode, int(*n.SpeedMbps), 0}
		if n.SRIOV != nil {
			row.VFs = *n.SRIOV.Total
		}
		got = append(got, row)
	}
	want := []nic{
		{"0000:1a:00.0", "em1", "14.31.1014", 0, 25000, 0},
		{"0000:1a:00.1", "em2", "14.31.1014", 0, 25000, 0},
		{"0000:3b:00.0", "p3p1", "16.32.1010", 0, 100000, 16},
		{"0000:3b:00.1", "p3p2", "16.32.1010", 0, 100000, 16},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("NICs (-want +got):\n%s", diff)
	}
}

// The host's file systems are behind two layers: a logical volume on a partition of a disk behind a controller.
func TestTheR740LivesOnItsBootDiskAndItsServiceNIC(t *testing.T) {
	t.Parallel()
	h, err := inspect.ReadFile(t.Context(), "r740.ttar")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range h.Storage {
		got = append(got, fmt.Sprintf("disk %s on %s: %s", d.Name, d.PCI, strings.Join(d.Mounts, " ")))
	}
	for _, r := range h.Routes {
		got = append(got, fmt.Sprintf("route %s on %s", r.Netdev, strings.Join(r.PCI, " ")))
	}
	for _, g := range h.GPUs {
		got = append(got, fmt.Sprintf("%s %s", g.Kind, g.Address))
	}
	want := []string{"disk sda on 0000:5e:00.0: / /boot /boot/efi [SWAP]", "route em1 on 0000:1a:00.0",
		topology.GPUDisplay + " 0000:03:00.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The host is as it was installed: swap, NUMA balancing, and an MTU of 1500 on interfaces without RDMA.
	var findings []string
	for _, f := range diagnose.Host(h) {
		findings = append(findings, f.ID)
	}
	// The two ports of the ConnectX together are faster than its slot.
	if diff := cmp.Diff([]string{"RL044", "RL045", "RL082", "RL006"}, findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
