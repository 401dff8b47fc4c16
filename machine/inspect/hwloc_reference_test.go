package inspect

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

type reference struct {
	name    string
	source  string
	target  string
	wholeIO bool
}

// references lists tests with a ".test" file that names source and target, and older ones by name.
func references(t *testing.T) []reference {
	t.Helper()
	var out []reference
	for _, dir := range []string{"linux", "x86linux"} {
		tests, err := filepath.Glob("testdata/hwloc/" + dir + "/*.test")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range tests {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			ref := reference{name: dir + "/" + strings.TrimSuffix(filepath.Base(file), ".test")}
			for line := range strings.Lines(string(b)) {
				key, value, _ := strings.Cut(line, ":")
				switch value = strings.TrimSpace(value); key {
				case "source":
					ref.source = filepath.Join(filepath.Dir(file), value)
				case "target":
					ref.target = filepath.Join(filepath.Dir(file), value)
				case "options":
					ref.wholeIO = strings.Contains(value, "--whole-io")
				}
			}
			out = append(out, ref)
		}
	}
	archives, err := filepath.Glob("testdata/hwloc/linux-old/*.tar.bz2")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range archives {
		base := strings.TrimSuffix(file, ".tar.bz2")
		target := base + ".output"
		if _, err := os.Stat(target); err != nil {
			target = base + ".console"
		}
		out = append(out, reference{name: "linux-old/" + filepath.Base(base), source: file, target: target})
	}
	if len(out) < 40 {
		t.Fatalf("%d references; testdata/hwloc is not complete", len(out))
	}
	return out
}

func readDump(t *testing.T, file string) *topology.Host {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := tree.ReadArchive(bytes.NewReader(b), tree.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	root, err := mem.Chroot(tree.FindRoots(mem, archiveDepth)[0])
	if err != nil {
		t.Fatal(err)
	}
	h, err := Read(context.Background(), Source{Name: filepath.Base(file), FS: root})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func readFound(t *testing.T, ref reference) *found {
	t.Helper()
	b, err := os.ReadFile(ref.target)
	if err != nil {
		t.Fatal(err)
	}
	parse := parseConsole
	if strings.HasSuffix(ref.target, ".xml") {
		parse = parseHwlocXML
	}
	f, err := parse(string(b))
	if err != nil {
		t.Fatalf("%s: %v", ref.target, err)
	}
	if f.online.IsEmpty() {
		t.Fatalf("%s: no PUs found", ref.target)
	}
	f.wholeIO = ref.wholeIO
	return f
}

func differences(h *topology.Host, f *found) []string {
	var out []string
	differ := func(what string, ours, theirs any) {
		out = append(out, fmt.Sprintf("%s: rackless %v, hwloc %v", what, ours, theirs))
	}
	if !h.CPUs.Online.Equal(f.online) {
		differ("online CPUs", h.CPUs.Online, f.online)
	}
	ours := map[int]*topology.NUMANode{}
	for i := range h.NUMANodes {
		ours[h.NUMANodes[i].ID] = &h.NUMANodes[i]
	}
	if a, b := slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(f.nodes)); !slices.Equal(a, b) {
		differ("NUMA nodes", a, b)
	}
	for _, id := range slices.Sorted(maps.Keys(f.nodes)) {
		n, theirs := ours[id], f.nodes[id]
		if n == nil {
			continue
		}
		if !n.CPUs.Equal(theirs.cpus) {
			differ(fmt.Sprintf("CPUs of node %d", id), n.CPUs, theirs.cpus)
		}
		// lstopo prints nothing for no memory, nor for unknown memory.
		if memory := value(n.MemoryBytes); max(memory, theirs.memory)-min(memory, theirs.memory) > theirs.unit/2 {
			differ(fmt.Sprintf("memory of node %d", id), memory, theirs.memory)
		}
		if theirs.kind != "" && memoryKinds[theirs.kind] != n.Kind {
			differ(fmt.Sprintf("kind of node %d", id), strconv.Quote(n.Kind), strconv.Quote(theirs.kind))
		}
	}
	out = append(out, distanceDifferences(h, f)...)
	out = append(out, setDifferences(h, f)...)
	return append(out, pciDifferences(h, f)...)
}

var memoryKinds = map[string]string{"DRAM": kindDRAM, "HBM": kindHBM, "MCDRAM": kindHBM, "NVM": kindNVDIMM,
	"GPUMemory": kindGPU}

func value(p *uint64) uint64 {
	if p == nil {
		return 0
	}
	return *p
}

func distanceDifferences(h *topology.Host, f *found) []string {
	var out []string
	for i := range h.NUMANodes {
		from := &h.NUMANodes[i]
		for j := range h.NUMANodes {
			to := h.NUMANodes[j].ID
			theirs, ok := f.distances[[2]int{from.ID, to}]
			if !ok {
				// hwloc shows no matrix for one node, nor one without information.
				if len(f.nodes) > 1 && len(f.distances) > 0 && from.Distances != nil && hasNode(f, from.ID) &&
					hasNode(f, to) {
					out = append(out, fmt.Sprintf("distance %d-%d: rackless %d, hwloc none", from.ID, to,
						from.Distances[j]))
				}
				continue
			}
			if from.Distances == nil {
				out = append(out, fmt.Sprintf("distance %d-%d: rackless none, hwloc %d", from.ID, to, theirs))
			} else if from.Distances[j] != theirs {
				out = append(out, fmt.Sprintf("distance %d-%d: rackless %d, hwloc %d", from.ID, to, from.Distances[j],
					theirs))
			}
		}
	}
	return out
}

func hasNode(f *found, id int) bool { _, ok := f.nodes[id]; return ok }

func setDifferences(h *topology.Host, f *found) []string {
	var packages, cores, caches []foundSet
	for _, p := range h.Packages {
		packages = append(packages, foundSet{new(p.ID), p.CPUs})
	}
	for _, c := range h.Cores {
		cores = append(cores, foundSet{c.OSID, c.CPUs})
	}
	for _, c := range h.L3 {
		caches = append(caches, foundSet{nil, c.CPUs})
	}
	return slices.Concat(compareSets("package", packages, f.packages), compareSets("core", cores, f.cores),
		compareSets("L3", caches, f.l3))
}

func compareSets(what string, ours, theirs []foundSet) []string {
	var out []string
	byCPUs := func(a, b foundSet) int { return a.cpus.Compare(b.cpus) }
	ours, theirs = slices.SortedFunc(slices.Values(ours), byCPUs), slices.SortedFunc(slices.Values(theirs), byCPUs)
	for len(ours) > 0 || len(theirs) > 0 {
		switch {
		case len(theirs) == 0 || len(ours) > 0 && byCPUs(ours[0], theirs[0]) < 0:
			out = append(out, fmt.Sprintf("%s of CPUs %v: rackless only", what, ours[0].cpus))
			ours = ours[1:]
		case len(ours) == 0 || byCPUs(ours[0], theirs[0]) > 0:
			out = append(out, fmt.Sprintf("%s of CPUs %v: hwloc only", what, theirs[0].cpus))
			theirs = theirs[1:]
		default:
			if a, b := ours[0].id, theirs[0].id; a != nil && b != nil && *a != *b {
				out = append(out, fmt.Sprintf("number of %s of CPUs %v: rackless %d, hwloc %d", what, ours[0].cpus, *a,
					*b))
			}
			ours, theirs = ours[1:], theirs[1:]
		}
	}
	return out
}

// pciDifferences expects a device without nearby CPUs at hwloc's machine.
func pciDifferences(h *topology.Host, f *found) []string {
	var out []string
	tree := topology.NewTree(h)
	for _, a := range slices.SortedFunc(maps.Keys(f.pci), topology.PCIAddr.Compare) {
		d := tree.Device(a)
		if d == nil {
			out = append(out, fmt.Sprintf("PCI %v: hwloc only", a))
			continue
		}
		near := h.CPUs.Online
		for i := range h.NUMANodes {
			if d.NUMANode != nil && h.NUMANodes[i].ID == *d.NUMANode {
				near = h.NUMANodes[i].CPUs
			}
		}
		if !near.Equal(f.pci[a]) {
			out = append(out, fmt.Sprintf("CPUs near PCI %v: rackless %v, hwloc %v", a, near, f.pci[a]))
		}
	}
	if f.wholeIO {
		for i := range h.PCI {
			if _, ok := f.pci[h.PCI[i].Address]; !ok {
				out = append(out, fmt.Sprintf("PCI %v: rackless only", h.PCI[i].Address))
			}
		}
	}
	return out
}

// TestHostsAgreeWithHwloc fails for a difference without a decision, or a decision without a difference.
func TestHostsAgreeWithHwloc(t *testing.T) {
	t.Parallel()
	what := make([]*regexp.Regexp, len(decided))
	for i, c := range decided {
		what[i] = regexp.MustCompile(c.what)
	}
	var mu sync.Mutex
	counts := make([]int, len(decided))
	seen := map[string]bool{} // "index of decision, test"
	refs := references(t)
	if testing.Short() {
		refs = storey.Some(storey.Rand(t), refs, len(refs)/10)
	}
	t.Run("references", func(t *testing.T) {
		for _, ref := range refs {
			t.Run(ref.name, func(t *testing.T) {
				t.Parallel()
				for _, d := range differences(readDump(t, ref.source), readFound(t, ref)) {
					at := 0
					for at < len(decided) && !(slices.Contains(decided[at].tests, ref.name) &&
						what[at].MatchString(d)) {
						at++
					}
					if at == len(decided) {
						t.Errorf("%s; find out who is right and fix it, or add it to decided", d)
						continue
					}
					mu.Lock()
					counts[at]++
					seen[fmt.Sprint(at, ref.name)] = true
					mu.Unlock()
				}
			})
		}
	})
	if testing.Short() { // the others may have the differences
		return
	}
	for i, c := range decided {
		for _, name := range c.tests {
			if !seen[fmt.Sprint(i, name)] {
				t.Errorf("%s has no difference like %s any more; remove it from decided", name, c.what)
			}
		}
		if counts[i] != c.count {
			t.Errorf("%d differences like %s in %v; decided for %d", counts[i], c.what, c.tests, c.count)
		}
	}
}
