package advise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// Each text stands alone, with its subject, value, machine and source. docs/planner.md derives the weights from the
// same figures.
const (
	seenWrongNodes = "ib_write_lat p99 +29 %, typical +13 % on wrong NUMA nodes: EPYC 7551P with ConnectX-4 Lx, " +
		"published lab"
	seenContention = "iperf3 between two VMs beside 64 busy host processes: 7.9 Gb/s TCP without isolated CPUs, 24.1 " +
		"with them, 24.2 idle: EPYC 7551P, published lab"
	seenLateTail = "ib_write_lat p99.9 +45 % beside busy host processes without isolated CPUs: EPYC 7551P, " +
		"published lab"
	seenClasses = "by path class, PCIe Gen4 x16: PIX 26-30 GB/s and 1-2 us, PHB 22-27 GB/s and 2-3 us, NODE 18-25 " +
		"GB/s and 4-6 us, SYS 12-22 GB/s and 8-15 us: published GPU-NIC guide"
	seenH20 = "ib_write_bw from GPU memory over one NIC of an 8-GPU H20 machine: 195 Gb/s from the two best placed " +
		"GPUs, 176-179 from the others of its NUMA node, 119-124 from the other NUMA node: published GPU-NIC guide"
	seenStream = "STREAM in the guest 2 to 7 times as fast with guest NUMA on hosts of several NUMA nodes: published " +
		"vCPU pinning study"
	seenNCCL = "NCCL was hurt by guest NUMA on some hosts (with NCCL_P2P_DISABLE=1): published vCPU pinning study"
	seenHuge = "ib_write_lat 1.44 us typical, with 1 GiB pages, pinning and isolated CPUs together: EPYC 7551P, " +
		"published lab"
	seenSMT    = "sibling threads shown to the guest as such gain 2-3 %: published vCPU pinning study"
	seenPinned = "pinning alone helps latency and noise: published vCPU pinning study"
	seenMatmul = "FP16 matmul is the same whatever the CPUs: published vCPU pinning study"
)

func deviceName(d *plan.Device) string { return plan.DeviceName(d.Kind, d.ID) }

// devicesOf returns "GPU 0000:06:00.0 on NUMA node 0; 2 VFs of 0000:41:00.0 on NUMA node 2".
func devicesOf(p *plan.Problem, n *plan.NodePlacement) string {
	var places []string // in order of appearance
	parts := map[string][]string{}
	add := func(device int, word string) {
		where := ""
		if node := p.Devices[device].NUMANode; node != nil {
			where = fmt.Sprintf(" on NUMA node %d", *node)
		}
		if parts[where] == nil {
			places = append(places, where)
		}
		parts[where] = append(parts[where], word)
	}
	for _, i := range slices.Concat(n.GPUs, n.NICs) {
		add(i, deviceName(&p.Devices[i]))
	}
	for _, v := range n.VFs {
		add(v.Device, words.Count(v.Count, "VF")+" of "+p.Devices[v.Device].ID)
	}
	for i, where := range places {
		places[i] = words.List(parts[where]) + where
	}
	return strings.Join(places, "; ")
}

func coresText(on map[int]int64) string {
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(on)) {
		if len(parts) == 0 {
			parts = append(parts, fmt.Sprintf("%s on NUMA node %d", words.Count(on[node], "core"), node))
		} else {
			parts = append(parts, fmt.Sprintf("%d on node %d", on[node], node))
		}
	}
	return cmp.Or(words.List(parts), "no cores")
}

func memoryText(p *plan.Problem, memory []plan.NodePage) string {
	var parts []string
	for _, m := range memory {
		where := "NUMA node"
		if len(parts) > 0 {
			where = "node"
		}
		parts = append(parts, fmt.Sprintf("%s on %s %d", words.Exact(uint64(m.Pages)*p.PageBytes), where, m.NUMANode))
	}
	return cmp.Or(words.List(parts), "no memory")
}

func (o *oracle) cpusOf(cores []int) string {
	return topology.UnionOf(cores, func(id int) topology.CPUSet { return topology.CPUs(o.Cores[id].CPUs...) }).String()
}

func nodesText(nodes []int) string {
	parts := lists.Map(nodes, strconv.Itoa)
	if len(parts) == 1 {
		return "NUMA node " + parts[0]
	}
	return "NUMA nodes " + words.List(parts)
}
