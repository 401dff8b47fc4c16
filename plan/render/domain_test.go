package render

import (
	"encoding/xml"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func TestDomainsAreAsWritten(t *testing.T) {
	for _, c := range domainCases() {
		t.Run(c.name, func(t *testing.T) {
			artefacts, err := Domains(c.in(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range artefacts {
				golden.Check(t, "testdata/domain/"+c.name+"."+path.Base(a.Path), a.Data)
				checkPlacement(t, c.in(t), a)
			}
		})
	}
}

func TestSameInputGivesSameBytes(t *testing.T) {
	for _, c := range domainCases() {
		first, err := Domains(c.in(t))
		if err != nil {
			t.Fatal(err)
		}
		second, err := Domains(c.in(t))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

type placement struct {
	Pins     map[int]string
	Emulator string
	IOThread map[int]string
	Memory   uint64
	Nodes    string // host nodes of all memory
	Mode     string
	MemNodes map[int]string
	Cells    map[int]cellPlacement
	Pages    map[string]uint64 // by nodeset
	Devices  []devicePlacement
	Topology [3]int
}

type cellPlacement struct {
	CPUs      string
	Bytes     uint64
	Distances []int
}

type devicePlacement struct {
	Host string
	MAC  string
	Cell int // -1: on bus 0
	// Slot is the index of their controller.
	Slot     int
	Function int
}

func inBytes(t *testing.T, value uint64, unit string) uint64 {
	t.Helper()
	shift, ok := map[string]int{"b": 0, "KiB": 10, "MiB": 20, "GiB": 30}[unit]
	if !ok || value<<shift>>shift != value {
		t.Fatalf("%d %q is no amount of memory", value, unit)
	}
	return value << shift
}

func placementOf(t *testing.T, d *libvirtxml.Domain) placement {
	t.Helper()
	bytes := func(value uint, unit string) uint64 { return inBytes(t, uint64(value), unit) }
	set := func(s string) string {
		c, err := topology.ParseCPUSet(s)
		if err != nil {
			t.Fatal(err)
		}
		return c.String()
	}
	p := placement{Pins: map[int]string{}, IOThread: map[int]string{}, MemNodes: map[int]string{},
		Cells: map[int]cellPlacement{}, Pages: map[string]uint64{}}
	if tune := d.CPUTune; tune != nil {
		for _, pin := range tune.VCPUPin {
			p.Pins[int(pin.VCPU)] = set(pin.CPUSet)
		}
		if tune.EmulatorPin != nil {
			p.Emulator = set(tune.EmulatorPin.CPUSet)
		}
		for _, pin := range tune.IOThreadPin {
			p.IOThread[int(pin.IOThread)] = set(pin.CPUSet)
		}
	}
	p.Memory = bytes(d.Memory.Value, d.Memory.Unit)
	if tune := d.NUMATune; tune != nil {
		p.Nodes, p.Mode = set(tune.Memory.Nodeset), tune.Memory.Mode
		for _, m := range tune.MemNodes {
			p.MemNodes[int(m.CellID)] = set(m.Nodeset)
		}
	}
	if d.CPU.Numa != nil {
		for _, c := range d.CPU.Numa.Cell {
			cell := cellPlacement{CPUs: set(c.CPUs), Bytes: bytes(c.Memory, c.Unit)}
			if c.Distances != nil {
				for _, s := range c.Distances.Siblings {
					cell.Distances = append(cell.Distances, int(s.Value))
				}
			}
			p.Cells[int(*c.ID)] = cell
		}
	}
	if b := d.MemoryBacking; b != nil && b.MemoryHugePages != nil {
		for _, page := range b.MemoryHugePages.Hugepages {
			p.Pages[page.Nodeset] = bytes(page.Size, page.Unit)
		}
	}
	p.Devices = devicesOf(d)
	p.Topology = [3]int{d.CPU.Topology.Sockets, d.CPU.Topology.Cores, d.CPU.Topology.Threads}
	return p
}

func devicesOf(d *libvirtxml.Domain) []devicePlacement {
	controllers := map[uint]libvirtxml.DomainController{}
	for _, c := range d.Devices.Controllers {
		if c.Type == "pci" {
			controllers[*c.Index] = c
		}
	}
	cell := func(bus uint) int {
		for bus != 0 {
			c := controllers[bus]
			if c.PCI.Target != nil && c.PCI.Target.NUMANode != nil {
				return int(*c.PCI.Target.NUMANode)
			}
			bus = *c.Address.PCI.Bus
		}
		return -1
	}
	var list []devicePlacement
	add := func(host, guest *libvirtxml.DomainAddressPCI, mac string) {
		a := topology.PCIAddr{Domain: uint32(*host.Domain), Bus: uint8(*host.Bus), Device: uint8(*host.Slot),
			Function: uint8(*host.Function)}
		list = append(list, devicePlacement{Host: a.String(), MAC: mac, Cell: cell(*guest.Bus),
			Slot: int(*guest.Bus), Function: int(*guest.Function)})
	}
	for _, h := range d.Devices.Hostdevs {
		add(h.SubsysPCI.Source.Address, h.Address.PCI, "")
	}
	for _, f := range d.Devices.Interfaces {
		if f.Source.Hostdev != nil {
			add(f.Source.Hostdev.PCI.Address, f.Address.PCI, f.MAC.Address)
		}
	}
	slices.SortFunc(list, func(a, b devicePlacement) int { return strings.Compare(a.Host, b.Host) })
	return list
}

// checkPlacement uses only data of the plan.
func checkPlacement(t *testing.T, in Input, a Artifact) {
	t.Helper()
	d := readDomain(t, a.Data)
	var n *plan.Node
	for i := range in.Plan.Nodes {
		if DomainPath(in.Plan.Nodes[i].Name) == a.Path {
			n = &in.Plan.Nodes[i]
		}
	}
	if n == nil {
		t.Fatalf("%s is of no node of the plan", a.Path)
	}
	var mark Mark
	if err := xml.Unmarshal([]byte(d.Metadata.XML), &mark); err != nil || mark.Lab != in.Plan.Lab ||
		mark.Name != n.Name || mark.Plan != plan.Schema {
		t.Errorf("metadata is %+v, %v", mark, err)
	}
	got := placementOf(t, d)
	want := placement{
		Pins: map[int]string{}, Emulator: in.Plan.EmulatorPin(n, in.Host).String(), IOThread: map[int]string{},
		Memory: n.MemoryBytes, Mode: "strict",
		MemNodes: map[int]string{}, Cells: map[int]cellPlacement{}, Pages: map[string]uint64{}, Topology: got.Topology,
	}
	for v, cpu := range n.VCPUs {
		if !n.Unpinned {
			want.Pins[v] = topology.CPUs(cpu).String()
		}
	}
	if !n.IOThreadCPUs.IsEmpty() {
		want.IOThread[1] = n.IOThreadCPUs.String()
	}
	pages := map[int]uint64{}
	var all []int
	for _, m := range n.Memory {
		all = append(all, m.NUMANode)
		pages[m.NUMANode] = m.PageBytes
	}
	want.Nodes = topology.CPUs(all...).String()
	var cellsOfPages topology.CPUSet
	for _, c := range n.Cells {
		if !n.GuestNUMA {
			break
		}
		var nodes []int
		for _, node := range c.NUMANodes {
			if slices.Contains(all, node) {
				nodes = append(nodes, node)
			}
		}
		want.MemNodes[c.Cell] = topology.CPUs(nodes...).String()
		cell := cellPlacement{Bytes: c.Bytes}
		if c.VCPUs > 0 {
			cell.CPUs = topology.CPURange(c.FirstVCPU, c.FirstVCPU+c.VCPUs-1).String()
		}
		if len(n.Cells) > 1 {
			cell.Distances = c.Distances
		}
		want.Cells[c.Cell] = cell
		cellsOfPages = cellsOfPages.Union(topology.CPUs(c.Cell))
	}
	if page := n.Memory[0].PageBytes; page > 0 {
		want.Pages[cellsOfPages.String()] = page
	}
	if n.Unbound {
		want.Nodes, want.Mode, want.MemNodes = "", "", map[int]string{}
	}
	want.Devices = got.Devices
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: placement (-plan +domain):\n%s", a.Path, diff)
	}
	if product := got.Topology[0] * got.Topology[1] * got.Topology[2]; product != len(n.VCPUs) {
		t.Errorf("%s: topology %v makes %d vcpus of %d", a.Path, got.Topology, product, len(n.VCPUs))
	}
	if perSocket := len(n.VCPUs) / got.Topology[0]; got.Topology[0] > 1 {
		for _, c := range n.Cells {
			if c.VCPUs != 0 && c.VCPUs != perSocket {
				t.Errorf("%s: a socket has %d vcpus, cell %d has %d", a.Path, perSocket, c.Cell, c.VCPUs)
			}
		}
	}
	checkDevices(t, n, got.Devices)
}

// checkDevices checks each function once, on its cell, and functions of one card in one slot.
func checkDevices(t *testing.T, n *plan.Node, got []devicePlacement) {
	t.Helper()
	type seat struct{ slot, function int }
	seats := map[seat]string{}
	functions := map[string]devicePlacement{}
	hasZero := map[int]bool{}
	for _, d := range got {
		if other := seats[seat{d.Slot, d.Function}]; other != "" {
			t.Errorf("%s and %s have one place in the guest", other, d.Host)
		}
		seats[seat{d.Slot, d.Function}] = d.Host
		functions[d.Host] = d
		hasZero[d.Slot] = hasZero[d.Slot] || d.Function == 0
	}
	for _, d := range got {
		if !hasZero[d.Slot] {
			t.Errorf("%s is in a slot without function 0, where no guest looks", d.Host)
		}
	}
	count := 0
	for _, c := range n.Cards {
		want := -1
		if len(n.Cells) > 1 && c.Cell != nil {
			want = *c.Cell
		}
		for _, f := range c.Functions {
			count++
			if strings.Contains(f, "/vf") {
				continue
			}
			d, ok := functions[f]
			if !ok {
				t.Errorf("%s of the plan is not in the domain", f)
			} else if d.Cell != want {
				t.Errorf("%s is on cell %d, want %d", f, d.Cell, want)
			}
		}
	}
	if len(got) != count {
		t.Errorf("%d functions in the domain, %d in the plan", len(got), count)
	}
}

// A guest of an emulated host signals the end of an interrupt by an exit, one of a real host by a bit in memory.
func TestGuestsOfEmulatedHostsExitAtTheEndOfInterrupts(t *testing.T) {
	for vendor, want := range map[string]string{topology.VendorEmulated: "off", "Supermicro": ""} {
		in := epycPair(t)
		host := *in.Host
		host.System.Vendor, in.Host = vendor, &host
		artefacts, err := Domains(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range artefacts {
			var d libvirtxml.Domain
			if err := d.Unmarshal(string(a.Data)); err != nil {
				t.Fatal(err)
			}
			if got := d.Features.APIC.EOI; got != want {
				t.Errorf("%s on a host of %s: eoi='%s', want '%s'", a.Path, vendor, got, want)
			}
		}
	}
}
