package render_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/vm/kerneltest"
)

const guestInit = `#!/bin/sh
b=/bin/busybox
$b mkdir -p /sys
$b mount -t sysfs sys /sys
echo BEGIN
for d in /sys/bus/pci/devices/*; do
	set -- $($b cat $d/class $d/subsystem_vendor $d/subsystem_device $d/numa_node)
	echo "$($b readlink -f $d) $*"
done
echo END
$b sleep 600
`

// A GPU and a NIC are below a common switch if they share one on the host. The nodes' kernel does not boot by UEFI, so
// the firmware is SeaBIOS.
func TestTheGuestHasTheTreeOfTheHost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("machines are not booted with -short")
	}
	m := kerneltest.Find(t)
	m.Keep(t, "bin/busybox", "bin/sh")
	m.Add(t, cpio.StaticFile("tree", guestInit, 0o755))
	host, buses, want := render.SwitchedGuest(t)
	text := m.Run(t, append([]string{"-machine", "q35", "-m", "512M"}, buses...), "rdinit=/tree")
	guest, inGuest := guestTree(t, text)
	onHost, classes := topology.NewTree(host), map[topology.PathClass]int{}
	for hostA, a := range inGuest {
		for hostB, b := range inGuest {
			is, was := guest.Between(a, b), onHost.Between(hostA, hostB)
			if was == topology.PathPXB {
				was = topology.PathPIX
			}
			if is != was {
				t.Errorf("%s to %s: %v in the guest, want %v", hostA, hostB, is, was)
			}
			classes[is]++
		}
	}
	addresses := map[string]string{}
	for onHost, inGuest := range inGuest {
		addresses[inGuest.String()] = onHost.String()
	}
	if diff := cmp.Diff(want, addresses); diff != "" || classes[topology.PathPIX] != 8 {
		t.Errorf("paths %v; devices of the host by their addresses in the guest (-want +got):\n%s", classes, diff)
	}
}

func guestTree(t *testing.T, text string) (*topology.Tree, map[topology.PCIAddr]topology.PCIAddr) {
	t.Helper()
	h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}, {ID: 1}}}
	devices := map[topology.PCIAddr]topology.PCIAddr{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 5 {
			t.Fatalf("a line of the guest: %q", line)
		}
		path := strings.Split(strings.TrimPrefix(f[0], "/sys/devices/"), "/")
		node, err := strconv.Atoi(f[4])
		if err != nil {
			t.Fatal(err)
		}
		d := topology.PCIDevice{Address: address(t, path[len(path)-1]), Root: path[0]}
		if node >= 0 {
			d.NUMANode = &node
		}
		if len(path) > 2 {
			d.Root, d.Parent = "", new(address(t, path[len(path)-2]))
		}
		if strings.HasPrefix(f[1], "0x0604") {
			d.Bridge = &topology.Bridge{}
		}
		if id, err := strconv.ParseUint(f[3], 0, 16); err == nil && f[2] == render.StandInVendor {
			devices[topology.PCIAddr{Bus: uint8(id >> 8), Device: uint8(id >> 3 & 31)}] = d.Address
		}
		h.PCI = append(h.PCI, d)
	}
	slices.SortFunc(h.PCI, func(a, b topology.PCIDevice) int { return a.Address.Compare(b.Address) })
	return topology.NewTree(h), devices
}

func address(t *testing.T, text string) topology.PCIAddr {
	t.Helper()
	a, err := topology.ParsePCIAddr(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
