package synthetic

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/dump/hwlocxml"
	"github.com/rackless/rackless/machine/topology"
)

var alike = [][2]string{
	{"pu:4", "pu:4"},
	{"6", "pu:6"},
	{"2 3 4", "pack:2 numa:3 pu:4"},
	{"2 2 2 2", "pack:2 numa:2 core:2 pu:2"},
	{"2 2 2 1 2 1 1 1 2", "pack:4 numa:2 l3:1 core:2 pu:2"},
	{"3 [numa] 4", "pack:3 [numa] pu:4"},
	{"pack:2 numa:2 l3:1 core:2 pu:2", "pack:2 numa:2 l3:1 core:2 pu:2"},
	{"numa:2 pack:1 core:4 pu:2", "numa:2 pack:1 core:4 pu:2"},
	{"node:2 socket:1 core:2 2", "numa:2 pack:1 core:2 pu:2"},
	{"pack:2 die:2 l3:2(size=32MiB) core:2 pu:1", "pack:2 die:2 l3:2(size=32MiB) core:2 pu:1"},
	{"group:2 group:2 l2:1 core:2 pu:2", "core:8 pu:2"},
	{"[numa] pack:2 [numa] [numa] core:4 1", "[numa] pack:2 [numa] [numa] core:4 pu:1"},
	{"pack:4 numa:2 l3:2 core:4 pu:2", "pack:4 numa:2 l3:2 core:4 pu:2"},
}

var numbered = map[string]string{
	"pack:2 numa:2(memory=64GiB) core:4 pu:2(indexes=core:numa:pack)": `package 0 0-7,16-23; package 1 8-15,24-31; ` +
		`node 0 "0-3,16-19" 68719476736; node 1 "4-7,20-23" 68719476736; ` +
		`node 2 "8-11,24-27" 68719476736; node 3 "12-15,28-31" 68719476736; ` +
		`core 0=0 0,16 p0 n0; core 1=1 1,17 p0 n0; core 2=2 2,18 p0 n0; core 3=3 3,19 p0 n0; ` +
		`core 4=4 4,20 p0 n1; core 5=5 5,21 p0 n1; core 6=6 6,22 p0 n1; core 7=7 7,23 p0 n1; ` +
		`core 8=8 8,24 p1 n2; core 9=9 9,25 p1 n2; core 10=10 10,26 p1 n2; core 11=11 11,27 p1 n2; ` +
		`core 12=12 12,28 p1 n3; core 13=13 13,29 p1 n3; core 14=14 14,30 p1 n3; core 15=15 15,31 p1 n3`,
	"pack:2 core:2(indexes=8,9,0,1) pu:2(indexes=pack)": `package 0 0,2,4,6; package 1 1,3,5,7; ` +
		`node 0 "0-7" 1073741824; ` +
		`core 0=8 0,2 p0 n0; core 1=0 1,3 p1 n0; core 2=9 4,6 p0 n0; core 3=1 5,7 p1 n0`,
	"core:4 pu:1(indexes=2*2:1*2)": `node 0 "0-3" 1073741824; ` +
		`core 0=0 0 n0; core 1=2 1 n0; core 2=1 2 n0; core 3=3 3 n0`,
	"numa:3(indexes=8,0,4 memory=1GB) core:2 pu:1": `node 0 "2-3" 1000000000; node 4 "4-5" 1000000000; ` +
		`node 8 "0-1" 1000000000; core 0=0 0 n8; core 1=1 1 n8; core 2=2 2 n0; core 3=3 3 n0; ` +
		`core 4=4 4 n4; core 5=5 5 n4`,
	"pack:2 [numa(memory=16GiB indexes=3,1,0,2)] [numa(memory=4TiB)] core:2 1": `package 0 0-1; package 1 2-3; ` +
		`node 0 "2-3" 17179869184; node 1 "0-1" 4398046511104; node 2 "" 4398046511104; node 3 "" 17179869184; ` +
		`core 0=0 0 p0 n1; core 1=1 1 p0 n1; core 2=2 2 p1 n0; core 3=3 3 p1 n0`,
}

// TestSyntheticAgainstLstopo compares Host with hwloc 2.9.
func TestSyntheticAgainstLstopo(t *testing.T) {
	t.Parallel()
	for _, words := range alike {
		want := lstopo(t, words[0])
		got, err := Host(words[1])
		if err != nil {
			t.Error(err)
			continue
		}
		// hwloc invents 1 GiB per node and cache sizes, but no distances.
		for i := range want.NUMANodes {
			want.NUMANodes[i].Hugepages, want.NUMANodes[i].MemoryBytes = nil, nil
			got.NUMANodes[i].Distances = nil
		}
		want.Memory = topology.Memory{}
		if !strings.Contains(words[1], "size=") {
			for i := range want.L3 {
				want.L3[i].SizeBytes = nil
			}
		}
		want.Provenance, got.Provenance = topology.Provenance{}, topology.Provenance{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-lstopo +got):\n%s", words, diff)
		}
	}
}

func TestNumberedMachinesOfLstopo(t *testing.T) {
	t.Parallel()
	for desc, want := range numbered {
		if diff := cmp.Diff(want, shape(lstopo(t, desc))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", desc, diff)
		}
	}
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// lstopo runs the installed program with -update.
func lstopo(t *testing.T, desc string) *topology.Host {
	t.Helper()
	name := "../dump/hwlocxml/testdata/synthetic/" +
		strings.Trim(notName.ReplaceAllString(strings.ToLower(desc), "-"), "-") + ".xml"
	if golden.Update() {
		out, err := exec.Command("lstopo-no-graphics", "-i", desc, "--of", "xml", "-").Output()
		if err != nil {
			t.Fatalf("lstopo -i %q: %v", desc, err)
		}
		out = regexp.MustCompile(` gp_index="\d+"`).ReplaceAll(out, nil)
		out = bytes.ReplaceAll(out, []byte("    <info name=\"ProcessName\" value=\"lstopo-no-graphics\"/>\n"), nil)
		if err := os.WriteFile(name, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	h, err := hwlocxml.Parse(b, name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
