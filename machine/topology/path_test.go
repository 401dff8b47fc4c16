package topology

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machine takes lines "ADDRESS CLASS words": "below ADDRESS", "on ROOT", "node N", and "cut" for an unknown parent. It
// has at least nodes NUMA nodes.
func machine(t testing.TB, nodes int, lines string) *Host {
	t.Helper()
	h := new(Host)
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		class, err := ParseID24(f[1])
		if err != nil {
			t.Fatal(err)
		}
		d := PCIDevice{Address: addr(t, f[0]), Class: &class}
		for i := 2; i < len(f); i++ {
			switch f[i] {
			case "below":
				i++
				d.Parent = new(addr(t, f[i]))
			case "on":
				i++
				d.Root = f[i]
			case "node":
				i++
				n, err := strconv.Atoi(f[i])
				if err != nil {
					t.Fatal(err)
				}
				d.NUMANode, nodes = &n, max(nodes, n+1)
			case "switch":
				d.Bridge = &Bridge{Port: PortSwitch}
			case "cut":
				d.ParentUnknown = true
			default:
				t.Fatalf("line %q: word %q", line, f[i])
			}
		}
		h.PCI = append(h.PCI, d)
	}
	for n := range nodes {
		h.NUMANodes = append(h.NUMANodes, NUMANode{ID: n})
	}
	return h
}

// h20 has NUMA nodes with two PCIe switches, each with a GPU and a NIC, and two GPUs below root ports. Each switch and
// each such GPU is on its own root bus, as on current processors.
func h20(t testing.TB) *Host {
	var lines strings.Builder
	for node := range 2 {
		for pair := range 2 {
			bus := node*0x80 + pair*0x40
			root := fmt.Sprintf("on pci0000:%02x node %d", bus+0x10, node)
			fmt.Fprintf(&lines, "%02x:01.0 0604 %s\n", bus+0x10, root)
			fmt.Fprintf(&lines, "%02x:00.0 0604 below %02x:01.0 %s\n", bus+0x11, bus+0x10, root)
			fmt.Fprintf(&lines, "%02x:00.0 0604 below %02x:00.0 %s\n", bus+0x12, bus+0x11, root)
			fmt.Fprintf(&lines, "%02x:01.0 0604 below %02x:00.0 %s\n", bus+0x12, bus+0x11, root)
			fmt.Fprintf(&lines, "%02x:00.0 030200 below %02x:00.0 %s\n", bus+0x13, bus+0x12, root)
			fmt.Fprintf(&lines, "%02x:00.0 020000 below %02x:01.0 %s\n", bus+0x14, bus+0x12, root)
			root = fmt.Sprintf("on pci0000:%02x node %d", bus+0x20, node)
			fmt.Fprintf(&lines, "%02x:01.0 0604 %s\n", bus+0x20, root)
			fmt.Fprintf(&lines, "%02x:00.0 030200 below %02x:01.0 %s\n", bus+0x21, bus+0x20, root)
		}
	}
	h := machine(t, 2, lines.String())
	h.Complete()
	return h
}

func TestPathsOfAnEightGPUServer(t *testing.T) {
	t.Parallel()
	h := h20(t)
	tree := NewTree(h)
	var got []string
	for i := range h.GPUs {
		row := fmt.Sprintf("GPU%d", i)
		for j := range h.NICs {
			row += " " + tree.Path(h.GPUs[i].ID(), h.NICs[j].ID()).Label()
		}
		got = append(got, row)
	}
	want := []string{
		"GPU0 PIX NODE SYS SYS", "GPU1 NODE NODE SYS SYS", "GPU2 NODE PIX SYS SYS", "GPU3 NODE NODE SYS SYS",
		"GPU4 SYS SYS PIX NODE", "GPU5 SYS SYS NODE NODE", "GPU6 SYS SYS NODE PIX", "GPU7 SYS SYS NODE NODE",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if paths := tree.Paths(); len(paths) != 12*11/2 {
		t.Errorf("%d paths between 12 devices, want 66", len(paths))
	}
}

func TestBetween(t *testing.T) {
	t.Parallel()
	const cascade = `
		10:01.0 0604 on pci0000:10 node 0
		11:00.0 0604 below 10:01.0 node 0
		12:00.0 0604 below 11:00.0 node 0
		12:01.0 0604 below 11:00.0 node 0
		13:00.0 0604 below 12:00.0 node 0
		14:00.0 0604 below 13:00.0 node 0
		15:00.0 0302 below 14:00.0 node 0
		16:00.0 0604 below 12:01.0 node 0
		17:00.0 0604 below 16:00.0 node 0
		17:01.0 0604 below 16:00.0 node 0
		18:00.0 0200 below 17:00.0 node 0
		18:00.1 0200 below 17:00.0 node 0
		19:00.0 0200 below 17:01.0 node 0
		10:02.0 0604 on pci0000:10 node 0
		1a:00.0 0200 below 10:02.0 node 0
		1b:00.0 0604 below 11:00.0 node 0
		10:03.0 0200 on pci0000:10 node 0
		12:03.0 0200 below 11:00.0 node 0
		20:01.0 0604 on pci0000:20 node 0
		21:00.0 0200 below 20:01.0 node 0
		80:01.0 0604 on pci0000:80 node 1
		81:00.0 0200 below 80:01.0 node 1
		90:01.0 0200 on pci0000:90`
	for _, tt := range []struct {
		name, a, b string
		nodes      int
		lines      string
		want       PathClass
	}{
		{"a device and itself", "15:00.0", "15:00.0", 2, cascade, PathSelf},
		{"functions of one device", "18:00.0", "18:00.1", 2, cascade, PathPIX},
		{"one switch", "18:00.0", "19:00.0", 2, cascade, PathPIX},
		{"a switch and a function on its own bus", "12:03.0", "1b:00.0", 2, cascade, PathPIX},
		{"two switches below a third", "15:00.0", "18:00.0", 2, cascade, PathPXB},
		{"a switch below another, and a function on the upper one's bus", "15:00.0", "12:03.0", 2, cascade, PathPXB},
		{"one root bus", "15:00.0", "1a:00.0", 2, cascade, PathPHB},
		{"one root bus, one of them on the bus itself", "15:00.0", "10:03.0", 2, cascade, PathPHB},
		{"one NUMA node", "15:00.0", "21:00.0", 2, cascade, PathNODE},
		{"two NUMA nodes", "15:00.0", "81:00.0", 2, cascade, PathSYS},
		{"a NUMA node that is not known", "15:00.0", "90:01.0", 2, cascade, PathUnknown},
		{"a function that is not there", "15:00.0", "ff:00.0", 2, cascade, PathUnknown},
		{"a machine with one node needs no nodes of its devices", "01:00.0", "41:00.0", 1,
			"01:00.0 0302 on pci0000:00\n41:00.0 0200 on pci0000:40", PathNODE},
		{"a machine whose nodes nobody read", "01:00.0", "41:00.0", 0,
			"01:00.0 0302 on pci0000:00\n41:00.0 0200 on pci0000:40", PathUnknown},
		{"without names of root buses, the top buses tell them apart", "01:00.0", "02:00.0", 1,
			"01:00.0 0302\n02:00.0 0200", PathNODE},
		{"without names of root buses, one top bus is one root", "01:00.0", "01:02.0", 1, "01:00.0 0302\n01:02.0 0200",
			PathPHB},
		{"bridges that are left out may be shared", "01:00.0", "02:00.0", 1, "01:00.0 0302 cut\n02:00.0 0200 cut",
			PathUnknown},
		{
			"a parent that is not listed may be shared further up", "01:00.0", "02:00.0", 1,
			"01:00.0 0302 below 00:01.0 on pci0000:00\n02:00.0 0200 below 00:02.0 on pci0000:00", PathUnknown,
		},
		{"the same parent, though it is not listed", "01:00.0", "01:01.0", 1,
			"01:00.0 0302 below 00:01.0\n01:01.0 0200 below 00:01.0", PathPIX},
		{"bridges that are left out cannot be shared between nodes", "01:00.0", "81:00.0", 2,
			"01:00.0 0302 cut node 0\n81:00.0 0200 cut node 1", PathSYS},
		{"a source that shows a switch as one", "13:00.0", "14:00.0", 1,
			"12:00.0 0604 switch on pci0000:10\n13:00.0 0302 below 12:00.0\n14:00.0 0200 below 12:00.0", PathPIX},
		{
			"a source that shows switches as one each, below another", "13:00.0", "16:00.0", 1,
			"11:00.0 0604 switch on pci0000:10\n12:00.0 0604 switch below 11:00.0\n15:00.0 0604 switch below " +
				"11:00.0\n13:00.0 0302 below 12:00.0\n16:00.0 0200 below 15:00.0",
			PathPXB,
		},
		{"bridges in a circle", "01:00.0", "02:00.0", 1, "01:00.0 0604 below 02:00.0\n02:00.0 0604 below 01:00.0",
			PathUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree := NewTree(machine(t, tt.nodes, tt.lines))
			a, b := addr(t, tt.a), addr(t, tt.b)
			if got := tree.Between(a, b); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if got := tree.Between(b, a); got != tt.want {
				t.Errorf("the other way round %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAncestorsEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, lines string
		want        []string
	}{
		{"a function on a root bus", "01:00.0 0302 on pci0000:01", nil},
		{"a chain", "01:00.0 0302 below 02:00.0\n02:00.0 0604 below 03:00.0\n03:00.0 0604 on pci0000:03",
			[]string{"0000:02:00.0", "0000:03:00.0"}},
		{"a function below itself", "01:00.0 0302 below 01:00.0", nil},
		{"a circle through it", "01:00.0 0604 below 02:00.0\n02:00.0 0604 below 01:00.0", []string{"0000:02:00.0"}},
		{"a circle above it", "01:00.0 0302 below 02:00.0\n02:00.0 0604 below 03:00.0\n03:00.0 0604 below 02:00.0",
			[]string{"0000:02:00.0", "0000:03:00.0"}},
		{"a bridge that is not there", "01:00.0 0302 below 02:00.0", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range NewTree(machine(t, 1, tt.lines)).Ancestors(PCIAddr{Bus: 1}) {
				got = append(got, d.Address.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAncestorsOfAHostileDump(t *testing.T) {
	t.Parallel()
	// Deeper than buses can be nested.
	h := new(Host)
	address := func(i int) PCIAddr { return PCIAddr{Bus: uint8(i >> 5), Device: uint8(i & 31)} }
	for i := range 8000 {
		h.PCI = append(h.PCI, PCIDevice{Address: address(i), Parent: new(address(i + 1))})
	}
	tree := NewTree(h)
	if n := len(tree.Ancestors(PCIAddr{})); n != maxDepth {
		t.Errorf("%d ancestors, want %d", n, maxDepth)
	}
	if got := tree.Between(address(0), address(7900)); got != PathUnknown {
		t.Errorf("path %v, want none", got)
	}
}

func TestRootOf(t *testing.T) {
	t.Parallel()
	tree := NewTree(machine(t, 1, "01:00.0 0302 below 00:01.0\n00:01.0 0604 on pci0000:00\n40:00.0 0200\n50:00.0 "+
		"0200 cut\n60:00.0 0200 below 61:00.0"))
	for a, want := range map[string]string{
		"01:00.0": "pci0000:00", "00:01.0": "pci0000:00", "40:00.0": "pci0000:40", "50:00.0": "", "60:00.0": "",
		"70:00.0": "",
	} {
		if got := tree.RootOf(addr(t, a)); got != want {
			t.Errorf("RootOf(%s) = %q, want %q", a, got, want)
		}
	}
}

func TestToNode(t *testing.T) {
	t.Parallel()
	const lines = "01:00.0 0302 node 0\n81:00.0 0302 node 1\n90:00.0 0302"
	for _, tt := range []struct {
		name, a string
		nodes   int
		lines   string
		node    int
		want    PathClass
	}{
		{"its own node", "81:00.0", 2, lines, 1, PathPHB},
		{"another node", "81:00.0", 2, lines, 0, PathSYS},
		{"a node that is not known", "90:00.0", 2, lines, 0, PathUnknown},
		{"the only node", "90:00.0", 1, "90:00.0 0302", 0, PathPHB},
		{"a function that is not there", "91:00.0", 2, lines, 0, PathUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := NewTree(machine(t, tt.nodes, tt.lines)).ToNode(addr(t, tt.a), tt.node); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestReportedPathsComeFirst(t *testing.T) {
	t.Parallel()
	h := machine(t, 2, "01:00.0 0302 on pci0000:00 node 0\n81:00.0 0302 on pci0000:80 node 1\n02:00.0 0200 on "+
		"pci0000:00 node 0")
	const gpu0, gpu1, nic = "0000:01:00.0", "0000:81:00.0", "0000:02:00.0"
	h.Reported = []Path{{A: gpu0, B: gpu1, Class: PathNVLink, Links: 18}, {A: nic, B: gpu0, Class: PathPIX},
		{A: "GPU0", B: "NIC0", Class: PathNODE}}
	for _, tt := range []struct {
		name, a, b string
		want       Path
	}{
		{"NVLinks, and the way over PCIe beside them", gpu0, gpu1, Path{A: gpu0, B: gpu1, Class: PathNVLink, Links: 18,
			PCIe: PathSYS}},
		{"the other way round", gpu1, gpu0, Path{A: gpu1, B: gpu0, Class: PathNVLink, Links: 18, PCIe: PathSYS}},
		{"a tool knows better than the tree", gpu0, nic, Path{A: gpu0, B: nic, Class: PathPIX}},
		{"the tree answers the rest", gpu1, nic, Path{A: gpu1, B: nic, Class: PathSYS}},
		{"names instead of addresses", "NIC0", "GPU0", Path{A: "NIC0", B: "GPU0", Class: PathNODE}},
		{"names that nobody reported", "NIC1", "GPU0", Path{A: "NIC1", B: "GPU0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, h.Path(tt.a, tt.b)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPathsLeaveVirtualFunctionsAndUnknownOnesOut(t *testing.T) {
	t.Parallel()
	h := machine(t, 2, "01:00.0 0302 on pci0000:00 node 0\n02:00.0 0200 on pci0000:00 node 0\n02:00.1 0200 on "+
		"pci0000:00 node 0\n90:00.0 0200 on pci0000:90")
	h.PCI[2].PF = new(PCIAddr{Bus: 2})
	h.Complete()
	var got []string
	for _, p := range NewTree(h).Paths() {
		got = append(got, p.A+" "+p.B+" "+p.Label())
	}
	want := []string{"0000:01:00.0 0000:02:00.0 PHB"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPathsFromOneDevice(t *testing.T) {
	t.Parallel()
	h := h20(t)
	h.Reported = []Path{{A: "0000:13:00.0", B: "0000:53:00.0", Class: PathNVLink, Links: 18}}
	others := []string{"none", "0000:94:00.0", "0000:54:00.0", "0000:14:00.0", "0000:d4:00.0", "0000:53:00.0",
		"0000:13:00.0"}
	var got []string
	for _, other := range others {
		got = append(got, other+" "+NewTree(h).Path("0000:13:00.0", other).Label())
	}
	want := []string{
		"none ", "0000:94:00.0 SYS", "0000:54:00.0 NODE", "0000:14:00.0 PIX", "0000:d4:00.0 SYS", "0000:53:00.0 NV18",
		"0000:13:00.0 X",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParsePathLabel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in    string
		class PathClass
		links int
	}{
		{"X", PathSelf, 0}, {"NV1", PathNVLink, 1}, {"NV18", PathNVLink, 18}, {"PIX", PathPIX, 0}, {"PXB", PathPXB, 0},
		{"PHB", PathPHB, 0}, {"NODE", PathNODE, 0}, {"SYS", PathSYS, 0}, {"SOC", PathSYS, 0},
	} {
		class, links, err := ParsePathLabel(tt.in)
		if err != nil || class != tt.class || links != tt.links {
			t.Errorf("ParsePathLabel(%q) = %v, %d, %v", tt.in, class, links, err)
		}
		if label := (Path{Class: class, Links: links}).Label(); label != tt.in && tt.in != "SOC" {
			t.Errorf("%q is written as %q", tt.in, label)
		}
	}
	for _, in := range []string{"", "NV", "NV0", "NV-1", "NVx", "pix", "PIX ", "N/A"} {
		if class, _, err := ParsePathLabel(in); err == nil {
			t.Errorf("ParsePathLabel(%q) = %v, want an error", in, class)
		}
	}
	if s := PathClass(200).String(); s != "PathClass(200)" {
		t.Errorf("a class that is none prints as %q", s)
	}
	if b, err := PathNODE.MarshalText(); err != nil || string(b) != "NODE" {
		t.Errorf("MarshalText() = %q, %v", b, err)
	}
}

func FuzzParsePathLabel(f *testing.F) {
	for _, s := range []string{"X", "NV18", "PIX", "SOC", "NV", "NV000001", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		class, links, err := ParsePathLabel(s)
		if err == nil && (class == PathUnknown || (links > 0) != (class == PathNVLink)) {
			t.Errorf("ParsePathLabel(%q) = %v, %d", s, class, links)
		}
	})
}

func FuzzBetween(f *testing.F) {
	f.Add([]byte{1, 2, 3, 3}, uint8(0), uint8(1))
	f.Add([]byte{1, 0}, uint8(0), uint8(1))
	f.Add([]byte{0, 0, 0, 200}, uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, parents []byte, a, b uint8) {
		h := &Host{NUMANodes: []NUMANode{{ID: 0}, {ID: 1}}}
		for i, p := range parents[:min(len(parents), 256)] {
			d := PCIDevice{Address: PCIAddr{Bus: uint8(i)}}
			if p < 250 {
				d.Parent = &PCIAddr{Bus: p}
			}
			h.PCI = append(h.PCI, d)
		}
		tree := NewTree(h)
		x, y := PCIAddr{Bus: a}, PCIAddr{Bus: b}
		got := tree.Between(x, y)
		if back := tree.Between(y, x); back != got {
			t.Errorf("%v one way, %v the other", got, back)
		}
		if up := tree.Ancestors(x); len(up) > maxDepth || slices.ContainsFunc(up, func(d *PCIDevice) bool {
			return d.Address == x
		}) {
			t.Errorf("%d ancestors of %v", len(up), x)
		}
		h.Complete()
	})
}

func TestNodePaths(t *testing.T) {
	t.Parallel()
	h := machine(t, 2, "01:00.0 0302 node 0\n02:00.0 0200 node 1")
	h.GPUs = append(h.GPUs, GPU{Address: &PCIAddr{Bus: 1}}, GPU{Name: "GPU7", NUMANode: new(1)}, GPU{Name: "GPU8"})
	h.NICs = append(h.NICs, NIC{Address: &PCIAddr{Bus: 2}}, NIC{Address: &PCIAddr{Bus: 2, Function: 1},
		PF: &PCIAddr{Bus: 2}, NUMANode: new(1)})
	want := []NodePath{
		{"0000:01:00.0", 0, PathPHB}, {"0000:01:00.0", 1, PathSYS},
		{"GPU7", 0, PathSYS}, {"GPU7", 1, PathPHB},
		{"0000:02:00.0", 0, PathSYS}, {"0000:02:00.0", 1, PathPHB},
	}
	if diff := cmp.Diff(want, NewTree(h).NodePaths()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkPaths(b *testing.B) {
	var lines strings.Builder
	for i := range 72 {
		fmt.Fprintf(&lines, "%02x:00.0 0200 below %02x:00.0 node %d\n", 0x80+i, 0x10+i, i/36)
		fmt.Fprintf(&lines, "%02x:00.0 0604 below 01:%02x.0\n", 0x10+i, i/9)
	}
	for i := range 8 {
		fmt.Fprintf(&lines, "01:%02x.0 0604 on pci0000:%02x\n", i, i)
	}
	h := machine(b, 2, lines.String())
	h.Complete()
	for b.Loop() {
		NewTree(h).Paths()
	}
}

func TestPathsReadBackFromTheirJSON(t *testing.T) {
	t.Parallel()
	for _, want := range []Path{
		{A: "GPU0", B: "GPU1", Class: PathNVLink, Links: 18, PCIe: PathSYS},
		{A: "GPU0", B: "GPU1", Class: PathNVLink},
		{A: "GPU0", B: "NIC0", Class: PathPXB},
		{A: "GPU0", B: "NIC1"},
	} {
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Path
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if got != want {
			t.Errorf("%s read back as %+v, want %+v", data, got, want)
		}
	}
	for _, bad := range []string{`{"a":"x","b":"y","class":"NEAR"}`, `{"a":"x","b":"y","class":"PIX","pcie":"NV"}`,
		`{"a":1}`, `7`} {
		if err := json.Unmarshal([]byte(bad), new(Path)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
