package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/vm/kerneltest"
)

// hostArgs have two packages and NUMA nodes, an IOMMU, and a second root complex on node 1 with a switch, a NIC with
// virtual functions, and a display controller.
var hostArgs = strings.Fields(`-machine q35,kernel-irqchip=split -cpu qemu64 -m 2048
-smp 8,sockets=2,cores=4,threads=1
-object memory-backend-ram,id=m0,size=1024M -object memory-backend-ram,id=m1,size=1024M
-numa node,nodeid=0,cpus=0-3,memdev=m0 -numa node,nodeid=1,cpus=4-7,memdev=m1 -numa dist,src=0,dst=1,val=21
-device intel-iommu -device pxb-pcie,id=pxb1,bus_nr=64,numa_node=1,bus=pcie.0
-device pcie-root-port,id=rp1,bus=pxb1,chassis=2 -device x3130-upstream,id=up,bus=rp1
-device xio3130-downstream,id=d1,bus=up,chassis=3 -device xio3130-downstream,id=d2,bus=up,chassis=4
-device igb,bus=d1 -device secondary-vga,bus=d2`)

// guestInit waits to be switched off: at a power-off by itself, output could be lost on the serial line.
const guestInit = `#!/bin/sh
b=/bin/busybox
$b mkdir -p /proc /sys
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
echo 2 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
echo BEGIN
/rackless inspect -o json
echo END
$b sleep 600
`

// Every reader of /sys is checked under a real kernel.
func TestInspectInAMachineOfKnownTopology(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("machines are not booted with -short")
	}
	m := kerneltest.Find(t)
	m.Keep(t, "bin/busybox", "bin/sh")
	// TestMain runs this binary as rackless.
	m.Add(t, kerneltest.Self(t, "rackless"), cpio.StaticFile("inspect", guestInit, 0o755))
	text := m.Run(t, hostArgs, "rdinit=/inspect intel_iommu=on iommu=pt isolcpus=2-3")
	var h topology.Host
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(knownTopology, describeKnown(&h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

var knownTopology = []string{
	"packages 2, cores 8, online 0-7, isolated 2-3",
	"node 0: CPUs 0-3, distances [10 21]",
	"node 1: CPUs 4-7, distances [21 10], 2 of 2 hugepages of 2097152 bytes free",
	"IOMMU true, intel_iommu asked on, in force on",
	"0000:40:00.0 root port node 1",
	"0000:41:00.0 upstream port node 1",
	"0000:42:00.0 downstream port node 1",
	"0000:42:01.0 downstream port node 1",
	"NIC 0000:43:00.0 0x8086 0x10c9 below 0000:42:00.0 node 1, 8 VFs at most",
	"screen 0000:44:00.0 below 0000:42:01.0 node 1, path to the NIC PIX",
}

func describeKnown(h *topology.Host) []string {
	isolated := "unknown"
	if h.CPUs.Isolated != nil {
		isolated = h.CPUs.Isolated.String()
	}
	out := []string{fmt.Sprintf("packages %d, cores %d, online %s, isolated %s", len(h.Packages), len(h.Cores),
		h.CPUs.Online, isolated)}
	for _, n := range h.NUMANodes {
		line := fmt.Sprintf("node %d: CPUs %s, distances %v", n.ID, n.CPUs, n.Distances)
		for _, p := range n.Hugepages {
			if p.Total > 0 && p.Free != nil {
				line += fmt.Sprintf(", %d of %d hugepages of %d bytes free", *p.Free, p.Total, p.SizeBytes)
			}
		}
		out = append(out, line)
	}
	for _, p := range h.Kernel.Asked {
		if p.Name == "intel_iommu" && p.InForce != nil && h.IOMMU.Enabled != nil {
			out = append(out, fmt.Sprintf("IOMMU %v, intel_iommu asked %s, in force %s", *h.IOMMU.Enabled, p.Asked,
				*p.InForce))
		}
	}
	tree := topology.NewTree(h)
	for _, d := range h.PCI {
		if d.Root == "pci0000:40" && d.Bridge != nil {
			out = append(out, fmt.Sprintf("%s %s node %d", d.Address, d.Bridge.Port, *d.NUMANode))
		}
	}
	for _, n := range h.NICs {
		f := tree.Device(*n.Address)
		out = append(out, fmt.Sprintf("NIC %s %s %s below %s node %d, %d VFs at most", n.Address, f.Vendor, f.Device,
			f.Parent, *n.NUMANode, *n.SRIOV.Total))
	}
	for _, g := range h.GPUs {
		if g.Kind == topology.GPUDisplay && len(h.NICs) > 0 {
			out = append(out, fmt.Sprintf("screen %s below %s node %d, path to the NIC %s", g.Address,
				tree.Device(*g.Address).Parent, *g.NUMANode,
				tree.Path(g.ID(), h.NICs[0].ID()).Label()))
		}
	}
	return out
}
