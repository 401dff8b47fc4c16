package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/plan/rivals"
	"github.com/rackless/rackless/rack/adopt"

	"github.com/goccy/go-yaml"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/study/appraise"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/gpudirect"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/doctor"
	"github.com/rackless/rackless/rack/vram"
	"github.com/rackless/rackless/rdma/simulate"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/report/top"
	"github.com/rackless/rackless/study/document"
	"github.com/rackless/rackless/study/results"
	"github.com/rackless/rackless/study/suggest"
	"github.com/rackless/rackless/vm/images"
)

// shapes are keyed by the words after "```json" in docs/json.md.
func shapes() map[string]func() any {
	return map[string]func() any{
		"ls":               func() any { return new(lsOutput) },
		"emulate-ls":       func() any { return new(hostsOutput) },
		"emulate-profiles": func() any { return new(profilesOutput) },
		"link-show":        func() any { return new(tables.FabricSnapshot) },
		"link-show-paths":  func() any { return new(tables.Paths) },
		"nic":              func() any { return new(tables.Adapters) },
		"gpu":              func() any { return new(tables.GPUs) },
		"link-set":         func() any { return new(tables.Links) },
		"bench-baseline":   func() any { return new(baselineOutput) },
		"results-check":    func() any { return new(appraise.Result) },
		"host-check":       func() any { return new([]*adopt.Verdict) },
		"host-adopt":       func() any { return new(adopted) },
		"simulate":         func() any { return new(simulate.Result) },
		"simulate-suggest": func() any { return new(suggest.Suggestion) },
		"study-ls":         func() any { return new(document.List) },
		"recommend":        func() any { return new(tables.Recommendation) },
		"image-ls":         func() any { return new(images.Listing) },
		"image-build":      func() any { return new(buildOutput) },
		"lab-check":        func() any { return new(labCheckOutput) },
		"lab-check-faults": func() any { return new(labFaultsOutput) },
		"lab-diff":         func() any { return new(rack.Difference) },
		"doctor":           func() any { return new(doctor.Report) },
		"prepare":          func() any { return new(tables.Prepare) },
		"prepare-dry-run":  func() any { return new(tables.Survey) },
		"rollback":         func() any { return new(tables.Rollback) },
		"host-links":       func() any { return new(linksOutput) },
		"top":              func() any { return new(top.View) },
		"version":          func() any { return new(versionOutput) },
		"explain":          func() any { return new(finding.Explanation) },
		"host-gpudirect":   func() any { return new([]*gpudirect.Report) },
		"verify":           func() any { return new([]finding.Finding) },
		"report-list":      func() any { return new([]results.Result) },
		"report-compare":   func() any { return new(report.Comparison) },

		"host-gpudirect-lab": func() any { return new(vram.Report) },
		"inspect-summary":    func() any { return new(hostview.Group) },
		"plan": func() any {
			return new(struct {
				*plan.Plan
				Compare []rivals.Outcome `json:"compare,omitempty"`
				Against *planAgainst     `json:"against,omitempty"`
			})
		},
		"plan-infeasible": func() any { return new(plan.Infeasible) },
	}
}

func TestTheDocumentedJSONIsWhatTheProgramPrints(t *testing.T) {
	doc, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```json ([a-z-]+)\n(.*?)^```$").FindAllSubmatch(doc, -1)
	left := shapes()
	for _, m := range found {
		name, example := string(m[1]), m[2]
		t.Run(name, func(t *testing.T) {
			shape, ok := left[name]
			if !ok {
				t.Fatalf("no type for it, or a second example of it")
			}
			delete(left, name)
			v := shape()
			d := json.NewDecoder(bytes.NewReader(example))
			d.DisallowUnknownFields()
			if err := d.Decode(v); err != nil {
				t.Fatal(err)
			}
			var again bytes.Buffer
			if err := show.Encode(&again, formatJSON, v); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(example), again.String()); diff != "" {
				t.Errorf("the example is not what is printed (-documented +printed):\n%s", diff)
			}
			again.Reset()
			if err := show.Encode(&again, formatYAML, v); err != nil {
				t.Fatal(err)
			}
			back, err := yaml.YAMLToJSON(again.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if want := indented(t, back); want != string(example) {
				t.Errorf("as YAML it is something else (-documented +printed):\n%s", cmp.Diff(string(example), want))
			}
			for _, key := range append(keys(reflect.TypeOf(v)), findingKeys[name]...) {
				if !bytes.Contains(example, []byte(`"`+key+`"`)) {
					t.Errorf("the example does not show the key %q", key)
				}
			}
		})
	}
	for name := range left {
		t.Errorf("docs/json.md has no example for %s", name)
	}
}

func indented(t *testing.T, text []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(text), "", "  "); err != nil {
		t.Fatal(err)
	}
	return b.String() + "\n"
}

// findingKeys is by output; inspect's are in docs/host.schema.json.
var findingKeys = map[string][]string{
	"verify": {"id", "code", "subject", "title", "status", "have", "want", "evidence", "fix"},
	"doctor": {"id", "title", "status", "evidence", "fix"},
}

// keys includes the fields' types.
func keys(t reflect.Type) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return keys(t.Elem())
	case reflect.Struct:
		if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) { // times, addresses, CPU lists
			return nil
		}
		if t == reflect.TypeFor[finding.Finding]() {
			return nil // see findingKeys
		}
		var all []string
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" { // not part of the JSON
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.Anonymous {
				all = append(all, name)
			}
			all = append(all, keys(f.Type)...)
		}
		return all
	}
	return nil
}

func TestEveryVerbWithOutputFlagIsDocumented(t *testing.T) {
	a, _, _ := testApp(t)
	doc, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	walk(newRootCmd(a), func(c *cobra.Command) {
		f := c.Flags().Lookup("output")
		if f == nil || f.Hidden { // a former name
			return
		}
		text := formatText
		var words []string
		if complete, ok := c.GetFlagCompletionFunc("output"); ok {
			words, _ = complete(c, nil, "")
		}
		if !slices.Contains(words, formatJSON) || !slices.Contains(words, formatYAML) {
			t.Errorf("%s: -o takes %v", c.CommandPath(), words)
		}
		if slices.Contains([]string{"inspect", "plan", "query"}, c.Name()) {
			text = formTable
		}
		if f.Shorthand != "o" || f.DefValue != text {
			t.Errorf("%s: -o is %+v", c.CommandPath(), f)
		}
		if !bytes.Contains(doc, []byte(c.CommandPath())) {
			t.Errorf("docs/json.md does not mention %s", c.CommandPath())
		}
	})
}

func TestAlternatives(t *testing.T) {
	tests := []struct{ name, got, want string }{
		{"one", words.Count(1, "node"), "1 node"},
		{"none is many", words.Count(0, "node"), "0 nodes"},
		{"one word", words.Or([]string{"a"}), "a"},
		{"no word", words.Or(nil), ""},
		{"three words", words.Or([]string{"a", "b", "c"}), "a, b or c"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("got %q, want %q", tt.got, tt.want)
			}
		})
	}
}

func TestJSONIsNotEscapedForWebPages(t *testing.T) {
	var b bytes.Buffer
	if err := show.EncodeNext(&b, formatJSON, []string{"a->b & <c>"}); err != nil ||
		b.String() != "[\"a->b & <c>\"]\n" {
		t.Errorf("got %q, %v", &b, err)
	}
}
