package inspect

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rackless/rackless/machine/topology"
)

func printedHost(t testing.TB, h *topology.Host) []byte {
	t.Helper()
	data, err := json.Marshal(struct {
		Schema string `json:"schema"`
		*topology.Host
	}{topology.Schema, h})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAHostReadsBackFromItsJSON(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"../../examples/hosts/epyc-7551p.ttar", "../../examples/hosts/h20.txt"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			want, err := ReadFile(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ReadStream(t.Context(), bytes.NewReader(printedHost(t, want)), "host.json")
			if err != nil {
				t.Fatal(err)
			}
			if got.Provenance.Name != "host.json" {
				t.Errorf("it is called %q", got.Provenance.Name)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(topology.Provenance{},
				"Name")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestAFileIsNeverThisMachine(t *testing.T) {
	t.Parallel()
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceLive, ThisSystem: true}}
	got, err := ReadStream(t.Context(), bytes.NewReader(printedHost(t, h)), "host.json")
	if err != nil {
		t.Fatal(err)
	}
	if got.Provenance.ThisSystem {
		t.Error("a host from a file says that it is this system")
	}
}

func TestBrokenHostJSONIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"cut off": {`{"schema":"rackless/host/v1","numa_nodes":[{"id":`,
			"host.json: not as \"rackless inspect -o json\" prints a host"},
		"a wrong address": {`{"schema":"rackless/host/v1","pci":[{"address":"06:zz"}]}`, "06:zz"},
		"a node below 0": {`{"schema":"rackless/host/v1","numa_nodes":[{"id":-1}]}`,
			"id of a NUMA node is -1; want 0 to 65535"},
		"a node that no set holds": {`{"schema":"rackless/host/v1","numa_nodes":[{"id":65536}]}`, "65536"},
		"too many virtual CPUs": {`{"schema":"rackless/host/v1","tenants":[{"name":"vm","vcpus":2147483648}]}`,
			`vcpus of VM "vm" is 2147483648; want 0 to 65536`},
		"a pin below 0": {`{"schema":"rackless/host/v1","tenants":[{"name":"vm","pins":[{"vcpu":-1}]}]}`,
			`a vcpu among the pins of VM "vm" is -1`},
		"another document": {`{"of":"rackless/host/v1","schema":"rackless/plan/v1"}`,
			`schema "rackless/plan/v1", want "rackless/host/v1"`},
		"no host at all": {`{"schema":"rackless/plan/v1"}`, "not a machine in a form that rackless knows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ReadStream(t.Context(), strings.NewReader(tt.text), "host.json")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}
