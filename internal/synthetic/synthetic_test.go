package synthetic

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/topology"
)

// shape shows a synthetic machine in short: packages with dies, nodes, caches and cores, each with their CPUs.
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
		"pu:2":                        `node 0 "0-1"`,
		"4":                           `node 0 "0-3"`,
		" core:2\n1 ":                 `node 0 "0-1"; core 0=0 0 n0; core 1=1 1 n0`,
		"numa:2 core:1 pu:2":          `node 0 "0-1"; node 1 "2-3"; core 0=0 0-1 n0; core 1=1 2-3 n1`,
		"Package:2 NUMANode:1 2":      `package 0 0-1; package 1 2-3; node 0 "0-1"; node 1 "2-3"`,
		"numa:2 socket:1 core:1 pu:1": `package 0 0; package 1 1; node 0 "0"; node 1 "1"; core 0=0 0 p0 n0; core 1=1 1 p1 n1`,
		"pack:2 die:2 L3Cache:1(size=32MiB) core:1 pu:1": `package 0 0-1 die 0 0 die 1 1; package 1 2-3 die 2 2 die 3 3; node 0 "0-3"; ` +
			`L3 0 33554432; L3 1 33554432; L3 2 33554432; L3 3 33554432; ` +
			`core 0=0 0 p0 d0 n0 c0; core 1=1 1 p0 d1 n0 c1; core 2=2 2 p1 d2 n0 c2; core 3=3 3 p1 d3 n0 c3`,
		// As Linux numbers CPUs on x86: all first threads, then all second ones.
		"pack:2 [numa] core:2 pu:2(indexes=core:pack)": `package 0 0-1,4-5; package 1 2-3,6-7; node 0 "0-1,4-5"; node 1 "2-3,6-7"; ` +
			`core 0=0 0,4 p0 n0; core 1=1 1,5 p0 n0; core 2=2 2,6 p1 n1; core 3=3 3,7 p1 n1`,
		"pack:2 core:2(indexes=8,9,0,1) pu:1(indexes=pack:core)": `package 0 0,2; package 1 1,3; node 0 "0-3"; core 0=8 0 p0 n0; core 1=0 1 p1 n0; core 2=9 2 p0 n0; core 3=1 3 p1 n0`,
		"pu:4(indexes=2*2:1*2)":                                  `node 0 "0-3"`,
		"core:4 pu:1(indexes=2*2:1*2)":                           `node 0 "0-3"; core 0=0 0 n0; core 1=2 1 n0; core 2=1 2 n0; core 3=3 3 n0`,
		"numa:2(indexes=8,0 memory=1GB) 1":                       `node 0 "1" 1000000000; node 8 "0" 1000000000`,
		"[numa(memory=2kB)] [numa] pu:2":                         `node 0 "0-1" 2000; node 1 ""`,
		"[numa] pack:2 [numa(memory=1)] 1":                       `package 0 0; package 1 1; node 0 "0" 1; node 1 "1" 1; node 2 ""`,
		"pack:2 [numa(indexes=3,1)] core:1 1":                    `package 0 0; package 1 1; node 1 "1"; node 3 "0"; core 0=0 0 p0 n3; core 1=1 1 p1 n1`,
		"group:2 group:2 pu:1":                                   `node 0 "0-3"`,
		"2 2":                                                    `node 0 "0-1"; node 1 "2-3"`,
		"2 2 1":                                                  `package 0 0-1; package 1 2-3; node 0 "0"; node 1 "1"; node 2 "2"; node 3 "3"`,
		"1 1 2 1":                                                `package 0 0-1; node 0 "0-1"; core 0=0 0 p0 n0; core 1=1 1 p0 n0`,
		"1 1 1 2 1":                                              `package 0 0-1; node 0 "0-1"; core 0=0 0 p0 n0; core 1=1 1 p0 n0`,
		"1 1 2 1 1 1 1":                                          `package 0 0-1; node 0 "0-1"; L3 0; L3 1; core 0=0 0 p0 n0 c0; core 1=1 1 p0 n0 c1`,
		"2 1 1 1 1 1 1 1 1":                                      `package 0 0; package 1 1; node 0 "0"; node 1 "1"; L3 0; L3 1; core 0=0 0 p0 n0 c0; core 1=1 1 p1 n1 c1`,
		"2 [numa] 1 1":                                           `package 0 0; package 1 1; node 0 "0"; node 1 "1"; core 0=0 0 p0 n0; core 1=1 1 p1 n1`,
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
	for desc, want := range map[string]string{
		"":                             `machine "": at byte 0: no level in it; want for example "pack:2 core:4 pu:2"`,
		"[numa]":                       `machine "[numa]": at byte 0: no level in it; want for example "pack:2 core:4 pu:2"`,
		"pack:2 core:2":                `machine "pack:2 core:2": at byte 7: the last level is core; want pu`,
		"pack:2 cpu:2":                 `machine "pack:2 cpu:2": at byte 7: unknown type "cpu"; want pack, die, numa, group, l1 to l5, core or pu`,
		"machine:2 pu:1":               `machine "machine:2 pu:1": at byte 0: unknown type "machine"; want pack, die, numa, group, l1 to l5, core or pu`,
		"pack:0 pu:1":                  `machine "pack:0 pu:1": at byte 5: "0" is not a number of objects from 1`,
		"pack pu:1":                    `machine "pack pu:1": at byte 0: "pack" is not a number of objects from 1`,
		"pack:-1 pu:1":                 `machine "pack:-1 pu:1": at byte 5: "-1" is not a number of objects from 1`,
		"pack:2 pu:":                   `machine "pack:2 pu:": at byte 10: "" is not a number of objects from 1`,
		"pack:100 core:100 pu:1":       `machine "pack:100 core:100 pu:1": at byte 9: 10000 objects; at most 8192 are made`,
		"numa:1025 pu:1":               `machine "numa:1025 pu:1": at byte 0: 1025 NUMA nodes; at most 1024 are made`,
		"pack:1000 [numa] [numa] pu:1": `machine "pack:1000 [numa] [numa] pu:1": at byte 0: 2000 NUMA nodes; at most 1024 are made`,
		strings.Repeat("group:1 ", 40): `machine "` + strings.Repeat("group:1 ", 10) +
			`...": at byte 256: more than 32 levels`,
		"pack:2 4 pu:1":                         `machine "pack:2 4 pu:1": at byte 7: a level without a type among levels with one`,
		"pack:2 pack:2 pu:1":                    `machine "pack:2 pack:2 pu:1": at byte 7: a second level of pack`,
		"pu:2 pu:2":                             `machine "pu:2 pu:2": at byte 5: a second level of pu`,
		"core:2 pack:2 pu:2":                    `machine "core:2 pack:2 pu:2": at byte 7: pack inside of core`,
		"core:2 l3:2 pu:2":                      `machine "core:2 l3:2 pu:2": at byte 7: l3 inside of core`,
		"core:2 numa:2 pu:2":                    `machine "core:2 numa:2 pu:2": at byte 7: a NUMA node inside of a core`,
		"core:2 [numa] pu:2":                    `machine "core:2 [numa] pu:2": at byte 7: a NUMA node for each core`,
		"die:2 pu:2":                            `machine "die:2 pu:2": at byte 0: dies without packages`,
		"numa:2 [numa] pu:2":                    `machine "numa:2 [numa] pu:2": at byte 7: NUMA nodes both as a level and attached`,
		"pack:2 [core] pu:2":                    `machine "pack:2 [core] pu:2": at byte 8: type "core" in brackets; only numa can be attached`,
		"pack:2 [numa pu:2":                     `machine "pack:2 [numa pu:2": at byte 12: want ]`,
		"pack:2 [numa(memory=1 pu:2":            `machine "pack:2 [numa(memory=1 pu:2": at byte 22: "pu:2": want indexes=, of NUMA nodes memory=, of caches size=`,
		"pack:2(":                               `machine "pack:2(": at byte 7: want )`,
		"pack:2(memory=1GiB) pu:2":              `machine "pack:2(memory=1GiB) pu:2": at byte 7: "memory=1GiB": want indexes=, of NUMA nodes memory=, of caches size=`,
		"(memory=1GiB) pu:2":                    `machine "(memory=1GiB) pu:2": at byte 0: "" is not a number of objects from 1`,
		"numa:2(memory=lots) pu:2":              `machine "numa:2(memory=lots) pu:2": at byte 14: "lots" is not a size; want bytes, or a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB`,
		"numa:2(memory=99999999TiB) pu:2":       `machine "numa:2(memory=99999999TiB) pu:2": at byte 14: "99999999TiB" is not a size; want bytes, or a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB`,
		"pack:2 pu:2(indexes=)":                 `machine "pack:2 pu:2(indexes=)": at byte 20: no indexes`,
		"pack:2 pu:2(indexes=0,1)":              `machine "pack:2 pu:2(indexes=0,1)": at byte 20: 2 indexes; the level has 4 objects`,
		"pu:2(indexes=0,)":                      `machine "pu:2(indexes=0,)": at byte 13: index "" is not a number from 0 to 65535`,
		"pu:2(indexes=0,99999)":                 `machine "pu:2(indexes=0,99999)": at byte 13: index "99999" is not a number from 0 to 65535`,
		"pu:2(indexes=1,1)":                     `machine "pu:2(indexes=1,1)": at byte 13: indexes "1,1" give number 1 twice`,
		"pu:4(indexes=1*2:1*2)":                 `machine "pu:4(indexes=1*2:1*2)": at byte 13: indexes "1*2:1*2" give number 0 twice`,
		"pu:4(indexes=9*2)":                     `machine "pu:4(indexes=9*2)": at byte 13: loop "9*2" is not step*count, each from 1 to 4`,
		"pu:4(indexes=2*2:2*3)":                 `machine "pu:4(indexes=2*2:2*3)": at byte 13: indexes "2*2:2*3" count to 6; the level has 4 objects`,
		"pu:6(indexes=1*2)":                     `machine "pu:6(indexes=1*2)": at byte 13: indexes "1*2" count to 2; the level has 6 objects`,
		"pack:2 pu:2(indexes=core)":             `machine "pack:2 pu:2(indexes=core)": at byte 20: no level "core" above the CPUs`,
		"pack:2 pu:2(indexes=pack:pack)":        `machine "pack:2 pu:2(indexes=pack:pack)": at byte 20: indexes "pack:pack" give number 0 twice`,
		"pack:2(indexes=core) core:2 pu:1":      `machine "pack:2(indexes=core) core:2 pu:1": at byte 15: 2 objects do not divide over 4 of level core`,
		"[numa(indexes=0)] [numa(indexes=1)] 1": `machine "[numa(indexes=0)] [numa(indexes=1)] 1": at byte 32: indexes of attached nodes are given once, for all of them`,
	} {
		_, err := Host(desc)
		if err == nil {
			t.Errorf("%s: no error", desc)
			continue
		}
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
		var at *Error
		if !errors.As(err, &at) || at.Offset < 0 || at.Offset > len(desc) {
			t.Errorf("%s: got %#v, want a *Error inside the description", desc, err)
		}
	}
}

// TestSyntheticPartitions makes machines at random: CPUs divide into cores, cores into packages, nodes and caches.
func TestSyntheticPartitions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		level := func(name string) int { return rapid.IntRange(1, 3).Draw(t, name) }
		packs, nodes, caches, cores, threads := level("pack"), level("numa"), level("l3"), level("core"), level("pu")
		order := rapid.SampledFrom([]string{"", "(indexes=core:pack)", "(indexes=pack:numa:core)", "(indexes=l3)"}).
			Draw(t, "order")
		desc := fmt.Sprintf("pack:%d numa:%d l3:%d core:%d pu:%d%s", packs, nodes, caches, cores, threads, order)
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

// FuzzHost holds that a line makes a machine whose CPUs are its nodes', or an error with its place.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{
		"pack:2 numa:2 l3:4 core:4 pu:2", "numa:2(memory=64GiB indexes=8,0) pack:1 core:8 pu:2(indexes=core:numa)",
		"[numa] pack:2 [numa] [numa(memory=1)] core:4 1",
		"2 3 4", "pu:4(indexes=2*2:1*2)", "l3cache:2(size=8MB) core:2 pu:2", "(", "[", "numa:", "pu:2(indexes=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, desc string) {
		h, err := Host(desc)
		if err != nil {
			var at *Error
			if !errors.As(err, &at) || at.Offset < 0 || at.Offset > len(desc) {
				t.Fatalf("got %#v, want a *Error inside the description", err)
			}
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
