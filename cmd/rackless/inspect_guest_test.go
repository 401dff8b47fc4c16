package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/image"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/topology"
	"github.com/rackless/rackless/vm"
)

// hostArgs describe a machine that has what this one lacks: two packages and NUMA nodes, an IOMMU,
// and a second root complex on node 1 with a switch, a NIC that has virtual functions, and a
// screen.
var hostArgs = strings.Fields(
	`-machine q35,kernel-irqchip=split -accel tcg,thread=multi -cpu qemu64 -m 2048 -smp 8,sockets=2,cores=4,threads=1
-object memory-backend-ram,id=m0,size=1024M -object memory-backend-ram,id=m1,size=1024M
-numa node,nodeid=0,cpus=0-3,memdev=m0 -numa node,nodeid=1,cpus=4-7,memdev=m1 -numa dist,src=0,dst=1,val=21
-device intel-iommu -device pxb-pcie,id=pxb1,bus_nr=64,numa_node=1,bus=pcie.0
-device pcie-root-port,id=rp1,bus=pxb1,chassis=2 -device x3130-upstream,id=up,bus=rp1
-device xio3130-downstream,id=d1,bus=up,chassis=3 -device xio3130-downstream,id=d2,bus=up,chassis=4
-device igb,bus=d1 -device secondary-vga,bus=d2 -nodefaults -display none -no-reboot`)

// guestInit inspects the machine, and waits to be switched off: by itself it might be off before
// the serial line has passed all on.
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

// A real kernel shows what it was given, and inspect, run there, says so: every reader of /sys at
// work on a machine whose truth is known.
func TestInspectInAMachineOfKnownTopology(t *testing.T) {
	if testing.Short() {
		t.Skip("machines are not booted with -short")
	}
	program, version, err := vm.Find()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("qemu-system-x86_64 %s: %v", version, err)
		}
		t.Skipf("qemu-system-x86_64 %s cannot be used: %v", version, err)
	}
	d, err := rack.DefaultDirs(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	img, err := image.Node.Ensure(ctx, image.Options{Cache: d.Images(), Progress: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	args := append(hostArgs, "-kernel", img.KernelPath(), "-initrd", withRackless(t, img.InitramfsPath()), "-serial",
		"stdio",
		"-append", "console=ttyS0 loglevel=3 rdinit=/inspect intel_iommu=on iommu=pt isolcpus=2-3 panic=-1 "+
			"cryptomgr.notests")
	text := between(t, exec.CommandContext(ctx, program, args...), "BEGIN", "END")
	var h topology.Host
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(knownTopology, describeKnown(&h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// between starts a program, returns the lines that it prints between two others, and ends it.
func between(t *testing.T, cmd *exec.Cmd, first, last string) string {
	t.Helper()
	var complaints, all, text strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() // it was killed: how it ended says nothing
	defer cmd.Process.Kill()
	inside := false
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		fmt.Fprintln(&all, line)
		switch {
		case strings.HasSuffix(line, first): // the firmware leaves escape sequences before it
			inside = true
		case line == last:
			return text.String()
		case inside:
			fmt.Fprintln(&text, line)
		}
	}
	t.Fatalf("%s ended before it printed %s: %v\n%s\n%s", cmd.Path, last, lines.Err(), complaints.String(),
		all.String())
	return ""
}

// knownTopology is what hostArgs and guestInit make.
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

// withRackless returns the image's initial file system with this program added: the kernel takes
// several archives, one after the other.
func withRackless(t *testing.T, initramfs string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self) // by the name of rackless it is rackless: TestMain
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "initrd")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := os.Open(initramfs)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	w := cpio.Newc.Writer(out)
	if err := cpio.WriteRecords(w, []cpio.Record{
		cpio.StaticFile("rackless", string(program), 0o755), cpio.StaticFile("inspect", guestInit, 0o755),
	}); err != nil {
		t.Fatal(err)
	}
	if err := cpio.WriteTrailer(w); err != nil {
		t.Fatal(err)
	}
	return path
}
