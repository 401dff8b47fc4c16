package qemu

import (
	"context"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/gpu"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/qapi"
)

// A GPU is emulated, at a place in the PCI tree of a node with adapters.
type GPU struct {
	Socket string // of its server
	Model  string
	Memory int64       // bytes
	NIC    int         // the NIC to which Path leads
	Path   lab.GPUPath // node and sys need NUMA nodes
	// Personality is that of the GPU in the guest; "" means gpu.Virtio.
	Personality gpu.Personality
}

func (s Spec) shapes() []GPU {
	return lists.Map(s.GPUs, func(g GPU) GPU {
		g.Socket = ""
		return g
	})
}

// PathOf returns the path from an adapter to a GPU.
func (s Spec) PathOf(nic, gpu int) lab.GPUPath {
	g := s.GPUs[gpu]
	switch {
	case g.NIC == nic:
		return g.Path
	case s.NUMANodes == 0:
		return lab.GPUPathPHB
	case s.numaOf(g) == s.NICs[nic].NUMA:
		return lab.GPUPathNode
	}
	return lab.GPUPathSYS
}

func (s Spec) numaOf(g GPU) int {
	numa := s.NICs[g.NIC].NUMA
	if g.Path == lab.GPUPathSYS {
		numa = (numa + 1) % s.NUMANodes
	}
	return numa
}

// hasIOMMU reports whether the guest has an IOMMU, without which vfio-pci takes no device.
func (s Spec) hasIOMMU() bool {
	return slices.ContainsFunc(s.GPUs, func(g GPU) bool { return g.Personality == gpu.VFIO })
}

// iommuArgs are the arguments of a guest's IOMMU. VFIO in the guest wants interrupt remapping, and devices outside of
// QEMU want to hear of mappings.
var iommuArgs = []string{"-device", "intel-iommu,intremap=on,caching-mode=on"}

func gpuID(i int) string { return fmt.Sprintf("gpu%d", i) }

// GPUState names the file of a GPU in a template, as saved by gpu.GPU.
func GPUState(i int) string { return fmt.Sprintf("gpu%d", i) }

func gpuInGuest(i int) string { return GPUState(i) + ".json" }

type pciTree struct {
	spec    Spec
	args    []string
	chassis int
	bridges [][]string // each host bridge's, except for the chipset
	buses   int
}

// pciArgs gives each adapter a root port. Its GPUs on path pix are behind the same switch, on path pxb behind a second
// switch, and on path phb behind root ports of their own.
//
// In a node with NUMA nodes each adapter has a host bridge in its NUMA node, and so has each GPU on path node or sys.
func pciArgs(s Spec) []string {
	t := pciTree{spec: s, chassis: len(s.NICs), buses: 1}
	if s.NUMANodes > 0 {
		t.numa()
		slices.Reverse(t.bridges) // QEMU's tables, and so the kernel, begin with the last
		return slices.Concat(t.bridges...)
	}
	for i := range s.NICs {
		t.nic(i, "")
	}
	for g := range s.GPUs {
		if s.GPUs[g].Path == lab.GPUPathPHB {
			t.rooted(g, "")
		}
	}
	return t.args
}

// numa adds the host bridges. The guest numbers devices by their buses, so a GPU alone comes before the first adapter
// that has a GPU with a higher number.
func (t *pciTree) numa() {
	alone := slices.Concat(t.gpus(anyNIC, lab.GPUPathNode), t.gpus(anyNIC, lab.GPUPathSYS))
	slices.Sort(alone)
	for i, n := range t.spec.NICs {
		rooted := t.gpus(i, lab.GPUPathPHB)
		with := slices.Concat(rooted, t.gpus(i, lab.GPUPathPIX), t.gpus(i, lab.GPUPathPXB))
		for len(with) > 0 && len(alone) > 0 && alone[0] < slices.Min(with) {
			t.alone(alone[0])
			alone = alone[1:]
		}
		hb := t.bridge(n.NUMA)
		t.nic(i, hb)
		for _, g := range rooted {
			t.rooted(g, hb)
		}
		t.done()
	}
	for _, g := range alone {
		t.alone(g)
	}
}

func (t *pciTree) alone(g int) {
	t.rooted(g, t.bridge(t.spec.numaOf(t.spec.GPUs[g])))
	t.done()
}

// bridge returns the name of a new host bridge in a NUMA node. The firmware gives the buses behind it the next numbers,
// which must not reach that of the next host bridge.
func (t *pciTree) bridge(numa int) string {
	id := fmt.Sprintf("hb%d", len(t.bridges))
	t.add("pxb-pcie,id=%s,bus=pcie.0,bus_nr=%d,numa_node=%d", id, t.buses, numa)
	t.buses++
	return id
}

func (t *pciTree) done() { t.bridges, t.args = append(t.bridges, t.args), nil }

// nic also adds the GPUs that share a switch with an adapter. bridge "" is the chipset's.
func (t *pciTree) nic(i int, bridge string) {
	n := t.spec.NICs[i]
	near, far := t.gpus(i, lab.GPUPathPIX), t.gpus(i, lab.GPUPathPXB)
	if len(near)+len(far) == 0 {
		t.args = append(t.args, adapterArgs(i, n, bridge)...)
		t.buses++
		return
	}
	root, above := fmt.Sprintf("cx%d", i), fmt.Sprintf("sw%d", i)
	t.add("pcie-root-port,id=%s,%schassis=%d,%s", root, onBus(bridge), i+1, t.room(64<<20, append(near, far...)))
	t.add("x3130-upstream,id=%s,bus=%s", above, root)
	t.buses += 2
	t.device(vm.VFIOUser{ID: adapterID(i), Bus: t.below(above), Socket: n.Adapter})
	for _, g := range near {
		t.gpu(g, t.below(above))
	}
	if len(far) > 0 {
		second := above + "b"
		t.add("x3130-upstream,id=%s,bus=%s", second, t.below(above))
		t.buses++
		for _, g := range far {
			t.gpu(g, t.below(second))
		}
	}
}

func (t *pciTree) rooted(g int, bridge string) {
	t.chassis++
	root := fmt.Sprintf("gp%d", g)
	t.add("pcie-root-port,id=%s,%schassis=%d,%s", root, onBus(bridge), t.chassis, t.room(0, []int{g}))
	t.buses++
	t.gpu(g, root)
}

func onBus(bridge string) string {
	if bridge == "" {
		return ""
	}
	return "bus=" + bridge + ","
}

const anyNIC = -1

func (t *pciTree) gpus(nic int, path lab.GPUPath) (list []int) {
	for g := range t.spec.GPUs {
		if (nic == anyNIC || t.spec.GPUs[g].NIC == nic) && t.spec.GPUs[g].Path == path {
			list = append(list, g)
		}
	}
	return list
}

func (t *pciTree) add(format string, args ...any) {
	t.args = append(t.args, "-device", fmt.Sprintf(format, args...))
}

func (t *pciTree) device(d vm.VFIOUser) { t.args = append(t.args, "-device", d.Device()) }

func (t *pciTree) gpu(g int, bus string) {
	t.device(vm.VFIOUser{ID: gpuID(g), Bus: bus, Socket: t.spec.GPUs[g].Socket})
}

func (t *pciTree) below(upstream string) string {
	t.chassis++
	id := fmt.Sprintf("dn%d", t.chassis)
	t.add("xio3130-downstream,id=%s,bus=%s,chassis=%d,hotplug=off,power_controller_present=off", id, upstream,
		t.chassis)
	t.buses++
	return id
}

func (t *pciTree) room(more int64, gpus []int) string {
	all := more + lists.Sum(gpus, func(g int) int64 { return t.spec.GPUs[g].Memory + 1<<20 })
	return fmt.Sprintf("hotplug=off,power_controller_present=off,pref64-reserve=%d",
		uint64(1)<<bits.Len64(uint64(all-1)))
}

type templateGPUs []*gpu.GPU

func (all *templateGPUs) serve(dir string, gpus []GPU) ([]GPU, error) {
	served := make([]GPU, len(gpus))
	for i, g := range gpus {
		g.Socket = filepath.Join(dir, fmt.Sprintf("g%d.sock", i))
		made, err := gpu.Listen(gpu.Config{Name: gpuID(i), Socket: g.Socket, Memory: uint64(g.Memory), Model: g.Model,
			Personality: g.Personality})
		if err != nil {
			return nil, err
		}
		*all = append(*all, made)
		served[i] = g
	}
	return served, nil
}

func (all *templateGPUs) vram(addr, size uint64) []byte { return gpu.VRAM(*all, addr, size) }

func (all *templateGPUs) save(ctx context.Context, dir string, q *qapi.Conn) error {
	for i, g := range *all {
		d, err := vm.ReadPCIDevice(ctx, q, filepath.Join(dir, vm.SocketTest), gpuID(i))
		if err != nil {
			return err
		}
		state, err := g.Save()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, GPUState(i)), state, 0o600)
		}
		if err == nil {
			err = atomicfile.WriteJSON(filepath.Join(dir, gpuInGuest(i)), d)
		}
		if err != nil {
			return fmt.Errorf("GPU %d: %w", i, err)
		}
	}
	return nil
}

func (all *templateGPUs) close() {
	for _, g := range *all {
		_ = g.Close() // its machine has ended
	}
}

func readGPUs(dir string, n int) ([]*vm.PCIDevice, error) {
	all := make([]*vm.PCIDevice, n)
	for i := range all {
		if err := atomicfile.ReadJSON(filepath.Join(dir, gpuInGuest(i)), &all[i]); err != nil || all[i] == nil {
			return nil, fmt.Errorf("GPU %d of the template: %s is not what was written (%v)", i, gpuInGuest(i), err)
		}
	}
	return all, nil
}
