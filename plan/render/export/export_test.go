package export_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/plan/render/export"
)

const examples = "../../../examples/"

var cases = []struct{ name, lab, host string }{
	{"epyc-pair", "epyc-pair.yaml", "epyc-7551p.ttar"},
	{"r740-one", "r740-one.yaml", "r740.ttar"},
	{"r740-eight", "r740-eight.yaml", "r740.ttar"},
	{"pair", "pair.yaml", ""},
	{"slurm", "../plan/render/export/testdata/slurm.yaml", ""},
}

func input(t testing.TB, labFile, host string) render.Input {
	t.Helper()
	l, err := planner.ReadLab(examples + labFile)
	if err != nil {
		t.Fatal(err)
	}
	in := render.Input{Lab: l, Made: "rackless test: lab " + l.Name}
	if host == "" {
		return in
	}
	h, _, err := planner.Hosts{}.Read(t.Context(), examples+"hosts/"+host)
	if err != nil {
		t.Fatal(err)
	}
	q, err := planner.New(host, labFile, l, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := q.Solve(t.Context(), h, l)
	if err != nil {
		t.Fatal(err)
	}
	in.Plan, in.Host = r.Plan, r.Host
	return in
}

func TestFilesOfEachFormat(t *testing.T) {
	t.Parallel()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, c.lab, c.host)
			for _, f := range export.Formats() {
				if f.Unplaced != (c.host == "") {
					continue
				}
				files, err := f.Render(in)
				if err != nil {
					t.Fatalf("%s: %v", f.Name, err)
				}
				again, err := f.Render(in)
				if diff := cmp.Diff(files, again); diff != "" || err != nil {
					t.Errorf("%s: not the same bytes again: %v\n%s", f.Name, err, diff)
				}
				dir := filepath.Join("testdata", c.name, f.Name)
				if golden.Update() {
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
				}
				for _, file := range files {
					golden.Check(t, filepath.Join(dir, filepath.FromSlash(file.Path)), file.Data)
				}
			}
		})
	}
}

// A matrix of names has no device addresses.
func TestAHostWithoutAddressesIsRefused(t *testing.T) {
	t.Parallel()
	in := input(t, "h20-two.yaml", "h20.txt")
	for _, f := range export.Formats() {
		if f.Unplaced {
			continue
		}
		if _, err := f.Render(in); err == nil || !strings.Contains(err.Error(), "rackless host snapshot") {
			t.Errorf("%s: error %v does not say how to read the machine", f.Name, err)
		}
		if _, err := f.Render(render.Input{}); err == nil {
			t.Errorf("%s: no error without a plan", f.Name)
		}
	}
}

// Names that differ only in characters that other systems drop would refer to one machine.
func TestNamesThatBecomeOneAreRefused(t *testing.T) {
	t.Parallel()
	in := input(t, "epyc-pair.yaml", "epyc-7551p.ttar")
	in.Plan.Nodes[0].Name, in.Plan.Nodes[1].Name = "vm_0", "vm-0"
	if _, err := export.KubeVirt(in); err == nil ||
		!strings.Contains(err.Error(), `would both be named "epyc-pair-vm-0"`) {
		t.Errorf("error %v", err)
	}
}

// Reading the files for Proxmox VE back gives the planned machine.
func TestProxmoxIsReadBackAsPlanned(t *testing.T) {
	t.Parallel()
	for _, c := range cases[:3] {
		in := input(t, c.lab, c.host)
		files, err := export.Proxmox(in)
		if err != nil {
			t.Fatal(err)
		}
		for i, file := range files {
			h, err := inspect.ReadStream(t.Context(), bytes.NewReader(file.Data), file.Path)
			if err != nil {
				t.Fatal(err)
			}
			n := &in.Plan.Nodes[i]
			var nodes topology.CPUSet
			for _, m := range n.Memory {
				nodes = nodes.Union(topology.CPUs(m.NUMANode))
			}
			got := h.Tenants[0]
			if got.VCPUs != len(n.VCPUs) || !got.Floating.Equal(n.CPUs()) || *got.MemoryBytes != n.MemoryBytes ||
				!got.MemoryNodes.Equal(nodes) || got.MemoryMode != "strict" || len(got.Devices) != len(n.Cards) {
				t.Errorf("%s %s is read back as %+v", c.name, n.Name, got)
			}
		}
	}
}

// Several YAML files are one stream of documents.
func TestStreamNamesItsFiles(t *testing.T) {
	t.Parallel()
	one := []render.Artifact{{Path: "a", Data: []byte("x\n")}}
	if got := string(export.Stream(one)); got != "x\n" {
		t.Errorf("one file is printed as %q", got)
	}
	two := append(one, render.Artifact{Path: "b", Data: []byte("---\ny: 1\n")})
	if got, want := string(export.Stream(two)), "# ==> a <==\nx\n\n# ==> b <==\n---\ny: 1\n"; got != want {
		t.Errorf("two files are printed as %q, want %q", got, want)
	}
}
