package smi_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/dump/smi"
	"github.com/rackless/rackless/machine/topology"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(t testing.TB, text []byte) *topology.Host {
	t.Helper()
	h, err := smi.Parse(text, "m.txt")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func fixtures(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for i, f := range files {
		files[i] = filepath.Base(f)
	}
	return files
}

func TestSummariesOfFixtures(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	for _, f := range fixtures(t) {
		h, err := smi.Parse(readFile(t, f), f)
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		fmt.Fprintf(&got, "%s: %s\n", f, summary(h))
		fmt.Fprintf(&got, "  %s %s, filled %s\n", h.Provenance.Kind, h.Provenance.Tool,
			strings.Join(h.Provenance.Filled, " "))
		for _, u := range h.Unread {
			fmt.Fprintf(&got, "  unread %s: %s\n", u.Path, u.Why)
		}
	}
	golden.Check(t, filepath.Join("testdata", "summaries.golden"), got.Bytes())
}

// TestH20 compares every fact with a second description, typed from the report.
func TestH20(t *testing.T) {
	t.Parallel()
	h := parse(t, readFile(t, "h20.txt"))

	const nodeA, nodeB = "0-47,96-143", "48-95,144-191"
	if len(h.GPUs) != 8 || len(h.NICs) != 4 || len(h.NUMANodes) != 2 {
		t.Fatalf("got %s", summary(h))
	}
	for i, g := range h.GPUs {
		node, cpus := i/4, []string{nodeA, nodeB}[i/4]
		if g.Name != fmt.Sprintf("GPU%d", i) || *g.Index != i || *g.NUMANode != node || g.CPUAffinity.String() != cpus {
			t.Errorf("GPU %d: got %q, index %d, node %d, CPUs %s", i, g.Name, *g.Index, *g.NUMANode, g.CPUAffinity)
		}
		if g.NVLinks == nil || *g.NVLinks != 18 {
			t.Errorf("GPU %d: NVLinks %v; want 18", i, g.NVLinks)
		}
		if g.MemoryNode != nil {
			t.Errorf("GPU %d: memory on node %d; want none", i, *g.MemoryNode)
		}
	}
	for i, n := range h.NICs {
		want := topology.NIC{Name: fmt.Sprintf("NIC%d", i), RDMA: []string{fmt.Sprintf("mlx5_bond_%d", i)},
			Netdevs: []string{}, NUMANode: new(i / 2)}
		if diff := cmp.Diff(want, n); diff != "" {
			t.Errorf("NIC %d (-want +got):\n%s", i, diff)
		}
	}
	for i, n := range h.NUMANodes {
		if n.ID != i || n.CPUs.String() != []string{nodeA, nodeB}[i] {
			t.Errorf("node %d: got ID %d, CPUs %s", i, n.ID, n.CPUs)
		}
	}

	nearest := []int{1, 3, 4, 6}
	want := map[[2]string]string{}
	for i := range 8 {
		a := fmt.Sprintf("GPU%d", i)
		for j := i + 1; j < 8; j++ {
			want[[2]string{a, fmt.Sprintf("GPU%d", j)}] = "NV18"
		}
		for n := range 4 {
			class := "SYS"
			switch {
			case nearest[n] == i:
				class = "PIX"
			case i/4 == n/2:
				class = "NODE"
			}
			want[[2]string{a, fmt.Sprintf("NIC%d", n)}] = class
		}
	}
	for i := range 4 {
		for j := i + 1; j < 4; j++ {
			class := "SYS"
			if i/2 == j/2 {
				class = "NODE"
			}
			want[[2]string{fmt.Sprintf("NIC%d", i), fmt.Sprintf("NIC%d", j)}] = class
		}
	}
	got := map[[2]string]string{}
	for _, p := range h.Reported {
		got[[2]string{p.A, p.B}] = p.Label()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reported paths (-want +got):\n%s", diff)
	}
	if len(h.Reported) != 12*11/2 {
		t.Errorf("%d reported paths; want each pair once", len(h.Reported))
	}
	tree := topology.NewTree(h)
	for pair, label := range want {
		if p := tree.Path(pair[1], pair[0]); p.Label() != label {
			t.Errorf("path %s to %s: got %s, want %s", pair[1], pair[0], p.Label(), label)
		}
	}
	if len(h.Unread) != 0 {
		t.Errorf("unread: %v", h.Unread)
	}
}

func TestMatrixHoldsWhatTheTextSays(t *testing.T) {
	t.Parallel()
	m, err := smi.ParseMatrix([]byte("\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" +
		"GPU0\t X \tPHB\t0-71\t0\t\t1\n" + "NIC0\tPHB\t X \t\t\t\t\n" + "\nNIC Legend:\n\n  NIC0: mlx5_0\n"))
	if err != nil {
		t.Fatal(err)
	}
	phb, self := smi.Cell{Class: topology.PathPHB}, smi.Cell{Class: topology.PathSelf}
	want := &smi.Matrix{
		Line: 1,
		Devices: []smi.Device{
			{Name: "GPU0", Index: new(0), Line: 2, CPUAffinity: "0-71", NUMAAffinity: "0", GPUNUMAID: "1"},
			{Name: "NIC0", RDMA: "mlx5_0", Line: 3},
		},
		Cells: [][]smi.Cell{{self, phb}, {phb, self}},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c, ok := cellOf(m, "NIC0", "GPU0"); !ok || c.String() != "PHB" {
		t.Errorf("Cell(NIC0, GPU0) = %v, %v", c, ok)
	}
	if _, ok := cellOf(m, "NIC0", "NIC7"); ok {
		t.Error("Cell knows a NIC that is not there")
	}
}

func TestGPUMemoryIsANodeWithoutCPUs(t *testing.T) {
	t.Parallel()
	h := parse(t, readFile(t, "gb200-4gpu.txt"))
	want := []topology.NUMANode{
		{ID: 0, CPUs: topology.CPURange(0, 71)}, {ID: 1, CPUs: topology.CPURange(72, 143)},
		{ID: 2, Kind: "gpu"}, {ID: 10, Kind: "gpu"}, {ID: 18, Kind: "gpu"}, {ID: 26, Kind: "gpu"},
	}
	if diff := cmp.Diff(want, h.NUMANodes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := *h.GPUs[3].MemoryNode; got != 26 {
		t.Errorf("memory of GPU3 on node %d; want 26", got)
	}
}

// Some drivers omit the GPU's memory node.
func TestNodeOfCPUsIsTheFirstOfGPUMemoryNodes(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("\t0-71\t0\t\t2\n", "\t0-71\t0,2-17\t\tN/A\n", "\t0-71\t0\t", "\t0-71\t0,2-17\t",
		"\t72-143\t1\t", "\t72-143\t1,18-33\t").Replace(string(readFile(t, "gb200-4gpu.txt")))
	h := parse(t, []byte(text))
	if len(h.NUMANodes) < 2 || !h.NUMANodes[1].CPUs.Equal(topology.CPURange(72, 143)) {
		t.Errorf("nodes %+v; want node 1 with CPUs 72-143", h.NUMANodes)
	}
	if n := h.GPUs[3].NUMANode; n == nil || *n != 1 {
		t.Errorf("GPU3 is on node %v; want 1", n)
	}
	if n := h.NICs[0].NUMANode; n == nil || *n != 0 {
		t.Errorf("NIC0 is on node %v; want 0", n)
	}
}

func TestAffinityBecomesNodesOnlyWhereItIsConsistent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, a, b, want string }{
		{"two GPUs on one node", "0-7\t0", "0-7\t0", "0:0-7"},
		{"two nodes", "0-7\t0", "8-15\t1", "0:0-7 1:8-15"},
		{"one node with two affinities is no node", "0-7\t0", "0-3\t0", ""},
		{"two nodes that share CPUs are none", "0-7\t0", "0-7\t1", ""},
		{"a list of nodes is not a node", "0-15\t0-1", "0-15\t0-1", ""},
		{"not known", "0-15\tN/A", "0-15\tN/A", ""},
		{"no affinity at all", "N/A\tN/A", "N/A\tN/A", ""},
		{"a list that nvidia-smi cut off", "0,2,4,6,8,10\t0", "1,3,5,7,9,11\t1", ""},
		{"a list cut at a comma", "0-7,\t0", "8-15\t1", "1:8-15"},
		{"a list cut in a range", "0-\t0", "8-15\t1", "1:8-15"},
		{"a list that runs backwards", "7-0\t0", "8-15\t1", "1:8-15"},
		{"old drivers write ranges of one", "0-0,2-2\t0", "1-1,3-3\t1", "0:0,2 1:1,3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := parse(t, []byte("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t"+c.a+"\nGPU1\tPHB\t X \t"+
				c.b+"\n"))
			var got []string
			for _, n := range h.NUMANodes {
				got = append(got, fmt.Sprintf("%d:%s", n.ID, n.CPUs))
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("nodes %q; want %q", got, c.want)
			}
		})
	}
}

func TestCutAffinityIsKeptAsStatedAndNoted(t *testing.T) {
	t.Parallel()
	h := parse(t, []byte("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0,2,4,6,8,10\t0\n"))
	if got := h.GPUs[0].CPUAffinity.String(); got != "0,2,4,6,8,10" {
		t.Errorf("affinity %q", got)
	}
	want := []topology.Unread{{Path: "m.txt:2",
		Why: `GPU0: CPU affinity "0,2,4,6,8,10" is cut off: nvidia-smi prints the start of a long list`}}
	if diff := cmp.Diff(want, h.Unread); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNodeOfANICFollowsFromItsGPUs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, toGPU0, toGPU1, affinity1 string
		want                            *int
	}{
		{"below one switch with a GPU of node 0", "PIX", "SYS", "1", new(0)},
		{"near a GPU of node 1", "SYS", "NODE", "1", new(1)},
		{"far from all", "SYS", "SYS", "1", nil},
		{"near GPUs of two nodes", "PHB", "PHB", "1", nil},
		{"near two GPUs of one node", "PHB", "PXB", "0", new(0)},
		{"near a GPU whose node is not known", "SYS", "PIX", "N/A", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := parse(t, fmt.Appendf(nil, "GPU0 GPU1 NIC0 CPU Affinity NUMA Affinity\nGPU0 X SYS %[1]s 0-7 0\nGPU1 "+
				"SYS X %[2]s 8-15 %[3]s\nNIC0 %[1]s %[2]s X\n",
				c.toGPU0, c.toGPU1, c.affinity1))
			if diff := cmp.Diff(c.want, h.NICs[0].NUMANode); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNVLinksInUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		gpus  int
		label func(i, j int) string
		want  string
	}{
		{"none", 2, func(i, j int) string { return "SYS" }, "? ?"},
		{"a bridge of 4", 2, func(i, j int) string { return "NV4" }, "4 4"},
		{"all 18 of two GPUs behind a switch", 2, func(i, j int) string { return "NV18" }, "18 18"},
		{"a switch: the same links to each of 7 peers", 8, func(i, j int) string {
			return "NV12"
		}, strings.TrimSpace(strings.Repeat("12 ", 8))},
		{"four GPUs wired with 4 to each", 4, func(i, j int) string { return "NV4" }, "12 12 12 12"},
		{"three of eight GPUs behind a switch", 3, func(i, j int) string { return "NV8" }, "8 8 8"},
		{"four GPUs with 6: a board of H100, or V100 behind a switch", 4, func(i, j int) string {
			return "NV6"
		}, "? ? ? ?"},
		{"16 GPUs with 6: only a switch can do that", 16, func(i, j int) string {
			return "NV6"
		}, strings.TrimSpace(strings.Repeat("6 ", 16))},
		{"wired unequally", 3, func(i, j int) string { return []string{"", "NV1", "NV2", "NV3"}[i+j] }, "3 4 5"},
		{"more than a GPU has, and unequal", 3, func(i, j int) string {
			return []string{"", "NV17", "NV18", "NV18"}[i+j]
		}, "? ? 18"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := parse(t, []byte(render(c.gpus, 0, c.label)))
			var got []string
			for _, g := range h.GPUs {
				if g.NVLinks == nil {
					got = append(got, "?")
				} else {
					got = append(got, fmt.Sprint(*g.NVLinks))
				}
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func render(gpus, nics int, label func(i, j int) string) string {
	var names []string
	for i := range gpus {
		names = append(names, fmt.Sprintf("GPU%d", i))
	}
	for i := range nics {
		names = append(names, fmt.Sprintf("NIC%d", i))
	}
	var b strings.Builder
	b.WriteString("\t" + strings.Join(names, "\t") + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n")
	for i, n := range names {
		b.WriteString(n)
		for j := range names {
			if i == j {
				b.WriteString("\t X ")
			} else {
				b.WriteString("\t" + label(min(i, j), max(i, j)))
			}
		}
		if i < gpus {
			b.WriteString("\t0-7\t0\t\tN/A\n")
		} else {
			b.WriteString("\t\t\t\t\n")
		}
	}
	return b.String()
}

func TestLegendNamesRDMADevices(t *testing.T) {
	t.Parallel()
	matrix := "GPU0 NIC0 NIC1 CPU Affinity\nGPU0 X PIX SYS 0-7\nNIC0 PIX X SYS\nNIC1 SYS SYS X\n"
	for _, c := range []struct{ name, legend, want, unread string }{
		{"the usual", "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_0\n", "[mlx5_0] [mlx5_bond_0]", ""},
		{"names of udev", "NIC Legend:\nNIC0: rocep13s0f0\nNIC1: ibp7\n", "[rocep13s0f0] [ibp7]", ""},
		{"without a legend", "", "[] []", "m.txt:1: no NIC legend: the RDMA devices of 2 NICs are not known"},
		{"cut off", "NIC Legend:\n\n  NIC0: mlx5_0\n", "[mlx5_0] []", "m.txt:1: NIC legend: 1 of 2 NICs are not in it"},
		{"in a quote", "> NIC Legend:\n>\n>   NIC0: mlx5_0\n>   NIC1: mlx5_1\n", "[mlx5_0] [mlx5_1]", ""},
		{"on one line", "NIC Legend: NIC0: mlx5_0 NIC1: mlx5_1\n", "[mlx5_0] [mlx5_1]", ""},
		{"other text where a name should be", "NIC Legend:\n  NIC0: ity     GPU NUMA ID\n  NIC1: A\n", "[] []",
			`m.txt:6: legend of NIC0: "ity GPU NUMA ID" is not the name of an RDMA device; ` +
				`m.txt:7: legend of NIC1: "A" is not the name of an RDMA device`},
		{"two names for one", "NIC0: mlx5_0\nNIC0: mlx5_9\nNIC1: mlx5_1\n", "[mlx5_0] [mlx5_1]",
			`m.txt:6: legend of NIC0: "mlx5_9", but it was "mlx5_0" before`},
		{"a NIC that is not in the matrix", "NIC0: mlx5_0\nNIC1: mlx5_1\nNIC2: mlx5_2\n", "[mlx5_0] [mlx5_1]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := parse(t, []byte(matrix+c.legend))
			if got := fmt.Sprint(h.NICs[0].RDMA, " ", h.NICs[1].RDMA); got != c.want {
				t.Errorf("RDMA devices %s; want %s", got, c.want)
			}
			if got := unread(h); got != c.unread {
				t.Errorf("unread %s; want %s", got, c.unread)
			}
		})
	}
}

func unread(h *topology.Host) string {
	var out []string
	for _, u := range h.Unread {
		out = append(out, u.Path+": "+u.Why)
	}
	return strings.Join(out, "; ")
}

func TestSniff(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures(t) {
		if b := readFile(t, f); !smi.Sniff(b[:min(len(b), 1024)]) {
			t.Errorf("%s is not recognised", f)
		}
	}
	for _, text := range []string{
		"", "hello", "00:00.0 Host bridge: A machine\n", `<system version="1"><cpu numaid="0"/></system>`,
		"GPU0 is far from NIC0", "Architecture: x86_64\nNUMA node0 CPU(s): 0-63\n",
	} {
		if smi.Sniff([]byte(text)) {
			t.Errorf("Sniff(%q) = true", text)
		}
	}
	for _, text := range []string{"GPU0\t X \tNV4\n", "$ nvidia-smi topo -m\n",
		"\t\x1b[4mGPU0\tCPU Affinity\x1b[0m\n"} {
		if !smi.Sniff([]byte(text)) {
			t.Errorf("Sniff(%q) = false", text)
		}
	}
}

func cellOf(m *smi.Matrix, a, b string) (c smi.Cell, ok bool) {
	i, j := index(m, a), index(m, b)
	if i < 0 || j < 0 {
		return smi.Cell{}, false
	}
	return m.Cells[i][j], true
}

func index(m *smi.Matrix, name string) int {
	return slices.IndexFunc(m.Devices, func(d smi.Device) bool { return d.Name == name })
}
