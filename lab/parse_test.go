package lab

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rackless/rackless/internal/golden"
)

var prefixes = cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})

func mustParse(t testing.TB, text string) *Lab {
	t.Helper()
	l, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("parse:\n%s\n%v", text, err)
	}
	return l
}

func names(l *Lab) []string {
	var all []string
	for _, n := range l.Nodes {
		all = append(all, n.Name)
	}
	return all
}

func TestPairHasEveryDefault(t *testing.T) {
	got := mustParse(t, "name: pair\nnodes:\n  vm00: {}\n  vm01: {}\n")
	nic := func(mac, addr string) []NIC {
		return []NIC{{Name: "eth0", MAC: mac, Addr: netip.MustParsePrefix(addr)}}
	}
	want := &Lab{
		Name: "pair", Driver: "auto", Workload: "mixed",
		Fabric:    Fabric{MTU: 4200, Subnet: netip.MustParsePrefix("10.0.0.0/24")},
		Hugepages: "auto", Tenants: "read",
		Nodes: []Node{
			{Name: "vm00", CPUs: 1, Memory: 256 * MiB, Image: "builtin", NICs: nic("52:54:00:ca:ee:be", "10.0.0.1/24"),
				NIC: "auto", SMT: "auto", GuestNUMA: "auto", NICRequests: []DeviceRequest{{Count: 1}}},
			{Name: "vm01", CPUs: 1, Memory: 256 * MiB, Image: "builtin", NICs: nic("52:54:00:a5:94:8c", "10.0.0.2/24"),
				NIC: "auto", SMT: "auto", GuestNUMA: "auto", NICRequests: []DeviceRequest{{Count: 1}}},
		},
	}
	if diff := cmp.Diff(want, got, prefixes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExamples(t *testing.T) {
	sizes := map[string]int{"pair": 2, "sixteen": 16, "sixtyfour": 64, "full": 6, "connectx": 2, "incast": 6,
		"soft-roce": 2, "epyc-pair": 2, "epyc-lab": 2, "h20-four": 4, "h20-vfs": 8, "h20-two": 2, "r740-one": 1,
		"r740-eight": 8, "slurm": 4, "cluster": 4, "cluster-sixteen": 16, "vsphere": 16, "course": 2, "arm64": 2,
		"gpu": 2, "gpu-matrix": 2, "gpudirect": 2, "h20": 2, "two-gpus": 2, "leaf-spine": 4}
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < len(sizes) {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			l, err := Parse(path, data)
			if err != nil {
				t.Fatal(err)
			}
			if l.Name != name || len(l.Nodes) != sizes[name] {
				t.Errorf("is the lab %s of %d nodes, want %s of %d", l.Name, len(l.Nodes), name, sizes[name])
			}
			if again := mustParse(t, string(l.YAML())); !cmp.Equal(l, again, prefixes) {
				t.Errorf("reads back otherwise:\n%s", cmp.Diff(l, again, prefixes))
			}
			if name == "pair" || name == "full" {
				golden.Check(t, "testdata/"+name+".resolved.yaml", l.YAML())
			}
		})
	}
}

// full.yaml promises every key, except for Slurm, and /home, arch and switches (only for emulated
// nodes) and vSphere.
func TestFullExampleShowsEveryKey(t *testing.T) {
	data, err := os.ReadFile("../examples/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	slurm, err := os.ReadFile("../examples/slurm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	vsphere, err := os.ReadFile("../examples/vsphere.yaml")
	if err != nil {
		t.Fatal(err)
	}
	arm, err := os.ReadFile("../examples/arm64.yaml")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := os.ReadFile("../examples/gpu.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h20, err := os.ReadFile("../examples/h20.yaml")
	if err != nil {
		t.Fatal(err)
	}
	leaves, err := os.ReadFile("../examples/leaf-spine.yaml")
	if err != nil {
		t.Fatal(err)
	}
	data = slices.Concat(data, slurm, vsphere, arm, gpu, h20, leaves)
	var text strings.Builder // without comments
	for line := range strings.Lines(string(data)) {
		code, _, _ := strings.Cut(line, "#")
		text.WriteString(strings.TrimRight(code, " \n") + "\n")
	}
	keys := schemaKeys(t)
	if len(keys) < 30 {
		t.Errorf("found only the keys %q", keys)
	}
	for _, k := range keys {
		if !regexp.MustCompile(`(?m)(^|[\s{])` + k + `:(\s|$)`).MatchString(text.String()) {
			t.Errorf("does not show %s", k)
		}
	}
}

func schemaKeys(t *testing.T) []string {
	t.Helper()
	var root any
	if err := json.Unmarshal(makeSchema(), &root); err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			properties, _ := v["properties"].(map[string]any)
			for k := range properties {
				keys[k] = true
			}
			for _, sub := range v {
				walk(sub)
			}
		case []any:
			for _, sub := range v {
				walk(sub)
			}
		}
	}
	walk(root)
	return slices.Sorted(maps.Keys(keys))
}

func TestDefaultsApplyUnlessTheNodeHasItsOwn(t *testing.T) {
	l := mustParse(t, `
name: mix
defaults: {cpus: 4, memory: 1G, image: a.qcow2, nics: 2, gpus: 1}
nodes:
  plain:
  own: {cpus: 2, memory: 384MiB, image: builtin, nics: 1, gpus: 0}
`)
	want := []Node{
		{Name: "plain", CPUs: 4, Memory: GiB, Image: "a.qcow2", GPUs: 1, NIC: "auto", SMT: Auto, GuestNUMA: Auto,
			GPURequests: []DeviceRequest{{Count: 1}}, NICRequests: []DeviceRequest{{Count: 2}}},
		{Name: "own", CPUs: 2, Memory: 384 * MiB, Image: "builtin", GPUs: 0, NIC: "auto", SMT: Auto, GuestNUMA: Auto,
			NICRequests: []DeviceRequest{{Count: 1}}},
	}
	if diff := cmp.Diff(want, l.Nodes, cmpopts.IgnoreFields(Node{}, "NICs")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(l.Nodes[0].NICs) != 2 || len(l.Nodes[1].NICs) != 1 {
		t.Errorf("got %d and %d NICs, want 2 and 1", len(l.Nodes[0].NICs), len(l.Nodes[1].NICs))
	}
}

func TestNodesAreAtLeavesInTurn(t *testing.T) {
	for text, want := range map[string]string{
		"nodes: {vm: {count: 5}}":                                 "0 1 0 1 0",
		"nodes: {a: {leaf: 1}, vm: {count: 3}, b: {}}":            "1 1 0 1 0",
		"nodes: {a: {count: 2, leaf: 0}, b: {count: 2, leaf: 1}}": "0 0 1 1",
	} {
		l := mustParse(t, "name: x\nfabric: {topology: leaf-spine, leaves: 2, spines: 4, rate: 200Mb/s}\n"+text)
		var got []string
		for _, n := range l.Nodes {
			got = append(got, fmt.Sprint(*n.Leaf))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", text, got, want)
		}
		if f := l.Fabric; f.Topology != LeafSpine || f.Leaves != 2 || f.Spines != 4 || f.RateMbps != 200 {
			t.Errorf("%+v", f)
		}
		if again := mustParse(t, string(l.YAML())); !reflect.DeepEqual(l, again) {
			t.Errorf("%s: written out it is another lab:\n%s", text, l.YAML())
		}
	}
	if n := mustParse(t, "name: x\nnodes: {a: {}}").Nodes[0]; n.Leaf != nil {
		t.Errorf("a node at one switch has leaf %d", *n.Leaf)
	}
}

func TestNamesOfNodes(t *testing.T) {
	tests := []struct{ name, nodes, want string }{
		{"the order of the file is kept", "{b: {}, a: {}, c: }", "b a c"},
		{"a count of one is numbered too", "{vm: {count: 1}}", "vm00"},
		{"numbers have two digits", "{vm: {count: 3}}", "vm00 vm01 vm02"},
		{"counts mix with single nodes", "{head: {}, vm: {count: 2}, tail: {}}", "head vm00 vm01 tail"},
		{"a base may end with a hyphen or a digit", "{vm-: {count: 1}, r1: {count: 1}}", "vm-00 r100"},
		{"quoted names may look like numbers", `{"01": {}, '7': {}, "true": {}}`, "01 7 true"},
		{"twenty characters are enough", "{a-name-of-eighteen: {count: 2}}",
			"a-name-of-eighteen00 a-name-of-eighteen01"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := mustParse(t, "name: x\nnodes: "+tt.nodes)
			if got := strings.Join(names(l), " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestLargestNumbersDecideTheDigits(t *testing.T) {
	for _, tt := range []struct {
		count       int
		first, last string
	}{{100, "vm00", "vm99"}, {101, "vm000", "vm100"}, {500, "vm000", "vm499"}} {
		got := names(mustParse(t, fmt.Sprintf("name: x\nfabric: {subnet: 10.0.0.0/22}\nnodes: {vm: {count: %d}}",
			tt.count)))
		if len(got) != tt.count || got[0] != tt.first || got[len(got)-1] != tt.last {
			t.Errorf("a count of %d is %d nodes from %s to %s, want %s to %s", tt.count, len(got), got[0],
				got[len(got)-1], tt.first, tt.last)
		}
	}
}

func TestAddresses(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"from .1 in node order", "nodes: {b: {}, a: {}}", "10.0.0.1/24; 10.0.0.2/24"},
		{"the k-th NIC is in the k-th subnet", "nodes: {a: {nics: 3}}", "10.0.0.1/24 10.0.1.1/24 10.0.2.1/24"},
		{"a node has the same host part everywhere", "nodes: {a: {}, b: {nics: 2}}",
			"10.0.0.1/24; 10.0.0.2/24 10.0.1.2/24"},
		{"small subnets", "fabric: {subnet: 192.168.7.8/30}\nnodes: {a: {nics: 2}, b: {nics: 2}}",
			"192.168.7.9/30 192.168.7.13/30; 192.168.7.10/30 192.168.7.14/30"},
		{"large subnets", "fabric: {subnet: 10.0.0.0/8}\nnodes: {a: {nics: 2}}", "10.0.0.1/8 11.0.0.1/8"},
		{"the last subnet that is unicast", "fabric: {subnet: 223.255.255.0/24}\nnodes: {a: {}}", "223.255.255.1/24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []string
			for _, n := range mustParse(t, "name: x\n"+tt.text).Nodes {
				nodes = append(nodes, strings.ReplaceAll(list(n.NICs, addrOf), ",", ""))
			}
			if got := strings.Join(nodes, "; "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestSubnetIsFilledToItsLastAddress(t *testing.T) {
	l := mustParse(t, "name: x\nfabric: {subnet: 10.0.0.0/28}\nnodes: {vm: {count: 14}}")
	if got := l.Nodes[13].NICs[0].Addr.String(); got != "10.0.0.14/28" {
		t.Errorf("the last node has %s", got)
	}
}

func TestMACsAreLocalUniqueAndSteady(t *testing.T) {
	l := mustParse(t, "name: big\nfabric: {subnet: 10.0.0.0/16}\nnodes: {vm: {count: 500, nics: 16}}")
	seen := map[string]bool{}
	for _, n := range l.Nodes {
		for _, nic := range n.NICs {
			if !strings.HasPrefix(nic.MAC, "52:54:00:") || len(nic.MAC) != 17 {
				t.Fatalf("%s %s has the MAC %s", n.Name, nic.Name, nic.MAC)
			}
			if seen[nic.MAC] {
				t.Fatalf("%s %s has a MAC that is taken: %s", n.Name, nic.Name, nic.MAC)
			}
			seen[nic.MAC] = true
		}
	}
	// The largest possible lab, with comments for all its NICs, fits the limit on file sizes.
	if again := mustParse(t, string(l.YAML())); !cmp.Equal(l, again, prefixes) {
		t.Error("the resolved file of the largest lab means something else")
	}
	// Appended nodes keep earlier addresses even after collisions.
	more := mustParse(t, "name: big\nfabric: {subnet: 10.0.0.0/16}\nnodes: {vm: {count: 490, nics: 16}, z: "+
		"{count: 10}}")
	if diff := cmp.Diff(l.Nodes[:490], more.Nodes[:490], prefixes); diff != "" {
		t.Errorf("nodes changed (-want +got):\n%s", diff)
	}
	other := mustParse(t, "name: gib\nfabric: {subnet: 10.0.0.0/16}\nnodes: {vm: {count: 2}}")
	if other.Nodes[0].NICs[0].MAC == l.Nodes[0].NICs[0].MAC {
		t.Error("two labs share a MAC address")
	}
}

func TestTakenMACsAreProbed(t *testing.T) {
	// Near the end of the range, so that probing has to wrap.
	node := 0
	first := func() string { return FreeMAC("lab", fmt.Sprintf("vm%d", node), 0, map[string]bool{}) }
	for !strings.HasPrefix(first(), "52:54:00:ff:ff:") {
		node++
	}
	var own int
	if _, err := fmt.Sscanf(first(), "52:54:00:ff:ff:%x", &own); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for n := own; n < 0x100+2; n++ {
		want := fmt.Sprintf("52:54:00:ff:ff:%02x", n)
		if n >= 0x100 {
			want = fmt.Sprintf("52:54:00:00:00:%02x", n-0x100)
		}
		if got := FreeMAC("lab", fmt.Sprintf("vm%d", node), 0, used); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Among 4000 values of 16.7 million, about 0.5 collisions are expected, never dozens.
func TestMACHashSpreads(t *testing.T) {
	seen, meet := map[string]bool{}, 0
	for n := range 500 {
		for k := range 8 {
			mac := FreeMAC("lab", fmt.Sprintf("vm%03d", n), k, map[string]bool{})
			if seen[mac] {
				meet++
			}
			seen[mac] = true
		}
	}
	if meet > 5 {
		t.Errorf("%d of 4000 hashes meet", meet)
	}
}

func TestRDMAPayload(t *testing.T) {
	for mtu, want := range map[int]int{
		0: 0, 351: 0, 352: 256, 1279: 1024, 1280: 1024, 1500: 1024, 2143: 1024, 2144: 2048, 4191: 2048, 4192: 4096,
		4200: 4096, 9000: 4096,
	} {
		if got := (Fabric{MTU: mtu}).RDMAPayload(); got != want {
			t.Errorf("an MTU of %d carries %d, want %d", mtu, got, want)
		}
	}
}

func TestWhatIsAcceptedInDifferentSpellings(t *testing.T) {
	want := mustParse(t, "name: pair\nnodes:\n  vm00: {cpus: 2}\n  vm01: {}\n")
	for name, text := range map[string]string{
		"block style":       "name: pair\nnodes:\n  vm00:\n    cpus: 2\n  vm01:\n",
		"flow style":        "{name: pair, nodes: {vm00: {cpus: 2}, vm01: {}}}",
		"JSON":              `{"name": "pair", "nodes": {"vm00": {"cpus": 2}, "vm01": null}}`,
		"quotes":            "'name': \"pair\"\n\"nodes\": {'vm00': {\"cpus\": 2}, vm01: ~}",
		"document marks":    "---\nname: pair\nnodes: {vm00: {cpus: 2}, vm01: {}}\n...\n",
		"Windows line ends": "name: pair\r\nnodes:\r\n  vm00: {cpus: 2}\r\n  vm01: {}\r\n",
		"a byte order mark": "\ufeffname: pair\nnodes: {vm00: {cpus: 2}, vm01: {}}\n",
		"comments": "# top\nname: pair # name\nnodes: # nodes\n  # first\n  vm00: {cpus: 2} # two\n  " +
			"vm01: {}\n# end\n",
		"emptied sections": "name: pair\nfabric:\n  # mtu: 1500\ndefaults:\n  # cpus: 3\nnodes: {vm00: {cpus: " +
			"2}, vm01: {}}\n",
		"keys in another order": "nodes: {vm00: {cpus: 2}, vm01: {}}\nfabric: {subnet: 10.0.0.0/24, mtu: " +
			"4200}\nname: pair\n",
		"no final line end": "name: pair\nnodes: {vm00: {cpus: 2}, vm01: {}}",
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, mustParse(t, text), prefixes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLabInJSONReadsBack(t *testing.T) {
	l := mustParse(t, `
name: pair
driver: qemu
host: {reserve: {cores: 4, memory: 8GiB, numa_nodes: {0: {cores: 2, memory: 4GiB}}}}
hugepages: 2MiB
tenants: ./tenants.json
affinity: [{nodes: [vm], numa: different}, {nodes: [vm00, own], nic: different}]
nodes:
  vm: {count: 2, nics: 2, memory: 1G, gpus: 1}
  own: {cpus: auto, memory: auto, smt: on, guest_numa: off, vfs: [1, 0000:41:00.0,
    {vendor: mellanox, numa_node: 0, rate: 25Gb/s}]}
`)
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/lab.json", append(data, '\n'))
	var back Lab
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l, &back, prefixes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The package is pure.
func TestImports(t *testing.T) {
	bad := map[string]string{
		"os": "files are read by the caller", "net": "nothing is dialled", "time": "the same input gives the same lab",
		"math/rand": "addresses must be steady", "math/rand/v2": "addresses must be steady",
		"os/exec": "nothing is run",
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			name, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if why, ok := bad[name]; ok {
				t.Errorf("%s imports %s: %s", path, name, why)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, glob := range []string{"../examples/*.yaml", "testdata/errors/*.yaml"} {
		files, err := filepath.Glob(glob)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %v", glob, err)
		}
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Parse("fuzz.yaml", data)
		if err != nil {
			errs, ok := err.(Errors)
			if !ok || len(errs) == 0 || l != nil {
				t.Fatalf("got %v and a %T of %d", l, err, len(errs))
			}
			if strings.ContainsAny(err.Error(), "\x1b\x00\r") {
				t.Fatalf("control characters reach the message: %q", err.Error())
			}
			return
		}
		again, err := Parse("again.yaml", l.YAML())
		if err != nil {
			t.Fatalf("the resolved lab does not parse: %v\n%s", err, l.YAML())
		}
		if diff := cmp.Diff(l, again, prefixes); diff != "" {
			t.Fatalf("reads back otherwise (-first +again):\n%s", diff)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	var nodes strings.Builder
	nodes.WriteString("name: big\nfabric: {subnet: 10.0.0.0/16}\nnodes:\n")
	for i := range MaxNodes {
		fmt.Fprintf(&nodes, "  vm%03d: {cpus: 2, memory: 512MiB, image: builtin, nics: 2, gpus: 0}\n", i)
	}
	for _, bb := range []struct{ name, text string }{
		{"three lines", "name: sixteen\nnodes:\n  vm: {count: 16}\n"},
		{"500 nodes written out", nodes.String()},
		{"500 nodes by count", "name: big\nfabric: {subnet: 10.0.0.0/16}\nnodes:\n  vm: {count: 500, gpus: {count: " +
			"2, vendor: nvidia}, vfs: 1}\n"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			data := []byte(bb.text)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse("bench.yaml", data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
