package planview

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/rivals"
)

func large(n int) *plan.Plan {
	pl := &plan.Plan{
		Schema: plan.Schema, Lab: "large", Workload: "mixed", Host: plan.HostRef{Name: "host.ttar", Model: "ACME 2000"},
		Cost: 1240, Bound: 1200, Stopped: "time limit 2s",
		Housekeeping: plan.Housekeeping{CPUs: topology.CPUs(0, 1), Cores: 1, TenantCPUs: topology.CPURange(200, 215)},
		Hugepages: []plan.Hugepages{{NUMANode: 0, PageBytes: 1 << 30, Count: 4, Held: 2},
			{NUMANode: 1, PageBytes: 1 << 30, Count: 4}},
		VFs: []plan.PFCount{{PF: "0000:41:00.0", Count: 8, Lab: 6}, {PF: "0000:61:00.0", Count: 2, Lab: 2}},
		KernelArgs: []string{"iommu=pt", "isolcpus=managed_irq,domain," + strings.Repeat("2,4,6,", 40) + "8",
			"nohz_full=2-199"},
		KernelWhy: []string{"", "", ""},
		Notes: []string{"the host does not tell the distances between its NUMA nodes: taken as 10 within a " +
			"node and 20 to another"},
	}
	for i := range n {
		name := fmt.Sprintf("vm%02d", i)
		node := plan.Node{
			Name: name, VCPUs: []int{4 * i, 4*i + 1, 4*i + 2, 4*i + 3}, Cores: 2, Threads: 2, SMT: true,
			EmulatorCPUs: topology.CPUs(0),
			IOThreadCPUs: topology.CPUs(1), MemoryBytes: 3 << 29,
			Memory:    []plan.NodeMemory{{NUMANode: 0, Bytes: 1 << 30}, {NUMANode: 1, Bytes: 1 << 29}},
			GuestNUMA: true, Cells: []plan.Cell{{NUMANodes: []int{0, 2}, VCPUs: 3, Bytes: 1 << 30},
				{Cell: 1, NUMANodes: []int{1}, FirstVCPU: 3, VCPUs: 1, Bytes: 1 << 29},
				{Cell: 2, NUMANodes: []int{3}}},
			Cards: []plan.NodeDevice{
				{ID: "0000:06:00.0", Kind: plan.KindGPU, Model: "GA102 [GeForce RTX 3090]",
					Functions: []string{"0000:06:00.0", "0000:06:00.1"}, NUMANode: new(0), Cell: new(0)},
				{ID: "0000:41:00.0", Kind: plan.KindVF, VF: new(i),
					Functions: []string{fmt.Sprintf("0000:41:00.0/vf%d", i)}, NUMANode: new(1)},
				{ID: "0000:61:00.0", Kind: plan.KindVF, VF: new(1), Functions: []string{"0000:61:00.4"}},
			},
		}
		pl.Nodes = append(pl.Nodes, node)
		pl.Terms = append(pl.Terms, plan.Term{Node: name, Term: plan.TermGPUNICPath, Value: 2, Weight: 600, Cost: 1200},
			plan.Term{Node: name, Term: plan.TermNUMASpan, Weight: 100})
		pl.Decisions = append(pl.Decisions, plan.Decision{Node: name, What: "smt", Choice: "on", RunnerUp: "off",
			Evidence: []string{"short"}},
			plan.Decision{Node: name, What: "cores", Choice: "2 cores of " + name, RunnerUp: "others",
				RunnerUpCost: new(int64(i)),
				Evidence: []string{"a line of evidence that many choices rest on, and that is long enough for a " +
					"number of its own: published somewhere"}})
	}
	pl.Terms = append(pl.Terms, plan.Term{Among: []string{"vm00", "vm01", "vm02", "vm03"}, Term: plan.TermUnequal,
		Value: 4, Weight: 10, Cost: 40},
		plan.Term{Node: "vm00", Term: "a_term_of_tomorrow", Value: 1, Weight: 1, Cost: 1})
	pl.Advice = []plan.Advice{{What: "move NIC 0000:41:00.0 to a slot of NUMA node 0", Gain: 636,
		Why: "GPU-NIC path of vm00 from SYS to PHB"}}
	return pl
}

func everything(t *testing.T, pl *plan.Plan, o Options) string {
	t.Helper()
	outcomes := []rivals.Outcome{
		{Rival: "libvirt", Placement: &plan.Placement{}, Cost: 2000,
			Terms:  []plan.Term{{Term: plan.TermNUMASpan, Cost: 2000}},
			Broken: []string{"vm00 and vm01 share cores 0-2"}},
		{Rival: "nobody", Refused: "vm00: no NUMA node has enough"},
		{Rival: "same", Placement: &plan.Placement{}, Cost: pl.Cost, Terms: pl.Terms},
	}
	return string(written(t, func(b *bytes.Buffer) error {
		return errors.Join(Against(b, pl, pl, []string{"score from 1 to 2: 1 higher"}, o), Table(b, pl, o),
			Explain(b, pl, o), Compare(b, pl, outcomes, o))
	}))
}

func TestNoLineIsWiderThanAskedForUnlessAWordIs(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4, 40} {
		for _, width := range []int{0, 1, 60, 72, 100, 200} {
			out := everything(t, large(n), Options{Width: width})
			limit := max(width, 60)
			if width == 0 {
				limit = 100
			}
			for line := range strings.SplitSeq(out, "\n") {
				if w := text.StringWidth(line); w > limit && len(strings.Fields(line)) > 1 {
					t.Errorf("%d lab nodes, width %d: line of %d columns: %q", n, width, w, line)
				}
				if strings.TrimRight(line, " ") != line {
					t.Errorf("%d lab nodes, width %d: spaces behind %q", n, width, line)
				}
			}
		}
	}
}

func TestEachFactOfAPlanIsPrinted(t *testing.T) {
	t.Parallel()
	out := everything(t, large(4), Options{})
	for _, want := range []string{
		"Plan of lab large on ACME 2000 (host.ttar), workload mixed: 4 lab nodes",
		"Score 1240, within 4 % of the lowest: no placement scores below 1200, stopped by time limit",
		"placement     within 4 % of the best; the search was stopped by time limit",
		"vm01: 4 virtual CPUs on 2 cores with siblings, 1.5 GiB",
		"1 GiB on NUMA node 0 and 512 MiB on NUMA node 1",
		"guest node 0  stands for NUMA nodes 0 and 2: virtual CPUs 0-2, 1 GiB",
		"guest node 1  stands for NUMA node 1: virtual CPU 3, 512 MiB",
		"guest node 2  stands for NUMA node 3: no virtual CPUs, 0 B",
		"GPU 0000:06:00.0 (NUMA node 0, guest node 0) with 0000:06:00.1, GA102",
		"VF 1 of 0000:41:00.0 (NUMA node 1)",
		"VF 1 of 0000:61:00.0: 0000:61:00.4",
		"emulator      CPUs 0, I/O threads 1",
		"other VMs     CPUs 200-215",
		"4 x 1 GiB on NUMA node 0 beside 2 in use",
		"0000:41:00.0 has to have 8, of them 6 for the lab",
		"iommu=pt",
		"vm00 and 3 more",
		"a_term_of_tomorrow",
		"Next best: off, which is not possible here.",
		"Next best: others, with the same score.",
		"Next best: others, which scores 3 higher.",
		"All lab nodes",
		"See [1].",
		"[1] A line of evidence",
		"1. Move NIC 0000:41:00.0 to a slot of NUMA node 0: saves 636.",
		"+760", "same", "refuses: vm00: no NUMA node has enough", "breaks: vm00 and vm01 share cores 0-2",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestManyLabNodesAreATable(t *testing.T) {
	t.Parallel()
	out := string(written(t, func(b *bytes.Buffer) error { return Table(b, large(40), Options{}) }))
	if !strings.Contains(out, "\nLab nodes\n") || !strings.Contains(out, "vm39") ||
		!strings.Contains(out, "0000:41:00.0/vf39") {
		t.Errorf("got\n%s", out)
	}
	out = string(written(t, func(b *bytes.Buffer) error { return Explain(b, large(40), Options{}) }))
	if !strings.Contains(out, "and 34 more; -o json has all") {
		t.Error("terms beyond the first are not counted")
	}
}

func TestWhatIsOptimalSaysSo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pl   plan.Plan
		want string
	}{
		{plan.Plan{Cost: 5, Bound: 5, Optimal: true}, "score 5, proven the lowest"},
		{plan.Plan{Cost: 1001, Bound: 1000}, "score 1001, within 1 % of the lowest: no placement scores below " +
			"1000"},
		{plan.Plan{Cost: 7, Stopped: "step limit 10"},
			"score 7, not proven the lowest, stopped by step limit 10"},
	} {
		if got := scoreText(&c.pl); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestNothingDifferentIsSaid(t *testing.T) {
	t.Parallel()
	pl := large(1)
	out := string(written(t, func(b *bytes.Buffer) error { return Against(b, pl, pl, nil, Options{}) }))
	if !strings.Contains(out, "Nothing is different.") {
		t.Errorf("got %q", out)
	}
}

func TestHostileTextCannotSteerATerminal(t *testing.T) {
	t.Parallel()
	const evil = "x\x1b[2J\r\n\u202e\xff"
	pl := large(2)
	pl.Lab, pl.Host.Name, pl.Host.Model, pl.Stopped = evil, evil, evil, evil
	pl.Optimal = false
	pl.Notes, pl.KernelArgs = []string{evil}, []string{evil + "=1"}
	pl.VFs[0].PF = evil
	pl.Nodes[0].Name, pl.Nodes[0].VCPUs = evil, []int{-1, 1 << 30, 3}
	pl.Nodes[0].Cards[0] = plan.NodeDevice{ID: evil, Kind: evil, Model: evil, Functions: []string{evil, evil}}
	pl.Terms[0].Node, pl.Terms[0].Term = evil, evil
	pl.Decisions[0] = plan.Decision{Node: evil, What: evil, Choice: evil, RunnerUp: evil, Evidence: []string{evil}}
	pl.Advice[0] = plan.Advice{What: evil, Gain: 1, Why: evil}
	out := everything(t, pl, Options{Width: 60})
	for _, r := range out {
		if r < ' ' && r != '\n' || r == '\u202e' || r == 0x7f {
			t.Fatalf("%q is in what is printed", r)
		}
	}
}

func TestAnEmptyPlanIsPrinted(t *testing.T) {
	t.Parallel()
	if out := everything(t, &plan.Plan{}, Options{}); !strings.Contains(out, "Plan of lab  on the host") &&
		!strings.Contains(out, "Plan of lab") {
		t.Errorf("got %q", out)
	}
}

type fullDisk struct{}

var errFull = errors.New("disk full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestAnErrorOfWritingIsReturned(t *testing.T) {
	t.Parallel()
	pl := large(2)
	for _, err := range []error{Table(fullDisk{}, pl, Options{}), Explain(fullDisk{}, pl, Options{}),
		Compare(fullDisk{}, pl, nil, Options{}),
		Against(fullDisk{}, pl, pl, nil, Options{})} {
		if !errors.Is(err, errFull) {
			t.Errorf("got %v, want %v", err, errFull)
		}
	}
}
