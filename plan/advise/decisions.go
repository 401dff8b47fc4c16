package advise

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/search"
)

// Subjects of decisions, for plan.Decision.
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

// Decisions lists, for the host and then for each lab node, the runner-up to each choice, its extra cost and the
// evidence. pl must be the result of [plan.Assemble] for r, and r the result of solve for p. It solves at most
// [MaxDecisionSolves] changed problems; other runner-ups are the best of single changes to the placement, and say so.
func Decisions(ctx context.Context, p *plan.Problem, h *topology.Host, l *lab.Lab, pl *plan.Plan, r *search.Result,
	solve Solver) ([]plan.Decision, error) {
	if len(r.Placement.Nodes) != len(p.Requests) || len(pl.Nodes) != len(p.Requests) ||
		len(l.Nodes) != len(p.Requests) {
		return nil, fmt.Errorf("advise: a plan of %d lab nodes, a placement of %d and a lab of %d for a problem of "+
			"%d: they are not of one request", len(pl.Nodes), len(r.Placement.Nodes), len(l.Nodes), len(p.Requests))
	}
	d := &decider{
		oracle: oracle{Layout: plan.NewLayout(p), ctx: ctx, p: p, base: r, solve: solve, left: MaxDecisionSolves},
		host:   h, lab: l, plan: pl,
		now: plan.Cost(plan.Evaluate(p, &r.Placement)),
		// The time to evaluate a placement and the number of exchanges both grow with the lab.
		tries:    min(64, max(4, 256/max(1, len(p.Requests)))),
		settings: map[string]*settingAnswer{},
	}
	all := []plan.Decision{d.housekeeping().Decision, d.pageSize().Decision, d.isolation().Decision}
	for i := range p.Requests {
		for _, decide := range []func(*draft, int){d.devices, d.cores, d.memory, d.guestNUMA, d.smt, d.emulator} {
			one := draft{plan.Decision{Node: p.Requests[i].Name}}
			decide(&one, i)
			if d.err != nil {
				return nil, d.err
			}
			if one.What != "" {
				all = append(all, one.Decision)
			}
		}
	}
	return all, nil
}

type decider struct {
	oracle
	host     *topology.Host
	lab      *lab.Lab
	plan     *plan.Plan
	now      int64                     // cost of the placement
	tries    int                       // exchanges tried for each question
	settings map[string]*settingAnswer // shared by the lab nodes of a class
}

type draft struct{ plan.Decision }

func (one *draft) because(lines ...string) { one.Evidence = append(one.Evidence, lines...) }

func (one *draft) becausef(format string, args ...any) { one.because(fmt.Sprintf(format, args...)) }

func (one *draft) next(text string, more int64) { one.RunnerUp, one.RunnerUpCost = text, &more }

func (d *decider) own(i int, terms ...string) int64 {
	return costOf(d.plan.Terms, d.p.Requests[i].Name, terms)
}

func costOf(all []plan.Term, node string, terms []string) int64 {
	return plan.Cost(lists.Filter(all, func(t plan.Term) bool {
		return t.Node == node && slices.Contains(terms, t.Term)
	}))
}

const notProved = "the runner-up is the best that was found: its score may be lower"

func (d *decider) devices(one *draft, i int) {
	pl := &d.base.Placement.Nodes[i]
	if len(placedDevices(pl)) == 0 {
		return
	}
	one.What, one.Choice = AboutDevices, devicesOf(d.p, pl)
	switch other := d.otherDevices(i); other.found {
	case solved:
		text := devicesOf(d.p, &other.placement.Nodes[i])
		if text == one.Choice { // only others of the class lose devices
			text = "other devices for the lab nodes like it"
		}
		one.next(text, other.cost-d.now)
		if !other.proved {
			one.because(notProved)
		}
	case impossible:
		one.RunnerUp = "other devices"
		one.because("no other devices meet the request: the host has none left, or what is left breaks a rule")
	case notAsked:
		why := fmt.Sprintf("at most %d changed plans are searched for", MaxDecisionSolves)
		if d.left > 0 {
			why = "the search for one was stopped before it found any"
		}
		one.because("no runner-up: " + why)
	}
	several := len(d.p.NUMANodes) > 1
	switch pairs, measured := d.paths(one, i); {
	case pairs && measured:
		one.because("the model's measurements decide here in place of path classes")
	case pairs:
		one.because(seenClasses)
		if several && d.gpusApart(i) {
			one.because(seenH20)
		}
	}
	if several && len(pl.NICs)+len(pl.VFs) > 0 {
		one.because(seenWrongNodes)
	}
}

// gpusApart: only then is a table by NUMA node relevant.
func (d *decider) gpusApart(i int) bool {
	gpus := lists.Flat(d.p.Requests[i].GPUs, func(w plan.Want) []int { return w.Any })
	return len(d.homes(gpus)) > 1
}

func (d *decider) homes(devices []int) []int {
	var nodes []int
	for _, k := range devices {
		if n := d.p.Devices[k].NUMANode; n != nil {
			nodes = append(nodes, *n)
		}
	}
	return lists.Distinct(nodes)
}

func (d *decider) paths(one *draft, i int) (pairs, measured bool) {
	const most = 4 // GPUs that get a line
	pl := &d.base.Placement.Nodes[i]
	lines := 0
	for _, g := range pl.GPUs {
		var parts []string
		for _, n := range nicsOf(pl) {
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
		if len(parts) > 0 && lines < most {
			lines++
			one.becausef("path of %s: %s", deviceName(&d.p.Devices[g]), words.List(parts))
		}
	}
	if c := d.own(i, plan.TermGPUNICPath, plan.TermGPUNICMeasured); c > 0 {
		one.becausef("GPU-NIC paths are %d of the plan's score of %d", c, d.now)
	}
	return pairs, measured
}

// cores takes a runner-up without cores on the NUMA node with most of them: others of the same node differ at most in
// caches.
func (d *decider) cores(one *draft, i int) {
	pl := &d.base.Placement.Nodes[i]
	one.What = AboutCores
	one.Choice = fmt.Sprintf("%s: CPUs %s", coresText(d.CoresOn(pl.Cores)), d.cpusOf(pl.Cores))
	at := d.homes(placedDevices(pl))
	if len(at) > 0 {
		one.because("its devices are on " + nodesText(at))
	}
	if len(d.p.NUMANodes) < 2 {
		one.because("the host has one NUMA node: cores differ in caches alone")
		return
	}
	main := d.mainNode(pl)
	if best, cost := d.otherCores(i, d.tries); best != nil {
		one.next(coresText(d.CoresOn(best.Nodes[i].Cores)), cost-d.now)
		one.becausef("the runner-up is the best single change found that leaves NUMA node %d", main)
	} else {
		one.RunnerUp = fmt.Sprintf("cores of other NUMA nodes than %d", main)
		one.because("no single change to other NUMA nodes keeps the rules: their cores or memory are taken")
	}
	if len(at) > 0 {
		one.because(seenWrongNodes)
	} else {
		one.because(seenPinned)
	}
	if d.p.Workload == lab.WorkloadGPUCompute {
		one.because(seenMatmul)
	}
}

// memory takes a runner-up with all memory on one other node, as with a manual numactl --membind.
func (d *decider) memory(one *draft, i int) {
	pl := &d.base.Placement.Nodes[i]
	one.What, one.Choice = AboutMemory, memoryText(d.p, pl.Memory)
	if c := d.own(i, plan.TermMemoryDistance, plan.TermMemoryBalance); c == 0 {
		one.because("each NUMA node gives memory in proportion to the cores of the lab node on it")
	} else {
		one.becausef("not all memory is beside the cores: it adds %d to the score", c)
		used := d.PagesUsed(&d.base.Placement)
		full := lists.Filter(d.p.NUMANodes, func(n plan.NUMANode) bool {
			return n.Pages != nil && used[n.ID] >= *n.Pages
		})
		if len(full) > 0 {
			ids := lists.Map(full, func(n plan.NUMANode) int { return n.ID })
			one.because("no page is left on " + nodesText(ids))
		}
	}
	if len(d.p.NUMANodes) < 2 {
		return
	}
	if best, cost := d.otherMemory(i, d.tries); best != nil {
		one.next("all of it, "+memoryText(d.p, best.Nodes[i].Memory), cost-d.now)
	} else {
		one.RunnerUp = "all of it on one other NUMA node"
		one.because("no other NUMA node alone has room for it")
	}
	one.because(seenWrongNodes)
}

// A settingAnswer is for all lab nodes of a class together.
type settingAnswer struct {
	found  answer
	cost   int64
	proved bool // otherwise the cost is only the best found
}

func (d *decider) otherSetting(one *draft, i int, text string, change func(r *plan.Request)) answer {
	class := sameClass(d.p, i)
	key := fmt.Sprintf("%s %d", one.What, d.p.Requests[i].Class)
	a := d.settings[key]
	if a == nil {
		q := changed(d.p)
		for _, j := range class {
			change(&q.Requests[j])
		}
		r, found := d.ask(q)
		a = &settingAnswer{found: found}
		if found == solved {
			a.cost, a.proved = plan.Cost(plan.Evaluate(q, &r.Placement)), r.Optimal
		}
		d.settings[key] = a
	}
	switch {
	case len(class) > 3:
		text += fmt.Sprintf(", for all %d lab nodes like it", len(class))
	case len(class) > 1:
		names := lists.Map(class, func(j int) string { return d.p.Requests[j].Name })
		text += ", for " + words.List(names) + " together"
	}
	switch a.found {
	case solved:
		one.next(text, a.cost-d.now)
		if !a.proved {
			one.because(notProved)
		}
	case impossible:
		one.RunnerUp = text
		one.because("with the other setting no placement keeps the rules")
	}
	return a.found
}

// guestNUMA asks for no runner-up if the lab node is on one NUMA node of the host: it would change nothing.
func (d *decider) guestNUMA(one *draft, i int) {
	r, n := &d.p.Requests[i], &d.plan.Nodes[i]
	one.What = AboutGuestNUMA
	spans := len(d.CoresOn(d.base.Placement.Nodes[i].Cores)) > 1
	switch {
	case n.GuestNUMA:
		one.Choice = "on: the guest sees " + words.Count(len(n.Cells), "NUMA node")
	case d.lab.Nodes[i].GuestNUMA == lab.Off:
		one.Choice = "off, as the lab asks"
	case r.GuestNUMA == string(lab.Off) && spans:
		one.Choice = fmt.Sprintf("off: with GPUs, for workload %s; guest_numa: on shows them", d.p.Workload)
	default:
		one.Choice = "off: the lab node is on one NUMA node, so there is nothing to show"
	}
	if !spans && !n.GuestNUMA {
		one.because("cores, and memory with them, are of one NUMA node of the host")
		return
	}
	other := string(lab.On)
	if n.GuestNUMA {
		other = string(lab.Off)
	}
	d.otherSetting(one, i, other, func(r *plan.Request) { r.GuestNUMA = other })
	one.because(seenStream)
	if len(d.base.Placement.Nodes[i].GPUs) > 0 {
		one.because(seenNCCL)
	}
	if n.GuestNUMA && len(n.Cards) > 0 {
		one.because("its devices are put on the guest's NUMA nodes by pcie-expander-bus, so that the guest's sysfs " +
			"shows the truth")
	}
}

// smt counts cores first, which avoids a search: the other setting needs twice or half as many.
func (d *decider) smt(one *draft, i int) {
	r := &d.p.Requests[i]
	usable, threads := 0, 1
	for _, c := range d.p.Cores {
		if c.Tenant == "" {
			usable++
		}
		threads = max(threads, len(c.CPUs))
	}
	one.What = AboutSMT
	other, text := 1, "off"
	if r.Threads > 1 {
		one.Choice = fmt.Sprintf("on: %s as %s with %d threads each", words.Count(r.VCPUs, "virtual CPU"),
			words.Count(r.Cores, "core"), r.Threads)
	} else {
		other, text = 2, "on"
		one.Choice = fmt.Sprintf("off: %s on %s", words.Count(r.VCPUs, "virtual CPU"),
			words.Count(r.Cores, "whole core"))
	}
	switch {
	case threads == 1:
		one.because("the cores of the host have one thread each")
		return
	case r.VCPUs%other != 0:
		one.because("an odd number of virtual CPUs does not come in pairs")
		return
	}
	need := r.VCPUs / other
	text = fmt.Sprintf("%s: %s instead of %d", text, words.Count(need, "core"), r.Cores)
	asked := len(sameClass(d.p, i)) * (need - r.Cores)
	asked += lists.Sum(d.p.Requests, func(o plan.Request) int { return o.Cores })
	if have := usable - d.p.ReserveCores; asked > have {
		one.RunnerUp = text
		one.becausef("the lab would need %s and there are %d beside the %d that the host keeps",
			words.Count(asked, "core"), max(0, have), d.p.ReserveCores)
	} else if d.otherSetting(one, i, text, func(r *plan.Request) {
		r.Threads, r.Cores = other, r.VCPUs/other
	}) == solved {
		one.because("the score says where things would be, not how fast a whole core is beside a thread")
	}
	one.because(seenSMT)
}

// emulator has no runner-up: the nearest housekeeping core follows from the rest.
func (d *decider) emulator(one *draft, i int) {
	n := &d.plan.Nodes[i]
	one.What = AboutEmulator
	if n.EmulatorCPUs.IsEmpty() {
		one.Choice = "floating: no core is left for the host"
		one.because(seenContention)
		return
	}
	own := d.CoresOn(d.base.Placement.Nodes[i].Cores)
	where, beside := map[int]bool{}, false
	for _, c := range d.p.Cores {
		if n.EmulatorCPUs.Overlaps(topology.CPUs(c.CPUs...)) {
			where[c.NUMANode] = true
			beside = beside || own[c.NUMANode] > 0
		}
	}
	one.Choice = fmt.Sprintf("housekeeping CPUs %s on %s", n.EmulatorCPUs, nodesText(slices.Sorted(maps.Keys(where))))
	if !n.IOThreadCPUs.IsEmpty() && !n.IOThreadCPUs.Equal(n.EmulatorCPUs) {
		one.Choice += fmt.Sprintf(", I/O threads on %s", n.IOThreadCPUs)
	}
	if beside {
		one.because("a NUMA node that it has cores on")
	} else {
		one.becausef("the nearest housekeeping cores to %s: the distance adds %d",
			nodesText(slices.Sorted(maps.Keys(own))), d.own(i, plan.TermEmulatorDistance))
	}
	one.because("on the lab node's own CPUs, where hand-written pinning often has them, QEMU's threads take time " +
		"from virtual CPUs: " + seenLateTail)
}

func (d *decider) housekeeping() draft {
	free := d.Free(&d.base.Placement)
	one := draft{plan.Decision{What: AboutHousekeeping, Choice: coresText(d.CoresOn(free))}}
	if len(free) > 0 {
		one.Choice += ": CPUs " + d.cpusOf(free)
	}
	if extra := len(free) - d.p.ReserveCores; extra > 0 {
		one.becausef("the host keeps at least %s; %d more are left over", words.Count(d.p.ReserveCores, "core"), extra)
	} else {
		one.because("the host keeps " + words.Count(d.p.ReserveCores, "core"))
	}
	for _, n := range d.p.NUMANodes {
		if n.ReserveCores > 0 {
			one.becausef("%s of NUMA node %d as the lab asks", words.Count(n.ReserveCores, "core"), n.ID)
		}
	}
	for _, k := range d.p.Packages {
		if k.Busy != "" {
			one.becausef("a core of package %d: %s", k.ID, k.Busy)
		}
	}
	away := func(r plan.Request) int64 { return costOf(d.plan.Terms, r.Name, []string{plan.TermEmulatorDistance}) }
	far := lists.Sum(d.p.Requests, away)
	if far == 0 {
		one.because("every lab node has a housekeeping core on a NUMA node of its own, for QEMU's threads")
	} else {
		one.becausef("QEMU's threads of some lab nodes are on another NUMA node: it adds %d to the score", far)
	}
	if s := d.otherHousekeeping(4 * d.tries); s != nil {
		gives, takes := d.Cores[s.gives], d.Cores[s.takes]
		one.next(fmt.Sprintf("core %d of NUMA node %d instead of core %d of node %d, exchanged with %s",
			s.takes, takes.NUMANode, s.gives, gives.NUMANode, d.p.Requests[s.node].Name), s.cost-d.now)
		one.because("the runner-up is the best single exchange found")
	}
	return one
}

// pageSize has an extra cost of 0, not unknown, because the cost has no term for page sizes.
func (d *decider) pageSize() draft {
	const gib = 1 << 30
	one := draft{plan.Decision{What: AboutPageSize}}
	if d.p.HugepageBytes == 0 {
		one.Choice = "no hugepages: the host has none"
		if d.lab.Hugepages == lab.HugepagesOff {
			one.Choice = "no hugepages, as the lab asks"
		}
		one.because(seenHuge)
		return one
	}
	one.Choice = words.Exact(d.p.HugepageBytes) + " pages"
	parts := lists.Map(d.plan.Hugepages,
		func(n plan.Hugepages) string { return fmt.Sprintf("%d on NUMA node %d", n.Count, n.NUMANode) })
	if len(parts) > 0 {
		one.Choice += ", set aside per NUMA node: " + words.List(parts)
		one.because("a plain hugepages=N is spread evenly over all NUMA nodes, and a strict memory policy then finds " +
			"too few on its own")
	}
	const zero = "the score has no term for the size of pages: no published figure tells the two apart"
	if d.p.HugepageBytes == gib {
		one.next("2 MiB pages", 0)
		one.because("one page of 1 GiB covers what 512 of 2 MiB do: fewer TLB misses, shorter page walks", zero,
			seenHuge)
		return one
	}
	one.RunnerUp = "1 GiB pages"
	for _, r := range d.p.Requests {
		if bytes := uint64(r.Pages) * d.p.PageBytes; bytes%gib != 0 {
			one.becausef("the memory of %s is %s, no whole number of GiB", r.Name, words.Exact(bytes))
			return one
		}
	}
	if d.lab.Hugepages == lab.Hugepages2MiB {
		one.next(one.RunnerUp, 0)
		one.because("as the lab asks", zero)
	} else {
		one.because("the host does not have pages of 1 GiB")
	}
	return one
}

// isolation has a runner-up of the same cost, because neither method changes the placement.
func (d *decider) isolation() draft {
	const args = "kernel arguments isolcpus, nohz_full and rcu_nocbs, which take a reboot"
	const partition = "an isolated cpuset partition, which takes none"
	has := func(name string) bool {
		return slices.ContainsFunc(d.plan.KernelArgs, func(a string) bool { return strings.HasPrefix(a, name+"=") })
	}
	one := draft{plan.Decision{What: AboutIsolation, Choice: partition}}
	one.next(args, 0)
	if has("isolcpus") {
		one.Choice, one.RunnerUp = args, partition
		one.because("only the kernel's arguments also take the timer tick and RCU callbacks off the CPUs of the lab " +
			"nodes; a partition takes them off the scheduler alone")
		if has("hugepages") {
			one.because("the hugepages are best set aside at boot, so that the reboot is needed anyway")
		}
		one.because("until the reboot, or where there can be none: the partition")
	}
	if iso := d.host.CPUs.Isolated; iso != nil && !iso.IsEmpty() {
		one.becausef("the host has CPUs %s isolated now", iso)
	}
	one.because("isolation is not in the score: it decides no placement", seenContention, seenLateTail)
	return one
}
