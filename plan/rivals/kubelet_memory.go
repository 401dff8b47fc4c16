package rivals

import (
	"errors"
)

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
