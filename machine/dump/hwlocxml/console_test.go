package hwlocxml

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

const console2 = `user@node:~$ lstopo -
Machine (504GB total)
  Package L#0
    NUMANode L#0 (P#0 252GB)
    L3 L#0 (22MB)
      L2 L#0 (1024KB) + L1d L#0 (32KB) + L1i L#0 (32KB) + Core L#0
        PU L#0 (P#0)
        PU L#1 (P#32)
      L2 L#1 (1024KB) + L1d L#1 (32KB) + L1i L#1 (32KB) + Core L#1
        PU L#2 (P#1)
        PU L#3 (P#33)
    HostBridge
      PCIBridge
        PCIBridge
          PCIBridge
            PCI 3b:00.0 (3D)
              CoProc(CUDA) "cuda0"
          PCIBridge
            PCI 3c:00.0 (InfiniBand)
              Net "ib0"
              OpenFabrics "mlx5_0"
          PCIBridge
            PCIBridge
              PCI 3e:00.0 (Ethernet)
                Net "eth2"
      PCIBridge
        PCI 41:00.0 (Ethernet)
          Net "eth0"
        PCI 41:00.1 (Ethernet)
          Net "eth1"
  Package L#1
    NUMANode L#1 (P#1 252GB)
    L3 L#1 (22MB) + L2 L#2 (1024KB) + L1d L#2 (32KB) + L1i L#2 (32KB) + Core L#2
      PU L#4 (P#16)
      PU L#5 (P#48)
    HostBridge
      PCI 0000:80:00.0 (Ethernet)
        Net "eth3"
user@node:~$
`

func TestConsoleOfLstopo(t *testing.T) {
	t.Parallel()
	h, err := ParseConsole([]byte(console2), "text")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range h.NUMANodes {
		got = append(got, n.CPUs.String())
	}
	for _, c := range h.Cores {
		got = append(got, c.CPUs.String())
	}
	for _, n := range h.NICs {
		got = append(got, n.ID()+" "+n.Ports[0].Name)
	}
	if want := []string{"0-1,32-33", "16,48", "0,32", "1,33", "16,48", "0000:3c:00.0 ib0", "0000:3e:00.0 eth2",
		"0000:41:00.0 eth0", "0000:41:00.1 eth1", "0000:80:00.0 eth3"}; !slices.Equal(got, want) {
		t.Errorf("nodes, cores and NICs %q, want %q", got, want)
	}
	if size := h.NUMANodes[1].MemoryBytes; size == nil || *size != 252<<30 {
		t.Errorf("memory of node 1: %v, want 252 GiB", size)
	}
	paths := map[[2]string]topology.PathClass{}
	for _, p := range h.Reported {
		paths[[2]string{p.A[5:7], p.B[5:7]}] = p.Class
	}
	for pair, want := range map[[2]string]topology.PathClass{
		{"3b", "3c"}: topology.PathPIX, {"3b", "3e"}: topology.PathPXB, {"3b", "41"}: topology.PathPHB,
		{"41", "41"}: topology.PathPIX, {"3b", "80"}: topology.PathSYS,
	} {
		if got := paths[pair]; got != want {
			t.Errorf("path of %v: %v, want %v", pair, got, want)
		}
	}
	if len(h.Unread) > 0 {
		t.Errorf("unread: %v", h.Unread)
	}
}

// TestConsoleOfOldReleases reads hwloc 1.11, in which nodes contain packages, and PCI functions have no address.
func TestConsoleOfOldReleases(t *testing.T) {
	t.Parallel()
	h, err := ParseConsole([]byte(`Machine (128GB total)
  NUMANode L#0 (P#0 64GB)
    Package L#0 + L3 L#0 (35MB)
      L2 L#0 (256KB) + L1d L#0 (32KB) + L1i L#0 (32KB) + Core L#0 + PU L#0 (P#0)
    HostBridge L#0
      PCIBridge
        PCI 15b3:1003
          Net L#0 "ib0"
          OpenFabrics L#1 "mlx4_0"
  NUMANode L#1 (P#1 64GB) + Socket L#1 + L3 L#1 (35MB) + L2 L#1 (256KB) + L1d L#1 (32KB) + Core L#1 + PU L#1 (P#7)
`), "text")
	if err != nil {
		t.Fatal(err)
	}
	if len(h.NUMANodes) != 2 || h.NUMANodes[0].CPUs.String() != "0" || h.NUMANodes[1].CPUs.String() != "7" {
		t.Errorf("nodes %+v", h.NUMANodes)
	}
	if len(h.Packages) != 2 || len(h.L3) != 2 {
		t.Errorf("%d packages, %d L3 caches", len(h.Packages), len(h.L3))
	}
	if len(h.NICs) != 1 || len(h.NICs[0].Devices) != 1 || h.NICs[0].Devices[0].Name != "mlx4_0" {
		t.Errorf("NICs %+v, want one with ib0 and mlx4_0", h.NICs)
	}
}

func TestACutConsoleSaysSo(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"within a line":    console2[:strings.Index(console2, "Core L#1")-3],
		"between packages": console2[:strings.Index(console2, "  Package L#1")],
	} {
		h, err := ParseConsole([]byte(text), "text")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !h.CPUs.Cut || !h.CPUs.Online.IsEmpty() || len(h.Unread) == 0 {
			t.Errorf("%s: CPUs %+v, unread %v: it does not say that more was cut off", name, h.CPUs, h.Unread)
		}
	}
}

func TestConsoleThatIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Machine (8GB total)\n  Package L#0\n    Core L#0 + PU L#0\n": "text:3: a PU without the number of its CPU",
		"Machine (8GB total)\n  Package L#0\n    Core L#0\n":          "text:1: no PU with the number of its CPU",
		"lstopo: command not found\n":                                 "text:1: no object of lstopo",
	} {
		if _, err := ParseConsole([]byte(text), "text"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestConsoleAgainstLstopo compares the text that lstopo prints for a file with the file.
func TestConsoleAgainstLstopo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs lstopo some 100 times")
	}
	program, err := exec.LookPath("lstopo-no-graphics")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no lstopo: install hwloc-nox to run this test")
	}
	read := 0
	for _, name := range corpus(t) {
		if name == joined || undecided[name] != "" {
			continue
		}
		for _, flag := range []string{"-p", "--of", "-v"} {
			args := []string{"-i", filepath.Join("testdata", name), flag}
			if flag != "--of" {
				args = append(args, "--of")
			}
			out, err := exec.Command(program, append(args, "console")...).Output()
			if err != nil {
				continue // of a later release than this lstopo
			}
			got, err := ParseConsole(out, "lstopo "+flag)
			if err != nil {
				t.Errorf("%s %s: %v", name, flag, err)
				continue
			}
			read++
			if diff := gocmp.Diff(told(parse(t, name)), told(got)); diff != "" {
				t.Errorf("%s, lstopo %s: (-XML +text):\n%s", name, flag, diff)
			}
			checkPaths(t, name+" "+flag, parse(t, name), got)
		}
	}
	t.Logf("%d texts", read)
	if version, _ := exec.Command(program, "--version").Output(); read < 20 &&
		bytes.Contains(version, []byte(" 2.9")) {
		t.Errorf("only %d texts were read", read)
	}
}

type toldNode struct {
	ID   int
	CPUs string
	GiB  float64
}

type toldHost struct {
	Nodes     []toldNode
	Cores, L3 []string
	Packages  []string
	Netdevs   []string
	RDMA      []string
}

// told returns the facts that the text has, too.
func told(h *topology.Host) toldHost {
	var out toldHost
	for _, n := range h.NUMANodes {
		node := toldNode{ID: n.ID, CPUs: n.CPUs.String()}
		if n.MemoryBytes != nil {
			node.GiB = math.Round(float64(*n.MemoryBytes) / (1 << 30))
		}
		out.Nodes = append(out.Nodes, node)
	}
	out.Cores = lists.Map(h.Cores, func(c topology.Core) string { return c.CPUs.String() })
	out.L3 = lists.Map(h.L3, func(c topology.L3) string { return c.CPUs.String() })
	out.Packages = lists.Map(h.Packages, func(p topology.Package) string { return p.CPUs.String() })
	for _, n := range h.NICs {
		for _, p := range n.Ports {
			out.Netdevs = append(out.Netdevs, n.ID()+" "+p.Name)
		}
		for _, d := range n.Devices {
			out.RDMA = append(out.RDMA, n.ID()+" "+d.Name)
		}
	}
	for _, list := range [][]string{out.Packages, out.Cores, out.L3, out.Netdevs, out.RDMA} {
		slices.Sort(list)
	}
	return out
}

// checkPaths compares the paths of the text with those of the tree that the file has.
func checkPaths(t *testing.T, name string, file, text *topology.Host) {
	t.Helper()
	tree := topology.NewTree(file)
	for _, p := range text.Reported {
		a, errA := topology.ParsePCIAddr(p.A)
		b, errB := topology.ParsePCIAddr(p.B)
		if errA != nil || errB != nil {
			t.Errorf("%s: path %+v", name, p)
			continue
		}
		if want := tree.Between(a, b); want != topology.PathUnknown && want != p.Class {
			t.Errorf("%s: %s to %s is %v in the text, and %v in the file", name, p.A, p.B, p.Class, want)
		}
	}
}
