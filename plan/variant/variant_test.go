package variant

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
)

func planned(t *testing.T, host, text string) (*plan.Plan, *topology.Host) {
	t.Helper()
	h, err := inspect.ReadFile(context.Background(), filepath.Join("..", "..", "examples", "hosts", host))
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Parse("lab.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := build.Problem(h, l, build.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := search.Solve(t.Context(), p, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return plan.Assemble(h, l, p, plan.Outcome{Placement: r.Placement, Bound: r.Bound, Optimal: r.Optimal}), h
}

func encoded(t *testing.T, p *plan.Plan) string {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func cores(t *testing.T, h *topology.Host, cpus []int) []int {
	t.Helper()
	var all []int
	for _, cpu := range cpus {
		for _, c := range h.Cores {
			first := slices.Collect(c.CPUs.All())[0]
			if c.CPUs.Contains(cpu) && !slices.Contains(all, first) {
				all = append(all, first)
			}
		}
	}
	slices.Sort(all)
	return all
}

// Each lab node has the same number of cores, all of its memory and its own devices, and nothing becomes shared.
func TestEveryLevelHasTheSameToWorkWith(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, host, lab string }{
		{"a pair that spans nodes", "epyc-7551p.ttar",
			"name: a\nnodes:\n  vm: {count: 2, cpus: 28, memory: 16GiB, gpus: 1, guest_numa: on}\n"},
		{"a pair of small nodes", "epyc-7551p.ttar",
			"name: b\nnodes:\n  vm: {count: 2, cpus: 4, memory: 4GiB, gpus: 1, nics: 0}\n"},
		{"siblings not asked for", "epyc-7551p.ttar",
			"name: c\nnodes:\n  vm: {count: 2, cpus: 4, memory: 4GiB, gpus: 1, nics: 0, smt: off}\n"},
	} {
		p, h := planned(t, tt.host, tt.lab)
		before := encoded(t, p)
		for _, level := range Levels() {
			t.Run(tt.name+"/"+level, func(t *testing.T) {
				v, err := Of(p, h, level)
				if err != nil {
					t.Fatal(err)
				}
				taken := map[int]string{}
				var memory uint64
				for i, n := range v.Nodes {
					was := p.Nodes[i]
					own := cores(t, h, n.VCPUs)
					if len(own) != len(cores(t, h, was.VCPUs)) {
						t.Errorf("%s has %d cores, and had %d", n.Name, len(own), len(cores(t, h, was.VCPUs)))
					}
					if same := slices.Equal(own, cores(t, h, was.VCPUs)); same == (level == WrongNUMA) {
						t.Errorf("%s is on cores %v, planned were %v", n.Name, own, was.VCPUs)
					}
					if want := len(own) * n.Threads; len(n.VCPUs) != want || n.SMT != (level == PinSMT) ||
						n.Threads > 1 != (level == PinSMT) {
						t.Errorf("%s has %d virtual CPUs on %d cores, %d threads", n.Name, len(n.VCPUs), len(own),
							n.Threads)
					}
					for _, c := range own {
						if other := taken[c]; other != "" {
							t.Errorf("%s and %s share the core of CPU %d", other, n.Name, c)
						}
						taken[c] = n.Name
					}
					if !slices.Equal(n.Devices, was.Devices) || n.MemoryBytes != was.MemoryBytes {
						t.Errorf("%s has devices %v and %d bytes, and had %v and %d", n.Name, n.Devices, n.MemoryBytes,
							was.Devices, was.MemoryBytes)
					}
					if n.Unpinned != (level == Default) || n.Unbound != (level == Default || level == Pin) ||
						n.GuestNUMA && n.Unbound {
						t.Errorf("%s: unpinned %t, unbound %t, guest NUMA %t", n.Name, n.Unpinned, n.Unbound,
							n.GuestNUMA)
					}
					if level == WrongNUMA && homes(&n).Overlaps(homes(&was)) {
						t.Errorf("%s is on NUMA nodes %s, which are those of the plan", n.Name, homes(&n))
					}
					for _, m := range n.Memory {
						memory += m.Bytes
					}
				}
				var pages uint64
				for _, pool := range v.Hugepages {
					pages += uint64(pool.Count) * pool.PageBytes
				}
				if pages != memory {
					t.Errorf("pages of %d bytes for %d bytes of memory", pages, memory)
				}
			})
		}
		if diff := cmp.Diff(before, encoded(t, p)); diff != "" {
			t.Errorf("%s: the plan itself has changed:\n%s", tt.name, diff)
		}
	}
}

func TestLevelsThatCannotBeHadSayWhy(t *testing.T) {
	t.Parallel()
	one, h := planned(t, "epyc-7551p.ttar", "name: a\nnodes:\n  vm: {count: 1, cpus: 28, memory: 16GiB}\n")
	hidden, _ := planned(t, "epyc-7551p.ttar",
		"name: a\nnodes:\n  vm: {count: 1, cpus: 28, memory: 16GiB, guest_numa: off}\n")
	noSMT := *h
	noSMT.Cores = slices.Clone(h.Cores)
	for i := range noSMT.Cores {
		noSMT.Cores[i].CPUs = topology.CPUs(slices.Collect(h.Cores[i].CPUs.All())[0])
	}
	small, _ := planned(t, "epyc-7551p.ttar", "name: a\nnodes:\n  vm: {count: 1, cpus: 4, memory: 4GiB, nics: 0, "+
		"smt: off}\n")
	empty := *h // no pages are set aside
	empty.NUMANodes = slices.Clone(h.NUMANodes)
	for i := range empty.NUMANodes {
		empty.NUMANodes[i].Hugepages = nil
	}
	for _, tt := range []struct {
		plan        *plan.Plan
		host        *topology.Host
		level, want string
	}{
		{one, h, "elsewhere", "placement \"elsewhere\": want one of [default"},
		{one, h, WrongNUMA, "lab node vm00: no NUMA node is wrong for it: no other lab node of its size is on " +
			"another one, and it is on"},
		{hidden, h, PinNUMA, "set guest_numa: on in the lab"},
		{small, &noSMT, PinSMT, "one thread each"},
		{small, &topology.Host{}, Pin, "is on no core of the host"},
		{small, &empty, WrongNUMA, "no other NUMA node has"},
	} {
		if _, err := Of(tt.plan, tt.host, tt.level); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.level, err, tt.want)
		}
	}
	if _, err := Pages(small, 3<<30); err == nil || !strings.Contains(err.Error(),
		"no whole pages of 3221225472 bytes") {
		t.Errorf("pages that do not fit: %v", err)
	}
	off, err := Pages(small, 0)
	if err != nil || len(off.Hugepages) != 0 || off.Nodes[0].Memory[0].PageBytes != 0 ||
		small.Nodes[0].Memory[0].PageBytes == 0 {
		t.Errorf("no hugepages: %v, %+v", err, off)
	}
}

// The farthest NUMA node needs memory and spare cores.
func TestALabNodeAloneGoesFarAway(t *testing.T) {
	t.Parallel()
	p, h := planned(t, "epyc-7551p.ttar", "name: a\nhugepages: off\nnodes:\n  vm: {count: 1, cpus: 4, memory: 4GiB, "+
		"gpus: 1, nics: 0}\n")
	host := *h
	host.NUMANodes = slices.Clone(h.NUMANodes)
	for i := range host.NUMANodes {
		host.NUMANodes[i].FreeBytes = new(uint64(8 << 30))
	}
	v, err := Of(p, &host, WrongNUMA)
	if err != nil {
		t.Fatal(err)
	}
	n := v.Nodes[0]
	if homes(&n).Overlaps(homes(&p.Nodes[0])) || len(n.VCPUs) != len(cores(t, h, p.Nodes[0].VCPUs)) ||
		!topology.CPUs(n.VCPUs...).IsSubsetOf(p.Housekeeping.CPUs) {
		t.Errorf("it is on CPUs %v, housekeeping has %s", n.VCPUs, p.Housekeeping.CPUs)
	}
	if left := v.Notes[0]; !strings.Contains(strings.Join(v.Notes, "; "), "which are not isolated") {
		t.Errorf("nobody is told: %v", left)
	}
	for i := range host.NUMANodes {
		host.NUMANodes[i].FreeBytes = new(uint64(1 << 30))
	}
	if _, err := Of(p, &host, WrongNUMA); err == nil {
		t.Error("memory that is not there was taken")
	}
}
