package render

import (
	"errors"
	"fmt"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// maxBytes keeps sums from overflowing. An x86 of 2026 can address 2^48 bytes with four levels of page tables.
const maxBytes = 1 << 48

// checkNode refuses faults of an edited plan, because libvirt's errors would rarely name the place.
func checkNode(n *plan.Node) error {
	if len(n.VCPUs) == 0 {
		return errors.New("no vcpus")
	}
	seen := make(map[int]bool, len(n.VCPUs))
	for i, cpu := range n.VCPUs {
		if cpu < 0 || cpu >= topology.MaxCPUs {
			return fmt.Errorf("vcpus[%d] is CPU %d; want 0 to %d", i, cpu, topology.MaxCPUs-1)
		}
		if seen[cpu] {
			return fmt.Errorf("CPU %d is in vcpus twice", cpu)
		}
		seen[cpu] = true
	}
	if n.Threads < 1 || len(n.VCPUs)%n.Threads != 0 {
		return fmt.Errorf("threads_per_core is %d and does not divide %d vcpus", n.Threads, len(n.VCPUs))
	}
	if len(n.Cells) == 0 {
		return errors.New("no cells: a guest has at least one NUMA node")
	}
	if !n.GuestNUMA && len(n.Cells) != 1 {
		return fmt.Errorf("%d cells, although guest_numa is false; want 1", len(n.Cells))
	}
	if err := checkCells(n); err != nil {
		return err
	}
	return checkMemory(n)
}

// checkCells wants consecutive, whole cores, and all of them. QEMU accepts any order, but the guest's kernel numbers
// its cores in it, and the domain's pins and caches rely on it.
func checkCells(n *plan.Node) error {
	next := 0
	for i, c := range n.Cells {
		switch {
		case c.Cell != i:
			return fmt.Errorf("cells[%d] has number %d; want %d", i, c.Cell, i)
		case c.VCPUs < 0 || c.VCPUs > len(n.VCPUs)-next || c.VCPUs > 0 && c.FirstVCPU != next:
			return fmt.Errorf("cell %d has %d vcpus from %d; want them to follow on vcpu %d and to end before %d", i,
				c.VCPUs, c.FirstVCPU, next-1, len(n.VCPUs))
		case c.VCPUs%n.Threads != 0:
			return fmt.Errorf("cell %d has %d vcpus: a core of %d threads would be in two cells", i, c.VCPUs, n.Threads)
		case len(n.Cells) > 1 && len(c.Distances) != len(n.Cells):
			return fmt.Errorf("cell %d has %d distances; want %d", i, len(c.Distances), len(n.Cells))
		}
		for k, d := range c.Distances {
			// ACPI's SLIT defines 10 as local, and stores a distance in a byte.
			if d < 10 || d > 254 || k == i && d != 10 {
				return fmt.Errorf("cell %d is %d away from cell %d; want 10 for itself and 10 to 254 for others", i, d,
					k)
			}
		}
		next += c.VCPUs
	}
	if next != len(n.VCPUs) {
		return fmt.Errorf("cells have %d vcpus of %d", next, len(n.VCPUs))
	}
	return nil
}

func checkMemory(n *plan.Node) error {
	on := map[int]plan.NodeMemory{}
	var total, cells uint64
	for _, m := range n.Memory {
		if _, twice := on[m.NUMANode]; twice {
			return fmt.Errorf("memory names NUMA node %d twice", m.NUMANode)
		}
		if m.Bytes > maxBytes {
			return fmt.Errorf("memory on NUMA node %d is %d bytes; want at most %d", m.NUMANode, m.Bytes,
				uint64(maxBytes))
		}
		if m.PageBytes > 0 && m.Bytes%m.PageBytes != 0 {
			return fmt.Errorf("memory on NUMA node %d is %d bytes, which pages of %d bytes do not make up", m.NUMANode,
				m.Bytes, m.PageBytes)
		}
		on[m.NUMANode] = m
		total += m.Bytes
	}
	if total != n.MemoryBytes || total == 0 {
		return fmt.Errorf("memory adds up to %d bytes of %d", total, n.MemoryBytes)
	}
	home := map[int]int{}
	for _, c := range n.Cells {
		var sum uint64
		pages := map[uint64]bool{}
		for _, node := range c.NUMANodes {
			if node < 0 || node >= topology.MaxCPUs {
				return fmt.Errorf("cell %d is on NUMA node %d; want 0 to %d", c.Cell, node, topology.MaxCPUs-1)
			}
			if other, twice := home[node]; twice {
				return fmt.Errorf("NUMA node %d is in cells %d and %d", node, other, c.Cell)
			}
			home[node] = c.Cell
			if m, ok := on[node]; ok {
				sum += m.Bytes
				pages[m.PageBytes] = true
			}
		}
		if sum != c.Bytes {
			return fmt.Errorf("cell %d has %d bytes, and its NUMA nodes %v have %d", c.Cell, c.Bytes, c.NUMANodes, sum)
		}
		if sum == 0 {
			return fmt.Errorf("cell %d has no memory: QEMU makes no NUMA node without any", c.Cell)
		}
		if len(pages) > 1 {
			return fmt.Errorf("cell %d has pages of %d sizes; want one", c.Cell, len(pages))
		}
		cells += sum
	}
	if cells != total {
		return fmt.Errorf("cells have %d bytes of %d", cells, total)
	}
	return nil
}
