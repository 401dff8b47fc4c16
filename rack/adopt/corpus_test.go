package adopt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack/adopt"
)

// CPUs 0 and 1 are a core if cores have two threads. After "apart" siblings are n and n + half of all.
const (
	fourNodes = "numa:4(memory=32GiB) core:4 pu:2"       // 0-7, 8-15, 16-23, 24-31
	noThreads = "numa:2(memory=64GiB) core:8 pu:1"       // 0-7, 8-15
	desktop   = "apart [numa(memory=64GiB)] core:8 pu:2" // siblings n and n+8
	isolated  = "isolated " + twoNodes
	epyc      = "../../examples/hosts/epyc-7551p.ttar" // siblings n and n+32; nodes of 8 cores; GPUs 06:00 and 21:00
)

// An answer lists the faults of a machine on a host, found by hand, not by running the tested code.
type answer struct {
	machine string
	host    string
	wrong   string // failing checks
	unread  string // "" if all is understood
	why     string
}

var collected = []answer{
	{"insights-rhel_7_4_xml.xml", twoNodes, "", "", "4 virtual CPUs float over 32 CPUs on purpose"},
	{"insights-rhel_7_4_xml.xml", "numa:1(memory=64GiB) core:2 pu:1", "RL068", "", "4 virtual CPUs, 2 CPUs"},
	{"insights-xml_rhosp.xml", "numa:2(memory=64GiB) core:12 pu:1", "RL064", "",
		"cells, memory and pins agree, as Nova makes them; the emulator is on the pins"},
	{"insights-xml_rhosp_2.xml", "numa:2(memory=64GiB) core:12 pu:1", "RL064", "", "the same machine"},
	{"insights-xml_rhosp.xml", twoNodes, "RL064 RL071", "",
		"CPUs 13 and 14 are on node 0, the memory of their cell on node 1"},
	{"insights-xml_rhosp.xml", "numa:1(memory=64GiB) core:16 pu:1", "RL064 RL070", "", "there is no node 1"},
	{"insights-xml_rhosp.xml", "numa:2(memory=64GiB) core:4 pu:1", "RL062 RL064", "", "there are no CPUs 13 and 14"},
	{"insights-xml_numa.xml", "numa:2(memory=64GiB) core:3 pu:1", "RL064", "", "1-2 are on node 0, 3-4 on node 1"},
	{"insights-xml_numa.xml", "numa:2(memory=4GiB) core:3 pu:1", "RL064 RL070", "", "cells of 6 GiB on nodes of 4 GiB"},
	{"insights-xml_numa.xml", twoNodes, "RL064 RL069 RL071", "",
		"1-4 are on node 0; 2 and 3 are a core, and the guest takes them for two"},
	{"kubevirt-domain_x86_64.xml", noThreads, "", "", "one virtual CPU, nothing bound"},
	{"kubevirt-domain_numa_topology.xml", "numa:3(memory=8GiB) core:3 pu:1", "RL064 RL067", "no NUMA cell 2",
		"cell 0 is on CPUs 1 and 5, of nodes 0 and 1, cell 1 on 2 and 6, of nodes 0 and 2; no emulatorpin"},
	{"kubevirt-cpu_pinning.xml", noThreads, "RL064", "", "I/O threads on the CPUs of the virtual CPUs"},
}

// others have licences that keep them out of this repository. RACKLESS_CORPUS names their directory.
var others = []answer{
	{"domains/4gamers1pc-vm-cpu0-0.xml", "apart pack:2 [numa(memory=32GiB)] core:8 pu:2", "", "",
		"a thread of each core, on one node with its memory; emulator and I/O threads beside"},
	{"domains/4gamers1pc-vm-cpu1-1.xml", "apart pack:2 [numa(memory=32GiB)] core:8 pu:2", "", "", "the same on node 1"},
	{"domains/ahvargas-win10.xml", desktop, "", "", "floats"},
	{"domains/phoebuss-win10.xml", desktop, "", "", "floats"},
	{"domains/bryansteiner-win10.xml", "apart [numa(memory=64GiB)] core:12 pu:2", "", "",
		"siblings side by side; emulator and I/O threads on other cores"},
	{"domains/bryansteiner-win10.xml", desktop, "RL062 RL066", "",
		"made for 24 CPUs, of which 6 and 18 are a core: there are 16"},
	{"domains/justarchi-win10.xml", "apart [numa(memory=64GiB)] core:4 pu:2", "RL064", "",
		"siblings side by side, all CPUs of the host: none is left for the emulator"},
	{"domains/justarchi-win10.xml", "[numa(memory=64GiB)] core:4 pu:2", "RL064 RL066", "", "siblings are 0 and 1"},
	{"domains/zile995-pinnacleridge-win10.xml", "apart [numa(memory=64GiB)] core:6 pu:2", "RL063", "",
		"four virtual CPUs are not there at the start, and have no pin for when they are"},
	{"domains-test/cputune-vcpusched-overlap.xml", noThreads, "RL063 RL064", "", "two pins of four; emulator on one"},
	{"domains-test/hugepages-pages.xml", fourNodes, "", "", "floats; the host's pages are not known"},
	{"domains-test/hugepages-pages.xml", twoNodes, "RL070", "", "nodes 2 and 3 are not there"},
	{"domains-test/numatune-memnode-nocpu.xml", fourNodes, "", "no NUMA cell 0", "libvirt refuses it"},
	{"domains-test/numad-auto-vcpu-static-numatune.xml", twoNodes, "", "", "numad chooses"},
	{"domains-test/vcpu-placement-static.xml", twoNodes, "", "", "no virtual CPU is pinned"},
	{"domains-test/pcie-expander-bus.xml", twoNodes, "", "", "floats"},
	{"domains-test/hostdev-vfio.xml", twoNodes, "", "", "the host's devices are not known"},
	{"domains-test/net-hostdev.xml", twoNodes, "", "", "the same"},
	{"domains-test/net-hostdev-vfio.xml", twoNodes, "", "", "the same"},
	{"domains-test/net-hostdev-vfio.xml", epyc, "RL078", "", "the host has no 0000:03:07.1"},
	{"domains/4gamers1pc-vm-cpu0-1.xml", "apart pack:2 [numa(memory=32GiB)] core:8 pu:2", "", "",
		"CPUs 4-7 of node 0, whose siblings have the emulator and the I/O threads"},
	{"domains/4gamers1pc-vm-cpu1-0.xml", "apart pack:2 [numa(memory=32GiB)] core:8 pu:2", "", "", "8-11 of node 1"},
	{"domains-test/blkdeviotune.xml", twoNodes, "", "", "one virtual CPU, which floats"},
	{"domains-test/intel-iommu.xml", twoNodes, "", "", "the same"},
	{"domains-test/pci-bridge-many-disks.xml", twoNodes, "", "", "the same"},
	{"domains-test/cpu-numa1.xml", twoNodes, "", "", "16 virtual CPUs float, and nothing binds their cells"},
	{"domains-test/cpu-numa2.xml", twoNodes, "", "", "the same machine, its cells in another order"},
	{"domains-test/cpu-numa2.xml", "numa:1(memory=64GiB) core:8 pu:1", "RL068", "", "16 virtual CPUs, 8 CPUs"},
	{"domains-test/hugepages.xml", twoNodes, "", "", "the host's pages are not known"},
	{"domains-test/hugepages-pages3.xml", twoNodes, "RL073", "", "768 MiB of pages of 1 GiB"},
	{"domains-test/pcie-switch-upstream-port.xml", noThreads, "", "", "two virtual CPUs on CPUs 0-1"},
}

const (
	cellsOf = "<cpu mode='host-passthrough'><topology sockets='2' cores='1' threads='2'/><numa>" +
		"<cell id='0' cpus='%s' memory='2' unit='GiB'/><cell id='1' cpus='%s' memory='2' unit='GiB'/></numa></cpu>"
	onBoth = "<numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='0' mode='strict' nodeset='%d'/>" +
		"<memnode cellid='1' mode='strict' nodeset='%d'/></numatune>"
	emulates = "<emulatorpin cpuset='0-1,16'/>"
)

func numatune(mode, nodes string) string {
	return "<numatune><memory mode='" + mode + "' nodeset='" + nodes + "'/></numatune>"
}

func floating(cpus string, elements ...string) string {
	return strings.Replace(domain("vm", 4, 4, elements...), "<vcpu>", "<vcpu cpuset='"+cpus+"'>", 1)
}

func hostdev(bus string, function int) string {
	return fmt.Sprintf("<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x0000' "+
		"bus='0x%s' slot='0x00' function='0x%d'/></source></hostdev>", bus, function)
}

func devices(list ...string) string { return "<devices>" + strings.Join(list, "") + "</devices>" }

var synthetics = []answer{
	{domain("vm", 2, 4, "<cputune><vcpupin vcpu='0' cpuset='0-3,^0-1'/><vcpupin vcpu='1' cpuset='2,3'/>"+
		"<emulatorpin cpuset='0-5,^2,^3'/></cputune>", threads), twoNodes, "", "",
		"both virtual CPUs on 2-3, the emulator on 0-1 and 4-5"},
	{domain("vm", 4, 4, pins("", 2, 3, 4, 5), threads, "<iothreads>2</iothreads>"), twoNodes, "RL064", "",
		"emulator and I/O threads anywhere"},
	{domain("vm", 4, 4, pins(emulates+"<iothreadpin iothread='1' cpuset='0-1'/>", 2, 3, 4, 5), threads,
		"<iothreads>2</iothreads>"), twoNodes, "RL064", "", "I/O thread 2 has no pin"},
	{domain("vm", 4, 4, pins(emulates+"<iothreadpin iothread='4' cpuset='0'/><iothreadpin iothread='7' cpuset='1'/>",
		2, 3, 4, 5), threads, "<iothreads>2</iothreads>",
		"<iothreadids><iothread id='4'/><iothread id='7'/></iothreadids>"),
		twoNodes, "", "", "both I/O threads, by their numbers, where the emulator is"},
	{domain("vm", 4, 4, pins(emulates+"<iothreadpin iothread='1' cpuset='4'/>", 2, 3, 4, 5), threads,
		"<iothreads>1</iothreads>"), twoNodes, "RL064", "", "the I/O thread is on virtual CPU 2"},
	{domain("vm", 4, 4, pins(emulates, 2, 3, 2, 3), threads), twoNodes, "RL068", "", "two on each CPU"},
	{floating("2-3"), twoNodes, "RL068", "", "four on two CPUs"},
	{domain("vm", 40, 4, threads), twoNodes, "RL067 RL068", "", "40 on 32 CPUs, of two nodes"},
	{strings.Replace(domain("vm", 4, 4, pins(emulates, 2, 3), threads), "<vcpu>", "<vcpu current='2'>", 1), twoNodes,
		"RL063", "", "the other two come later, and have no pin"},
	{strings.Replace(domain("vm", 4, 4, "<cputune><vcpupin vcpu='1' cpuset='2'/><vcpupin vcpu='2' cpuset='3'/>"+
		"<vcpupin vcpu='3' cpuset='4'/><vcpupin vcpu='4' cpuset='5'/>"+emulates+"</cputune>"), "'", `"`, -1), twoNodes,
		"RL063 RL069", "", "counted from 1: virtual CPU 0 has no pin; 2 and 3 are one core"},

	// Threads.
	{domain("vm", 4, 4, pins("<emulatorpin cpuset='0'/>", 2, 10, 3, 11), threads), desktop, "", "",
		"siblings n and n+8"},
	{domain("vm", 4, 4, pins("<emulatorpin cpuset='0'/>", 2, 3, 10, 11), threads), desktop, "RL066", "",
		"made for siblings side by side"},
	{domain("vm", 4, 4, pins("<emulatorpin cpuset='0'/>", 2, 10, 3, 11)), desktop, "RL069", "", "and is not told"},
	{domain("vm", 4, 4, pins("<emulatorpin cpuset='0'/>", 2, 3, 4, 5)), desktop, "", "", "a thread of each core"},
	{domain("vm", 4, 4, pins("<emulatorpin cpuset='0'/>", 2, 3, 4, 5), threads), noThreads, "", "",
		"the host has no threads: what the guest takes for them is faster than it thinks"},
	{domain("vm", 4, 4, pins("<emulatorpin cpuset='0'/>", 4, 5, 6, 7),
		"<cpu><topology sockets='1' cores='1' threads='4'/></cpu>"), "[numa(memory=64GiB)] core:4 pu:4", "", "",
		"four threads of one core"},
	{domain("vm", 4, 4, pins("<emulatorpin cpuset='0'/>", 4, 5, 6, 8),
		"<cpu><topology sockets='1' cores='1' threads='4'/></cpu>"), "[numa(memory=64GiB)] core:4 pu:4", "RL066", "",
		"the fourth is on another core"},

	// Memory and nodes.
	{domain("vm", 4, 4, pins(emulates, 2, 3, 18, 19), fmt.Sprintf(cellsOf, "0-1", "2-3"), fmt.Sprintf(onBoth, 0, 1)),
		twoNodes, "", "", "a cell for each node, with its memory"},
	{domain("vm", 4, 4, pins(emulates, 2, 3, 18, 19), fmt.Sprintf(cellsOf, "0-1", "2-3"), fmt.Sprintf(onBoth, 1, 0)),
		twoNodes, "RL071", "", "memory of the cells the wrong way round"},
	{domain("vm", 4, 4, pins(emulates, 2, 18, 3, 19), fmt.Sprintf(cellsOf, "0,2", "1,3"), fmt.Sprintf(onBoth, 0, 1)),
		twoNodes, "RL066", "", "cells of every second virtual CPU, right; but 0 and 1 are no siblings"},
	{domain("vm", 4, 4, pins(emulates, 2, 18, 3, 19), fmt.Sprintf(cellsOf, "0-1", "2-3"), fmt.Sprintf(onBoth, 0, 1)),
		twoNodes, "RL066 RL067", "", "each cell is on both nodes"},
	{domain("vm", 4, 4, pins(emulates, 2, 3, 18, 19), fmt.Sprintf(cellsOf, "0-1", "2-3"), numatune("strict", "0")),
		twoNodes, "RL071", "", "cell 1 is on node 1, all memory on node 0"},
	{floating("0-15", numatune("strict", "1")), twoNodes, "RL071", "",
		"floats over node 0, memory on node 1"},
	{domain("vm", 2, 4, pins(emulates, 2, 3), threads, numatune("preferred", "1")), twoNodes, "RL071", "",
		"prefers the far node"},
	{domain("vm", 2, 4, pins(emulates, 2, 3), threads, numatune("preferred", "0")), twoNodes, "", "",
		"the near one"},
	{domain("vm", 2, 4, pins(emulates, 2, 3), threads, numatune("preferred", "7")), twoNodes, "RL070 RL071", "",
		"there is no node 7"},
	{domain("vm", 2, 4, pins(emulates, 2, 3), threads, numatune("interleave", "0-1")), twoNodes, "RL071", "",
		"half of the pages are far from all of its CPUs"},
	{domain("vm", 2, 4, pins(emulates, 2, 3), threads, numatune("restrictive", "0-3,^1-3")), twoNodes, "", "",
		"node 0"},
	{domain("vm", 2, 90, pins(emulates, 2, 3), threads, numatune("restrictive", "0")), twoNodes, "RL070", "",
		"90 GiB of 64"},
	{domain("vm", 2, 90, pins(emulates, 2, 3), threads, numatune("preferred", "0")), twoNodes, "", "",
		"the rest is far"},
	{domain("vm", 16, 16, pins("<emulatorpin cpuset='0'/>",
		8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31),
		threads), fourNodes, "RL067", "", "on nodes 1 and 3, and sees one"},

	{domain("vm", 4, 4, pins(emulator, 4, 5, 6, 7), threads), isolated, "", "", "one to one on isolated CPUs"},
	{floating("4-7"), isolated, "RL061", "", "floats over isolated CPUs"},
	{domain("vm", 4, 4, pins("<emulatorpin cpuset='8-9'/>", 4, 5, 6, 7), threads), isolated, "RL061", "",
		"the emulator floats over isolated CPUs"},

	// Proxmox VE.
	{"cores: 4\nname: a\nsockets: 1\nmemory: 4096\nscsihw: virtio-scsi-pci\n", twoNodes, "", "", "floats"},
	{"# a comment\nagent: 1\nboot: order=scsi0\ncores: 8\nmemory: current=8192\nname: a\naffinity: 0-3\nostype: l26\n",
		twoNodes, "RL068", "", "8 on 4 CPUs"},
	{"cores: 2\nname: a\nsockets: 2\nvcpus: 2\nmemory: 4096\nostype: l26\naffinity: 4,5\n", twoNodes, "", "",
		"two of four at the start, on two CPUs"},
	{"cores: 4\nname: a\nmemory: 4096\nostype: l26\nnuma: 1\naffinity: 0-3\n" +
		"numa0: cpus=0-3,hostnodes=1,memory=4096,policy=bind\n", twoNodes, "RL071", "",
		"CPUs of node 0, memory of node 1"},
	{"cores: 4\nname: a\nmemory: 4096\nostype: l26\nnuma: 1\naffinity: 16-19\n" +
		"numa0: cpus=0-3,hostnodes=1,memory=4096,policy=preferred\n", twoNodes, "", "", "both on node 1"},
	{"cores: 4\nname: a\nmemory: 4096\nostype: l26\nnuma: 1\naffinity: 0-3,16-19\n" +
		"numa0: cpus=0;1,hostnodes=0,memory=2048,policy=bind\nnuma1: cpus=2-3,hostnodes=1,memory=2048,policy=bind\n",
		twoNodes, "", "", "a cell for each node"},
	{"cores: 4\nname: a\nmemory: 180000\nostype: l26\nnuma: 1\naffinity: 0-3,16-19\n" +
		"numa0: cpus=0-1,hostnodes=0,memory=90000,policy=bind\nnuma1: cpus=2-3,hostnodes=1,memory=90000,policy=bind\n",
		twoNodes, "RL070", "", "cells larger than their nodes"},
	{"cores: 4\nname: a\nmemory: 4096\nostype: l26\naffinity: 0-3\n" +
		"numa0: cpus=0-3,hostnodes=0,memory=4096,policy=bind\n", twoNodes, "", `it takes "numa: 1"`,
		"without numa: 1 Proxmox VE does not heed numa0"},
	{"cores: 20\nname: a\nmemory: 4096\nostype: l26\naffinity: 0-31\n", twoNodes, "RL067", "",
		"larger than a node, and sees one"},
	{"cores: 10\nname: a\nsockets: 2\nnuma: 1\nmemory: 4096\nostype: l26\naffinity: 0-31\n", twoNodes, "", "",
		"a cell for each socket"},
	{"cores: 4\nname: a\nmemory: 4096\nhugepages: 1024\nostype: l26\naffinity: 8-11\nhostpci0: 0000:06:00,pcie=1\n",
		epyc, "RL061 RL072", "",
		"the GPU is on node 0, CPUs 8-11 are isolated and on node 1; the pages come at the start"},
	{"cores: 2\nname: a\nmemory: 4096\nostype: l26\naffinity: 0,1\nhostpci0: host=0000:99:00.0,pcie=1,x-vga=1\n",
		epyc, "RL078", "", "there is no 99:00.0"},
	{"cores: 2\nname: a\nmemory: 4096\nostype: l26\nhostpci0: mapping=gpu,pcie=1\n\n[before]\naffinity: 900\n", epyc,
		"", "a mapping stands for", "snapshots are not what runs"},

	// Devices.
	{domain("vm", 2, 4, pins("<emulatorpin cpuset='0'/>", 2, 34), threads, devices(hostdev("06", 0), hostdev("06", 1))),
		epyc, "", "", "the GPU with its audio, on its node"},
	{domain("vm", 2, 4, pins("<emulatorpin cpuset='0'/>", 2, 34), threads, devices(hostdev("21", 0), hostdev("21", 1))),
		epyc, "RL072", "", "the GPU of node 1 for CPUs of node 0"},
	{domain("vm", 2, 4, devices(hostdev("99", 0))), epyc, "RL078", "", "no such device"},
}

func machineOf(t *testing.T, name, dir string) *inspect.Machine {
	t.Helper()
	file := "vm.xml"
	if strings.HasSuffix(name, ".xml") {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		name, file = string(data), filepath.Base(name)
	}
	m, err := inspect.ParseMachine(t.Context(), name, file)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func standing(t *testing.T, name string) *topology.Host {
	t.Helper()
	desc, apart := strings.CutPrefix(name, "apart ")
	desc, some := strings.CutPrefix(desc, "isolated ")
	h := hostOf(t, desc)
	if some {
		set, err := topology.ParseCPUSet("4-15,20-31")
		if err != nil {
			t.Fatal(err)
		}
		h.CPUs.Isolated = &set
	}
	if apart {
		renumber(h)
	}
	return h
}

func renumber(h *topology.Host) {
	half := h.CPUs.Online.Len() / 2
	move := func(s *topology.CPUSet) {
		var to []int
		for c := range s.All() {
			to = append(to, c/2+c%2*half)
		}
		*s = topology.CPUs(to...)
	}
	for i := range h.Cores {
		move(&h.Cores[i].CPUs)
	}
	for i := range h.NUMANodes {
		move(&h.NUMANodes[i].CPUs)
	}
	for i := range h.Packages {
		move(&h.Packages[i].CPUs)
	}
}

func TestMachinesOfOtherPeople(t *testing.T) {
	t.Parallel()
	check := func(name, dir string, list []answer) {
		for i, a := range list {
			t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) {
				t.Parallel()
				hold(t, a, dir)
			})
		}
	}
	check("collected", "../../machine/inspect/testdata/devices/libvirt", collected)
	check("synthetic", "", synthetics)
	if dir := os.Getenv("RACKLESS_CORPUS"); dir != "" {
		check("others", filepath.Join(dir, "libvirt"), others)
	}
}

func hold(t *testing.T, a answer, dir string) {
	m, h := machineOf(t, a.machine, dir), standing(t, a.host)
	v, err := adopt.Check(t.Context(), h, "host", m)
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(v.Unread, "; ")
	if got := checks(v); got != a.wrong || (said == "") != (a.unread == "") || !strings.Contains(said, a.unread) {
		t.Errorf("finds %q and does not understand %q; by hand it is %q and %q: %s\n%s\n%+v", got, said, a.wrong,
			a.unread, a.why, a.machine, v.Findings)
	}
	if v.Diff == "" {
		return
	}
	mended, err := inspect.ParseMachine(t.Context(), v.Text, m.File)
	if err != nil {
		t.Fatal(err)
	}
	again, err := adopt.Check(t.Context(), h, "host", mended)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range strings.Fields(checks(again)) {
		if slices.Contains(v.Fixed, id) || !slices.Contains(strings.Fields(a.wrong), id) {
			t.Errorf("mended, it has %s: %s", id, v.Diff)
		}
	}
}
