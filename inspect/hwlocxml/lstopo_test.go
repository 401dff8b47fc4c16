package hwlocxml

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/synthetic"
	"github.com/rackless/rackless/topology"
)

// described are machines that synthetic.Host and hwloc make of the same words.
var described = []string{
	"pu:4",
	"6",
	"2 3 4",
	"2 2 2 2",
	"2 2 2 1 2 1 1 1 2",
	"3 [numa] 4",
	"pack:2 numa:2 l3:1 core:2 pu:2",
	"numa:2 pack:1 core:4 pu:2",
	"node:2 socket:1 core:2 2",
	"pack:2 die:2 l3:2(size=32MiB) core:2 pu:1",
	"pack:2 numa:2(memory=64GiB) core:4 pu:2(indexes=core:numa:pack)",
	"pack:2 core:2(indexes=8,9,0,1) pu:2(indexes=pack)",
	"core:4 pu:1(indexes=2*2:1*2)",
	"numa:3(indexes=8,0,4 memory=1GB) core:2 pu:1",
	"group:2 group:2 l2:1 core:2 pu:2",
	"[numa] pack:2 [numa] [numa] core:4 1",
	"pack:2 [numa(memory=16GiB indexes=3,1,0,2)] [numa(memory=4TiB)] core:2 1",
	"pack:4 numa:2 l3:2 core:4 pu:2",
}

// TestSyntheticAgainstLstopo compares synthetic.Host with what hwloc 2.9 made of the same
// descriptions, as testdata/synthetic has it; -update asks the lstopo that is installed.
func TestSyntheticAgainstLstopo(t *testing.T) {
	t.Parallel()
	notName := regexp.MustCompile(`[^a-z0-9]+`)
	for _, desc := range described {
		name := "synthetic/" + strings.Trim(notName.ReplaceAllString(strings.ToLower(desc), "-"), "-") + ".xml"
		if *update {
			recordSynthetic(t, desc, name)
		}
		want, err := Parse(content(t, name), name)
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := synthetic.Host(desc)
		if err != nil {
			t.Error(err)
			continue
		}
		// hwloc makes up what is not stated: 1 GiB a node, sizes of caches, no distances.
		stated := strings.Contains(desc, "memory=")
		for i := range want.NUMANodes {
			if want.NUMANodes[i].Hugepages = nil; !stated {
				want.NUMANodes[i].MemoryBytes = nil
			}
			got.NUMANodes[i].Distances = nil
		}
		if !stated {
			want.Memory = topology.Memory{}
		}
		if !strings.Contains(desc, "size=") {
			for i := range want.L3 {
				want.L3[i].SizeBytes = nil
			}
		}
		want.Provenance, got.Provenance = topology.Provenance{}, topology.Provenance{}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-lstopo +got):\n%s", desc, diff)
		}
	}
}

// recordSynthetic writes what lstopo makes of a description. gp_index has the order in which hwloc
// made the objects: it is of no use here.
func recordSynthetic(t *testing.T, desc, name string) {
	t.Helper()
	out, err := exec.Command("lstopo-no-graphics", "-i", desc, "--of", "xml", "-").Output()
	if err != nil {
		t.Fatalf("lstopo -i %s: %v", strconv.Quote(desc), err)
	}
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	out = regexp.MustCompile(` gp_index="\d+"`).ReplaceAll(out, nil)
	out = bytes.ReplaceAll(out, []byte("    <info name=\"ProcessName\" value=\"lstopo-no-graphics\"/>\n"), nil)
	if err := os.WriteFile(path, out, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestAgainstLstopo lets hwloc read the files and write them again as version 2. What is read from
// both must agree: so hwloc's reading of version 1 is compared with this one's. It runs where hwloc
// 2 is installed.
func TestAgainstLstopo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs lstopo some 60 times")
	}
	program, err := exec.LookPath("lstopo-no-graphics")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no lstopo: install hwloc-nox to run this test")
	}
	version, err := exec.Command(program, "--version").Output()
	if err != nil || !bytes.Contains(version, []byte("lstopo-no-graphics 2.")) {
		t.Skipf("%s is not of hwloc 2: %s", program, version)
	}
	for _, name := range corpus(t) {
		if name == joined || bytes.Contains(content(t, name), []byte(`<topology version="3`)) || undecided[name] != "" {
			continue
		}
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			t.Parallel()
			// Without the flag for I/O lstopo would leave out what it finds unimportant.
			cmd := exec.Command(program, "-i", filepath.Join("testdata", name), "--whole-io", "--of", "xml", "-")
			var complaints strings.Builder
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil && strings.Contains(complaints.String(), "minimalistic parser") {
				// Debian 13 builds hwloc-nox without libxml2; what is left reads only what hwloc itself has written.
				t.Skipf("%s cannot read this file: %s", bytes.TrimSpace(version), complaints.String())
			}
			if err != nil {
				t.Fatalf("lstopo: %v: %s", err, complaints.String())
			}
			want, err := Parse(out, "lstopo")
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(comparable(want), comparable(parse(t, name))); diff != "" {
				t.Errorf("-lstopo +%s:\n%s", name, diff)
			}
		})
	}
}

// undecided are files that hwloc reads differently, with the reason why it is not followed.
var undecided = map[string]string{
	"xml-v1/16amd64-8n2c-cpusets.xml": "hwloc drops nodes that are not allowed; the file describes them",
}

// comparable leaves of a Host what does not depend on how it was read.
func comparable(h *topology.Host) *topology.Host {
	h.Provenance, h.Unread = topology.Provenance{}, nil
	h.CPUs = topology.CPUStates{} // hwloc 2 does not keep what version 1 says of online CPUs
	for i := range h.PCI {
		h.PCI[i].LocalCPUs = nil
	}
	for i := range h.NUMANodes {
		h.NUMANodes[i].Kind, h.NUMANodes[i].MemoryMode = "", "" // later releases guess them
	}
	return h
}
