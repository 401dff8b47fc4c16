package tool

import (
	"slices"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
)

// Main memory counts as well.
func TestSuiteGPUDirectHasEachGPUByEachNIC(t *testing.T) {
	t.Parallel()
	all := GPUDirect(2, 2)
	names := lists.Map(all, func(e bench.Engine) string { return e.Name })
	want := []string{"ib_write_bw/nic0", "ib_write_bw/bidi/nic0",
		"ib_write_bw/cuda0/dmabuf/nic0", "ib_write_bw/bidi/cuda0/dmabuf/nic0",
		"ib_write_bw/cuda1/dmabuf/nic0", "ib_write_bw/bidi/cuda1/dmabuf/nic0",
		"ib_write_bw/nic1", "ib_write_bw/bidi/nic1",
		"ib_write_bw/cuda0/dmabuf/nic1", "ib_write_bw/bidi/cuda0/dmabuf/nic1",
		"ib_write_bw/cuda1/dmabuf/nic1", "ib_write_bw/bidi/cuda1/dmabuf/nic1"}
	if !slices.Equal(names, want) {
		t.Errorf("got  %q\nwant %q", names, want)
	}
	for _, e := range all {
		named, err := EngineByName(e.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		nic, ok := named.NIC()
		if has, hasOK := e.NIC(); !ok || !hasOK || nic != has || named.Traffic() != e.Traffic() {
			t.Errorf("%s: NIC %d, and by its name %d", e.Name, has, nic)
		}
	}
	if _, ok := mustEngine(t, "ib_write_bw").NIC(); ok {
		t.Error("an engine without a NIC in its name has one")
	}
}
