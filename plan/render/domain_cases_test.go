package render

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/variant"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

type home struct {
	node   int
	cpus   []int // by virtual CPU
	memory uint64
}

type shape struct {
	name    string
	threads int
	page    uint64
	cells   [][]home // no empty ones
	flat    bool     // guest NUMA off
	farther int      // distance between cells
	house   []int    // for emulator and I/O thread
	cards   []plan.NodeDevice
	nics    int
}

func (s shape) node() plan.Node {
	n := plan.Node{
		Name: s.name, Threads: s.threads, SMT: s.threads > 1, GuestNUMA: !s.flat,
		EmulatorCPUs: topology.CPUs(s.house...), IOThreadCPUs: topology.CPUs(s.house...),
	}
	for i, homes := range s.cells {
		c := plan.Cell{Cell: i, FirstVCPU: len(n.VCPUs)}
		for _, h := range homes {
			c.NUMANodes = append(c.NUMANodes, h.node)
			n.VCPUs = append(n.VCPUs, h.cpus...)
			if h.memory > 0 {
				n.Memory = append(n.Memory, plan.NodeMemory{NUMANode: h.node, Bytes: h.memory, PageBytes: s.page})
			}
			c.Bytes += h.memory
		}
		c.VCPUs = len(n.VCPUs) - c.FirstVCPU
		for k := range s.cells {
			d := 10
			if k != i {
				d = s.farther
			}
			c.Distances = append(c.Distances, d)
		}
		n.Cells = append(n.Cells, c)
		n.MemoryBytes += c.Bytes
	}
	n.Cores = len(n.VCPUs) / s.threads
	n.Cards = s.cards
	for _, c := range s.cards {
		n.Devices = append(n.Devices, c.Functions...)
	}
	for i := range s.nics {
		n.NICs = append(n.NICs, lab.NIC{
			Name: fmt.Sprintf("eth%d", i), MAC: fmt.Sprintf("52:54:00:0a:00:%02x", i+1),
			Addr: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 24),
		})
	}
	return n
}

func siblings(first, last, sibling int) []int {
	var cpus []int
	for c := first; c <= last; c++ {
		cpus = append(cpus, c, c+sibling)
	}
	return cpus
}

func span(first, last int) []int {
	var cpus []int
	for c := first; c <= last; c++ {
		cpus = append(cpus, c)
	}
	return cpus
}

func card(kind, model string, node, cell int, functions ...string) plan.NodeDevice {
	return plan.NodeDevice{ID: functions[0], Kind: kind, Model: model, Functions: functions, NUMANode: &node,
		Cell: &cell}
}

func vfCard(pf string, index, node, cell int, function string) plan.NodeDevice {
	return plan.NodeDevice{ID: pf, Kind: plan.KindVF, Model: "MT27800 Family [ConnectX-5]", VF: &index,
		Functions: []string{function}, NUMANode: &node, Cell: &cell}
}

func input(labName, host string, h *topology.Host, shapes ...shape) Input {
	p := &plan.Plan{Schema: plan.Schema, Lab: labName, Workload: lab.WorkloadMixed, Host: plan.HostRef{Name: host,
		Provenance: h.Provenance}}
	l := &lab.Lab{Name: labName}
	for _, s := range shapes {
		p.Nodes = append(p.Nodes, s.node())
		l.Nodes = append(l.Nodes, lab.Node{Name: s.name})
	}
	return Input{Plan: p, Lab: l, Host: h, Made: fmt.Sprintf("rackless test plan of lab %s (%s.yaml) for %s", labName,
		labName, host)}
}

func addr(t testing.TB, s string) topology.PCIAddr {
	t.Helper()
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func intelHost() *topology.Host {
	return &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceTree},
		System:     topology.System{Arch: "x86_64", CPUModel: "Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz"},
	}
}

func epycHost(t testing.TB) *topology.Host {
	t.Helper()
	h, err := inspect.ReadFile(context.Background(), filepath.Join("../..", "examples", "hosts", "epyc-7551p.ttar"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

const (
	rtx3090 = "GeForce RTX 3090"
	cx4     = "MT27710 Family [ConnectX-4 Lx]"
)

func epycPair(t testing.TB) Input {
	return input("epyc-pair", "epyc-7551p.ttar", epycHost(t),
		shape{
			name: "vm00", threads: 2, page: gib, farther: 16, house: []int{0, 32}, nics: 1,
			cells: [][]home{{{0, siblings(2, 7, 32), 16 * gib}}, {{2, siblings(16, 23, 32), 16 * gib}}},
			cards: []plan.NodeDevice{card("gpu", rtx3090, 0, 0, "0000:06:00.0", "0000:06:00.1"),
				card("nic", cx4, 2, 1, "0000:41:00.0")},
		},
		shape{
			name: "vm01", threads: 2, page: gib, farther: 16, house: []int{30, 62}, nics: 1,
			cells: [][]home{{{1, siblings(8, 15, 32), 16 * gib}}, {{3, siblings(24, 29, 32), 16 * gib}}},
			cards: []plan.NodeDevice{card("gpu", rtx3090, 1, 0, "0000:21:00.0", "0000:21:00.1"),
				card("nic", cx4, 3, 1, "0000:61:00.0")},
		})
}

// h20 has one lab node with four GPUs and two NICs, half of them on each socket.
func h20(t testing.TB) Input {
	h := intelHost()
	h.System.CPUModel = "Intel(R) Xeon(R) Platinum 8469C"
	var cards []plan.NodeDevice
	for i, gpu := range []string{"0000:08:00.0", "0000:0e:00.0", "0000:87:00.0", "0000:8d:00.0"} {
		h.PCI = append(h.PCI, topology.PCIDevice{Address: addr(t, gpu), BARs: []topology.BAR{
			{Index: 0, SizeBytes: 64 * mib, Bits64: true, Prefetchable: true}, {Index: 2, SizeBytes: 128 * gib,
				Bits64: true, Prefetchable: true},
			{Index: 4, SizeBytes: 32 * mib, Bits64: true, Prefetchable: true},
		}})
		cards = append(cards, card("gpu", "GH100 [H20]", i/2, i/2, gpu))
	}
	cards = append(cards, card("nic", "MT2910 Family [ConnectX-7]", 0, 0, "0000:12:00.0"),
		card("nic", "MT2910 Family [ConnectX-7]", 1, 1, "0000:91:00.0"))
	return input("h20", "h20", h, shape{
		name: "node00", threads: 2, page: gib, farther: 21, house: []int{0, 96}, nics: 2, cards: cards,
		cells: [][]home{{{0, siblings(1, 16, 96), 96 * gib}}, {{1, siblings(49, 64, 96), 96 * gib}}},
	})
}

func r740(t testing.TB) Input {
	h := intelHost()
	pf := addr(t, "0000:3b:00.0")
	h.PCI = []topology.PCIDevice{{Address: pf, SRIOV: &topology.SRIOV{Total: new(16), Enabled: new(0), Offset: new(2),
		Stride: new(1), VFs: []topology.VF{}}}}
	h.NICs = []topology.NIC{{Address: &pf, Netdevs: []string{"ens1f0np0"}, Driver: "mlx5_core",
		Devices: []topology.RDMADevice{
			{Name: "mlx5_0", Ports: []topology.RDMAPort{{Number: 1, LinkLayer: "Ethernet"}}},
		}}}
	in := input("r740", "r740", h, shape{
		name: "vm", threads: 1, page: 2 * mib, farther: 21, house: []int{0, 1}, nics: 1,
		cells: [][]home{{{0, span(2, 23), 85 * gib}}, {{1, span(24, 45), 85 * gib}}},
		cards: []plan.NodeDevice{vfCard("0000:3b:00.0", 3, 0, 0, "0000:3b:00.0/vf3")},
	})
	in.Plan.Workload = lab.WorkloadRDMALatency
	return in
}

type domainCase struct {
	name string
	in   func(testing.TB) Input
}

func domainCases() []domainCase {
	gpu := func(cell int) []plan.NodeDevice {
		return []plan.NodeDevice{card("gpu", "Instinct MI210", 0, cell, "0000:c1:00.0")}
	}
	on := func(h *topology.Host, s shape) func(testing.TB) Input {
		return func(testing.TB) Input { return input("shapes", "a host of the test", h, s) }
	}
	booted := func(in func(testing.TB) Input, emulated bool) func(testing.TB) Input {
		return func(t testing.TB) Input {
			i := in(t)
			i.Boot = &Boot{Kernel: "/var/lib/libvirt/rackless/0123456789abcdef-vmlinux",
				Initramfs: "/var/lib/libvirt/rackless/0123456789abcdef-initramfs.cpio",
				Args:      "console=ttyS0 loglevel=4"}
			i.Emulated = emulated
			return i
		}
	}
	translated := func(in func(testing.TB) Input) func(testing.TB) Input {
		return func(t testing.TB) Input {
			i := in(t)
			i.Emulated = true
			return i
		}
	}
	seeded := func(in func(testing.TB) Input) func(testing.TB) Input {
		return func(t testing.TB) Input {
			i := in(t)
			i.Seeds = make(map[string]string)
			for _, n := range i.Plan.Nodes {
				i.Seeds[n.Name] = "/var/lib/libvirt/rackless/" + lab.VMName(i.Plan.Lab, n.Name) + "-seed.iso"
			}
			return i
		}
	}
	level := func(in func(testing.TB) Input, level string) func(testing.TB) Input {
		return func(t testing.TB) Input {
			i := in(t)
			v, err := variant.Of(i.Plan, i.Host, level)
			if err != nil {
				t.Fatal(err)
			}
			i.Plan = v
			return i
		}
	}
	arm := &topology.Host{System: topology.System{Arch: "aarch64", CPUModel: "Neoverse-V2"}}
	return []domainCase{
		{"epyc-pair", epycPair},
		{"h20", h20},
		{"r740-vf", r740},
		{"r740-vf-seed", seeded(r740)},
		{"epyc-pair-builtin", booted(epycPair, false)},
		{"h20-builtin-emulated", booted(h20, true)},
		{"r740-vf-emulated", translated(r740)},
		{"epyc-pair-default", level(epycPair, variant.Default)},
		{"epyc-pair-pin", level(epycPair, variant.Pin)},
		{"epyc-pair-pin-numa-smt", level(epycPair, variant.PinSMT)},
		{"epyc-pair-wrong-numa", level(epycPair, variant.WrongNUMA)},
		{"switches", switched},
		{"memory-only-cell", on(intelHost(), shape{name: "vm", threads: 2, page: gib, farther: 17, house: []int{0},
			cards: gpu(1),
			cells: [][]home{{{0, siblings(1, 4, 32), 8 * gib}}, {{2, nil, 4 * gib}}}})},
		{"guest-numa-off", on(intelHost(), shape{name: "vm", threads: 2, page: gib, flat: true, house: []int{0, 32},
			cards: gpu(0),
			cells: [][]home{{{0, siblings(1, 4, 32), 4 * gib}, {1, siblings(8, 11, 32), 4 * gib}}}})},
		{"smt-off", on(intelHost(), shape{name: "vm", threads: 1, page: gib, farther: 21, house: []int{0},
			cards: gpu(0),
			cells: [][]home{{{0, span(1, 5), 4 * gib}}, {{1, span(16, 18), 2 * gib}}}})},
		{"hugepages-off", on(intelHost(), shape{name: "vm", threads: 2, farther: 21, house: []int{0},
			cells: [][]home{{{0, siblings(1, 2, 8), 3 * gib}}, {{1, siblings(4, 5, 8), 3 * gib}}}})},
		{"hugepages-off-with-gpu", on(intelHost(), shape{name: "vm", threads: 2, flat: true, house: []int{0},
			cards: gpu(0),
			cells: [][]home{{{0, siblings(1, 2, 8), 3 * gib}}}})},
		{"cores-without-memory", on(intelHost(), shape{name: "vm", threads: 1, page: 2 * mib, farther: 21,
			house: []int{0}, cards: gpu(0),
			cells: [][]home{{{0, span(1, 2), 1026 * mib}, {3, span(12, 13), 0}}, {{1, span(4, 7), 514 * mib}}}})},
		{"arm64", on(arm, shape{name: "vm", threads: 1, page: 2 * mib, farther: 40, house: []int{0}, cards: gpu(1),
			cells: [][]home{{{0, span(2, 9), 8 * gib}}, {{1, span(72, 79), 8 * gib}}}})},
		{"arm64-seed", seeded(on(arm, shape{name: "vm", threads: 1, page: 2 * mib, house: []int{0},
			cells: [][]home{{{0, span(2, 9), 8 * gib}}}}))},
		{"many-vcpus", on(intelHost(), shape{name: "vm", threads: 2, page: gib, farther: 21, house: []int{0, 256},
			cards: gpu(1),
			cells: [][]home{{{0, siblings(1, 80, 256), 64 * gib}}, {{1, siblings(128, 207, 256), 64 * gib}}}})},
	}
}
