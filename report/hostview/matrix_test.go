package hostview

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/dump/smi"
	"github.com/rackless/rackless/machine/topology"
)

func matrixOf(t testing.TB, h *topology.Host) string {
	return string(written(t, func(b *bytes.Buffer) error { return NewDocument(h, nil).WriteMatrix(b) }))
}

func cellsOf(t testing.TB, text string) map[[2]string]string {
	t.Helper()
	m, err := smi.ParseMatrix([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	out := map[[2]string]string{}
	for i, row := range m.Devices {
		for j, column := range m.Devices {
			out[[2]string{row.Name, column.Name}] = topology.Path{Class: m.Cells[i][j].Class,
				Links: m.Cells[i][j].Links}.Label()
		}
	}
	return out
}

func TestTheMatrixIsReadBackAsItWasWritten(t *testing.T) {
	for _, c := range hostCases() {
		d := NewDocument(c.host, nil)
		v := newView(d)
		if len(v.gpus) == 0 {
			continue // no matrix without a GPU
		}
		t.Run(c.name, func(t *testing.T) {
			if slices.ContainsFunc(v.matrix(), func(r matrixRow) bool { return slices.Contains(r.Cells, "") }) {
				// An unknown cell is no path.
				if _, err := smi.ParseMatrix([]byte(matrixOf(t, c.host))); err == nil || !strings.Contains(err.Error(),
					`"?"`) {
					t.Errorf("a cell that is not known is read as %v", err)
				}
				return
			}
			got := cellsOf(t, matrixOf(t, c.host))
			want := map[[2]string]string{}
			for _, r := range v.matrix() {
				for j, o := range v.matrix() {
					want[[2]string{r.Name, o.Name}] = r.Cells[j]
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// The cells, affinities and legend are the same as nvidia-smi's.
func TestAMatrixThatWasReadIsWrittenAsItWas(t *testing.T) {
	files, err := filepath.Glob("../../machine/dump/smi/testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		first, err := smi.Parse(text, "first")
		if err != nil {
			continue // a file of another test that must be rejected
		}
		compared++
		second, err := smi.Parse([]byte(matrixOf(t, first)), "first")
		if err != nil {
			t.Errorf("%s: %v in\n%s", f, err, matrixOf(t, first))
			continue
		}
		// Old versions of nvidia-smi named NICs after RDMA devices.
		classes := func(h *topology.Host) (all [][]string) {
			for _, r := range newView(NewDocument(h, nil)).matrix() {
				all = append(all, r.Cells)
			}
			return all
		}
		if d := cmp.Diff(classes(first), classes(second)); d != "" {
			t.Errorf("%s (-first +second):\n%s", f, d)
		}
		for i := range first.GPUs {
			if a, b := first.GPUs[i], second.GPUs[i]; !cmp.Equal(a.CPUAffinity, b.CPUAffinity) ||
				!cmp.Equal(a.NUMANode, b.NUMANode) || !cmp.Equal(a.MemoryNode, b.MemoryNode) || a.Name != b.Name {
				t.Errorf("%s: %+v became %+v", f, a, b)
			}
		}
		for i := range first.NICs {
			if a, b := first.NICs[i], second.NICs[i]; !cmp.Equal(a.RDMA, b.RDMA) {
				t.Errorf("%s: %+v became %+v", f, a, b)
			}
		}
	}
	if compared == 0 && len(files) > 0 {
		t.Errorf("none of %d files was read", len(files))
	}
}

func TestTheMatrixListsWhatComputesAndNoVirtualFunctions(t *testing.T) {
	out := matrixOf(t, armVFs())
	if strings.Contains(out, "NIC1") || !strings.Contains(out, "NIC0: mlx5_0") {
		t.Errorf("virtual functions are rows:\n%s", out)
	}
	out = matrixOf(t, dgx())
	if strings.Contains(out, "GPU8") {
		t.Errorf("the board's screen is a GPU:\n%s", out)
	}
}

func TestAMissingCellIsAQuestionAndSaysSo(t *testing.T) {
	out := matrixOf(t, matrixOnly())
	for _, want := range []string{"NIC3  SYS   SYS   SYS   SYS   NODE  NODE  PIX   ?", "  ?    = not known\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := matrixOf(t, dgx()); strings.Contains(out, "not known") {
		t.Errorf("the legend explains what is not there:\n%s", out)
	}
}

func TestNamesThatDevicesBroughtAlongAreKept(t *testing.T) {
	for _, tt := range []struct {
		name  string
		names []string
		want  string
	}{
		{"all have one", []string{"GPU4", "GPU6"}, "GPU4 GPU6"},
		{"one has none", []string{"GPU4", ""}, "GPU0 GPU1"},
		{"two are the same", []string{"GPU4", "GPU4"}, "GPU0 GPU1"},
		{"names of another kind", []string{"nvidia0", "nvidia1"}, "GPU0 GPU1"},
		{"a number that is none", []string{"GPUx"}, "GPU0"},
		{"none", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			names, got := map[string]string{}, ""
			places := make([]int, len(tt.names))
			for i := range places {
				places[i] = i
			}
			number(names, "GPU", places, func(i int) (id, name string) { return strconv.Itoa(i), tt.names[i] })
			for i := range places {
				got += " " + names[strconv.Itoa(i)]
			}
			if got = strings.TrimSpace(got); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestANICIsCalledByWhatIsKnownOfIt(t *testing.T) {
	for _, tt := range []struct {
		n    topology.NIC
		want string
	}{
		{topology.NIC{RDMA: []string{"mlx5_0"}, Netdevs: []string{"eth0"}}, "mlx5_0"},
		{topology.NIC{Netdevs: []string{"eth0", "eth1"}}, "eth0,eth1"},
		{topology.NIC{Address: new(addr("0000:41:00.0"))}, "0000:41:00.0"},
	} {
		if got := nicTitle(&tt.n); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestTheNodeOfAGPUsMemoryIsAColumnWhereItIsKnown(t *testing.T) {
	h := matrixOnly()
	h.GPUs[1].MemoryNode = new(9)
	out := matrixOf(t, h)
	lines := strings.Split(out, "\n")
	if !strings.HasSuffix(lines[0], "GPU NUMA ID") || !strings.HasSuffix(lines[1], "N/A") ||
		!strings.HasSuffix(lines[2], "9") {
		t.Errorf("\n%s", out)
	}
}

func TestNICsWithTheSamePathsAreOneRow(t *testing.T) {
	row := func(name string, gpu bool, cells ...string) matrixRow {
		return matrixRow{ID: name, Name: name, GPU: gpu, Title: "t" + name, Cells: cells, Node: new(0)}
	}
	text := func(rows []matrixRow) string {
		out := ""
		for _, r := range rows {
			out += r.Name + ": " + strings.Join(r.Cells, " ") + "; "
		}
		return strings.TrimSuffix(out, "; ")
	}
	near := []matrixRow{row("GPU0", true, "X", "PIX", "PIX", "SYS", "PIX"),
		row("NIC0", false, "PIX", "X", "PIX", "SYS", "PIX"),
		row("NIC1", false, "PIX", "PIX", "X", "SYS", "PIX"), row("NIC2", false, "SYS", "SYS", "SYS", "X", "SYS"),
		row("NIC3", false, "PIX", "PIX", "PIX", "SYS", "X")}
	want := "GPU0: X PIX SYS; NIC0-1,3 x3: PIX PIX SYS; NIC2: SYS SYS X"
	if got := text(alikeRows(near)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// Two NICs, or other nodes and paths, keep their rows.
	far := slices.Clone(near)
	far[4].Node = new(1)
	if got := alikeRows(far); len(got) != len(far) {
		t.Errorf("NICs of two nodes are one row: %s", text(got))
	}
	unlike := []matrixRow{row("NIC0", false, "X", "PIX", "PHB"), row("NIC1", false, "PIX", "X", "PHB"),
		row("NIC2", false, "PHB", "PHB", "X")}
	if got := alikeRows(unlike); len(got) != 3 {
		t.Errorf("NICs with other paths among them are one row: %s", text(got))
	}
	gpus := []matrixRow{row("GPU0", true, "X", "SYS", "SYS"), row("GPU1", true, "SYS", "X", "SYS"),
		row("GPU2", true, "SYS", "SYS", "X")}
	if got := alikeRows(gpus); len(got) != 3 {
		t.Errorf("GPUs are one row: %s", text(got))
	}
}
