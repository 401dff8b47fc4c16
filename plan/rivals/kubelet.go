package rivals

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/plan"
)

// Policies of the Topology Manager.
const (
	bestEffort     = "best-effort"
	restricted     = "restricted"
	singleNUMANode = "single-numa-node"
)

// kubelet is a Kubernetes node with Topology Manager, the static policies of CPU and memory
// manager, and device plugins; lab nodes are pods that hold one virtual machine each (KubeVirt).
func kubelet(policy string) system {
	admit := map[string]string{
		bestEffort: "best-effort admits the pod with the best hint, preferred or not.",
		restricted: "restricted admits the pod only where the best hint is preferred.",
		singleNUMANode: "single-numa-node looks at preferred hints of one NUMA node only, and admits the pod only " +
			"where they agree on one.",
	}[policy]
	return system{
		Rival: Rival{
			ID: "k8s-" + policy, Name: "Kubernetes, Topology Manager " + policy, Version: "Kubernetes 1.32",
			Rules: []string{
				"CPU manager (static, full-pcpus-only), memory manager (Static) and each device plugin's resource " +
					"give hints: every set of NUMA nodes with enough free of it. A hint is preferred where the set " +
					"is as small as it could be on the empty machine.",
				"Memory manager: a node that serves a pod alone serves no pod over several nodes, and a group of " +
					"nodes serves pods of exactly this group.",
				"Hints of all resources are combined each with each. A combination is the intersection of its sets, " +
					"and preferred where all are preferred and equal. Preferred goes before not preferred. Among the " +
					"preferred the fewest nodes win, then the lowest. Among the others the size nearest to what the " +
					"most demanding resource needs wins, from below.",
				admit,
				"CPUs: those on the hint's nodes first, then others. Each time whole sockets or NUMA nodes that are " +
					"entirely free and not larger than what is needed, the higher level first; then whole free " +
					"cores; then single threads. At each level the parent with the fewest free CPUs comes first, " +
					"then the lowest number.",
				"Memory: on the hint's nodes; where they are too small, the smallest set that includes them. The " +
					"book is kept from the lowest node up.",
				"Devices: those on the hint's nodes first, then on other nodes, then those without a NUMA node.",
			},
			Sources: []string{
				"kubernetes/kubernetes, pkg/kubelet/cm/topologymanager/policy.go, numa_info.go, " +
					"policy_single_numa_node.go: https://github.com/kubernetes/kubernetes",
				"kubernetes/kubernetes, pkg/kubelet/cm/cpumanager/cpu_assignment.go (takeByTopologyNUMAPacked), " +
					"policy_static.go (generateCPUTopologyHints, allocateCPUs)",
				"kubernetes/kubernetes, pkg/kubelet/cm/memorymanager/policy_static.go; " +
					"pkg/kubelet/cm/devicemanager/topology_hints.go, manager.go (filterByAffinity)",
				"Kubernetes documentation, Control Topology Management Policies on a node: " +
					"https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/",
				"OpenShift 4.15, Telco core reference configuration, PerformanceProfile: " +
					"https://docs.openshift.com/container-platform/4.15/scalability_and_performance/telco_ref_design_specs/core/telco-core-ref-crs.html",
			},
			Differs: []string{
				"--reserved-cpus holds as many whole cores as the lab reserves, taken from the NUMA nodes in turn, " +
					"as OpenShift's reference for telco cores does together with single-numa-node. (Left to itself, " +
					"the kubelet would take the lowest.) Cores of tenants count as reserved. Emulator threads " +
					"run there.",
				"A pod asks for whole cores: the threads of each core that its lab node gets, used or not.",
				"Each selector of the lab (\"2 of vendor nvidia\") is a resource of its own; each virtual function " +
					"is a device of its own.",
				"Which devices a hint's nodes give is the plugin's choice or chance: taken in address order. " +
					"NVIDIA's plugin may do better (GetPreferredAllocation).",
				"Memory lies on the memory manager's nodes by first touch, in proportion to the cores there.",
				"SLIT distances count under the option prefer-closest-numa-nodes only, which is off by default. PCIe " +
					"paths, L3 caches and later pods are never looked at.",
				"Devices whose IOMMU group is in use elsewhere are not offered, as if the plugin reported them " +
					"unhealthy.",
				fmt.Sprintf("More than %d NUMA nodes are refused, as by default (max-allowable-numa-nodes).",
					maxKubeletNodes),
			},
		},
		start: func(h *host) error {
			if len(h.nodes) > maxKubeletNodes {
				return fmt.Errorf("kubelet does not start: unsupported on machines with more than %d NUMA nodes, "+
					"this one has %d", maxKubeletNodes, len(h.nodes))
			}
			h.reserve(true)
			for _, n := range h.nodes {
				h.memory = append(h.memory, memoryNode{total: h.pages[n], free: h.pages[n]})
			}
			return nil
		},
		place: func(h *host, i int) error { return h.pod(i, policy) },
	}
}

// maxKubeletNodes is the kubelet's defaultMaxAllowableNUMANodes: hints are sets of nodes, 2^8 of them.
const maxKubeletNodes = 8

// A nodeMask is a set of NUMA nodes: bit i is host.nodes[i].
type nodeMask uint16

func (m nodeMask) count() int {
	n := 0
	for ; m != 0; m &= m - 1 {
		n++
	}
	return n
}

func (m nodeMask) has(i int) bool { return m>>i&1 != 0 }

// narrower is the kubelet's order of masks: fewer nodes, then the lower ones.
func (m nodeMask) narrower(than nodeMask) bool {
	if a, b := m.count(), than.count(); a != b {
		return a < b
	}
	return m < than
}

// A hint is a set of NUMA nodes that could serve a resource.
type hint struct {
	mask      nodeMask
	any       bool // no set at all: the resource does not care, or (not preferred) cannot be served
	preferred bool
}

// masks calls f with every set of the given nodes but the empty one.
func masks(of nodeMask, f func(nodeMask)) {
	for m := nodeMask(1); m <= of && m != 0; m++ {
		if m&^of == 0 {
			f(m)
		}
	}
}

// hints makes the hints of a resource: total and free say how much a set of nodes has, on the empty machine and now.
func hints(of nodeMask, all int, need int64, total, free func(nodeMask) int64, fits func(nodeMask) bool) []hint {
	least := all
	list := []hint{}
	masks(of, func(m nodeMask) {
		if total(m) >= need {
			least = min(least, m.count())
		}
		if free(m) >= need && (fits == nil || fits(m)) {
			list = append(list, hint{mask: m})
		}
	})
	for k := range list {
		list[k].preferred = list[k].mask.count() == least
	}
	return list
}

// merge combines the hints of all resources into the best one, and says whether the policy admits the pod with it.
//
// The kubelet goes through all combinations, one hint of each resource, and keeps the better of
// two. The result does not depend on the order, so that it can be had without the product, which
// has 255^5 members on 8 nodes:
//
// A combination is preferred only where all sets are equal and preferred. The narrowest set that
// all resources have as a preferred hint is therefore the best, if there is one. If not, no
// combination is preferred. What a combination comes to is an intersection; with c the size that
// the most demanding resource needs at least, intersections of size c win over smaller ones, the
// larger of these over the lesser, and all of them over those larger than c, of which the narrowest
// is best.
func merge(policy string, all nodeMask, resources [][]hint) (best hint, admitted bool) {
	worst := hint{mask: all}
	if policy == singleNUMANode {
		all := resources
		resources = nil
		for _, r := range all {
			resources = append(resources, slices.DeleteFunc(slices.Clone(r), func(t hint) bool {
				return !t.preferred || !t.any && t.mask.count() != 1
			}))
		}
	}
	needs := 0
	var intersections maskSet
	intersections[all] = true
	agreed := allMasks() // sets that all resources so far have as preferred hints
	preferred, careless := true, true
	for _, r := range resources {
		if len(r) == 0 {
			return worst, policy == bestEffort // no combination at all
		}
		var narrowest nodeMask
		var mine, next maskSet
		dontCare, cares := false, false
		for _, t := range r {
			for m, there := range intersections {
				if there && t.any {
					next[m] = true
				} else if there {
					next[nodeMask(m)&t.mask] = true
				}
			}
			switch {
			case t.any:
				dontCare = dontCare || t.preferred
				continue
			case narrowest == 0 || t.mask.narrower(narrowest):
				narrowest = t.mask
			}
			mine[t.mask] = mine[t.mask] || t.preferred
			cares = cares || t.preferred
		}
		intersections = next
		needs = max(needs, narrowest.count())
		preferred = preferred && (dontCare || cares)
		if !dontCare {
			careless = false
			for m := range agreed {
				agreed[m] = agreed[m] && mine[m]
			}
		}
	}
	best = worst
	found := false
	if preferred && careless {
		best, found = hint{mask: all, preferred: true}, true
	} else if preferred {
		for m, there := range agreed {
			if there && (!found || nodeMask(m).narrower(best.mask)) {
				best, found = hint{mask: nodeMask(m), preferred: true}, true
			}
		}
	}
	if !found {
		for m, there := range intersections {
			if there && m != 0 && (!found || better(nodeMask(m), best.mask, needs)) {
				best, found = hint{mask: nodeMask(m)}, true
			}
		}
	}
	if policy == singleNUMANode && best.mask == all {
		best.any = true // on a machine of one node there is nothing to align
	}
	return best, policy == bestEffort || best.preferred
}

// A maskSet is a set of sets of NUMA nodes.
type maskSet [1 << maxKubeletNodes]bool

func allMasks() maskSet {
	var s maskSet
	for m := 1; m < len(s); m++ {
		s[m] = true
	}
	return s
}

// better says whether a is a better set than b among those that are not preferred, where the most
// demanding resource needs so many nodes.
func better(a, b nodeMask, needs int) bool {
	x, y := a.count(), b.count()
	if x <= needs && y <= needs && x != y {
		return x > y
	}
	return a.narrower(b)
}

// pod places request i as a guaranteed pod.
func (h *host) pod(i int, policy string) error {
	r := &h.p.Requests[i]
	t := h.cpuTopology()
	need := max(r.VCPUs, r.Cores*t.perCore())
	if need%t.perCore() != 0 {
		return fmt.Errorf("SMTAlignmentError: requested %d cpus not multiple cpus per core = %d", need, t.perCore())
	}
	free := map[int]bool{}
	for _, c := range t {
		if h.free(c.id) {
			free[c.id] = true
		}
	}
	if len(free) < need {
		return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", need, len(free))
	}

	all := nodeMask(1)<<len(h.nodes) - 1
	ws := wants(r)
	var resources [][]hint
	for _, w := range ws {
		resources = append(resources, h.deviceHints(w, i))
	}
	resources = append(resources, h.cpuHints(t, free, need))
	if r.Pages > 0 {
		resources = append(resources, h.memoryHints(r.Pages))
	}
	best, admitted := merge(policy, all, resources)
	if !admitted {
		return errors.New("TopologyAffinityError: resources cannot be allocated with topology locality")
	}

	mask := best.mask
	if best.any {
		mask = all
	}
	var n plan.NodePlacement
	for _, w := range ws {
		if err := h.alignedDevices(&n, w, i, mask); err != nil {
			return err
		}
	}
	cpus := t.allocate(free, need, func(c cpu) bool { return mask.has(slices.Index(h.nodes, c.node)) })
	on, err := h.bookMemory(r.Pages, best)
	if err != nil {
		return err
	}
	return h.pin(n, i, cpus, on)
}

// cpuHints are the CPU manager's.
func (h *host) cpuHints(t cpuTopology, free map[int]bool, need int) []hint {
	total, left := make([]int64, len(h.nodes)), make([]int64, len(h.nodes))
	var of nodeMask
	for _, c := range t {
		k := slices.Index(h.nodes, c.node)
		of |= 1 << k
		total[k]++
		if free[c.id] {
			left[k]++
		}
	}
	return hints(of, of.count(), int64(need), over(total), over(left), nil)
}

// deviceHints are the device manager's for one resource.
func (h *host) deviceHints(w want, i int) []hint {
	total, left := make([]int64, len(h.nodes)), make([]int64, len(h.nodes))
	known, available := false, 0
	for _, d := range w.Any {
		units, all := h.left(w, d, i), 1
		if w.kind == wantVF {
			all = h.p.Devices[d].VFs
		}
		available += units
		if home := h.p.Devices[d].NUMANode; home != nil {
			known = true
			k := slices.Index(h.nodes, *home)
			total[k] += int64(all)
			left[k] += int64(units)
		}
	}
	switch {
	case !known:
		return []hint{{any: true, preferred: true}}
	case available < w.Count:
		return []hint{{any: true}}
	}
	list := hints(nodeMask(1)<<len(h.nodes)-1, len(h.nodes), int64(w.Count), over(total), over(left), nil)
	if len(list) == 0 {
		return []hint{{any: true}}
	}
	return list
}

// over sums amounts over a set of nodes.
func over(amounts []int64) func(nodeMask) int64 {
	return func(m nodeMask) int64 {
		var sum int64
		for k, a := range amounts {
			if m.has(k) {
				sum += a
			}
		}
		return sum
	}
}

// alignedDevices takes devices on the hint's nodes, then on others, then those without a NUMA node.
func (h *host) alignedDevices(n *plan.NodePlacement, w want, i int, mask nodeMask) error {
	var order [3][]int
	for _, d := range w.Any {
		switch home := h.p.Devices[d].NUMANode; {
		case home == nil:
			order[2] = append(order[2], d)
		case mask.has(slices.Index(h.nodes, *home)):
			order[0] = append(order[0], d)
		default:
			order[1] = append(order[1], d)
		}
	}
	return h.takeFirst(n, w, slices.Concat(order[:]...), w.Count, i)
}
