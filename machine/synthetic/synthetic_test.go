package synthetic

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/machine/topology"
)

func shape(h *topology.Host) string {
	var b strings.Builder
	for _, p := range h.Packages {
		fmt.Fprintf(&b, "package %d %s", p.ID, p.CPUs)
		for _, d := range p.Dies {
			fmt.Fprintf(&b, " die %d %s", d.ID, d.CPUs)
		}
		b.WriteString("; ")
	}
	for _, n := range h.NUMANodes {
		fmt.Fprintf(&b, "node %d %q", n.ID, n.CPUs)
		if n.MemoryBytes != nil {
			fmt.Fprintf(&b, " %d", *n.MemoryBytes)
		}
		b.WriteString("; ")
	}
	for _, c := range h.L3 {
		fmt.Fprintf(&b, "L3 %s", c.CPUs)
		if c.SizeBytes != nil {
			fmt.Fprintf(&b, " %d", *c.SizeBytes)
		}
		b.WriteString("; ")
	}
	for _, c := range h.Cores {
		fmt.Fprintf(&b, "core %d=%d %s", c.ID, *c.OSID, c.CPUs)
		for _, in := range []struct {
			what string
			id   *int
		}{{"p", c.Package}, {"d", c.Die}, {"n", c.NUMANode}, {"c", c.L3}} {
			if in.id != nil {
				fmt.Fprintf(&b, " %s%d", in.what, *in.id)
			}
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestSynthetic(t *testing.T) {
	t.Parallel()
	for desc, want := range map[string]string{
		"pu:2":               `node 0 "0-1"`,
		" core:2\npu:1 ":     `node 0 "0-1"; core 0=0 0 n0; core 1=1 1 n0`,
		"numa:2 core:1 pu:2": `node 0 "0-1"; node 1 "2-3"; core 0=0 0-1 n0; core 1=1 2-3 n1`,
		"pack:2 numa:1 pu:2": `package 0 0-1; package 1 2-3; node 0 "0-1"; node 1 "2-3"`,
		"numa:2 pack:1 core:1 pu:1": `package 0 0; package 1 1; node 0 "0"; node 1 "1"; ` +
			`core 0=0 0 p0 n0; core 1=1 1 p1 n1`,
		"pack:2 die:2 l3:1(size=32MiB) core:1 pu:1": `package 0 0-1 die 0 0 die 1 1; package 1 2-3 die 2 2 ` +
			`die 3 3; node 0 "0-3"; L3 0 33554432; L3 1 33554432; L3 2 33554432; L3 3 33554432; ` +
			`core 0=0 0 p0 d0 n0 c0; core 1=1 1 p0 d1 n0 c1; core 2=2 2 p1 d2 n0 c2; core 3=3 3 p1 d3 n0 c3`,
		"[numa(memory=2KiB)] [numa] pu:2": `node 0 "0-1" 2048; node 1 ""`,
		"[numa] pack:2 [numa(memory=1KiB)] pu:1": `package 0 0; package 1 1; node 0 "0" 1024; ` +
			`node 1 "1" 1024; node 2 ""`,
		"pack:2 [numa] core:1 pu:1": `package 0 0; package 1 1; node 0 "0"; node 1 "1"; ` +
			`core 0=0 0 p0 n0; core 1=1 1 p1 n1`,
	} {
		h, err := Host(desc)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := shape(h); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", desc, got, want)
		}
	}
}

func TestSyntheticFacts(t *testing.T) {
	t.Parallel()
	const desc = "numa:3(memory=1GiB) core:1 pu:2"
	h, err := Host(desc)
	if err != nil {
		t.Fatal(err)
	}
	wantProvenance := topology.Provenance{Kind: topology.SourceSynthetic, Name: desc, Filled: []string{"numa_nodes",
		"numa_memory",
		"numa_distances", "cores", "cpus", "memory"}}
	if diff := cmp.Diff(wantProvenance, h.Provenance); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]int{20, 10, 20}, h.NUMANodes[1].Distances); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	all := topology.CPURange(0, 5)
	if diff := cmp.Diff(topology.CPUStates{Present: &all, Online: all, Offline: &topology.CPUSet{}},
		h.CPUs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if h.Memory.TotalBytes == nil || *h.Memory.TotalBytes != 3<<30 {
		t.Errorf("got %v bytes in all, want 3 GiB", h.Memory.TotalBytes)
	}
	h, err = Host("[numa(memory=1GiB)] [numa] pu:1")
	if err != nil {
		t.Fatal(err)
	}
	if h.Memory.TotalBytes != nil {
		t.Errorf("got %d bytes in all; one node does not say", *h.Memory.TotalBytes)
	}
}

func TestSyntheticErrors(t *testing.T) {
	t.Parallel()
	const form = ` is not a level; want pack, die, numa, l3, core or pu as "core:4", "numa:2(memory=16GiB)", ` +
		`"l3:2(size=32MiB)", or "[numa(memory=16GiB)]"`
	for desc, want := range map[string]string{
		"":                                `the last level is machine; want pu, as in "pack:2 core:4 pu:2"`,
		"[numa]":                          `the last level is machine; want pu, as in "pack:2 core:4 pu:2"`,
		"pack:2 core:2":                   `the last level is core; want pu, as in "pack:2 core:4 pu:2"`,
		"pack:2 cpu:2":                    `"cpu:2"` + form,
		"machine:2 pu:1":                  `"machine:2"` + form,
		"pack:0 pu:1":                     `"pack:0"` + form,
		"pack pu:1":                       `"pack"` + form,
		"pack:-1 pu:1":                    `"pack:-1"` + form,
		"pack:2 pu:":                      `"pu:"` + form,
		"pack:2 4 pu:1":                   `"4"` + form,
		"pack:2 [core] pu:2":              `"[core]"` + form,
		"pack:2 [numa pu:2":               `"[numa"` + form,
		"pack:2( pu:2":                    `"pack:2("` + form,
		"pack:2(memory=1GiB) pu:2":        `"pack:2(memory=1GiB)"` + form,
		"numa:2(size=1GiB) pu:2":          `"numa:2(size=1GiB)"` + form,
		"numa:2(memory=lots) pu:2":        `"numa:2(memory=lots)"` + form,
		"numa:2(memory=99999999TiB) pu:2": `"numa:2(memory=99999999TiB)" is too large`,
		"pack:100 core:100 pu:1":          `10000 objects of core; at most 8192 are made`,
		"numa:1025 pu:1":                  `1025 NUMA nodes; at most 1024 are made`,
		"pack:1000 [numa] [numa] pu:1":    `2000 NUMA nodes; at most 1024 are made`,
		"pack:2 pack:2 pu:1":              `a second level of pack`,
		"pu:2 pu:2":                       `a second level of pu`,
		"core:2 pack:2 pu:2":              `pack inside of core`,
		"core:2 l3:2 pu:2":                `l3 inside of core`,
		"core:2 numa:2 pu:2":              `numa inside of core`,
		"core:2 [numa] pu:2":              `a NUMA node for each core`,
		"die:2 pu:2":                      `dies without packages`,
		"numa:2 [numa] pu:2":              `NUMA nodes both as a level and attached`,
	} {
		want = fmt.Sprintf("machine %q: %s", desc, want)
		if _, err := Host(desc); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestSyntheticPartitions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		level := func(name string) int { return rapid.IntRange(1, 3).Draw(t, name) }
		packs, nodes, caches, cores, threads := level("pack"), level("numa"), level("l3"), level("core"), level("pu")
		desc := fmt.Sprintf("pack:%d numa:%d l3:%d core:%d pu:%d", packs, nodes, caches, cores, threads)
		h, err := Host(desc)
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Packages) != packs || len(h.NUMANodes) != packs*nodes || len(h.L3) != packs*nodes*caches ||
			len(h.Cores) != packs*nodes*caches*cores {
			t.Fatalf("%s: %d packages, %d nodes, %d caches, %d cores", desc, len(h.Packages), len(h.NUMANodes),
				len(h.L3), len(h.Cores))
		}
		all := topology.CPURange(0, packs*nodes*caches*cores*threads-1)
		var inCores, inNodes topology.CPUSet
		for _, n := range h.NUMANodes {
			if n.CPUs.Overlaps(inNodes) {
				t.Fatalf("%s: node %d shares CPUs", desc, n.ID)
			}
			inNodes = inNodes.Union(n.CPUs)
		}
		for _, c := range h.Cores {
			node := slices.IndexFunc(h.NUMANodes, func(n topology.NUMANode) bool { return n.ID == *c.NUMANode })
			pack := slices.IndexFunc(h.Packages, func(p topology.Package) bool { return p.ID == *c.Package })
			if c.CPUs.Len() != threads || c.CPUs.Overlaps(inCores) || !c.CPUs.IsSubsetOf(h.NUMANodes[node].CPUs) ||
				!c.CPUs.IsSubsetOf(h.Packages[pack].CPUs) ||
				!c.CPUs.IsSubsetOf(h.L3[*c.L3].CPUs) {
				t.Fatalf("%s: core %+v", desc, c)
			}
			inCores = inCores.Union(c.CPUs)
		}
		if !inCores.Equal(all) || !inNodes.Equal(all) || !h.CPUs.Online.Equal(all) {
			t.Fatalf("%s: CPUs %s in cores, %s in nodes, %s online, want %s", desc, inCores, inNodes, h.CPUs.Online,
				all)
		}
	})
}

// FuzzHost fails if the CPUs are not the union of the nodes' CPUs.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{
		"pack:2 numa:2 l3:4 core:4 pu:2", "numa:2(memory=64GiB) pack:1 core:8 pu:2",
		"[numa] pack:2 [numa] [numa(memory=1KiB)] core:4 pu:1", "l3:2(size=8MiB) core:2 pu:2", "(", "[", "numa:",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, desc string) {
		h, err := Host(desc)
		if err != nil {
			return
		}
		var inNodes topology.CPUSet
		for _, n := range h.NUMANodes {
			if n.CPUs.Overlaps(inNodes) {
				t.Fatalf("node %d shares CPUs", n.ID)
			}
			inNodes = inNodes.Union(n.CPUs)
		}
		if !inNodes.Equal(h.CPUs.Online) || h.CPUs.Online.IsEmpty() {
			t.Fatalf("nodes have CPUs %s, the machine %s", inNodes, h.CPUs.Online)
		}
	})
}
