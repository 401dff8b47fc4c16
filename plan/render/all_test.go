package render

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// Artifacts is replaced by artifacts_test.go to add the commands of package host, which imports this one.
var Artifacts = All

// Example is for artefacts_test.go.
var Example = hostEPYC

func render(t testing.TB, in Input) map[string]Artifact {
	t.Helper()
	all, err := Artifacts(in)
	if err != nil {
		t.Fatal(err)
	}
	byPath := make(map[string]Artifact, len(all))
	for _, a := range all {
		if _, twice := byPath[a.Path]; twice {
			t.Errorf("two artefacts at %s", a.Path)
		}
		byPath[a.Path] = a
	}
	return byPath
}

func skipsGolden(name string) bool {
	return strings.HasPrefix(name, "domains/") || name == "plan.json" || name == "lab.yaml"
}

func TestArtefactsOfTheHostAreAsWritten(t *testing.T) {
	for _, c := range hostCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all, err := Artifacts(c.in(t))
			if err != nil {
				t.Fatal(err)
			}
			var index strings.Builder
			for _, a := range all {
				index.WriteString(a.Mode.String() + " " + a.Path + "\n")
				if !skipsGolden(a.Path) {
					golden.Check(t, "testdata/host/"+c.name+"/"+a.Path, a.Data)
				}
			}
			golden.Check(t, "testdata/host/"+c.name+"/INDEX", []byte(index.String()))
		})
	}
}

func TestEveryFileSaysWhatMadeIt(t *testing.T) {
	t.Parallel()
	for _, c := range hostCases() {
		in := c.in(t)
		for name, a := range render(t, in) {
			if name == "plan.json" || name == "lab.yaml" {
				continue // JSON has no comments; the lab file has its own name
			}
			head := string(a.Data[:min(len(a.Data), 600)])
			if !strings.Contains(strings.Join(strings.Fields(head), " "), in.Made) {
				t.Errorf("%s/%s does not say %q at its top:\n%s", c.name, name, in.Made, head)
			}
			if !bytes.HasSuffix(a.Data, []byte("\n")) {
				t.Errorf("%s/%s does not end with a line break", c.name, name)
			}
		}
	}
}

func TestPathsStayInsideTheDirectory(t *testing.T) {
	t.Parallel()
	for _, c := range hostCases() {
		for name := range render(t, c.in(t)) {
			if name != path.Clean(name) || path.IsAbs(name) || strings.HasPrefix(name, "../..") {
				t.Errorf("%s: path %q", c.name, name)
			}
		}
	}
}

func TestAllGivesTheSameBytesAgain(t *testing.T) {
	t.Parallel()
	in := hostH20(t)
	first, err := All(in)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		again, err := All(in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestPlanAndLabComeBackFromTheirFiles(t *testing.T) {
	t.Parallel()
	in := hostR740(t)
	all := render(t, in)
	var p plan.Plan
	if err := json.Unmarshal(all["plan.json"].Data, &p); err != nil {
		t.Fatal(err)
	}
	got, want := mustJSON(t, &p), mustJSON(t, in.Plan)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := lab.Parse("lab.yaml", all["lab.yaml"].Data); err != nil {
		t.Error(err)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAPlanThatCannotBeRenderedIsAnError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Input)
		want   string
	}{
		{"no plan", func(in *Input) { in.Plan = nil }, "no plan"},
		{"no lab", func(in *Input) { in.Lab = nil }, "no lab"},
		{"an argument with a space", func(in *Input) {
			in.Plan.KernelArgs[0] = "iommu=pt init=/bin/sh x"
		}, `kernel_args[0] is "iommu=pt init=/bin/sh x"`},
		{"an argument with a quote", func(in *Input) { in.Plan.KernelArgs[0] = `a="b` }, "kernel_args[0]"},
		{"an argument that would run a command in GRUB", func(in *Input) {
			in.Plan.KernelArgs[0] = "a=$(reboot)"
		}, "kernel_args[0]"},
		{"a bare isolcpus=", func(in *Input) { in.Plan.KernelArgs[1] = "isolcpus=" }, "without a value"},
		{"isolcpus with flags only", func(in *Input) {
			in.Plan.KernelArgs[1] = "isolcpus=managed_irq,domain"
		}, "without CPUs"},
		{"nohz_full that is no list", func(in *Input) {
			in.Plan.KernelArgs[2] = "nohz_full=a-b"
		}, "want a list of CPUs"},
		{"more than a kernel reads", func(in *Input) {
			in.Plan.KernelArgs[3] = "x=" + strings.Repeat("1", 2048)
		}, "the kernel reads 2047"},
		{"a CPU that cannot be", func(in *Input) { in.Plan.Nodes[0].VCPUs[0] = -1 }, "CPU -1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := hostEPYC(t)
			tt.change(&in)
			if _, err := All(in); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v; want one with %q", err, tt.want)
			}
		})
	}
}
