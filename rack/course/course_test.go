package course

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/rdma/fabric"
)

// A test in cmd/rackless makes and mends each puzzle.
func TestEveryPuzzleIsWhole(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for i, p := range Puzzles() {
		n := i + 1
		if names[p.Name] {
			t.Errorf("puzzle %d: there are two called %s", n, p.Name)
		}
		names[p.Name] = true
		for what, text := range map[string]string{"story": p.Story, "hint": p.Hint, "cause": p.Cause} {
			if !strings.HasSuffix(text, ".") || len(text) > 130 && what != "cause" {
				t.Errorf("puzzle %d: %s %q: want a sentence that fits a line", n, what, text)
			}
		}
		if c, ok := finding.Find(p.Finding); !ok || c.Name != p.Finding {
			t.Errorf("puzzle %d: verify has no check %s", n, p.Finding)
		}
		if p.Far && strings.Contains(p.Story+p.Hint, "NCCL_IB_HCA") {
			t.Errorf("puzzle %d tells its answer", n)
		}
		if p.Breaks == "" && p.Link == nil && p.Fault == "" && p.GPU == "" {
			t.Errorf("puzzle %d breaks nothing", n)
		}
		known := p.Fault == ""
		for _, f := range checks.Faults {
			known = known || f.Kind == p.Fault
		}
		if p.GPU != "" {
			known = slices.ContainsFunc(checks.GPUFaults, func(f struct {
				Kind checks.GPUFault
				Help string
			}) bool {
				return f.Kind == p.GPU
			})
		}
		if !known {
			t.Errorf("puzzle %d: there is no fault %s%s", n, p.Fault, p.GPU)
		}
		var l fabric.Link
		for _, e := range slices.Concat(busy, p.Link) {
			if err := l.Set(e.Key, e.Text); err != nil && e.Key != fabric.DownKey {
				t.Errorf("puzzle %d: %v", n, err)
			}
		}
		if err := l.Validate(); err != nil {
			t.Errorf("puzzle %d: %v", n, err)
		}
	}
}

func TestARecordOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	nodes := []lab.Node{{Name: "vm00"}, {Name: "vm01"}}
	l := &Lab{Rack: &rack.Rack{Dir: t.TempDir(), Lab: &lab.Lab{Name: "pair", Nodes: nodes}}}
	for text, want := range map[string]string{
		"": "lab pair has no puzzle", `{"number": 15}`: "puzzle 15 is not in this version", "{": "unexpected end",
		`{"number": 1}`: "",
	} {
		if text != "" {
			if err := os.WriteFile(filepath.Join(l.Dir, puzzleFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := l.Puzzle()
		if got := errorText(err); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q: error %q, want %q", text, got, want)
		}
		if want == "" && !strings.Contains(p.Cause, "vm01") {
			t.Errorf("the cause does not name the node: %s", p.Cause)
		}
		os.Remove(filepath.Join(l.Dir, puzzleFile))
	}
}

func TestPuzzlesThatFit(t *testing.T) {
	t.Parallel()
	fits := func(gpus ...int) (n int) {
		l := &Lab{Rack: &rack.Rack{Lab: &lab.Lab{Name: "x"}}}
		for _, g := range gpus {
			l.Lab.Nodes = append(l.Lab.Nodes, lab.Node{GPUs: g})
		}
		return len(l.Fitting())
	}
	all, ofGPUs, far := len(Puzzles()), 0, 0
	for _, p := range Puzzles() {
		if p.GPU != "" {
			ofGPUs++
		}
		if p.Far {
			far++
		}
	}
	if got := []int{fits(0, 0), fits(1, 1)}; ofGPUs != 3 || far != 1 ||
		!slices.Equal(got, []int{all - ofGPUs - far, all - far}) {
		t.Errorf("%v puzzles fit, of %d, %d with GPUs and %d with a far NIC", got, all, ofGPUs, far)
	}
	vfio, err := lab.Parse("f", []byte("name: x\nnodes: {vm: {count: 2, gpus: {personality: vfio}, "+
		"image: debian-13+vfio}}"))
	if err != nil {
		t.Fatal(err)
	}
	// vfio-pci exports memory whatever the GPU says.
	if got := len((&Lab{Rack: &rack.Rack{Lab: vfio}}).Fitting()); got != all-1-far {
		t.Errorf("%d puzzles of %d fit a lab with GPUs for vfio-pci", got, all)
	}
	text, err := os.ReadFile("../../examples/gpudirect.yaml")
	if err != nil {
		t.Fatal(err)
	}
	two, err := lab.Parse("gpudirect.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if got := len((&Lab{Rack: &rack.Rack{Lab: two}}).Fitting()); got != all {
		t.Errorf("%d puzzles of %d fit examples/gpudirect.yaml", got, all)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
