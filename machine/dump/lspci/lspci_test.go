package lspci_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/dump/lspci"
	"github.com/rackless/rackless/machine/topology"
)

func readFile(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func parse(t testing.TB, text string) *topology.Host {
	t.Helper()
	h, err := lspci.Parse([]byte(text), "l.txt")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func fixtures(t testing.TB) []string {
	t.Helper()
	var names []string
	for _, dir := range []string{".", "corpus"} {
		files, err := filepath.Glob(filepath.Join("testdata", dir, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no fixtures in %s: %v", dir, err)
		}
		for _, f := range files {
			if info, err := os.Stat(f); err == nil && !info.IsDir() && filepath.Ext(f) != ".tsv" &&
				filepath.Ext(f) != ".golden" {
				names = append(names, filepath.Join(dir, filepath.Base(f)))
			}
		}
	}
	return names
}

func orUnknown[T any](v *T) string {
	if v == nil {
		return "?"
	}
	return fmt.Sprint(*v)
}

func describe(d *topology.PCIDevice) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s class %s %s:%s", d.Address, orUnknown(d.Class), orUnknown(d.Vendor), orUnknown(d.Device))
	if d.SubsystemVendor != nil {
		fmt.Fprintf(&b, " subsystem %s:%s", *d.SubsystemVendor, orUnknown(d.SubsystemDevice))
	}
	fmt.Fprintf(&b, " rev %s %q %q %q", orUnknown(d.Revision), d.ClassName, d.VendorName, d.DeviceName)
	switch {
	case d.Parent != nil:
		fmt.Fprintf(&b, " behind %s on %s", d.Parent, d.Root)
	case d.ParentUnknown:
		b.WriteString(" behind ?")
	default:
		fmt.Fprintf(&b, " on %s", d.Root)
	}
	if d.Bridge != nil {
		fmt.Fprintf(&b, " bridge %q to %02x-%02x", d.Bridge.Port, d.Bridge.Secondary, d.Bridge.Subordinate)
	}
	fmt.Fprintf(&b, " node %s group %s", orUnknown(d.NUMANode), orUnknown(d.IOMMUGroup))
	if d.DriverKnown {
		fmt.Fprintf(&b, " driver %q of %v", d.Driver, d.Candidates)
	}
	if d.Slot != "" {
		fmt.Fprintf(&b, " slot %q", d.Slot)
	}
	if l := d.Link; l != nil {
		fmt.Fprintf(&b, " link %s x%s of %s x%s", orUnknown(l.SpeedGTs), orUnknown(l.Width), orUnknown(l.MaxSpeedGTs),
			orUnknown(l.MaxWidth))
	}
	for _, r := range d.BARs {
		fmt.Fprintf(&b, " BAR%d %d", r.Index, r.SizeBytes)
		for _, flag := range []struct {
			set  bool
			name string
		}{{r.Prefetchable, "p"}, {r.Bits64, "64"}, {r.IO, "io"}} {
			if flag.set {
				b.WriteString(flag.name)
			}
		}
	}
	if s := d.SRIOV; s != nil {
		fmt.Fprintf(&b, " VFs %s of %s at +%s by %s:", orUnknown(s.Enabled), orUnknown(s.Total), orUnknown(s.Offset),
			orUnknown(s.Stride))
		for _, vf := range s.VFs {
			fmt.Fprintf(&b, " %d=%s", vf.Index, vf.Address)
		}
	}
	if d.PF != nil {
		fmt.Fprintf(&b, " of PF %s", d.PF)
	}
	if d.ACS != nil {
		fmt.Fprintf(&b, " ACS %+v", *d.ACS)
	}
	if d.ATS != nil {
		fmt.Fprintf(&b, " ATS %v", *d.ATS)
	}
	if d.PowerState != "" {
		b.WriteString(" " + d.PowerState)
	}
	if d.Dead {
		b.WriteString(" dead")
	}
	return b.String()
}

func TestSummariesOfFixtures(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	for _, f := range fixtures(t) {
		name := filepath.Base(f)
		h, err := lspci.Parse([]byte(readFile(t, f)), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		fmt.Fprintf(&got, "%s\n  %s %s, filled %s\n", name, h.Provenance.Kind, h.Provenance.Tool,
			strings.Join(h.Provenance.Filled, " "))
		for i := range h.PCI {
			fmt.Fprintf(&got, "  %s\n", describe(&h.PCI[i]))
		}
		for _, g := range h.GPUs {
			fmt.Fprintf(&got, "  GPU %s %q %q %v\n", g.ID(), g.Kind, g.Model, g.Functions)
		}
		for _, n := range h.NICs {
			fmt.Fprintf(&got, "  NIC %s %q\n", n.ID(), n.Model)
		}
		for _, u := range h.Unread {
			fmt.Fprintf(&got, "  unread %s: %s\n", u.Path, u.Why)
		}
	}
	golden.Check(t, filepath.Join("testdata", "summaries.golden"), got.Bytes())
}

func device(t testing.TB, h *topology.Host, address string) *topology.PCIDevice {
	t.Helper()
	a, err := topology.ParsePCIAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	d := topology.NewTree(h).Device(a)
	if d == nil {
		t.Fatalf("no function %s", address)
	}
	return d
}

func TestFactsOfAServer(t *testing.T) {
	t.Parallel()
	h := parse(t, readFile(t, "server-vvnn.txt"))
	addr := func(bus, dev, fn uint8) *topology.PCIAddr {
		return &topology.PCIAddr{Bus: bus, Device: dev, Function: fn}
	}
	id := func(v topology.ID16) *topology.ID16 { return &v }
	for _, want := range []*topology.PCIDevice{
		{
			Address: *addr(0x16, 1, 0), Root: "pci0000:16", Class: new(topology.ID24(0x060400)), Vendor: id(0x8086),
			Device:          id(0x347a),
			SubsystemVendor: id(0x8086), SubsystemDevice: id(1), Revision: new(topology.ID8(4)),
			ClassName: "PCI bridge", VendorName: "Intel Corporation", DeviceName: "Ice Lake PCI Express Root Port A",
			NUMANode: new(0), IOMMUGroup: new(1), Driver: "pcieport", DriverKnown: true,
			Link: &topology.Link{SpeedGTs: new(16.0), Width: new(16), MaxSpeedGTs: new(16.0), MaxWidth: new(16)},
			BARs: []topology.BAR{{Index: 0, SizeBytes: 128 << 10, Bits64: true}},
			ACS: &topology.ACS{SourceValidation: true, RequestRedirect: true, CompletionRedir: true,
				UpstreamForward: true},
			PowerState: "D0", Bridge: &topology.Bridge{Secondary: 0x17, Subordinate: 0x1b, Port: "root port"},
		},
		{
			Address: *addr(0x19, 0, 0), Parent: addr(0x18, 0, 0), Root: "pci0000:16",
			Class:  new(topology.ID24(0x030200)),
			Vendor: id(0x10de), Device: id(0x20b5), SubsystemVendor: id(0x10de), SubsystemDevice: id(0x1533),
			Revision:  new(topology.ID8(0xa1)),
			ClassName: "3D controller", VendorName: "NVIDIA Corporation", DeviceName: "GA100 [A100 PCIe 80GB]",
			Slot:     "1",
			NUMANode: new(0), IOMMUGroup: new(6), Driver: "nvidia", DriverKnown: true, Candidates: []string{"nouveau",
				"nvidia_drm", "nvidia"},
			Link: &topology.Link{
				SpeedGTs: new(2.5), Width: new(8), MaxSpeedGTs: new(16.0), MaxWidth: new(16),
				Port: &topology.PortLink{Address: *addr(0x18, 0, 0), SpeedGTs: new(2.5), Width: new(8),
					MaxSpeedGTs: new(32.0), MaxWidth: new(16)},
			},
			BARs: []topology.BAR{
				{Index: 0, SizeBytes: 16 << 20},
				{Index: 1, SizeBytes: 128 << 30, Prefetchable: true, Bits64: true},
				{Index: 3, SizeBytes: 32 << 20, Prefetchable: true, Bits64: true},
				{Index: 6, SizeBytes: 512 << 10},
			},
			// The register has "Number of VFs: 20", but "IOVCtl: Enable-" means that there are no VFs.
			SRIOV: &topology.SRIOV{Total: new(20), Enabled: new(0), Offset: new(4), Stride: new(1),
				VFs: []topology.VF{}},
			PowerState: "D3hot",
		},
		{
			Address: *addr(0x1a, 0, 0), Parent: addr(0x18, 1, 0), Root: "pci0000:16",
			Class:  new(topology.ID24(0x020000)),
			Vendor: id(0x15b3), Device: id(0x101b), SubsystemVendor: id(0x15b3), SubsystemDevice: id(7),
			ClassName: "Ethernet controller", VendorName: "Mellanox Technologies",
			DeviceName: "MT28908 Family [ConnectX-6]", Slot: "2",
			NUMANode: new(0), IOMMUGroup: new(7), Driver: "mlx5_core", DriverKnown: true,
			Candidates: []string{"mlx5_core"},
			Link: &topology.Link{
				SpeedGTs: new(16.0), Width: new(16), MaxSpeedGTs: new(16.0), MaxWidth: new(16),
				Port: &topology.PortLink{Address: *addr(0x18, 1, 0), SpeedGTs: new(16.0), Width: new(16),
					MaxSpeedGTs: new(32.0), MaxWidth: new(16)},
			},
			BARs: []topology.BAR{{Index: 0, SizeBytes: 32 << 20, Prefetchable: true, Bits64: true}},
			SRIOV: &topology.SRIOV{Total: new(8), Enabled: new(2), Offset: new(1), Stride: new(1), VFs: []topology.VF{
				{Index: 0, Address: addr(0x1a, 0, 1)}, {Index: 1, Address: addr(0x1a, 0, 2)},
			}},
			ATS: new(true),
		},
		{
			Address: *addr(0x1a, 0, 2), Parent: addr(0x18, 1, 0), Root: "pci0000:16",
			Class: new(topology.ID24(0x020000)), Vendor: id(0x15b3), Device: id(0x101c),
			ClassName: "Ethernet controller", VendorName: "Mellanox Technologies",
			DeviceName: "MT28908 Family [ConnectX-6 Virtual Function]",
			NUMANode:   new(0), IOMMUGroup: new(9), DriverKnown: true, Candidates: []string{"mlx5_core"},
			PF: addr(0x1a, 0, 0),
		},
		{
			Address: *addr(0x97, 0, 0), Root: "pci0000:97", Class: new(topology.ID24(0x030000)), Vendor: id(0x10de),
			Device:    id(0x26b1),
			ClassName: "VGA compatible controller", VendorName: "NVIDIA Corporation",
			DeviceName: "AD102GL [RTX 6000 Ada Generation]",
			NUMANode:   new(1), Driver: "vfio-pci", DriverKnown: true, Candidates: []string{"nouveau", "nvidia_drm",
				"nvidia"}, Dead: true,
		},
	} {
		if diff := cmp.Diff(want, device(t, h, want.Address.String())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Address, diff)
		}
	}
	// A link without lanes is down, so its speed and width are unknown.
	if l := device(t, h, "0000:18:02.0").Link; l == nil || l.Width != nil || l.SpeedGTs != nil || *l.MaxWidth != 16 {
		t.Errorf("link of an empty slot: %+v", l)
	}
	if len(h.IOMMU.Groups) != 10 || h.IOMMU.Enabled == nil || !*h.IOMMU.Enabled {
		t.Errorf("IOMMU %+v", h.IOMMU)
	}
	if len(h.GPUs) != 2 || *h.GPUs[0].BAR1Bytes != 128<<30 || *h.GPUs[0].NUMANode != 0 {
		t.Errorf("GPUs %+v", h.GPUs)
	}
}

func TestSerialNumbersAreNotKept(t *testing.T) {
	t.Parallel()
	h := parse(t, readFile(t, "server-vvnn.txt"))
	if s := fmt.Sprintf("%+v", h); strings.Contains(s, "SECRET") || strings.Contains(s, "12-34-56") {
		t.Error("a serial number is in the Host")
	}
}

func TestPathsFollowTheTree(t *testing.T) {
	t.Parallel()
	for _, f := range []string{"server-vvnn.txt", "server-tv.txt"} {
		tree := topology.NewTree(parse(t, readFile(t, f)))
		for _, c := range []struct{ a, b, want string }{
			{"0000:19:00.0", "0000:1a:00.0", "PIX"},
			{"0000:1a:00.0", "0000:1a:00.1", "PIX"},
			{"0000:19:00.0", "0000:16:01.0", "PHB"},
		} {
			if got := tree.Path(c.a, c.b).Label(); got != c.want {
				t.Errorf("%s: %s to %s: got %s, want %s", f, c.a, c.b, got, c.want)
			}
		}
	}
	tree := topology.NewTree(parse(t, readFile(t, "server-vvnn.txt")))
	if got := tree.Path("0000:19:00.0", "0000:97:00.0").Label(); got != "SYS" {
		t.Errorf("between nodes: got %s, want SYS", got)
	}
}

func TestDrawingOfASwitchTree(t *testing.T) {
	t.Parallel()
	h := parse(t, readFile(t, "corpus/stelline-asus-esc8000a-e12-lspci-tv.txt"))
	roots := map[string]int{}
	for i := range h.PCI {
		roots[h.PCI[i].Root]++
	}
	for root := range roots {
		if !strings.HasPrefix(root, "pci0000:") || !strings.HasSuffix(root, "0") {
			t.Errorf("root %q is made up", root)
		}
	}
	if len(roots) != 8 || len(h.PCI) != 198 {
		t.Errorf("%d roots, %d functions; want 8 and 198", len(roots), len(h.PCI))
	}
	var up []string
	for _, b := range topology.NewTree(h).Ancestors(device(t, h, "0000:65:00.0").Address) {
		up = append(up, b.Address.String())
	}
	if diff := cmp.Diff([]string{"0000:64:10.0", "0000:63:00.0", "0000:62:00.0", "0000:61:00.0", "0000:60:01.1"},
		up); diff != "" {
		t.Errorf("bridges above (-want +got):\n%s", diff)
	}
	if b := device(t, h, "0000:60:01.1").Bridge; b == nil || b.Secondary != 0x61 || b.Subordinate != 0x73 {
		t.Errorf("bridge %+v; want buses 61 to 73", b)
	}
	tree := topology.NewTree(h)
	for _, c := range []struct{ a, b, want string }{
		{"0000:65:00.0", "0000:66:00.0", "PIX"}, // one switch
		{"0000:65:00.0", "0000:6b:00.0", "PXB"}, // two switches below a third
		{"0000:01:00.0", "0000:01:00.1", "PIX"}, // one device
		{"0000:01:00.0", "0000:02:00.0", "PHB"},
	} {
		if got := tree.Path(c.a, c.b).Label(); got != c.want {
			t.Errorf("%s to %s: got %s, want %s", c.a, c.b, got, c.want)
		}
	}
}

func TestSniff(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures(t) {
		if s := readFile(t, f); !lspci.Sniff([]byte(s[:min(len(s), 1024)])) {
			t.Errorf("%s is not recognised", f)
		}
	}
	for _, s := range []string{
		"", "hello", "GPU0 X NV4", `<pci busid="0000:19:00.0"/>`, "00:11:22:33:44:55 dev eth0",
		"12:30:01.5 Started: ok\n", "Device: /dev/sda\n", "0000:00:00.0\n",
	} {
		if lspci.Sniff([]byte(s)) {
			t.Errorf("Sniff(%q) = true", s)
		}
	}
}
