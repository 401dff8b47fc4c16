package render

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func small() Input {
	return input("lab", "host", intelHost(), shape{
		name: "vm", threads: 2, page: gib, farther: 21, house: []int{0}, nics: 1,
		cells: [][]home{{{0, siblings(1, 2, 8), gib}}, {{1, siblings(4, 5, 8), gib}}},
		cards: []plan.NodeDevice{card("gpu", "H100", 0, 0, "0000:06:00.0"), card("nic", "ConnectX-7", 1, 1,
			"0000:41:00.0")},
	})
}

func TestWhatCannotBeRenderedIsNamed(t *testing.T) {
	vf := func(pf string, index int, function string) func(*Input) {
		return func(in *Input) {
			in.Plan.Nodes[0].Cards = []plan.NodeDevice{vfCard(pf, index, 0, 0, function)}
			in.Plan.Nodes[0].Devices = []string{function}
		}
	}
	for name, c := range map[string]struct {
		spoil func(*Input)
		want  string
	}{
		"no plan": {func(in *Input) { in.Plan = nil }, `no plan`},
		"a device that a matrix names": {
			func(in *Input) {
				in.Plan.Nodes[0].Cards[0].ID, in.Plan.Nodes[0].Cards[0].Functions = "GPU0", nil
				in.Plan.Host.Provenance.Kind = topology.SourceTopo
			},
			`node "vm": device "GPU0" has no PCI address: the host was read from a text that only names devices ` +
				`(nvidia-smi)`,
		},
		"a function that does not exist yet, of a host that does not tell": {
			vf("0000:41:00.0", 3, "0000:41:00.0/vf3"),
			`virtual function 3 of 0000:41:00.0 does not exist yet, and where it will be is not known`,
		},
		"a function of a NIC without address": {vf("NIC0", 1, "NIC0/vf1"),
			`virtual function 1 of "NIC0": the NIC has no PCI address`},
		"a function that is no number": {vf("0000:41:00.0", 1, "0000:41:00.0/vfx"),
			`virtual function "x" of "0000:41:00.0"`},
		"a PCI domain that libvirt has no room for": {
			func(in *Input) {
				in.Plan.Nodes[0].Cards[0].Functions[0] = "10000:06:00.0"
			}, `device "10000:06:00.0" is in PCI domain 10000`,
		},
		"a device without a card": {func(in *Input) {
			in.Plan.Nodes[0].Devices[0] = "0000:07:00.0"
		}, `device "0000:07:00.0" is not among the cards`},
		"a cell that is not there": {func(in *Input) {
			in.Plan.Nodes[0].Cards[0].Cell = new(2)
		}, `device "0000:06:00.0" is in cell 2; the guest has 2`},
		"a machine of another kind": {func(in *Input) {
			in.Host.System.Arch = "s390x"
		}, `architecture "s390x"; want x86_64 or aarch64`},
		"a name with a slash":   {func(in *Input) { in.Plan.Nodes[0].Name = "../../vm" }, `name of node "../../vm"`},
		"a name with a control": {func(in *Input) { in.Plan.Lab = "a\x00b" }, `name of lab "a\x00b"`},
		"no name":               {func(in *Input) { in.Plan.Nodes[0].Name = "" }, `node without a name`},
		"one name twice": {func(in *Input) {
			in.Plan.Nodes = append(in.Plan.Nodes, in.Plan.Nodes[0])
		}, `two nodes are named "vm"`},
		"no vcpus":       {func(in *Input) { in.Plan.Nodes[0].VCPUs = nil }, `no vcpus`},
		"one CPU twice":  {func(in *Input) { in.Plan.Nodes[0].VCPUs[1] = 1 }, `CPU 1 is in vcpus twice`},
		"a negative CPU": {func(in *Input) { in.Plan.Nodes[0].VCPUs[1] = -1 }, `vcpus[1] is CPU -1`},
		"threads that do not divide": {func(in *Input) {
			in.Plan.Nodes[0].Threads = 3
		}, `threads_per_core is 3 and does not divide 8 vcpus`},
		"a core in two cells": {func(in *Input) {
			n := &in.Plan.Nodes[0]
			n.Cells[0].VCPUs, n.Cells[1].FirstVCPU, n.Cells[1].VCPUs = 3, 3, 5
		}, `cell 0 has 3 vcpus: a core of 2`},
		"vcpus of no cell": {func(in *Input) {
			in.Plan.Nodes[0].Cells[1].VCPUs = 2
		}, `cells have 6 vcpus of 8`},
		"cells out of order": {func(in *Input) {
			in.Plan.Nodes[0].Cells[1].Cell = 0
		}, `cells[1] has number 0; want 1`},
		"cells that overlap": {func(in *Input) {
			in.Plan.Nodes[0].Cells[1].FirstVCPU = 2
		}, `cell 1 has 4 vcpus from 2`},
		"more vcpus than there are": {func(in *Input) {
			in.Plan.Nodes[0].Cells[1].VCPUs = 1 << 62
		}, `cell 1 has 4611686018427387904 vcpus`},
		"a distance too far": {func(in *Input) {
			in.Plan.Nodes[0].Cells[1].Distances[0] = 255
		}, `cell 1 is 255 away from cell 0`},
		"a distance to itself": {func(in *Input) {
			in.Plan.Nodes[0].Cells[1].Distances[1] = 11
		}, `cell 1 is 11 away from cell 1`},
		"distances that are missing": {func(in *Input) {
			in.Plan.Nodes[0].Cells[1].Distances = nil
		}, `cell 1 has 0 distances; want 2`},
		"many cells without NUMA": {func(in *Input) {
			in.Plan.Nodes[0].GuestNUMA = false
		}, `2 cells, although guest_numa is false`},
		"no cells": {func(in *Input) { in.Plan.Nodes[0].Cells = nil }, `no cells`},
		"memory that does not add up": {func(in *Input) {
			in.Plan.Nodes[0].MemoryBytes++
		}, `memory adds up to 2147483648 bytes of 2147483649`},
		"a cell's own memory": {func(in *Input) {
			in.Plan.Nodes[0].Cells[0].Bytes++
		}, `cell 0 has 1073741825 bytes, and its NUMA nodes [0] have 1073741824`},
		"half a page": {func(in *Input) {
			in.Plan.Nodes[0].Memory[0].PageBytes = 3 << 30
		}, `which pages of 3221225472 bytes do not make up`},
		"memory of one node twice": {func(in *Input) {
			in.Plan.Nodes[0].Memory[1].NUMANode = 0
		}, `memory names NUMA node 0 twice`},
		"a NUMA node in two cells": {func(in *Input) {
			in.Plan.Nodes[0].Cells[1].NUMANodes = []int{1, 0}
		}, `NUMA node 0 is in cells 0 and 1`},
		"a cell without memory": {
			func(in *Input) {
				n := &in.Plan.Nodes[0]
				n.Memory, n.MemoryBytes, n.Cells[1].Bytes = n.Memory[:1], gib, 0
			}, `cell 1 has no memory`,
		},
		"a plain slot too many": {
			func(in *Input) {
				in.Plan.Nodes[0].Cards = manyCards(65, nil)
				in.Plan.Nodes[0].Devices = nil
			}, `65 devices on bus 0 of the guest; at most 64`,
		},
		"a slot of a cell too many": {
			func(in *Input) {
				in.Plan.Nodes[0].Cards = append(manyCards(224, new(0)), card("gpu", "", 1, 1, "0001:06:00.0"))
				in.Plan.Nodes[0].Devices = nil
			}, `224 devices on NUMA node 0 of the guest; at most 111`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := small()
			c.spoil(&in)
			got, err := Domains(in)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if got != nil {
				t.Errorf("%d artefacts beside the error", len(got))
			}
		})
	}
}

func manyCards(count int, cell *int) []plan.NodeDevice {
	var cards []plan.NodeDevice
	for i := range count {
		id := fmt.Sprintf("0000:%02x:%02x.0", 1+i/32, i%32)
		cards = append(cards, plan.NodeDevice{ID: id, Kind: plan.KindGPU, Functions: []string{id}, Cell: cell})
	}
	return cards
}

func TestAllFaultsAreNamedAtOnce(t *testing.T) {
	in := small()
	other := in.Plan.Nodes[0]
	other.Name, other.Cards, other.Devices = "vm2", []plan.NodeDevice{{ID: "GPU1", Kind: plan.KindGPU},
		{ID: "NIC1", Kind: plan.KindNIC}}, nil
	in.Plan.Nodes = append(in.Plan.Nodes, other)
	in.Plan.Nodes[0].MemoryBytes = 1
	_, err := Domains(in)
	for _, want := range []string{`node "vm"`, `node "vm2"`, `"GPU1"`, `"NIC1"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
}

// TestNamesCannotLeaveComments: the lab file allows consecutive hyphens.
func TestNamesCannotLeaveComments(t *testing.T) {
	in := small()
	in.Plan.Lab, in.Plan.Nodes[0].Name = "a--b---c", "vm--0"
	in.Made = "x --><domain>\n\x00\xff<!--- y--"
	in.Plan.Host.Name = `h'"<&>--` + "\t\n"
	in.Plan.Nodes[0].Cards[0].Model = "GPU --> <hostdev/> ]]> &"
	artefacts, err := Domains(in)
	if err != nil {
		t.Fatal(err)
	}
	checkPlacement(t, in, artefacts[0])
	d := readDomain(t, artefacts[0].Data)
	if d.Name != "a--b---c.vm--0" || len(d.Devices.Hostdevs) != 2 {
		t.Errorf("domain %q with %d devices", d.Name, len(d.Devices.Hostdevs))
	}
}

func TestVirtualFunctionsAreWhereTheSpecificationPutsThem(t *testing.T) {
	for name, c := range map[string]struct {
		sriov topology.SRIOV
		index int
		want  string
	}{
		"the first":                          {topology.SRIOV{Offset: new(2), Stride: new(1)}, 0, "0000:3b:00.2"},
		"over functions into devices":        {topology.SRIOV{Offset: new(2), Stride: new(1)}, 7, "0000:3b:01.1"},
		"over devices into the next bus":     {topology.SRIOV{Offset: new(128), Stride: new(2)}, 64, "0000:3c:00.0"},
		"a stride of none, and one function": {topology.SRIOV{Offset: new(16), Stride: new(0)}, 0, "0000:3b:02.0"},
		"as the host lists it": {topology.SRIOV{Offset: new(2), Stride: new(1),
			VFs: []topology.VF{{Index: 1, Address: new(addr(t, "0000:3b:10.5"))}}}, 1,
			"0000:3b:10.5"},
	} {
		t.Run(name, func(t *testing.T) {
			pf := addr(t, "0000:3b:00.0")
			m, err := newMachine(Input{Plan: &plan.Plan{Lab: "l"},
				Host: &topology.Host{PCI: []topology.PCIDevice{{Address: pf, SRIOV: &c.sriov}}}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.address(fmt.Sprintf("%s/vf%d", pf, c.index))
			if err != nil || got.String() != c.want {
				t.Errorf("%v, %v, want %s", got, err, c.want)
			}
		})
	}
	m, _ := newMachine(Input{Plan: &plan.Plan{Lab: "l"}, Host: &topology.Host{NICs: []topology.NIC{{
		Address: new(addr(t, "0000:ff:1f.7")), SRIOV: &topology.SRIOV{Offset: new(1), Stride: new(1)},
	}}}})
	if a, err := m.address("0000:ff:1f.7/vf0"); err == nil {
		t.Errorf("beyond the last bus is %v", a)
	}
}

func TestMACOfAVirtualFunctionIsSetWhereItCanBe(t *testing.T) {
	pf := addr(t, "0000:3b:00.0")
	nic := func(driver string, netdevs []string, layer string) *topology.Host {
		return &topology.Host{NICs: []topology.NIC{{Address: &pf, Driver: driver, Netdevs: netdevs,
			Devices: []topology.RDMADevice{
				{Ports: []topology.RDMAPort{{Number: 1, LinkLayer: layer}}},
			}}}}
	}
	for name, c := range map[string]struct {
		host *topology.Host
		mac  string
		want bool
	}{
		"an Ethernet NIC":         {nic("mlx5_core", []string{"ens1"}, "Ethernet"), "52:54:00:00:00:01", true},
		"a NIC that is not known": {&topology.Host{}, "52:54:00:00:00:01", true},
		"InfiniBand by its port":  {nic("mlx5_core", []string{"ib0"}, "InfiniBand"), "52:54:00:00:00:01", false},
		"InfiniBand by its class": {&topology.Host{PCI: []topology.PCIDevice{{Address: pf,
			Class: new(topology.ID24(0x020700))}}}, "52:54:00:00:00:01", false},
		"no network device":            {nic("vfio-pci", []string{}, "Ethernet"), "52:54:00:00:00:01", false},
		"no address in the plan":       {nic("mlx5_core", []string{"ens1"}, "Ethernet"), "", false},
		"an address that is no NIC's":  {nic("mlx5_core", []string{"ens1"}, "Ethernet"), "01:00:5e:00:00:01", false},
		"an address of too many bytes": {nic("mlx5_core", []string{"ens1"}, "Ethernet"), "52:54:00:00:00:00:01", false},
	} {
		t.Run(name, func(t *testing.T) {
			in := small()
			in.Host = c.host
			in.Plan.Nodes[0].Cards = []plan.NodeDevice{vfCard("0000:3b:00.0", 0, 0, 0, "0000:3b:00.2")}
			in.Plan.Nodes[0].Devices = []string{"0000:3b:00.2"}
			in.Plan.Nodes[0].NICs = []lab.NIC{{MAC: c.mac}}
			artefacts, err := Domains(in)
			if err != nil {
				t.Fatal(err)
			}
			checkPlacement(t, in, artefacts[0])
			d := readDomain(t, artefacts[0].Data)
			if got := devicesOf(d)[0].MAC == c.mac && c.mac != ""; got != c.want {
				t.Errorf("MAC set: %v, want %v", got, c.want)
			}
		})
	}
}

// TestFunctionsOfACardKeepTheirNumbers: audio stays function 1 of a GPU, and a second port alone becomes function 0.
func TestFunctionsOfACardKeepTheirNumbers(t *testing.T) {
	in := small()
	n := &in.Plan.Nodes[0]
	n.Cards = []plan.NodeDevice{
		card("gpu", "RTX", 0, 0, "0000:06:00.0", "0000:06:00.1", "0000:06:00.3", "0000:07:00.0"),
		card("nic", "port 2", 1, 1, "0000:41:00.1"),
		card("nic", "X", 1, 1, "0000:61:00.0"), card("nic", "X", 1, 1, "0000:61:00.1"),
		vfCard("0000:81:00.0", 0, 1, 1, "0000:81:00.2"), vfCard("0000:81:00.0", 1, 1, 1, "0000:81:00.3"),
	}
	n.Devices = nil
	artefacts, err := Domains(in)
	if err != nil {
		t.Fatal(err)
	}
	checkPlacement(t, in, artefacts[0])
	d := readDomain(t, artefacts[0].Data)
	slots := map[int]int{}
	var got []string
	for _, f := range devicesOf(d) {
		if _, ok := slots[f.Slot]; !ok {
			slots[f.Slot] = len(slots)
		}
		got = append(got, fmt.Sprintf("%s slot %d.%d", f.Host, slots[f.Slot], f.Function))
	}
	want := []string{
		"0000:06:00.0 slot 0.0", "0000:06:00.1 slot 0.1", "0000:06:00.3 slot 0.3", "0000:07:00.0 slot 1.0",
		"0000:41:00.1 slot 2.0",
		"0000:61:00.0 slot 3.0", "0000:61:00.1 slot 3.1", "0000:81:00.2 slot 4.0", "0000:81:00.3 slot 5.0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWindowOfTheFirmware(t *testing.T) {
	bar := func(sizes ...uint64) (bars []topology.BAR) {
		for i, s := range sizes {
			bars = append(bars, topology.BAR{Index: 2 * i, SizeBytes: s, Bits64: true, Prefetchable: true})
		}
		return bars
	}
	for name, c := range map[string]struct {
		bars [][]topology.BAR
		want uint64
	}{
		"nothing known":                    {[][]topology.BAR{nil}, 0},
		"BARs below 4 GiB":                 {[][]topology.BAR{{{SizeBytes: gib}}}, 0},
		"one card":                         {[][]topology.BAR{bar(256*mib, 32*mib)}, 512 * mib},
		"a card rounds up for itself":      {[][]topology.BAR{bar(32*gib, 32*mib)}, 64 * gib},
		"the sum rounds up":                {[][]topology.BAR{bar(64 * gib), bar(64 * gib), bar(64 * gib)}, 256 * gib},
		"BARs of virtual functions, later": {[][]topology.BAR{{{Index: 7, SizeBytes: 64 * gib, Bits64: true}}}, 0},
		"more than the firmware can":       {[][]topology.BAR{bar(1<<63, 1<<63), bar(1 << 63)}, maxWindow},
	} {
		t.Run(name, func(t *testing.T) {
			var slots []slot
			m := &machine{host: &topology.Host{}}
			for i, bars := range c.bars {
				a := topology.PCIAddr{Bus: uint8(i)}
				m.host.PCI = append(m.host.PCI, topology.PCIDevice{Address: a, BARs: bars})
				slots = append(slots, slot{functions: []function{{host: a}}})
			}
			if got := m.windowBytes(slots); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// TestEightCellsOfSixteenDevices: bus numbers ascend, and the buses of no expander reach the next.
func TestEightCellsOfSixteenDevices(t *testing.T) {
	artefacts, err := Domains(largest())
	if err != nil {
		t.Fatal(err)
	}
	checkPlacement(t, largest(), artefacts[0])
	d := readDomain(t, artefacts[0].Data)
	ports := map[uint]uint{} // by index of their bus
	var expanders []libvirtxml.DomainController
	for _, c := range d.Devices.Controllers {
		switch c.Model {
		case pcieRootPort:
			ports[*c.Address.PCI.Bus]++
		case pcieExpanderBus:
			expanders = append(expanders, c)
		}
	}
	if len(expanders) != 8 {
		t.Fatalf("%d expander buses", len(expanders))
	}
	next := ports[0] + 1
	for _, e := range expanders {
		if *e.PCI.Target.BusNr < next {
			t.Errorf("the expander of node %d begins at bus %d, and those before it need %d", *e.PCI.Target.NUMANode,
				*e.PCI.Target.BusNr, next)
		}
		next = *e.PCI.Target.BusNr + 1 + ports[*e.Index]
	}
	if next > 256 {
		t.Errorf("%d buses", next)
	}
}

func largest() Input {
	s := shape{name: "vm", threads: 1, page: gib, farther: 21, house: []int{0}}
	for cell := range 8 {
		s.cells = append(s.cells, []home{{cell, span(1+8*cell, 8+8*cell), gib}})
		for i := range 16 {
			s.cards = append(s.cards, card("gpu", "X", cell, cell, fmt.Sprintf("%04x:%02x:00.0", cell, 1+i)))
		}
	}
	return input("largest", "host", intelHost(), s)
}

func TestUUIDIsOfItsLabAndNode(t *testing.T) {
	// Python's uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/rackless/rackless/lab/epyc-pair/node/vm00").
	if got, want := uuid("epyc-pair", "vm00"), "31df6c36-8d37-5c36-a790-4492f0fe5907"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if uuid("a", "b") == uuid("a", "c") || uuid("a", "b") == uuid("b", "b") {
		t.Error("two nodes have one UUID")
	}
}

func TestManagementAddressIsNoneOfTheLabs(t *testing.T) {
	m, _ := newMachine(small())
	first := m.managementMAC("vm")
	in := small()
	in.Plan.Nodes[0].NICs[0].MAC = strings.ToUpper(first)
	m, _ = newMachine(in)
	if second := m.managementMAC("vm"); second == first || !isMAC(second) {
		t.Errorf("%s, and the lab has %s", second, first)
	}
}

// A plan is written as JSON and read back.
func TestPlanFromAFileRendersTheSame(t *testing.T) {
	for _, c := range domainCases() {
		in := c.in(t)
		want, err := Domains(in)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(in.Plan)
		if err != nil {
			t.Fatal(err)
		}
		in.Plan = new(plan.Plan)
		if err := json.Unmarshal(text, in.Plan); err != nil {
			t.Fatal(err)
		}
		got, err := Domains(in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
