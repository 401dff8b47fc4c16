package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

func (r *reader) readMemory() {
	m := &r.h.Memory
	values := r.meminfo("proc/meminfo")
	m.TotalBytes = values.bytes("MemTotal")
	m.AvailableBytes = values.bytes("MemAvailable")
	if size := values.bytes("Hugepagesize"); size != nil && *size > 0 {
		m.DefaultHuge = size
	}
	m.Hugepages = r.hugepages("sys/kernel/mm/hugepages")
	if m.Hugepages == nil {
		m.Hugepages = sumPools(r.h.NUMANodes)
	}
	if m.Hugepages == nil {
		m.Hugepages = oldHugepages(values)
	}
	r.readSwaps()
	m.NUMABalancing = r.word("proc/sys/kernel/numa_balancing")
	m.THP = chosen(r.word("sys/kernel/mm/transparent_hugepage/enabled"))
	m.KSM = r.word("sys/kernel/mm/ksm/run")
	switch nodes := r.h.NUMANodes; {
	case len(nodes) == 0:
		r.makeNode(values)
	case len(nodes) == 1 && nodes[0].MemoryBytes == nil:
		nodes[0].MemoryBytes, nodes[0].FreeBytes = m.TotalBytes, cmp.Or(nodes[0].FreeBytes, values.bytes("MemFree"))
	case len(nodes) == 1 && m.TotalBytes != nil && *nodes[0].MemoryBytes < *m.TotalBytes/2 && r.h.IsVirtual():
		// In some virtual machines the node's memory is only the part used so far.
		nodes[0].MemoryBytes, nodes[0].FreeBytes = m.TotalBytes, values.bytes("MemFree")
	}
}

// makeNode makes one node if the kernel has no NUMA or shows no nodes (some containers). It has no distances, which
// marks it as made up.
func (r *reader) makeNode(values meminfo) {
	m := &r.h.Memory
	if m.TotalBytes == nil && r.h.CPUs.Online.IsEmpty() {
		return
	}
	n := topology.NUMANode{CPUs: r.h.CPUs.Online, MemoryBytes: m.TotalBytes, FreeBytes: values.bytes("MemFree")}
	for _, p := range m.Hugepages {
		p.Reserved = nil // never known for a node
		n.Hugepages = append(n.Hugepages, p)
	}
	r.h.NUMANodes = append(r.h.NUMANodes, n)
}

// hugepages reads hugepages-2048kB, hugepages-1048576kB. It returns nil without a directory.
//
// Source: Documentation/admin-guide/mm/hugetlbpage.rst.
func (r *reader) hugepages(dir string) []topology.HugepagePool {
	var pools []topology.HugepagePool
	for _, name := range r.dir(dir) {
		size, ok := hugepageSize(name)
		if !ok {
			continue
		}
		total := r.size(dir + "/" + name + "/nr_hugepages")
		if total == nil {
			continue
		}
		pools = append(pools, topology.HugepagePool{
			SizeBytes: size,
			Total:     *total,
			Free:      r.size(dir + "/" + name + "/free_hugepages"),
			Reserved:  r.size(dir + "/" + name + "/resv_hugepages"),
			Surplus:   r.size(dir + "/" + name + "/surplus_hugepages"),
		})
	}
	slices.SortFunc(pools, func(a, b topology.HugepagePool) int { return cmp.Compare(a.SizeBytes, b.SizeBytes) })
	return pools
}

func hugepageSize(name string) (uint64, bool) {
	digits, begins := strings.CutPrefix(name, "hugepages-")
	digits, ends := strings.CutSuffix(digits, "kB")
	kib, err := strconv.ParseUint(digits, 10, 40)
	return kib << 10, begins && ends && err == nil && kib > 0
}

// sumPools is for snapshots that lack the machine's pools. It returns nil if a node lacks a size, because the sum would
// be too small.
func sumPools(nodes []topology.NUMANode) []topology.HugepagePool {
	var sum []topology.HugepagePool
	for i, n := range nodes {
		if i > 0 && len(n.Hugepages) != len(sum) {
			return nil
		}
		for j, p := range n.Hugepages {
			if i == 0 {
				sum = append(sum, topology.HugepagePool{SizeBytes: p.SizeBytes, Total: p.Total, Free: p.Free,
					Surplus: p.Surplus})
				continue
			}
			s := &sum[j]
			if s.SizeBytes != p.SizeBytes {
				return nil
			}
			s.Total += p.Total
			s.Free, s.Surplus = addKnown(s.Free, p.Free), addKnown(s.Surplus, p.Surplus)
		}
	}
	return sum
}

func addKnown(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return nil
	}
	return new(*a + *b)
}

// oldHugepages is for kernels before 2.6.27, and containers that hide /sys/kernel.
func oldHugepages(values meminfo) []topology.HugepagePool {
	size, total := values.bytes("Hugepagesize"), values.bytes("HugePages_Total")
	if size == nil || *size == 0 || total == nil {
		return nil
	}
	return []topology.HugepagePool{{
		SizeBytes: *size, Total: *total,
		Free: values.bytes("HugePages_Free"), Reserved: values.bytes("HugePages_Rsvd"),
		Surplus: values.bytes("HugePages_Surp"),
	}}
}

func (r *reader) readSwaps() {
	if swaps := parsed(r, "proc/swaps", parseSwapAreas); swaps != nil {
		r.h.Memory.Swap, r.h.Memory.SwapKnown = *swaps, true
	}
}

// parseSwapAreas parses "path type size used priority" with sizes in KiB and spaces in paths as "\040". A kernel
// without swap has not even the heading.
func parseSwapAreas(text string) ([]topology.Swap, error) {
	var swaps []topology.Swap
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		// A removed file is listed as "/path\040(deleted)", so fields are counted from the end.
		if len(fields) == 0 || fields[0] == "Filename" {
			continue
		}
		if len(fields) < 5 {
			return nil, fmt.Errorf("line %q has %d columns, not 5", where.Clip(strings.TrimSpace(line)), len(fields))
		}
		size, errSize := strconv.ParseUint(fields[len(fields)-3], 10, 54)
		used, errUsed := strconv.ParseUint(fields[len(fields)-2], 10, 54)
		if errSize != nil || errUsed != nil {
			return nil, fmt.Errorf("line %q: size and used are not numbers of KiB", where.Clip(strings.TrimSpace(line)))
		}
		swaps = append(swaps, topology.Swap{Path: unescape(fields[0]), SizeBytes: size << 10, UsedBytes: used << 10})
	}
	return swaps, nil
}

// chosen returns the word in brackets, or "".
func chosen(s string) string {
	_, after, _ := strings.Cut(s, "[")
	if word, _, ok := strings.Cut(after, "]"); ok {
		return word
	}
	return ""
}
