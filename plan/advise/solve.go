package advise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/search"
)

// A Solver is [search.Solve] with fixed options. They must limit the search, because up to [MaxDecisionSolves] or
// [MaxAdviceSolves] problems are solved and nothing here watches a clock.
type Solver func(context.Context, *plan.Problem) (*search.Result, error)

// These limits keep an explanation from taking many times as long as the plan.
const (
	MaxDecisionSolves = 48
	MaxAdviceSolves   = 32
)

type oracle struct {
	*plan.Layout
	ctx   context.Context
	p     *plan.Problem
	base  *search.Result
	solve Solver
	left  int
	err   error // no questions are asked after it
}

type answer int

const (
	solved     answer = iota
	impossible        // no placement keeps the rules
	notAsked          // or the search was stopped before it found a placement
)

// ask takes an expired deadline for an end without an error, because half an explanation is better than none.
func (o *oracle) ask(q *plan.Problem) (*search.Result, answer) {
	if !enough(q) {
		return nil, impossible
	}
	if o.left <= 0 || o.err != nil {
		return nil, notAsked
	}
	o.left--
	var r *search.Result
	err := o.ctx.Err()
	if err == nil {
		r, err = o.solve(o.ctx, q)
	}
	// search.ErrStopped may mean an expired deadline, after which no more is asked, or the limit of steps, after which
	// the next question may still succeed. Any other end of ctx is an interrupt by the user and an error.
	switch {
	case errors.Is(o.ctx.Err(), context.DeadlineExceeded):
		o.left = 0
	case errors.Is(err, search.ErrInfeasible):
		return nil, impossible
	case errors.Is(err, search.ErrStopped) && o.ctx.Err() == nil:
	case err != nil:
		o.err = fmt.Errorf("advise: solve a changed problem: %w", err)
	case o.ctx.Err() != nil:
		o.err = fmt.Errorf("advise: %w", o.ctx.Err())
	case r != nil && len(r.Placement.Nodes) == len(q.Requests):
		return r, solved
	}
	return nil, notAsked
}

// enough counts GPUs and NICs. A search may take long to find that out.
func enough(q *plan.Problem) bool {
	for k := range vfList {
		wants := lists.Flat(q.Requests, func(r plan.Request) []plan.Want { return *wantLists(&r)[k] })
		any := lists.Distinct(lists.Flat(wants, func(w plan.Want) []int { return w.Any }))
		if lists.Sum(wants, func(w plan.Want) int { return w.Count }) > len(any) {
			return false
		}
	}
	return true
}

func changed(p *plan.Problem) *plan.Problem { return deepCopy(p) }

func wantLists(r *plan.Request) []*[]plan.Want { return []*[]plan.Want{&r.GPUs, &r.NICs, &r.VFs} }

// vfList is an index in wantLists. A NIC may provide several virtual functions.
const vfList = 2

// forbid reports whether enough devices are left.
func forbid(r *plan.Request, device int) bool {
	enough := true
	for k, list := range wantLists(r) {
		for i := range *list {
			w := &(*list)[i]
			w.Any = slices.DeleteFunc(w.Any, func(d int) bool { return d == device })
			enough = enough && len(w.Any) > 0 && (k == vfList || len(w.Any) >= w.Count)
		}
	}
	return enough
}

// demand splits a want of several. A whole device is forbidden to all other requests, to spare the search the attempts.
func demand(q *plan.Problem, i, device int) bool {
	for k, list := range wantLists(&q.Requests[i]) {
		at := slices.IndexFunc(*list, func(w plan.Want) bool { return slices.Contains(w.Any, device) })
		if at < 0 {
			continue
		}
		w, whole := &(*list)[at], k != vfList
		if w.Count == 1 {
			w.Any = []int{device}
		} else {
			w.Count--
			if whole {
				w.Any = slices.DeleteFunc(w.Any, func(d int) bool { return d == device })
			}
			*list = append(*list, plan.Want{Count: 1, Any: []int{device}, Text: w.Text})
		}
		for j := range q.Requests {
			if whole && j != i {
				forbid(&q.Requests[j], device)
			}
		}
		return true
	}
	return false
}

// sameClass returns requests to change together: otherwise the search would just swap two of them at no cost.
func sameClass(p *plan.Problem, i int) []int {
	return lists.Where(p.Requests, func(r plan.Request) bool { return r.Class == p.Requests[i].Class })
}

// nicsOf has whole ones, then the NICs of virtual functions.
func nicsOf(n *plan.NodePlacement) []int {
	return append(slices.Clone(n.NICs), lists.Map(n.VFs, func(v plan.VFCount) int { return v.Device })...)
}

func placedDevices(n *plan.NodePlacement) []int { return append(slices.Clone(n.GPUs), nicsOf(n)...) }

// sameCard includes other ports of a card, which would not be a different choice.
func sameCard(p *plan.Problem, device int) []int {
	own := &p.Devices[device]
	return lists.Where(p.Devices, func(d plan.Device) bool {
		return d.Kind == own.Kind && cardKey(d.ID) == cardKey(own.ID)
	})
}

type alternative struct {
	placement *plan.Placement // nil unless found is solved
	cost      int64
	found     answer
	proved    bool // no alternative is cheaper
}

// otherDevices finds the best placement in which lab node i, or one of its class, does not have its present cards.
//
// With devices d1, d2, ... the alternatives are: no lab node of the class has d1; or, because lab nodes of a class are
// interchangeable, node i has d1 but not d2, or d1 and d2 but not d3, and so on.
func (o *oracle) otherDevices(i int) alternative {
	own := placedDevices(&o.base.Placement.Nodes[i])
	best := alternative{found: impossible}
	asked := true                 // all problems were answered
	least := int64(math.MaxInt64) // of the cost in all solved cases
	for k := range own {
		q, possible := o.losing(i, own[:k], own[k])
		if !possible {
			continue
		}
		r, a := o.ask(q)
		switch a {
		case notAsked:
			asked = false
		case solved:
			// A class of its own exempts the request from TermUnequal, so the bound of q also holds for p.
			least = min(least, r.Bound)
			if c := o.Cost(&r.Placement); best.placement == nil || c < best.cost {
				best = alternative{placement: &r.Placement, cost: c, found: solved}
			}
			if o.base.Optimal && best.cost <= o.base.Cost {
				best.proved = true // nothing can be cheaper
				return best
			}
		}
	}
	if best.placement == nil && !asked {
		best.found = notAsked
	}
	best.proved = asked && best.found == solved && best.cost == least
	return best
}

// losing takes the card from the whole class of lab node i if that keeps no devices; otherwise it gets a class of its
// own.
func (o *oracle) losing(i int, kept []int, lost int) (q *plan.Problem, possible bool) {
	q, possible = changed(o.p), true
	losers := sameClass(o.p, i)
	if len(kept) > 0 {
		if len(losers) > 1 {
			for _, r := range o.p.Requests {
				q.Requests[i].Class = max(q.Requests[i].Class, r.Class+1)
			}
		}
		losers = []int{i}
	}
	for _, device := range kept {
		possible = demand(q, i, device) && possible
	}
	for _, port := range sameCard(o.p, lost) {
		if slices.Contains(kept, port) {
			continue // the card's other port is kept
		}
		for _, j := range losers {
			possible = forbid(&q.Requests[j], port) && possible
		}
	}
	return q, possible
}
