package advise

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/search"
)

// MaxAdvice limits the pieces of advice. Users would not act on more.
const MaxAdvice = 8

// Advice tries changes of the host and reports the ones that lower the cost, the best first, one for each thing.
//
// A gain is certain: it is r.Bound, a lower bound on the cost of the unchanged host, minus the cost of a placement that
// was found. At most [MaxAdviceSolves] problems are solved.
func Advice(ctx context.Context, p *plan.Problem, h *topology.Host, r *search.Result,
	solve Solver) ([]plan.Advice, error) {
	if len(r.Placement.Nodes) != len(p.Requests) {
		return nil, fmt.Errorf("advise: a placement of %d lab nodes for a problem of %d", len(r.Placement.Nodes),
			len(p.Requests))
	}
	a := &advisor{
		oracle: oracle{Layout: plan.NewLayout(p), ctx: ctx, p: p, base: r, solve: solve, left: MaxAdviceSolves},
		host:   h, terms: plan.Evaluate(p, &r.Placement),
	}
	if r.Bound <= 0 {
		return nil, nil
	}
	// Free changes are tried before the limit is reached.
	a.ports()
	a.virtualFunctions()
	a.reserve()
	a.memory()
	a.groups()
	a.cards()
	type gained struct {
		plan.Advice
		key string
	}
	var all []gained
	for _, c := range a.changes {
		found, verdict := a.ask(c.problem)
		if a.err != nil {
			return nil, a.err
		}
		if verdict != solved {
			continue
		}
		after := plan.Evaluate(c.problem, &found.Placement)
		gain := r.Bound - plan.Cost(after)
		if gain <= 0 {
			continue // not a certain gain
		}
		why := a.effect(c.problem, &found.Placement, after)
		if c.note != "" {
			why += "; " + c.note
		}
		all = append(all, gained{plan.Advice{What: c.what, Gain: gain, Why: why}, c.key})
	}
	// Among changes of equal gain the one proposed first is easier.
	slices.SortStableFunc(all, func(x, y gained) int { return cmp.Compare(y.Gain, x.Gain) })
	var out []plan.Advice
	seen := map[string]bool{}
	for _, g := range all {
		if !seen[g.key] && len(out) < MaxAdvice {
			seen[g.key] = true
			out = append(out, g.Advice)
		}
	}
	return out, nil
}

type advisor struct {
	oracle
	host  *topology.Host
	terms []plan.Term

	changes []change
}

func (a *advisor) propose(q *plan.Problem, what, note, key string) {
	a.changes = append(a.changes, change{q, what, note, key})
}

type change struct {
	problem *plan.Problem
	what    string
	note    string
	key     string // only the best change to each is reported
}

// effect describes the GPU-NIC paths that improve, or else the term that falls most. People understand path classes
// better than costs.
func (a *advisor) effect(q *plan.Problem, pl *plan.Placement, after []plan.Term) string {
	var paths []string
	for i := range a.p.Requests {
		was, is := worstPath(a.p, &a.base.Placement.Nodes[i]), worstPath(q, &pl.Nodes[i])
		if was != nil && is != nil && is.Steps < was.Steps {
			paths = append(paths, fmt.Sprintf("GPU-NIC path of %s from %s to %s", a.p.Requests[i].Name, was.Class,
				is.Class))
		}
	}
	if len(paths) > 3 {
		paths = append(paths[:3], fmt.Sprintf("%d more", len(paths)-3))
	}
	if len(paths) > 0 {
		return words.List(paths)
	}
	if falls := termChanges(a.terms, after); len(falls) > 0 && falls[0].after < falls[0].before {
		return falls[0].String()
	}
	return "several terms together"
}

// worstPath is to the best NIC of each GPU, or nil.
func worstPath(p *plan.Problem, n *plan.NodePlacement) *plan.PairPath {
	var worst *plan.PairPath
	for _, g := range n.GPUs {
		var best *plan.PairPath
		for _, k := range nicsOf(n) {
			if q := p.Path(g, k); q != nil && (best == nil || q.Steps < best.Steps) {
				best = q
			}
		}
		if best != nil && (worst == nil || best.Steps > worst.Steps) {
			worst = best
		}
	}
	return worst
}

// ports needs another NIC of the same model: otherwise the rate would be a guess.
func (a *advisor) ports() {
	for i := range a.p.Devices {
		d := &a.p.Devices[i]
		if d.Kind != plan.KindNIC || d.RateMbps != 0 || d.RateUnknown || !d.Whole && d.VFs == 0 || !wanted(a.p, i) {
			continue
		}
		var rate int64
		for _, o := range a.p.Devices {
			if o.Kind == plan.KindNIC && o.Model == d.Model && o.Model != "" {
				rate = max(rate, o.RateMbps)
			}
		}
		if rate == 0 {
			continue
		}
		q := changed(a.p)
		q.Devices[i].RateMbps = rate
		a.propose(q, fmt.Sprintf("turn up the link of NIC %s", d.ID),
			fmt.Sprintf("taken to come up at %d Gb/s, as others of its model", rate/1000), "port "+d.ID)
	}
}

func wanted(p *plan.Problem, device int) bool {
	return slices.ContainsFunc(p.Requests, func(r plan.Request) bool {
		takes := func(w plan.Want) bool { return slices.Contains(w.Any, device) }
		return slices.ContainsFunc(slices.Concat(r.GPUs, r.NICs, r.VFs), takes)
	})
}

// virtualFunctions proposes as many as all lab nodes ask for together.
func (a *advisor) virtualFunctions() {
	used := map[int]int{}
	asked := 0
	for i := range a.base.Placement.Nodes {
		for _, v := range a.base.Placement.Nodes[i].VFs {
			used[v.Device] += v.Count
			asked += v.Count
		}
	}
	for i := range a.p.Devices {
		d := &a.p.Devices[i]
		if used[i] == 0 || used[i] < d.VFs || used[i] >= asked {
			continue
		}
		q := changed(a.p)
		more := &q.Devices[i]
		next := lists.Max(d.FreeVFs, func(v int) int { return v + 1 })
		for range asked - used[i] {
			more.FreeVFs = append(more.FreeVFs, next)
			next++
		}
		more.VFs = len(more.FreeVFs)
		a.propose(q, fmt.Sprintf("give NIC %s %s instead of %d", d.ID, words.Count(more.VFs, "virtual function"),
			d.VFs), "its firmware sets the most it may have: NUM_OF_VFS on ConnectX", "VFs "+d.ID)
	}
}

// reserve leaves out the whole host's: it decides only whether there is a plan, and the leftover cores are chosen last.
func (a *advisor) reserve() {
	for i := range a.p.NUMANodes {
		n := &a.p.NUMANodes[i]
		if n.ReserveCores < 1 {
			continue
		}
		q := changed(a.p)
		q.NUMANodes[i].ReserveCores--
		a.propose(q, fmt.Sprintf("keep %s of NUMA node %d for the host instead of %d", words.Count(n.ReserveCores-1,
			"core"), n.ID, n.ReserveCores), "host.reserve.numa_nodes in the lab file", fmt.Sprintf("reserve %d", n.ID))
	}
}

func (a *advisor) memory() {
	used := a.PagesUsed(&a.base.Placement)
	// A smaller size than the whole lab's would be arbitrary.
	most := lists.Sum(a.p.Requests, func(r plan.Request) int64 { return r.Pages })
	for i := range a.p.NUMANodes {
		n := &a.p.NUMANodes[i]
		if n.Pages == nil || *n.Pages-used[n.ID] > *n.Pages/8 {
			continue // more would not be used
		}
		q := changed(a.p)
		q.NUMANodes[i].Pages = &most
		a.propose(q, fmt.Sprintf("free or add memory on NUMA node %d, which has room for %s of the lab", n.ID,
			words.Exact(uint64(*n.Pages)*a.p.PageBytes)), "", fmt.Sprintf("memory %d", n.ID))
	}
}

// groups separates IOMMU groups. Functions of one card stay together, because they share a slot.
func (a *advisor) groups() {
	next := lists.Max(a.p.Devices, func(d plan.Device) int { return d.Bundle + 1 })
	seen := map[int]bool{}
	for i := range a.p.Devices {
		bundle := a.p.Devices[i].Bundle
		if seen[bundle] {
			continue
		}
		seen[bundle] = true
		cards := map[string]int{} // card to its new bundle
		q := changed(a.p)
		var names []string
		useful := false
		for j := range q.Devices {
			d := &q.Devices[j]
			if d.Bundle != bundle {
				continue
			}
			key := cardKey(d.ID)
			if _, ok := cards[key]; !ok {
				cards[key] = next + len(cards)
			}
			d.Bundle = cards[key]
			names = append(names, d.ID)
			useful = useful || wanted(a.p, j)
		}
		if len(cards) > 1 && useful {
			a.propose(q, fmt.Sprintf("let the IOMMU tell %s apart", words.List(names)),
				"ACS in the firmware's settings, or slots below other root ports", fmt.Sprintf("bundle %d", bundle))
		}
	}
}

// cardKey is the address with function 0, or the name.
func cardKey(id string) string {
	addr, err := topology.ParsePCIAddr(id)
	if err != nil {
		return id
	}
	addr.Function = 0
	return addr.String()
}

// cards moves NICs and then GPUs near the devices or cores that they work with: to a free slot, or in exchange for
// another card. NICs are easier to move; lab nodes with the most expensive devices come first because only
// [MaxAdviceSolves] changes are tried.
func (a *advisor) cards() {
	if in := a.host.System.InVM; in != nil && *in {
		return // no physical slots
	}
	type want struct {
		device, node int
		near         int // -1 for the cores
		cost         int64
	}
	var wants []want
	for i := range a.p.Requests {
		n := &a.base.Placement.Nodes[i]
		cost := costOf(a.terms, a.p.Requests[i].Name, placeTerms)
		if cost == 0 {
			continue
		}
		add := func(device, node, near int) {
			if home := a.p.Devices[device].NUMANode; home != nil && *home != node {
				wants = append(wants, want{device, node, near, cost})
			}
		}
		each := func(from, to []int) {
			for _, d := range from {
				for _, near := range to {
					if home := a.p.Devices[near].NUMANode; home != nil {
						add(d, *home, near)
					}
				}
			}
		}
		nics := nicsOf(n)
		each(nics, n.GPUs)
		each(n.GPUs, nics)
		each(n.GPUs, n.GPUs)
		for _, d := range placedDevices(n) {
			add(d, a.mainNode(n), -1)
		}
	}
	slices.SortStableFunc(wants, func(x, y want) int { return cmp.Compare(y.cost, x.cost) })
	for _, w := range wants {
		a.placesFor(w.device, w.node, w.near)
	}
}

var placeTerms = []string{plan.TermGPUNICPath, plan.TermGPUNICMeasured, plan.TermGPUGPUPath, plan.TermDeviceNearest,
	plan.TermDeviceDistance}

func (a *advisor) placesFor(device, node, near int) {
	d := &a.p.Devices[device]
	if !a.movable(device) {
		return
	}
	// Moving either of the two is the same change.
	key := []string{cardKey(d.ID)}
	if near >= 0 {
		key = append(key, cardKey(a.p.Devices[near].ID))
		slices.Sort(key)
	}
	add := func(m move, what, note string) {
		if slices.ContainsFunc(a.changes, func(c change) bool { return c.what == what }) {
			return
		}
		if q := a.relocated(m); q != nil {
			a.propose(q, what, note, strings.Join(key, " "))
		}
	}
	what := fmt.Sprintf("move %s to a slot of NUMA node %d", deviceName(d), node)
	to := move{device: d.ID, node: node}
	note := "the host does not show a free slot there"
	if port := a.freePort(d.ID, node, near); port != nil {
		to.below = &port.Address
		note = fmt.Sprintf("port %s has nothing below it", port.Address)
		if port.Link != nil && port.Link.MaxWidth != nil {
			note += " and " + words.Count(*port.Link.MaxWidth, "lane")
		}
	}
	add(to, what, note)
	for i := range a.p.Devices {
		o := &a.p.Devices[i]
		if o.NUMANode == nil || *o.NUMANode != node || cardKey(o.ID) == cardKey(d.ID) || !a.movable(i) {
			continue
		}
		add(move{device: d.ID, other: o.ID}, fmt.Sprintf("swap the slots of %s and %s", deviceName(d),
			deviceName(o)), "")
	}
}

// movable excludes cards that share an IOMMU group: there the group is the problem.
func (a *advisor) movable(device int) bool {
	d := &a.p.Devices[device]
	if !d.Whole && d.VFs == 0 {
		return false
	}
	tied := func(o plan.Device) bool { return o.Bundle == d.Bundle && cardKey(o.ID) != cardKey(d.ID) }
	integrated := func(g topology.GPU) bool { return g.ID() == d.ID && g.Kind == topology.GPUIntegrated }
	if slices.ContainsFunc(a.p.Devices, tied) || slices.ContainsFunc(a.host.GPUs, integrated) {
		return false
	}
	c := cardOf(a.host, d.ID)
	return c != nil && !c.linked(a.host)
}

// freePort prefers one below the same root as near. It returns nil if none is known.
func (a *advisor) freePort(id string, node, near int) *topology.PCIDevice {
	c := cardOf(a.host, id)
	if c == nil || len(c.functions) == 0 {
		return nil
	}
	free := freePorts(a.host, node, c)
	if len(free) == 0 {
		return nil
	}
	if near >= 0 {
		if at, err := topology.ParsePCIAddr(a.p.Devices[near].ID); err == nil {
			tree := topology.NewTree(a.host)
			beside := func(port *topology.PCIDevice) bool {
				root := tree.RootOf(port.Address)
				return root != "" && root == tree.RootOf(at)
			}
			if k := slices.IndexFunc(free, beside); k >= 0 {
				return free[k]
			}
		}
	}
	return free[0]
}

// relocated returns nil if the move is impossible. It keeps NVLink, which connects GPUs and not slots. Building the
// problem anew could fail for unrelated reasons.
func (a *advisor) relocated(m move) *plan.Problem {
	h := m.apply(a.host)
	if h == nil {
		return nil
	}
	moved := map[string]bool{cardKey(m.device): true}
	if m.other != "" {
		moved[cardKey(m.other)] = true
	}
	q := changed(a.p)
	home := map[string]*int{}
	for _, p := range partsOf(h) {
		home[p.id] = *p.node
	}
	for i := range q.Devices {
		if d := &q.Devices[i]; moved[cardKey(d.ID)] {
			d.NUMANode = home[d.ID]
		}
	}
	tree := topology.NewTree(h)
	for i := range q.Paths {
		path := &q.Paths[i]
		x, y := &q.Devices[path.A], &q.Devices[path.B]
		if !moved[cardKey(x.ID)] && !moved[cardKey(y.ID)] || strings.HasPrefix(path.Class, "NV") {
			continue
		}
		path.LossPercent = nil
		path.SetClass(tree.Path(x.ID, y.ID).Class, x, y)
	}
	return q
}
