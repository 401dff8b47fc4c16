package diagnose

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func check(t interface{ Fatalf(string, ...any) }, h *topology.Host) {
	before, err := json.Marshal(h)
	if err != nil {
		t.Fatalf("%v", err)
	}
	list := Host(h)
	if after, _ := json.Marshal(h); !bytes.Equal(before, after) {
		t.Fatalf("the host was changed")
	}
	severities := map[string][]finding.Severity{}
	for _, c := range checks() {
		severities[c.ID] = c.Severities
	}
	for i, f := range list {
		if !slices.Contains(severities[f.ID], f.Severity) {
			t.Fatalf("%s has severity %s, which the catalogue does not name: %+v", f.ID, f.Severity, f)
		}
		if f.Title == "" || f.Evidence == "" || f.Consequence == "" || f.Fix == "" {
			t.Fatalf("a field is empty: %+v", f)
		}
		if i > 0 && (list[i-1].Severity.Rank() > f.Severity.Rank() || list[i-1].Severity == f.Severity &&
			list[i-1].ID > f.ID) {
			t.Fatalf("%+v comes after %+v", f, list[i-1])
		}
	}
	if again := Host(h); !slices.Equal(list, again) {
		t.Fatalf("two runs differ:\n%+v\n%+v", list, again)
	}
}

func TestHostsWithHolesAndNonsenseNeverPanic(t *testing.T) {
	t.Parallel()
	cases := allCases()
	rapid.Check(t, func(t *rapid.T) {
		h := cases[rapid.IntRange(0, len(cases)-1).Draw(t, "case")].host()
		h.Reported = nil // classes are written, not parsed
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatalf("%v", err)
		}
		var tree any
		if err := json.Unmarshal(text, &tree); err != nil {
			t.Fatalf("%v", err)
		}
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			tree = change(t, tree)
		}
		text, err = json.Marshal(tree)
		if err != nil {
			t.Fatalf("%v", err)
		}
		changed := &topology.Host{}
		if json.Unmarshal(text, changed) != nil {
			return // no longer a host
		}
		check(t, changed)
		changed.Complete()
		check(t, changed)
	})
}

// Random changes need thousands of hosts to reach each number.
func TestNumbersThatNoHostHasNeverPanic(t *testing.T) {
	t.Parallel()
	for _, c := range allCases() {
		h := c.host()
		h.Reported = nil // classes are written, not parsed
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 10_000 { // larger cases take too long
			continue
		}
		var tree any
		if err := json.Unmarshal(text, &tree); err != nil {
			t.Fatal(err)
		}
		judge := func() {
			text, err := json.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			changed := &topology.Host{}
			if json.Unmarshal(text, changed) == nil {
				Host(changed)
			}
		}
		eachNumber(tree, "", map[string]bool{}, func(set func(any)) {
			for _, n := range []any{-1, 1 << 31} {
				set(n)
				judge()
			}
		})
	}
}

// eachNumber calls change for the first number at each path, ignoring indices, and restores it.
func eachNumber(v any, path string, seen map[string]bool, change func(set func(any))) {
	visit := func(path string, v any, set func(any)) {
		if n, ok := v.(float64); ok && !seen[path] {
			seen[path] = true
			change(set)
			set(n)
		}
		eachNumber(v, path, seen, change)
	}
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			visit(path+"."+k, v[k], func(n any) { v[k] = n })
		}
	case []any:
		for i := range v {
			visit(path, v[i], func(n any) { v[i] = n })
		}
	}
}

func change(t *rapid.T, v any) any {
	here := rapid.IntRange(0, 9).Draw(t, "here") == 0
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return v
		}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		k := keys[rapid.IntRange(0, len(keys)-1).Draw(t, "key")]
		if here {
			delete(v, k)
		} else {
			v[k] = change(t, v[k])
		}
		return v
	case []any:
		if len(v) == 0 {
			return v
		}
		i := rapid.IntRange(0, len(v)-1).Draw(t, "index")
		switch {
		case !here:
			v[i] = change(t, v[i])
		case rapid.Bool().Draw(t, "twice"):
			v = append(v, v[i])
		default:
			v = slices.Delete(v, i, i+1)
		}
		return v
	case float64:
		return rapid.SampledFrom([]any{nil, -1, 0, 1, 2.5, 63, 255, 65535, 1 << 31, 1 << 52, v + 1}).Draw(t, "number")
	case string:
		return rapid.SampledFrom([]any{nil, "", "0", "0-3", "2-29", "64-127", "0000:06:00.0", "0000:41:00.0",
			"vfio-pci", "DOWN", "InfiniBand", "isolcpus=", v}).Draw(t, "text")
	case bool:
		return !v
	}
	return v
}

func FuzzHost(f *testing.F) {
	// The fuzzer spends its time on minimizing large inputs.
	small := base()
	small.NUMANodes, small.Cores, small.Tenants, small.PCI = small.NUMANodes[:2], small.Cores[:2], small.Tenants[:1],
		small.PCI[:12]
	small.Tenants[0].Pins = small.Tenants[0].Pins[:2]
	for _, h := range []*topology.Host{small, laptop(), {}} {
		h.Complete()
		text, err := json.Marshal(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"provenance":{"kind":"tree"},"pci":[{"address":"0000:01:00.0","parent":"0000:01:00.0",` +
		`"class":"0x030000","link":{"speed_gts":2.5}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h := &topology.Host{}
		if len(text) > 1<<16 || json.Unmarshal(text, h) != nil {
			t.Skip()
		}
		check(t, h)
	})
}

func FuzzCommandLine(f *testing.F) {
	for _, s := range []string{"isolcpus=2-29,34-61 hugepagesz=1G hugepages=0:16,1:16", `a="b c" -- x`,
		"isolcpus= nohz_full=all", "default_hugepagesz=1G hugepages=4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		h := base()
		h.Kernel.Cmdline = &line
		for _, p := range newView(h).params {
			if p.hasValue != (len(p.String()) > len(p.name)) {
				t.Errorf("%q: value of %q is not written", line, p.name)
			}
		}
		check(t, h)
	})
}
