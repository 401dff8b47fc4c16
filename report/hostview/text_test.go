package hostview

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func TestSizesAreInTheLargestUnitBelow(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 512: "512 B", 1023: "1023 B", 1024: "1 KiB", 2 << 20: "2 MiB", 67108864000: "62.5 GiB",
		1 << 30:    "1 GiB",
		1000 << 30: "1000 GiB", 1920383410176: "1.7 TiB", 1<<64 - 1: "16 EiB",
	} {
		if got := words.Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestNetworkSpeeds(t *testing.T) {
	for n, want := range map[int64]string{10: "10 Mb/s", 1000: "1 Gb/s", 2500: "2.5 Gb/s", 25000: "25 Gb/s",
		400000: "400 Gb/s"} {
		if got := speedText(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestALinkSaysWhatItIsAndWhatItCouldBe(t *testing.T) {
	g := func(v float64) *float64 { return &v }
	for _, tt := range []struct {
		name            string
		link            *topology.Link
		cell, now, most string
	}{
		{"no link", nil, "?", "", ""},
		{"nothing known of it", &topology.Link{}, "?", "", ""},
		{"at its most", link(4, 16, 4, 16), "Gen4 x16", "Gen4 x16", ""},
		{"slower", link(1, 16, 4, 16), "Gen1/4 x16", "Gen1 x16", "Gen4 x16"},
		{"narrower", link(4, 8, 4, 16), "Gen4 x8/16", "Gen4 x8", "Gen4 x16"},
		{"both", link(2, 4, 5, 16), "Gen2/5 x4/16", "Gen2 x4", "Gen5 x16"},
		{"only what it could do", &topology.Link{MaxSpeedGTs: g(16), MaxWidth: new(8)}, "max Gen4 x8", "", "Gen4 x8"},
		{"how fast it could be", &topology.Link{MaxSpeedGTs: g(16), Width: new(8)}, "Gen?/4 x8", "x8", ""},
		{"only what it does", &topology.Link{SpeedGTs: g(16), Width: new(8)}, "Gen4 x8", "Gen4 x8", ""},
		{"a width alone", &topology.Link{Width: new(8)}, "x8", "x8", ""},
		{"a speed that is no generation's", &topology.Link{SpeedGTs: g(3), Width: new(1)}, "3 GT/s x1", "3 GT/s x1",
			""},
		{"faster than it says it can", link(4, 16, 3, 16), "Gen4 x16", "Gen4 x16", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := linkText(tt.link); got != tt.cell {
				t.Errorf("the cell is %q, want %q", got, tt.cell)
			}
			if now, most := linkTexts(tt.link); now != tt.now || most != tt.most {
				t.Errorf("got %q and %q, want %q and %q", now, most, tt.now, tt.most)
			}
		})
	}
}

func TestLongListsOfCPUsAreShortenedWithoutBecomingWrong(t *testing.T) {
	for _, tt := range []struct {
		cpus    string
		letters int
		want    string
	}{
		{"0-7,32-39", 20, "0-7,32-39"},
		{"0,2,4,6,8,10,12,14", 10, "0-14:2"},
		{"1,5,9,13,17", 8, "1-17:4"},
		{"0-3,8,10-12,20,30-35,40", 14, "0-3,8,… (16)"},
		{"0-3,8,10-12,20,30-35,40", 4, "16 CPUs"},
		{"5", 1, "5"},
		{"", 4, ""},
	} {
		got := cpusText(set(tt.cpus), tt.letters)
		if got != tt.want {
			t.Errorf("%s in %d letters is %q, want %q", tt.cpus, tt.letters, got, tt.want)
		}
	}
	for _, tt := range []struct {
		set  *topology.CPUSet
		want string
	}{{nil, "?"}, {&topology.CPUSet{}, "-"}, {new(set("3")), "3"}} {
		if got := setText(tt.set, 10); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// The kernel accepts a strided list.
func TestAShortenedListReadsBackAsTheSameCPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus := topology.CPUs(rapid.SliceOfDistinct(rapid.IntRange(0, 300), rapid.ID[int]).Draw(t, "cpus")...)
		got := cpusText(cpus, rapid.IntRange(8, 60).Draw(t, "letters"))
		if strings.Contains(got, "…") || strings.HasSuffix(got, " CPUs") {
			return
		}
		back, err := topology.ParseCPUSet(got)
		if err != nil || !back.Equal(cpus) {
			t.Fatalf("%s became %q: %v", cpus, got, err)
		}
	})
}

func TestWhatIsNotKnownIsNotZero(t *testing.T) {
	for name, got := range map[string]string{
		"size": optionalSize(nil), "number": intText(nil), "distances": distancesText(nil), "pools": poolsText(nil),
		"text": orUnknown(""),
	} {
		if got != "?" {
			t.Errorf("an unknown %s is %q", name, got)
		}
	}
	if got := poolsText([]topology.HugepagePool{{SizeBytes: 2 << 20}}); got != "-" {
		t.Errorf("no hugepages are %q", got)
	}
	if got := distancesText([]int{10, 21}); got != "10 21" {
		t.Errorf("got %q", got)
	}
	if got := distancesText([]int{10, 11, 12, 13, 14, 15, 16, 17, 255}); got != "10 to 255" {
		t.Errorf("got %q", got)
	}
}

// Lists of which a part is known are no totals.
func TestCountsOfAPartSayThatThereMayBeMore(t *testing.T) {
	two := []topology.NUMANode{{ID: 0, CPUs: topology.CPUs(0, 2)}, {ID: 1, CPUs: topology.CPUs(1)}}
	cores := []topology.Core{{CPUs: topology.CPUs(0, 2), NUMANode: new(0)}}
	cut := topology.CPUStates{Cut: true}
	for name, test := range map[string]struct {
		host *topology.Host
		want string
	}{
		"a list of CPUs that is cut off": {&topology.Host{NUMANodes: two, Cores: cores, CPUs: cut},
			"1 core, 3 CPUs or more, 2 NUMA nodes or more\n"},
		"cores of it": {&topology.Host{NUMANodes: two, Cores: cores, CPUs: cut}, "   0  0,2       ?\n"},
		"a list that another source has whole": {&topology.Host{NUMANodes: two, CPUs: topology.CPUStates{Cut: true,
			Online: topology.CPUs(0, 1, 2)}}, "3 CPUs, 2 NUMA nodes\n"},
		"nodes that are counted and not listed": {&topology.Host{NUMANodes: two, NodeCount: new(9)},
			"3 CPUs or more, 9 NUMA nodes, of which 2 are told\n"},
	} {
		test.host.Provenance.Kind = topology.SourceTexts
		if out := tableOf(t, NewDocument(test.host, nil), TableOptions{}); !strings.Contains(out, test.want) {
			t.Errorf("%s: no %q in\n%s", name, test.want, out)
		}
	}
}

func TestTextFromOutsideCannotControlATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                   "plain",
		"two\nlines\tand":         "two lines and",
		"\x1b[2J":                 `\x1b[2J`,
		"\u202eevil":              `\u202eevil`,
		"bad\xff":                 "bad\uFFFD",
		"héllo 世界":                "héllo 世界",
		"\x00":                    `\x00`,
		"\u200bzero width\u00ad.": `\u200bzero width\u00ad.`,
	} {
		if got := words.Printable(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := words.Visible("a\r\nb\rc"); got != "a\nb"+`\rc` {
		t.Errorf("got %q", got)
	}
}

func TestLettersThatLeaveTheirPlaceAreNotDrawn(t *testing.T) {
	for in, want := range map[string]string{"a\u0301\u0302\u0303b": "ab", "\ufdfd": "\uFFFD", "é": "é",
		"GPU 0": "GPU 0"} {
		if got := drawable(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestTextIsCutAtALetter(t *testing.T) {
	for _, tt := range []struct {
		in      string
		letters int
		want    string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöüß", 3, "äö…"}, {"ab cd", 4, "ab…"}, {"abc", 0, "…"}} {
		if got := show.Cut(tt.in, tt.letters); got != tt.want {
			t.Errorf("%q in %d letters is %q, want %q", tt.in, tt.letters, got, tt.want)
		}
	}
}

func TestFittedTextIsNoWiderThanItsRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := font{Size: rapid.IntRange(8, 20).Draw(t, "size"), Bold: rapid.Bool().Draw(t, "bold")}
		s := rapid.String().Draw(t, "text")
		room := rapid.IntRange(30, 300).Draw(t, "room")
		got := f.Fit(s, room)
		if f.Width(got) > room+1 || !utf8.ValidString(got) && utf8.ValidString(s) {
			t.Fatalf("%q in %d pixels is %q, %d wide", s, room, got, f.Width(got))
		}
		p := &picture{W: room}
		p.paragraph(0, 0, s, f, "", room, 20, 2)
		if len(p.Texts) > 2 {
			t.Fatalf("%d lines", len(p.Texts))
		}
		for _, l := range p.Texts {
			if l.W > room+1 {
				t.Fatalf("%q is %d wide, the room is %d", l.Text, l.W, room)
			}
		}
	})
}

func TestFindingsThatSayTheSameAreOneGroup(t *testing.T) {
	all := []finding.Finding{
		{ID: "RL001", Severity: finding.Info, Subject: "a", Title: "t"},
		{ID: "RL002", Severity: finding.Error, Subject: "b", Title: "t", Evidence: "e1"},
		{ID: "RL002", Severity: finding.Error, Subject: "c", Title: "t", Evidence: "e2"},
		{ID: "RL002", Severity: finding.Error, Subject: "d", Title: "t", Fix: "another"},
	}
	got := grouped(all)
	if len(got) != 3 || got[0].ID != "RL002" || strings.Join(got[0].Subjects, "") != "bc" ||
		strings.Join(got[0].Evidences, "") != "e1e2" || got[2].ID != "RL001" {
		t.Errorf("%+v", got)
	}
	if s := findingsText(all); s != "3 errors, 1 note" {
		t.Errorf("got %q", s)
	}
	if s := findingsText(nil); s != "no findings" {
		t.Errorf("got %q", s)
	}
	if w := finding.Worst(all); w != finding.Error {
		t.Errorf("the worst is %q", w)
	}
	if s := findingsText([]finding.Finding{{Severity: "odd"}}); s != "1 warning" {
		t.Errorf("a severity that is not known counts as %q", s)
	}
}

func TestSubjectsAreFoundInTheirUsualForm(t *testing.T) {
	for in, want := range map[string]string{"0000:3B:00.0": "0000:3b:00.0", "3b:00.0": "0000:3b:00.0",
		"node 1": "node 1", "eth0, 00000000:01:00.0": "eth0|0000:01:00.0"} {
		if got := strings.Join(subjects(finding.Finding{Subject: in}), "|"); got != want {
			t.Errorf("%q is about %q, want %q", in, got, want)
		}
	}
}

func TestLongListsOfNamesSayHowManyMore(t *testing.T) {
	if got := some([]string{"a", "b"}, 2); got != "a, b" {
		t.Errorf("got %q", got)
	}
	if got := some([]string{"a", "b", "c", "d"}, 3); got != "a, b and 2 more" {
		t.Errorf("got %q", got)
	}
}

// The kernel's total, or else the sum over nodes, or unknown, but never one node.
func TestMemoryIsThatOfAllNodes(t *testing.T) {
	const gib = 1 << 30
	nodes := []topology.NUMANode{{ID: 0, MemoryBytes: new(uint64(64 * gib))},
		{ID: 1, MemoryBytes: new(uint64(192 * gib))}}
	half := []topology.NUMANode{nodes[0], {ID: 1}}
	for _, tt := range []struct {
		name string
		host topology.Host
		want string
	}{
		{"as the kernel says", topology.Host{Memory: topology.Memory{TotalBytes: new(uint64(250 * gib))},
			NUMANodes: nodes}, "250 GiB memory"},
		{"the sum", topology.Host{NUMANodes: nodes}, "256 GiB memory"},
		{"of GPUs too", topology.Host{NUMANodes: append(slices.Clone(nodes), topology.NUMANode{ID: 255, Kind: "gpu",
			MemoryBytes: new(uint64(16 * gib))})}, "272 GiB memory (16 GiB of GPUs)"},
		{"one node does not say", topology.Host{NUMANodes: half}, ""},
		{"nobody says", topology.Host{}, ""},
	} {
		if got := newView(NewDocument(&tt.host, nil)).memoryText(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRDMAPortsThatDoNotWorkAreShown(t *testing.T) {
	port := func(name, state, physical string) topology.NIC {
		return topology.NIC{Name: name, RDMA: []string{name}, Devices: []topology.RDMADevice{{Name: name,
			Ports: []topology.RDMAPort{{Number: 1, State: state, PhysState: physical, LinkLayer: "Ethernet"}}}}}
	}
	h := &topology.Host{NICs: []topology.NIC{port("mlx5_0", "ACTIVE", "LinkUp"), port("mlx5_1", "DOWN", "Disabled")}}
	rows := newView(NewDocument(h, nil)).settingGrid().Rows
	if len(rows) != 1 || rows[0][1].String() != "Ethernet DOWN (Disabled)" {
		t.Errorf("rows %v", rows)
	}
}
