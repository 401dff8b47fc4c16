package export_test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/rackless/rackless/plan/render/export"
)

// A real API server accepts the objects by their projects' own definitions, and refuses misspelt keys.
func TestAnAPIServerTakesTheObjects(t *testing.T) {
	t.Parallel()
	if !*judges {
		t.Skip("make test-judges builds a kube-apiserver")
	}
	s := startAPIServer(t, judge(t, "apiserver", "../apiserver"))
	s.must(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: kubevirt}\n")
	for kind, schema := range kubeVirtSchemas(t) {
		s.must(t, fmt.Sprintf(definition, strings.ToLower(kind), kind, strings.ReplaceAll(schema, "\n", "\n      ")))
	}
	for _, file := range []string{
		"github.com/k8snetworkplumbingwg/network-attachment-definition-client@v1.7.7/artifacts/networks-crd.yaml",
		"github.com/k8snetworkplumbingwg/sriov-network-operator@v1.6.0/config/crd/bases/" +
			"sriovnetwork.openshift.io_sriovnetworknodepolicies.yaml"} {
		crd, err := os.ReadFile(moduleFile(t, file))
		if err != nil {
			t.Fatalf("%v: hack/judges.sh apiserver fetches it", err)
		}
		s.must(t, string(crd))
	}
	s.must(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: sriov-network-operator}\n")
	misspelt := map[string]bool{}
	for _, c := range cases[:3] {
		files, err := export.KubeVirt(input(t, c.lab, c.host))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.Path == "kubelet.yaml" {
				continue // the kubelet reads it from a file
			}
			for _, object := range documents.Split(string(f.Data), -1) {
				if !strings.Contains(object, "\nkind: ") {
					continue
				}
				s.must(t, object)
				for _, key := range []string{"dedicatedCpuPlacement", "nicSelector", "config"} {
					wrong := strings.Replace(object, "  "+key+":", "  "+key[1:]+":", 1)
					if wrong == object {
						continue
					}
					misspelt[key] = true
					if code, said := s.apply(t, wrong); code < 400 || !strings.Contains(said, key[1:]) {
						t.Errorf("%s: a misspelt %s: %d: %s", c.name, key, code, said)
					}
				}
			}
		}
	}
	if len(misspelt) != 3 {
		t.Errorf("only %v were misspelt", misspelt)
	}
}

var documents = regexp.MustCompile(`(?m)^---\n`)

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.kubevirt.io}
spec:
  group: kubevirt.io
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      %[3]s
`

func kubeVirtSchemas(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(kubeVirtDefinitions(t))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kind := range []string{"KubeVirt", "VirtualMachine"} {
		m := regexp.MustCompile("(?s)\"" + strings.ToLower(kind) + "\": `(openAPIV3Schema:.*?)`").FindSubmatch(text)
		if m == nil {
			t.Fatalf("KubeVirt does not define %s", kind)
		}
		all[kind] = strings.TrimSpace(string(m[1]))
	}
	return all
}

type apiServer struct {
	url, token string
	client     http.Client
}

func startAPIServer(t *testing.T, program string) *apiServer {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	s := &apiServer{url: "https://127.0.0.1:" + port, token: rand.Text()}
	s.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, t.TempDir(), port, s.token)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // it was killed
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if code, _, err := s.ask(t, http.MethodGet, "/readyz", nil); err == nil && code == http.StatusOK {
			return s
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill() // makes its output readable
			_ = cmd.Wait()
			t.Fatalf("the API server is not ready:\n%s", said.String())
		}
	}
}

func (s *apiServer) ask(t *testing.T, method, path string, body []byte) (code int, said string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Content-Type", "application/apply-patch+yaml")
	res, err := s.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

var plurals = map[string]string{"Namespace": "/api/v1/namespaces", "Secret": "/api/v1/namespaces/default/secrets",
	"CustomResourceDefinition":    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	"KubeVirt":                    "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts",
	"VirtualMachine":              "/apis/kubevirt.io/v1/namespaces/default/virtualmachines",
	"NetworkAttachmentDefinition": "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions",
	"SriovNetworkNodePolicy": "/apis/sriovnetwork.openshift.io/v1/namespaces/sriov-network-operator/" +
		"sriovnetworknodepolicies"}

// apply works like kubectl apply --server-side --validate=strict.
func (s *apiServer) apply(t *testing.T, object string) (code int, said string) {
	t.Helper()
	var o struct {
		Kind     string
		Metadata struct{ Name string }
	}
	if err := yaml.Unmarshal([]byte(object), &o); err != nil {
		t.Fatal(err)
	}
	path := plurals[o.Kind] + "/" + o.Metadata.Name + "?fieldManager=rackless&fieldValidation=Strict"
	code, said, err := s.ask(t, http.MethodPatch, path, []byte(object))
	if err != nil {
		t.Fatal(err)
	}
	return code, said
}

// A newly defined kind takes a moment to become available.
func (s *apiServer) must(t *testing.T, object string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		code, said := s.apply(t, object)
		if code == http.StatusOK || code == http.StatusCreated {
			return
		}
		if code != http.StatusNotFound || time.Now().After(deadline) {
			t.Fatalf("the API server refuses it with %d: %s\n%s", code, said, object)
		}
	}
}
