package verify

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// memory checks rule 3. The problem counts steps of several pages, and a mistake in that factor must not cancel out, so
// amounts are in bytes.
func (c *checker) memory() {
	page := c.p.PageBytes
	backing := c.p.HugepageBytes
	if backing > 0 && page%backing != 0 {
		c.fault("problem: memory in steps of %d bytes, which are not whole hugepages of %d", page, backing)
	}
	asked := map[lab.Hugepages]uint64{lab.Hugepages1GiB: 1 << 30, lab.Hugepages2MiB: 2 << 20, lab.HugepagesOff: 0}
	if want, ok := asked[c.l.Hugepages]; ok && want != backing {
		c.fault("hugepages: the problem has pages of %d bytes, the lab asks for %q", backing, c.l.Hugepages)
	}
	used := map[int]uint64{}
	for i, n := range c.placed() {
		want := uint64(c.p.Requests[i].Pages) * page
		if n.MemoryBytes != want {
			c.of(i, "memory_bytes: have %d, want %d", n.MemoryBytes, want)
		}
		// Rounded up to whole hugepages; without hugepages, to a step.
		whole := cmp.Or(backing, page)
		asked := uint64(c.l.Nodes[i].Memory)
		if !c.l.Nodes[i].AutoMemory && (want < asked || want-asked >= whole) {
			c.of(i, "memory_bytes: the problem has %d, the lab asks for %d in pages of %d", want, asked, whole)
		}
		var sum uint64
		last := -1
		for _, m := range n.Memory {
			if !slices.Contains(c.m.nodes, m.NUMANode) {
				c.of(i, "memory: NUMA node %d is not on the host", m.NUMANode)
			}
			if m.NUMANode <= last {
				c.of(i, "memory: NUMA node %d comes after %d; want each once, in their order", m.NUMANode, last)
			}
			last = max(last, m.NUMANode)
			if m.PageBytes != backing {
				c.of(i, "memory on NUMA node %d: pages of %d bytes, want %d", m.NUMANode, m.PageBytes, backing)
			}
			if m.Bytes == 0 || m.Bytes%page != 0 {
				c.of(i, "memory on NUMA node %d: %d bytes are not whole pages of %d", m.NUMANode, m.Bytes, page)
			}
			sum += m.Bytes
			used[m.NUMANode] += m.Bytes
		}
		if sum != n.MemoryBytes {
			c.of(i, "memory: its NUMA nodes add up to %d bytes, want %d", sum, n.MemoryBytes)
		}
	}
	c.capacity(used)
	c.hugepages(used)
}

// capacity has no limit if the problem and the host know none.
func (c *checker) capacity(used map[int]uint64) {
	for _, n := range c.p.NUMANodes {
		if n.Pages != nil && used[n.ID]/c.p.PageBytes > uint64(max(0, *n.Pages)) {
			c.fault("memory: lab nodes have %d pages of NUMA node %d, which can give %d", used[n.ID]/c.p.PageBytes,
				n.ID, *n.Pages)
		}
	}
	for _, n := range c.h.NUMANodes {
		if n.MemoryBytes != nil && used[n.ID] > *n.MemoryBytes {
			c.fault("memory: lab nodes have %d bytes of NUMA node %d, the host has %d there", used[n.ID], n.ID,
				*n.MemoryBytes)
		}
	}
}

// hugepages are counted in addition to pages in use: a pool with only the lab's number would lack a tenant's pages.
func (c *checker) hugepages(used map[int]uint64) {
	have := map[int]int64{}
	last := -1
	for _, pool := range c.pl.Hugepages {
		if pool.PageBytes != c.p.HugepageBytes {
			c.fault("hugepages: pages of %d bytes on NUMA node %d, want %d", pool.PageBytes, pool.NUMANode,
				c.p.HugepageBytes)
		}
		if pool.NUMANode <= last || pool.Count < 0 || pool.Held < 0 {
			c.fault("hugepages: NUMA node %d: want each node once, in their order, with counts of 0 and up",
				pool.NUMANode)
		}
		last = max(last, pool.NUMANode)
		have[pool.NUMANode] += pool.Count
		if held := c.heldPages(pool.NUMANode); pool.Held < held {
			c.fault("hugepages: NUMA node %d keeps %d that are in use, the host has %d in use", pool.NUMANode,
				pool.Held, held)
		}
	}
	want := map[int]int64{}
	if c.p.HugepageBytes > 0 {
		for node, bytes := range used {
			want[node] = int64(bytes / c.p.HugepageBytes)
		}
	}
	for _, node := range nodesOf(have, want) {
		if have[node] != want[node] {
			c.fault("hugepages: NUMA node %d: have %d, the lab nodes have %d", node, have[node], want[node])
		}
	}
}

// heldPages may be more than when the plan was made.
func (c *checker) heldPages(node int) int64 {
	n := c.h.NUMANode(node)
	if n == nil {
		return 0
	}
	pool := topology.Pool(n.Hugepages, c.p.HugepageBytes)
	if pool == nil || pool.Free == nil {
		return 0
	}
	return max(0, int64(pool.Total)-int64(*pool.Free))
}

func nodesOf(a, b map[int]int64) []int {
	return sorted(slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b)))
}

// cells requires several for "guest_numa: on", or auto resolved to it, only if the memory is on several nodes.
func (c *checker) cells() {
	for i, n := range c.placed() {
		setting := c.l.ShownNUMA(&c.l.Nodes[i])
		if n.GuestNUMA && setting == lab.Off {
			c.of(i, "guest_numa: have true, the lab asks for %q", setting)
		}
		if !n.GuestNUMA && len(n.Cells) != 1 {
			c.of(i, "cells: have %d, want 1 where guest_numa is false", len(n.Cells))
		}
		homes := c.cellNodes(i, n)
		c.cellContents(i, n, homes)
		if n.GuestNUMA {
			c.cellHomes(i, n, homes)
		}
		c.cellDistances(i, n)
		if on := len(memoryNodes(n)); !n.GuestNUMA && setting == lab.On && on > 1 {
			c.of(i, "guest_numa: have false with memory on %d NUMA nodes, the lab asks for %q", on, setting)
		}
	}
}

func memoryNodes(n *plan.Node) []int {
	return numbersOf(n.Memory, func(m plan.NodeMemory) int { return m.NUMANode })
}

// cellNodes wants exactly the nodes with cores or memory of the lab node, each once.
func (c *checker) cellNodes(i int, n *plan.Node) map[int]int {
	homes := map[int]int{}
	for k, cell := range n.Cells {
		if cell.Cell != k {
			c.of(i, "cell %d: it is numbered %d", k, cell.Cell)
		}
		if len(cell.NUMANodes) == 0 {
			c.of(i, "cell %d: it stands for no NUMA node of the host", k)
		}
		for _, node := range cell.NUMANodes {
			if other, taken := homes[node]; taken {
				c.of(i, "cell %d: NUMA node %d is that of cell %d already", k, node, other)
			}
			homes[node] = k
		}
	}
	used := sorted(append(memoryNodes(n), numbersOf(c.found[i].cores, (*coreView).numaNode)...))
	for _, node := range used {
		if _, ok := homes[node]; !ok {
			c.of(i, "cells: none stands for NUMA node %d, where it has cores or memory", node)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(homes)) {
		if !slices.Contains(used, node) {
			c.of(i, "cell %d: NUMA node %d has neither cores nor memory of it", homes[node], node)
		}
	}
	return homes
}

// cellContents wants the virtual CPUs of a cell as a range, and cells in order.
func (c *checker) cellContents(i int, n *plan.Node, homes map[int]int) {
	bytes := make([]uint64, len(n.Cells))
	for _, m := range n.Memory {
		if k, ok := homes[m.NUMANode]; ok {
			bytes[k] += m.Bytes
		}
	}
	next := 0
	for k, cell := range n.Cells {
		if cell.Bytes != bytes[k] {
			c.of(i, "cell %d: have %d bytes, want %d as on its NUMA nodes", k, cell.Bytes, bytes[k])
		}
		if cell.VCPUs == 0 {
			continue // meaningless for a cell with only memory
		}
		if cell.FirstVCPU != next || cell.VCPUs < 0 || cell.VCPUs > len(n.VCPUs)-next {
			c.of(i, "cell %d: have %d vcpus from %d on, want them to follow those before, from %d, of %d", k,
				cell.VCPUs, cell.FirstVCPU, next, len(n.VCPUs))
			return
		}
		for v := next; v < next+cell.VCPUs; v++ {
			if core := c.m.byCPU[n.VCPUs[v]]; core != nil && !slices.Contains(cell.NUMANodes, core.node) {
				c.of(i, "cell %d: vcpu %d is on NUMA node %d, the cell stands for %v", k, v, core.node, cell.NUMANodes)
				break
			}
		}
		next += cell.VCPUs
	}
	if next != len(n.VCPUs) {
		c.of(i, "cells: they have %d of %d vcpus", next, len(n.VCPUs))
	}
}

// cellHomes: only a node without memory may join another's cell, of the nearest node with memory, which comes first.
func (c *checker) cellHomes(i int, n *plan.Node, homes map[int]int) {
	memory := memoryNodes(n)
	if len(memory) == 0 {
		return
	}
	for k, cell := range n.Cells {
		for at, node := range cell.NUMANodes {
			has := slices.Contains(memory, node)
			switch {
			case at == 0 && !has:
				c.of(i, "cell %d: NUMA node %d has none of its memory; a cell stands for a node with memory first", k,
					node)
			case at > 0 && has:
				c.of(i, "cell %d: NUMA nodes %d and %d both have memory; want a cell for each", k, cell.NUMANodes[0],
					node)
			case at > 0:
				best := slices.MinFunc(memory, func(a, b int) int {
					return cmp.Compare(c.m.distance(node, a), c.m.distance(node, b))
				})
				if c.m.distance(node, cell.NUMANodes[0]) > c.m.distance(node, best) {
					c.of(i, "cell %d: the CPUs of NUMA node %d are in it, the nearest node with memory is %d, cell %d",
						k, node, best, homes[best])
				}
			}
		}
	}
}

// cellDistances compares with the host's: a guest that sees all nodes as equally far places memory badly.
func (c *checker) cellDistances(i int, n *plan.Node) {
	for k, cell := range n.Cells {
		if len(cell.Distances) != len(n.Cells) {
			c.of(i, "cell %d: have %d distances, want %d", k, len(cell.Distances), len(n.Cells))
			continue
		}
		for o, have := range cell.Distances {
			if len(cell.NUMANodes) == 0 || len(n.Cells[o].NUMANodes) == 0 {
				continue
			}
			want := localDistance
			if o != k {
				want = c.m.distance(cell.NUMANodes[0], n.Cells[o].NUMANodes[0])
			}
			if have != want {
				c.of(i, "cell %d: distance to cell %d: have %d, want %d", k, o, have, want)
			}
		}
	}
}
