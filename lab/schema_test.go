package lab

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/internal/golden"
)

func TestSchemaFileIsCurrent(t *testing.T) {
	golden.Check(t, "../docs/lab.schema.json", makeSchema())
}

func compile(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(makeSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("lab.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("lab.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(s *jsonschema.Schema, text []byte) error {
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	return s.Validate(doc)
}

func TestExamplesFollowTheSchema(t *testing.T) {
	s := compile(t)
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(s, data); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Editors show descriptions and defaults.
func TestSchemaDescribesEveryKey(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(makeSchema(), &root); err != nil {
		t.Fatal(err)
	}
	if root["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
		t.Errorf("the draft is %v", root["$schema"])
	}
	keys := 0
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if properties, ok := v["properties"].(map[string]any); ok {
				if v["additionalProperties"] != false && !strings.HasSuffix(path, "/settings") {
					t.Errorf("%s allows unknown keys", path)
				}
				for k, p := range properties {
					keys++
					if text, _ := p.(map[string]any)["description"].(string); !strings.HasSuffix(text, ".") {
						t.Errorf("%s.%s has the description %q", path, k, text)
					}
				}
			}
			for k, sub := range v {
				walk(path+"/"+k, sub)
			}
		case []any:
			for _, sub := range v {
				walk(path, sub)
			}
		}
	}
	walk("", root)
	if keys != 17+4+2+6+3+1+15+6+4+11+13+2*2+18 {
		t.Errorf("found %d keys, want 17 of the lab, 4 of host and reserve, 2 of a NUMA node, 6 of fabric, 3 of an "+
			"affinity, 1 of Slurm, 15 of vSphere, 6 of a switch, 4 of customize, 11 of defaults, 13 of a node, 2 of a "+
			"step in each, and 4, 5 or 8 of each kind of devices", keys)
	}
}

type verdict int

const (
	good      verdict = iota // neither rejects
	bad                      // both reject
	parseOnly                // only the parser rejects
)

func TestSchemaAndParserAgree(t *testing.T) {
	s := compile(t)
	head := func(rest string) string { return "name: x\n" + rest + "\nnodes: {vm: {}}\n" }
	node := func(keys string) string { return "name: x\nnodes: {vm: {" + keys + "}}\n" }
	tests := []struct {
		name string
		text string
		want verdict
	}{
		{"switches", head("fabric: {topology: leaf-spine, leaves: 16, spines: 1, rate: 200Mb/s}"), good},
		{"too many spines", head("fabric: {topology: leaf-spine, leaves: 1, spines: 17}"), bad},
		{"no leaves", head("fabric: {topology: leaf-spine, leaves: 0, spines: 2}"), bad},
		{"leaves alone", head("fabric: {leaves: 2}"), bad},
		{"a rate of one switch", head("fabric: {rate: 1Gb/s}"), bad},
		{"leaves that are missing", head("fabric: {topology: leaf-spine, spines: 2}"), bad},
		{"another topology", head("fabric: {topology: torus, leaves: 2, spines: 2}"), bad},
		{"a leaf beyond any", node("leaf: 16"), bad},
		{"a leaf without leaves", node("leaf: 0"), parseOnly},
		{"the shortest lab", head(""), good},
		{"an empty file", "", bad},
		{"a list", "- a", bad},
		{"a text", "a", bad},
		{"no name", "nodes: {vm: {}}", bad},
		{"no nodes", "name: x", bad},
		{"null nodes", "name: x\nnodes:", bad},
		{"empty nodes", "name: x\nnodes: {}", bad},
		{"nodes as a list", "name: x\nnodes: [vm]", bad},
		{"a node that is null", "name: x\nnodes:\n  vm:", good},
		{"a node that is a number", "name: x\nnodes:\n  vm: 2", bad},
		{"an unknown key at the top", head("mtu: 1500"), bad},
		{"an unknown key in a node", node("cpu: 1"), bad},
		{"an unknown key in fabric", head("fabric: {mtus: 1500}"), bad},
		{"count in defaults", head("defaults: {count: 2}"), bad},
		{"null defaults", head("defaults:"), good},
		{"null fabric", head("fabric:"), good},
		{"null mtu", head("fabric: {mtu: }"), bad},
		{"null driver", head("driver:"), bad},
		{"defaults as a list", head("defaults: []"), bad},

		{"a name of 20", "name: abcdefghijklmnopqrst\nnodes: {vm: {}}", good},
		{"a name of 21", "name: abcdefghijklmnopqrstu\nnodes: {vm: {}}", bad},
		{"a name with upper case", "name: Lab\nnodes: {vm: {}}", bad},
		{"a name that starts with a hyphen", "name: -x\nnodes: {vm: {}}", bad},
		{"a name that ends with a hyphen", "name: x-\nnodes: {vm: {}}", good},
		{"an empty name", "name: ''\nnodes: {vm: {}}", bad},
		{"a name with a line end", "name: \"x\\n\"\nnodes: {vm: {}}", bad},
		{"a number as name", "name: 12\nnodes: {vm: {}}", bad},
		{"a quoted number as name", "name: '12'\nnodes: {vm: {}}", good},
		{"a node name with a dot", "name: x\nnodes: {a.b: {}}", bad},
		{"a node name of 21", "name: x\nnodes: {abcdefghijklmnopqrstu: {}}", bad},
		{"a quoted number as node name", "name: x\nnodes: {'01': {}}", good},

		{"driver auto", head("driver: auto"), good},
		{"driver qemu", head("driver: qemu"), good},
		{"driver libvirt", head("driver: libvirt"), good},
		{"driver kvm", head("driver: kvm"), bad},
		{"driver true", head("driver: true"), bad},
		{"workload mixed", head("workload: mixed"), good},
		{"workload gpu-collective", head("workload: gpu-collective"), good},
		{"workload gpu", head("workload: gpu"), bad},

		{"0 cpus", node("cpus: 0"), bad}, {"1 cpu", node("cpus: 1"), good},
		{"4096 cpus", node("cpus: 4096"), good}, {"4097 cpus", node("cpus: 4097"), bad},
		{"cpus auto", node("cpus: auto"), good}, {"quoted auto", node("cpus: 'auto'"), good},
		{"cpus off", node("cpus: off"), bad},
		{"memory auto", node("memory: auto"), good}, {"memory Auto", node("memory: Auto"), bad},
		{"cpus as text", node("cpus: '2'"), bad}, {"half a cpu", node("cpus: 1.5"), bad},
		{"cpus as a list", node("cpus: [1]"), bad}, {"cpus true", node("cpus: true"), bad},
		{"-1 nics", node("nics: -1"), bad}, {"0 nics", node("nics: 0"), good}, {"1 nic", node("nics: 1"), good},
		{"16 nics", node("nics: 16"), good}, {"17 nics", node("nics: 17"), bad},
		{"0 nics and 1 vf", node("nics: 0, vfs: 1"), good}, {"16 vfs", node("vfs: 16"), good},
		{"17 vfs", node("vfs: 17"), bad},
		{"16 nics and 1 vf", node("nics: 16, vfs: 1"), parseOnly}, {"0 nics and 0 vfs", node("nics: 0, vfs: 0"), good},
		{"-1 gpus", node("gpus: -1"), bad}, {"0 gpus", node("gpus: 0"), good},
		{"64 gpus", node("gpus: 64"), good}, {"65 gpus", node("gpus: 65"), bad},

		{"an address", node("gpus: 0000:06:00.0"), good}, {"a short address", node("gpus: 06:00.0"), good},
		{"an address of nvidia-smi", node("gpus: 00000000:3B:00.0"), good},
		{"a quoted address", node("gpus: '0000:06:00.0'"), good},
		{"an address without a function", node("gpus: 0000:06:00"), bad}, {"device 20", node("gpus: 0000:06:20.0"),
			bad},
		{"function 8", node("gpus: 0000:06:00.8"), bad}, {"a domain of nine digits", node("gpus: 000000000:06:00.0"),
			bad},
		{"a name", node("gpus: GPU0"), good}, {"a name of an RDMA device", node("nics: mlx5_bond_0"), good},
		{"a name of an interface", node("vfs: enp65s0f0np0"), good}, {"a vendor as a name", node("gpus: nvidia"), bad},
		{"gpus auto", node("gpus: auto"), bad}, {"null gpus", node("gpus: "), bad}, {"gpus true", node("gpus: true"),
			bad},
		{"gpus in halves", node("gpus: 0.5"), bad}, {"a quoted count", node("gpus: '1'"), bad},
		{"an empty name", node("gpus: ''"), bad},
		{"a name of 64", node("gpus: a" + strings.Repeat("0", 63)), good},
		{"a name of 65", node("gpus: a" + strings.Repeat("0", 64)), bad},
		{"a selector", node("gpus: {count: 2, vendor: nvidia, model: '3090', numa_node: 0}"), good},
		{"a selector of NICs", node("nics: {vendor: '0x15b3', rate: 25Gb/s}"), good},
		{"a rate of GPUs", node("gpus: {rate: 25Gb/s}"), bad},
		{"an empty selector", node("gpus: {}"), bad}, {"a selector of none", node("gpus: {count: 0}"), bad},
		{"a model as a number", node("gpus: {model: 3090}"), bad}, {"an empty model", node("gpus: {model: ''}"), bad},
		{"a model with a blank at its end", node("gpus: {model: 'RTX '}"), bad},
		{"a model of 64", node("gpus: {model: " + strings.Repeat("ö", 64) + "}"), good},
		{"a model of 65", node("gpus: {model: " + strings.Repeat("ö", 65) + "}"), bad},
		{"a null vendor", node("gpus: {vendor: }"), bad},
		{"NUMA node 1023", node("gpus: {numa_node: 1023}"), good}, {"NUMA node 1024", node("gpus: {numa_node: 1024}"),
			bad},
		{"NUMA node -1", node("gpus: {numa_node: -1}"), bad},
		{"an address as a key", node("gpus: {address: '0000:06:00.0'}"), bad},
		{"a rate in Mb/s", node("nics: {rate: 2500Mb/s}"), good}, {"a rate without a unit", node("nics: {rate: 25}"),
			bad},
		{"a rate of another unit", node("nics: {rate: 25G}"), bad}, {"a rate of 0", node("nics: {rate: 0Gb/s}"), bad},
		{"a rate with a fraction", node("nics: {rate: 2.5Gb/s}"), bad},
		{"a rate that is too high", node("nics: {rate: 11000Gb/s}"), parseOnly},
		{"a list", node("gpus: [1, GPU0, '0000:06:00.0', {model: H20}]"), good}, {"an empty list", node("gpus: []"),
			good},
		{"a list of 0", node("gpus: [0]"), bad}, {"a list of lists", node("gpus: [[1]]"), bad},
		{"a list of nothing", node("gpus: [~]"), bad},
		{"a list that is too long together", node("gpus: [64, 1]"), parseOnly},
		{"an address twice", node("gpus: [GPU0, GPU0]"), parseOnly},
		{"an address for several nodes", node("count: 2, gpus: GPU0"), parseOnly},
		{"one NIC for the VFs of several nodes", node("count: 2, vfs: NIC0"), good},

		{"smt on", node("smt: on"), good}, {"smt off", node("smt: off"), good}, {"smt auto", node("smt: auto"), good},
		{"smt true", node("smt: true"), bad}, {"smt yes", node("smt: yes"), bad}, {"null smt", node("smt: "), bad},
		{"smt 1", node("smt: 1"), bad},
		{"guest_numa on", node("guest_numa: on"), good}, {"guest_numa 2", node("guest_numa: 2"), bad},

		{"null host", head("host:"), good}, {"null reserve", head("host: {reserve: }"), good},
		{"host as a number", head("host: 4"), bad},
		{"reserve as a number", head("host: {reserve: 4}"), good}, {"reserve of 0", head("host: {reserve: 0}"), bad},
		{"reserve of 4097", head("host: {reserve: 4097}"), bad}, {"reserve as a size", head("host: {reserve: 4GiB}"),
			bad},
		{"an empty reserve", head("host: {reserve: {}}"), good}, {"cores of 0", head("host: {reserve: {cores: 0}}"),
			bad},
		{"a reserve of no memory", head("host: {reserve: {memory: 0B}}"), good},
		{"a reserve of 1 KiB", head("host: {reserve: {memory: 1KiB}}"), parseOnly},
		{"a reserve of memory without a unit", head("host: {reserve: {memory: 8}}"), bad},
		{"cores auto", head("host: {reserve: {cores: auto}}"), bad},
		{"null numa_nodes", head("host: {reserve: {numa_nodes: }}"), good},
		{"empty numa_nodes", head("host: {reserve: {numa_nodes: {}}}"), good},
		{"a NUMA node", head("host: {reserve: {numa_nodes: {0: {cores: 1, memory: 1GiB}}}}"), good},
		{"a NUMA node in quotes", head("host: {reserve: {numa_nodes: {'0': {cores: 1}}}}"), good},
		{"a NUMA node with a number", head("host: {reserve: {numa_nodes: {0: 1}}}"), good},
		{"a NUMA node that keeps nothing", head("host: {reserve: {numa_nodes: {0: {}}}}"), bad},
		{"a NUMA node that is null", head("host: {reserve: {numa_nodes: {0: }}}"), bad},
		{"NUMA nodes as a list", head("host: {reserve: {numa_nodes: [1]}}"), bad},
		{"a NUMA node with a name", head("host: {reserve: {numa_nodes: {a: 1}}}"), bad},
		{"a NUMA node past the last", head("host: {reserve: {numa_nodes: {1024: 1}}}"), parseOnly},
		{"a NUMA node of five digits", head("host: {reserve: {numa_nodes: {10000: 1}}}"), bad},
		{"a NUMA node below 0", head("host: {reserve: {numa_nodes: {-1: 1}}}"), bad},
		{"more cores on NUMA nodes than in all", head("host: {reserve: {cores: 1, numa_nodes: {0: 1, 1: 1}}}"),
			parseOnly},

		{"hugepages off", head("hugepages: off"), good}, {"hugepages auto", head("hugepages: auto"), good},
		{"hugepages 2MiB", head("hugepages: 2MiB"), good},
		{"hugepages that do not fit", head("hugepages: 1GiB"), parseOnly}, {"hugepages 1G", head("hugepages: 1G"), bad},
		{"hugepages false", head("hugepages: false"), bad}, {"null hugepages", head("hugepages:"), bad},
		{"tenants read", head("tenants: read"), good}, {"tenants ignore", head("tenants: ignore"), good},
		{"tenants as a path", head("tenants: a/b"), good},
		{"tenants as a name of a file", head("tenants: t.json"), good}, {"tenants with a slip", head("tenants: ingore"),
			bad},
		{"null tenants", head("tenants:"), bad}, {"empty tenants", head("tenants: ''"), bad},
		{"tenants as a list", head("tenants: [a.json]"), bad},

		{"null affinity", head("affinity:"), good}, {"an empty affinity", head("affinity: []"), good},
		{"affinity as keys", head("affinity: {nodes: [vm, vm]}"), bad},
		{"an affinity", "name: x\naffinity: [{nodes: [vm], numa: same, nic: different}]\nnodes: {vm: {count: 2}}",
			good},
		{"links", head("links: [[0000:41:00.0, mlx5_1], ['61:00.0', NIC3, NIC4]]"), good},
		{"null links", head("links:"), good},
		{"a link of one port", head("links: [[mlx5_0]]"), bad},
		{"a link that is no list", head("links: [mlx5_0]"), bad},
		{"a link of counts", head("links: [[1, 2]]"), bad}, {"a link of words", head("links: [[any, other]]"), bad},
		{"a port in two links", head("links: [[mlx5_0, mlx5_1], [mlx5_1, mlx5_2]]"), parseOnly},
		{"an affinity of one node", head("affinity: [{nodes: [vm], numa: same}]"), parseOnly},
		{"an affinity of no node", head("affinity: [{nodes: [], numa: same}]"), bad},
		{"an affinity of another node", head("affinity: [{nodes: [vm, wm], numa: same}]"), parseOnly},
		{"an affinity without nodes", head("affinity: [{numa: same}]"), bad}, {"an affinity that asks for nothing",
			head("affinity: [{nodes: [a, b]}]"), bad},
		{"an affinity that is null", head("affinity: [~]"), bad},
		{"an affinity of numbers", head("affinity: [{nodes: [1, 2], numa: same}]"), bad},
		{"an affinity with names as text", head("affinity: [{nodes: 'a, b', numa: same}]"), bad},
		{"an affinity to together", head("affinity: [{nodes: [a, b], numa: together}]"), bad},
		{"an affinity with null", head("affinity: [{nodes: [a, b], numa: }]"), bad},
		{"a count of 0", node("count: 0"), bad}, {"a count of 1", node("count: 1"), good},
		{"a count of 500", "name: x\nfabric: {subnet: 10.0.0.0/16}\nnodes: {vm: {count: 500}}", good},
		{"a count of 501", node("count: 501"), bad},
		{"an mtu of 1279", head("fabric: {mtu: 1279}"), bad}, {"an mtu of 1280", head("fabric: {mtu: 1280}"), good},
		{"an mtu of 9216", head("fabric: {mtu: 9216}"), good}, {"an mtu of 9217", head("fabric: {mtu: 9217}"), bad},
		{"defaults out of range", head("defaults: {cpus: 4097}"), bad},

		{"memory 256MiB", node("memory: 256MiB"), good}, {"memory 1G", node("memory: 1G"), good},
		{"memory 512M", node("memory: 512M"), good}, {"memory 262144KiB", node("memory: 262144KiB"), good},
		{"memory in bytes", node("memory: 268435456B"), good}, {"memory 16TiB", node("memory: 16TiB"), good},
		{"memory without a unit", node("memory: 256"), bad}, {"quoted memory without a unit", node("memory: '256'"),
			bad},
		{"memory 256MB", node("memory: 256MB"), bad}, {"memory 1.5GiB", node("memory: 1.5GiB"), bad},
		{"memory 0256MiB", node("memory: 0256MiB"), bad}, {"memory 0MiB", node("memory: 0MiB"), bad},
		{"memory with a space", node("memory: 256 MiB"), bad},
		{"memory too small", node("memory: 127MiB"), parseOnly}, {"memory too large", node("memory: 17TiB"), parseOnly},
		{"memory not in whole MiB", node("memory: 131073KiB"), parseOnly},

		{"an image", node("image: a/b c.qcow2"), good}, {"an empty image", node("image: ''"), bad},
		{"an image with a control character", node(`image: "a\tb"`), bad}, {"an image that is a number",
			node("image: 1"), bad},
		{"memory as a list", node("memory: [256MiB]"), bad}, {"null memory", node("memory: ~"), bad},
		{"a full node", node("image: debian-12"), good}, {"package sets", node("image: debian-13+slurm+mpi"), good},
		{"any release", node("image: debian+slurm+mpi"), good},
		{"another system", node("image: ubuntu"), bad}, {"another package set", node("image: debian-12+x"), bad},
		{"no package set", node("image: debian-12+"), bad},
		{"an image as a list", node("image: [a]"), bad}, {"an image as keys", node("image: {a: b}"), bad},
		{"a block of text as image", "name: x\nnodes:\n  vm:\n    image: |-\n      a.qcow2\n", good},
		{"a block of text that ends with a line end", "name: x\nnodes:\n  vm:\n    image: |\n      a.qcow2\n", bad},
		{"an image of 255", node("image: /" + strings.Repeat("ö", 255-1)), good},
		{"an image of 256", node("image: /" + strings.Repeat("ö", 256-1)), bad},

		{"subnet /8", head("fabric: {subnet: 10.0.0.0/8}"), good}, {"subnet /7", head("fabric: {subnet: 10.0.0.0/7}"),
			bad},
		{"subnet /30", head("fabric: {subnet: 10.0.0.0/30}"), good},
		{"subnet /31", head("fabric: {subnet: 10.0.0.0/31}"), bad},
		{"subnet without a length", head("fabric: {subnet: 10.0.0.0}"), bad},
		{"subnet with an octet of 256", head("fabric: {subnet: 10.256.0.0/16}"), bad},
		{"subnet with a leading zero", head("fabric: {subnet: 010.0.0.0/16}"), bad},
		{"an IPv6 subnet", head("fabric: {subnet: 'fd00::/64'}"), bad},
		{"subnet with host bits", head("fabric: {subnet: 10.0.0.1/24}"), parseOnly},
		{"a subnet as a list", head("fabric: {subnet: [10.0.0.0/24]}"), bad},
		{"a subnet as a number", head("fabric: {subnet: 10}"), bad},
		{"a loopback subnet", head("fabric: {subnet: 127.0.0.0/24}"), parseOnly},
		{"a multicast subnet", head("fabric: {subnet: 224.0.0.0/24}"), parseOnly},
		{"a subnet at zero", head("fabric: {subnet: 0.0.0.0/24}"), parseOnly},
		{"a subnet that is too small", "name: x\nfabric: {subnet: 10.0.0.0/30}\nnodes: {vm: {count: 3}}", parseOnly},
		{"a subnet without a next one", "name: x\nfabric: {subnet: 223.0.0.0/8}\nnodes: {vm: {nics: 2}}", parseOnly},
		{"names that collide", "name: x\nnodes: {vm: {count: 2}, vm01: {}}", parseOnly},
		{"too many nodes", "name: x\nfabric: {subnet: 10.0.0.0/16}\nnodes: {a: {count: 500}, b: {}}", parseOnly},
		{"a node name that ends with a hyphen", "name: x\nnodes: {vm-: {}}", parseOnly},
		{"a number in hex", node("cpus: 0x2"), parseOnly},
		{"an anchor", "name: &a x\nnodes: {vm: {}}", parseOnly},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			schemaErr := validate(s, []byte(tt.text))
			_, parseErr := Parse("test.yaml", []byte(tt.text))
			if refuses := schemaErr != nil; refuses != (tt.want == bad) {
				t.Errorf("the schema says %v", schemaErr)
			}
			if refuses := parseErr != nil; refuses != (tt.want != good) {
				t.Errorf("the parser says %v", parseErr)
			}
		})
	}
}

// The parser rejects every file that the schema rejects.
func TestWhatTheParserTakesFollowsTheSchema(t *testing.T) {
	s := compile(t)
	files, _ := filepath.Glob("testdata/errors/*.yaml")
	refused := 0
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(s, data); err != nil {
			refused++
			if _, err := Parse(path, data); err == nil {
				t.Errorf("%s: the schema refuses what the parser takes", path)
			}
		}
	}
	if refused < 40 {
		t.Errorf("the schema refuses only %d of %d bad files", refused, len(files))
	}
}

// An editor never underlines a valid lab file.
func TestSchemaNeverRefusesWhatParses(t *testing.T) {
	s := compile(t)
	pool := []string{"", "~", "0", "1", "2", "16", "64", "501", "1500", "-1", "1.5", "0x10", "true", "x", "'2'", "''",
		"a b", "[1]", "{}",
		"{cpus: 2}", "256MiB", "auto", "on", "off", "GPU0", "'06:00.0'", "[1, NIC0]", "{vendor: intel}",
		"[{rate: 1Gb/s}, {}]", "{numa_node: 1, count: 3}", "1G", "1024KiB", "127MiB", "10.1.0.0/16", "10.1.0.1/16",
		"10.0.0.0/30", "qemu", "mixed", "gpu-compute", "\"a\\tb\""}
	settings := []string{"cpus", "memory", "image", "nics", "gpus", "vfs", "smt", "guest_numa", "count", "cpu"}
	reserves := []string{"", "4", "{}", "{cores: 2}", "{memory: 1GiB}", "{memory: 1}",
		"{numa_nodes: {0: 2, '1': {memory: 0B}}}", "{numa_nodes: {0: {}}}"}
	affinities := []string{"", "[]", "{}", "[{nodes: [vm], numa: same}]", "[{nodes: [vm00, vm01], nic: different}]",
		"[{nodes: [vm00], nic: same}, 1]"}
	parsed := 0
	rapid.Check(t, func(t *rapid.T) {
		value := func() string { return rapid.SampledFrom(pool).Draw(t, "value") }
		flow := func(keys []string, most int) string {
			drawn := rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, most, rapid.ID[string]).Draw(t, "keys")
			entries := make([]string, len(drawn))
			for i, k := range drawn {
				entries[i] = k + ": " + value()
			}
			return "{" + strings.Join(entries, ", ") + "}"
		}
		text := "name: " + rapid.SampledFrom([]string{"x", "'1'", "1", "X", "x-"}).Draw(t, "name") + "\n"
		for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"driver", "workload", "hugepages",
			"tenants", "extra"}), 0, 1, rapid.ID[string]).Draw(t, "top") {
			text += k + ": " + value() + "\n"
		}
		if rapid.Bool().Draw(t, "fabric?") {
			text += "fabric: " + flow([]string{"mtu", "subnet"}, 1) + "\n"
		}
		if rapid.Bool().Draw(t, "defaults?") {
			text += "defaults: " + flow(settings, 1) + "\n"
		}
		if rapid.Bool().Draw(t, "host?") {
			text += "host: {reserve: " + rapid.SampledFrom(reserves).Draw(t, "reserve") + "}\n"
		}
		if rapid.Bool().Draw(t, "affinity?") {
			text += "affinity: " + rapid.SampledFrom(affinities).Draw(t, "affinity") + "\n"
		}
		text += "nodes:\n  vm: " + flow(settings, 2) + "\n"
		if _, err := Parse("drawn.yaml", []byte(text)); err != nil {
			return
		}
		parsed++
		if err := validate(s, []byte(text)); err != nil {
			t.Fatalf("the schema refuses what parses:\n%s\n%v", text, err)
		}
	})
	if parsed == 0 && !testing.Short() { // in short mode, possibly none is valid
		t.Error("none of the drawn files parses: the test shows nothing")
	}
}
