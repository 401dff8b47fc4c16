package advise

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/search"
)

// A Solver finds the best placement of a problem; it is [search.Solve] with options filled in. The
// options have to bound it: there is no clock here, and up to [MaxDecisionSolves] and
// [MaxAdviceSolves] problems are put to it.
type Solver func(context.Context, *plan.Problem) (*search.Result, error)

// How many changed problems are solved at most. A usual host with a few lab nodes stays far below.
const (
	MaxDecisionSolves = 48
	MaxAdviceSolves   = 32
)

// An oracle answers "what would it cost, if". It counts its questions.
type oracle struct {
	ctx   context.Context
	p     *plan.Problem
	base  *search.Result
	solve Solver
	left  int
}

// An answer is what came of a changed problem.
type answer int

const (
	solved     answer = iota
	impossible        // no placement keeps the rules
	notAsked          // no questions left, or the search was stopped before it found anything
)

// ask solves a changed problem. The error is that of a search that went wrong, or of a cancelled
// context. A deadline that has passed ends the questions and is no error: a plan with half an
// explanation is better than none.
func (o *oracle) ask(q *plan.Problem) (*search.Result, answer, error) {
	if !enough(q) {
		return nil, impossible, nil
	}
	if o.left <= 0 {
		return nil, notAsked, nil
	}
	o.left--
	var r *search.Result
	err := o.ctx.Err()
	if err == nil {
		r, err = o.solve(o.ctx, q)
	}
	switch {
	case errors.Is(o.ctx.Err(), context.DeadlineExceeded):
		o.left = 0
		return nil, notAsked, nil
	case errors.Is(err, search.ErrInfeasible):
		return nil, impossible, nil
	case errors.Is(err, search.ErrStopped) && o.ctx.Err() == nil:
		return nil, notAsked, nil
	case err != nil:
		return nil, notAsked, fmt.Errorf("advise: solve a changed problem: %w", err)
	case o.ctx.Err() != nil:
		return nil, notAsked, fmt.Errorf("advise: %w", o.ctx.Err())
	case r == nil || len(r.Placement.Nodes) != len(q.Requests):
		return nil, notAsked, nil
	}
	return r, solved, nil
}

// enough reports whether there are as many GPUs and NICs as are asked for. A search may take long
// to see that there are not.
func enough(q *plan.Problem) bool {
	for k := range 2 { // GPUs, NICs; virtual functions are many to a NIC
		asked, any := 0, map[int]bool{}
		for i := range q.Requests {
			for _, w := range *wantLists(&q.Requests[i])[k] {
				asked += w.Count
				for _, d := range w.Any {
					any[d] = true
				}
			}
		}
		if asked > len(any) {
			return false
		}
	}
	return true
}

// cost returns what a placement costs under the problem as it is.
func (o *oracle) cost(pl *plan.Placement) int64 { return plan.Cost(plan.Evaluate(o.p, pl)) }

// changed returns a copy of p whose requests can be changed without changing p. All else is shared.
func changed(p *plan.Problem) *plan.Problem {
	q := *p
	q.Requests = slices.Clone(p.Requests)
	for i := range q.Requests {
		r := &q.Requests[i]
		r.GPUs, r.NICs, r.VFs = cloneWants(r.GPUs), cloneWants(r.NICs), cloneWants(r.VFs)
	}
	return &q
}

func cloneWants(wants []plan.Want) []plan.Want {
	wants = slices.Clone(wants)
	for i := range wants {
		wants[i].Any = slices.Clone(wants[i].Any)
	}
	return wants
}

// wantLists returns the three lists of wants of a request.
func wantLists(r *plan.Request) []*[]plan.Want { return []*[]plan.Want{&r.GPUs, &r.NICs, &r.VFs} }

// forbid takes a device out of all that a request would take. It reports whether the request can
// still be met by number.
func forbid(r *plan.Request, device int) bool {
	enough := true
	for k, list := range wantLists(r) {
		for i := range *list {
			w := &(*list)[i]
			w.Any = slices.DeleteFunc(w.Any, func(d int) bool { return d == device })
			// One NIC may give several virtual functions.
			enough = enough && len(w.Any) > 0 && (k == 2 || len(w.Any) >= w.Count)
		}
	}
	return enough
}

// demand makes request i take a device: a want of several becomes one of this device alone and one
// of the rest. Where it takes the whole device, nobody else can have it, and saying so spares the
// search the attempts. It reports whether the request asks for such a device at all.
func demand(q *plan.Problem, i, device int) bool {
	const vfs = 2 // in wantLists
	for k, list := range wantLists(&q.Requests[i]) {
		at := slices.IndexFunc(*list, func(w plan.Want) bool { return slices.Contains(w.Any, device) })
		if at < 0 {
			continue
		}
		w := &(*list)[at]
		if w.Count == 1 {
			w.Any = []int{device}
		} else {
			w.Count--
			if k != vfs {
				w.Any = slices.DeleteFunc(w.Any, func(d int) bool { return d == device })
			}
			*list = append(*list, plan.Want{Count: 1, Any: []int{device}, Text: w.Text})
		}
		if k != vfs {
			for j := range q.Requests {
				if j != i {
					forbid(&q.Requests[j], device)
				}
			}
		}
		return true
	}
	return false
}

// likes returns the requests that can be swapped with request i, itself among them.
func likes(p *plan.Problem, i int) []int {
	var all []int
	for j := range p.Requests {
		if p.Requests[j].Class == p.Requests[i].Class {
			all = append(all, j)
		}
	}
	return all
}

// single gives request i a class of its own.
func single(q *plan.Problem, i int) {
	next := 0
	for j := range q.Requests {
		next = max(next, q.Requests[j].Class+1)
	}
	q.Requests[i].Class = next
}

// placedDevices returns the devices of a lab node: GPUs, NICs, then each NIC of virtual functions
// that is not among them.
func placedDevices(n *plan.NodePlacement) []int {
	all := append(slices.Clone(n.GPUs), n.NICs...)
	for _, v := range n.VFs {
		if !slices.Contains(all, v.Device) {
			all = append(all, v.Device)
		}
	}
	return all
}

// sameCard returns the devices that are functions of one card with a device, itself among them:
// another port of the card would be no other choice.
func sameCard(p *plan.Problem, device int) []int {
	var all []int
	for i := range p.Devices {
		if p.Devices[i].Kind == p.Devices[device].Kind && cardKey(p.Devices[i].ID) == cardKey(p.Devices[device].ID) {
			all = append(all, i)
		}
	}
	return all
}

// An alternative is the best of what could be done instead.
type alternative struct {
	placement *plan.Placement // nil unless found is solved
	cost      int64
	found     answer
	proved    bool // there is none cheaper
}

// otherDevices finds the best placement in which lab node i, or one that it can be swapped with,
// does not have the cards that it has.
//
// With devices d1, d2, ... there are these ways to differ: nobody of the class has d1; or, as names
// do not matter, this one has d1 and not d2, or d1 and d2 and not d3, and so on. Each is a problem
// of its own, and the best of their solutions is the runner-up.
func (o *oracle) otherDevices(i int) (alternative, error) {
	own := placedDevices(&o.base.Placement.Nodes[i])
	class := likes(o.p, i)
	best := alternative{found: impossible}
	asked := true      // every way that there is
	least := int64(-1) // no placement of any way costs less
	for k, d := range own {
		q := changed(o.p)
		ok := true
		losers := []int{i}
		if k == 0 {
			losers = class
		}
		if k > 0 && len(class) > 1 {
			single(q, i)
		}
		for _, kept := range own[:k] {
			ok = demand(q, i, kept) && ok
		}
		for _, port := range sameCard(o.p, d) {
			if slices.Contains(own[:k], port) {
				continue // two ports of one card
			}
			for _, j := range losers {
				ok = forbid(&q.Requests[j], port) && ok
			}
		}
		if !ok {
			continue
		}
		r, a, err := o.ask(q)
		if err != nil {
			return alternative{}, err
		}
		switch a {
		case notAsked:
			asked = false
		case solved:
			// A class of its own takes the request out of TermUnequal: the bound of q is one of p all the more.
			if least < 0 || r.Bound < least {
				least = r.Bound
			}
			if c := o.cost(&r.Placement); best.placement == nil || c < best.cost {
				best.placement, best.cost, best.found = &r.Placement, c, solved
			}
			if o.base.Optimal && best.cost <= o.base.Cost {
				best.proved = true // nothing is cheaper than the optimum
				return best, nil
			}
		}
	}
	if best.placement == nil && !asked {
		best.found = notAsked
	}
	best.proved = asked && best.found == solved && best.cost == least
	return best, nil
}
