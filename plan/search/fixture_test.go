package search

import (
	"testing"

	"github.com/rackless/rackless/plan"
)

func TestMachinesAreWhole(t *testing.T) {
	t.Parallel()
	if len(machineNames()) != len(machines()) {
		t.Errorf("%d names for %d machines", len(machineNames()), len(machines()))
	}
	for _, name := range machineNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole(t, machines()[name].Problem())
		})
	}
}

func TestMixesAreWhole(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		name, p := mix(seed)
		if len(p.Requests) < 2 {
			t.Errorf("seed %d, %s: %d requests", seed, name, len(p.Requests))
		}
		whole(t, p)
	}
	whole(t, largeUnequal(7, 8))
	whole(t, largeMixed())
}

func whole(t *testing.T, p *plan.Problem) {
	t.Helper()
	for i, n := range p.NUMANodes {
		if len(n.Distances) != len(p.NUMANodes) || n.Distances[i] != 10 {
			t.Errorf("NUMA node %d: distances %v", n.ID, n.Distances)
		}
	}
	cpus := map[int]bool{}
	for _, c := range p.Cores {
		for _, cpu := range c.CPUs {
			if cpus[cpu] {
				t.Errorf("CPU %d is on two cores", cpu)
			}
			cpus[cpu] = true
		}
		if c.NUMANode >= len(p.NUMANodes) || c.Package >= len(p.Packages) {
			t.Errorf("core %+v is on what is not there", c)
		}
	}
	gpus := 0
	for _, d := range p.Devices {
		if d.Kind == plan.KindGPU {
			gpus++
		}
		if d.VFs != len(d.FreeVFs) {
			t.Errorf("device %s: %d virtual functions, indexes %v", d.ID, d.VFs, d.FreeVFs)
		}
	}
	nics := len(p.Devices) - gpus
	if want := gpus*(gpus-1)/2 + gpus*nics; len(p.Paths) != want {
		t.Errorf("%d paths, want %d", len(p.Paths), want)
	}
	for _, r := range p.Requests {
		if r.Cores < 1 || r.VCPUs != r.Cores*r.Threads {
			t.Errorf("request %+v", r)
		}
	}
}
