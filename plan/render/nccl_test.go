package render

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/dump/nccl"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// switchedHost has a switch on each of two sockets with a GPU and two NICs below it, and a third NIC at a separate root
// port on the first socket. The second socket has a second, cascaded switch.
func switchedHost(t testing.TB) *topology.Host {
	h := dualSocket(16)
	add := func(node int, class topology.ID24, port, address, parent string) {
		d := topology.PCIDevice{Address: addr(t, address), Class: &class, NUMANode: &node,
			Link: &topology.Link{MaxSpeedGTs: new(16.0), MaxWidth: new(16)}}
		if port != "" {
			d.Bridge = &topology.Bridge{Port: port}
		}
		if parent == "" {
			d.Root = "pci0000:" + address[5:7]
		} else {
			d.Parent = new(addr(t, parent))
		}
		h.PCI = append(h.PCI, d)
	}
	const bridge, gpu, nic = 0x060400, 0x030200, 0x020000
	for node, bus := range []string{"1", "9"} {
		add(node, bridge, "root port", "0000:"+bus+"0:01.0", "")
		add(node, bridge, "upstream port", "0000:"+bus+"1:00.0", "0000:"+bus+"0:01.0")
		add(node, bridge, "downstream port", "0000:"+bus+"2:00.0", "0000:"+bus+"1:00.0")
		add(node, bridge, "downstream port", "0000:"+bus+"2:01.0", "0000:"+bus+"1:00.0")
		add(node, gpu, "", "0000:"+bus+"3:00.0", "0000:"+bus+"2:00.0")
		add(node, nic, "", "0000:"+bus+"4:00.0", "0000:"+bus+"2:01.0")
	}
	add(0, bridge, "root port", "0000:10:02.0", "")
	h.PCI[len(h.PCI)-1].Root = "pci0000:10"
	add(0, nic, "", "0000:1f:00.0", "0000:10:02.0")
	add(1, bridge, "downstream port", "0000:92:02.0", "0000:91:00.0")
	add(1, bridge, "upstream port", "0000:95:00.0", "0000:92:02.0")
	add(1, bridge, "downstream port", "0000:96:00.0", "0000:95:00.0")
	add(1, nic, "", "0000:97:00.0", "0000:96:00.0")
	return h
}

func switched(t testing.TB) Input {
	return input("switched", "a host", switchedHost(t), shape{name: "vm", threads: 2, page: gib, farther: 21,
		house: []int{0}, nics: 4,
		cells: [][]home{{{0, siblings(1, 4, 32), 8 * gib}}, {{1, siblings(17, 4, 32), 8 * gib}}},
		cards: []plan.NodeDevice{card(plan.KindGPU, "GPU", 0, 0, "0000:13:00.0"),
			vfCard("0000:14:00.0", 0, 0, 0, "0000:14:00.2"), card(plan.KindNIC, "NIC", 0, 0, "0000:1f:00.0"),
			card(plan.KindGPU, "GPU", 1, 1, "0000:93:00.0"), card(plan.KindNIC, "NIC", 1, 1, "0000:94:00.0"),
			card(plan.KindNIC, "NIC", 1, 1, "0000:97:00.0")}})
}

// Bus 0 and the four buses of emulated devices put the first expander at 32, and the second at half of the rest, 144. A
// switch takes two buses.
var switchedInGuest = map[string]string{"0000:23:00.0": "0000:13:00.0", "0000:24:00.0": "0000:14:00.0",
	"0000:25:00.0": "0000:1f:00.0", "0000:93:00.0": "0000:93:00.0", "0000:94:00.0": "0000:94:00.0",
	"0000:95:00.0": "0000:97:00.0"}

// Each path between devices of one NUMA node must be the host's, with the addresses that follow from the domain.
func TestNCCLSeesThePathsOfTheHost(t *testing.T) {
	t.Parallel()
	in := switched(t)
	onHost := switchedInGuest
	files, err := ncclTopologies(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 || files[0].Path != "guests/vm/nccl-topology.xml" {
		t.Fatalf("files: %v", files)
	}
	guest, err := nccl.Parse(files[0].Data, "nccl-topology.xml")
	if err != nil {
		t.Fatalf("%v\n%s", err, files[0].Data)
	}
	if _, body, _ := strings.Cut(string(files[0].Data), "-->"); strings.ContainsAny(body, "'\t") {
		t.Errorf("NCCL's parser knows no tabs, and not everywhere single quotes:\n%s", body)
	}
	hostTree, guestTree := topology.NewTree(in.Host), topology.NewTree(guest)
	classes := map[topology.PathClass]int{}
	for a, hostA := range onHost {
		d := guestTree.Device(addr(t, a))
		if d == nil {
			t.Fatalf("no %s in\n%s", a, files[0].Data)
		}
		if w := d.Link; w == nil || w.MaxWidth == nil || *w.MaxWidth != 16 || *w.MaxSpeedGTs != 16 {
			t.Errorf("link of %s: %+v", a, w)
		}
		for b, hostB := range onHost {
			want := hostTree.Between(addr(t, hostA), addr(t, hostB))
			if got := guestTree.Between(addr(t, a), addr(t, b)); got != want {
				t.Errorf("%s to %s: %v; on the host %s to %s: %v", a, b, got, hostA, hostB, want)
			}
			classes[want]++
		}
	}
	for _, c := range []topology.PathClass{topology.PathPIX, topology.PathPXB, topology.PathPHB, topology.PathSYS} {
		if classes[c] == 0 {
			t.Errorf("no path %v on the host: the test shows nothing of it", c)
		}
	}
}

// NCCL's own code must see the host's path from each GPU to each NIC.
func TestNCCLItselfSeesThePathsOfTheHost(t *testing.T) {
	t.Parallel()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	judge := filepath.Join(cache, "rackless", "judges", "nccl", "nccl")
	if _, err := os.Stat(judge); err != nil {
		t.Skip("no source of NCCL: NCCL_SOURCE=DIR hack/judges.sh nccl compiles its reader")
	}
	in := switched(t)
	files, err := ncclTopologies(in)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "nccl-topology.xml")
	if err := os.WriteFile(file, files[0].Data, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), judge, file).Output()
	if err != nil {
		t.Fatal(err)
	}
	tree, pairs := topology.NewTree(in.Host), 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		want := tree.Between(addr(t, switchedInGuest[f[0]]), addr(t, switchedInGuest[f[1]]))
		if f[2] != want.String() {
			t.Errorf("NCCL sees %s from %s to %s, the host has %v", f[2], f[0], f[1], want)
		}
		pairs++
	}
	if pairs != 8 {
		t.Errorf("%d paths of 2 GPUs to 4 NICs:\n%s", pairs, out)
	}
}

func TestNodesWithoutGPUsHaveNoTopologyForNCCL(t *testing.T) {
	t.Parallel()
	files, err := ncclTopologies(input("l", "h", switchedHost(t), shape{name: "vm", threads: 2, page: gib, farther: 21,
		house: []int{0}, cells: [][]home{{{0, siblings(1, 4, 32), 8 * gib}}},
		cards: []plan.NodeDevice{card(plan.KindNIC, "NIC", 0, 0, "0000:14:00.0")}}))
	if err != nil || len(files) != 0 {
		t.Errorf("%v, %v", files, err)
	}
}
