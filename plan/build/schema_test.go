package build_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	judge "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

// Comments exist only in the source, so a test makes the schema. "go test ./plan/build -run Schema -update" writes it.
const schemaFile = "../../docs/plan.schema.json"

// schemaID is never fetched.
const schemaID = "https://github.com/rackless/rackless/docs/plan.schema.json"

// As printed by netip.Prefix: "10.0.0.1/24".
const addressWithPrefix = `^[0-9a-f.:]+/[0-9]+$`

// Reflection ignores MarshalText, and does not know the words that a lab may use.
func textSchemas() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[topology.CPUSet](): {Type: "string", Pattern: `^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`,
			Description: "A list of numbers in the kernel's format: \"0-3,8\"; empty: none."},
		reflect.TypeFor[lab.Workload](): {Type: "string", Enum: []any{
			lab.WorkloadRDMALatency, lab.WorkloadRDMABandwidth, lab.WorkloadGPUCompute, lab.WorkloadGPUCollective,
			lab.WorkloadCPUBandwidth, lab.WorkloadMixed}},
		reflect.TypeFor[netip.Prefix](): {Type: "string", Pattern: addressWithPrefix},
	}
}

// planSchema is of draft 2020-12.
func planSchema(t testing.TB) []byte {
	t.Helper()
	texts := textSchemas()
	r := &jsonschema.Reflector{
		Anonymous:                 true,
		ExpandedStruct:            true,
		AllowAdditionalProperties: true, // keys are added over time, and by --compare and --against
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			s, ok := texts[t]
			if !ok {
				return nil
			}
			text := *s
			return &text
		},
	}
	for _, dir := range []string{"..", "../../lab", "../../machine/topology"} {
		// AddGoComments joins the paths of the sources with this package's.
		if err := r.AddGoComments("github.com/rackless/rackless/plan/build", dir); err != nil {
			t.Fatal(err)
		}
	}
	for k, text := range r.CommentMap {
		r.CommentMap[k] = strings.Join(strings.Fields(text), " ") // unwrap the comment's lines
	}
	s := r.Reflect(&plan.Plan{})
	s.ID = schemaID
	s.Title = "rackless plan"
	p, ok := s.Properties.Get("schema")
	if !ok {
		t.Fatal("a plan has no schema")
	}
	p.Const = plan.Schema
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

func TestSchemaFileIsCurrent(t *testing.T) {
	t.Parallel()
	got := planSchema(t)
	golden.Check(t, schemaFile, got)
}

func compiledSchema(t testing.TB, text []byte) *judge.Schema {
	t.Helper()
	doc, err := judge.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := judge.NewCompiler()
	if err := c.AddResource("plan.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("plan.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// strictSchema permits no additional keys.
func strictSchema(t testing.TB, text []byte) []byte {
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

func explained(c *solved) *plan.Plan {
	pl, more := *c.pl, int64(700)
	pl.Decisions = []plan.Decision{{Node: "vm00", What: "memory", Choice: "on node 0", RunnerUp: "on node 1",
		RunnerUpCost: &more, Evidence: []string{"distance 32"}}}
	pl.Advice = []plan.Advice{{What: "move NIC 0000:41:00.0 to a slot of NUMA node 0", Gain: 900,
		Why: "SYS becomes PHB"}}
	return &pl
}

func TestEveryPlanFollowsTheSchemaAndHasNoKeyThatIsNotInIt(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t, strictSchema(t, planSchema(t)))
	for _, tt := range []struct{ host, lab string }{
		{hostEPYC, "epyc-pair.yaml"}, {hostH20, "h20-four.yaml"}, {hostH20, "h20-two.yaml"},
		{hostR740, "r740-eight.yaml"},
	} {
		c := proved(t, readHost(t, tt.host), labFile(t, tt.lab), build.Options{HostName: tt.host})
		for _, pl := range []*plan.Plan{c.pl, explained(c)} {
			doc, err := judge.UnmarshalJSON(bytes.NewReader(planJSON(t, pl)))
			if err != nil {
				t.Fatalf("%s: %v", tt.lab, err)
			}
			if err := s.Validate(doc); err != nil {
				t.Errorf("%s: %v", tt.lab, err)
			}
		}
	}
}

func TestTheSchemaRefusesWhatIsNoPlan(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t, planSchema(t))
	c := proved(t, readHost(t, hostEPYC), labFile(t, "epyc-pair.yaml"), build.Options{HostName: hostEPYC})
	good, err := json.Marshal(explained(c))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, old, new string }{
		{"another schema", `"schema":"rackless/plan/v1"`, `"schema":"rackless/plan/v2"`},
		{"a score with a fraction", `"optimal":true,"score":`, `"optimal":true,"score":0.5,"was":`},
		{"no proof", `"optimal":true`, `"best":true`},
		{"no terms", `"terms":[`, `"sum":[`},
		{"a workload that is none", `"workload":"rdma-latency"`, `"workload":"fast"`},
		{"virtual CPUs as a text", `"vcpus":[`, `"vcpus":"0-3","list":[`},
		{"a CPU list that begins with a comma", `"emulator_cpus":"`, `"emulator_cpus":",`},
		{"a list that is null", `"vfs":[]`, `"vfs":null`},
		{"memory without a node", `"memory":[{"numa_node"`, `"memory":[{"node"`},
		{"an address without a subnet", `/24"`, `"`},
		{"a decision without evidence", `"evidence":[`, `"seen":[`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bad := strings.ReplaceAll(string(good), tt.old, tt.new)
			if bad == string(good) {
				t.Fatalf("the plan has no %s", tt.old)
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

// Editors show its descriptions.
func TestTheSchemaDescribesWhatANameDoesNotSay(t *testing.T) {
	t.Parallel()
	var root struct {
		Properties map[string]struct{ Description string }
		Defs       map[string]struct {
			Properties map[string]struct{ Description string }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(planSchema(t), &root); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"optimal", "score", "bound", "stopped", "hugepages", "vfs", "decisions", "advice",
		"notes"} {
		if root.Properties[key].Description == "" {
			t.Errorf("%s has no description", key)
		}
	}
	for def, key := range map[string]string{"Node": "vcpus", "NodeMemory": "page_bytes", "Cell": "numa_nodes",
		"Term": "weight", "Decision": "runner_up", "Advice": "gain"} {
		if root.Defs[def].Properties[key].Description == "" {
			t.Errorf("%s.%s has no description", def, key)
		}
	}
}
