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
)

func TestSchemaFileIsCurrent(t *testing.T) {
	golden(t, "../docs/lab.schema.json", Schema())
}

// compile reads the schema as another tool would.
func compile(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
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

// validate checks a YAML text against the schema.
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

// Every key has a description, every setting its default: that is what an editor shows.
func TestSchemaDescribesEveryKey(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
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
				if v["additionalProperties"] != false {
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
	if keys != 6+2+5+6 {
		t.Errorf("found %d keys, want 6 of the lab, 2 of fabric, 5 of defaults and 6 of a node", keys)
	}
}

// verdict says who must refuse a document.
type verdict int

const (
	good      verdict = iota // nobody
	bad                      // schema and parser
	parseOnly                // the parser; a schema cannot see it
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
		{"64 cpus", node("cpus: 64"), good}, {"65 cpus", node("cpus: 65"), bad},
		{"cpus as text", node("cpus: '2'"), bad}, {"half a cpu", node("cpus: 1.5"), bad},
		{"cpus as a list", node("cpus: [1]"), bad}, {"cpus true", node("cpus: true"), bad},
		{"0 nics", node("nics: 0"), bad}, {"1 nic", node("nics: 1"), good},
		{"8 nics", node("nics: 8"), good}, {"9 nics", node("nics: 9"), bad},
		{"-1 gpus", node("gpus: -1"), bad}, {"0 gpus", node("gpus: 0"), good},
		{"16 gpus", node("gpus: 16"), good}, {"17 gpus", node("gpus: 17"), bad},
		{"a count of 0", node("count: 0"), bad}, {"a count of 1", node("count: 1"), good},
		{"a count of 500", "name: x\nfabric: {subnet: 10.0.0.0/16}\nnodes: {vm: {count: 500}}", good},
		{"a count of 501", node("count: 501"), bad},
		{"an mtu of 1279", head("fabric: {mtu: 1279}"), bad}, {"an mtu of 1280", head("fabric: {mtu: 1280}"), good},
		{"an mtu of 9216", head("fabric: {mtu: 9216}"), good}, {"an mtu of 9217", head("fabric: {mtu: 9217}"), bad},
		{"defaults out of range", head("defaults: {cpus: 65}"), bad},

		{"memory 256MiB", node("memory: 256MiB"), good}, {"memory 1G", node("memory: 1G"), good},
		{"memory 512M", node("memory: 512M"), good}, {"memory 262144KiB", node("memory: 262144KiB"), good},
		{"memory in bytes", node("memory: 268435456B"), good}, {"memory 16TiB", node("memory: 16TiB"), good},
		{"memory without a unit", node("memory: 256"), bad}, {"quoted memory without a unit", node("memory: '256'"), bad},
		{"memory 256MB", node("memory: 256MB"), bad}, {"memory 1.5GiB", node("memory: 1.5GiB"), bad},
		{"memory 0256MiB", node("memory: 0256MiB"), bad}, {"memory 0MiB", node("memory: 0MiB"), bad},
		{"memory with a space", node("memory: 256 MiB"), bad},
		{"memory too small", node("memory: 127MiB"), parseOnly}, {"memory too large", node("memory: 17TiB"), parseOnly},
		{"memory not in whole MiB", node("memory: 131073KiB"), parseOnly},

		{"an image", node("image: a/b c.qcow2"), good}, {"an empty image", node("image: ''"), bad},
		{"an image with a control character", node(`image: "a\tb"`), bad}, {"an image that is a number", node("image: 1"), bad},
		{"memory as a list", node("memory: [256MiB]"), bad}, {"null memory", node("memory: ~"), bad},
		{"an image as a list", node("image: [a]"), bad}, {"an image as keys", node("image: {a: b}"), bad},
		{"a block of text as image", "name: x\nnodes:\n  vm:\n    image: |-\n      a.qcow2\n", good},
		{"a block of text that ends with a line end", "name: x\nnodes:\n  vm:\n    image: |\n      a.qcow2\n", bad},
		{"an image of 255", node("image: " + strings.Repeat("ö", 255)), good},
		{"an image of 256", node("image: " + strings.Repeat("ö", 256)), bad},

		{"subnet /8", head("fabric: {subnet: 10.0.0.0/8}"), good}, {"subnet /7", head("fabric: {subnet: 10.0.0.0/7}"), bad},
		{"subnet /30", head("fabric: {subnet: 10.0.0.0/30}"), good}, {"subnet /31", head("fabric: {subnet: 10.0.0.0/31}"), bad},
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

// What the schema refuses the parser refuses too: the bad files of the error tests, as far as they are YAML at all.
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

// Whatever the parser takes, the schema takes: an editor never underlines a lab file that works. Values are drawn from
// a pool in which about half fit their key.
func TestSchemaNeverRefusesWhatParses(t *testing.T) {
	s := compile(t)
	pool := []string{"", "~", "0", "1", "2", "16", "64", "501", "1500", "-1", "1.5", "0x10", "true", "x", "'2'", "''", "a b", "[1]", "{}",
		"{cpus: 2}", "256MiB", "1G", "1024KiB", "127MiB", "10.1.0.0/16", "10.1.0.1/16", "10.0.0.0/30", "qemu", "mixed", "gpu-compute", "\"a\\tb\""}
	settings := []string{"cpus", "memory", "image", "nics", "gpus", "count", "cpu"}
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
		for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"driver", "workload", "extra"}), 0, 1, rapid.ID[string]).Draw(t, "top") {
			text += k + ": " + value() + "\n"
		}
		if rapid.Bool().Draw(t, "fabric?") {
			text += "fabric: " + flow([]string{"mtu", "subnet"}, 1) + "\n"
		}
		if rapid.Bool().Draw(t, "defaults?") {
			text += "defaults: " + flow(settings, 1) + "\n"
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
	if parsed == 0 {
		t.Error("none of the drawn files parses: the test shows nothing")
	}
}
