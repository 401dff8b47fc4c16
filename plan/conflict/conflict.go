// Package conflict explains why a lab cannot be placed, and which smaller lab would fit. It does not depend on how the
// solver works.
package conflict

import (
	"context"
	"slices"
	"sort"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// Find explains why p is infeasible, which the caller must have proved. If feasible returns an error, the explanation
// may be larger than necessary, but never wrong.
//
// Without any one of the lab nodes, the rest can be placed. The set is not always the smallest, because trying all
// would take too many calls.
//
// Find calls feasible at most 256 + 4 times the number of requests. At this limit, or when ctx is done, it returns the
// result so far. The only possible error is that of ctx, if it is done before anything is known.
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

// newConflict returns nil if ctx was done before anything was known.
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

// Feasible reports whether a problem can be met. It returns an error if it could not tell.
type Feasible func(context.Context, *plan.Problem) (bool, error)

// A conflict has requests (set), their parts (parts), and facts of the host (facts), which narrow each other down.
type conflict struct {
	ctx      context.Context
	p        *plan.Problem
	feasible Feasible
	left     int // remaining calls of feasible
	all      []int

	set     []int // requests of the conflict, ascending
	minimal bool
	drops   []edit // edits that remove irrelevant parts
	parts   parts
	facts   []plan.Fact
}

// parts are the relevant ones.
type parts struct {
	all      map[string]bool    // by Demand constant
	not      map[[2]string]bool // lab node and Demand: exceptions from all
	affinity []int              // indexes of Problem.Affinity
	busy     bool               // packages that keep a core
	noNUMA   bool               // no affinities to NUMA nodes
	noNIC    bool               // affinities to NICs are irrelevant
}

// ask checks the host alone if keep is empty.
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

// can and cannot are about known answers.
func (c *conflict) can(keep []int, edits ...edit) bool {
	ok, known := c.ask(keep, edits...)
	return known && ok
}

func (c *conflict) cannot(keep []int, edits ...edit) bool {
	ok, known := c.ask(keep, edits...)
	return known && !ok
}

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

// reserveFits needs no search, because a busy package without a free core keeps none.
func reserveFits(p *plan.Problem) bool {
	free, onNode := freeCores(p)
	return free >= p.ReserveCores && !slices.ContainsFunc(p.NUMANodes, func(n plan.NUMANode) bool {
		return onNode[n.ID] < n.ReserveCores
	})
}

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
		// The shortest infeasible prefix: a shorter one is never harder to meet.
		c.set = c.all[:1+sort.Search(len(c.all)-1, func(k int) bool { return c.cannot(c.all[:k+1]) })]
	}
	// The result is irreducible. Going backwards keeps the first requests of the lab.
	needed := map[int]bool{} // all other members are needed too
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

// single tries at most 64 classes for the most common conflict.
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

// fewParts: each lab node costs up to six calls of the solver.
const fewParts = 8

var allParts = []string{plan.DemandSMT, plan.DemandMemory, plan.DemandVFs, plan.DemandNICs, plan.DemandGPUs,
	plan.DemandReserve, plan.DemandCores}

// findParts leaves out a part if the conflict remains without it. The order decides which of several reasons is
// reported. Cores come last: "too few cores" is easier to understand than threads or reserves.
//
// The rules about devices, cores and memory are independent, so one of these groups alone is in conflict.
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
		playing := lists.Count(allParts, func(what string) bool { return c.isRelevant(r, what) })
		for _, what := range allParts {
			// The last part explains why the lab node is in the set.
			if playing > 1 && c.isRelevant(r, what) && c.drop(without(what, []string{r.Name})) {
				c.parts.not[[2]string{r.Name, what}] = true
				playing--
			}
		}
	}
}

// countedParts uses a clash found by counting, which proves the conflict alone.
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
	// Some parts may be too few even without the affinity.
	if k := counted.Affinity; k >= 0 && !c.drop(withoutAffinity(k)) {
		c.parts.affinity = []int{k}
	}
	for _, what := range allParts {
		if slices.Contains(counted.Parts, what) && (counted.Affinity < 0 || !c.drop(without(what, nil))) {
			c.parts.all[what] = true
		}
	}
}

// dropUnrelated returns the irrelevant demands if devices alone, or else cores alone, are in conflict.
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

// drop applies an edit if the conflict is known to remain, so that the reason stays true.
func (c *conflict) drop(e edit) bool {
	if c.cannot(c.set, append(slices.Clone(c.drops), e)...) {
		c.drops = append(c.drops, e)
		return true
	}
	return false
}

func (c *conflict) asked(what string) bool {
	if what == plan.DemandMemory && slices.ContainsFunc(c.p.NUMANodes, func(n plan.NUMANode) bool {
		return n.Pages == nil
	}) {
		return false // memory is unlimited
	}
	if what == plan.DemandReserve {
		return c.p.ReserveCores > 0 || slices.ContainsFunc(c.p.NUMANodes, func(n plan.NUMANode) bool {
			return n.ReserveCores > 0
		})
	}
	return slices.ContainsFunc(c.set, func(i int) bool { return amount(c.p, &c.p.Requests[i], what) > 0 })
}

// amount is in the unit of the Demand; for DemandSMT 0 with one thread per core.
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

func wantsOf(r *plan.Request, what string) []plan.Want {
	list := wantList(r, what)
	if list == nil {
		return nil
	}
	return *list
}

// wantList returns nil if the demand is not for devices.
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
