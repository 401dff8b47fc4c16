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

	"github.com/rackless/rackless/internal/lists"
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
	c := newConflict(ctx, p, feasible)
	if c == nil {
		return nil, ctx.Err()
	}
	return &plan.Infeasible{
		Schema: plan.InfeasibleSchema, Requests: c.demands(), Facts: append([]plan.Fact{}, c.facts...),
		Message: c.message(), Nearest: c.nearest(), Minimal: c.minimal,
	}, nil
}

// newConflict finds a conflict; nil where ctx was over before anything was known.
func newConflict(ctx context.Context, p *plan.Problem, feasible Feasible) *conflict {
	c := &conflict{ctx: ctx, p: p, feasible: feasible, left: 256 + 4*len(p.Requests), minimal: true}
	for i := range p.Requests {
		c.all = append(c.all, i)
	}
	counted := countedClash(p)
	if counted == nil && ctx.Err() != nil {
		return nil
	}
	c.findRequests(counted)
	if counted != nil && slices.Equal(c.set, counted.Requests) {
		c.countedParts(counted)
	} else {
		c.findParts()
	}
	c.findFacts()
	return c
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
	noNUMA   bool               // what affinities say of NUMA nodes plays none
	noNIC    bool               // likewise of NICs
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
func (c *conflict) findRequests(counted *plan.Clash) {
	switch {
	case !reserveFits(c.p):
		c.set = nil
		return
	case counted != nil:
		c.set = counted.Requests
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

// allParts is the order in which parts are left out.
var allParts = []string{plan.DemandSMT, plan.DemandMemory, plan.DemandVFs, plan.DemandNICs, plan.DemandGPUs,
	plan.DemandReserve, plan.DemandCores}

// findParts finds out what of the requests plays a part: it leaves out one thing after another, and
// what can be left out without ending the conflict plays none. The order decides which of several
// reasons is told. Cores come last, so that they are named where they alone explain it: everybody
// understands "too few cores", and threads or reserves are harder to see.
//
// The rules about devices, cores and memory do not depend on each other. So those of one kind are in conflict by
// themselves, and the others are left out at once.
func (c *conflict) findParts() {
	c.parts = parts{all: map[string]bool{}, not: map[[2]string]bool{}, busy: true}
	gone := c.dropUnrelated()
	for k := range c.p.Affinity {
		if c.affinityText(k) != "" && len(c.members(k)) > 1 && !c.drop(withoutAffinity(k)) {
			c.parts.affinity = append(c.parts.affinity, k)
		}
	}
	c.parts.busy = c.parts.busy && !c.drop(withoutBusy)
	for _, what := range allParts {
		if !slices.Contains(gone, what) && c.asked(what) && !c.drop(without(what, nil)) {
			c.parts.all[what] = true
		}
	}
	if len(c.set) < 2 || len(c.set) > fewParts {
		return
	}
	for _, i := range c.set {
		r := &c.p.Requests[i]
		playing := lists.Count(allParts, func(what string) bool { return c.plays(r, what) })
		for _, what := range allParts {
			// The last part stays, so that the message can say what the lab node is in the set for.
			if playing > 1 && c.plays(r, what) && c.drop(without(what, []string{r.Name})) {
				c.parts.not[[2]string{r.Name, what}] = true
				playing--
			}
		}
	}
}

// countedParts takes over what was counted: it proves the conflict alone, and all else plays no part.
func (c *conflict) countedParts(counted *plan.Clash) {
	c.parts = parts{all: map[string]bool{}, not: map[[2]string]bool{}}
	c.drops = append(c.drops, withoutBusy)
	for k := range c.p.Affinity {
		if k != counted.Affinity {
			c.drops = append(c.drops, withoutAffinity(k))
		}
	}
	for _, what := range allParts {
		if !slices.Contains(counted.Parts, what) {
			c.drops = append(c.drops, without(what, nil))
		}
	}
	// With affinity several things were counted together, and some of them may be too few without it.
	if k := counted.Affinity; k >= 0 && !c.drop(withoutAffinity(k)) {
		c.parts.affinity = []int{k}
	}
	for _, what := range allParts {
		if slices.Contains(counted.Parts, what) && (counted.Affinity < 0 || !c.drop(without(what, nil))) {
			c.parts.all[what] = true
		}
	}
}

// dropUnrelated leaves out what cannot matter if devices, or else cores, are in conflict alone. It returns the demands.
func (c *conflict) dropUnrelated() (gone []string) {
	cores := []string{plan.DemandSMT, plan.DemandMemory, plan.DemandReserve, plan.DemandCores}
	devices := []string{plan.DemandGPUs, plan.DemandNICs, plan.DemandVFs, plan.DemandMemory}
	for _, gone := range [][]string{cores, devices} {
		byNIC := slices.Contains(gone, plan.DemandNICs)
		if c.drop(func(p *plan.Problem) {
			for _, what := range gone {
				without(what, nil)(p)
			}
			for k := range p.Affinity {
				if byNIC {
					p.Affinity[k].NIC = ""
				} else {
					p.Affinity[k].NUMA = ""
				}
			}
			if !byNIC {
				withoutBusy(p)
			}
		}) {
			c.parts.noNIC, c.parts.noNUMA, c.parts.busy = byNIC, !byNIC, byNIC
			return gone
		}
	}
	return nil
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
	if what == plan.DemandMemory && slices.ContainsFunc(c.p.NUMANodes, func(n plan.NUMANode) bool {
		return n.Pages == nil
	}) {
		return false // there is no end of it
	}
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
	return lists.Sum(wantsOf(r, what), func(w plan.Want) int64 { return int64(w.Count) })
}

// wantsOf returns what a request asks for in devices of a kind.
func wantsOf(r *plan.Request, what string) []plan.Want {
	list := wantList(r, what)
	if list == nil {
		return nil
	}
	return *list
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
