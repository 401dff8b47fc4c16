package rivals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
	"github.com/rackless/rackless/plan/rivals"
	"github.com/rackless/rackless/plan/search"
)

// A placement must be complete, within memory, with the requested devices and reproducible; if it keeps all rules, it
// must not cost less than the proved optimum.
func TestRandomProblems(t *testing.T) {
	t.Parallel()
	placed, kept := map[string]int{}, map[string]int{}
	for seed := range uint64(1500) {
		p := plantest.Small(seed)
		best, err := search.Solve(context.Background(), p, search.Options{})
		infeasible := errors.Is(err, search.ErrInfeasible)
		if err != nil && !infeasible {
			t.Fatalf("seed %d: %v", seed, err)
		}
		first, again := rivals.Compare(p), rivals.Compare(plantest.Small(seed))
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("seed %d: not the same twice (-first +again)\n%s", seed, diff)
		}
		for _, o := range first {
			if o.Placement == nil {
				if o.Refused == "" || o.Cost != 0 || o.Terms != nil {
					t.Errorf("seed %d: %s: neither placed nor refused: %+v", seed, o.Rival, o)
				}
				continue
			}
			placed[o.Rival]++
			if why := incomplete(p, &o); why != "" {
				t.Errorf("seed %d: %s: %s", seed, o.Rival, why)
			}
			if len(o.Broken) > 0 {
				continue
			}
			kept[o.Rival]++
			switch {
			case infeasible:
				t.Errorf("seed %d: %s places by all rules what is proved to be infeasible: %+v", seed, o.Rival,
					o.Placement)
			case o.Cost < best.Bound:
				t.Errorf("seed %d: %s costs %d, less than the proved bound %d", seed, o.Rival, o.Cost, best.Bound)
			}
		}
	}
	for _, r := range rivals.All() {
		// Every rival must place some labs, and all but one must keep the rules in some.
		if placed[r.ID] == 0 || (kept[r.ID] > 0) == (r.ID == "libvirt-default") {
			t.Errorf("%s placed %d labs and kept the rules in %d: the problems are too hard to tell", r.ID,
				placed[r.ID], kept[r.ID])
		}
	}
}

func incomplete(p *plan.Problem, o *rivals.Outcome) string {
	if got := plan.Cost(o.Terms); got != o.Cost {
		return fmt.Sprintf("cost %d, terms add up to %d", o.Cost, got)
	}
	if len(o.Placement.Nodes) != len(p.Requests) {
		return fmt.Sprintf("%d lab nodes of %d", len(o.Placement.Nodes), len(p.Requests))
	}
	cores := map[int]*plan.Core{}
	for i := range p.Cores {
		cores[p.Cores[i].ID] = &p.Cores[i]
	}
	pages := map[int]int64{}
	bundle, whole, vfs := map[int]int{}, map[int]bool{}, map[int]int{}
	for i, n := range o.Placement.Nodes {
		r := &p.Requests[i]
		if len(n.Cores) != r.Cores && len(o.Broken) == 0 {
			return fmt.Sprintf("%s has %d cores, want %d", r.Name, len(n.Cores), r.Cores)
		}
		for k, id := range n.Cores {
			if k > 0 && n.Cores[k-1] >= id {
				return fmt.Sprintf("%s: cores %v are not ascending", r.Name, n.Cores)
			}
			if c := cores[id]; c == nil || c.Tenant != "" {
				return fmt.Sprintf("%s: core %d is not there or a tenant's", r.Name, id)
			}
		}
		var sum int64
		for k, m := range n.Memory {
			if m.Pages <= 0 || k > 0 && n.Memory[k-1].NUMANode >= m.NUMANode {
				return fmt.Sprintf("%s: memory %v", r.Name, n.Memory)
			}
			sum += m.Pages
			pages[m.NUMANode] += m.Pages
		}
		if sum != r.Pages {
			return fmt.Sprintf("%s has %d pages, want %d", r.Name, sum, r.Pages)
		}
		for _, d := range append(append([]int{}, n.GPUs...), n.NICs...) {
			if owner, given := bundle[p.Devices[d].Bundle]; whole[d] || !p.Devices[d].Whole || given && owner != i {
				return fmt.Sprintf("%s: device %d is not to be given, or twice, or of a split bundle", r.Name, d)
			}
			whole[d] = true
			bundle[p.Devices[d].Bundle] = i
		}
		for _, v := range n.VFs {
			vfs[v.Device] += v.Count
		}
		if why := unserved(r.GPUs, n.GPUs); why != "" {
			return fmt.Sprintf("%s: GPUs: %s", r.Name, why)
		}
		if why := unserved(r.NICs, n.NICs); why != "" {
			return fmt.Sprintf("%s: NICs: %s", r.Name, why)
		}
		var units []int
		for _, v := range n.VFs {
			for range v.Count {
				units = append(units, v.Device)
			}
		}
		if why := unserved(r.VFs, units); why != "" {
			return fmt.Sprintf("%s: VFs: %s", r.Name, why)
		}
	}
	for d, n := range vfs {
		if _, given := bundle[p.Devices[d].Bundle]; given || n > p.Devices[d].VFs {
			return fmt.Sprintf("device %d gives %d virtual functions of %d, or is given whole too", d, n,
				p.Devices[d].VFs)
		}
	}
	for _, n := range p.NUMANodes {
		if n.Pages != nil && pages[n.ID] > *n.Pages {
			return fmt.Sprintf("NUMA node %d has %d pages, %d are given", n.ID, *n.Pages, pages[n.ID])
		}
	}
	return ""
}

func unserved(wants []plan.Want, devices []int) string {
	var open []plan.Want
	for _, w := range wants {
		for range w.Count {
			open = append(open, w)
		}
	}
	if len(open) != len(devices) {
		return fmt.Sprintf("%d for %d", len(devices), len(open))
	}
	used := make([]bool, len(devices))
	var try func(k int) bool
	try = func(k int) bool {
		if k == len(open) {
			return true
		}
		for i, d := range devices {
			if used[i] {
				continue
			}
			for _, ok := range open[k].Any {
				if ok == d {
					used[i] = true
					if try(k + 1) {
						return true
					}
					used[i] = false
				}
			}
		}
		return false
	}
	if !try(0) {
		return fmt.Sprintf("%v do not serve %v", devices, wants)
	}
	return ""
}

func TestErrorsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := plantest.Small(1)
	for _, tt := range []struct {
		name   string
		change func(p *plan.Problem)
		want   string
	}{
		{"a node that is not there", func(p *plan.Problem) {
			p.Cores = append(p.Cores, plan.Core{ID: 99, CPUs: []int{99}, NUMANode: 77})
		},
			"problem: core 99: NUMA node 77 is not listed, or it has no CPUs"},
		{"vCPUs that do not divide", func(p *plan.Problem) {
			p.Requests = []plan.Request{{Name: "a", VCPUs: 3, Threads: 2, Cores: 1}}
		},
			`problem: request "a": 3 vCPUs are not 1 cores of 2 threads, or 0 pages are less than none`},
		{"more virtual functions than PCI can count", func(p *plan.Problem) {
			p.Devices = []plan.Device{{ID: "0000:01:00.0", Kind: plan.KindNIC, VFs: 70000}}
		}, `problem: device "0000:01:00.0": 70000 virtual functions, want 0 to 65535`},
		{"a device that is not there", func(p *plan.Problem) {
			p.Requests = []plan.Request{{Name: "a", VCPUs: 1, Threads: 1, Cores: 1,
				NICs: []plan.Want{{Count: 1, Any: []int{1000}}}}}
		}, fmt.Sprintf(`problem: request "a": device 1000 of %d`, len(p.Devices))},
		{"an affinity of nobody", func(p *plan.Problem) {
			p.Affinity = []plan.Affinity{{Requests: []int{0, 50}}}
		},
			fmt.Sprintf("problem: affinity names request 50 of %d", len(p.Requests))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := plantest.Small(1)
			tt.change(p)
			for _, o := range rivals.Compare(p) {
				if o.Placement != nil || o.Refused != tt.want {
					t.Errorf("%s: got %q\nwant %q", o.Rival, o.Refused, tt.want)
				}
			}
		})
	}
	for _, o := range rivals.Compare(&plan.Problem{Requests: []plan.Request{{Name: "a"}}}) {
		if o.Placement != nil || o.Refused == "" {
			t.Errorf("%s: %+v", o.Rival, o)
		}
	}
	if o := rivals.Compare(nil)[0]; o.Refused != "problem: none given" {
		t.Errorf("no problem: got %+v", o)
	}
}

// FuzzCompare changes two numbers of a random problem, which reaches further than fuzzing its text.
func FuzzCompare(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed, uint16(40*seed), int64(-1), uint16(7*seed), int64(1<<40))
	}
	number := regexp.MustCompile(`-?[0-9]+`)
	f.Fuzz(func(t *testing.T, seed uint64, at uint16, value int64, at2 uint16, value2 int64) {
		text, err := json.Marshal(plantest.Small(seed))
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range []struct {
			at    uint16
			value int64
		}{{at, value}, {at2, value2}} {
			places := number.FindAllIndex(text, -1)
			place := places[int(change.at)%len(places)]
			text = fmt.Appendf(nil, "%s%d%s", text[:place[0]], change.value, text[place[1]:])
		}
		p := new(plan.Problem)
		if json.Unmarshal(text, p) != nil {
			return
		}
		for _, o := range rivals.Compare(p) {
			if (o.Placement == nil) != (o.Refused != "") {
				t.Errorf("%s: placed and refused, or neither: %+v", o.Rival, o)
			}
		}
	})
}
