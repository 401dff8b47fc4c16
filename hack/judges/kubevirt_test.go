// Package judges holds the files of rackless export against the programs that read them. It is a module of its own, as
// Kubernetes and KubeVirt are a thousand packages that rackless does not need: make test-judges runs it.
package judges

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	core "k8s.io/api/core/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	kubelet "k8s.io/kubelet/config/v1beta1"
	kubevirt "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/testutils"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook/admitters"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"sigs.k8s.io/yaml"
)

const testdata = "../../render/export/testdata/*/kubevirt/"

// documents returns the objects of the files of a name, as JSON.
func documents(t *testing.T, name string) (docs []json.RawMessage) {
	t.Helper()
	files, err := filepath.Glob(testdata + name)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", testdata+name, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			doc, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			doc, err = yaml.YAMLToJSONStrict(doc)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if string(doc) != "null" {
				docs = append(docs, doc)
			}
		}
	}
	return docs
}

// ofKind returns the objects of a kind.
func ofKind(t *testing.T, name, kind string) (docs []json.RawMessage) {
	t.Helper()
	for _, d := range documents(t, name) {
		var m metav1.TypeMeta
		if err := json.Unmarshal(d, &m); err != nil {
			t.Fatal(err)
		}
		if m.Kind == kind {
			docs = append(docs, d)
		}
	}
	if len(docs) == 0 {
		t.Fatalf("no %s in %s", kind, name)
	}
	return docs
}

// refuses returns what the API server would say of an object, by its definition: unknown keys and wrong values.
func refuses(t *testing.T, crd *extv1.CustomResourceDefinition, object []byte) (faults []string) {
	t.Helper()
	var internal extensions.CustomResourceValidation
	if err := extv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		crd.Spec.Versions[0].Schema, &internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(object, &v); err != nil {
		t.Fatal(err)
	}
	for _, e := range validation.ValidateCustomResource(nil, v, validator) {
		faults = append(faults, e.Error())
	}
	for _, path := range pruning.PruneWithOptions(v, structural, true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		faults = append(faults, "unknown field "+path)
	}
	return faults
}

// admits returns what KubeVirt's admission says of a machine.
func admits(t *testing.T, object []byte) (faults []string) {
	t.Helper()
	var vm kubevirt.VirtualMachine
	if err := json.Unmarshal(object, &vm); err != nil {
		t.Fatal(err)
	}
	config, _, _ := testutils.NewFakeClusterConfigUsingKVConfig(&kubevirt.KubeVirtConfiguration{
		DeveloperConfiguration: &kubevirt.DeveloperConfiguration{FeatureGates: gates(t)}})
	for _, c := range admitters.ValidateVirtualMachineInstanceSpec(field.NewPath("spec"), &vm.Spec.Template.Spec,
		config) {
		faults = append(faults, c.Field+": "+c.Message)
	}
	return faults
}

// gates are the feature gates that the export asks for.
func gates(t *testing.T) []string {
	t.Helper()
	var kv kubevirt.KubeVirt
	if err := json.Unmarshal(ofKind(t, "kubevirt.yaml", "KubeVirt")[0], &kv); err != nil {
		t.Fatal(err)
	}
	return kv.Spec.Configuration.DeveloperConfiguration.FeatureGates
}

// faults are mistakes that each half has to find: the schema misspelt keys and wrong types, the admission nonsense.
var faults = []struct{ old, new, says string }{
	{`"dedicatedCpuPlacement":true`, `"dedicatedCpuPlacment":true`, "dedicatedCpuPlacment"},
	{`"sockets":`, `"sockets":"2","was":`, "sockets"},
	{`"hugepages":{"pageSize":"1Gi"}`, `"hugepages":{"pageSize":"3Gi"}`, "hugepages"},
	{`"dedicatedCpuPlacement":true`, `"dedicatedCpuPlacement":false`, "NUMA"},
}

func TestMachines(t *testing.T) {
	crd, err := components.NewVirtualMachineCrd()
	if err != nil {
		t.Fatal(err)
	}
	machines := ofKind(t, "machines.yaml", "VirtualMachine")
	for _, m := range machines {
		for _, f := range append(refuses(t, crd, m), admits(t, m)...) {
			t.Errorf("%s\n%s", f, m)
		}
	}
	// A judge that finds nothing wrong in what is wrong is none.
	var compact bytes.Buffer
	if err := json.Compact(&compact, machines[0]); err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		bad := strings.Replace(compact.String(), f.old, f.new, 1)
		if bad == compact.String() {
			t.Errorf("%s is not in the machine: %s", f.old, bad)
			continue
		}
		found := refuses(t, crd, []byte(bad))
		if len(found) == 0 {
			found = admits(t, []byte(bad))
		}
		if !strings.Contains(strings.Join(found, " "), f.says) {
			t.Errorf("%s instead of %s: %q does not name %s", f.new, f.old, found, f.says)
		}
	}
}

func TestKubeVirtItself(t *testing.T) {
	crd, err := components.NewKubeVirtCrd()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range ofKind(t, "kubevirt.yaml", "KubeVirt") {
		for _, f := range refuses(t, crd, o) {
			t.Errorf("%s\n%s", f, o)
		}
	}
}

// strict decodes an object into the type that its reader has, and refuses keys that it does not know.
func strict(t *testing.T, object []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(object, into); err != nil {
		t.Errorf("%v\n%s", err, object)
	}
}

func TestKubelet(t *testing.T) {
	for _, o := range ofKind(t, "kubelet.yaml", "KubeletConfiguration") {
		var c kubelet.KubeletConfiguration
		strict(t, o, &c)
		if c.CPUManagerPolicy != "static" || c.MemoryManagerPolicy != "Static" || c.ReservedSystemCPUs == "" {
			t.Errorf("read back as %+v", c)
		}
		// The memory manager refuses to start where these differ.
		sum := int64(0)
		for _, r := range c.ReservedMemory {
			q := r.Limits["memory"]
			sum += q.Value()
		}
		system := resource.MustParse(c.SystemReserved["memory"])
		if want := system.Value() + 100<<20; sum != want {
			t.Errorf("reservedMemory is %d, want %d: systemReserved and evictionHard", sum, want)
		}
	}
}

func TestNetworks(t *testing.T) {
	for _, o := range ofKind(t, "networks.yaml", "NetworkAttachmentDefinition") {
		var n nad.NetworkAttachmentDefinition
		strict(t, o, &n)
		var c struct {
			Version string `json:"cniVersion"`
			Name    string `json:"name"`
			Type    string `json:"type"`
			Spoof   string `json:"spoofchk"`
			Trust   string `json:"trust"`
		}
		if err := yaml.UnmarshalStrict([]byte(n.Spec.Config), &c); err != nil || c.Type != "sriov" || c.Name != n.Name {
			t.Errorf("configuration %s: %v", n.Spec.Config, err)
		}
	}
	for _, o := range ofKind(t, "machines.yaml", "Secret") {
		var s core.Secret
		strict(t, o, &s)
		if !strings.HasPrefix(s.StringData["userdata"], "#cloud-config\n") {
			t.Errorf("user data is no cloud-config: %.40q", s.StringData["userdata"])
		}
	}
}
