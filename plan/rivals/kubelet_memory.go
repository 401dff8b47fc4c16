package rivals

import (
	"errors"
	"slices"
)

// A memoryNode is the memory manager's book on one NUMA node.
type memoryNode struct {
	total, free int64
	group       nodeMask // the nodes that serve pods together with this one; 0 before the first
}

// memoryHints are the memory manager's.
func (h *host) memoryHints(need int64) []hint {
	total, free := make([]int64, len(h.memory)), make([]int64, len(h.memory))
	for k, m := range h.memory {
		total[k], free[k] = m.total, m.free
	}
	list := hints(nodeMask(1)<<len(h.nodes)-1, len(h.nodes), need, over(total), over(free), h.groupFree)
	if len(list) == 0 {
		// The kubelet takes the lack of any hint for a resource that does not care; the pod fails
		// when memory is allocated.
		return []hint{{any: true, preferred: true}}
	}
	return list
}

// groupFree says whether the nodes of a set may serve a pod together: each has served nobody yet,
// or pods of exactly this set.
func (h *host) groupFree(m nodeMask) bool {
	for k := range h.memory {
		if g := h.memory[k].group; m.has(k) && g != 0 && g != m {
			return false
		}
	}
	return true
}

// bookMemory books pages by the merged hint, and returns the NUMA nodes that the pod may use.
func (h *host) bookMemory(pages int64, t hint) ([]int, error) {
	if pages == 0 {
		return h.nodes, nil
	}
	mask := t.mask
	var there int64
	for k, m := range h.memory {
		if mask.has(k) {
			there += m.free
		}
	}
	if t.any || there < pages || !h.groupFree(mask) {
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
		case found.mask == 0 && there >= pages && !t.any:
			return nil, errors.New("[memorymanager] preferred hint violates NUMA node allocation")
		case found.mask == 0:
			return nil, errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
		case t.preferred && !found.preferred:
			return nil, errors.New("[memorymanager] failed to find a preferred hint")
		case there >= pages && !t.any:
			// Enough memory, but a group of other pods is cut: the kubelet refuses here and does not look further.
			return nil, errors.New("[memorymanager] preferred hint violates NUMA node allocation")
		}
		mask = found.mask
	}
	var on []int
	for k := range h.memory {
		if !mask.has(k) {
			continue
		}
		m := &h.memory[k]
		m.group = mask
		got := min(pages, m.free)
		m.free -= got
		pages -= got
		on = append(on, h.nodes[k])
	}
	return slices.Clip(on), nil
}
