package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// NodeOf returns a machine with its compute GPUs and RDMA NICs. The memory is the kernel's total.
func NodeOf(name string, h *topology.Host) (Node, error) {
	n := Node{Name: name}
	order := ordered(h)
	if len(order) == 0 {
		return n, fmt.Errorf("node %s: its cores are not known", name)
	}
	sockets := make(map[int]int)
	for _, c := range order {
		sockets[*cmp.Or(c.Package, new(0))]++
		n.Threads = max(n.Threads, c.CPUs.Len())
	}
	n.Sockets, n.Cores = len(sockets), len(order)/len(sockets)
	for s, cores := range sockets {
		if cores != n.Cores {
			return n, fmt.Errorf("node %s: socket %d has %d cores and others %d: Slurm wants as many in each", name, s,
				cores, n.Cores)
		}
	}
	n.MemoryMiB = memory(h)
	for i := range h.GPUs {
		if d, ok := gpu(h, i); ok {
			d.Cores = near(h, order, h.GPUs[i].NUMANode)
			n.Devices = append(n.Devices, d)
		}
	}
	for _, nic := range h.NICs {
		for _, rdma := range rdmaOf(&nic) {
			n.Devices = append(n.Devices, Device{Kind: NIC, Type: rdma, File: nicFile(rdma),
				Cores: near(h, order, nic.NUMANode)})
		}
	}
	return n, nil
}

// nicFile exists if the RDMA device does. Slurm respects the cores only of devices with a file, and the number below
// /dev/infiniband is unknown.
func nicFile(rdma string) string { return "/sys/class/infiniband/" + rdma + "/node_guid" }

func rdmaOf(nic *topology.NIC) []string {
	names := slices.Clone(nic.RDMA)
	for _, d := range nic.Devices {
		names = lists.Add(names, d.Name)
	}
	return names
}

// memory is in whole MiB, or 0 if unknown.
func memory(h *topology.Host) int64 {
	if h.Memory.TotalBytes != nil {
		return int64(*h.Memory.TotalBytes >> 20)
	}
	sum := uint64(0)
	sum += lists.Sum(h.NUMANodes, func(n topology.NUMANode) uint64 { return *cmp.Or(n.MemoryBytes, new(uint64(0))) })
	return int64(sum >> 20)
}

// gpu returns false for one that only drives a screen, and for vendors with unknown device files.
func gpu(h *topology.Host, i int) (Device, bool) {
	g := &h.GPUs[i]
	d := Device{Kind: GPU, Type: gpuType(g.Model)}
	vendor := strings.ToLower(g.Vendor + " " + g.Driver)
	index := 0 // among the vendor's GPUs
	for k := range h.GPUs[:i] {
		if h.GPUs[k].Vendor == g.Vendor && h.GPUs[k].Driver == g.Driver {
			index++
		}
	}
	switch {
	case strings.Contains(vendor, "nvidia"):
		d.File = fmt.Sprintf("/dev/nvidia%d", *cmp.Or(g.Index, &index))
	case strings.Contains(vendor, "amd"):
		d.File = fmt.Sprintf("/dev/dri/renderD%d", 128+index)
	default:
		return d, false
	}
	return d, true
}

// gpuType returns rtx_3090 for "NVIDIA GeForce RTX 3090".
func gpuType(model string) string {
	if _, marketing, ok := strings.Cut(model, "["); ok { // lspci's form: "GA102 [GeForce RTX 3090]"
		model, _, _ = strings.Cut(marketing, "]")
	}
	var words []string
	for _, w := range strings.FieldsFunc(strings.ToLower(model), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) {
		if !slices.Contains([]string{"nvidia", "amd", "geforce", "tesla", "instinct", "radeon"}, w) {
			words = append(words, w)
		}
	}
	return strings.Join(words, "_")
}

// near is empty if the machine has only one NUMA node, or if the node of the device is unknown.
func near(h *topology.Host, order []topology.Core, node *int) (cores topology.CPUSet) {
	if node == nil || len(h.NUMANodes) < 2 {
		return cores
	}
	n := h.NUMANode(*node)
	for i, c := range order {
		if n != nil && c.CPUs.Overlaps(n.CPUs) {
			cores = cores.Union(topology.CPUs(i))
		}
	}
	return cores
}

// ordered is the order of hwloc and Slurm: by socket, NUMA node and cache, each by its lowest CPU.
func ordered(h *topology.Host) []topology.Core {
	sockets := make(map[int]topology.CPUSet)
	for _, c := range h.Cores {
		s := *cmp.Or(c.Package, new(0))
		sockets[s] = sockets[s].Union(c.CPUs)
	}
	var numa, caches []topology.CPUSet
	numa = append(numa, lists.Map(h.NUMANodes, func(n topology.NUMANode) topology.CPUSet { return n.CPUs })...)
	caches = append(caches, lists.Map(h.L3, func(l topology.L3) topology.CPUSet { return l.CPUs })...)
	key := func(c topology.Core) (key [4]int) {
		key[0] = sockets[*cmp.Or(c.Package, new(0))].Min()
		for i, sets := range [][]topology.CPUSet{numa, caches} {
			if k := slices.IndexFunc(sets, c.CPUs.Overlaps); k >= 0 {
				key[i+1] = sets[k].Min()
			}
		}
		key[3] = c.CPUs.Min()
		return key
	}
	cores := slices.Clone(h.Cores)
	slices.SortFunc(cores, func(a, b topology.Core) int {
		ka, kb := key(a), key(b)
		return slices.Compare(ka[:], kb[:])
	})
	return cores
}
