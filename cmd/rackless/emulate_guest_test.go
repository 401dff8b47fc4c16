package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/gpu"
	"github.com/rackless/rackless/vm/emulate"
	"github.com/rackless/rackless/vm/kerneltest"
)

func TestAnEmulatedHostIsWhatItsProfileSays(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("machines are not booted with -short")
	}
	emulatedAsTheirProfiles(t, storey.Some(storey.Rand(t), emulate.Builtin(), 1))
}

func TestE2EEmulatedHostsAreWhatTheirProfilesSay(t *testing.T) {
	storey.E2E(t)
	t.Parallel()
	emulatedAsTheirProfiles(t, emulate.Builtin())
}

// emulatedAsTheirProfiles reads profiles back by rackless inspect, run inside. The machines boot the small image of
// nested nodes, because a kernel sees the same machine.
func emulatedAsTheirProfiles(t *testing.T, profiles []*emulate.Profile) {
	m := kerneltest.Find(t)
	m.Add(t, kerneltest.Self(t, "rackless"))
	user, err := rack.DefaultDirs(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	run, err := os.MkdirTemp("/tmp", "rl") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nothingLeft(t, run) })
	boot := emulate.Boot{
		Kernel: m.Image.KernelPath(), Initrd: m.Initrd,
		Append: "console=ttyS0 loglevel=3 intel_iommu=on iommu=pt panic=-1 no_timer_check cryptomgr.notests " +
			"mitigations=off nokaslr",
	}
	for _, p := range profiles {
		t.Run(p.Name, func(t *testing.T) {
			const coresPerNode = 2
			p := p.Scale(p.NUMANodes[0].Cores / coresPerNode)
			if p.Name == "epyc-7551p" {
				p.NICs = slices.Clone(p.NICs)
				p.NICs[1].VFs = 1
				p.GPUs = slices.Clone(p.GPUs)
				p.GPUs[0].Model, p.GPUs[0].Memory = "h20", 64*lab.MiB
			}
			ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
			defer cancel()
			d := rack.Dirs{Run: run, Cache: user.Cache} // it has the QEMU with ConnectX adapters
			began := time.Now()
			h, err := emulate.Start(ctx, emulate.Options{Dirs: d, Profile: p, Boot: boot, Accel: "tcg", Cold: true,
				Progress: &rack.Progress{}})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d CPUs until the agent answered: %v", p.CPUs(), time.Since(began).Round(100*time.Millisecond))
			var out, complaints bytes.Buffer
			exit, err := h.Exec(ctx, nil, []string{"/rackless", "inspect", "-o", "json"}, nil, &out, &complaints)
			if n := p.NICs; n[0].Model != "" {
				// From the first to the last port of a wire with more than two ends, otherwise over one card's own
				// cable.
				from, to := n[0].Address, n[len(n)-1].Address
				if len(n) == 1 {
					to.Function = 1
				}
				carriesRDMA(ctx, t, h, n[0].Model, from, to)
				if to.Function = 2; n[len(n)-1].VFs > 0 {
					hasFirmware(ctx, t, h, from, to)
				}
			}
			if err := h.Close(context.WithoutCancel(ctx), d); err != nil {
				t.Error(err)
			}
			if err != nil || exit != 0 {
				t.Fatalf("inspect: exit status %d, %v: %s", exit, err, &complaints)
			}
			var host topology.Host
			if err := json.Unmarshal(out.Bytes(), &host); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(describeProfile(p), describeEmulated(p, &host)); diff != "" {
				t.Errorf("(-profile +host):\n%s", diff)
			}
		})
	}
}

// writeOverAWire sends an RDMA write between ConnectX ports of a wire. The second has its own network namespace,
// because a host does not send to itself over a cable. The server starts again after each client: on a busy machine
// ib_write_bw may fail to measure the clock.
const writeOverAWire = `set -e
here=/sys/bus/pci/devices/$1 there=/sys/bus/pci/devices/$2
a=$(ls $here/net) b=$(ls $there/net) ra=$(ls $here/infiniband) rb=$(ls $there/infiniband)
ip netns add far
ip link set $b netns far
far() { ip netns exec far "$@"; }
ip link set $a up mtu 4200
ip addr add 10.0.0.1/24 dev $a
far ip link set $b up mtu 4200
far ip addr add 10.0.0.2/24 dev $b
for port in $ra $rb; do
	n=0
	until grep -q ffff:0a00 /sys/class/infiniband/$port/ports/1/gids/3 2>/dev/null; do
		n=$((n + 1))
		[ $n -lt 300 ]
		sleep 0.1
	done
done
ibstat $ra
echo "GID 3: $(cat /sys/class/infiniband/$ra/ports/1/gid_attrs/types/3)"
while :; do far ib_write_bw -d $rb -x 3 -s 65536 -n 200 >/dev/null 2>&1; sleep 0.2; done &
server=$!
until ib_write_bw -d $ra -x 3 -s 65536 -n 200 --report_gbits 10.0.0.2; do
	n=$((n + 1))
	[ $n -lt 330 ]
	sleep 1
done
kill $server
pkill ib_write_bw || true`

// writeToAVirtualFunction goes to a function of the card at the other end.
const writeToAVirtualFunction = `set -e
here=/sys/bus/pci/devices/$1 virtual=/sys/bus/pci/devices/$2
c=$(ls $virtual/net) ra=$(ls $here/infiniband) rc=$(ls $virtual/infiniband)
ip netns add virtual
ip link set $c netns virtual
virtual() { ip netns exec virtual "$@"; }
virtual ip link set $c up mtu 4200
virtual ip addr add 10.0.0.3/24 dev $c
until grep -q ffff:0a00 /sys/class/infiniband/$rc/ports/1/gids/3 2>/dev/null; do sleep 0.1; done
ibstat $rc
while :; do virtual ib_write_bw -d $rc -x 3 -s 65536 -n 100 >/dev/null 2>&1; sleep 0.2; done &
server=$!
until ib_write_bw -d $ra -x 3 -s 65536 -n 100 --report_gbits 10.0.0.3; do
	n=$((n + 1))
	[ $n -lt 330 ]
	sleep 1
done
kill $server
pkill ib_write_bw || true`

// resetCard resets through the bridge above, as at power-on.
const resetCard = `bridge=$(readlink -f /sys/bus/pci/devices/$nic.0/..)
for f in $bridge/$nic.*; do echo 1 >$f/remove; done
control=$(dd if=$bridge/config bs=1 skip=62 count=1 2>/dev/null | od -An -tu1)
put() { printf "\\$(printf %o $1)" | dd of=$bridge/config bs=1 seek=62 conv=notrunc 2>/dev/null; }
put $((control | 64))
sleep 0.1
put $((control & ~64))
sleep 1
echo 1 >/sys/bus/pci/rescan`

// setFirmware lets prepare print the firmware changes as a dry run, changes settings with mstconfig, and resets the
// card. prepare does not know this image's boot loader.
const setFirmware = `set -e
nic=0000:61:00
cat >/lab.yaml <<EOF
name: fw
driver: libvirt
hugepages: 2MiB
nodes:
  a: {cpus: 1, memory: 256MiB, nics: "$nic.3"}
EOF
/rackless prepare /lab.yaml --firmware --dry-run || echo "prepare: exit status $?"
ls -d /sys/bus/pci/devices/$nic.*
mstflint -d $nic.0 query
other=$(ls /sys/bus/pci/devices/0000:41:00.0/net)
carrier() { sleep 0.5; echo "$1: carrier $(cat /sys/class/net/$other/carrier)"; }
mstconfig -d $nic.0 --yes set SRIOV_EN=0 NUM_OF_VFS=3 KEEP_ETH_LINK_UP_P1=0
mstconfig -d $nic.1 -e query SRIOV_EN NUM_OF_VFS KEEP_ETH_LINK_UP_P1
ip netns exec far ip link set $(ip netns exec far ls /sys/class/net | grep -v lo) down
carrier "kept"
` + resetCard + `
echo "after the reset:"
ls -d /sys/bus/pci/devices/$nic.*
mstconfig -d $nic.0 -e query SRIOV_EN NUM_OF_VFS
carrier "not kept"
ip link set $(ls /sys/bus/pci/devices/$nic.0/net) up
carrier "wanted"
mstconfig -d $nic.0 query LINK_TYPE_P1 || echo "exit status $?"`

const programPath = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"

func hasFirmware(ctx context.Context, t *testing.T, h *emulate.Host, from, to topology.PCIAddr) {
	t.Helper()
	var out, complaints bytes.Buffer
	for _, argv := range [][]string{{writeToAVirtualFunction, "write", from.String(), to.String()}, {setFirmware}} {
		exit, err := h.Exec(ctx, []string{programPath}, append([]string{"dash", "-c"}, argv...), nil, &out, &complaints)
		if err != nil || exit != 0 {
			t.Errorf("exit status %d, %v: %s%s", exit, err, &out, &complaints)
			return
		}
	}
	before, after, _ := strings.Cut(out.String(), "after the reset:")
	for _, c := range []struct {
		text, want string
		there      bool
	}{
		{before, `(?m)^\s+CA type: MT4118$`, true},
		{before, `(?m)^\s+State: Active$`, true},
		{before, `(?m)^ 65536 +100 `, true},
		{before, `(?m)^ +\d+ +pending +set NUM_OF_VFS=2 in the firmware of NIC 0000:61:00\.0 \(needs a reboot\)$`,
			true},
		{before, `SRIOV_EN=1`, false},
		{before, `(?m)^prepare: exit status 3$`, true},
		{before, `(?m)^/sys/bus/pci/devices/0000:61:00.3$`, true},
		{before, `(?m)^FW Version: +14\.32\.1010$`, true},
		{before, `(?m)^PSID: +MT_2420110034$`, true},
		{before, `(?m)^\* +SRIOV_EN +True\(1\) +True\(1\) +False\(0\) *$`, true},
		{before, `(?m)^\* +NUM_OF_VFS +1 +1 +3 *$`, true},
		{before, `(?m)^\* +KEEP_ETH_LINK_UP_P1 +True\(1\) +True\(1\) +False\(0\) *$`, true},
		{before, `(?m)^kept: carrier 1$`, true},
		{after, `(?m)^not kept: carrier 0$`, true},
		{after, `(?m)^wanted: carrier 1$`, true},
		{after, `(?m)^/sys/bus/pci/devices/0000:61:00.1$`, true},
		{after, `(?m)^/sys/bus/pci/devices/0000:61:00.2$`, false},
		{after, `(?m)^\* +SRIOV_EN +True\(1\) +False\(0\) +False\(0\) *$`, true},
		{after, `(?m)^\* +NUM_OF_VFS +1 +3 +3 *$`, true},
		{after, `The Device doesn't support LINK_TYPE_P1 parameter`, true},
		{after, `(?m)^exit status 3$`, true},
	} {
		if regexp.MustCompile(c.want).MatchString(c.text) != c.there {
			t.Errorf("%s: %v in:\n%s", c.want, !c.there, &out)
		}
	}
}

func carriesRDMA(ctx context.Context, t *testing.T, h *emulate.Host, model string, from, to topology.PCIAddr) {
	t.Helper()
	var out, complaints bytes.Buffer
	// In the busybox shell, ip would be busybox's own.
	exit, err := h.Exec(ctx, []string{programPath}, []string{"dash", "-c", writeOverAWire, "sh", from.String(),
		to.String()}, nil, &out, &complaints)
	if err != nil || exit != 0 {
		t.Errorf("exit status %d, %v: %s%s", exit, err, &out, &complaints)
		return
	}
	card, rate := "MT4117", 25
	if model == connectx.ConnectX5 {
		card, rate = "MT4119", 100
	}
	for _, want := range []string{"CA type: " + card + "\n", "State: Active\n", fmt.Sprintf("Rate: %d\n", rate),
		"GID 3: RoCE v2\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
	row := regexp.MustCompile(`(?m)^ 65536 +200 +\S+ +(\S+)`).FindStringSubmatch(out.String())
	if row == nil {
		t.Fatalf("no bandwidth in:\n%s", &out)
	}
	if gbits, err := strconv.ParseFloat(row[1], 64); err != nil || gbits <= 0 || gbits > float64(rate) {
		t.Errorf("%s Gb/s over a cable of %d, %v", row[1], rate, err)
	}
}

func describeProfile(p *emulate.Profile) []string {
	out := []string{
		"rackless, emulated " + p.Name + ", emulated true, IOMMU true",
		fmt.Sprintf("%d packages, %d cores, %d CPUs", p.Packages, p.Cores(), p.CPUs()),
	}
	perNode := p.NUMANodes[0].Cores * p.ThreadsPerCore
	for i := range p.NUMANodes {
		distances := []int{10}
		if p.Distances != nil {
			distances = p.Distances[i]
		}
		first := i * perNode
		out = append(out, fmt.Sprintf("node %d of package %d: CPUs %d-%d, first core %d-%d, L3 of CPUs %d-%d, "+
			"distances %v, memory as it should be true",
			i, i*p.Packages/len(p.NUMANodes), first, first+perNode-1, first, first+p.ThreadsPerCore-1, first,
			first+perNode-1, distances))
	}
	for _, s := range p.Switches {
		out = append(out, fmt.Sprintf("upstream port %v node %d", s.Address, s.NUMANode))
	}
	for _, b := range p.Bridges {
		out = append(out, fmt.Sprintf("pci bridge %v node %d", b.Address, b.NUMANode))
	}
	if p.Screen {
		out = append(out, "a screen on the root bus")
	}
	for _, g := range p.GPUs {
		functions := []topology.PCIAddr{g.Address}
		if g.Audio {
			functions = append(functions, function(g.Address, 1))
		}
		out = append(out, fmt.Sprintf("GPU %v stand-in node %d functions %v, group with %v", g.Address, g.NUMANode,
			functions, groupMates(p, g.Address, g.Behind)))
		if g.Memory > 0 {
			m, _ := gpu.ModelOf(g.Model)
			out = append(out, fmt.Sprintf("%s with %d bytes and functions of one group", m.Name, g.Memory))
		}
	}
	for _, n := range p.NICs {
		functions := n.Ports
		if n.Model != "" {
			functions *= 1 + n.VFs
		}
		for f := range functions {
			a := function(n.Address, f)
			line := fmt.Sprintf("NIC %v node %d SR-IOV %v, group with %v", a, n.NUMANode, n.Model == "" && n.VFs > 0,
				groupMates(p, n.Address, n.Behind))
			if n.Model != "" {
				line += fmt.Sprintf(", driver mlx5_core, virtual %v", f >= n.Ports)
			}
			out = append(out, line)
		}
	}
	for _, g := range p.GPUs {
		for _, n := range p.NICs {
			class := "SYS"
			switch {
			case g.Behind != nil && n.Behind != nil && *g.Behind == *n.Behind:
				class = "PIX"
			case g.NUMANode == n.NUMANode:
				class = "NODE"
			}
			out = append(out, fmt.Sprintf("GPU %v to NIC %v: %s", g.Address, n.Address, class))
		}
	}
	return out
}

func function(a topology.PCIAddr, n int) topology.PCIAddr {
	a.Function = uint8(n)
	return a
}

// groupMates share a bridge, and so an IOMMU group.
func groupMates(p *emulate.Profile, a topology.PCIAddr, behind *topology.PCIAddr) []topology.PCIAddr {
	mates := []topology.PCIAddr{}
	if behind == nil || !slices.ContainsFunc(p.Bridges, func(b emulate.Bridge) bool { return b.Address == *behind }) {
		return mates
	}
	for _, g := range p.GPUs {
		if g.Address != a && g.Behind != nil && *g.Behind == *behind {
			mates = append(mates, g.Address)
		}
	}
	for _, n := range p.NICs {
		if n.Address != a && n.Behind != nil && *n.Behind == *behind {
			mates = append(mates, n.Address)
		}
	}
	return mates
}

func describeEmulated(p *emulate.Profile, h *topology.Host) []string {
	out := []string{
		fmt.Sprintf("%s, %s, emulated %v, IOMMU %v", h.System.Vendor, h.System.Product, h.Provenance.Emulated,
			h.IOMMU.Enabled != nil && *h.IOMMU.Enabled),
		fmt.Sprintf("%d packages, %d cores, %d CPUs", len(h.Packages), len(h.Cores), h.CPUs.Online.Len()),
	}
	for i, n := range h.NUMANodes {
		line := fmt.Sprintf("node %d", n.ID)
		for _, k := range h.Packages {
			if n.CPUs.IsSubsetOf(k.CPUs) {
				line += fmt.Sprintf(" of package %d", k.ID)
			}
		}
		line += fmt.Sprintf(": CPUs %s", n.CPUs)
		for _, c := range h.Cores {
			if c.CPUs.Contains(n.CPUs.Min()) {
				line += fmt.Sprintf(", first core %s", c.CPUs)
			}
		}
		for _, l := range h.L3 {
			if l.CPUs.Contains(n.CPUs.Min()) {
				line += fmt.Sprintf(", L3 of CPUs %s", l.CPUs)
			}
		}
		// The kernel reserves a part first.
		want := float64(p.NUMANodes[min(i, len(p.NUMANodes)-1)].Memory)
		enough := n.MemoryBytes != nil && float64(*n.MemoryBytes) < want && float64(*n.MemoryBytes) > 0.75*want
		out = append(out, fmt.Sprintf("%s, distances %v, memory as it should be %v", line, n.Distances, enough))
	}
	tree := topology.NewTree(h)
	for _, kind := range []string{"upstream port", "pci bridge"} {
		for _, d := range h.PCI {
			if d.Bridge != nil && d.Bridge.Port == kind {
				out = append(out, fmt.Sprintf("%s %v node %d", kind, d.Address, *d.NUMANode))
			}
		}
	}
	mates := func(a topology.PCIAddr) []topology.PCIAddr {
		found := []topology.PCIAddr{}
		group := tree.Device(a).IOMMUGroup
		if group == nil {
			return nil
		}
		for _, d := range h.PCI {
			if (d.IsGPU() || d.IsNIC()) && !d.Address.SameDevice(a) && d.IOMMUGroup != nil && *d.IOMMUGroup == *group {
				found = append(found, d.Address)
			}
		}
		return found
	}
	for _, g := range h.GPUs {
		if g.Kind == topology.GPUDisplay && g.Address.Bus == 0 {
			out = append(out, "a screen on the root bus")
			continue
		}
		out = append(out, fmt.Sprintf("GPU %v %s node %d functions %v, group with %v", g.Address, g.Kind, *g.NUMANode,
			g.Functions, mates(*g.Address)))
		if g.Vendor == topology.VendorEmulated {
			line := fmt.Sprintf("%s %s with %d bytes", g.Vendor, g.Model, *g.BAR1Bytes)
			if group := tree.Device(*g.Address).IOMMUGroup; group != nil && !slices.ContainsFunc(g.Functions,
				func(a topology.PCIAddr) bool {
					other := tree.Device(a).IOMMUGroup
					return other == nil || *other != *group
				}) {
				line += " and functions of one group"
			}
			out = append(out, line)
		}
	}
	for _, n := range h.NICs {
		line := fmt.Sprintf("NIC %v node %d SR-IOV %v, group with %v", n.Address, *n.NUMANode, n.SRIOV != nil,
			mates(*n.Address))
		if d := tree.Device(*n.Address); d.Vendor != nil && *d.Vendor == topology.VendorMellanox {
			line += fmt.Sprintf(", driver %s, virtual %v", d.Driver, strings.Contains(n.Model, "Virtual Function"))
		}
		out = append(out, line)
	}
	for _, g := range h.GPUs {
		for _, n := range h.NICs {
			if n.Address.Function == 0 && g.Kind == topology.GPUStandIn {
				out = append(out, fmt.Sprintf("GPU %v to NIC %v: %s", g.Address, n.Address,
					tree.Path(g.ID(), n.ID()).Label()))
			}
		}
	}
	return out
}
