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

// A Solver finds the best placement of a problem; it is [search.Solve] with options filled in. The
// options have to bound it: there is no clock here, and up to [MaxDecisionSolves] and
// [MaxAdviceSolves] problems are put to it.
type Solver func(context.Context, *plan.Problem) (*search.Result, error)

// How many changed problems are solved at most. A usual host with a few lab nodes stays far below. The
// bounds keep an explanation from taking many times as long as the plan.
const (
	MaxDecisionSolves = 48
	MaxAdviceSolves   = 32
)

// An oracle answers "what would it cost, if". It counts its questions.
type oracle struct {
	*plan.Layout
	ctx   context.Context
	p     *plan.Problem
	base  *search.Result
	solve Solver
	left  int
	err   error // of a search that went wrong, or a cancelled context; then nothing more is asked
}

// An answer is what came of a changed problem.
type answer int

const (
	solved     answer = iota
	impossible        // no placement keeps the rules
	notAsked          // no questions left, or the search was stopped before it found anything
)

// ask solves a changed problem. A deadline that has passed ends the questions and is no error: a
// plan with half an explanation is better than none.
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
	// The order matters. A search that ran into the deadline says "stopped", as one does that ran into its limit of
	// steps; after the first no more is asked, after the second the next question may well be answered. An interrupt
	// is neither: who pressed Ctrl-C wants no explanation.
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

// enough reports whether there are as many GPUs and NICs as are asked for. A search may take long
// to see that there are not.
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

// changed returns a copy of p that can be changed without changing p.
func changed(p *plan.Problem) *plan.Problem { return deepCopy(p) }

// wantLists returns the three lists of wants of a request.
func wantLists(r *plan.Request) []*[]plan.Want { return []*[]plan.Want{&r.GPUs, &r.NICs, &r.VFs} }

// vfList is the place of the virtual functions in wantLists. One NIC may give several of them.
const vfList = 2

// forbid takes a device out of all that a request would take. It reports whether the request can
// still be met by number.
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

// demand makes request i take a device: a want of several becomes one of this device alone and one
// of the rest. A device that is taken whole is forbidden to all other requests; this spares the
// search the attempts. It reports whether the request asks for such a device at all.
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

// likes returns the requests that can be swapped with request i, itself among them. A question about
// one of them is about all: with the change made for one alone, the answer would be that two of them
// change names, which costs nothing and says nothing.
func likes(p *plan.Problem, i int) []int {
	return lists.Where(p.Requests, func(r plan.Request) bool { return r.Class == p.Requests[i].Class })
}

// nicsOf returns the NICs that serve a lab node: whole ones, then those of virtual functions.
func nicsOf(n *plan.NodePlacement) []int {
	return append(slices.Clone(n.NICs), lists.Map(n.VFs, func(v plan.VFCount) int { return v.Device })...)
}

// placedDevices returns the devices of a lab node: GPUs, then NICs.
func placedDevices(n *plan.NodePlacement) []int { return append(slices.Clone(n.GPUs), nicsOf(n)...) }

// sameCard returns the devices that are functions of one card with a device, itself among them:
// another port of the card would be no other choice.
func sameCard(p *plan.Problem, device int) []int {
	own := &p.Devices[device]
	return lists.Where(p.Devices, func(d plan.Device) bool {
		return d.Kind == own.Kind && cardKey(d.ID) == cardKey(own.ID)
	})
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
// With devices d1, d2, ... a placement can differ in these cases: no lab node of the class has d1; or,
// since names do not matter, this one has d1 and not d2, or d1 and d2 and not d3, and so on. Each case
// is a problem of its own, and the best of their solutions is the runner-up.
func (o *oracle) otherDevices(i int) alternative {
	own := placedDevices(&o.base.Placement.Nodes[i])
	best := alternative{found: impossible}
	asked := true                 // all problems were answered
	least := int64(math.MaxInt64) // no placement of any of them costs less
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
			// A class of its own takes the request out of TermUnequal: the bound of q is one of p all the more.
			least = min(least, r.Bound)
			if c := o.Cost(&r.Placement); best.placement == nil || c < best.cost {
				best = alternative{placement: &r.Placement, cost: c, found: solved}
			}
			if o.base.Optimal && best.cost <= o.base.Cost {
				best.proved = true // nothing is cheaper than the optimum
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

// losing returns the problem in which lab node i keeps some devices and loses the card of another.
// If it keeps none, its whole class loses the card; else it gets a class of its own. It reports
// whether the requests can still be met by number.
func (o *oracle) losing(i int, kept []int, lost int) (q *plan.Problem, possible bool) {
	q, possible = changed(o.p), true
	losers := likes(o.p, i)
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
			continue // two ports of one card
		}
		for _, j := range losers {
			possible = forbid(&q.Requests[j], port) && possible
		}
	}
	return q, possible
}
