package lab

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// way uses the requests alone.
func way(n Node, gpu, nic int) string {
	r := n.GPURequests[gpu]
	beside := int(r.Beside[len("eth")] - '0')
	numa := n.NUMANodeOf(beside)
	if r.Path == GPUPathSYS {
		numa = 1 - numa
	}
	switch {
	case beside == nic && r.Path != GPUPathNode && r.Path != GPUPathSYS:
		return strings.ToUpper(string(r.Path))
	case n.NUMANodeOf(nic) == numa:
		return "NODE"
	}
	return "SYS"
}

// The paths are those of "nvidia-smi topo -m" on the server.
func TestProfileHasThePathsOfItsMachine(t *testing.T) {
	b, err := os.ReadFile("../examples/hosts/h20.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want, got [][]string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "GPU") && len(f) > 12 {
			want = append(want, f[9:13])
		}
	}
	n := mustParse(t, "name: x\nnodes: {vm: {profile: h20}}").Nodes[0]
	for gpu := range n.GPURequests {
		var row []string
		for nic := range n.NICs {
			row = append(row, way(n, gpu, nic))
		}
		got = append(got, row)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProfile(t *testing.T) {
	for text, want := range map[string]string{
		"nodes: {vm: {profile: h20}}": "h20 2 512MiB debian-13+gpu connectx-6 4 8 2",
		"nodes: {vm: {profile: h20, cpus: 4, memory: 2GiB, image: debian-12+gpu, nic: connectx-7}}": "h20 4 2GiB " +
			"debian-12+gpu connectx-7 4 8 2",
		"defaults: {profile: h20, cpus: auto, vfs: 0}\nnodes: {vm: {}}": "h20 2 512MiB debian-13+gpu connectx-6 4 8 2",
		"nodes: {vm: {image: a.qcow2, profile: h20, nic: auto}}":        "h20 2 512MiB a.qcow2 auto 4 8 2",
		"nodes: {vm: {profile: h20-small}}": "h20-small 1 512MiB debian-13+gpu connectx-6 " +
			"2 1 2",
		"nodes: {vm: {gpus: {path: sys}}}":                  " 1 256MiB builtin auto 1 1 2",
		"nodes: {vm: {gpus: {path: node}}}":                 " 1 256MiB builtin auto 1 1 1",
		"nodes: {vm: {gpus: {path: phb}, guest_numa: off}}": " 1 256MiB builtin auto 1 1 0",
		"nodes: {vm: {nics: [1, {numa_node: 1}]}}":          " 1 256MiB builtin auto 2 0 2",
	} {
		l := mustParse(t, "name: x\n"+text)
		n := l.Nodes[0]
		got := fmt.Sprint(n.Profile, " ", n.CPUs, " ", n.Memory, " ", n.Image, " ", n.NIC, " ", len(n.NICs), " ",
			n.GPUs,
			" ", n.NUMANodes())
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		if n.GPUs > 0 && l.RunBy() != DriverQEMU {
			t.Errorf("%s: run by %s", text, l.RunBy())
		}
		if again := mustParse(t, string(l.YAML())); !cmp.Equal(l, again, prefixes) {
			t.Errorf("%s: reads back otherwise:\n%s", text, cmp.Diff(l, again, prefixes))
		}
	}
}
