package hwlocxml

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/topology"
)

// joined is the only refused file: four machines in one tree.
const joined = "xml-v1/8em64t-2mi2ma2c.xml"

// corpus lists the copies; TestSyntheticAgainstLstopo makes the files in testdata/synthetic.
func corpus(t testing.TB) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir("testdata", func(p string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".xml") && filepath.Base(filepath.Dir(p)) != "synthetic" {
			files = append(files, strings.TrimPrefix(filepath.ToSlash(p), "testdata/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("%d files found; the corpus has more than 100", len(files))
	}
	return files
}

func parse(t testing.TB, name string) *topology.Host {
	t.Helper()
	h, err := Parse(content(t, name), name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func content(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestProvenance checks that the copies are unchanged.
func TestProvenance(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSpace(string(content(t, "PROVENANCE.tsv"))), "\n")
	known := map[string]bool{}
	for _, line := range lines[1:] {
		columns := strings.Split(line, "\t")
		name := strings.TrimPrefix(columns[0], "hwloc/")
		known[name] = true
		sum := sha256.Sum256(content(t, name))
		if got := hex.EncodeToString(sum[:]); got != columns[7] {
			t.Errorf("%s: sha256 %s, PROVENANCE.tsv says %s", name, got, columns[7])
		}
	}
	for _, name := range corpus(t) {
		if !known[name] {
			t.Errorf("%s is not in PROVENANCE.tsv", name)
		}
	}
}

// TestCorpus fails if a file's result is inconsistent or differs from the golden summary.
func TestCorpus(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	for _, name := range corpus(t) {
		b := content(t, name)
		if !Sniff(b[:min(len(b), 4096)]) {
			t.Errorf("%s is not recognized", name)
		}
		h, err := Parse(b, name)
		if name == joined {
			want := name + ":32: object PU: second PU with os_index 0; the first is at line 13: a file that joins " +
				"several machines is not read"
			if err == nil || err.Error() != want {
				t.Errorf("got error %v, want %s", err, want)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		for _, wrong := range inconsistencies(h) {
			t.Errorf("%s: %s", name, wrong)
		}
		for _, wrong := range miscounts(b, h) {
			t.Errorf("%s: %s", name, wrong)
		}
		got.WriteString(summary(h))
	}
	golden.Check(t, filepath.Join("testdata", "golden", "corpus.txt"), got.Bytes())
}

func summary(h *topology.Host) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %q: %d packages, %d dies, %d cores, %d L3, CPUs %s", h.Provenance.Name, h.Provenance.Tool,
		h.System.CPUModel,
		len(h.Packages), dies(h), len(h.Cores), len(h.L3), h.CPUs.Online)
	if h.CPUs.Offline != nil {
		fmt.Fprintf(&b, ", offline %q", h.CPUs.Offline)
	}
	for _, n := range h.NUMANodes {
		fmt.Fprintf(&b, "; node %d: CPUs %q", n.ID, n.CPUs)
		if n.MemoryBytes != nil {
			fmt.Fprintf(&b, " %d MiB", *n.MemoryBytes>>20)
		}
		fmt.Fprintf(&b, " %v%s%s", n.Distances, prefixed(" ", n.Kind), prefixed(" ", n.MemoryMode))
		for _, p := range n.Hugepages {
			fmt.Fprintf(&b, " %dx%dK", p.Total, p.SizeBytes>>10)
		}
	}
	fmt.Fprintf(&b, "; %d PCI, %d disks, %d reported paths, %d unread", len(h.PCI), len(h.Storage), len(h.Reported),
		len(h.Unread))
	for _, g := range h.GPUs {
		fmt.Fprintf(&b, "; GPU %s %s@%s", g.ID(), g.Kind, at(g.NUMANode))
	}
	for _, n := range h.NICs {
		fmt.Fprintf(&b, "; NIC %s%v%v@%s", n.ID(), n.Netdevs, n.RDMA, at(n.NUMANode))
	}
	return b.String() + "\n"
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func at(node *int) string {
	if node == nil {
		return "?"
	}
	return fmt.Sprint(*node)
}

func dies(h *topology.Host) int {
	n := 0
	for _, p := range h.Packages {
		n += len(p.Dies)
	}
	return n
}

func inconsistencies(h *topology.Host) []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	disjoint := func(what string, sets []topology.CPUSet) {
		var all topology.CPUSet
		for i, s := range sets {
			if s.Overlaps(all) {
				say("%s %d shares CPUs %s with another", what, i, s.Intersect(all))
			}
			if !s.IsSubsetOf(h.CPUs.Online) {
				say("%s %d has CPUs %s that are not online", what, i, s.Difference(h.CPUs.Online))
			}
			all = all.Union(s)
		}
	}
	var nodes, cores, l3, packages []topology.CPUSet
	for i, n := range h.NUMANodes {
		nodes = append(nodes, n.CPUs)
		if n.Distances != nil && len(n.Distances) != len(h.NUMANodes) {
			say("node %d has %d distances to %d nodes", n.ID, len(n.Distances), len(h.NUMANodes))
		}
		if i > 0 && h.NUMANodes[i-1].ID >= n.ID {
			say("node %d is not after node %d", n.ID, h.NUMANodes[i-1].ID)
		}
	}
	for _, c := range h.Cores {
		cores = append(cores, c.CPUs)
		for _, n := range h.NUMANodes {
			if c.CPUs.Overlaps(n.CPUs) && (!c.CPUs.IsSubsetOf(n.CPUs) || c.NUMANode == nil || *c.NUMANode != n.ID) {
				say("core %d with CPUs %s is on node %s; node %d has CPUs %s", c.ID, c.CPUs, at(c.NUMANode), n.ID,
					n.CPUs)
			}
		}
	}
	for _, c := range h.L3 {
		l3 = append(l3, c.CPUs)
	}
	for _, p := range h.Packages {
		packages = append(packages, p.CPUs)
	}
	disjoint("node", nodes)
	disjoint("core", cores)
	disjoint("L3", l3)
	disjoint("package", packages)
	tree := topology.NewTree(h)
	for i := range h.PCI {
		d := &h.PCI[i]
		if d.Parent != nil && tree.Device(*d.Parent) == nil {
			say("function %s is below %s, which is not there", d.Address, d.Parent)
		}
		if d.NUMANode != nil && !slices.ContainsFunc(h.NUMANodes, func(n topology.NUMANode) bool {
			return n.ID == *d.NUMANode
		}) {
			say("function %s is on node %d, which is not there", d.Address, *d.NUMANode)
		}
	}
	if _, err := json.Marshal(h); err != nil {
		say("%v", err)
	}
	return wrong
}

var (
	objectTag = regexp.MustCompile(`<object [^>]*>`)
	attribute = regexp.MustCompile(` ([a-z_]+)="([^"]*)"`)
)

// miscounts compares h with counts made without the parser's tree.
func miscounts(b []byte, h *topology.Host) []string {
	count := map[string]int{}
	addresses := map[string]bool{} // some files have an address twice
	v3 := bytes.Contains(b, []byte(`<topology version="3`))
	for _, tag := range objectTag.FindAllString(string(b), -1) {
		attrs := map[string]string{}
		for _, m := range attribute.FindAllStringSubmatch(tag, -1) {
			attrs[m[1]] = m[2]
		}
		what := attrs["type"]
		switch {
		case what == "Socket":
			what = "Package"
		case what == "Cache" && attrs["depth"] == "3" && attrs["cache_type"] != "2":
			what = "L3Cache"
		case (what == "PCIDev" || what == "Bridge") && attrs["pci_busid"] != "":
			addresses[attrs["pci_busid"]] = true
		case what == "OSDev" && v3:
			what = map[string]string{"1": "disk", "16": "netdev", "48": "RDMA device"}[attrs["osdev_type"]]
		case what == "OSDev":
			what = map[string]string{"0": "disk", "2": "netdev", "3": "RDMA device"}[attrs["osdev_type"]]
		}
		count[what]++
	}
	if !v3 && !bytes.Contains(b, []byte(`<topology version="2`)) {
		count["NUMANode"] = max(count["NUMANode"], 1) // version 1 has no object for a single node
	}
	count["function"] = len(addresses)
	threads, netdevs, rdma := 0, 0, 0
	for _, c := range h.Cores {
		threads += c.CPUs.Len()
	}
	for _, n := range h.NICs {
		netdevs += len(n.Ports)
		rdma += len(n.Devices)
	}
	if len(h.Cores) == 0 {
		threads = count["PU"] // without cores, no CPU is in one
	}
	var wrong []string
	for _, c := range []struct {
		what string
		got  int
	}{
		{"Package", len(h.Packages)}, {"NUMANode", len(h.NUMANodes)}, {"L3Cache", len(h.L3)}, {"Core", len(h.Cores)},
		{"PU", threads},
		{"function", len(h.PCI)}, {"netdev", netdevs}, {"RDMA device", rdma}, {"disk", len(h.Storage)},
	} {
		if c.got != count[c.what] {
			wrong = append(wrong, fmt.Sprintf("%d of %s, the file has %d", c.got, c.what, count[c.what]))
		}
	}
	return wrong
}

// TestPairs reads machines in two versions of the format, which must be equal.
func TestPairs(t *testing.T) {
	t.Parallel()
	pairs := [][2]string{
		{"xml-v1/192em64t-12gr2n8c2t-distancegroups.xml", "xml-v2/192em64t-12gr2n8c2t.xml"},
		{"xml-v2/8intel64-fakeKNL-A2A-hybrid.rootattachednumas.v2tov1.xml",
			"xml-v2/8intel64-fakeKNL-A2A-hybrid.rootattachednumas.v1tov2.xml"},
		{"xml-v2/64intel64-fakeKNL-SNC4-hybrid.v2tov1.xml", "xml-v2/64intel64-fakeKNL-SNC4-hybrid.v1tov2.xml"},
	}
	files := corpus(t)
	add := func(a, b string) {
		if slices.Contains(files, b) {
			pairs = append(pairs, [2]string{a, b})
		}
	}
	for _, name := range files {
		dir, base := filepath.Split(name)
		if base == "32em64t-2n8c2t-pci-normalio.xml" || base == "32em64t-2n8c2t-pci-wholeio.xml" {
			continue // the two files omit different devices
		}
		switch dir {
		case "xml-v1/":
			add(name, "xml-v2/"+base)
		case "xml-v2/":
			add(name, "xml/"+base)
			if stem, ok := strings.CutSuffix(name, ".v1.xml"); ok {
				add(name, stem+".v1tov2.xml")
			} else {
				add(name, strings.TrimSuffix(name, ".xml")+".v2tov1.xml")
			}
		}
	}
	if len(pairs) < 25 {
		t.Fatalf("%d pairs found; the corpus has more", len(pairs))
	}
	for _, pair := range pairs {
		t.Run(strings.ReplaceAll(pair[0], "/", "_")+" and "+strings.ReplaceAll(pair[1], "/", "_"), func(t *testing.T) {
			t.Parallel()
			a, b := parse(t, pair[0]), parse(t, pair[1])
			a.Provenance, b.Provenance = topology.Provenance{}, topology.Provenance{}
			// Version 2 cannot distinguish online from allowed CPUs, and omits nodes that are not allowed.
			a.Unread, b.Unread = nil, nil
			a.CPUs.Offline, b.CPUs.Offline = nil, nil
			if strings.HasSuffix(pair[0], "xml-v1/16amd64-8n2c-cpusets.xml") {
				forgetHidden(a, b)
			}
			// Version 3 has no counts of pages.
			if strings.HasPrefix(pair[1], "xml/") {
				for _, h := range []*topology.Host{a, b} {
					for i := range h.NUMANodes {
						h.NUMANodes[i].Hugepages = nil
					}
				}
			}
			if diff := gocmp.Diff(a, b); diff != "" {
				t.Errorf("-%s +%s:\n%s", pair[0], pair[1], diff)
			}
		})
	}
}

// forgetHidden removes data that b cannot have.
func forgetHidden(a, b *topology.Host) {
	a.CPUs.Online = b.CPUs.Online
	a.NUMANodes = slices.DeleteFunc(a.NUMANodes, func(n topology.NUMANode) bool { return n.ID == 0 || n.ID > 5 })
	for i := range a.NUMANodes {
		a.NUMANodes[i].Distances = a.NUMANodes[i].Distances[1:6]
	}
	for i := range a.Cores {
		if n := a.Cores[i].NUMANode; n != nil && (*n == 0 || *n > 5) {
			a.Cores[i].NUMANode = nil
		}
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	total := regexp.MustCompile(`(?m)depth -?\d+: +(\d+) (\w+)`)
	shown := regexp.MustCompile(`(\w+) L#\d+`)
	for console, source := range map[string]string{
		"xml/16amd64-4distances.console":                     "xml/16amd64-4distances.xml",
		"xml/16em64t-4s2c2t.console":                         "xml/16em64t-4s2c2t.xml",
		"xml/16intel64-manyVFs.console":                      "xml/16intel64-manyVFs.xml",
		"xml/16intel64-manyVFs.nocollapse.console":           "xml/16intel64-manyVFs.xml",
		"xml-v1/16em64t-4s2c2t.console.output":               "xml-v1/16em64t-4s2c2t.xml",
		"xml-v1/16intel64-manyVFs.console.output":            "xml-v1/16intel64-manyVFs.xml",
		"xml-v1/16intel64-manyVFs.console.nocollapse.output": "xml-v1/16intel64-manyVFs.xml",
		"xml-v2/16amd64-4distances.console.output":           "xml-v2/16amd64-4distances.xml",
		"xml-v2/16em64t-4s2c2t.console.output":               "xml-v2/16em64t-4s2c2t.xml",
		"xml-v2/16intel64-manyVFs.console.output":            "xml-v2/16intel64-manyVFs.xml",
		"xml-v2/16intel64-manyVFs.console.nocollapse.output": "xml-v2/16intel64-manyVFs.xml",
	} {
		text := string(content(t, console))
		want := map[string]int{}
		if totals := total.FindAllStringSubmatch(text, -1); totals != nil {
			for _, m := range totals {
				want[m[2]], _ = strconv.Atoi(m[1])
			}
		} else {
			for _, m := range shown.FindAllStringSubmatch(text, -1) {
				want[m[1]]++
			}
		}
		want["NUMANode"] = max(want["NUMANode"], 1)
		h := parse(t, source)
		bridges := 0
		for i := range h.PCI {
			if h.PCI[i].Bridge != nil {
				bridges++
			}
		}
		for what, got := range map[string]int{"Package": len(h.Packages), "NUMANode": len(h.NUMANodes),
			"Core": len(h.Cores), "PU": h.CPUs.Online.Len()} {
			if got != want[what] {
				t.Errorf("%s: %d of %s, lstopo printed %d", source, got, what, want[what])
			}
		}
		if n, ok := want["PCIDev"]; ok && n != len(h.PCI)-bridges {
			t.Errorf("%s: %d PCI devices that are no bridges, lstopo printed %d", source, len(h.PCI)-bridges, n)
		}
	}
}

func TestFilled(t *testing.T) {
	t.Parallel()
	want := []string{"system", "packages", "numa_nodes", "numa_memory", "numa_distances", "l3", "cores", "cpus",
		"memory", "pci", "pci_links", "gpus",
		"nics", "storage"}
	if diff := gocmp.Diff(want, parse(t, "mpibind/eas-tioga.xml").Provenance.Filled); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDeterministic(t *testing.T) {
	t.Parallel()
	first := parse(t, "mpibind/coral-lassen.xml")
	for range 5 {
		if diff := gocmp.Diff(first, parse(t, "mpibind/coral-lassen.xml")); diff != "" {
			t.Fatal(diff)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	files := corpus(b)
	largest := slices.MaxFunc(files, func(x, y string) int {
		return cmp.Compare(len(content(b, x)), len(content(b, y)))
	})
	data := content(b, largest)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(data, largest); err != nil {
			b.Fatal(err)
		}
	}
}
