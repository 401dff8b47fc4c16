package rivals

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// floatAnywhere is libvirt for a domain as virt-install writes it: no cputune, no numatune.
func (h *host) floatAnywhere(i int) error { return h.float(i, h.nodes) }

// floatBalanced is Incus (and LXD, which it came from), where no vCPU is pinned: as many NUMA nodes
// as the vCPUs need, those with the fewest instances first. Size, free memory and devices do not count.
func (h *host) floatBalanced(i int) error {
	cpus := map[int]int{}
	for _, c := range h.p.Cores {
		if c.Tenant == "" {
			cpus[c.NUMANode] += len(c.CPUs)
		}
	}
	order := slices.DeleteFunc(slices.Clone(h.nodes), func(n int) bool { return cpus[n] == 0 })
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(h.instances[a], h.instances[b]) })
	need := h.p.Requests[i].VCPUs
	var nodes []int
	for _, n := range order {
		if need <= 0 {
			break
		}
		nodes = append(nodes, n)
		h.instances[n]++
		need -= cpus[n]
	}
	slices.Sort(nodes)
	return h.float(i, nodes)
}

// float places request i over NUMA nodes without pinning: an expected share of cores on each,
// memory by first touch. The real threads wander; what is costed is where they would be on average
// under load.
func (h *host) float(i int, nodes []int) error {
	n, err := h.byAddress(i)
	if err != nil {
		return err
	}
	r := &h.p.Requests[i]
	cores := h.spread(r, nodes)
	if len(cores) == 0 {
		return errors.New("no CPUs to run on")
	}
	if n.Memory, err = h.touch(r.Pages, cores, nodes); err != nil {
		return err
	}
	h.floats = append(h.floats, i)
	h.floatsOn = append(h.floatsOn, nodes)
	h.put(n, cores)
	return nil
}

// pinCPUs is the shortest recipe of the guides: vCPU 0 to the first free CPU, vCPU 1 to the next.
func (h *host) pinCPUs(i int) error { return h.byHand(i, false) }

// pinCores is the better guide: it pins siblings together.
func (h *host) pinCores(i int) error { return h.byHand(i, true) }

// byHand pins request i to the next CPUs in order. A lab node that shows no siblings to its guest takes
// the first thread of each core: so do the guides, which turn SMT off or leave the second list out.
func (h *host) byHand(i int, siblings bool) error {
	n, err := h.byAddress(i)
	if err != nil {
		return err
	}
	r, smt := &h.p.Requests[i], h.threads()
	var left []int
	for _, c := range h.p.Cores {
		free := slices.DeleteFunc(slices.Clone(c.CPUs), func(cpu int) bool { return !h.free(cpu) })
		if siblings && len(free) < len(c.CPUs) {
			continue // a thread of it is in use
		}
		if r.Threads < smt {
			first := c.CPUs[:min(len(c.CPUs), r.Threads)]
			free = slices.DeleteFunc(free, func(cpu int) bool { return !slices.Contains(first, cpu) })
		}
		left = append(left, free...)
	}
	// rank numbers cores by their first thread, as lscpu -e does.
	rank := func(cpu int) int {
		if siblings {
			return h.p.Cores[h.coreOf[cpu]].CPUs[0]
		}
		return cpu
	}
	slices.SortFunc(left, func(a, b int) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	if len(left) < r.VCPUs {
		return fmt.Errorf("%d CPUs are left, %d vCPUs to pin", len(left), r.VCPUs)
	}
	pins := left[:r.VCPUs]
	nodes := lists.Map(pins, func(c int) int { return h.p.Cores[h.coreOf[c]].NUMANode })
	return h.pin(n, i, pins, lists.Distinct(nodes))
}

// pin places request i on CPUs, with memory by first touch on the allowed NUMA nodes.
func (h *host) pin(n plan.NodePlacement, i int, cpus, allowed []int) error {
	for _, c := range cpus {
		h.user[c] = i
	}
	cores := h.round(i, cpus)
	var err error
	if n.Memory, err = h.touch(h.p.Requests[i].Pages, cores, allowed); err != nil {
		return err
	}
	h.put(n, cores)
	return nil
}
