package planner

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func TestTenantsAreReadStrictly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		want       []topology.Tenant
		wantErr    string
	}{
		{"none", "[]", []topology.Tenant{}, ""},
		{"one", `[{"name": "web", "vcpus": 2}]`, []topology.Tenant{{Name: "web", VCPUs: 2}}, ""},
		{"space around it", "\n [ ]\n\n", []topology.Tenant{}, ""},
		{"nothing", "", nil, "the file is empty: want [] for none"},
		{"null", "null", nil, "null: want [] for none"},
		{"no list", `{"name": "web"}`, nil, "line 1: json: cannot unmarshal object"},
		{"a key that there is not", `[{"naem": "web"}]`, nil, `unknown field "naem"`},
		{"a wrong type", "[\n{\"vcpus\":\n\"two\"}]", nil, "line 3: json: cannot unmarshal string"},
		{"cut off", "[\n{\"name\": ", nil, "unexpected EOF"},
		{"no JSON", "- name: web\n", nil, "line 1: invalid character"},
		{"two lists", "[]\n[]", nil, "line 2: invalid character '['"},
		{"CPUs that are none", `[{"pins": [{"vcpu": 0, "cpus": "x"}]}]`, nil, `"x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseTenants([]byte(tt.text))
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("got %v, %v, want %q", got, err, tt.wantErr)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func FuzzTenants(f *testing.F) {
	for _, seed := range []string{"[]", `[{"name": "web", "vcpus": 2, "pins": [{"vcpu": 0, "cpus": "0-3"}]}]`, "null",
		"{", "[[[", "[1", "\x00", `[{"devices": [{"pci": "0000:41:00.0"}]}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if tenants, err := parseTenants(data); (tenants == nil) == (err == nil) {
			t.Errorf("got %v and %v", tenants, err)
		}
	})
}
