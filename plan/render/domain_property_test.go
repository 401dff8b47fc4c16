package render

import (
	"encoding/json"
	"fmt"
	"testing"

	"libvirt.org/go/libvirtxml"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// anyShape draws a lab node on a host of 8 NUMA nodes with 16 cores each. Thread t of core c is CPU c + 128t.
func anyShape(t *rapid.T) shape {
	s := shape{
		name:    rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,18}[a-z0-9]`).Draw(t, "name"),
		threads: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "threads"),
		page:    rapid.SampledFrom([]uint64{0, 2 * mib, gib}).Draw(t, "page"),
		flat:    rapid.Bool().Draw(t, "flat"),
		farther: rapid.IntRange(11, 254).Draw(t, "distance"),
		nics:    rapid.IntRange(0, 4).Draw(t, "nics"),
	}
	if rapid.Bool().Draw(t, "pinned emulator") {
		s.house = []int{0, 128}
	}
	unit := max(s.page, mib)
	nodes := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7}).Draw(t, "nodes")
	count := rapid.IntRange(1, 4).Draw(t, "cells")
	for i := range count {
		cores := rapid.IntRange(0, 6).Draw(t, "cores")
		if i == 0 {
			cores++
		}
		h := home{node: nodes[i], memory: unit * rapid.Uint64Range(1, 5000).Draw(t, "memory")}
		for c := range cores {
			for k := range s.threads {
				h.cpus = append(h.cpus, 16*nodes[i]+1+c+128*k)
			}
		}
		homes := []home{h}
		if !s.flat && rapid.IntRange(0, 4).Draw(t, "joined") == 0 {
			homes = append(homes, home{node: nodes[i+4], cpus: span(16*nodes[i+4]+1, 16*nodes[i+4]+s.threads)})
		}
		if s.flat && i > 0 {
			s.cells[0] = append(s.cells[0], h)
		} else {
			s.cells = append(s.cells, homes)
		}
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "devices") {
		cell := rapid.IntRange(0, len(s.cells)-1).Draw(t, "cell")
		c := card(rapid.SampledFrom([]string{plan.KindGPU, plan.KindNIC, plan.KindVF}).Draw(t, "kind"),
			rapid.String().Draw(t, "model"),
			s.cells[cell][0].node, cell, fmt.Sprintf("0000:%02x:%02x.%d", 16+i, i, rapid.IntRange(0, 3).Draw(t,
				"function")))
		switch {
		case c.Kind == plan.KindVF:
			c.ID, c.VF = fmt.Sprintf("0000:%02x:00.0", 128+i), new(i)
		case rapid.Bool().Draw(t, "audio"):
			c.Functions = append(c.Functions, fmt.Sprintf("0000:%02x:%02x.7", 16+i, i))
		}
		if rapid.IntRange(0, 9).Draw(t, "placeless") == 0 {
			c.NUMANode, c.Cell = nil, nil
		}
		s.cards = append(s.cards, c)
	}
	return s
}

func TestAnyPlanRendersToItsPlacement(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		h := &topology.Host{System: topology.System{
			Arch:     rapid.SampledFrom([]string{"x86_64", "aarch64", ""}).Draw(r, "arch"),
			CPUModel: rapid.SampledFrom([]string{"AMD EPYC", "Xeon"}).Draw(r, "model"),
		}}
		in := input(rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,19}`).Draw(r, "lab"), rapid.String().Draw(r, "host"), h,
			anyShape(r))
		in.Made = rapid.String().Draw(r, "made")
		in.Plan.Workload = rapid.SampledFrom([]lab.Workload{lab.WorkloadMixed, lab.WorkloadRDMALatency}).Draw(r,
			"workload")
		artefacts, err := Domains(in)
		if err != nil {
			r.Fatal(err)
		}
		checkPlacement(t, in, artefacts[0])
		if t.Failed() {
			r.Fatalf("%s", artefacts[0].Data)
		}
	})
}

// FuzzPlan must give an error or a domain, never a panic.
func FuzzPlan(f *testing.F) {
	for _, c := range domainCases() {
		text, err := json.Marshal(c.in(f).Plan)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"lab":"l","nodes":[{"name":"v","vcpus":[1],"threads_per_core":1,"memory_bytes":1,` +
		`"memory":[{"numa_node":-1,"bytes":1}],"cells":[{"numa_nodes":[-1],"vcpus":1,"bytes":1}]}]}`))
	f.Add([]byte(`{"lab":"l","nodes":[{"name":"v","cards":[` +
		`{"id":"0000:00:00.0/vf99999999999","kind":"vf","vf":-1}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p plan.Plan
		if json.Unmarshal(text, &p) != nil {
			return
		}
		artefacts, err := Domains(Input{Plan: &p})
		if err != nil {
			return
		}
		for i, a := range artefacts {
			var d libvirtxml.Domain
			if err := d.Unmarshal(string(a.Data)); err != nil {
				t.Fatalf("%v\n%s", err, a.Data)
			}
			pins := 0
			if d.CPUTune != nil {
				pins = len(d.CPUTune.VCPUPin)
			}
			if want := len(p.Nodes[i].VCPUs); pins != want && !p.Nodes[i].Unpinned || pins > 0 && p.Nodes[i].Unpinned {
				t.Errorf("%d pins of %d vcpus, unpinned is %t", pins, want, p.Nodes[i].Unpinned)
			}
		}
	})
}
