package hostview

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func written(t testing.TB, write func(*bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func fullHost() *topology.Host {
	h := &topology.Host{}
	fill(reflect.ValueOf(h).Elem(), 0)
	return h
}

func fill(v reflect.Value, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *topology.CPUSet:
		*x = topology.CPUs(1, 2, 5)
		return
	case *topology.PCIAddr:
		*x = topology.PCIAddr{Bus: 0x41, Device: 3, Function: 1}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(k, depth+1)
		fill(e, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(k, e)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
		}
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(2)
	case reflect.Float64:
		v.SetFloat(2.5)
	}
}

func decoded(t testing.TB, d *Document) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(written(t, func(b *bytes.Buffer) error { return d.WriteJSON(b, false) }), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestListsAreThereWhenThereIsNothingInThem(t *testing.T) {
	v := decoded(t, NewDocument(nothing(), nil))
	for _, key := range []string{"packages", "numa_nodes", "cores", "pci", "gpus", "nics", "paths", "findings"} {
		if list, ok := v[key].([]any); !ok || len(list) != 0 {
			t.Errorf("%s is %v, want []", key, v[key])
		}
	}
	if v["schema"] != "rackless/host/v1" {
		t.Errorf("the schema is %v", v["schema"])
	}
	for _, key := range []string{"system", "memory", "kernel", "iommu", "cpus", "tenants", "reported_paths", "unread"} {
		if got, ok := v[key]; ok {
			t.Errorf("%s is %v; what is not known must be absent", key, got)
		}
	}
}

// Promised keys have the values of a known machine.
func TestThePromisedKeysHaveTheirPromisedForm(t *testing.T) {
	v := decoded(t, NewDocument(epyc(), epycFindings()))
	at := func(keys ...any) any {
		var x any = v
		for _, k := range keys {
			switch k := k.(type) {
			case string:
				m, ok := x.(map[string]any)
				if !ok {
					t.Fatalf("%v: %v is no object", keys, x)
				}
				x = m[k]
			case int:
				l, ok := x.([]any)
				if !ok || k >= len(l) {
					t.Fatalf("%v: %v is no list of %d", keys, x, k+1)
				}
				x = l[k]
			}
		}
		return x
	}
	pci := func(address string) int {
		for i := range v["pci"].([]any) {
			if at("pci", i, "address") == address {
				return i
			}
		}
		t.Fatalf("no %s", address)
		return 0
	}
	nic := pci("0000:41:00.0")
	for _, tt := range []struct {
		keys []any
		want any
	}{
		{[]any{"packages", 0, "id"}, 0.0},
		{[]any{"numa_nodes", 0, "cpus"}, "0-7,32-39"},
		{[]any{"numa_nodes", 0, "memory_bytes"}, 67108864000.0},
		{[]any{"numa_nodes", 0, "distances"}, []any{10.0, 16.0, 16.0, 16.0}},
		{[]any{"numa_nodes", 0, "hugepages", 1, "size_bytes"}, 1073741824.0},
		{[]any{"numa_nodes", 0, "hugepages", 1, "total"}, 16.0},
		{[]any{"numa_nodes", 0, "hugepages", 1, "free"}, 5.0},
		{[]any{"cores", 0}, map[string]any{"id": 0.0, "package": 0.0, "numa_node": 0.0, "l3": 0.0, "cpus": "0,32",
			"governor": "performance"}},
		{[]any{"pci", nic, "class"}, "0x020000"},
		{[]any{"pci", nic, "vendor"}, "0x15b3"},
		{[]any{"pci", nic, "device"}, "0x1015"},
		{[]any{"pci", nic, "numa_node"}, 2.0},
		{[]any{"pci", nic, "iommu_group"}, 37.0},
		{[]any{"pci", nic, "driver"}, "mlx5_core"},
		{[]any{"pci", nic, "link", "speed_gts"}, 8.0},
		{[]any{"pci", nic, "link", "max_width"}, 8.0},
		{[]any{"gpus", 0, "address"}, "0000:06:00.0"},
		{[]any{"gpus", 0, "functions"}, []any{"0000:06:00.0", "0000:06:00.1"}},
		{[]any{"nics", 1, "netdevs"}, []any{"enp65s0f0np0"}},
		{[]any{"nics", 1, "rdma"}, []any{"mlx5_0"}},
		{[]any{"nics", 1, "speed_mbps"}, 25000.0},
		{[]any{"nics", 1, "sriov", "total"}, 8.0},
		{[]any{"nics", 1, "sriov", "vfs"}, []any{}},
		{[]any{"paths", 0}, map[string]any{"a": "0000:06:00.0", "b": "0000:21:00.0", "class": "SYS",
			"expected": map[string]any{
				"gb_per_s_min": 6.0, "gb_per_s_max": 11.0, "us_min": 8.0, "us_max": 15.0,
				"basis": "scaled from Gen4 x16", "link": "Gen3 x16"}}},
		{[]any{"findings", 0, "id"}, "RL003"},
		{[]any{"findings", 0, "severity"}, "warning"},
		{[]any{"findings", 0, "subject"}, "0000:21:00.0"},
	} {
		if d := cmp.Diff(tt.want, at(tt.keys...)); d != "" {
			t.Errorf("%v (-want +got):\n%s", tt.keys, d)
		}
	}
}

// The slower link, the port above it, and its speed under load count.
func TestAnExpectationIsForTheSlowerLinkUnderLoad(t *testing.T) {
	gen := func(g float64) *float64 { return &g }
	host := func(a, b topology.Link) *topology.Host {
		h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}}}
		function(h, "0000:01:00.0", "", "pci0000:00", 0, 0x030200, topology.VendorNVIDIA, 0x2330, "", &a)
		function(h, "0000:02:00.0", "", "pci0000:00", 0, 0x020000, topology.VendorMellanox, 0x1021, "", &b)
		h.Complete()
		return h
	}
	full := topology.Link{SpeedGTs: gen(32), Width: new(16), MaxSpeedGTs: gen(32), MaxWidth: new(16)}
	for _, tt := range []struct {
		name string
		a, b topology.Link
		want string // basis and upper bound, or ""
	}{
		{"two full links", full, full, "Gen5 x16 52"},
		{"an idle GPU", topology.Link{SpeedGTs: gen(2.5), Width: new(16), MaxSpeedGTs: gen(32), MaxWidth: new(16)},
			full, "Gen5 x16 52"},
		{"a NIC of the generation before", full, topology.Link{SpeedGTs: gen(16), Width: new(16), MaxSpeedGTs: gen(16),
			MaxWidth: new(16)}, "Gen4 x16 27"},
		{"a card in a narrow slot", full, topology.Link{SpeedGTs: gen(32), Width: new(8), MaxSpeedGTs: gen(32),
			MaxWidth: new(16)}, "scaled from Gen4 x16 27"},
		{"an idle GPU in a slot of the generation before", topology.Link{SpeedGTs: gen(2.5), Width: new(16),
			MaxSpeedGTs: gen(32), MaxWidth: new(16),
			Port: &topology.PortLink{MaxSpeedGTs: gen(16)}}, full, "Gen4 x16 27"},
		{"a NIC whose link has not trained", full, topology.Link{SpeedGTs: gen(2.5), Width: new(16),
			MaxSpeedGTs: gen(32), MaxWidth: new(16)}, "scaled from Gen4 x16 3.4"},
		{"a port that says how wide it is", full, topology.Link{MaxSpeedGTs: gen(16), MaxWidth: new(32),
			Port: &topology.PortLink{MaxWidth: new(16)}}, "Gen4 x16 27"},
		{"a link of unknown speed", full, topology.Link{Width: new(16)}, ""},
		{"a link of unknown width", full, topology.Link{SpeedGTs: gen(16)}, ""},
		{"a speed that is none", full, topology.Link{SpeedGTs: gen(3), Width: new(16)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			for _, p := range NewDocument(host(tt.a, tt.b), nil).Paths {
				if p.Expected != nil {
					got = fmt.Sprint(p.Expected.Basis, " ", p.Expected.GBpsMax)
				}
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNothingIsExpectedBetweenTwoNICs(t *testing.T) {
	for _, p := range NewDocument(dgx(), nil).Paths {
		if p.A == "0000:18:00.0" && p.B == "0000:1a:00.0" && p.Expected != nil {
			t.Errorf("%+v", p)
		}
	}
}

func TestReportedPathsHaveTheFormOfPaths(t *testing.T) {
	h := matrixOnly()
	d := NewDocument(h, nil)
	want := Path{A: "GPU0", B: "GPU1", Class: "NV2"}
	if d.Reported[0] != want || len(d.Reported) != len(h.Reported) {
		t.Errorf("got %d, the first %+v; want %d, the first %+v", len(d.Reported), d.Reported[0], len(h.Reported), want)
	}
}

// A Host with every field set comes back unchanged.
func TestADocumentHoldsTheWholeHost(t *testing.T) {
	h := fullHost()
	out := written(t, func(b *bytes.Buffer) error { return NewDocument(h, nil).WriteJSON(b, true) })
	var got topology.Host
	h.Reported = nil // it has its own form
	if err := json.Unmarshal(bytes.ReplaceAll(out, []byte("reported_paths"), []byte("x")), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(h, &got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestYAMLSaysWhatJSONSays(t *testing.T) {
	t.Parallel()
	h := armVFs()
	h.System.Product = "yes: no\n- # '\"" // YAML must quote it
	h.System.Board = "0x20"
	h.System.Vendor = "1e3"
	h.NUMANodes[0].MemoryBytes = new(uint64(1<<63 + 1))
	for _, c := range append(hostCases(), hostCase{"odd values", h, nil}) {
		d := NewDocument(c.host, c.findings)
		out := written(t, func(b *bytes.Buffer) error { return d.WriteYAML(b) })
		if !bytes.HasPrefix(out, []byte("schema: rackless/host/v1\n")) {
			t.Errorf("%s begins with %.60q", c.name, out)
		}
		back, err := yaml.YAMLToJSON(out)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got, want any
		for _, one := range []struct {
			text []byte
			into *any
		}{{back, &got}, {written(t, func(b *bytes.Buffer) error { return d.WriteJSON(b, false) }), &want}} {
			in := json.NewDecoder(bytes.NewReader(one.text))
			in.UseNumber() // 2^63+1 does not fit a float64
			if err := in.Decode(one.into); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if d := cmp.Diff(want, got, cmp.Transformer("number", func(n json.Number) string {
			return strings.TrimSuffix(n.String(), ".0")
		})); d != "" {
			t.Errorf("%s (-JSON +YAML):\n%s", c.name, d)
		}
	}
}

func TestOneLineOfJSONIsOneLine(t *testing.T) {
	h := epyc()
	h.System.Product = "two\nlines <&>"
	out := written(t, func(b *bytes.Buffer) error { return NewDocument(h, nil).WriteJSON(b, false) })
	if n := bytes.Count(out, []byte("\n")); n != 1 || out[len(out)-1] != '\n' {
		t.Errorf("%d lines", n)
	}
	if !bytes.Contains(out, []byte(`two\nlines <&>`)) {
		t.Error("letters are escaped that need not be")
	}
}

// Write errors are reported.
func TestErrorsOfWritingAreReported(t *testing.T) {
	d := NewDocument(epyc(), epycFindings())
	for name, write := range map[string]func(io.Writer) error{
		"JSON": func(w io.Writer) error { return d.WriteJSON(w, true) }, "YAML": d.WriteYAML, "matrix": d.WriteMatrix,
		"table": func(w io.Writer) error {
			return d.WriteTable(w, TableOptions{})
		}, "SVG": d.WriteSVG, "page": d.WritePage,
	} {
		if err := write(full{}); !errors.Is(err, errFull) || !strings.Contains(err.Error(), `"epyc.tar.zst"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

func BenchmarkJSONLines(b *testing.B) {
	h := dgx()
	for b.Loop() {
		if err := NewDocument(h, nil).WriteJSON(io.Discard, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSVG(b *testing.B) {
	d := NewDocument(dgx(), dgxFindings())
	for b.Loop() {
		if err := d.WriteSVG(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
