package hwlocxml

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

// TestAgainstLstopo compares hwloc's reading of version 1 with ours. It needs hwloc 2.
func TestAgainstLstopo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs lstopo some 60 times")
	}
	program, err := exec.LookPath("lstopo-no-graphics")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no lstopo: install hwloc-nox to run this test")
	}
	version, err := exec.Command(program, "--version").Output()
	if err != nil || !bytes.Contains(version, []byte("lstopo-no-graphics 2.")) {
		t.Skipf("%s is not of hwloc 2: %s", program, version)
	}
	for _, name := range corpus(t) {
		if name == joined || bytes.Contains(content(t, name), []byte(`<topology version="3`)) || undecided[name] != "" {
			continue
		}
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(program, "-i", filepath.Join("testdata", name), "--whole-io", "--of", "xml", "-")
			var complaints strings.Builder
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil && strings.Contains(complaints.String(), "minimalistic parser") {
				// Debian 13 builds hwloc-nox without libxml2; its fallback only reads files written by hwloc itself.
				t.Skipf("%s cannot read this file: %s", bytes.TrimSpace(version), complaints.String())
			}
			if err != nil {
				t.Fatalf("lstopo: %v: %s", err, complaints.String())
			}
			want, err := Parse(out, "lstopo")
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(comparable(want), comparable(parse(t, name))); diff != "" {
				t.Errorf("-lstopo +%s:\n%s", name, diff)
			}
		})
	}
}

var undecided = map[string]string{
	"xml-v1/16amd64-8n2c-cpusets.xml": "hwloc drops nodes that are not allowed; the file describes them",
}

// comparable returns the parts that do not depend on the version.
func comparable(h *topology.Host) *topology.Host {
	h.Provenance, h.Unread = topology.Provenance{}, nil
	h.CPUs = topology.CPUStates{} // hwloc 2 drops the online CPUs
	for i := range h.PCI {
		h.PCI[i].LocalCPUs = nil
	}
	for i := range h.NUMANodes {
		h.NUMANodes[i].Kind, h.NUMANodes[i].MemoryMode = "", "" // later releases guess these
	}
	return h
}
