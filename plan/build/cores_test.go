package build_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

func coreLines(p *plan.Problem) []string {
	var lines []string
	for _, c := range p.Cores {
		text := fmt.Sprintf("%d: %s node %d package %d", c.ID, topology.CPUs(c.CPUs...), c.NUMANode, c.Package)
		if c.Efficiency {
			text += " small"
		}
		if c.Tenant != "" {
			text += " of " + c.Tenant
		}
		lines = append(lines, text)
	}
	return lines
}

func notesWith(p *plan.Problem, part string) []string {
	var notes []string
	for _, n := range p.Notes {
		if strings.Contains(n, part) {
			notes = append(notes, n)
		}
	}
	return notes
}

func set(t testing.TB, s string) topology.CPUSet {
	t.Helper()
	v, err := topology.ParseCPUSet(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func nodesOnly(t testing.TB, lists ...string) *topology.Host {
	h := &topology.Host{}
	for i, l := range lists {
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: i, CPUs: set(t, l)})
	}
	return h
}

func TestCores(t *testing.T) {
	t.Parallel()
	one := labOf(1, cpus(1))
	tests := []struct {
		name string
		host *topology.Host
		want []string
		note string // the only note about cores
	}{
		{"two ranges at one distance are siblings", nodesOnly(t, "0-1,4-5", "2-3,6-7"),
			[]string{"0: 0,4 node 0 package -1", "1: 1,5 node 0 package -1", "2: 2,6 node 1 package -1",
				"3: 3,7 node 1 package -1"},
			"the host does not tell its cores: CPU c and CPU c+4 are assumed to be threads of one core, as the CPU " +
				"lists of the NUMA nodes suggest"},
		{"a node without CPUs does not matter", nodesOnly(t, "0-1,2-3", "", "8,16"),
			[]string{"0: 0 node 0 package -1", "1: 1 node 0 package -1", "2: 2 node 0 package -1",
				"3: 3 node 0 package -1", "4: 8 node 2 package -1",
				"5: 16 node 2 package -1"}, "the host does not tell its cores: each CPU is taken as a core of its own"},
		{"two distances are no siblings", nodesOnly(t, "0,4", "1,6"),
			[]string{"0: 0 node 0 package -1", "1: 1 node 1 package -1", "2: 4 node 0 package -1",
				"3: 6 node 1 package -1"},
			"the host does not tell its cores: each CPU is taken as a core of its own"},
		{"ranges of two lengths are no siblings", nodesOnly(t, "0-2,8"), []string{"0: 0 node 0 package -1",
			"1: 1 node 0 package -1", "2: 2 node 0 package -1",
			"3: 8 node 0 package -1"}, "the host does not tell its cores: each CPU is taken as a core of its own"},
		{"no siblings where SMT is off", altered(nodesOnly(t, "0,4", "1,5"), func(h *topology.Host) {
			h.CPUs.SMT = "notsupported"
		}),
			[]string{"0: 0 node 0 package -1", "1: 1 node 1 package -1", "2: 4 node 0 package -1",
				"3: 5 node 1 package -1"},
			"the host does not tell its cores: each CPU is taken as a core of its own"},
		{"CPUs that are said to be on several nodes are on the first", nodesOnly(t, "0-1,4-5", "0-1,4-5"),
			[]string{"0: 0,4 node 0 package -1", "1: 1,5 node 0 package -1"},
			"the host does not tell its cores: CPU c and CPU c+4 are assumed to be threads of one core, as the CPU " +
				"lists of the NUMA nodes suggest\n" +
				"CPUs 0-1,4-5 are said to be on several NUMA nodes: taken as on the first"},
		{"CPUs alone are one node", &topology.Host{CPUs: topology.CPUStates{Online: set(t, "0-2")}},
			[]string{"0: 0 node 0 package -1", "1: 1 node 0 package -1", "2: 2 node 0 package -1"},
			"the host does not tell its cores: each CPU is taken as a core of its own"},
		{"CPUs that are offline do not count", altered(described(t, "pack:2 core:2 pu:2"), func(h *topology.Host) {
			h.CPUs.Offline, h.CPUs.Online = new(set(t, "1")), set(t, "0-3,6-7")
		}), []string{"0: 0 node 0 package 0", "1: 2-3 node 0 package 0", "3: 6-7 node 0 package 1"}, ""},
		{"a core that names no node is where its CPUs are", altered(described(t, "numa:2 core:1 pu:1"),
			func(h *topology.Host) {
				h.Cores[0].NUMANode, h.Cores[1].NUMANode = nil, new(9)
			}), []string{"0: 0 node 0 package -1", "1: 1 node 1 package -1"}, ""},
		{"a core on no node is left out", altered(described(t, "numa:2 core:2 pu:1"), func(h *topology.Host) {
			h.Cores[3].NUMANode, h.NUMANodes[1].CPUs = nil, topology.CPUSet{}
		}), []string{"0: 0 node 0 package -1", "1: 1 node 0 package -1", "2: 2 node 1 package -1"},
			"CPUs 3 are on none of the host's NUMA nodes: left out"},
		{"small cores of hybrid machines are marked", altered(described(t, "pack:1 core:3 pu:2"),
			func(h *topology.Host) {
				h.Cores[0].Kind, h.Cores[2].Kind, h.Cores[2].CPUs = topology.KindPerformance, topology.KindEfficiency,
					set(t, "4")
			}), []string{"0: 0-1 node 0 package 0", "1: 2-3 node 0 package 0", "2: 4 node 0 package 0 small"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := *one
			l.Reserve.Cores = new(1)
			p := problem(t, test.host, &l, build.Options{})
			checkWellFormed(t, p)
			if diff := cmp.Diff(test.want, coreLines(p)); diff != "" {
				t.Errorf("cores (-want +got):\n%s", diff)
			}
			notes := slices.Concat(notesWith(p, "tell its cores"), notesWith(p, "left out"), notesWith(p, "on several"))
			if got := strings.Join(notes, "\n"); got != test.note {
				t.Errorf("note %q, want %q", got, test.note)
			}
		})
	}
}

func TestCoresThatTenantsHold(t *testing.T) {
	t.Parallel()
	pins := func(lists ...string) []topology.Pin {
		var out []topology.Pin
		for i, l := range lists {
			out = append(out, topology.Pin{VCPU: i, CPUs: set(t, l)})
		}
		return out
	}
	tests := []struct {
		name    string
		tenants []topology.Tenant
		held    []string
		notes   []string
	}{
		{"pinned virtual CPUs hold their cores", []topology.Tenant{{Name: "web", State: "running", VCPUs: 2,
			Pins: pins("1", "4-5")}},
			[]string{"0: 0-1 node 0 package 0 of web", "2: 4-5 node 0 package 0 of web"}, nil},
		{"emulator and I/O threads hold theirs", []topology.Tenant{{Name: "web", VCPUs: 1, Pins: pins("0"),
			EmulatorCPUs: new(set(t, "2")), IOThreadCPUs: new(set(t, "0"))}},
			[]string{"0: 0-1 node 0 package 0 of web", "1: 2-3 node 0 package 0 of web"}, nil},
		{"pins to all CPUs are none", []topology.Tenant{{Name: "web", VCPUs: 1, Pins: pins("0-7"),
			EmulatorCPUs: new(set(t, "0-15")), Floating: new(set(t, "0-7"))}},
			nil, []string{"VMs whose virtual CPUs are not pinned may run on the cores of the lab and disturb it: " +
				"web; pin them, or isolate the lab's cores"}},
		{"virtual CPUs without a pin run where the domain may",
			[]topology.Tenant{{Name: "web", VCPUs: 4, Pins: pins("0"), Floating: new(set(t, "0-3"))}},
			[]string{"0: 0-1 node 0 package 0 of web", "1: 2-3 node 0 package 0 of web"}, nil},
		{"a tenant that floats holds nothing", []topology.Tenant{{Name: "b", VCPUs: 4}, {Name: "a", VCPUs: 1}},
			nil, []string{"VMs whose virtual CPUs are not pinned may run on the cores of the lab and disturb it: " +
				"a and b; pin them, or isolate the lab's cores"}},
		{"a tenant that is shut off holds its cores", []topology.Tenant{{Name: "web", State: "shut off", VCPUs: 1,
			Pins: pins("0")}},
			[]string{"0: 0-1 node 0 package 0 of web"},
			[]string{"VMs that are shut off hold what they are given, because they may be started: web"}},
		{"tenants on one core are told of", []topology.Tenant{{Name: "b", VCPUs: 1, Pins: pins("0")},
			{Name: "a", VCPUs: 1, Pins: pins("1")}},
			[]string{"0: 0-1 node 0 package 0 of a"}, []string{"VMs a and b may run on the same cores"}},
		{"CPUs that the host does not have do not matter",
			[]topology.Tenant{{UUID: "u-u-i-d", VCPUs: 1, Pins: pins("6,100-200")}},
			[]string{"3: 6-7 node 0 package 0 of u-u-i-d"}, nil},
		{"a lab node's name is told of", []topology.Tenant{{Name: "vm00", VCPUs: 1, Pins: pins("0")}},
			[]string{"0: 0-1 node 0 package 0 of vm00"},
			[]string{"VM vm00 has the name of a lab node, and counts as another VM: if it is an earlier run of this " +
				"lab, remove it first, or plan with tenants: ignore"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := described(t, "pack:1 core:4 pu:2")
			h.NUMANodes[0].MemoryBytes = new(uint64(64 << 30))
			h.Tenants = test.tenants
			l := labOf(1, cpus(1), smt(lab.Off))
			l.Reserve.Cores = new(1)
			check := func(p *plan.Problem) {
				t.Helper()
				checkWellFormed(t, p)
				var held []string
				for _, line := range coreLines(p) {
					if strings.Contains(line, " of ") {
						held = append(held, line)
					}
				}
				if diff := cmp.Diff(test.held, held); diff != "" {
					t.Errorf("cores held (-want +got):\n%s", diff)
				}
				var notes []string
				for _, n := range p.Notes {
					if !strings.Contains(n, "memory is not known and not taken") {
						notes = append(notes, n)
					}
				}
				if diff := cmp.Diff(test.notes, notes); diff != "" {
					t.Errorf("notes (-want +got):\n%s", diff)
				}
			}
			check(problem(t, h, l, build.Options{}))
			h.Tenants, l.Tenants = []topology.Tenant{{Name: "another"}}, "tenants.yaml"
			check(problem(t, h, l, build.Options{Tenants: test.tenants}))
			l.Tenants = lab.TenantsIgnore
			p := problem(t, h, l, build.Options{Tenants: test.tenants})
			if diff := cmp.Diff([]string{"1 other VM ignored, as the lab asks: what they hold counts as free"},
				p.Notes); diff != "" {
				t.Errorf("notes where tenants are ignored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatTheHostKeeps(t *testing.T) {
	t.Parallel()
	pins := []topology.Pin{{CPUs: set(t, "8-15")}}
	each := func(n int) (all []plan.Package) {
		for id := range n {
			all = append(all, plan.Package{ID: id, Busy: plan.BusyByDefault})
		}
		return all
	}
	tests := []struct {
		name    string
		host    *topology.Host
		reserve lab.Reserve
		want    int
		busy    []plan.Package
	}{
		{"one core of a small machine", described(t, "pack:1 core:4 pu:2"), lab.Reserve{}, 1, []plan.Package{{ID: 0}}},
		{"two cores of a larger one", described(t, "pack:1 core:8 pu:2"), lab.Reserve{}, 2, []plan.Package{{ID: 0}}},
		{"one core in each package", described(t, "pack:4 core:4 pu:2"), lab.Reserve{}, 4, each(4)},
		{"fewer than packages", described(t, "pack:4 core:2 pu:2"), lab.Reserve{}, 2,
			[]plan.Package{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}}},
		{"packages whose cores are all held do not count", altered(described(t, "pack:2 core:4 pu:2"),
			func(h *topology.Host) {
				h.Tenants = []topology.Tenant{{Name: "web", VCPUs: 1, Pins: pins}}
				h.Storage = []topology.Disk{{Name: "sda", Mounts: []string{"/"}, NUMANode: new(0)}}
			}), lab.Reserve{}, 2, []plan.Package{{ID: 0}, {ID: 1}}},
		{"what the lab says", described(t, "pack:2 core:8 pu:2"), lab.Reserve{Cores: new(1)}, 1,
			[]plan.Package{{ID: 0}, {ID: 1}}},
		{"what nodes keep counts towards the whole", described(t, "pack:2 [numa] core:8 pu:2"),
			lab.Reserve{Cores: new(3), NUMA: []lab.NUMAReserve{{Node: 0, Cores: 1}, {Node: 1, Cores: 1}}}, 3,
			[]plan.Package{{ID: 0}, {ID: 1}}},
		{"what nodes keep is the least", described(t, "pack:2 [numa] core:8 pu:2"),
			lab.Reserve{NUMA: []lab.NUMAReserve{{Node: 0, Cores: 5}}}, 5, each(2)},
		{"a disk makes its package busy", altered(described(t, "pack:2 [numa] core:8 pu:2"), func(h *topology.Host) {
			h.Storage = []topology.Disk{{Name: "sda", NUMANode: new(0)}, {Name: "sdb", Mounts: []string{"/", "/boot"},
				NUMANode: new(1)},
				{Name: "sdc", Mounts: []string{"/home"}, NUMANode: new(1)}}
		}), lab.Reserve{}, 2, []plan.Package{{ID: 0, Busy: plan.BusyByDefault}, {ID: 1, Busy: "disk sdb (/ /boot)"}}},
		{"so does the NIC of the default route", altered(epyc(t), func(h *topology.Host) {
			h.Storage = nil
		}), lab.Reserve{}, 2,
			[]plan.Package{{ID: 0, Busy: "the default route (eno1)"}}},
		{"a node without CPUs makes none busy", altered(described(t, "[numa] pack:2 [numa] core:8 pu:2"),
			func(h *topology.Host) {
				for i := range h.NUMANodes {
					if h.NUMANodes[i].CPUs.IsEmpty() {
						h.Storage = []topology.Disk{{Name: "sda", Mounts: []string{"/"},
							NUMANode: new(h.NUMANodes[i].ID)}}
					}
				}
			}), lab.Reserve{}, 2, each(2)},
		{"a node of both packages makes none busy", altered(described(t, "pack:2 core:8 pu:2"), func(h *topology.Host) {
			h.Storage = []topology.Disk{{Name: "sda", Mounts: []string{"/"}}}
		}), lab.Reserve{}, 2, each(2)},
		{"unknown packages are none", h20(t), lab.Reserve{}, 2, []plan.Package{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := labOf(1, cpus(1))
			l.Reserve = test.reserve
			p := problem(t, test.host, l, build.Options{})
			checkWellFormed(t, p)
			if p.ReserveCores != test.want {
				t.Errorf("the host keeps %d cores, want %d", p.ReserveCores, test.want)
			}
			if diff := cmp.Diff(test.busy, p.Packages); diff != "" {
				t.Errorf("packages (-want +got):\n%s", diff)
			}
			for _, r := range test.reserve.NUMA {
				if got := p.NUMANodes[r.Node].ReserveCores; got != r.Cores {
					t.Errorf("node %d keeps %d cores, want %d", r.Node, got, r.Cores)
				}
			}
		})
	}
	t.Run("a package that tenants fill is not waited for", func(t *testing.T) {
		t.Parallel()
		h := described(t, "pack:2 [numa] core:4 pu:2")
		h.Tenants = []topology.Tenant{{Name: "web", VCPUs: 1, Pins: pins}}
		h.Storage = []topology.Disk{{Name: "sda", Mounts: []string{"/"}, NUMANode: new(1)}}
		p := problem(t, h, labOf(1), build.Options{})
		if diff := cmp.Diff([]plan.Package{{ID: 0}, {ID: 1}}, p.Packages); diff != "" {
			t.Errorf("packages (-want +got):\n%s", diff)
		}
		if len(notesWith(p, "package 1: the host needs it for disk sda (/), but other VMs hold all its cores")) != 1 {
			t.Errorf("notes %q", p.Notes)
		}
	})
}

func TestVirtualCPUs(t *testing.T) {
	t.Parallel()
	hybrid := altered(described(t, "pack:1 core:12 pu:2"), func(h *topology.Host) {
		for i := range h.Cores {
			if i >= 4 {
				h.Cores[i].CPUs, h.Cores[i].Kind = topology.CPUs(h.Cores[i].CPUs.Min()), topology.KindEfficiency
			}
		}
	})
	smt4 := described(t, "pack:1 core:16 pu:4")
	tests := []struct {
		name  string
		host  *topology.Host
		lab   *lab.Lab
		first string
	}{
		{"an even count takes siblings", epyc(t), labOf(1, cpus(28)), "28 = 14 x 2"},
		{"an odd count takes cores of its own", epyc(t), labOf(1, cpus(7)), "7 = 7 x 1"},
		{"smt off takes cores of its own", epyc(t), labOf(1, cpus(8), smt(lab.Off)), "8 = 8 x 1"},
		{"smt on takes siblings", epyc(t), labOf(1, cpus(8), smt(lab.On)), "8 = 4 x 2"},
		{"four threads where the count allows it", smt4, labOf(1, cpus(24)), "24 = 6 x 4"},
		{"two where it does not", smt4, labOf(1, cpus(6)), "6 = 3 x 2"},
		{"two where smt is on and it does not", smt4, labOf(1, cpus(6), smt(lab.On)), "6 = 3 x 2"},
		{"three threads are two", described(t, "pack:1 core:8 pu:3"), labOf(1, cpus(4)), "4 = 2 x 2"},
		{"wide cores while they last", hybrid, labOf(1, cpus(6)), "6 = 3 x 2"},
		{"narrow ones where they do not", hybrid, labOf(1, cpus(10)), "10 = 10 x 1"},
		{"auto takes all but what the host keeps", epyc(t), labOf(1, autoCPUs()), "60 = 30 x 2"},
		{"auto shares equally", epyc(t), labOf(4, autoCPUs()), "14 = 7 x 2"},
		{"auto without siblings", epyc(t), labOf(4, autoCPUs(), smt(lab.Off)), "7 = 7 x 1"},
		{"auto leaves what others ask for", epyc(t), with(labOf(3, cpus(20)), func(l *lab.Lab) {
			autoCPUs()(&l.Nodes[0])
		}), "20 = 10 x 2"},
		{"auto on cores of two widths takes them all", hybrid, labOf(1, autoCPUs()), "10 = 10 x 1"},
		{"auto with siblings takes the wide ones", hybrid, labOf(1, autoCPUs(), smt(lab.On)), "8 = 4 x 2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := problem(t, test.host, test.lab, build.Options{})
			checkWellFormed(t, p)
			r := p.Requests[0]
			if got := fmt.Sprintf("%d = %d x %d", r.VCPUs, r.Cores, r.Threads); got != test.first {
				t.Errorf("%s, want %s", got, test.first)
			}
		})
	}
}

func TestDistances(t *testing.T) {
	t.Parallel()
	three := func(rows ...[]int) *topology.Host {
		h := described(t, "numa:3 core:2 pu:1")
		for i := range h.NUMANodes {
			h.NUMANodes[i].Distances = rows[i]
		}
		return h
	}
	tests := []struct {
		name  string
		host  *topology.Host
		want  [][]int
		notes []string
	}{
		{"as the host has them", three([]int{10, 12, 32}, []int{12, 10, 32}, []int{32, 33, 10}),
			[][]int{{10, 12, 32}, {12, 10, 32}, {32, 33, 10}}, nil},
		{"not told", three(nil, nil, nil), [][]int{{10, 20, 20}, {20, 10, 20}, {20, 20, 10}},
			[]string{"the host does not tell the distances between its NUMA nodes: taken as 10 within a node and 20 " +
				"to another"}},
		{"too few", three([]int{10, 12}, []int{12, 10, 32}, []int{32, 33, 10}), [][]int{{10, 20, 20}, {12, 10, 32},
			{32, 33, 10}},
			[]string{"NUMA node 0: 2 distances for 3 nodes: taken as 10 within the node and 20 to another"}},
		{"out of range", three([]int{10, 0, 70_000}, []int{-5, 10, 255}, []int{9, 33, 17}),
			[][]int{{10, 20, 255}, {20, 10, 255}, {20, 33, 10}}, []string{
				"NUMA node 0: distance 0 to another node, less than 10: taken as 20",
				"NUMA node 0: distance 70000, more than the 255 that ACPI has: taken as 255",
				"NUMA node 1: distance -5 to another node, less than 10: taken as 20",
				"NUMA node 2: distance 9 to another node, less than 10: taken as 20",
				"NUMA node 2: distance 17 to itself: taken as 10",
			}},
		{"out of order", altered(three([]int{10, 11, 12}, []int{21, 10, 22}, []int{31, 32, 10}),
			func(h *topology.Host) {
				h.NUMANodes[0].ID, h.NUMANodes[1].ID, h.NUMANodes[2].ID = 7, 3, 5
				for i := range h.Cores {
					h.Cores[i].NUMANode = nil
				}
			}), [][]int{{10, 22, 21}, {32, 10, 31}, {11, 12, 10}}, nil}, // nodes 3, 5, 7
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := problem(t, test.host, labOf(1, cpus(1)), build.Options{})
			checkWellFormed(t, p)
			var got [][]int
			for _, n := range p.NUMANodes {
				got = append(got, n.Distances)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("distances (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.notes, notesWith(p, "distance")); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOddCountsAreNoted(t *testing.T) {
	t.Parallel()
	const part = "is odd, so that each virtual CPU has a core of its own"
	odd := with(labOf(4, cpus(8)), func(l *lab.Lab) {
		l.Nodes[0].CPUs, l.Nodes[2].CPUs = 11, 11
		l.Nodes[3].CPUs, l.Nodes[3].SMT = 7, lab.Off
	})
	for _, test := range []struct {
		name string
		host *topology.Host
		lab  *lab.Lab
		want []string
	}{
		{"on cores of two threads", epyc(t), odd, []string{"cpus of vm00 and vm02 " + part + ", 11 in all: 12 would " +
			"take 6 cores, two virtual CPUs on each"}},
		{"on cores of one thread", described(t, "pack:1 core:48 pu:1"), odd, nil},
		{"one virtual CPU takes one core in any case", epyc(t), labOf(1, cpus(1)), nil},
	} {
		p, err := build.Problem(test.host, test.lab, build.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, notesWith(p, part)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
