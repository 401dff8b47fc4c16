package hostview

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

var sheets = map[string]sheet{"wide": wideSheet, "page": pageSheet, "phone": phoneSheet}

// flaws are overlaps, texts that leave their box, and anything outside the sheet.
func flaws(p *picture, sh sheet) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p.W > sh.width || p.W < 1 || p.H < 1 {
		say("the picture is %d x %d, the sheet %d wide", p.W, p.H, sh.width)
	}
	whole := rect{0, 0, p.W, p.H}
	inside := func(a, b rect) bool {
		return a.X >= b.X && a.Y >= b.Y && a.right() <= b.right() && a.bottom() <= b.bottom()
	}
	type named struct {
		rect
		what string
	}
	var words, frames, cards []named
	apart := func(a, b rect) bool {
		return a.right() <= b.X || b.right() <= a.X || a.bottom() <= b.Y || b.bottom() <= a.Y
	}
	boxes := slices.Concat(p.Boxes, p.Tops)
	for _, s := range p.Texts {
		words = append(words, named{s.rect, fmt.Sprintf("text %q", s.Text)})
		// A text is inside a box or beside it.
		for _, b := range boxes {
			if !inside(s.rect, b.rect) && !apart(s.rect, b.rect) {
				say("text %q at %v is across the edge of box %s at %v", s.Text, s.rect, b.Class, b.rect)
			}
		}
	}
	for _, s := range p.Marks {
		words = append(words, named{s.rect, "mark of " + string(s.Severity)})
	}
	for _, s := range boxes {
		if !inside(s.rect, whole) {
			say("box %s at %v is not on the sheet %v", s.Class, s.rect, whole)
		}
		switch name, _, _ := strings.Cut(s.Class, " "); name {
		case "room", "panel":
			frames = append(frames, named{s.rect, s.Class})
		case "card", "bridge":
			cards = append(cards, named{s.rect, s.Class})
		}
	}
	for _, s := range p.Cells {
		cards = append(cards, named{s.rect, "cell"})
	}
	for _, all := range [][]named{words, frames, cards} {
		slices.SortFunc(all, func(a, b named) int { return a.Y - b.Y })
		for i, a := range all {
			if !inside(a.rect, whole) {
				say("%s at %v is not on the sheet %v", a.what, a.rect, whole)
			}
			for _, b := range all[i+1:] {
				if b.Y >= a.bottom() {
					break
				}
				sign := b.what == "cell" && a.what != "cell" && inside(b.rect, a.rect)
				if a.X < b.right() && b.X < a.right() && !sign {
					say("%s at %v and %s at %v overlap", a.what, a.rect, b.what, b.rect)
				}
			}
		}
	}
	return out
}

func TestNothingOverlapsInThePicturesOfTheGoldenHosts(t *testing.T) {
	docs := map[string]*Document{"hostile": hostileDocument(), "planned": planned(), "full": NewDocument(fullHost(),
		nil)}
	for _, c := range hostCases() {
		docs[c.name] = NewDocument(c.host, c.findings)
	}
	for name, d := range docs {
		v := newView(d)
		for _, s := range v.scenes() {
			for on, sh := range sheets {
				for _, f := range flaws(sh.layout(v, s), sh) {
					t.Errorf("%s on %s: %s", name, on, f)
				}
			}
		}
	}
}

// drawnHost is random, with gaps in links, nodes and names.
func drawnHost(t *rapid.T) *Document {
	h := &topology.Host{}
	text := rapid.OneOf(rapid.StringN(0, 40, 120), rapid.SampledFrom([]string{"", "eth0", "NVIDIA H100 80GB HBM3",
		"MMMMMMMMMMMMMMMMMMMMMMMM", "界界界界界界界界界界"}))
	h.System.Vendor, h.System.CPUModel = text.Draw(t, "vendor"), text.Draw(t, "model")
	nodes := rapid.SampledFrom([]int{0, 1, 2, 3, 4, 8, 70}).Draw(t, "nodes")
	perNode := rapid.SampledFrom([]int{0, 1, 4, 33, 100, 300}).Draw(t, "cores")
	threads := rapid.IntRange(1, 4).Draw(t, "threads")
	if nodes*perNode*threads > 5000 {
		perNode = 8
	}
	packages := rapid.IntRange(0, 5).Draw(t, "packages")
	next := 0
	for n := range nodes {
		var cpus topology.CPUSet
		kind := rapid.SampledFrom([]string{"", topology.KindEfficiency}).Draw(t, "kind")
		for range perNode {
			own := topology.CPURange(next, next+threads-1)
			next += threads
			cpus = cpus.Union(own)
			c := topology.Core{CPUs: own, Kind: kind}
			if packages > 0 {
				c.Package = new(n % packages)
			}
			h.Cores = append(h.Cores, c)
		}
		node := topology.NUMANode{ID: n, CPUs: cpus, Kind: rapid.SampledFrom([]string{"", "hbm", "cxl"}).Draw(t,
			"memory")}
		if rapid.Bool().Draw(t, "sized") {
			node.MemoryBytes = new(rapid.Uint64().Draw(t, "bytes"))
			node.Hugepages = []topology.HugepagePool{{SizeBytes: 2 << 20, Total: rapid.Uint64().Draw(t, "pages"),
				Free: new(uint64(3))}}
		}
		h.NUMANodes = append(h.NUMANodes, node)
		if rapid.Bool().Draw(t, "shared") && !cpus.IsEmpty() {
			h.L3 = append(h.L3, topology.L3{CPUs: cpus})
		}
	}
	for p := range packages {
		h.Packages = append(h.Packages, topology.Package{ID: p, Model: text.Draw(t, "package")})
	}
	devices := rapid.IntRange(0, 25).Draw(t, "devices")
	domain := rapid.SampledFrom([]uint32{0, 0, 1, 0x10000}).Draw(t, "domain")
	var bridges []topology.PCIAddr
	for i := range devices {
		at := topology.PCIAddr{Domain: domain, Bus: uint8(i + 1),
			Function: uint8(rapid.IntRange(0, 2).Draw(t, "function"))}
		d := topology.PCIDevice{Address: at, DeviceName: text.Draw(t, "device"), Vendor: new(topology.VendorNVIDIA),
			Driver: text.Draw(t, "driver")}
		d.Class = new(rapid.SampledFrom([]topology.ID24{0x030000, 0x020000, 0x010802, 0x060400, 0x060400, 0x060400,
			0x120000, 0x0c0330}).Draw(t, "class"))
		if len(bridges) > 0 && rapid.IntRange(0, 4).Draw(t, "below") > 0 {
			parent := rapid.SampledFrom(bridges).Draw(t, "parent")
			d.Parent = &parent
		}
		if rapid.Bool().Draw(t, "on a node") {
			d.NUMANode = new(rapid.IntRange(0, nodes).Draw(t, "node")) // one more than exists
		}
		if rapid.Bool().Draw(t, "linked") {
			d.Link = link(rapid.IntRange(1, 6).Draw(t, "gen"), rapid.SampledFrom([]int{1, 4, 8, 16, 32}).Draw(t,
				"lanes"), 5, 16)
		}
		if *d.Class == 0x060400 {
			d.Bridge = &topology.Bridge{Port: text.Draw(t, "port")}
			bridges = append(bridges, at)
		}
		h.PCI = append(h.PCI, d)
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "loose") {
		h.GPUs = append(h.GPUs, topology.GPU{Name: text.Draw(t, "gpu"), Model: text.Draw(t, "model")})
		h.NICs = append(h.NICs, topology.NIC{Name: fmt.Sprintf("NIC%d", i), Netdevs: []string{text.Draw(t, "netdev")}})
	}
	h.Complete()
	for i := range h.GPUs {
		for j := range h.GPUs[:i] {
			if rapid.IntRange(0, 2).Draw(t, "nvlink") == 0 {
				h.Reported = append(h.Reported, topology.Path{A: h.GPUs[j].ID(), B: h.GPUs[i].ID(),
					Class: topology.PathNVLink, Links: rapid.IntRange(1, 18).Draw(t, "links")})
			}
		}
	}
	var findings []finding.Finding
	for range rapid.IntRange(0, 30).Draw(t, "findings") {
		subject := rapid.SampledFrom([]string{"host", "node 0", "node 1", "node 2"}).Draw(t, "subject")
		if len(h.PCI) > 0 && rapid.IntRange(0, 3).Draw(t, "of a device") > 0 {
			subject = rapid.SampledFrom(h.PCI).Draw(t, "function").Address.String()
		}
		findings = append(findings, finding.Finding{
			ID: rapid.SampledFrom([]string{"RL001", "RL002", "RL100"}).Draw(t, "id"), Title: text.Draw(t, "title"),
			Subject: subject,
			Severity: rapid.SampledFrom([]finding.Severity{finding.Error, finding.Warning, finding.Info}).Draw(t,
				"severity"),
		})
	}
	return NewDocument(h, findings)
}

func TestNothingOverlapsInThePictureOfAnyHost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawnHost(t)
		v := newView(d)
		for _, s := range v.scenes() {
			for on, sh := range sheets {
				p := sh.layout(v, s)
				if f := flaws(p, sh); len(f) > 0 {
					t.Fatalf("on %s: %d flaws:\n%s", on, len(f), strings.Join(f[:min(len(f), 5)], "\n"))
				}
			}
		}
	})
}

// Every output succeeds, and outputs with a grammar follow it.
func TestEveryOutputOfAnyHostIsWellFormed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := drawnHost(rt)
		wellFormed(t, written(t, func(b *bytes.Buffer) error { return d.WriteSVG(b) }))
		page := written(t, func(b *bytes.Buffer) error { return d.WritePage(b) })
		if !bytes.HasSuffix(page, []byte("</html>\n")) {
			rt.Fatal("the page breaks off")
		}
		written(t, func(b *bytes.Buffer) error { return d.WriteTable(b, TableOptions{}) })
		written(t, func(b *bytes.Buffer) error { return d.WriteMatrix(b) })
	})
}

// Each GPU and NIC is drawn once, and each NUMA node.
func TestEveryDeviceIsDrawnOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawnHost(t)
		v := newView(d)
		s := newScene(v)
		if rapid.Bool().Draw(t, "collapsed") {
			s.collapse()
		}
		seen := map[string]int{}
		rooms := 0
		for _, g := range s.Groups {
			for _, r := range g.Rooms {
				rooms++
				for _, b := range r.Blocks {
					walk(b.Branches, func(b branch) {
						for _, c := range b.Cards {
							if len(c.Members) == 0 {
								seen[c.ID]++
							}
							for _, m := range c.Members {
								seen[m.ID]++
							}
						}
					})
				}
			}
		}
		want := map[string]int{}
		for _, g := range v.Host.GPUs {
			want[g.ID()]++
		}
		for _, n := range v.Host.NICs {
			want[n.ID()]++
		}
		for id, n := range want {
			if seen[id] != n {
				t.Fatalf("%q is drawn %d times, want %d", id, seen[id], n)
			}
		}
		if rooms < len(d.Host.NUMANodes) {
			t.Fatalf("%d rooms for %d nodes", rooms, len(d.Host.NUMANodes))
		}
	})
}

// Drawing ends, despite loops and bridges as deep as bus numbers allow.
func TestLoopsAndDeepTreesAreDrawn(t *testing.T) {
	t.Parallel()
	h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}}}
	for i := range 250 {
		at, parent := topology.PCIAddr{Bus: uint8(i)}, ""
		if i > 0 {
			parent = topology.PCIAddr{Bus: uint8(i - 1)}.String()
		}
		port(h, at.String(), parent, "pci0000:00", 0, uint8(i+1), 255, nil)
		function(h, topology.PCIAddr{Bus: uint8(i), Device: 1}.String(), at.String(), "pci0000:00", 0, 0x020000,
			topology.VendorIntel, 1, "", nil)
	}
	h.Complete()
	loop := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}}}
	port(loop, "0000:01:00.0", "0000:02:00.0", "", 0, 2, 2, nil)
	port(loop, "0000:02:00.0", "0000:01:00.0", "", 0, 1, 1, nil)
	function(loop, "0000:03:00.0", "0000:02:00.0", "", 0, 0x020000, topology.VendorIntel, 1, "", nil)
	loop.Complete()
	for name, h := range map[string]*topology.Host{"deep": h, "loop": loop} {
		v := newView(NewDocument(h, nil))
		for on, sh := range sheets {
			for _, f := range flaws(sh.layout(v, newScene(v)), sh) {
				t.Errorf("%s on %s: %s", name, on, f)
			}
		}
	}
}

func (r rect) bottom() int { return r.Y + r.H }

func walk(bs []branch, f func(branch)) {
	for _, b := range bs {
		f(b)
		walk(b.Fan, f)
	}
}
