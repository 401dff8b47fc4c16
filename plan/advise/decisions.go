package advise

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/search"
	"github.com/rackless/rackless/topology"
)

// What a decision is about: values of plan.Decision.What.
const (
	AboutHousekeeping = "housekeeping"
	AboutPageSize     = "page_size"
	AboutIsolation    = "isolation"
	AboutDevices      = "devices"
	AboutCores        = "cores"
	AboutMemory       = "memory"
	AboutGuestNUMA    = "guest_numa"
	AboutSMT          = "smt"
	AboutEmulator     = "emulator"
)

// Decisions says of each choice of a plan what the next best one is, what that would cost and what
// speaks for the choice: of the host first, then of each lab node in the order of the plan. pl has
// to be what [plan.Assemble] made of r, and r what solve gave for p.
//
// Runner-ups for devices, guest NUMA and SMT are solutions of changed problems, at most
// [MaxDecisionSolves] of them; those for cores, memory and housekeeping are the best of single
// changes to the placement, each evaluated in full, and say so.
func Decisions(ctx context.Context, p *plan.Problem, h *topology.Host, l *lab.Lab, pl *plan.Plan, r *search.Result,
	solve Solver) ([]plan.Decision, error) {
	if len(r.Placement.Nodes) != len(p.Requests) || len(pl.Nodes) != len(p.Requests) ||
		len(l.Nodes) != len(p.Requests) {
		return nil, fmt.Errorf("advise: a plan of %d lab nodes, a placement of %d and a lab of %d for a problem of "+
			"%d: they are not of one request",
			len(pl.Nodes), len(r.Placement.Nodes), len(l.Nodes), len(p.Requests))
	}
	d := &decider{
		oracle: oracle{ctx: ctx, p: p, base: r, solve: solve, left: MaxDecisionSolves},
		layout: newLayout(p), host: h, lab: l, plan: pl,
		now: plan.Cost(plan.Evaluate(p, &r.Placement)),
		// Evaluating a placement takes time that grows with the lab nodes, and so do the exchanges that there are.
		tries:  min(64, max(4, 256/max(1, len(p.Requests)))),
		byTurn: map[string]*settingAnswer{},
	}
	all := []plan.Decision{d.housekeeping(), d.pageSize(), d.isolation()}
	for i := range p.Requests {
		own, err := d.node(i)
		if err != nil {
			return nil, err
		}
		all = append(all, own...)
	}
	return all, nil
}

// A decider makes the decisions of one plan.
type decider struct {
	oracle
	layout *layout
	host   *topology.Host
	lab    *lab.Lab
	plan   *plan.Plan
	now    int64 // what the placement costs
	tries  int   // exchanges for each question
	// byTurn are answers about settings that lab nodes of one class share.
	byTurn map[string]*settingAnswer
}

// node makes the decisions of a lab node.
func (d *decider) node(i int) ([]plan.Decision, error) {
	var all []plan.Decision
	if len(placedDevices(&d.base.Placement.Nodes[i])) > 0 {
		one, err := d.devices(i)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	all = append(all, d.cores(i), d.memory(i))
	for _, decide := range []func(int) (plan.Decision, error){d.guestNUMA, d.smt} {
		one, err := decide(i)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return append(all, d.emulator(i)), nil
}

// own returns the part of the placement's cost that is of lab node i by one of the terms.
func (d *decider) own(i int, terms ...string) int64 {
	var sum int64
	for _, t := range d.plan.Terms {
		if t.Node == d.p.Requests[i].Name && slices.Contains(terms, t.Term) {
			sum += t.Cost
		}
	}
	return sum
}

func (d *decider) devices(i int) (plan.Decision, error) {
	pl := &d.base.Placement.Nodes[i]
	one := plan.Decision{Node: d.p.Requests[i].Name, What: AboutDevices, Choice: devicesOf(d.p, pl)}
	other, err := d.otherDevices(i)
	if err != nil {
		return plan.Decision{}, err
	}
	switch other.found {
	case solved:
		one.RunnerUp = devicesOf(d.p, &other.placement.Nodes[i])
		if one.RunnerUp == one.Choice { // the node keeps its own where only others of its class lose them
			one.RunnerUp = "other devices for the lab nodes like it"
		}
		one.RunnerUpCost = new(other.cost - d.now)
		if !other.proved {
			one.Evidence = append(one.Evidence, "the runner-up is the best that was found: it may cost less")
		}
	case impossible:
		one.RunnerUp = "other devices"
		one.Evidence = append(one.Evidence, "no other devices meet the request: the host has none left, or what is "+
			"left breaks a rule")
	case notAsked:
		why := "the search for one was stopped before it found any"
		if d.left <= 0 {
			why = fmt.Sprintf("at most %d changed plans are searched for", MaxDecisionSolves)
		}
		one.Evidence = append(one.Evidence, "no runner-up: "+why)
	}
	facts, pairs, measured := d.pathFacts(i)
	one.Evidence = append(one.Evidence, facts...)
	several := len(d.p.NUMANodes) > 1
	if pairs && measured {
		one.Evidence = append(one.Evidence, "the model's measurements decide here in place of path classes")
	}
	if pairs && !measured {
		one.Evidence = append(one.Evidence, seenClasses)
		if several && d.gpusApart(i) {
			one.Evidence = append(one.Evidence, seenH20)
		}
	}
	if several && len(pl.NICs)+len(pl.VFs) > 0 {
		one.Evidence = append(one.Evidence, seenWrongNodes)
	}
	return one, nil
}

// gpusApart reports whether a lab node's GPUs could be on more than one NUMA node: only then does a
// table by NUMA node say something.
func (d *decider) gpusApart(i int) bool {
	seen := map[int]bool{}
	for _, w := range d.p.Requests[i].GPUs {
		for _, g := range w.Any {
			if n := d.p.Devices[g].NUMANode; n != nil {
				seen[*n] = true
			}
		}
	}
	return len(seen) > 1
}

// pathFacts says what lies between the GPUs and NICs of a lab node, whether there are such pairs,
// and whether one was measured.
func (d *decider) pathFacts(i int) (facts []string, pairs, measured bool) {
	pl := &d.base.Placement.Nodes[i]
	nics := slices.Clone(pl.NICs)
	for _, v := range pl.VFs {
		nics = append(nics, v.Device)
	}
	for _, g := range pl.GPUs {
		var parts []string
		for _, n := range nics {
			q := d.p.Path(g, n)
			if q == nil {
				continue
			}
			pairs = true
			word := fmt.Sprintf("%s to %s", q.Class, d.p.Devices[n].ID)
			if q.LossPercent != nil {
				measured = true
				if *q.LossPercent == 0 {
					word += " (measured: as fast as the best pair)"
				} else {
					word += fmt.Sprintf(" (measured: %d %% below the best pair)", *q.LossPercent)
				}
			}
			parts = append(parts, word)
		}
		if len(parts) > 0 && len(facts) < 4 {
			facts = append(facts, fmt.Sprintf("path of %s: %s", deviceName(&d.p.Devices[g]), words.List(parts)))
		}
	}
	if c := d.own(i, plan.TermGPUNICPath, plan.TermGPUNICMeasured); c > 0 {
		facts = append(facts, fmt.Sprintf("GPU-NIC paths are %d of the plan's cost of %d", c, d.now))
	}
	return facts, pairs, measured
}

func (d *decider) cores(i int) plan.Decision {
	pl := &d.base.Placement.Nodes[i]
	one := plan.Decision{Node: d.p.Requests[i].Name, What: AboutCores,
		Choice: fmt.Sprintf("%s: CPUs %s", coresText(d.layout.coresOn(pl)), d.layout.cpusOf(pl.Cores))}
	var at []int
	for _, k := range placedDevices(pl) {
		if n := d.p.Devices[k].NUMANode; n != nil && !slices.Contains(at, *n) {
			at = append(at, *n)
		}
	}
	slices.Sort(at)
	if len(at) > 0 {
		one.Evidence = append(one.Evidence, "its devices are on "+nodesText(at))
	}
	if len(d.p.NUMANodes) < 2 {
		one.Evidence = append(one.Evidence, "the host has one NUMA node: cores differ in caches alone")
		return one
	}
	main := d.layout.mainNode(pl)
	if best, cost := d.otherCores(d.layout, i, d.tries); best != nil {
		one.RunnerUp = coresText(d.layout.coresOn(&best.Nodes[i]))
		one.RunnerUpCost = new(cost - d.now)
		one.Evidence = append(one.Evidence, fmt.Sprintf("the runner-up is the best single change found that leaves "+
			"NUMA node %d", main))
	} else {
		one.RunnerUp = fmt.Sprintf("cores of other NUMA nodes than %d", main)
		one.Evidence = append(one.Evidence, "no single change to other NUMA nodes keeps the rules: their cores or "+
			"memory are taken")
	}
	if len(at) > 0 {
		one.Evidence = append(one.Evidence, seenWrongNodes)
	} else {
		one.Evidence = append(one.Evidence, seenPinned)
	}
	if d.p.Workload == lab.WorkloadGPUCompute {
		one.Evidence = append(one.Evidence, seenMatmul)
	}
	return one
}

func (d *decider) memory(i int) plan.Decision {
	pl := &d.base.Placement.Nodes[i]
	one := plan.Decision{Node: d.p.Requests[i].Name, What: AboutMemory, Choice: memoryText(d.p, pl.Memory)}
	if c := d.own(i, plan.TermMemoryDistance, plan.TermMemoryBalance); c == 0 {
		one.Evidence = append(one.Evidence, "each NUMA node gives memory in proportion to the cores of the lab "+
			"node on it")
	} else {
		one.Evidence = append(one.Evidence, fmt.Sprintf("not all memory is beside the cores: it costs %d", c))
		one.Evidence = append(one.Evidence, d.fullNodes()...)
	}
	if len(d.p.NUMANodes) < 2 {
		return one
	}
	if best, cost := d.otherMemory(d.layout, i, d.tries); best != nil {
		one.RunnerUp = "all of it, " + memoryText(d.p, best.Nodes[i].Memory)
		one.RunnerUpCost = new(cost - d.now)
	} else {
		one.RunnerUp = "all of it on one other NUMA node"
		one.Evidence = append(one.Evidence, "no other NUMA node alone has room for it")
	}
	return append1(one, seenWrongNodes)
}

// append1 adds a line of evidence.
func append1(one plan.Decision, line string) plan.Decision {
	one.Evidence = append(one.Evidence, line)
	return one
}

// fullNodes names the NUMA nodes that have no page left.
func (d *decider) fullNodes() []string {
	used := d.layout.pagesUsed(&d.base.Placement)
	var full []int
	for _, n := range d.p.NUMANodes {
		if n.Pages != nil && used[n.ID] >= *n.Pages {
			full = append(full, n.ID)
		}
	}
	if len(full) == 0 {
		return nil
	}
	return []string{"no page is left on " + nodesText(full)}
}

// A settingAnswer is what the other value of a setting would do for all lab nodes of a class together.
type settingAnswer struct {
	found answer
	cost  int64
	bound bool // cost is what was found, not proved
}

// otherSetting solves the problem with a setting of lab node i and of all that it can be swapped with changed.
func (d *decider) otherSetting(i int, what string, change func(r *plan.Request)) (*settingAnswer, error) {
	key := fmt.Sprintf("%s %d", what, d.p.Requests[i].Class)
	if a := d.byTurn[key]; a != nil {
		return a, nil
	}
	q := changed(d.p)
	for _, j := range likes(d.p, i) {
		change(&q.Requests[j])
	}
	r, found, err := d.ask(q)
	if err != nil {
		return nil, err
	}
	a := &settingAnswer{found: found}
	if found == solved {
		a.cost, a.bound = plan.Cost(plan.Evaluate(q, &r.Placement)), !r.Optimal
	}
	d.byTurn[key] = a
	return a, nil
}

// describe puts the answer into a decision.
func (d *decider) describe(one *plan.Decision, i int, a *settingAnswer, other string) {
	one.RunnerUp = other
	switch class := likes(d.p, i); {
	case len(class) > 3:
		one.RunnerUp += fmt.Sprintf(", for all %d lab nodes like it", len(class))
	case len(class) > 1:
		var names []string
		for _, j := range class {
			names = append(names, d.p.Requests[j].Name)
		}
		one.RunnerUp += ", for " + words.List(names) + " together"
	}
	switch a.found {
	case solved:
		one.RunnerUpCost = new(a.cost - d.now)
		if a.bound {
			one.Evidence = append(one.Evidence, "the runner-up is the best that was found: it may cost less")
		}
	case impossible:
		one.Evidence = append(one.Evidence, "with the other setting no placement keeps the rules")
	case notAsked:
		one.RunnerUp = ""
	}
}

func (d *decider) guestNUMA(i int) (plan.Decision, error) {
	r, n := &d.p.Requests[i], &d.plan.Nodes[i]
	one := plan.Decision{Node: r.Name, What: AboutGuestNUMA}
	span := len(d.layout.coresOn(&d.base.Placement.Nodes[i]))
	switch {
	case n.GuestNUMA:
		one.Choice = fmt.Sprintf("on: the guest sees %s", words.Count(len(n.Cells), "NUMA node"))
	case r.GuestNUMA == string(lab.Off):
		one.Choice = "off, as the lab asks"
	default:
		one.Choice = "off: the lab node is on one NUMA node, so there is nothing to show"
	}
	if span < 2 && !n.GuestNUMA {
		return append1(one, "cores, and memory with them, are of one NUMA node of the host"), nil
	}
	other, text := string(lab.Off), "off"
	if !n.GuestNUMA {
		other, text = string(lab.On), "on"
	}
	a, err := d.otherSetting(i, AboutGuestNUMA, func(r *plan.Request) { r.GuestNUMA = other })
	if err != nil {
		return plan.Decision{}, err
	}
	d.describe(&one, i, a, text)
	one.Evidence = append(one.Evidence, seenStream)
	if len(d.base.Placement.Nodes[i].GPUs) > 1 {
		one.Evidence = append(one.Evidence, seenNCCL)
	}
	if n.GuestNUMA && len(n.Cards) > 0 {
		one.Evidence = append(one.Evidence, "its devices are put on the guest's NUMA nodes by pcie-expander-bus, so "+
			"that the guest's sysfs shows the truth")
	}
	return one, nil
}

func (d *decider) smt(i int) (plan.Decision, error) {
	r := &d.p.Requests[i]
	one := plan.Decision{Node: r.Name, What: AboutSMT}
	usable, threads := 0, 1
	for k := range d.p.Cores {
		c := &d.p.Cores[k]
		if c.Tenant == "" {
			usable++
		}
		threads = max(threads, len(c.CPUs))
	}
	if r.Threads > 1 {
		one.Choice = fmt.Sprintf("on: %s as %s with %d threads each", words.Count(r.VCPUs, "virtual CPU"),
			words.Count(r.Cores, "core"), r.Threads)
	} else {
		one.Choice = fmt.Sprintf("off: %s on %s", words.Count(r.VCPUs, "virtual CPU"),
			words.Count(r.Cores, "whole core"))
	}
	if threads == 1 {
		return append1(one, "the cores of the host have one thread each"), nil
	}
	other, text := 1, "off"
	if r.Threads == 1 {
		other, text = 2, "on"
		if r.VCPUs%2 != 0 {
			return append1(one, "an odd number of virtual CPUs does not come in pairs"), nil
		}
	}
	need := r.VCPUs / other
	text = fmt.Sprintf("%s: %s instead of %d", text, words.Count(need, "core"), r.Cores)
	asked := 0
	for j := range d.p.Requests {
		asked += d.p.Requests[j].Cores
	}
	asked += len(likes(d.p, i)) * (need - r.Cores)
	if have := usable - d.p.ReserveCores; asked > have {
		one.RunnerUp = text
		one.Evidence = append(one.Evidence, fmt.Sprintf("the lab would need %s and there are %d beside the %d that "+
			"the host keeps", words.Count(asked, "core"), max(0, have), d.p.ReserveCores))
		return append1(one, seenSMT), nil
	}
	a, err := d.otherSetting(i, AboutSMT, func(r *plan.Request) { r.Threads, r.Cores = other, r.VCPUs/other })
	if err != nil {
		return plan.Decision{}, err
	}
	d.describe(&one, i, a, text)
	if a.found == solved {
		one.Evidence = append(one.Evidence, "the cost says where things would be, not how fast a whole core is "+
			"beside a thread")
	}
	return append1(one, seenSMT), nil
}

func (d *decider) emulator(i int) plan.Decision {
	n := &d.plan.Nodes[i]
	one := plan.Decision{Node: n.Name, What: AboutEmulator}
	if n.EmulatorCPUs.IsEmpty() {
		one.Choice = "floating: no core is left for the host"
		return append1(one, seenContention)
	}
	where := d.nodesOfCPUs(n.EmulatorCPUs)
	own := slices.Sorted(maps.Keys(d.layout.coresOn(&d.base.Placement.Nodes[i])))
	one.Choice = fmt.Sprintf("housekeeping CPUs %s on %s", n.EmulatorCPUs, nodesText(where))
	if !n.IOThreadCPUs.IsEmpty() && !n.IOThreadCPUs.Equal(n.EmulatorCPUs) {
		one.Choice += fmt.Sprintf(", I/O threads on %s", n.IOThreadCPUs)
	}
	if slices.ContainsFunc(where, func(w int) bool { return slices.Contains(own, w) }) {
		one.Evidence = append(one.Evidence, "a NUMA node that it has cores on")
	} else {
		one.Evidence = append(one.Evidence, fmt.Sprintf("the nearest housekeeping cores to %s: the distance costs %d",
			nodesText(own), d.own(i, plan.TermEmulatorDistance)))
	}
	return append1(one, "on the lab node's own CPUs, where hand-written pinning often has them, QEMU's threads take "+
		"time from virtual CPUs: "+seenLateTail)
}

// nodesOfCPUs returns the NUMA nodes of a set of CPUs, ascending.
func (d *decider) nodesOfCPUs(set topology.CPUSet) []int {
	nodes := map[int]bool{}
	for i := range d.p.Cores {
		if c := &d.p.Cores[i]; set.Overlaps(topology.CPUs(c.CPUs...)) {
			nodes[c.NUMANode] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// hasArg reports whether the plan's kernel arguments have one of that name.
func (d *decider) hasArg(name string) bool {
	return slices.ContainsFunc(d.plan.KernelArgs, func(a string) bool { return strings.HasPrefix(a, name+"=") })
}
