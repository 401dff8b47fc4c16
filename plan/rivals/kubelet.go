package rivals

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
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
	return system{
		Rival: Rival{"k8s-" + policy, "Kubernetes, Topology Manager " + policy},
		start: func(h *host) error {
			if len(h.nodes) > maxKubeletNodes {
				return fmt.Errorf("kubelet does not start: unsupported on machines with more than %d NUMA nodes, "+
					"this one has %d", maxKubeletNodes, len(h.nodes))
			}
			return nil
		},
		spread: true,
		place:  func(h *host, i int) error { return h.pod(i, policy) },
	}
}

// maxKubeletNodes is the kubelet's defaultMaxAllowableNUMANodes: hints are sets of nodes, 2^8 of them.
const maxKubeletNodes = 8

// A nodeMask is a set of NUMA nodes: bit i is host.nodes[i].
type nodeMask uint16

func (m nodeMask) count() int     { return bits.OnesCount16(uint16(m)) }
func (m nodeMask) has(i int) bool { return m>>i&1 != 0 }

// narrower is the kubelet's order of masks: fewer nodes, then the lower ones.
func (m nodeMask) narrower(than nodeMask) bool {
	return cmp.Or(cmp.Compare(m.count(), than.count()), cmp.Compare(m, than)) < 0
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

// hints makes the hints of a resource: total and free say how much each node has, on the empty machine
// and now. fits, if given, may refuse a set.
func hints(of nodeMask, need int64, total, free []int64, fits func(nodeMask) bool) []hint {
	least := of.count()
	list := []hint{}
	masks(of, func(m nodeMask) {
		if over(m, total) >= need {
			least = min(least, m.count())
		}
		if over(m, free) >= need && (fits == nil || fits(m)) {
			list = append(list, hint{mask: m})
		}
	})
	for k := range list {
		list[k].preferred = list[k].mask.count() == least
	}
	return list
}

// over sums amounts over a set of nodes.
func over(m nodeMask, amounts []int64) int64 {
	var sum int64
	for k, a := range amounts {
		if m.has(k) {
			sum += a
		}
	}
	return sum
}

// merge combines the hints of all resources into the best one, and says whether the policy admits the pod with it.
//
// The kubelet goes through all combinations, one hint of each resource, and keeps the better of
// two. The result does not depend on the order, so that it can be found without the product, which
// has 255^5 members on 8 nodes:
//
// A combination is preferred only where all sets are equal and preferred. The narrowest set that
// all resources have as a preferred hint is therefore the best, if there is one. If not, no
// combination is preferred, and the intersections decide.
func merge(policy string, all nodeMask, resources [][]hint) (best hint, admitted bool) {
	if policy == singleNUMANode {
		resources = slices.Clone(resources)
		for k, r := range resources {
			resources[k] = slices.DeleteFunc(slices.Clone(r), func(t hint) bool {
				return !t.preferred || !t.any && t.mask.count() != 1
			})
		}
	}
	if slices.ContainsFunc(resources, func(r []hint) bool { return len(r) == 0 }) {
		return hint{mask: all}, policy == bestEffort // no combination at all
	}
	if mask := agreed(all, resources); mask != 0 {
		best = hint{mask: mask, preferred: true}
	} else {
		best = hint{mask: cmp.Or(intersection(all, resources), all)}
	}
	if policy == singleNUMANode && best.mask == all {
		best.any = true // on a machine of one node there is nothing to align
	}
	return best, policy == bestEffort || best.preferred
}

// agreed returns the narrowest set that is a preferred hint of all resources that care: all nodes
// where none does, 0 if there is no such set.
func agreed(all nodeMask, resources [][]hint) (best nodeMask) {
	caring := slices.DeleteFunc(slices.Clone(resources), func(r []hint) bool {
		return slices.Contains(r, hint{any: true, preferred: true})
	})
	if len(caring) == 0 {
		return all
	}
	for _, t := range caring[0] {
		if !t.preferred || best != 0 && !t.mask.narrower(best) {
			continue
		}
		if !slices.ContainsFunc(caring, func(r []hint) bool { return !slices.Contains(r, t) }) {
			best = t.mask
		}
	}
	return best
}

// intersection returns the best intersection of one hint of each resource, 0 if all are empty.
// With c the number of nodes that the most demanding resource needs at least, intersections of c
// nodes win over smaller ones, the larger of these over the lesser, and all of them over those of
// more than c, of which the narrowest is best.
func intersection(all nodeMask, resources [][]hint) (best nodeMask) {
	var found [1 << maxKubeletNodes]bool // by nodeMask; at most 256, however many combinations there are
	found[all] = true
	needs := 0
	for _, r := range resources {
		var next [len(found)]bool
		least := 0
		for _, t := range r {
			mask := t.mask
			if t.any {
				mask = all
			} else if least == 0 || mask.count() < least {
				least = mask.count()
			}
			for m, there := range found {
				if there {
					next[nodeMask(m)&mask] = true
				}
			}
		}
		found = next
		needs = max(needs, least)
	}
	for m, there := range found {
		if there && m != 0 && (best == 0 || better(nodeMask(m), best, needs)) {
			best = nodeMask(m)
		}
	}
	return best
}

// better says whether a is a better set than b among those that are not preferred, where the most
// demanding resource needs so many nodes. Up to that size more is better: a set that is smaller than
// a resource needs makes it take the rest from anywhere.
func better(a, b nodeMask, needs int) bool {
	if x, y := a.count(), b.count(); x <= needs && y <= needs && x != y {
		return x > y
	}
	return a.narrower(b)
}

// pod places request i as a guaranteed pod: the only class of pods that gets CPUs of its own. The
// kubelet asks its managers for hints first, merges them, and has each allocate by the result.
func (h *host) pod(i int, policy string) error {
	r := &h.p.Requests[i]
	t := h.cpuTopology()
	// With full-pcpus-only a pod asks for whole cores: a lab node that shows no siblings to its guest pays for the
	// second threads too.
	need := max(r.VCPUs, r.Cores*t.perCore())
	if need%t.perCore() != 0 {
		return fmt.Errorf("SMTAlignmentError: requested %d cpus not multiple cpus per core = %d", need, t.perCore())
	}
	free := lists.SetOf(lists.Filter(t, func(c cpu) bool { return h.free(c.id) }), func(c cpu) int { return c.id })
	if len(free) < need {
		return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", need, len(free))
	}

	all := h.allNodes()
	ws := wants(r)
	resources := lists.Map(ws, func(w want) []hint { return h.deviceHints(w, i) })
	resources = append(resources, h.cpuHints(t, free, need))
	if r.Pages > 0 {
		resources = append(resources, h.memoryHints(r.Pages))
	}
	best, admitted := merge(policy, all, resources)
	if !admitted {
		return errors.New("TopologyAffinityError: resources cannot be allocated with topology locality")
	}

	mask := words.Either(best.any, all, best.mask)
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

// cpuHints are the CPU manager's. Reserved and held CPUs count for the empty machine, but not as free: a
// node half of which is reserved may make a larger set the smallest possible.
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
	return hints(of, int64(need), total, left, nil)
}

// deviceHints are the device manager's for one resource. Devices that tell no NUMA node make it not
// care; too few free ones give a hint without a set that no policy but best-effort admits.
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
	list := hints(h.allNodes(), int64(w.Count), total, left, nil)
	return words.Either(len(list) == 0, []hint{{any: true}}, list)
}

func (h *host) allNodes() nodeMask { return 1<<len(h.nodes) - 1 }

// alignedDevices takes devices on the hint's nodes, then on others, then those without a NUMA node. Only
// the plugin knows more (GetPreferredAllocation), and Kubernetes does not demand that it does.
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
	return h.takeFirst(n, w, slices.Concat(order[:]...), i)
}

// A cpu is a logical CPU with what it is part of.
type cpu struct{ id, core, socket, node int }

// A cpuTopology is what the CPU manager knows of the machine: all CPUs, reserved ones as well.
type cpuTopology []cpu

// cpuTopology makes the CPU manager's view. If packages are not known, each NUMA node counts as one.
func (h *host) cpuTopology() cpuTopology {
	unknown := slices.ContainsFunc(h.p.Cores, func(c plan.Core) bool { return c.Package < 0 })
	var t cpuTopology
	for _, c := range h.p.Cores {
		socket := words.Either(unknown, c.NUMANode, c.Package)
		for _, id := range c.CPUs {
			t = append(t, cpu{id, c.ID, socket, c.NUMANode})
		}
	}
	slices.SortFunc(t, func(a, b cpu) int { return cmp.Compare(a.id, b.id) })
	return t
}

// A level groups CPUs.
type level func(cpu) int

func byCore(c cpu) int   { return c.core }
func bySocket(c cpu) int { return c.socket }
func byNode(c cpu) int   { return c.node }

// count counts CPUs by group, of those that free has; of all for nil.
func (t cpuTopology) count(by level, free map[int]bool) map[int]int {
	n := map[int]int{}
	for _, c := range t {
		if free == nil || free[c.id] {
			n[by(c)]++
		}
	}
	return n
}

// perCore and perSocket are averages, rounded down: the CPU manager takes all cores and all sockets for equal.
func (t cpuTopology) perCore() int { return max(1, len(t)/max(1, len(t.count(byCore, nil)))) }

// order sorts the free CPUs, so that parts of the machine that are broken already are used up before
// others are broken: by groups of the first level, the ones with the fewest free CPUs
// first, then the lowest; inside each by the next level. The last level is the CPU's number.
func (t cpuTopology) order(free map[int]bool, levels ...level) []cpu {
	list := lists.Filter(t, func(c cpu) bool { return free[c.id] })
	counts := make([]map[int]int, len(levels))
	for k, by := range levels {
		counts[k] = t.count(by, free)
	}
	slices.SortStableFunc(list, func(a, b cpu) int {
		for k, by := range levels {
			x, y := by(a), by(b)
			if d := cmp.Or(cmp.Compare(counts[k][x], counts[k][y]), cmp.Compare(x, y)); d != 0 {
				return d
			}
		}
		return cmp.Compare(a.id, b.id)
	})
	return list
}

// packed takes n of the free CPUs, as few parts of the machine as possible broken:
// takeByTopologyNUMAPacked. It returns them ascending; nil if there are too few.
func (t cpuTopology) packed(free map[int]bool, n int) []int {
	if n == 0 || len(free) < n {
		return nil
	}
	// What is higher goes first: a NUMA node that holds sockets, or a socket that holds NUMA nodes.
	nodeSize := t.count(byNode, nil)
	high, highSize := level(bySocket), func(int) int { return len(t) / max(1, len(t.count(bySocket, nil))) }
	low, lowSize := level(byNode), func(g int) int { return nodeSize[g] }
	if len(t.count(bySocket, nil)) >= len(nodeSize) {
		high, low, highSize, lowSize = low, high, lowSize, highSize
	}
	left := maps.Clone(free)
	var got []int
	// whole takes groups that are free as a whole and not larger than what is still needed. size is
	// what a whole group has.
	whole := func(by level, size func(group int) int, levels ...level) {
		have := t.count(by, left)
		var groups []int
		for _, c := range t.order(left, levels...) {
			groups = lists.Add(groups, by(c))
		}
		for _, g := range groups {
			if have[g] != size(g) || have[g] > n-len(got) {
				continue
			}
			for _, c := range t {
				if by(c) == g && left[c.id] {
					got = append(got, c.id)
					delete(left, c.id)
				}
			}
		}
	}
	whole(high, highSize, high)
	whole(low, lowSize, high, low)
	whole(byCore, func(int) int { return t.perCore() }, high, low, byCore)
	for _, c := range t.order(left, high, low, byCore) {
		if len(got) == n {
			break
		}
		got = append(got, c.id)
	}
	slices.Sort(got)
	return got
}

// allocate takes n of the free CPUs, aligned ones first: allocateCPUs of the static policy. What is
// taken from the rest is packed by itself, so that a core may be broken on each side.
func (t cpuTopology) allocate(free map[int]bool, n int, aligned func(cpu) bool) []int {
	near := lists.SetOf(lists.Filter(t, func(c cpu) bool { return free[c.id] && aligned(c) }),
		func(c cpu) int { return c.id })
	got := t.packed(near, min(n, len(near)))
	rest := maps.Clone(free)
	for _, id := range got {
		delete(rest, id)
	}
	return append(got, t.packed(rest, n-len(got))...)
}

// memoryHints are the memory manager's. Its preference is by what the empty machine has, as for CPUs, but
// sets that cut a group of other pods are no hints at all.
func (h *host) memoryHints(need int64) []hint {
	list := hints(h.allNodes(), need, h.total, h.unbooked, h.groupFree)
	if len(list) == 0 {
		// The kubelet takes the lack of any hint for a resource that does not care; the pod fails
		// when memory is allocated.
		return []hint{{any: true, preferred: true}}
	}
	return list
}

// groupFree says whether the nodes of a set may serve a pod together: each has served no pod yet,
// or pods of exactly this set.
func (h *host) groupFree(m nodeMask) bool {
	for k, g := range h.groups {
		if m.has(k) && g != 0 && g != m {
			return false
		}
	}
	return true
}

// bookMemory books pages by the merged hint, and returns the NUMA nodes that the pod may use. The hint
// was merged with those of other resources, so that its set may be smaller than the memory needs; the
// errors are the kubelet's own.
func (h *host) bookMemory(pages int64, t hint) ([]int, error) {
	if pages == 0 {
		return h.nodes, nil
	}
	mask := t.mask
	enough := !t.any && over(mask, h.unbooked) >= pages
	// The kubelet gives no hint of a single node that a group has, but takes one that others have led to.
	if !enough || mask.count() > 1 && !h.groupFree(mask) {
		// Too small a set, as after merging with another resource: the smallest that includes it and will do.
		var found hint
		for _, o := range h.memoryHints(pages) {
			inside := t.any || mask&^o.mask == 0
			if !o.any && inside && (found.mask == 0 || o.preferred && !found.preferred ||
				o.preferred == found.preferred && o.mask.narrower(found.mask)) {
				found = o
			}
		}
		switch {
		case enough && (found.mask == 0 || found.preferred || !t.preferred):
			// Enough memory, but a group of other pods is cut: the kubelet refuses here and does not look further.
			return nil, errors.New("[memorymanager] preferred hint violates NUMA node allocation")
		case found.mask == 0:
			return nil, errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
		case t.preferred && !found.preferred:
			return nil, errors.New("[memorymanager] failed to find a preferred hint")
		}
		mask = found.mask
	}
	var on []int
	for k, node := range h.nodes {
		if !mask.has(k) {
			continue
		}
		h.groups[k] = mask
		booked := min(pages, h.unbooked[k])
		h.unbooked[k] -= booked
		pages -= booked
		on = append(on, node)
	}
	return on, nil
}
