package rivals

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// float is a domain from virt-install, without cputune and numatune. The real threads wander, so cores are their
// expected share on each NUMA node under load, and memory is by first touch.
func (h *host) float(i int) error {
	n, err := h.byAddress(i)
	if err != nil {
		return err
	}
	r := &h.p.Requests[i]
	cores := h.spread(r)
	if len(cores) == 0 {
		return errors.New("no CPUs to run on")
	}
	if n.Memory, err = h.touch(r.Pages, cores, h.nodes); err != nil {
		return err
	}
	h.floats = append(h.floats, i)
	h.put(n, cores)
	return nil
}

// pinCPUs is the shortest recipe in guides: vCPU 0 to the first free CPU, vCPU 1 to the next.
func (h *host) pinCPUs(i int) error { return h.byHand(i, false) }

// pinCores pins sibling threads together, as better guides do.
func (h *host) pinCores(i int) error { return h.byHand(i, true) }

// byHand gives a lab node without guest siblings the first thread of each core, as in guides that turn SMT off.
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
			continue // a thread is in use
		}
		if r.Threads < smt {
			first := c.CPUs[:min(len(c.CPUs), r.Threads)]
			free = slices.DeleteFunc(free, func(cpu int) bool { return !slices.Contains(first, cpu) })
		}
		left = append(left, free...)
	}
	// As lscpu -e does.
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
	for _, c := range pins {
		h.user[c] = i
	}
	allowed := lists.Distinct(lists.Map(pins, func(c int) int { return h.p.Cores[h.coreOf[c]].NUMANode }))
	cores := h.round(i, pins)
	if n.Memory, err = h.touch(r.Pages, cores, allowed); err != nil {
		return err
	}
	h.put(n, cores)
	return nil
}
