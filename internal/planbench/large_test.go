package main

import (
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
)

func TestTheLargeHostIsWhatItSays(t *testing.T) {
	t.Parallel()
	h, err := largeHost()
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Parse("lab", []byte("name: one\nhugepages: 1GiB\nnodes: {vm: {cpus: 16, memory: 32GiB, gpus: 1, "+
		"vfs: 1}}"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := build.Problem(h, l, build.Options{HostName: "large"})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Cores) != 512 || len(p.NUMANodes) != 16 || len(p.Devices) != 32 {
		t.Errorf("%d cores, %d NUMA nodes, %d devices", len(p.Cores), len(p.NUMANodes), len(p.Devices))
	}
	r, err := search.Solve(t.Context(), p, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Optimal || r.Cost != 0 {
		t.Errorf("a lab node with all that it needs on one NUMA node costs %d, optimal %v", r.Cost, r.Optimal)
	}
}
