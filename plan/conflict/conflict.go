// Package conflict says why a lab cannot be placed: which of its requests conflict with which facts
// of the host, and what would fit instead.
//
// It asks a solver, given as a function, about parts of the problem, and needs to know nothing of
// how that solver works.
package conflict

import (
	"context"
	"slices"
	"sort"

	"github.com/rackless/rackless/plan"
)

// Find finds out why a problem is infeasible. p has to be: the caller has proved it, and
// Find does not ask again. feasible says of other problems, all of them parts of p or p with
// less asked for, whether they can be met; its error means that it could not tell, by which the
// answer may be larger than need be, never wrong.
//
// The set of lab nodes is irreducible: without any one of them the rest can be met. It is looked
// for where the counts of cores, pages and devices alone do not go up first, then one lab node at a
// time, one of each class, and last by leaving lab nodes out one by one. Irreducible is not always
// the fewest: to try all sets would take a call for each of them. The parts of what is asked for
// and the facts of the host are found by the same leaving out.
//
// It calls feasible at most 256 + 4 times the number of requests. When that, or ctx, comes to an
// end it answers with what it has. The same problem and the same answers of feasible give the same
// Infeasible. An error is only ever that of ctx, when it was over before anything was known.
func Find(ctx context.Context, p *plan.Problem, feasible Feasible) (*plan.Infeasible, error) {
	c := &conflict{ctx: ctx, p: p, feasible: feasible, left: 256 + 4*len(p.Requests), minimal: true}
	for i := range p.Requests {
		c.all = append(c.all, i)
	}
	counted := countedClash(p)
	if counted == nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	c.findRequests(counted)
	c.findParts(counted)
	c.findFacts()
	return &plan.Infeasible{
		Schema: plan.InfeasibleSchema, Requests: c.demands(), Facts: append([]plan.Fact{}, c.facts...),
		Message: c.message(), Nearest: c.nearest(), Minimal: c.minimal,
	}, nil
}

// Feasible says whether a problem can be met. An error means that it could not tell.
type Feasible func(context.Context, *plan.Problem) (bool, error)

// A conflict is one being looked for. It is found in three steps, each of which narrows what the next asks
// about: which requests (set), what of them (parts), which facts of the host (facts).
type conflict struct {
	ctx      context.Context
	p        *plan.Problem
	feasible Feasible
	left     int   // calls of feasible
	all      []int // every request

	set     []int  // the requests of the conflict, ascending
	minimal bool   // no request of set can be left out
	drops   []edit // what has been found to play no part
	parts   parts
	facts   []plan.Fact
}

// parts are the parts of the requests that play a part in the conflict.
type parts struct {
	all      map[string]bool    // Demand constants
	not      map[[2]string]bool // lab node and Demand constant: not of this one
	affinity []int              // indexes of Problem.Affinity
	busy     bool               // packages that keep a core
}

// ask reports whether the requests in keep can be met after edits, and whether that is known. A
// question without requests is about the host alone and costs no call of the solver.
func (c *conflict) ask(keep []int, edits ...edit) (ok, known bool) {
	if len(keep) == 0 {
		return reserveFits(derive(c.p, keep, edits...)), true
	}
	if c.left <= 0 || c.ctx.Err() != nil {
		return false, false
	}
	c.left--
	ok, err := c.feasible(c.ctx, derive(c.p, keep, edits...))
	return ok, err == nil
}

// can reports that it is known that they can be met, cannot that it is known that they cannot.
func (c *conflict) can(keep []int, edits ...edit) bool {
	ok, known := c.ask(keep, edits...)
	return known && ok
}

func (c *conflict) cannot(keep []int, edits ...edit) bool {
	ok, known := c.ask(keep, edits...)
	return known && !ok
}

// freeCores counts the cores that no tenant holds, in all and by NUMA node.
func freeCores(p *plan.Problem) (free int, onNode map[int]int) {
	onNode = map[int]int{}
	for _, k := range p.Cores {
		if k.Tenant == "" {
			free++
			onNode[k.NUMANode]++
		}
	}
	return free, onNode
}

// reserveFits reports whether the host can keep what it has to, with no lab node on it. It needs no
// search: a busy package keeps a core only if it has one.
func reserveFits(p *plan.Problem) bool {
	free, onNode := freeCores(p)
	return free >= p.ReserveCores && !slices.ContainsFunc(p.NUMANodes, func(n plan.NUMANode) bool {
		return onNode[n.ID] < n.ReserveCores
	})
}

// findRequests finds a set of requests that cannot be met together, and none of which can be left out.
func (c *conflict) findRequests(counted *clash) {
	switch {
	case !reserveFits(c.p):
		c.set = nil
		return
	case counted != nil:
		c.set = counted.requests
	default:
		if c.set = c.single(); c.set != nil {
			return
		}
		// The shortest beginning that cannot be met, by halving: to ask for less is never harder.
		c.set = c.all[:1+sort.Search(len(c.all)-1, func(k int) bool { return c.cannot(c.all[:k+1]) })]
	}
	// Leave out one after another, for good where the rest still cannot be met. What is left is
	// irreducible. The last are tried first, so that those stay that come first in the lab.
	needed := map[int]bool{} // classes of which a member was needed: then the others are, because they can be swapped
	for k := len(c.set) - 1; k >= 0 && len(c.set) > 1; k-- {
		class := c.p.Requests[c.set[k]].Class
		if needed[class] {
			continue
		}
		rest := slices.Delete(slices.Clone(c.set), k, k+1)
		switch ok, known := c.ask(rest); {
		case !known:
			c.minimal = false
		case ok:
			needed[class] = true
		default:
			c.set = rest
		}
	}
}

// single returns a request that cannot be met even alone. It is the commonest conflict, and one call
// for each class finds it; of more than 64 classes the rest are left to the halving.
func (c *conflict) single() []int {
	tried := map[int]bool{}
	for i := range c.p.Requests {
		if class := c.p.Requests[i].Class; !tried[class] && len(tried) < 64 {
			tried[class] = true
			if c.cannot([]int{i}) {
				return []int{i}
			}
		}
	}
	return nil
}

// fewParts bounds the lab nodes of which the parts are tried one by one. Each costs up to six calls
// of the solver, and a message about more lab nodes than this names them together anyway.
const fewParts = 8

// findParts finds out what of the requests plays a part: it leaves out one thing after another, and
// what can be left out without ending the conflict plays none. The order decides which of several
// reasons is told. Cores come last, so that they are named where they alone explain it: everybody
// understands "too few cores", and threads or reserves are harder to see. What a count has proved is
// kept if anything is: it is the simplest reason.
func (c *conflict) findParts(counted *clash) {
	c.parts = parts{all: map[string]bool{}, not: map[[2]string]bool{}, busy: true}
	for k := range c.p.Affinity {
		if len(c.members(k)) > 1 && !c.drop(withoutAffinity(k)) {
			c.parts.affinity = append(c.parts.affinity, k)
		}
	}
	if c.drop(withoutBusy) {
		c.parts.busy = false
	}
	order := []string{plan.DemandSMT, plan.DemandMemory, plan.DemandVFs, plan.DemandNICs, plan.DemandGPUs,
		plan.DemandReserve, plan.DemandCores}
	if counted != nil { // what was counted is left out last
		first := slices.DeleteFunc(slices.Clone(order), func(what string) bool {
			return slices.Contains(counted.parts, what)
		})
		order = slices.DeleteFunc(order, func(what string) bool { return slices.Contains(first, what) })
		order = append(first, order...)
	}
	for _, what := range order {
		if c.asked(what) && !c.drop(without(what, nil)) {
			c.parts.all[what] = true
		}
	}
	if len(c.set) < 2 || len(c.set) > fewParts {
		return
	}
	for _, i := range c.set {
		r := &c.p.Requests[i]
		playing := 0
		for _, what := range order {
			if c.plays(r, what) {
				playing++
			}
		}
		for _, what := range order {
			// The last part stays, so that the message can say what the lab node is in the set for.
			if playing > 1 && c.plays(r, what) && c.drop(without(what, []string{r.Name})) {
				c.parts.not[[2]string{r.Name, what}] = true
				playing--
			}
		}
	}
}

// drop leaves something out for good if the conflict is there without it. An answer that is not known
// keeps it: the reason may then be longer than need be, but it stays true.
func (c *conflict) drop(e edit) bool {
	if c.cannot(c.set, append(slices.Clone(c.drops), e)...) {
		c.drops = append(c.drops, e)
		return true
	}
	return false
}

// asked reports whether any request of the conflict, or the host, asks for something.
func (c *conflict) asked(what string) bool {
	if what == plan.DemandReserve {
		return c.p.ReserveCores > 0 || slices.ContainsFunc(c.p.NUMANodes, func(n plan.NUMANode) bool {
			return n.ReserveCores > 0
		})
	}
	return slices.ContainsFunc(c.set, func(i int) bool { return amount(c.p, &c.p.Requests[i], what) > 0 })
}

// amount returns how much of something a request asks for, in the unit of the Demand constant. Only
// threads beyond the first count.
func amount(p *plan.Problem, r *plan.Request, what string) int64 {
	switch {
	case what == plan.DemandCores:
		return int64(r.Cores)
	case what == plan.DemandMemory:
		return r.Pages * int64(p.PageBytes)
	case what == plan.DemandSMT && r.Threads > 1:
		return int64(r.Threads)
	}
	var n int64
	for _, w := range wantsOf(r, what) {
		n += int64(w.Count)
	}
	return n
}

// wantsOf returns what a request asks for in devices of a kind.
func wantsOf(r *plan.Request, what string) []plan.Want {
	if list := wantList(r, what); list != nil {
		return *list
	}
	return nil
}

// wantList returns where a request keeps its wants of a kind, nil for what are no devices.
func wantList(r *plan.Request, what string) *[]plan.Want {
	switch what {
	case plan.DemandGPUs:
		return &r.GPUs
	case plan.DemandNICs:
		return &r.NICs
	case plan.DemandVFs:
		return &r.VFs
	}
	return nil
}
