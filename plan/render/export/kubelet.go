package export

import (
	"math/bits"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// The kubelet's policies, the strictest first.
const (
	singleNUMANode = "single-numa-node"
	restricted     = "restricted"
	bestEffort     = "best-effort"
)

// maxKubeNodes limits the sets that are tried. The kubelet supports 8 nodes by default.
const maxKubeNodes = 16

// A demand is the amount that a machine asks for, and the amount on each NUMA node.
type demand struct {
	amount uint64
	on     []uint64
}

// policy returns the strictest policy of the topology manager that admits all machines. Each resource proposes the
// smallest sets of NUMA nodes that could hold it; "restricted" admits a pod only if all propose one set
// (kubernetes/pkg/kubelet/cm/topologymanager/policy.go, mergePermutation). So it refuses a machine with a GPU on one
// NUMA node and more CPUs than one has.
func (k *kube) policy() string {
	if len(k.in.Host.NUMANodes) > maxKubeNodes {
		return bestEffort
	}
	strictest := singleNUMANode
	if k.Spans {
		strictest = restricted
	}
	for i := range k.in.Plan.Nodes {
		switch size := commonSet(k.demands(&k.in.Plan.Nodes[i]), len(k.in.Host.NUMANodes)); {
		case size == 0:
			return bestEffort
		case size > 1:
			strictest = restricted
		}
	}
	return strictest
}

// demands lists the resources with hints: CPUs, memory and devices.
func (k *kube) demands(n *plan.Node) []demand {
	h := k.in.Host
	cpus, memory := demand{amount: uint64(len(n.VCPUs))}, demand{amount: n.MemoryBytes}
	if k.Isolated {
		cpus.amount++ // isolateEmulatorThread
	}
	pages := pageBytes(n)
	for _, node := range h.NUMANodes {
		cpus.on = append(cpus.on, uint64(node.CPUs.Len()))
		bytes := uint64(0)
		if node.MemoryBytes != nil {
			bytes = *node.MemoryBytes
		}
		if pages > 0 {
			bytes = lists.Sum(k.in.Plan.Hugepages, func(p plan.Hugepages) uint64 {
				if p.NUMANode != node.ID || p.PageBytes != pages {
					return 0
				}
				return uint64(p.Count) * p.PageBytes
			})
		}
		memory.on = append(memory.on, bytes)
	}
	all := []demand{cpus}
	if slices.Max(memory.on) > 0 { // else not known
		all = append(all, memory)
	}
	asked, there := map[string]uint64{}, map[string][]uint64{}
	for i := range k.in.Plan.Nodes {
		other := &k.in.Plan.Nodes[i]
		for _, c := range other.Cards {
			resource := k.resourceOf(&c)
			if other.Name == n.Name {
				asked[resource]++
			}
			if there[resource] == nil {
				there[resource] = make([]uint64, len(h.NUMANodes))
			}
			for x, node := range h.NUMANodes {
				if c.NUMANode == nil || *c.NUMANode == node.ID {
					there[resource][x]++
				}
			}
		}
	}
	for _, resource := range lists.Keys(asked) {
		all = append(all, demand{asked[resource], there[resource]})
	}
	return all
}

// resourceOf is the NIC for a virtual function, else vendor and device.
func (k *kube) resourceOf(c *plan.NodeDevice) string {
	if c.Kind == plan.KindVF {
		return k.network(c.ID)
	}
	id, err := idsOf(k.in.Host, c.ID)
	if err != nil {
		return c.ID // reported for the machine
	}
	return id.vendor + ":" + id.device
}

// commonSet returns the size of a set that is a smallest one for each demand, or 0.
func commonSet(demands []demand, nodes int) int {
	holds := func(d demand, set uint) bool {
		var sum uint64
		for x, n := range d.on {
			if set&(1<<x) != 0 {
				sum += n
			}
		}
		return sum >= d.amount
	}
	size := 0
	for _, d := range demands {
		least := nodes + 1
		for set := uint(1); set < 1<<nodes; set++ {
			if n := bits.OnesCount(set); n < least && holds(d, set) {
				least = n
			}
		}
		if size > 0 && least != size || least > nodes {
			return 0
		}
		size = least
	}
	for set := uint(1); set < 1<<nodes; set++ {
		if bits.OnesCount(set) == size && !slices.ContainsFunc(demands, func(d demand) bool { return !holds(d, set) }) {
			return size
		}
	}
	return 0
}
