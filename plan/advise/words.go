package advise

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// kindName is how a kind of device is written.
func kindName(kind string) string {
	switch kind {
	case plan.KindGPU:
		return "GPU"
	case plan.KindNIC:
		return "NIC"
	}
	return kind
}

// deviceName is "GPU 0000:06:00.0", or the name alone where it says what it is: "GPU0".
func deviceName(d *plan.Device) string { return named(d.Kind, d.ID) }

func named(kind, id string) string {
	if word := kindName(kind); !strings.HasPrefix(id, word) {
		return word + " " + id
	}
	return id
}

// devicesOf lists the devices of a lab node by NUMA node: "GPU 0000:06:00.0 on NUMA node 0; 2 VFs
// of 0000:41:00.0 on NUMA node 2".
func devicesOf(p *plan.Problem, n *plan.NodePlacement) string {
	type place struct {
		where string
		parts []string
	}
	var places []place
	add := func(device int, word string) {
		where := ""
		if node := p.Devices[device].NUMANode; node != nil {
			where = fmt.Sprintf(" on NUMA node %d", *node)
		}
		i := slices.IndexFunc(places, func(q place) bool { return q.where == where })
		if i < 0 {
			i = len(places)
			places = append(places, place{where: where})
		}
		places[i].parts = append(places[i].parts, word)
	}
	for _, i := range append(slices.Clone(n.GPUs), n.NICs...) {
		add(i, deviceName(&p.Devices[i]))
	}
	for _, v := range n.VFs {
		add(v.Device, words.Count(v.Count, "VF")+" of "+p.Devices[v.Device].ID)
	}
	var all []string
	for _, q := range places {
		all = append(all, words.List(q.parts)+q.where)
	}
	return strings.Join(all, "; ")
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
	if len(parts) == 0 {
		return "no cores"
	}
	return words.List(parts)
}

// memoryText is "16 GiB on NUMA node 0 and 16 GiB on node 2".
func memoryText(p *plan.Problem, memory []plan.NodePage) string {
	var parts []string
	for _, m := range memory {
		where := "NUMA node"
		if len(parts) > 0 {
			where = "node"
		}
		parts = append(parts, fmt.Sprintf("%s on %s %d", size(uint64(m.Pages)*p.PageBytes), where, m.NUMANode))
	}
	if len(parts) == 0 {
		return "no memory"
	}
	return words.List(parts)
}

// size prints bytes as the lab file writes them, with a space: "32 GiB".
func size(bytes uint64) string {
	s := lab.Bytes(min(bytes, 1<<62)).String()
	number := strings.TrimRight(s, "KMGTiB")
	return number + " " + s[len(number):]
}

// cpusOf is the CPU list of cores.
func (l *layout) cpusOf(cores []int) string {
	var set topology.CPUSet
	for _, id := range cores {
		set = set.Union(topology.CPUs(l.cores[id].CPUs...))
	}
	return set.String()
}

// nodesText is "NUMA node 0", "NUMA nodes 0 and 2".
func nodesText(nodes []int) string {
	var parts []string
	for _, n := range nodes {
		parts = append(parts, strconv.Itoa(n))
	}
	if len(parts) == 1 {
		return "NUMA node " + parts[0]
	}
	return "NUMA nodes " + words.List(parts)
}
