package hostview

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func tableOf(t testing.TB, d *Document, o TableOptions) string {
	return string(written(t, func(b *bytes.Buffer) error { return d.WriteTable(b, o) }))
}

func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	for _, c := range hostCases() {
		for _, width := range []int{0, 60, 80, 100, 200} {
			want := max(width, 60)
			if width == 0 {
				want = 80
			}
			for line := range strings.SplitSeq(tableOf(t, NewDocument(c.host, c.findings), TableOptions{Width: width}),
				"\n") {
				if w := text.StringWidth(line); w > want {
					t.Errorf("%s at %d: %d columns: %s", c.name, width, w, line)
				}
			}
		}
	}
}

func TestColoursAreThereOnlyWhereTheyAreWanted(t *testing.T) {
	d := NewDocument(epyc(), epycFindings())
	plain, colored := tableOf(t, d, TableOptions{}), tableOf(t, d, TableOptions{Color: true})
	if strings.Contains(plain, "\x1b") {
		t.Error("colours without being asked")
	}
	if !strings.Contains(colored, "\x1b[1;31m") {
		t.Error("no colours")
	}
	if got := text.StripEscape(colored); got != plain {
		t.Error("colours change the words")
	}
}

func TestASeverityCanBeToldWithoutColours(t *testing.T) {
	out := tableOf(t, NewDocument(epyc(), epycFindings()), TableOptions{})
	for _, want := range []string{"X RL040 NUMA node 3:", "! RL003 0000:21:00.0:", "i RL010 0000:06:00.0:",
		"Findings: 1 error, 1 warning, 1 note", "rackless explain RL040"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Index(out, "RL040") > strings.Index(out, "RL003") {
		t.Error("the worst does not come first")
	}
}

func TestLongListsAreShortenedAndSaySo(t *testing.T) {
	h := grid64()
	for i := range 30 {
		h.Unread = append(h.Unread, topology.Unread{Path: fmt.Sprintf("/sys/%02d", i), Why: "permission denied"})
	}
	var findings []finding.Finding
	for i := range 40 {
		findings = append(findings, finding.Finding{ID: "RL007", Severity: finding.Warning,
			Subject: fmt.Sprintf("node %d", i),
			Title:   "x"})
	}
	out := tableOf(t, NewDocument(h, findings), TableOptions{})
	for _, want := range []string{"and 48 more; -o json has all", "and 22 more; -o json has all", "and 35 more: x",
		"Findings: 40 warnings"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if n := strings.Count(out, "\n"); n > 60 {
		t.Errorf("%d lines", n)
	}
}

func TestFindingsOfOneKindAreNotListedWithoutEnd(t *testing.T) {
	var findings []finding.Finding
	for i := range 20 {
		findings = append(findings, finding.Finding{ID: "RL011", Severity: finding.Warning,
			Subject: fmt.Sprintf("dev%d", i),
			Title:   "too far", Fix: fmt.Sprintf("move %d", i)})
	}
	out := tableOf(t, NewDocument(nothing(), findings), TableOptions{})
	for _, want := range []string{"! RL011 dev2: too far\n  fix: move 2\n! RL011 dev3, dev4, dev5, dev6, dev7 and 12 " +
		"more: the same\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestAColumnThatSaysNothingIsLeftOutButNotTheNode(t *testing.T) {
	out := tableOf(t, NewDocument(memoryOnly(), nil), TableOptions{})
	for _, head := range []string{"group", "BAR", "speed", "hugepages", "L3"} {
		if strings.Contains(out, head) {
			t.Errorf("a column %q of unknowns:\n%s", head, out)
		}
	}
	gpus := out[strings.Index(out, "GPUs"):]
	if !strings.Contains(strings.SplitN(gpus, "\n", 3)[1], "node") {
		t.Errorf("that the node of the GPU is not known is not said:\n%s", gpus)
	}
}

// A missing digit would be another link.
func TestLinksAndDistancesAreNeverCut(t *testing.T) {
	t.Parallel()
	h := epyc()
	for i := range h.NICs {
		h.NICs[i].Netdevs = []string{"enp65s0f0np0", "enp65s0f1np1", "enp65s0f2np2"}
	}
	for width := 60; width < 140; width += 5 {
		for line := range strings.SplitSeq(tableOf(t, NewDocument(h, nil), TableOptions{Width: width}), "\n") {
			for _, bad := range []string{"Gen3 …", "Gen3 x…", "x1…", "x…", "10 1…", "16 1…", "16…"} {
				if strings.Contains(line, bad) {
					t.Errorf("at %d: %s", width, line)
				}
			}
		}
	}
}

func TestTheMatrixIsPrintedAsFarAsThereIsRoom(t *testing.T) {
	d := NewDocument(dgx(), nil)
	if out := tableOf(t, d, TableOptions{Width: 160}); !strings.Contains(out, "NUMA Affinity") {
		t.Errorf("not in full where there is room:\n%s", out)
	}
	if out := tableOf(t, d, TableOptions{Width: 80}); strings.Contains(out, "NUMA Affinity") ||
		!strings.Contains(out, "NIC2  PIX   PIX   NODE  NODE  SYS   SYS   SYS   SYS   mlx5_0") {
		t.Errorf("not the part between GPUs and NICs:\n%s", out)
	}
	h := &topology.Host{}
	for i := range 16 {
		h.GPUs = append(h.GPUs, topology.GPU{Name: fmt.Sprintf("GPU%d", i)})
	}
	if out := tableOf(t, NewDocument(h, nil), TableOptions{}); !strings.Contains(out, "-o matrix shows them") {
		t.Errorf("no word on the matrix:\n%s", out)
	}
}

func TestWhereTheFactsAreFromIsSaid(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    topology.Provenance
		want string
	}{
		{"live", topology.Provenance{Kind: topology.SourceLive, ThisSystem: true}, ""},
		{"a snapshot", topology.Provenance{Kind: topology.SourceTree, Name: "a.tar"}, "From a snapshot, a.tar."},
		{"another tool's file", topology.Provenance{Kind: topology.SourceHwloc, Name: "x.xml", Tool: "hwloc 2.9"},
			"From hwloc's XML, x.xml, written by hwloc 2.9."},
		{"a description", topology.Provenance{Kind: topology.SourceSynthetic}, "no such machine was read"},
		{"a kind of later", topology.Provenance{Kind: "telepathy"}, "From telepathy."},
		{"what it tells", topology.Provenance{Kind: topology.SourceNCCL, Filled: []string{"gpus", "pci_links"}},
			"Contains: gpus, pci links."},
		{"emulated", topology.Provenance{Emulated: true}, "Its devices are emulated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := tableOf(t, NewDocument(&topology.Host{Provenance: tt.p}, nil), TableOptions{Width: 120})
			if !strings.Contains(out, tt.want) {
				t.Errorf("no %q in\n%s", tt.want, out)
			}
			if tt.want == "" && strings.Contains(out, "From") {
				t.Errorf("a source of the machine itself:\n%s", out)
			}
		})
	}
}

func TestTheMachineIsNamed(t *testing.T) {
	for _, tt := range []struct {
		s    topology.System
		want string
	}{
		{topology.System{}, "A machine of unknown make"},
		{topology.System{Vendor: "Dell Inc.", Product: "PowerEdge R740"}, "Dell Inc. PowerEdge R740"},
		{topology.System{Vendor: "To Be Filled By O.E.M.", Product: "Default string"}, "A machine of unknown make"},
		{topology.System{Vendor: "QEMU", Product: "pc", Hypervisor: "kvm"}, "QEMU pc (virtual machine under kvm)"},
		{topology.System{Vendor: "HP", Product: "HP EliteBook"}, "HP EliteBook"},
		{topology.System{InVM: new(true)}, "A machine of unknown make (virtual machine)"},
	} {
		if got := newView(NewDocument(&topology.Host{System: tt.s}, nil)).heading(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestFactsAboutTheKernelAreInWords(t *testing.T) {
	h := &topology.Host{
		Memory: topology.Memory{SwapKnown: true, NUMABalancing: "2", THP: "always",
			Hugepages: []topology.HugepagePool{{SizeBytes: 2 << 20}}},
		IOMMU: topology.IOMMU{Enabled: new(false)},
		CPUs:  topology.CPUStates{Isolated: new(set("4-7")), Offline: new(topology.CPUSet{})},
	}
	got := strings.Join(newView(NewDocument(h, nil)).facts(), "|")
	if want := "IOMMU off|isolated CPUs 4-7|no hugepages, no swap, NUMA balancing tiering, THP always"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	h.Memory.NUMABalancing = "9"
	h.Memory.Swap = []topology.Swap{{SizeBytes: 1 << 30}, {SizeBytes: 1 << 30}}
	if got := strings.Join(newView(NewDocument(h, nil)).facts(), "|"); !strings.Contains(got,
		"swap 2 GiB, NUMA balancing 9") {
		t.Error(got)
	}
}

func TestTablesOfWhatALiveHostHas(t *testing.T) {
	h := epyc()
	h.Bonds = []topology.Bond{{Name: "bond0", Mode: "802.3ad", HashPolicy: "layer2", Members: []string{"a", "b"},
		SpeedMbps: new(int64(50000)), MTU: new(1500)}}
	out := tableOf(t, NewDocument(h, nil), TableOptions{Width: 100})
	for _, want := range []string{
		"bond0  802.3ad  layer2  a,b", "50 Gb/s",
		"nvme0n1  0000:01:00.0     0  1.7 TiB  /,/boot/efi",
		"vm00     running       2  2,34     32 GiB  0,2    0000:06:00.0,0000:41:00.0",
		"isolcpus   2-29,34-61  2-29,34-61",
		"Default route (ipv4): eno1 on 0000:02:00.0 to 192.0.2.1",
		"mlx5_1     down  1500",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestAModelIsNamedAsReadersKnowIt(t *testing.T) {
	d := &topology.PCIDevice{Vendor: new(topology.VendorNVIDIA), Device: new(topology.ID16(0x2204))}
	for _, tt := range []struct {
		model string
		d     *topology.PCIDevice
		want  string
	}{
		{"GA102 [GeForce RTX 3090]", d, "GeForce RTX 3090"}, {"ES1000", d, "ES1000"}, {"[odd", d, "[odd"},
		{"", d, "10de:2204"},
		{"", &topology.PCIDevice{Vendor: new(topology.VendorIntel)}, "8086"}, {"", nil, "?"}, {"x []", nil, "x []"},
	} {
		if got := modelText(tt.model, tt.d); got != tt.want {
			t.Errorf("%q is %q, want %q", tt.model, got, tt.want)
		}
	}
}

func TestEvidenceOfCountersIsShownForEachSubject(t *testing.T) {
	t.Parallel()
	var list []finding.Finding
	for _, id := range []string{"RL095", "RL001"} {
		for n := range 6 {
			list = append(list, finding.Finding{ID: id, Severity: finding.Warning, Title: id,
				Subject: fmt.Sprintf("mlx5_%d", n), Evidence: fmt.Sprintf("%s of %d", id, n)})
		}
	}
	var b strings.Builder
	if err := WriteFindings(&b, "host", list, TableOptions{}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"RL095 of 0": true, "RL095 of 3": true, "RL095 of 4": false,
		"RL001 of 0": true, "RL001 of 1": false} {
		if strings.Contains(b.String(), text) != want {
			t.Errorf("%q: want %v in\n%s", text, want, b.String())
		}
	}
}
