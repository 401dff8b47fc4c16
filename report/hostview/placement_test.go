package hostview

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/report/show"
)

// planned has two lab nodes, one across NUMA nodes.
func planned() *Document {
	d := NewDocument(epyc(), []finding.Finding{{ID: "vm01", Severity: finding.Warning, Subject: "0000:61:00.0",
		Title: "device on NUMA node 3: it spans NUMA node 1"}})
	d.Placement = &Placement{Heading: "Plan of lab pair", Facts: []string{"On epyc", "cost 1, proved optimal"},
		Owners: []Owner{
			{Name: "vm00", Role: RoleGuest, CPUs: set("1-7,33-39"), Lines: []string{"14 virtual CPUs",
				"GPU 0000:06:00.0"}},
			{Name: "vm01", Role: RoleGuest, CPUs: set("8-14"), Lines: []string{"7 virtual CPUs", "NIC 0000:61:00.0"}},
			{Name: "host", Role: RoleHost, CPUs: set("24-31,56-63")},
			{Name: "host and emulator threads", Role: RoleEmulator, CPUs: set("0,32")},
			{Name: "tenants", Role: RoleTenant, CPUs: set("16,17,48")},
			{Name: "free", Role: RoleFree, CPUs: set("15,47,49,50-55,18-23")}},
		Nodes: map[int]NodeShare{0: {Bytes: map[int]uint64{0: 16 * gib, 2: 40 * gib}, Lines: []string{"hugepages: 16"}},
			1: {Bytes: map[int]uint64{1: 16 * gib, 2: 40 * gib}}},
		Devices: map[string][]int{"0000:06:00.0": {0}, "0000:61:00.0": {0, 1}, "0000:21:00.0": {4}},
		Tables: []Table{{Title: "Lab nodes", Columns: show.Columns("node", "vCPUs>"), Rows: [][]string{{"vm00", "14"},
			{"vm01", "7"}}}},
	}
	return d
}

func TestAPlacementShowsWhoHasWhat(t *testing.T) {
	svg := string(written(t, func(b *bytes.Buffer) error { return planned().WriteSVG(b) }))
	wellFormed(t, []byte(svg))
	for _, want := range []string{">Plan of lab pair<", ">vm00: 7 cores, CPUs 1-7,33-39 · 16 GiB<",
		`<rect class="share k0"`,
		`id="host-lab-node-B"`, `<a href="#host-lab-node-B"><text`, ">Cross-node placements: 1 warning<",
		">hugepages: 16<", `<path class="emulator"`, ">memory, by owner<", ">lab node: its colour and letter"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, bad := range []string{">isolated<", ">VMs vm00<", `class="hatch"`} {
		if strings.Contains(svg, bad) {
			t.Errorf("the picture of a plan has %s", bad)
		}
	}
	page := string(written(t, func(b *bytes.Buffer) error { return planned().WritePage(b) }))
	for _, want := range []string{"<h2 id=\"findings-h\">Cross-node placements: 1 warning</h2>", "<h2>Lab nodes</h2>",
		`<th scope="row">vm01</th><td class="n">7</td>`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in the page", want)
		}
	}
}

// A core is split only if two owners have threads.
func TestACoreHasTheColoursOfItsOwners(t *testing.T) {
	v := newView(planned())
	var got []string
	for _, c := range newScene(v).Groups[0].Rooms[2].Caches[0].Cells {
		p := &picture{}
		p.cell(rect{0, 0, 14, 14}, v.Placement, c)
		text := ""
		for _, s := range p.Texts {
			text += s.Text
		}
		got = append(got, fmt.Sprint(p.Cells[0].Classes, text))
	}
	want := "[tenant]t,[tenant free],[free],[free]"
	if s := strings.Join(got, ","); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
}

func TestSignsTellLabNodesApart(t *testing.T) {
	p := &Placement{Owners: []Owner{{Role: RoleHost}, {Role: RoleFree}}}
	for range 60 {
		p.Owners = append(p.Owners, Owner{Role: RoleGuest})
	}
	seen := map[string]bool{}
	for i, o := range p.Owners {
		if s := p.sign(i); seen[s] || s == "" && o.Role != RoleFree {
			t.Errorf("the sign of owner %d is %q", i, s)
		} else {
			seen[s] = true
		}
	}
}

func TestNothingOverlapsInThePictureOfAnyPlacement(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawnHost(t)
		p := &Placement{Heading: rapid.String().Draw(t, "heading"), Nodes: map[int]NodeShare{},
			Devices: map[string][]int{}}
		names := rapid.OneOf(rapid.StringN(0, 40, 120),
			rapid.SampledFrom([]string{"vm00", "MMMMMMMMMMMMMMMMMMMMMMMMMMMM"}))
		next := 0
		for range rapid.SampledFrom([]int{0, 1, 5, 40}).Draw(t, "owners") {
			n := rapid.IntRange(1, 9).Draw(t, "CPUs")
			p.Owners = append(p.Owners, Owner{Name: names.Draw(t, "name"), CPUs: topology.CPURange(next, next+n-1),
				Role:  rapid.SampledFrom([]Role{RoleGuest, RoleGuest, RoleHost, RoleTenant, RoleFree}).Draw(t, "role"),
				Lines: []string{names.Draw(t, "line")}})
			guest := &p.Owners[len(p.Owners)-1]
			for i := range rapid.IntRange(0, 3).Draw(t, "NUMA nodes") {
				id := strconv.Itoa(i)
				guest.Nodes = append(guest.Nodes, GuestNode{Title: names.Draw(t, "title"), Devices: []GuestDevice{
					{ID: "gpu" + id, Title: names.Draw(t, "device"), Lines: []string{names.Draw(t, "model")}},
					{ID: "nic" + id, NIC: true, Title: names.Draw(t, "device")}}})
				guest.Paths = append(guest.Paths, GuestPath{GPU: "gpu" + id, NIC: "nic0", Text: names.Draw(t, "path")})
			}
			next += n
		}
		for i := range p.Owners {
			node := rapid.IntRange(0, 3).Draw(t, "node")
			s := p.Nodes[node]
			if s.Bytes == nil {
				s.Bytes = map[int]uint64{}
			}
			s.Bytes[i] = rapid.Uint64().Draw(t, "bytes")
			p.Nodes[node] = s
			if len(d.PCI) > 0 {
				id := rapid.SampledFrom(d.PCI).Draw(t, "device").Address.String()
				p.Devices[id] = append(p.Devices[id], i)
			}
		}
		d.Placement = p
		v := newView(d)
		for _, s := range v.scenes() {
			for on, sh := range sheets {
				if f := flaws(sh.layout(v, s), sh); len(f) > 0 {
					t.Fatalf("on %s: %d flaws:\n%s", on, len(f), strings.Join(f[:min(len(f), 5)], "\n"))
				}
			}
		}
	})
}

func TestAGuestIsDrawnWithThePathsBetweenItsDevices(t *testing.T) {
	d := planned()
	node := func(number int, devices ...GuestDevice) GuestNode {
		return GuestNode{Title: fmt.Sprintf("guest NUMA node %d", number), Lines: []string{"virtual CPUs 0-6"},
			Devices: devices}
	}
	gpu, nic, near := GuestDevice{ID: "g", Title: "GPU 06:00.0"}, GuestDevice{ID: "n", NIC: true, Title: "NIC 41:00.0",
		Lines: []string{"cable: link up, 25 Gb/s"}}, GuestDevice{ID: "o", NIC: true, Title: "NIC 02:00.0"}
	o := &d.Placement.Owners[0]
	o.Nodes = []GuestNode{node(0, gpu, near), node(1, nic)}
	o.Paths = []GuestPath{{GPU: "g", NIC: "n", Text: "crosses", Crosses: true}, {GPU: "g", NIC: "o", Text: "near"},
		{GPU: "g", NIC: "gone", Text: "unknown"}, {GPU: "g", NIC: "n", Text: "4"}, {GPU: "g", NIC: "n", Text: "5"}}
	v := newView(d)
	for _, s := range screens {
		p := s.sheet.guestsPanel(v, s.sheet.width-2*s.sheet.edge)
		var rooms, texts []string
		for _, b := range p.Boxes {
			if b.Class == "guest" {
				rooms = append(rooms, fmt.Sprint(b.rect))
				for _, l := range p.Lines {
					for _, at := range l.Points {
						if at[0] < 0 || at[0] > p.W || at[1] < 0 || at[1] > p.H {
							t.Errorf("%s: the line %q leaves the picture: %v", s.name, l.Title, l.Points)
						}
					}
				}
			}
		}
		for _, x := range p.Texts {
			texts = append(texts, x.Text)
		}
		all := strings.Join(texts, "|")
		for _, want := range []string{"guest NUMA node 0", "guest NUMA node 1", "GPU 06:00.0", "NIC 41:00.0",
			"cable: link up, 25", "crosses|near|unknown|4|and 1 path more"} {
			if !strings.Contains(all, want) {
				t.Errorf("%s: no %q in %s", s.name, want, all)
			}
		}
		// Lines of the two that are joined, in both ways, and none of the one that is not there.
		if len(rooms) != 2 || len(p.Lines) != 3 || p.Lines[0].Class != "wire warned" || p.Lines[1].Class != "wire" {
			t.Errorf("%s: rooms %v, lines %+v", s.name, rooms, p.Lines)
		}
		if a, b := p.Lines[0].Points[0], p.Lines[0].Points[5]; a[0] >= b[0] || len(p.Lines[1].Points) != 4 {
			t.Errorf("%s: the line goes from %v to %v, and the near one is %v", s.name, a, b, p.Lines[1].Points)
		}
	}
}
