package build_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
)

// drawMachine is small enough for an immediate proof, and covers all terms and rules.
func drawMachine(t *rapid.T) *topology.Host {
	sockets, nodes := rapid.IntRange(1, 3).Draw(t, "sockets"), rapid.IntRange(1, 2).Draw(t, "nodes")
	m := machine{desc: fmt.Sprintf("pack:%d numa:%d l3:%d core:%d pu:%d", sockets, nodes, rapid.IntRange(1, 2).Draw(t,
		"l3s"), rapid.IntRange(1, 3).Draw(t, "cores"),
		rapid.IntRange(1, 2).Draw(t, "threads"))}
	if rapid.Bool().Draw(t, "regular distances") {
		m.distances = socketDistances(sockets, nodes, rapid.SampledFrom([]int{10, 12, 16}).Draw(t, "near"),
			rapid.SampledFrom([]int{20, 21, 32}).Draw(t, "far"))
	} else {
		m.distances = socketDistances(sockets, nodes, 12, 21)
		for i := range m.distances {
			for j := range m.distances {
				if i != j {
					m.distances[i][j] = rapid.IntRange(10, 40).Draw(t, "distance")
				}
			}
		}
	}
	for range sockets * nodes {
		m.gib = append(m.gib, rapid.IntRange(0, 12).Draw(t, "GiB"))
	}
	node := func() int { return rapid.IntRange(0, sockets*nodes-1).Draw(t, "node of the device") }
	for range rapid.IntRange(0, 3).Draw(t, "gpus") {
		m.devices = append(m.devices, device{"gpu", node(), 0, 0})
	}
	for range rapid.IntRange(0, 3).Draw(t, "nics") {
		m.devices = append(m.devices, device{"nic", node(), 0, rapid.IntRange(0, 3).Draw(t, "vfs")})
	}
	if len(m.devices) > 1 && rapid.IntRange(0, 3).Draw(t, "grouped") == 0 {
		m.devices[0].group, m.devices[len(m.devices)-1].group = 7, 7
	}
	if rapid.Bool().Draw(t, "disk") {
		m.devices = append(m.devices, device{"disk", node(), 0, 0})
	}
	h := m.host(t)
	if rapid.IntRange(0, 2).Draw(t, "tenant") == 0 {
		k := h.Cores[rapid.IntRange(0, len(h.Cores)-1).Draw(t, "core of the tenant")]
		tenant := topology.Tenant{Name: "web", State: "running", VCPUs: 1, Pins: []topology.Pin{{CPUs: k.CPUs}},
			MemoryBytes: new(uint64(gib)),
			MemoryNodes: new(topology.CPUs(*k.NUMANode))}
		h.Tenants = []topology.Tenant{tenant}
	}
	return h
}

// "auto" would take more of a larger machine.
func drawRequest(t *rapid.T) *lab.Lab {
	l := &lab.Lab{Name: "drawn", Tenants: lab.TenantsRead,
		Hugepages: rapid.SampledFrom([]lab.Hugepages{lab.Hugepages1GiB, lab.HugepagesOff}).Draw(t, "pages"),
		Workload: rapid.SampledFrom([]lab.Workload{lab.WorkloadMixed, lab.WorkloadRDMALatency,
			lab.WorkloadGPUCollective, lab.WorkloadCPUBandwidth}).Draw(t, "workload")}
	l.Reserve.Cores, l.Reserve.Memory = new(rapid.IntRange(1, 2).Draw(t, "reserve")), new(lab.Bytes(0))
	var n lab.Node
	for i := range rapid.IntRange(1, 3).Draw(t, "lab nodes") {
		if i == 0 || rapid.Bool().Draw(t, "another kind") {
			n = lab.Node{CPUs: rapid.IntRange(1, 4).Draw(t, "cpus"),
				Memory: lab.Bytes(rapid.IntRange(1, 5).Draw(t, "memory")) * lab.GiB, SMT: lab.Off,
				GuestNUMA: rapid.SampledFrom([]lab.Setting{lab.Auto, lab.Off}).Draw(t, "guest_numa")}
			if k := rapid.IntRange(0, 1).Draw(t, "gpus asked"); k > 0 {
				gpus(some(k))(&n)
			}
			if k := rapid.IntRange(0, 1).Draw(t, "nics asked"); k > 0 {
				nics(some(k))(&n)
			}
			if k := rapid.IntRange(0, 2).Draw(t, "vfs asked"); k > 0 {
				vfs(some(k))(&n)
			}
		}
		n.Name = fmt.Sprintf("vm%02d", i)
		l.Nodes = append(l.Nodes, n)
	}
	if len(l.Nodes) > 1 && rapid.IntRange(0, 4).Draw(t, "affinity") == 0 {
		l.Affinity = []lab.Affinity{{Nodes: []string{l.Nodes[0].Name, l.Nodes[1].Name},
			NUMA: rapid.SampledFrom([]lab.Togetherness{lab.Same, lab.Different}).Draw(t, "numa")}}
	}
	return l
}

// best discards the draw if the search stops early.
func best(t *rapid.T, h *topology.Host, l *lab.Lab) *solved {
	c, err := solve(t, h, l, build.Options{HostName: "drawn"}, search.Options{})
	var refused build.RequestErrors
	switch {
	case errors.As(err, &refused), errors.Is(err, search.ErrInfeasible):
		return nil
	case err != nil:
		t.Fatalf("%v", err)
	case !c.pl.Optimal:
		t.Skip("not proved")
	}
	return c
}

// An unused resource cannot make the best plan worse, except a disk of the host, which keeps a core.
func TestMoreOfAResourceNeverCostsMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h, l := drawMachine(t), drawRequest(t)
		before := best(t, h, l)
		if before == nil {
			t.Skip("no plan")
		}
		more := fromJSON(t, h)
		what := rapid.SampledFrom([]string{"core", "memory", "gpu", "nic"}).Draw(t, "more")
		node := rapid.IntRange(0, len(h.NUMANodes)-1).Draw(t, "where")
		switch what {
		case "core":
			addCore(more, node)
		case "memory":
			*more.NUMANodes[node].MemoryBytes += 3 << 30
		default:
			machine{}.add(more, 40, device{what, node, 0, 2})
			more.Complete()
		}
		after := best(t, more, l)
		if after == nil {
			t.Fatalf("with a %s more on node %d there is no plan; without it costs %d", what, node, before.pl.Cost)
		}
		if after.pl.Cost > before.pl.Cost {
			t.Errorf("with a %s more on node %d the best plan costs %d, without it %d", what, node, after.pl.Cost,
				before.pl.Cost)
		}
	})
}

// addCore adds a core like the first of a NUMA node.
func addCore(h *topology.Host, node int) {
	k := h.Cores[slices.IndexFunc(h.Cores, func(k topology.Core) bool { return *k.NUMANode == node })]
	first := 1000 + h.CPUs.Online.Len() // above all existing numbers
	cpus := topology.CPURange(first, first+k.CPUs.Len()-1)
	k.ID, k.CPUs = len(h.Cores), cpus
	h.Cores = append(h.Cores, k)
	h.CPUs.Online = h.CPUs.Online.Union(cpus)
	h.NUMANodes[node].CPUs = h.NUMANodes[node].CPUs.Union(cpus)
	for i := range h.Packages {
		if h.Packages[i].ID == *k.Package {
			h.Packages[i].CPUs = h.Packages[i].CPUs.Union(cpus)
		}
	}
	for i := range h.L3 {
		if k.L3 != nil && h.L3[i].ID == *k.L3 {
			h.L3[i].CPUs = h.L3[i].CPUs.Union(cpus)
		}
	}
}

// Numbers come from firmware and kernel.
func TestRenumberingNeverChangesTheCost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h, l := drawMachine(t), drawRequest(t)
		before := best(t, h, l)
		cpuOf := rapid.Permutation(slices.Collect(h.CPUs.Online.All())).Draw(t, "CPUs")
		nodeOf := rapid.Permutation(span(0, len(h.NUMANodes)-1)).Draw(t, "NUMA nodes")
		other := renumbered(fromJSON(t, h), func(cpu int) int {
			return cpuOf[cpu]
		}, func(node int) int { return 2*nodeOf[node] + 1 })
		after := best(t, other, l)
		switch {
		case (before == nil) != (after == nil):
			t.Errorf("a plan: %v; with CPUs numbered %v and nodes %v (doubled, and one): %v", before != nil, cpuOf,
				nodeOf, after != nil)
		case before != nil && before.pl.Cost != after.pl.Cost:
			t.Errorf("cost %d; with CPUs numbered %v and nodes %v (doubled, and one) %d", before.pl.Cost, cpuOf, nodeOf,
				after.pl.Cost)
		}
	})
}

func renumbered(h *topology.Host, cpu, node func(int) int) *topology.Host {
	cpus := func(s topology.CPUSet) topology.CPUSet {
		var all topology.CPUSet
		for c := range s.All() {
			all = all.Union(topology.CPUs(cpu(c)))
		}
		return all
	}
	at := func(n *int) {
		if n != nil {
			*n = node(*n)
		}
	}
	h.CPUs.Online = cpus(h.CPUs.Online)
	order := make([]int, len(h.NUMANodes))
	for i := range h.NUMANodes {
		n := &h.NUMANodes[i]
		n.ID, n.CPUs, order[i] = node(n.ID), cpus(n.CPUs), i
	}
	slices.SortFunc(order, func(a, b int) int { return h.NUMANodes[a].ID - h.NUMANodes[b].ID })
	var nodes []topology.NUMANode
	for _, i := range order {
		n := h.NUMANodes[i]
		var row []int
		for _, j := range order {
			row = append(row, n.Distances[j])
		}
		n.Distances = row
		nodes = append(nodes, n)
	}
	h.NUMANodes = nodes
	for i := range h.Packages {
		h.Packages[i].CPUs = cpus(h.Packages[i].CPUs)
	}
	for i := range h.L3 {
		h.L3[i].CPUs = cpus(h.L3[i].CPUs)
	}
	for i := range h.Cores {
		h.Cores[i].CPUs = cpus(h.Cores[i].CPUs)
		at(h.Cores[i].NUMANode)
	}
	slices.SortFunc(h.Cores, func(a, b topology.Core) int { return a.CPUs.Min() - b.CPUs.Min() })
	for i := range h.Cores {
		h.Cores[i].ID = i
	}
	for i := range h.PCI {
		at(h.PCI[i].NUMANode)
		h.PCI[i].LocalCPUs = nil
	}
	for i := range h.GPUs {
		at(h.GPUs[i].NUMANode)
	}
	for i := range h.NICs {
		at(h.NICs[i].NUMANode)
	}
	for i := range h.Storage {
		at(h.Storage[i].NUMANode)
	}
	for i := range h.Tenants {
		t := &h.Tenants[i]
		for k := range t.Pins {
			t.Pins[k].CPUs = cpus(t.Pins[k].CPUs)
		}
		var on topology.CPUSet
		for n := range t.MemoryNodes.All() {
			on = on.Union(topology.CPUs(node(n)))
		}
		t.MemoryNodes = &on
	}
	return h
}
