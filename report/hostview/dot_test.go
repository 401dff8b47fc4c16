package hostview

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rackless/rackless/topology"
)

// Graphviz lays out every graph without a complaint: it has some about graphs that its own grammar allows.
func TestGraphvizLaysOutEveryGraph(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("dot")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("skipped: dot is not installed: %v; to run this test: apt-get install graphviz", err)
	}
	docs := map[string]*Document{"hostile": hostileDocument()}
	for _, c := range hostCases() {
		docs[c.name] = NewDocument(c.host, c.findings)
	}
	for name, d := range docs {
		cmd := exec.CommandContext(t.Context(), path, "-Tsvg")
		cmd.Stdin = bytes.NewReader(written(t, func(b *bytes.Buffer) error { return d.WriteDOT(b) }))
		var out, complaints bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &complaints
		if err := cmd.Run(); err != nil || complaints.Len() > 0 {
			t.Errorf("%s: %v: %.300s", name, err, complaints.String())
		}
		if !strings.Contains(out.String(), "</svg>") {
			t.Errorf("%s: no picture", name)
		}
	}
}

func TestTheGraphHasTheWidthOfLinksAndMarksWhatIsSlower(t *testing.T) {
	out := string(written(t, func(b *bytes.Buffer) error { return NewDocument(epyc(), epycFindings()).WriteDOT(b) }))
	for _, want := range []string{
		`label="Gen3 x4, 3.94 GB/s", penwidth=2]`, `label="Gen3 x8, 7.88 GB/s", penwidth=2.8]`,
		`label="Gen1/4 x16, 4 GB/s", penwidth=2, style=dashed, color="#b35c00"`,
		`\nwarning RL003"`, `label="NUMA node 3\nerror RL040"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

// Lines between all pairs of eight GPUs in clusters are more than dot can lay out.
func TestNVLinksOfAllPairsAreOneNode(t *testing.T) {
	out := string(written(t, func(b *bytes.Buffer) error { return NewDocument(dgx(), nil).WriteDOT(b) }))
	if n := strings.Count(out, "#00795a"); n != 9 { // the node and its eight lines
		t.Errorf("%d lines of NVLink", n)
	}
	out = string(written(t, func(b *bytes.Buffer) error { return NewDocument(matrixOnly(), nil).WriteDOT(b) }))
	if n := strings.Count(out, "constraint=false"); n != 28 {
		t.Errorf("%d pairs of eight GPUs", n)
	}
}

func TestTextInAGraphIsQuoted(t *testing.T) {
	for in, want := range map[string]string{`a"b`: `"a\"b"`, `a\N`: `"a\\N"`, "a\nb": `"a\nb"`, "\x1b": `"\\x1b"`} {
		if got := quoted(in); got != want {
			t.Errorf("%q became %s, want %s", in, got, want)
		}
	}
}

func TestARootComplexOfWhichNothingIsDrawnIsInTheGraph(t *testing.T) {
	h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0, CPUs: set("0")}}}
	function(h, "0000:00:1f.0", "", "pci0000:00", 0, 0x060100, topology.VendorIntel, 1, "", nil)
	h.Complete()
	out := string(written(t, func(b *bytes.Buffer) error { return NewDocument(h, nil).WriteDOT(b) }))
	if !strings.Contains(out, `label="+ 1 root complex with 1 function"`) {
		t.Errorf("got\n%s", out)
	}
}
