package lab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReserve(t *testing.T) {
	size := func(b Bytes) *Bytes { return &b }
	tests := []struct {
		name, text string
		want       Reserve
	}{
		{"nothing said", "", Reserve{}},
		{"an emptied section", "host:", Reserve{}},
		{"an emptied reserve", "host: {reserve: }", Reserve{}},
		{"a number is one of cores", "host: {reserve: 4}", Reserve{Cores: new(4)}},
		{"cores and memory", "host: {reserve: {cores: 4, memory: 8GiB}}",
			Reserve{Cores: new(4), Memory: size(8 * GiB)}},
		{"no memory at all is not the same as nothing said", "host: {reserve: {memory: 0B}}", Reserve{Memory: size(0)}},
		{"NUMA nodes in their order", "host: {reserve: {numa_nodes: {10: 1, '2': {memory: 1GiB}, 0: {cores: 2, " +
			"memory: 4GiB}}}}",
			Reserve{NUMA: []NUMAReserve{{Node: 0, Cores: 2, Memory: size(4 * GiB)}, {Node: 2, Memory: size(GiB)},
				{Node: 10, Cores: 1}}}},
		{"NUMA nodes count towards the cores", "host: {reserve: {cores: 3, numa_nodes: {0: 2, 1: 1}}}",
			Reserve{Cores: new(3), NUMA: []NUMAReserve{{Node: 0, Cores: 2}, {Node: 1, Cores: 1}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := mustParse(t, "name: x\n"+tt.text+"\nnodes: {vm: {}}\n")
			if diff := cmp.Diff(tt.want, l.Reserve); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := mustParse(t, string(l.YAML())); !cmp.Equal(l, again, prefixes) {
				t.Errorf("reads back otherwise:\n%s", cmp.Diff(l, again, prefixes))
			}
		})
	}
}

func TestWhatIsLeftToThePlanner(t *testing.T) {
	l := mustParse(t, `
name: x
defaults: {cpus: auto, memory: auto, smt: off}
nodes:
  plain: {}
  own: {cpus: 4, memory: 1GiB, smt: on, guest_numa: off}
  half: {cpus: 2, smt: auto}
`)
	type choice struct {
		CPUs             int
		Memory           Bytes
		AutoCPUs, AutoMB bool
		SMT, GuestNUMA   Setting
	}
	var got []choice
	for _, n := range l.Nodes {
		got = append(got, choice{n.CPUs, n.Memory, n.AutoCPUs, n.AutoMemory, n.SMT, n.GuestNUMA})
	}
	want := []choice{
		{DefaultCPUs, DefaultMemory, true, true, Off, Auto},
		{4, GiB, false, false, On, Off},
		{2, DefaultMemory, false, true, Auto, Auto},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again := mustParse(t, string(l.YAML())); !cmp.Equal(l, again, prefixes) {
		t.Errorf("reads back otherwise:\n%s", cmp.Diff(l, again, prefixes))
	}
}

func TestPagesAndMemory(t *testing.T) {
	lab := func(pages, nodes string) string { return "name: x\nhugepages: " + pages + "\nnodes: {" + nodes + "}" }
	for name, text := range map[string]string{
		"whole GiB":              lab("1GiB", "a: {memory: 1GiB}, b: {memory: 2048MiB}"),
		"an even number of MiB":  lab("2MiB", "a: {memory: 258MiB}, b: {}"),
		"memory for the planner": lab("1GiB", "a: {memory: auto}"),
		"no hugepages":           lab("off", "a: {memory: 257MiB}"),
		"pages for the planner":  lab("auto", "a: {memory: 257MiB}"),
	} {
		if _, err := Parse("f", []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One wrong line is one fault, even if it concerns several nodes.
func TestFaultsOfDefaultsAreReportedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		key  string
	}{
		"pages": {"name: x\nhugepages: 1GiB\ndefaults: {memory: 512MiB}\nnodes: {a: {}, b: {}, c: {count: 3}}",
			"defaults.memory"},
		"ports":   {"name: x\ndefaults: {nics: 9, vfs: 9}\nnodes: {a: {}, b: {}}", "defaults.vfs"},
		"devices": {"name: x\ndefaults: {gpus: GPU0}\nnodes: {a: {}, b: {}, c: {}}", "defaults.gpus"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f", []byte(tt.text))
			if errs, ok := err.(Errors); !ok || len(errs) != 1 || errs[0].Key != tt.key {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLinks(t *testing.T) {
	l := mustParse(t, "name: x\nlinks:\n  - [41:00.0, 0000:61:00.1]\n  - [NIC0, mlx5_3, 00000000:62:00.0]\nnodes: "+
		"{vm: {count: 2}}\n")
	want := [][]string{{"0000:41:00.0", "0000:61:00.1"}, {"NIC0", "mlx5_3", "0000:62:00.0"}}
	if diff := cmp.Diff(want, l.Links); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again := mustParse(t, string(l.YAML())); !cmp.Equal(l, again, prefixes) {
		t.Errorf("reads back otherwise:\n%s", cmp.Diff(l, again, prefixes))
	}
	_, err := Parse("f", []byte("name: x\nlinks: [[mlx5_0, mlx5_1], [mlx5_0]]\nnodes: {vm: {}}\n"))
	const fault = "f:2:28: links: port named twice (have \"mlx5_0\"); a cable joins two ports"
	if err == nil || !strings.HasPrefix(err.Error(), fault) {
		t.Errorf("got %v\nwant %s", err, fault)
	}
}

func TestAffinity(t *testing.T) {
	const nodes = "\nnodes: {vm: {count: 3, vfs: 1}, head: {vfs: 1}, vm0: {count: 1, vfs: 1}}\n"
	tests := []struct {
		name, text string
		want       []Affinity
	}{
		{"none", "affinity:", nil},
		{"names as expanded", "affinity: [{nodes: [vm00, head], numa: same}]",
			[]Affinity{{Nodes: []string{"vm00", "head"}, NUMA: Same}}},
		{"an entry stands for all of its nodes", "affinity: [{nodes: [vm], nic: different}]",
			[]Affinity{{Nodes: []string{"vm00", "vm01", "vm02"}, NIC: Different}}},
		{"entries mix with nodes", "affinity: [{nodes: [head, vm], numa: different, nic: same}]",
			[]Affinity{{Nodes: []string{"head", "vm00", "vm01", "vm02"}, NUMA: Different, NIC: Same}}},
		{"a count of one", "affinity: [{nodes: [vm0, head], numa: same}]",
			[]Affinity{{Nodes: []string{"vm000", "head"}, NUMA: Same}}},
		{"NUMA nodes and NICs do not contradict each other",
			"affinity: [{nodes: [vm], numa: same}, {nodes: [vm], nic: different}]",
			[]Affinity{{Nodes: []string{"vm00", "vm01", "vm02"}, NUMA: Same}, {Nodes: []string{"vm00", "vm01", "vm02"},
				NIC: Different}}},
		{"the same twice is no contradiction", "affinity: [{nodes: [vm00, vm01], numa: same}, {nodes: [vm01, vm00], " +
			"numa: same}]",
			[]Affinity{{Nodes: []string{"vm00", "vm01"}, NUMA: Same}, {Nodes: []string{"vm01", "vm00"}, NUMA: Same}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := mustParse(t, "name: x\n"+tt.text+nodes)
			if diff := cmp.Diff(tt.want, l.Affinity); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := mustParse(t, string(l.YAML())); !cmp.Equal(l, again, prefixes) {
				t.Errorf("reads back otherwise:\n%s", cmp.Diff(l, again, prefixes))
			}
		})
	}
}

// So vm00 always means the same node.
func TestANodeGoesBeforeAnEntryOfItsName(t *testing.T) {
	l := mustParse(t, "name: x\naffinity: [{nodes: [vm00, vm01], numa: same}]\nnodes: {vm: {count: 2}, vm00: "+
		"{count: 2}}")
	if diff := cmp.Diff([]string{"vm00", "vm01"}, l.Affinity[0].Nodes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The message names each line of the chain.
func TestContradictionsByWayOfOtherNodes(t *testing.T) {
	_, err := Parse("f", []byte(`name: x
affinity:
  - {nodes: [a, b], numa: same}
  - {nodes: [c, d], numa: same}
  - {nodes: [e, f], numa: same}
  - {nodes: [b, c], numa: same}
  - {nodes: [f, e], nic: different}
  - {nodes: [e, a, d], numa: different}
nodes: {a: {}, b: {}, c: {}, d: {}, e: {}, f: {}}
`))
	const want = "f:8:5: affinity.numa: contradicts another entry (have different for a and d, same by line 3 and " +
		"line 6 and line 4); remove one of them"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// Counts multiply the requests of a node, but the resolved file must still be small enough for Parse.
func TestALabThatIsTooLargeWrittenOutIsRefused(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("{vendor: a, model: b, numa_node: 0}, ", 64), ", ")
	for name, text := range map[string]string{
		"selectors": "name: x\nfabric: {subnet: 10.0.0.0/16}\nnodes: {vm: {count: 500, gpus: [" + many + "]}}",
		"affinities": "name: x\nfabric: {subnet: 10.0.0.0/16}\naffinity:\n" +
			strings.Repeat("- {nodes: [vm], numa: same}\n", 60) + "nodes: {vm: {count: 500}}",
		"bytes": "name: x\nfabric: {subnet: 10.0.0.0/16}\nnodes: {vm: {count: 500, image: " +
			"/" + strings.Repeat("\U000e0041", 254) + "}}",
	} {
		_, err := Parse("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "lab too large when its counts are written out") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	l := mustParse(t, "name: x\nfabric: {subnet: 10.0.0.0/16}\nnodes: {vm: {count: 500, smt: off, gpus: {model: "+
		"H20}, nics: 8, vfs: 8}}")
	if again := mustParse(t, string(l.YAML())); !cmp.Equal(l, again, prefixes) {
		t.Error("reads back otherwise")
	}
}
