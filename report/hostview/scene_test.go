package hostview

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func outline(h *topology.Host, findings []finding.Finding) string {
	var b strings.Builder
	line := func(depth int, parts ...string) {
		b.WriteString(strings.Repeat("  ", depth) + strings.TrimSpace(strings.Join(parts, " ")) + "\n")
	}
	ids := func(marks []mark) string {
		s := ""
		for _, m := range marks {
			s += "!" + m.ID
		}
		return s
	}
	var branches func(depth int, all []branch)
	branches = func(depth int, all []branch) {
		for _, r := range all {
			var parts []string
			if r.Bridge != nil {
				parts = append(parts, "["+r.Bridge.Text+"]", ids(r.Bridge.Marks))
			}
			parts = append(parts, r.Wire.Now)
			if r.Wire.Most != "" {
				parts = append(parts, "of", r.Wire.Most)
			}
			for _, c := range r.Cards {
				parts = append(parts, "("+c.Title+")", ids(c.Marks))
			}
			if r.Switch != nil {
				parts = append(parts, "["+r.Switch.Text+"]")
			}
			line(depth, strings.Join(strings.Fields(strings.Join(parts, " ")), " "))
			branches(depth+1, r.Fan)
		}
	}
	for _, g := range newScene(newView(NewDocument(h, findings))).Groups {
		line(0, g.Title)
		for _, r := range g.Rooms {
			line(1, r.Title, ids(r.Marks))
			for _, k := range r.Blocks {
				line(2, k.Title, k.Folded)
				branches(3, k.Branches)
			}
		}
	}
	return b.String()
}

func TestTheTreeIsDrawnAsItIs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		host     *topology.Host
		findings []finding.Finding
		want     string
	}{
		{"a node each for two GPUs and two NICs", epyc(), epycFindings(), `
Package 0
  NUMA node 0
    Root complex 0000:00 + 1 bridge, 2 functions
      [00:01.1] Gen3 x4 (nvme0n1 01:00.0)
      [00:01.2] Gen2 x1 of Gen2 x4 (NIC0 02:00.0)
      [00:03.1] Gen3 x16 of Gen4 x16 (GPU0 06:00.0) !RL010
  NUMA node 1
    Root complex 0000:20 + 1 bridge
      [20:03.1] Gen1 x16 of Gen4 x16 (GPU1 21:00.0) !RL003
  NUMA node 2
    Root complex 0000:40
      [40:03.1] Gen3 x8 (NIC1 41:00.0) (NIC2 41:00.1)
  NUMA node 3 !RL040
    Root complex 0000:60
      [60:03.1] Gen3 x8 (NIC3 61:00.0) (NIC4 61:00.1)
`},
		{"one node, whose devices do not say that they are on it", laptop(), nil, `
Package 0
  NUMA node 0
    Root complex 0000:00 + 2 functions
      [00:06.0] Gen4 x4 (nvme0n1 04:00.0)
      (GPU0 00:02.0)
      (NIC0 00:14.3)
`},
		{"nodes without CPUs, and devices on no known node", memoryOnly(), nil, `
Package 0
  NUMA node 0
  NUMA node 2
  NUMA node 4
Package 1
  NUMA node 1
Nodes without CPUs
  NUMA node 8

  NUMA node not known
    Root complex 0000:00
      (Screen 00:04.0)
      (NIC0 00:05.0)
      (GPU0 00:06.0)
`},
		{"128 virtual functions and twelve disks", armVFs(), nil, `
Package 36
  NUMA node 0
    Root complex 0000:00
      [00:01.0] Gen3 x4 of Gen4 x4 (nvme0n1 01:00.0)
      [00:02.0] Gen3 x4 of Gen4 x4 (nvme1n1 02:00.0)
      [00:03.0] Gen3 x4 of Gen4 x4 (nvme2n1 03:00.0)
      [00:04.0] Gen3 x4 of Gen4 x4 (nvme3n1 04:00.0)
      [00:05.0] Gen3 x4 of Gen4 x4 (nvme4n1 05:00.0)
      [00:06.0] Gen3 x4 of Gen4 x4 (nvme5n1 06:00.0)
      [00:07.0] Gen3 x4 of Gen4 x4 (nvme6n1 07:00.0)
      [00:08.0] Gen3 x4 of Gen4 x4 (nvme7n1 08:00.0)
      [00:09.0] Gen3 x4 of Gen4 x4 (nvme8n1 09:00.0)
      [00:0a.0] Gen3 x4 of Gen4 x4 (nvme9n1 0a:00.0)
      [00:0b.0] Gen3 x4 of Gen4 x4 (nvme10n1 0b:00.0)
      [00:0c.0] Gen3 x4 of Gen4 x4 (nvme11n1 0c:00.0)
Package 3180
  NUMA node 1
    Root complex 0000:10
      [10:01.0] Gen3 x16 of Gen4 x16 (NIC0 11:00.0)
`},
		{"nothing", nothing(), nil, "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), outline(tt.host, tt.findings)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestASwitchFansOutAndAChainIsOneLine(t *testing.T) {
	got := outline(dgx(), dgxFindings())
	for _, want := range []string{`
    Root complex 0000:14
      [14:01.0] Gen5 x16 [switch 15:00.0]
        [16:00.0] !RL023 Gen5 x16 (GPU0 17:00.0) !RL023
        [16:01.0] Gen5 x16 (NIC2 18:00.0)
        [16:02.0] Gen5 x16 (GPU1 19:00.0)
        [16:03.0] Gen5 x16 (NIC3 1a:00.0)
        [16:04.0] Gen4 x4 (nvme0n1 1b:00.0)
`, `
      [00:1c.0] Gen5 x16 (NIC0 03:00.0) !RL002!RL003!RL084 (NIC1 03:00.1) !RL002
      [00:1c.4 +1] (Screen 05:00.0)
`} {
		if !strings.Contains(got, want) {
			t.Errorf("no%sin\n%s", want, got)
		}
	}
}

func TestPackagesAreToldApart(t *testing.T) {
	two := &topology.Host{
		Packages: []topology.Package{{ID: 0, CPUs: set("0-3"), Model: "A"}, {ID: 1, CPUs: set("4-7"), Model: "B"},
			{ID: 2, CPUs: set("8"), Model: "B"}},
		NUMANodes: []topology.NUMANode{
			{ID: 0, CPUs: set("0-3")}, {ID: 1, CPUs: set("4-8")}, {ID: 2, CPUs: set("100")},
		},
	}
	two.Complete()
	want := "Package 0 · A\n  NUMA node 0\nPackages 1, 2\n  NUMA node 1\nPackage not known\n  NUMA node 2\n"
	if d := cmp.Diff(want, outline(two, nil)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// The packages do not know their CPUs.
	cores := &topology.Host{
		Packages:  []topology.Package{{ID: 0}, {ID: 1}, {ID: 2}},
		NUMANodes: []topology.NUMANode{{ID: 0, CPUs: set("0-2")}},
		Cores: []topology.Core{{CPUs: set("0"), Package: new(0)}, {CPUs: set("1"), Package: new(1)},
			{CPUs: set("2"), Package: new(2)}},
	}
	cores.Complete()
	if got := outline(cores, nil); got != "All 3 packages\n  NUMA node 0\n" {
		t.Error(got)
	}
}

func TestAMachineWithoutNUMANodesIsOneRoom(t *testing.T) {
	h := &topology.Host{Packages: []topology.Package{{ID: 0}}, Cores: []topology.Core{{CPUs: set("0-1")},
		{CPUs: set("2-3")}}}
	function(h, "0000:00:05.0", "", "pci0000:00", -1, 0x020000, topology.VendorRedHat, 0x1041, "", nil)
	h.Complete()
	if got, want := outline(h, nil), "Package 0\n  Machine\n    Root complex 0000:00\n      (NIC0 00:05.0)\n"; got !=
		want {
		t.Errorf("got\n%s", got)
	}
}

func TestNodesThatOnlyDevicesNameAreRoomsLikeOthers(t *testing.T) {
	h := &topology.Host{}
	for i, node := range []int{0, 1, -1} {
		function(h, fmt.Sprintf("0000:0%d:00.0", i+1), "", fmt.Sprintf("pci0000:0%d", i+1), node, 0x020000,
			topology.VendorIntel, 1, "", nil)
	}
	function(h, "0000:09:00.0", "", "pci0000:09", -1, 0x080000, topology.VendorIntel, 1, "", nil)
	h.Complete()
	want := `
  NUMA node 0
    Root complex 0000:01
      (NIC0 01:00.0)
  NUMA node 1
    Root complex 0000:02
      (NIC1 02:00.0)

  NUMA node not known
    Root complex 0000:03
      (NIC2 03:00.0)
    + 1 root complex with 1 function
`
	if d := cmp.Diff(want, outline(h, nil)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A trunk means a common root.
func TestWhatHasNoKnownRootHangsOnNoTrunk(t *testing.T) {
	h := &topology.Host{}
	orphan := topology.PCIAddr{Bus: 0x77}
	for i := range 3 {
		function(h, fmt.Sprintf("0000:0%d:00.0", i+1), "", "", -1, 0x020000, topology.VendorIntel, 1, "",
			link(4, 8, 4, 8)).Parent = &orphan
	}
	port(h, "0000:10:00.0", orphan.String(), "", 0, 0x11, 0x11, nil)
	h.PCI[3].NUMANode = nil
	function(h, "0000:11:00.0", "0000:10:00.0", "", -1, 0x030200, topology.VendorNVIDIA, 1, "", nil)
	h.Complete()
	got := outline(h, nil)
	want := `
  Machine
    Root complex not known
      [10:00.0] (GPU0 11:00.0)
    PCI tree not known
      Gen4 x8 (NIC0 01:00.0)
      Gen4 x8 (NIC1 02:00.0)
      Gen4 x8 (NIC2 03:00.0)
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	v := newView(NewDocument(h, nil))
	for _, l := range wideSheet.layout(v, newScene(v)).Lines {
		if l.Class == "trunk" && len(l.Points) > 1 && l.Points[1][1]-l.Points[0][1] > 60 {
			t.Errorf("a trunk %+v", l)
		}
	}
}

func TestADeviceOnANodeThatIsNotListedHasARoom(t *testing.T) {
	h := epyc()
	h.PCI[0].NUMANode = new(7)
	function(h, "0000:99:00.0", "", "pci0000:99", 7, 0x020000, topology.VendorIntel, 1, "", nil)
	h.Complete()
	if got := outline(h, nil); !strings.Contains(got,
		"\n  NUMA node 7\n    Root complex 0000:99\n      (NIC5 99:00.0)\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestWhatIsWrongIsDrawnThoughItsKindIsNot(t *testing.T) {
	h := epyc()
	got := outline(h, []finding.Finding{{ID: "RL030", Severity: finding.Warning, Subject: "0000:07:00.3"}})
	if !strings.Contains(got, "[00:07.1] Gen3 x16 (07:00.3) !RL030") {
		t.Errorf("the USB controller is not drawn:\n%s", got)
	}
	if got := outline(h, []finding.Finding{{ID: "RL030", Severity: finding.Info,
		Subject: "0000:07:00.3"}}); strings.Contains(
		got, "07:00.3") {
		t.Errorf("a note is reason enough:\n%s", got)
	}
	// Audio belongs to the GPU.
	if got := outline(h, []finding.Finding{{ID: "RL030", Severity: finding.Error,
		Subject: "0000:06:00.1"}}); !strings.Contains(got, "(GPU0 06:00.0) !RL030") ||
		strings.Contains(got, "(06:00.1)") {
		t.Errorf("got\n%s", got)
	}
}

func TestTenantsAndIsolatedCoresAreSeen(t *testing.T) {
	v := newView(NewDocument(epyc(), nil))
	r := newScene(v).Groups[0].Rooms[0]
	if !strings.Contains(strings.Join(r.Lines, "|"), "VMs vm00") {
		t.Errorf("got %q", r.Lines)
	}
	var isolated int
	for _, c := range r.Caches {
		if !c.Known || len(c.Cells) != 4 {
			t.Errorf("%+v", c)
		}
		for _, cell := range c.Cells {
			if cell.Threads != 2 {
				t.Errorf("%+v", cell)
			}
			if cell.Isolated {
				isolated++
			}
		}
	}
	if isolated != 6 { // 2-7 of 0-7
		t.Errorf("%d cores are isolated", isolated)
	}
}

func TestNVLinksAreInSets(t *testing.T) {
	host := func(n int, links map[[2]int]int) *topology.Host {
		h := &topology.Host{}
		for i := range n {
			h.GPUs = append(h.GPUs, topology.GPU{Name: "GPU" + string(rune('0'+i))})
		}
		for p, l := range links {
			h.Reported = append(h.Reported, topology.Path{A: h.GPUs[p[0]].Name, B: h.GPUs[p[1]].Name,
				Class: topology.PathNVLink, Links: l})
		}
		return h
	}
	for _, tt := range []struct {
		name string
		host *topology.Host
		want []string // members, classes, all equal
	}{
		{"no links", host(3, nil), nil},
		{"a bridge between two", host(3, map[[2]int]int{{0, 2}: 4}), []string{"GPU0 GPU2: NV4x1 uniform"}},
		{"two bridges", host(4, map[[2]int]int{{0, 1}: 4, {2, 3}: 2}), []string{"GPU0 GPU1: NV4x1 uniform",
			"GPU2 GPU3: NV2x1 uniform"}},
		{"all to all", host(3, map[[2]int]int{{0, 1}: 18, {0, 2}: 18, {1, 2}: 18}),
			[]string{"GPU0 GPU1 GPU2: NV18x3 uniform"}},
		{"a ring", host(4, map[[2]int]int{{0, 1}: 1, {1, 2}: 1, {2, 3}: 1, {0, 3}: 1}),
			[]string{"GPU0 GPU1 GPU2 GPU3: NV1x4"}},
		{"two widths", host(3, map[[2]int]int{{0, 1}: 1, {0, 2}: 2, {1, 2}: 1}),
			[]string{"GPU0 GPU1 GPU2: NV2x1 NV1x2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, s := range newView(NewDocument(tt.host, nil)).nvlinkSets() {
				line := strings.Join(s.GPUs, " ") + ":"
				for _, c := range s.Classes {
					line += " " + c.Label + "x" + string(rune('0'+len(c.Pairs)))
				}
				if s.Uniform {
					line += " uniform"
				}
				got = append(got, line)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestLinksOfAMDAreNotCalledNVLink(t *testing.T) {
	h := &topology.Host{GPUs: []topology.GPU{{Name: "GPU0", ComputeArch: "gfx90a"},
		{Name: "GPU1", ComputeArch: "gfx90a"}},
		Reported: []topology.Path{{A: "GPU0", B: "GPU1", Class: topology.PathNVLink, Links: 4}}}
	out := string(written(t, func(b *bytes.Buffer) error { return NewDocument(h, nil).WriteSVG(b) }))
	if strings.Contains(out, "NVLink") || !strings.Contains(out, "XGMI: NV4 between every two") {
		t.Error("the picture calls XGMI NVLink")
	}
}

// The rate is beside the wire. One below its best is orange only if a finding warns.
func TestAWireShowsItsRate(t *testing.T) {
	last := 0
	for _, gbps := range []float64{0.25, 2, 4, 8, 16, 64, 121} {
		w := wireWidth(gbps)
		if w <= last {
			t.Errorf("%g GB/s is %d wide, a lower rate is %d", gbps, w, last)
		}
		last = w
	}
	svg := string(written(t, func(b *bytes.Buffer) error { return NewDocument(epyc(), epycFindings()).WriteSVG(b) }))
	for _, want := range []string{`class="wire" stroke-width="2.8"`, ">7.88 GB/s<",
		`class="wire slow" stroke-width="4"`,
		`class="wire slow warned" stroke-width="2"`, `<text class="late" `,
		">below what the device can do, with a warning<",
		`.hv .slow{stroke-dasharray:7 3;`} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s", want)
		}
	}
	calm := string(written(t, func(b *bytes.Buffer) error { return NewDocument(epyc(), nil).WriteSVG(b) }))
	if strings.Contains(calm, `slow warned"`) || strings.Contains(calm, `"late"`) {
		t.Error("a link that nothing warns of is orange")
	}
}

// It uses no PCI Express for data.
func TestAGPUOnC2CHasTheRateOfC2C(t *testing.T) {
	h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}}}
	for i, rate := range []*float64{new(450.0), nil} {
		at := fmt.Sprintf("000%d:01:00.0", i)
		function(h, at, "", "pci0000:00", 0, 0x030200, topology.VendorNVIDIA, 0x2342, "", link(1, 16, 1, 16))
		h.GPUs = append(h.GPUs, topology.GPU{Address: new(addr(at)), Model: "NVIDIA GH200 480GB", C2CGBps: rate})
	}
	h.Complete()
	var got []wire
	for _, b := range newScene(newView(NewDocument(h, nil))).Groups[0].Rooms[0].Blocks[0].Branches {
		got = append(got, b.Wire)
	}
	want := []wire{{GBps: 450, Now: "C2C", Full: "NVLink C2C, 450 GB/s, beside PCI Express Gen1 x16, 4 GB/s"},
		{Now: "C2C", Full: "NVLink C2C, beside PCI Express Gen1 x16, 4 GB/s"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDevicesThatAreAlikeStandOnOneCard(t *testing.T) {
	nics := func(change func(i int, n *topology.NIC)) *topology.Host {
		h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}}}
		for i := range 4 {
			up, at := fmt.Sprintf("0000:00:0%d.0", i+1), fmt.Sprintf("0000:0%d:00.0", i+1)
			port(h, up, "", "pci0000:00", 0, uint8(i+1), uint8(i+1), nil)
			function(h, at, up, "pci0000:00", 0, 0x020000, topology.VendorMellanox, 0x101e, "ConnectX-6 Dx",
				link(4, 16, 4, 16))
			h.NICs = append(h.NICs, topology.NIC{Address: new(addr(at)),
				Ports: []topology.Netdev{{Name: fmt.Sprintf("eth%d", i), SpeedMbps: new(int64(200000))}}})
			change(i, &h.NICs[i])
		}
		h.Complete()
		return h
	}
	for _, tt := range []struct {
		name     string
		host     *topology.Host
		findings []finding.Finding
		want     string
	}{
		{"four", nics(func(int, *topology.NIC) {}), nil,
			"[4 ports] nic: NIC0-3 x4 | 01:00.0 to 04:00.0 | eth0-3 | 200 Gb/s | ConnectX-6 Dx\n"},
		{"three and one that is slower", nics(func(i int, n *topology.NIC) {
			if i == 1 {
				n.Ports[0].SpeedMbps = new(int64(1000))
			}
		}), nil, "[3 ports] nic: NIC0,2-3 x3 | 01:00.0 to 04:00.0 | eth0,2-3 | 200 Gb/s | ConnectX-6 Dx\n" +
			"[00:02.0] nic: NIC1 02:00.0 | eth1 | 1 Gb/s | ConnectX-6 Dx\n"},
		{"two and two", nics(func(i int, n *topology.NIC) { n.Ports[0].SpeedMbps = new(int64(1000 * (1 + i%2))) }), nil,
			"[00:01.0] nic: NIC0 01:00.0 | eth0 | 1 Gb/s | ConnectX-6 Dx\n" +
				"[00:02.0] nic: NIC1 02:00.0 | eth1 | 2 Gb/s | ConnectX-6 Dx\n" +
				"[00:03.0] nic: NIC2 03:00.0 | eth2 | 1 Gb/s | ConnectX-6 Dx\n" +
				"[00:04.0] nic: NIC3 04:00.0 | eth3 | 2 Gb/s | ConnectX-6 Dx\n"},
		{"a finding about one of them", nics(func(int, *topology.NIC) {}),
			[]finding.Finding{{ID: "RL091", Severity: finding.Info, Subject: "0000:04:00.0"}},
			"[3 ports] nic: NIC0-2 x3 | 01:00.0 to 03:00.0 | eth0-2 | 200 Gb/s | ConnectX-6 Dx\n" +
				"[00:04.0] nic: NIC3 04:00.0 | eth3 | 200 Gb/s | ConnectX-6 Dx !RL091\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(newView(NewDocument(tt.host, tt.findings)))
			s.collapse()
			got := ""
			walk(s.Groups[0].Rooms[0].Blocks[0].Branches, func(b branch) {
				got += "[" + b.Bridge.Text + "] " + cardText(b.Cards[0]) + "\n"
			})
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	// Readers look for GPUs first.
	s := newScene(newView(NewDocument(dgx(), nil)))
	s.collapse()
	if !wideSheet.layout(newView(NewDocument(dgx(), nil)), s).classes()["band gpu"] ||
		strings.Contains(fmt.Sprintf("%+v", s.Groups), "GPU0-") {
		t.Error("GPUs are on one card")
	}
}

// Programs without variables use the light value before each.
func TestColoursFollowTheReaderAndFallBack(t *testing.T) {
	svg := string(written(t, func(b *bytes.Buffer) error { return NewDocument(epyc(), nil).WriteSVG(b) }))
	for _, want := range []string{"prefers-color-scheme:dark", ":root{color-scheme:light dark;--bg:#ffffff;",
		"fill:#00795a;fill:var(--gpu);", `role="img"`, "<title id=", "<desc id="} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s", want)
		}
	}
	light, dark := map[string]string{}, map[string]string{}
	for i, part := range strings.SplitN(pictureCSS, "@media", 2) {
		for _, m := range regexp.MustCompile(`--([a-z0-9-]+):(#[0-9a-f]{6});`).FindAllStringSubmatch(part, -1) {
			[]map[string]string{light, dark}[i][m[1]] = m[2]
		}
	}
	if len(light) < 40 || !slices.Equal(slices.Sorted(maps.Keys(light)), slices.Sorted(maps.Keys(dark))) {
		t.Errorf("light colours %v, dark ones %v", light, dark)
	}
	rules := regexp.MustCompile(`(fill|stroke):([^;]+);(fill|stroke):var\(--([a-z0-9-]+)\);`)
	fallbacks := rules.FindAllStringSubmatch(svg, -1)
	if len(fallbacks) != strings.Count(svg, "var(--") {
		t.Errorf("%d colours have a fallback, of %d", len(fallbacks), strings.Count(svg, "var(--"))
	}
	for _, m := range fallbacks {
		if m[1] != m[3] || m[2] != light[m[4]] {
			t.Errorf("%s falls back to %s, want %s", m[0], m[2], light[m[4]])
		}
	}
}

func TestTheSignsOfFindingsDifferInShape(t *testing.T) {
	shapes := map[finding.Severity]string{}
	for _, s := range []finding.Severity{finding.Error, finding.Warning, finding.Info} {
		shapes[s] = svgMark(markShape{Severity: s})
	}
	if !strings.Contains(shapes[finding.Error], "<rect") || !strings.Contains(shapes[finding.Info], "<circle") ||
		strings.Contains(shapes[finding.Warning], "<rect") {
		t.Errorf("%v", shapes)
	}
}

func TestXMLHasNoLetterThatXMLHasNot(t *testing.T) {
	for in, want := range map[string]string{"a<b&c>\"'": "a&lt;b&amp;c&gt;&#34;&#39;",
		"\x00\x1b\ufffe\x85": "\uFFFD\uFFFD\uFFFD\uFFFD", "a\xffb": "a\uFFFDb", "two\nlines": "two\nlines"} {
		if got := escaped(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
