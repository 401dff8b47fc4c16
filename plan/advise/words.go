package advise

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// deviceName is "GPU 0000:06:00.0".
func deviceName(d *plan.Device) string { return plan.DeviceName(d.Kind, d.ID) }

// devicesOf lists the devices of a lab node by NUMA node: "GPU 0000:06:00.0 on NUMA node 0; 2 VFs
// of 0000:41:00.0 on NUMA node 2".
func devicesOf(p *plan.Problem, n *plan.NodePlacement) string {
	var places []string // in the order in which they are met
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

// coresText is "7 cores on NUMA node 0 and 7 on 2".
func coresText(on map[int]int64) string {
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(on)) {
		if len(parts) == 0 {
			parts = append(parts, fmt.Sprintf("%s on NUMA node %d", words.Count(on[node], "core"), node))
		} else {
			parts = append(parts, fmt.Sprintf("%d on node %d", on[node], node))
		}
	}
	return words.Either(len(parts) == 0, "no cores", words.List(parts))
}

// memoryText is "16 GiB on NUMA node 0 and 16 GiB on node 2".
func memoryText(p *plan.Problem, memory []plan.NodePage) string {
	var parts []string
	for _, m := range memory {
		where := words.Either(len(parts) > 0, "node", "NUMA node")
		parts = append(parts, fmt.Sprintf("%s on %s %d", words.Exact(uint64(m.Pages)*p.PageBytes), where, m.NUMANode))
	}
	return words.Either(len(parts) == 0, "no memory", words.List(parts))
}

// cpusOf is the CPU list of cores.
func (o *oracle) cpusOf(cores []int) string {
	var set topology.CPUSet
	for _, id := range cores {
		set = set.Union(topology.CPUs(o.Cores[id].CPUs...))
	}
	return set.String()
}

// nodesText is "NUMA node 0", "NUMA nodes 0 and 2".
func nodesText(nodes []int) string {
	parts := lists.Map(nodes, strconv.Itoa)
	if len(parts) == 1 {
		return "NUMA node " + parts[0]
	}
	return "NUMA nodes " + words.List(parts)
}
