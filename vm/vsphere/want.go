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

// want is the only place that translates a plan to vSphere.
func (m *maker) want(n *plan.Node) (map[string]string, error) {
	sockets, _, _, _ := n.Topology()
	mib := strconv.FormatUint(n.MemoryBytes>>20, 10)
	w := map[string]string{
		"cpus":             strconv.Itoa(len(n.VCPUs)),
		"cores_per_socket": strconv.Itoa(len(n.VCPUs) / sockets),
		"memory_mib":       mib,
		// Passthrough needs it, and so does a NUMA node that must stay the same.
		"memory_reservation_mib":    mib,
		"memory_reservation_locked": "true",
		"cpu_reservation_mhz":       strconv.FormatInt(int64(n.Cores)*m.coreMHz(), 10),
		"latency_sensitivity":       "normal",
		"cpu_affinity":              n.CPUs().String(),
	}
	// ESXi gives each CPU its own core, of its choice.
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
		// A power of two: ESXi does not report BAR sizes.
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

func (m *maker) adapters() string {
	return strings.Join(slices.Sorted(slices.Values(m.networks)), separator)
}

// maxVirtualNodes is per planned one.
const maxVirtualNodes = 8

// virtualNodes represents planned nodes of different sizes by several of one size, as vSphere needs.
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

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// gigabytesOfGPU exceeds a GPU's memory.
const gigabytesOfGPU = 256

// numbers formats "0,1".
func numbers(set topology.CPUSet) string {
	var list []string
	for n := range set.All() {
		list = append(list, strconv.Itoa(n))
	}
	return strings.Join(list, ",")
}

// coreMHz is the unit of reservations.
func (m *maker) coreMHz() int64 {
	if len(m.host.Cores) == 0 || m.host.Cores[0].MaxKHz == nil {
		return 0
	}
	return *m.host.Cores[0].MaxKHz / 1000
}

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
