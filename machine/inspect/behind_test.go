package inspect

import (
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

func TestJSONOfAMachineBelowItsCommandIsRead(t *testing.T) {
	t.Parallel()
	dir := put(t, t.TempDir(), map[string]string{"a.txt": "root@n1:~# rackless inspect -o json\n{\"schema\": \"" +
		topology.Schema +
		"\", \"provenance\": {\"kind\": \"tree\"}, \"numa_nodes\": [{\"id\": 0, \"cpus\": \"0-3\"}], " +
		"\"pci\": []}\nroot@n1:~# numactl -H\navailable: 1 nodes (0)\nnode 0 cpus: 0 1 2 3\nnode 0 size: 1000 MB\n"})
	h, err := ReadFile(t.Context(), filepath.Join(dir, "a.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(h.NUMANodes) != 1 || h.NUMANodes[0].CPUs.String() != "0-3" || h.NUMANodes[0].MemoryBytes == nil ||
		len(h.Contradictions) != 0 {
		t.Errorf("got %+v", h.NUMANodes)
	}
}
