package hostview

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	judge "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/topology"
)

// schemaFile is generated here, because only the source has the doc comments. "go test ./report/hostview -run Schema
// -update" writes it.
const schemaFile = "../../docs/host.schema.json"

// schemaID is a key for editors, which do not fetch it.
const schemaID = "https://github.com/rackless/rackless/docs/host.schema.json"

const hiddenPath = "hidden path"

// textSchemas are text in JSON, because reflection ignores MarshalText.
var textSchemas = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[topology.CPUSet](): {Type: "string", Pattern: `^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`,
		Description: "A list of numbers in the kernel's format: \"0-3,8\"; empty: none."},
	reflect.TypeFor[topology.PCIAddr](): {Type: "string", Pattern: `^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`,
		Description: "A PCI address as sysfs has it: \"0000:3b:00.1\"."},
	reflect.TypeFor[topology.PathClass](): {Type: "string", Enum: []any{"PHB", "SYS"}},
	reflect.TypeFor[topology.ID8]():       {Type: "string", Pattern: `^0x[0-9a-f]{2}$`},
	reflect.TypeFor[topology.ID16]():      {Type: "string", Pattern: `^0x[0-9a-f]{4}$`},
	reflect.TypeFor[topology.ID24]():      {Type: "string", Pattern: `^0x[0-9a-f]{6}$`},
}

// schema generates JSON schema, draft 2020-12.
func schema(t testing.TB) []byte {
	t.Helper()
	r := &jsonschema.Reflector{
		Anonymous:                 true, // no $id from the path
		ExpandedStruct:            true,
		AllowAdditionalProperties: true, // later versions add keys
		// Document hides the model's Path.
		Namer: func(t reflect.Type) string {
			if t == reflect.TypeFor[topology.Path]() {
				return hiddenPath
			}
			return t.Name()
		},
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			s, ok := textSchemas[t]
			if !ok {
				return nil
			}
			text := *s
			return &text
		},
	}
	// AddGoComments joins it with this package's path.
	for _, dir := range []string{".", "../../machine/topology", "../../machine/finding"} {
		if err := r.AddGoComments("github.com/rackless/rackless/report/hostview", dir); err != nil {
			t.Fatal(err)
		}
	}
	for k, text := range r.CommentMap {
		r.CommentMap[k] = strings.Join(strings.Fields(text), " ") // descriptions have no line breaks
	}
	s := r.Reflect(&Document{})
	s.ID = schemaID
	s.Title = "rackless host"
	delete(s.Definitions, hiddenPath)
	// Findings of inspect have no outcome.
	found := s.Definitions["Finding"]
	for _, key := range []string{"code", "status", "have", "want"} {
		found.Properties.Delete(key)
	}
	found.Required = slices.Collect(found.Properties.KeysFromOldest())
	for f := range reflect.TypeFor[Document]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		p, ok := s.Properties.Get(key)
		if !ok {
			continue // Host itself
		}
		p.Description = r.CommentMap["github.com/rackless/rackless/report/hostview.Document."+f.Name]
		if key == "schema" {
			p.Const = topology.Schema
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	return b.Bytes()
}

func TestSchemaFileIsCurrent(t *testing.T) { golden.Check(t, schemaFile, schema(t)) }

func compiled(t testing.TB, text []byte) *judge.Schema {
	t.Helper()
	doc, err := judge.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := judge.NewCompiler()
	if err := c.AddResource("host.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("host.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func strict(t testing.TB, text []byte) []byte {
	t.Helper()
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if _, ok := v["properties"].(map[string]any); ok {
				v["additionalProperties"] = false
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
	out, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryHostFollowsTheSchemaAndHasNoKeyThatIsNotInIt(t *testing.T) {
	s := compiled(t, strict(t, schema(t)))
	for _, c := range append(hostCases(), hostCase{"full", fullHost(), epycFindings()}) {
		out := written(t, func(b *bytes.Buffer) error { return NewDocument(c.host, c.findings).WriteJSON(b, false) })
		doc, err := judge.UnmarshalJSON(bytes.NewReader(out))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTheSchemaRefusesWhatIsNoHost(t *testing.T) {
	s := compiled(t, schema(t))
	good := written(t, func(b *bytes.Buffer) error { return NewDocument(epyc(), nil).WriteJSON(b, false) })
	for _, tt := range []struct{ name, old, new string }{
		{"another schema", `"schema":"rackless/host/v1"`, `"schema":"rackless/host/v2"`},
		{"no findings", `"findings":[]`, `"found":[]`},
		{"a list that is null", `"findings":[]`, `"findings":null`},
		{"a CPU list that is a number", `"cpus":"0-63"`, `"cpus":63`},
		{"a CPU list that runs into a comma", `"cpus":"0-63"`, `"cpus":"0-63,"`},
		{"an address without a domain", `"address":"0000:41:00.0"`, `"address":"41:00.0"`},
		{"a vendor without 0x", `"vendor":"0x15b3"`, `"vendor":"15b3"`},
		{"a node that is a text", `"numa_node":2`, `"numa_node":"2"`},
		{"a path without a class", `"class":"SYS"`, `"klass":"SYS"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := strings.ReplaceAll(string(good), tt.old, tt.new)
			if bad == string(good) {
				t.Fatalf("the document has no %s", tt.old)
			}
			doc, err := judge.UnmarshalJSON(strings.NewReader(bad))
			if err != nil {
				t.Fatal(err)
			}
			if s.Validate(doc) == nil {
				t.Error("the schema takes it")
			}
		})
	}
}

// Editors show these descriptions.
func TestTheSchemaDescribesTheTopLevelAndTheUnits(t *testing.T) {
	var root struct {
		Properties map[string]struct{ Description string }
		Defs       map[string]struct {
			Properties map[string]struct{ Description string }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(schema(t), &root); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"schema", "provenance", "paths", "findings", "reported_paths"} {
		if root.Properties[key].Description == "" {
			t.Errorf("%s has no description", key)
		}
	}
	for def, key := range map[string]string{"Link": "speed_gts", "NIC": "speed_mbps", "HugepagePool": "reserved",
		"Path": "expected", "Finding": "evidence", "NUMANode": "memory_bytes"} {
		if root.Defs[def].Properties[key].Description == "" {
			t.Errorf("%s.%s has no description", def, key)
		}
	}
}
