//go:build linux

package vsphere

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/dump/esxi"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// want is what a node's virtual machine has to be: the one place that says what becomes of a plan in vSphere.
func (m *maker) want(n *plan.Node) (map[string]string, error) {
	sockets, _, _, _ := n.Topology()
	mib := strconv.FormatUint(n.MemoryBytes>>20, 10)
	w := map[string]string{
		"cpus":             strconv.Itoa(len(n.VCPUs)),
		"cores_per_socket": strconv.Itoa(len(n.VCPUs) / sockets),
		"memory_mib":       mib,
		// Passthrough needs all memory in place, and so does a memory node that is meant to stay the same.
		"memory_reservation_mib":    mib,
		"memory_reservation_locked": "true",
		"cpu_reservation_mhz":       strconv.FormatInt(int64(n.Cores)*m.coreMHz(), 10),
		"latency_sensitivity":       "normal",
		"cpu_affinity":              n.CPUs().String(),
	}
	// ESXi gives each CPU of such a machine a core of its own, and chooses which itself.
	if m.lab.Workload == lab.WorkloadRDMALatency && n.Threads == 1 {
		w["latency_sensitivity"], w["cpu_affinity"] = "high", ""
	}
	nodes := topology.UnionOf(n.Memory, func(m plan.NodeMemory) topology.CPUSet { return topology.CPUs(m.NUMANode) })
	w[esxi.NodeAffinity] = numbers(nodes)
	if err := virtualNodes(n, w); err != nil {
		return nil, err
	}
	var through, vfs []string
	for _, card := range n.Cards {
		b, err := m.function(card.ID)
		if err != nil {
			return nil, err
		}
		switch {
		case card.Kind == plan.KindVF:
			vfs = append(vfs, functionText(b)+onNetwork+m.network+guestMTU)
		case m.lab.VSphere.Passthrough == lab.PassthroughDynamic:
			through = append(through, fmt.Sprintf("%s%04x:%s", anyOf, uint16(b.VendorId), b.DeviceId))
		default:
			through = append(through, functionText(b))
		}
	}
	slices.Sort(through)
	slices.Sort(vfs)
	if len(m.lab.VSphere.Networks) > 0 {
		w["networks"] = m.adapters()
	}
	w["passthrough"], w["sriov"] = strings.Join(through, separator), strings.Join(vfs, separator)
	gpus := lists.Count(n.Cards, func(d plan.NodeDevice) bool { return d.Kind == plan.KindGPU })
	if gpus > 0 {
		// A power of two. ESXi does not tell how large the BARs of its devices are.
		w["pciPassthru.use64bitMMIO"] = "TRUE"
		w["pciPassthru.64bitMMIOSizeGB"] = strconv.Itoa(gigabytesOfGPU << bits.Len(uint(gpus-1)))
	}
	for name, text := range m.lab.VSphere.Settings {
		if _, err := settingNamed(name); err != nil {
			return nil, fmt.Errorf("vsphere.settings: %w", err)
		}
		w[name] = text
	}
	return w, nil
}

// adapters writes the networks of adapters as the setting has them.
func (m *maker) adapters() string {
	return strings.Join(slices.Sorted(slices.Values(m.networks)), separator)
}

// maxVirtualNodes is how many virtual NUMA nodes may stand for one of the plan.
const maxVirtualNodes = 8

// virtualNodes gives a virtual machine the NUMA nodes of the plan. vSphere makes them of one size: where those of the
// plan differ, several stand for one.
func virtualNodes(n *plan.Node, w map[string]string) error {
	size, cells := 0, 0
	for _, cell := range n.Cells {
		if cell.VCPUs > 0 {
			size, cells = gcd(size, cell.VCPUs), cells+1
		}
	}
	size = max(size, 1)
	w["numa.vcpu.maxPerVirtualNode"] = strconv.Itoa(size)
	if cells < 2 || !n.GuestNUMA {
		return nil
	}
	if len(n.VCPUs) > maxVirtualNodes*cells*size {
		return fmt.Errorf("its %d CPUs are divided among NUMA nodes in parts without a large common divisor, and "+
			"vSphere makes virtual NUMA nodes of one size: ask for another number of CPUs, or guest_numa: off",
			len(n.VCPUs))
	}
	w["cores_per_socket"] = strconv.Itoa(size)
	node := 0
	for _, cell := range n.Cells {
		for range cell.VCPUs / size {
			w[fmt.Sprintf("sched.node%d.affinity", node)] = numbers(topology.CPUs(cell.NUMANodes...))
			node++
		}
	}
	return nil
}

// gcd returns the greatest common divisor of two numbers; the other where one is 0.
func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// gigabytesOfGPU is what a GPU may take of the addresses of a virtual machine: more than its memory.
const gigabytesOfGPU = 256

// numbers writes a set as vSphere's parameters do: "0,1".
func numbers(set topology.CPUSet) string {
	var list []string
	for n := range set.All() {
		list = append(list, strconv.Itoa(n))
	}
	return strings.Join(list, ",")
}

// coreMHz is the frequency of a core, of which reservations are multiples.
func (m *maker) coreMHz() int64 {
	if len(m.host.Cores) == 0 || m.host.Cores[0].MaxKHz == nil {
		return 0
	}
	return *m.host.Cores[0].MaxKHz / 1000
}

// function returns a function of the host as passthrough names it.
func (m *maker) function(id string) (*types.VirtualPCIPassthroughDeviceBackingInfo, error) {
	for i := range m.host.PCI {
		d := &m.host.PCI[i]
		if d.Address.String() != id || d.Vendor == nil || d.Device == nil {
			continue
		}
		if m.system == "" {
			return nil, fmt.Errorf("host %s does not say what its devices are called for passthrough",
				m.lab.VSphere.Host)
		}
		return &types.VirtualPCIPassthroughDeviceBackingInfo{Id: id, VendorId: int16(*d.Vendor),
			DeviceId: fmt.Sprintf("%04x", uint16(*d.Device)), SystemId: m.system}, nil
	}
	return nil, fmt.Errorf("the host has no function %s", id)
}
