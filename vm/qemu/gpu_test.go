package qemu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/gpu"
	"github.com/rackless/rackless/vm/image"
)

type tree struct {
	above, kind map[string]string
	numa, nr    map[string]int // of host bridges
	order       []string       // of host bridges
}

func treeOf(t *testing.T, args []string) tree {
	t.Helper()
	out := tree{map[string]string{}, map[string]string{}, map[string]int{}, map[string]int{}, nil}
	for i, arg := range args {
		if i%2 == 0 {
			continue
		}
		id, bus := arg, "pcie.0"
		if strings.HasPrefix(arg, "{") {
			_, id, _ = strings.Cut(arg, `"path":"`)
			id, _, _ = strings.Cut(id, `"`)
			_, bus, _ = strings.Cut(arg, `"bus":"`)
			bus, _, _ = strings.Cut(bus, `"`)
		} else {
			options := map[string]string{}
			for option := range strings.SplitSeq(arg, ",") {
				name, value, _ := strings.Cut(option, "=")
				options[name] = value
			}
			id, bus = options["id"], cmp.Or(options["bus"], bus)
			out.kind[id], _, _ = strings.Cut(arg, ",")
			if out.kind[id] == "pxb-pcie" {
				out.numa[id], _ = strconv.Atoi(options["numa_node"])
				out.nr[id], _ = strconv.Atoi(options["bus_nr"])
				out.order = append(out.order, id)
			}
		}
		if _, there := out.kind[bus]; !there && bus != "pcie.0" {
			t.Errorf("%s is on %s, which comes later", id, bus)
		}
		out.above[id] = bus
	}
	return out
}

func (o tree) way(id string) (buses []string, bridge string) {
	for bus := o.above[id]; ; bus = o.above[bus] {
		if bus == "pcie.0" || o.kind[bus] == "pxb-pcie" {
			return buses, bus
		}
		buses = append(buses, bus)
	}
}

// path follows nvidia-smi's rules.
func (o tree) path(a, b string) lab.GPUPath {
	x, p := o.way(a)
	y, q := o.way(b)
	for i, bus := range x {
		if j := slices.Index(y, bus); j >= 0 && max(i, j) > 1 {
			return lab.GPUPathPXB
		} else if j >= 0 {
			return lab.GPUPathPIX
		}
	}
	switch {
	case p == q:
		return lab.GPUPathPHB
	case o.numa[p] == o.numa[q]:
		return lab.GPUPathNode
	}
	return lab.GPUPathSYS
}

// An adapter without a GPU beside it keeps its own root port.
func TestPlacesOfGPUs(t *testing.T) {
	s := Spec{Adapters: true, NICs: []NIC{{Adapter: "/a"}, {Adapter: "/b"}}}
	for _, path := range []lab.GPUPath{lab.GPUPathPIX, lab.GPUPathPXB, lab.GPUPathPHB} {
		s.GPUs = append(s.GPUs, GPU{Socket: "/" + string(path), Memory: 256 << 20, NIC: 1, Path: path})
	}
	tree := treeOf(t, pciArgs(s))
	way := func(id string) string {
		buses, _ := tree.way(id)
		return strings.Join(lists.Map(buses, func(bus string) string { return tree.kind[bus] }), " ")
	}
	const one, root = "xio3130-downstream x3130-upstream", "pcie-root-port"
	for id, want := range map[string]string{"/a": root, "/b": one + " " + root, "/pix": one + " " + root,
		"/pxb": one + " " + one + " " + root, "/phb": root} {
		if got := way(id); got != want {
			t.Errorf("%s is behind %q, want %q", id, got, want)
		}
	}
}

func numaSpec() Spec {
	s := Spec{Adapters: true, NUMANodes: 2, CPUs: 4, Memory: 1 << 30}
	for i := range 4 {
		s.NICs = append(s.NICs, NIC{Adapter: fmt.Sprintf("/nic%d", i), NUMA: i / 2})
	}
	for i, g := range []GPU{{NIC: 0, Path: lab.GPUPathNode}, {NIC: 0, Path: lab.GPUPathPIX},
		{NIC: 1, Path: lab.GPUPathPHB}, {NIC: 1, Path: lab.GPUPathPXB}, {NIC: 1, Path: lab.GPUPathSYS},
		{NIC: 3, Path: lab.GPUPathPIX}, {NIC: 3, Path: lab.GPUPathSYS}} {
		g.Socket, g.Memory = fmt.Sprintf("/gpu%d", i), 64<<20
		s.GPUs = append(s.GPUs, g)
	}
	return s
}

// PathOf agrees with the tree. Bus numbers do not overlap, and follow the order in which the kernel finds the host
// bridges, which is that of the devices' numbers.
func TestPlacesInNUMANodes(t *testing.T) {
	s := numaSpec()
	tree := treeOf(t, pciArgs(s))
	seen := map[lab.GPUPath]bool{}
	for nic, n := range s.NICs {
		if _, bridge := tree.way(n.Adapter); tree.numa[bridge] != n.NUMA {
			t.Errorf("adapter %d is in NUMA node %d", nic, tree.numa[bridge])
		}
		for gpu, g := range s.GPUs {
			want := tree.path(n.Adapter, g.Socket)
			seen[want] = true
			if got := s.PathOf(nic, gpu); got != want {
				t.Errorf("adapter %d, GPU %d: path %s, want %s", nic, gpu, got, want)
			}
			if g.NIC == nic && g.Path != want {
				t.Errorf("adapter %d, GPU %d: %s in the tree, want %s", nic, gpu, want, g.Path)
			}
		}
	}
	if len(seen) != 5 {
		t.Errorf("paths %v, want all", seen)
	}
	slices.Reverse(tree.order)
	for i, id := range tree.order {
		buses := 1 + lists.Count(slices.Collect(maps.Keys(tree.kind)), func(bus string) bool {
			_, bridge := tree.way(bus)
			return bridge == id && bus != id
		})
		if i+1 < len(tree.order) && tree.nr[tree.order[i+1]] != tree.nr[id]+buses {
			t.Errorf("%s begins at bus %d and has %d, and %s begins at %d", id, tree.nr[id], buses, tree.order[i+1],
				tree.nr[tree.order[i+1]])
		}
	}
	first := func(id string) int { _, bridge := tree.way(id); return tree.nr[bridge] }
	for i := 1; i < len(s.NICs); i++ {
		if first(s.NICs[i].Adapter) <= first(s.NICs[i-1].Adapter) {
			t.Errorf("adapter %d is before adapter %d", i, i-1)
		}
	}
	for i := 1; i < len(s.GPUs); i++ {
		if first(s.GPUs[i].Socket) < first(s.GPUs[i-1].Socket) {
			t.Errorf("GPU %d is before GPU %d", i, i-1)
		}
	}
}

// In whole MiB, all shared.
func TestMemoryOfNUMANodes(t *testing.T) {
	for _, tt := range []struct {
		cpus, nodes int
		memory      int64
		want        string
	}{
		{4, 2, 1 << 30, "512 0-1, 512 2-3"},
		{3, 2, 769 << 20, "384 0-1, 385 2-2"},
		{1, 2, 256 << 20, "128 0-0, 128 "},
		{2, 1, 256 << 20, "256 0-1"},
		{2, 0, 256 << 20, "256 0-1"},
	} {
		s := Spec{CPUs: tt.cpus, NUMANodes: tt.nodes, Memory: tt.memory}
		var got []string
		for i, b := range numaBlocks(tt.memory, max(tt.nodes, 1)) {
			got = append(got, fmt.Sprintf("%d %s", b.Bytes>>20, s.nodeCPUs(i)))
			if !b.Shared {
				t.Errorf("%+v: block %d is not shared", tt, i)
			}
		}
		if got := strings.Join(got, ", "); got != tt.want {
			t.Errorf("%d CPUs, %d NUMA nodes: got %q, want %q", tt.cpus, tt.nodes, got, tt.want)
		}
	}
}

// A node with a GPU for vfio-pci has an IOMMU, and its kernel is told how to use it. No other node changes.
func TestGPUsForVFIONeedAnIOMMU(t *testing.T) {
	full := &image.Image{Disk: "disk.qcow2", Kernel: "vmlinux", Initramfs: "initrd"}
	of := func(accel string, personalities ...gpu.Personality) (args string) {
		s := Spec{Name: "vm00", Adapters: true, CPUs: 1, Memory: 512 << 20, NICs: []NIC{{}}, Image: full}
		for _, p := range personalities {
			s.GPUs = append(s.GPUs, GPU{Memory: 1 << 28, Path: lab.GPUPathPIX, Personality: p})
		}
		return strings.Join(machine{spec: s, accel: accel, image: full}.args(), " ")
	}
	for _, accel := range []string{"tcg", "kvm"} {
		with, without := of(accel, gpu.Virtio, gpu.VFIO), of(accel, gpu.Virtio)
		for text, want := range map[string]bool{"-device intel-iommu,intremap=on,caching-mode=on ": true,
			" intel_iommu=on iommu=pt": true, ",kernel-irqchip=split ": accel == "kvm"} {
			if got := strings.Contains(with, text); got != want {
				t.Errorf("%s: %q is there: %v", accel, text, got)
			}
			if strings.Contains(without, text) {
				t.Errorf("%s: %q is there without a GPU for vfio-pci", accel, text)
			}
		}
		if strings.Index(with, "intel-iommu") > strings.Index(with, "pcie-root-port") {
			t.Errorf("%s: the IOMMU comes after a device", accel)
		}
	}
	d := &Driver{Image: full}
	key := func(p gpu.Personality) string {
		return d.templateKey(Spec{Adapters: true, NICs: []NIC{{}}, GPUs: []GPU{{Memory: 1 << 28, Personality: p}}})
	}
	if key(gpu.VFIO) == key(gpu.Virtio) || key("") != key(gpu.Virtio) {
		t.Error("GPUs of the two personalities have one template, or the default is not virtio")
	}
}
