package rivals

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/plan"
)

// set makes a set of CPUs.
func set(cpus ...int) map[int]bool {
	s := map[int]bool{}
	for _, c := range cpus {
		s[c] = true
	}
	return s
}

func from(first, last int) []int {
	var list []int
	for c := first; c <= last; c++ {
		list = append(list, c)
	}
	return list
}

// topo numbers CPUs as Linux does: c and c + cores are siblings. Cores go to sockets and NUMA nodes in blocks.
func topo(sockets, nodes, cores, threads int) cpuTopology {
	var t cpuTopology
	for c := range cores * threads {
		core := c % cores
		t = append(t, cpu{c, core, core * sockets / cores, core * nodes / cores})
	}
	return t
}

// The facts are those of the kubelet's documentation and tests (cpu_assignment_test.go), on
// machines of our own: what a request gets is as few broken sockets, NUMA nodes and cores as
// possible, and the parts that are used up most go first.
func TestTheCPUManagerPacks(t *testing.T) {
	t.Parallel()
	dual := topo(2, 2, 8, 2)      // socket 0: cores 0-3, CPUs 0-3,8-11
	clusters := topo(1, 4, 16, 2) // one socket of four NUMA nodes: cores 0-3 with CPUs 0-3,16-19 ...
	quad := topo(2, 4, 16, 2)     // two sockets of two NUMA nodes each
	all := func(t cpuTopology) []int { return from(0, len(t)-1) }
	without := func(list []int, out ...int) []int {
		return slices.DeleteFunc(slices.Clone(list), func(c int) bool { return slices.Contains(out, c) })
	}
	for _, tt := range []struct {
		name string
		t    cpuTopology
		free []int
		n    int
		want []int
	}{
		{"one CPU is the lowest thread", dual, all(dual), 1, []int{0}},
		{"one CPU comes from a core that is broken already", dual, without(all(dual), 2), 1, []int{10}},
		{"two CPUs are a whole core", dual, all(dual), 2, []int{0, 8}},
		{"two CPUs pass over a broken core, on its socket", dual, without(all(dual), 5), 2, []int{4, 12}},
		{"three CPUs are a core and a thread", dual, all(dual), 3, []int{0, 1, 8}},
		{"a whole socket goes at once", dual, all(dual), 8, []int{0, 1, 2, 3, 8, 9, 10, 11}},
		{"a whole socket goes before the cores of a broken one", dual, without(all(dual), 1), 8,
			[]int{4, 5, 6, 7, 12, 13, 14, 15}},
		{"a socket and a core", dual, all(dual), 10, []int{0, 1, 2, 3, 4, 8, 9, 10, 11, 12}},
		{"cores come from the socket with the fewest free CPUs", dual, without(all(dual), 4, 12), 2, []int{5, 13}},
		{"everything", dual, all(dual), 16, all(dual)},
		{"more than there is is refused", dual, from(0, 2), 4, nil},
		{"nothing is nothing", dual, all(dual), 0, nil},
		{"a whole NUMA node inside a socket goes at once", clusters, all(clusters), 8, []int{0, 1, 2, 3, 16, 17, 18,
			19}},
		{"a whole NUMA node goes before a broken one", clusters, without(all(clusters), 0, 16), 8,
			[]int{4, 5, 6, 7, 20, 21, 22, 23}},
		{"a NUMA node and cores of the one that is used most", clusters, without(all(clusters), 12, 28), 10,
			[]int{0, 1, 2, 3, 13, 16, 17, 18, 19, 29}},
		{"NUMA nodes come from the socket that is used most", quad, without(all(quad), 8, 24), 8,
			[]int{12, 13, 14, 15, 28, 29, 30, 31}},
		{"a socket of two NUMA nodes goes at once", quad, all(quad), 16, append(from(0, 7), from(16, 23)...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.t.packed(set(tt.free...), tt.n)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestTheCPUManagerTakesAlignedCPUsFirst(t *testing.T) {
	t.Parallel()
	dual := topo(2, 2, 8, 2)
	got := dual.allocate(set(from(0, 15)...), 10, func(c cpu) bool { return c.node == 1 })
	slices.Sort(got)
	if diff := cmp.Diff([]int{0, 4, 5, 6, 7, 8, 12, 13, 14, 15}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// mask makes a set of nodes.
func mask(nodes ...int) nodeMask {
	var m nodeMask
	for _, n := range nodes {
		m |= 1 << n
	}
	return m
}

func TestHintsAreMerged(t *testing.T) {
	t.Parallel()
	yes := func(nodes ...int) hint { return hint{mask: mask(nodes...), preferred: true} }
	no := func(nodes ...int) hint { return hint{mask: mask(nodes...)} }
	any, none := hint{any: true, preferred: true}, hint{any: true}
	two := [][]hint{{yes(0), yes(1), no(0, 1)}, {yes(1), no(0, 1)}}
	cross := [][]hint{{yes(0), no(0, 1)}, {yes(1), no(0, 1)}}
	for _, tt := range []struct {
		name     string
		policy   string
		nodes    int
		hints    [][]hint
		want     hint
		admitted bool
	}{
		{"the set that all prefer", restricted, 2, two, yes(1), true},
		{"of two that all prefer the lower", restricted, 2, [][]hint{{yes(0), yes(1), no(0, 1)}}, yes(0), true},
		{"two that prefer different nodes are turned away by restricted", restricted, 2, cross, no(0), false},
		{"and let in by best-effort on the narrowest intersection", bestEffort, 2, cross, no(0), true},
		{"and turned away by single-numa-node", singleNUMANode, 2, cross, no(0, 1), false},
		{"a request that needs two nodes is preferred on two", restricted, 2, [][]hint{{yes(0, 1)}, {yes(0, 1)}},
			yes(0, 1), true},
		{"but not let in by single-numa-node", singleNUMANode, 2, [][]hint{{yes(0, 1)}, {yes(0), yes(1)}}, no(0, 1),
			false},
		{"who does not care has no say", restricted, 2, [][]hint{{any}, {yes(1), no(0, 1)}}, yes(1), true},
		{"where nobody cares all nodes are fine", restricted, 2, [][]hint{{any}}, yes(0, 1), true},
		{"what cannot be served spoils it", restricted, 2, [][]hint{{none}, {yes(1)}}, no(1), false},
		{"without preference the size of the most demanding counts", bestEffort, 4,
			[][]hint{{yes(0, 1), yes(2, 3), no(0, 1, 2, 3)}, {yes(0), no(0, 1), no(0, 1, 2, 3)}}, no(0, 1), true},
		{"a machine of one node has nothing to align", singleNUMANode, 1, [][]hint{{yes(0)}},
			hint{mask: mask(0), any: true, preferred: true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, admitted := merge(tt.policy, nodeMask(1)<<tt.nodes-1, tt.hints)
			if tt.policy == singleNUMANode && !tt.admitted {
				got = tt.want // nobody is placed by it
			}
			if got != tt.want || admitted != tt.admitted {
				t.Errorf("got %+v, admitted %v; want %+v, %v", got, admitted, tt.want, tt.admitted)
			}
		})
	}
}

// fold goes through all combinations one after another and keeps the better of two, as the kubelet does.
func fold(policy string, all nodeMask, resources [][]hint) (hint, bool) {
	if policy == singleNUMANode {
		var single [][]hint
		for _, r := range resources {
			var kept []hint
			for _, t := range r {
				if t.preferred && (t.any || t.mask.count() == 1) {
					kept = append(kept, t)
				}
			}
			single = append(single, kept)
		}
		resources = single
	}
	needs := 0
	for _, r := range resources {
		least := nodeMask(0)
		for _, t := range r {
			if !t.any && (least == 0 || t.mask.narrower(least)) {
				least = t.mask
			}
		}
		needs = max(needs, least.count())
	}
	var best *hint
	var walk func(k int, merged hint, first nodeMask)
	walk = func(k int, merged hint, first nodeMask) {
		if k < len(resources) {
			for _, t := range resources[k] {
				m, f := merged, first
				m.preferred = m.preferred && t.preferred
				if !t.any {
					m.mask &= t.mask
					if f == 0 {
						f = t.mask
					}
					m.preferred = m.preferred && t.mask == f
				}
				walk(k+1, m, f)
			}
			return
		}
		if merged.mask == 0 {
			return
		}
		take := false
		switch {
		case best == nil:
			take = true
		case merged.preferred != best.preferred:
			take = merged.preferred
		case merged.preferred:
			take = merged.mask.narrower(best.mask)
		default:
			old, now := best.mask.count(), merged.mask.count()
			switch {
			case old > needs:
				take = merged.mask.narrower(best.mask)
			case old == needs:
				take = now == needs && merged.mask.narrower(best.mask)
			case now > needs:
			case now != old:
				take = now > old
			default:
				take = merged.mask.narrower(best.mask)
			}
		}
		if take {
			best = new(merged)
		}
	}
	walk(0, hint{mask: all, preferred: true}, 0)
	if best == nil {
		best = &hint{mask: all}
	}
	if policy == singleNUMANode && best.mask == all {
		best.any = true
	}
	return *best, policy == bestEffort || best.preferred
}

func TestMergingWithoutTheProductGivesTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		all := nodeMask(1)<<nodes - 1
		var resources [][]hint
		for range rapid.IntRange(1, 4).Draw(t, "resources") {
			switch rapid.IntRange(0, 9).Draw(t, "form") {
			case 0:
				resources = append(resources, []hint{{any: true, preferred: true}})
				continue
			case 1:
				resources = append(resources, []hint{{any: true}})
				continue
			}
			least := rapid.IntRange(1, nodes).Draw(t, "least")
			list := []hint{}
			masks(all, func(m nodeMask) {
				if m.count() >= least && rapid.IntRange(0, 2).Draw(t, "there") > 0 {
					list = append(list, hint{mask: m, preferred: m.count() == least})
				}
			})
			if len(list) == 0 {
				list = []hint{{any: true}}
			}
			resources = append(resources, list)
		}
		for _, policy := range []string{bestEffort, restricted, singleNUMANode} {
			want, admit := fold(policy, all, resources)
			got, admitted := merge(policy, all, resources)
			if policy == singleNUMANode && !admit {
				want, got = hint{}, hint{} // nobody is placed by it
			}
			if got != want || admitted != admit {
				t.Fatalf("%s of %v: got %+v, %v; want %+v, %v", policy, resources, got, admitted, want, admit)
			}
		}
	})
}

func place(t *testing.T, p *plan.Problem, id string) *Outcome {
	t.Helper()
	o, err := Place(p, id)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestPodsShareNUMANodesAsTheMemoryManagerAllows(t *testing.T) {
	t.Parallel()
	m := machine{nodes: 2, cores: 8, threads: 2, packages: 2, l3: 8, far: 20, pages: 16}
	for _, tt := range []struct {
		name     string
		requests []plan.Request
		want     map[string]string // by rival: the start of its refusal, or where the memory is
	}{
		{"two pods that fit a node each", []plan.Request{request("a", 8, 8), request("b", 8, 8)}, map[string]string{
			"k8s-best-effort": "0:8|1:8", "k8s-restricted": "0:8|1:8", "k8s-single-numa-node": "0:8|1:8",
		}},
		{"a pod over both nodes keeps small ones out", []plan.Request{request("a", 10, 20), request("b", 2, 2)},
			map[string]string{
				"k8s-best-effort":      "0:16,1:4|1:2",
				"k8s-restricted":       "b: ",
				"k8s-single-numa-node": "a: TopologyAffinityError",
			}},
		{"more CPUs than there are", []plan.Request{request("a", 17, 1)}, map[string]string{
			"k8s-best-effort": "a: not enough cpus", "k8s-restricted": "a: not enough cpus",
			"k8s-single-numa-node": "a: not enough cpus",
		}},
		{"more memory than there is", []plan.Request{request("a", 1, 33)}, map[string]string{
			"k8s-best-effort": "a: [memorymanager]", "k8s-restricted": "a: [memorymanager]",
			"k8s-single-numa-node": "a: [memorymanager]",
		}},
	} {
		for id, want := range tt.want {
			t.Run(tt.name+": "+id, func(t *testing.T) {
				t.Parallel()
				p := m.problem()
				p.Requests = tt.requests
				o := place(t, p, id)
				got := o.Refused
				if o.Placement != nil {
					got = memoryText(o.Placement)
				}
				if !strings.HasPrefix(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	}
}

// memoryText writes where the memory of each lab node is; a node between others that has none is left out.
func memoryText(pl *plan.Placement) string {
	var all []string
	for _, n := range pl.Nodes {
		var parts []string
		for _, m := range n.Memory {
			parts = append(parts, numbers([]int{m.NUMANode})+":"+numbers([]int{int(m.Pages)}))
		}
		all = append(all, strings.Join(parts, ","))
	}
	return strings.Join(all, "|")
}

func TestTheKubeletRefusesMachinesOfManyNodes(t *testing.T) {
	t.Parallel()
	p := machine{nodes: 9, cores: 2, threads: 1, packages: 1, l3: 2, far: 20, pages: 4}.problem()
	p.Requests = []plan.Request{{Name: "a", VCPUs: 1, Threads: 1, Cores: 1, Pages: 1}}
	want := "kubelet does not start: unsupported on machines with more than 8 NUMA nodes, this one has 9"
	if got := place(t, p, "k8s-restricted").Refused; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAPodGetsDevicesOfItsNodeAndGoesWhereTheyAre(t *testing.T) {
	t.Parallel()
	p := epycPair()
	p.Requests = []plan.Request{{
		Name: "a", VCPUs: 8, Threads: 2, Cores: 4, Pages: 8, GuestNUMA: "auto",
		GPUs: []plan.Want{{Count: 1, Any: []int{1}}},
	}}
	for _, id := range []string{"k8s-best-effort", "k8s-restricted", "k8s-single-numa-node"} {
		o := place(t, p, id)
		if o.Placement == nil {
			t.Errorf("%s refuses: %s", id, o.Refused)
			continue
		}
		want := plan.NodePlacement{Cores: []int{9, 10, 11, 12}, Memory: []plan.NodePage{{NUMANode: 1, Pages: 8}},
			GPUs: []int{1}}
		if diff := cmp.Diff(want, o.Placement.Nodes[0]); diff != "" {
			t.Errorf("%s (-want +got)\n%s", id, diff)
		}
	}
}
