package build

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/plan"
)

func TestParseModel(t *testing.T) {
	t.Parallel()
	want := &Model{Weights: map[string]int64{"gpu_nic_path": 700}, Pairs: []MeasuredPair{{"0000:06:00.0", "NIC0", 392},
		{"GPU1", "mlx5_0", 350.5}}, Source: "our own"}
	for name, text := range map[string]string{
		"YAML": "# measured today\nsource: our own\nweights:\n  gpu_nic_path: 700\npairs:\n- {gpu: 0000:06:00.0, " +
			"nic: NIC0, gbps: 392}\n" +
			"- gpu: GPU1\n  nic: mlx5_0\n  gbps: 350.5\n",
		"JSON": `{"weights": {"gpu_nic_path": 700}, "pairs": [{"gpu": "0000:06:00.0", "nic": "NIC0", "gbps": 3.92e2},
{"gpu": "GPU1", "nic": "mlx5_0", "gbps": 350.5}], "source": "our own"}`,
		"JSON with tabs": "{\n\t\"weights\": {\n\t\t\"gpu_nic_path\": 700\n\t},\n\t\"pairs\": [{\"gpu\": " +
			"\"0000:06:00.0\", \"nic\": \"NIC0\", \"gbps\": 392}, {\"gpu\": \"GPU1\", \"nic\": \"mlx5_0\", \"gbps\": " +
			"350.5}],\n\t\"source\": \"our own\"\n}\n",
		"with a byte order": "\ufeffsource: our own\nweights: {gpu_nic_path: 700}\npairs: [{gpu: 0000:06:00.0, " +
			"nic: NIC0, gbps: 392}, {gpu: GPU1, nic: mlx5_0, gbps: 350.5}]",
		"between empty texts": "---\nsource: our own\nweights: {gpu_nic_path: 700}\npairs: [{gpu: 0000:06:00.0, nic: " +
			"NIC0, gbps: 392}, {gpu: GPU1, nic: mlx5_0, gbps: 350.5}]\n---\n",
	} {
		got, err := ParseModel("m", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseModelErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"nothing", "", "m: empty model (want weights, pairs or both)"},
		{"only a comment", "# later\n", "m: empty model (want weights, pairs or both)"},
		{"only a source", "source: me", "m:1:1: neither weights nor pairs (want weights, pairs or both)"},
		{"empty lists", "weights: {}\npairs: []", "m:1:1: neither weights nor pairs (want weights, pairs or both)"},
		{"a list", "- 1", "m:1:1: wrong type (have a list, want keys with values)"},
		{"an unknown key", "weights: {a: 1}\nwieghts: {a: 1}",
			`m:2:1: unknown key (have "wieghts", want weights, pairs or source); did you mean weights?`},
		{"weights that are no mapping", "weights: 5", "m:1:10: weights: wrong type (have 5, want keys with values)"},
		{"half a weight", "weights:\n  a: 1.5", "m:2:6: weights.a: wrong type (have 1.5, want a whole number)"},
		{"a weight in words", "weights:\n  a: high", `m:2:6: weights.a: wrong type (have "high", want a whole number)`},
		{"no weight", "weights:\n  a:\n", "m:2:6: weights.a: wrong type (have nothing, want a whole number)"},
		{"a weight in another base", "weights:\n  a: 0x10",
			"m:2:6: weights.a: not a plain decimal number (have 0x10, want a whole number); write it with the digits " +
				"0 to 9 and no leading zero"},
		{"a weight twice", "weights: {a: 1, a: 2}",
			"m:1:17: weights.a: key is there twice (have lines 1 and 1); remove one of them"},
		{"pairs that are no list", "pairs: {gpu: a}", "m:1:8: pairs: wrong type (have keys with values, want a list)"},
		{"a pair that is none", "pairs: [5]", "m:1:9: pairs[0]: wrong type (have 5, want keys with values)"},
		{"a pair without a figure", "pairs:\n- gpu: a\n  nic: b\n",
			"m:2:3: pairs[0].gbps: missing key; a pair has gpu, nic and gbps, as in {gpu: GPU0, nic: NIC0, gbps: 392}"},
		{"a pair with too much", "pairs:\n- gpu: a\n  nic: b\n  gbps: 1\n  gb: 2",
			`m:5:3: pairs[0]: unknown key (have "gb", want gpu, nic or gbps)`},
		{"a number for a name", "pairs:\n- gpu: 5\n  nic: b\n  gbps: 1",
			`m:2:8: pairs[0].gpu: wrong type (have 5, want text); to mean it as text, quote it: "5"`},
		{"a figure in quotes", "pairs:\n- gpu: a\n  nic: b\n  gbps: \"5\"",
			`m:4:9: pairs[0].gbps: wrong type (have "5", want a number)`},
		{"not a number", "pairs:\n- gpu: a\n  nic: b\n  gbps: .nan",
			"m:4:9: pairs[0].gbps: wrong type (have .nan, want a number)"},
		{"NaN in Go's words", "pairs:\n- gpu: a\n  nic: b\n  gbps: NaN",
			`m:4:9: pairs[0].gbps: wrong type (have "NaN", want a number)`},
		{"two models", "weights: {a: 1}\n---\nweights: {b: 1}",
			"m:2:1: more than one document in the file (want one model); put every model in a file of its own"},
		{"an anchor", "weights: &w {a: 1}",
			`m:1:10: anchors, aliases and merge keys are not used in models (have "&"); write plain keys and values`},
		{"a tag", "weights: !!map {a: 1}",
			`m:1:10: tags are not used in models (have "!!map"); write plain keys and values`},
		{"an open bracket", "weights: {a: 1", "m:1:10: not valid YAML: could not find flow mapping end token '}'"},
		{"deep nesting", strings.Repeat("[", 5000), "m:1:9: nested too deeply"},
		{"deep nesting by dashes", strings.Repeat("- ", 5000), "m:1:17: nested too deeply"},
		{"not text", "weights: \xff", "m:1:10: not UTF-8 text; save the file as UTF-8 text"},
		{"NUL", "weights: \x00", "m:1:10: NUL byte in the text; save the file as UTF-8 text"},
		{"too large", strings.Repeat("#", MaxModelSize+1),
			"m: file too large (have 1048577 bytes, want at most 1048576)"},
		{"too many", "pairs: [" + strings.Repeat("1,", 40_000) + "]",
			"m: too many keys and values (have 80004 tokens, want at most 60000)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, err := ParseModel("m", []byte(test.text))
			if err == nil {
				t.Fatalf("no error, but %+v", m)
			}
			if _, ok := err.(strictyaml.Errors); !ok || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%T %q\nwant %q", err, err, test.want)
			}
		})
	}
}

// Every weight can be overridden by its JSON name.
func TestWeightsHaveTheirJSONNames(t *testing.T) {
	t.Parallel()
	var w plan.Weights
	names, values := weights(&w)
	for i, name := range names {
		*values[name] = int64(i + 1)
	}
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(names) || len(values) != len(names) {
		t.Errorf("%d names for %d weights", len(names), len(got))
	}
	for i, name := range names {
		if name == "" || got[name] != int64(i+1) {
			t.Errorf("weight %q is not that of its JSON name", name)
		}
	}
}

func TestLossIsRoundedUp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		best, gbps float64
		want       int
	}{
		{400, 400, 0}, {400, 399.999999, 1}, {400, 396, 1}, {400, 395.9, 2}, {400, 1e-300, 100}, {392, 350, 11},
		{1e300, 1, 100}, {39.4, 39.006, 1}, {10, 9, 10}, {0.7, 0.63, 10},
	} {
		if got := lossPercent(test.best, test.gbps); got != test.want {
			t.Errorf("lossPercent(%v, %v) = %d, want %d", test.best, test.gbps, got, test.want)
		}
	}
}

// A model survives a round trip through JSON.
func FuzzParseModel(f *testing.F) {
	for _, s := range []string{
		"weights: {gpu_nic_path: 700}\nsource: x\n", "pairs:\n- gpu: GPU0\n  nic: NIC0\n  gbps: 39.2\n",
		`{"pairs":[{"gpu":"a","nic":"b","gbps":3e2}]}`,
		"weights: &a {b: 1}", "pairs: [[", "weights:\n  ? a\n  : 1", "source: |\n  two\n  lines\nweights: {a: -1}",
		"- - - -", "a: b: c", "weights: {a: 1}\n---\n...\n",
		"source: 'it''s'\nweights: {\"b c\": 0}", "\t", "weights: {? : 1}", "pairs:\n-\n",
		"source: \"\\x1b\"\nweights: {a: 1}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseModel("m", data)
		if err != nil {
			if m != nil || !strings.HasPrefix(err.Error(), "m:") {
				t.Fatalf("%v, %v", m, err)
			}
			return
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseModel("m", text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Errorf("%s (-first +again):\n%s", text, diff)
		}
	})
}
