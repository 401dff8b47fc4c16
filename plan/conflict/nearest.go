package conflict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

const maxOffers = 4

// nearest tries changes on the whole lab. If another conflict remains, it helps this conflict's lab nodes alone.
func (c *conflict) nearest() string {
	offers := c.offers(c.all)
	if len(offers) == 0 {
		offers = c.cuts(c.all, c.all)
	}
	alone := ""
	if len(offers) == 0 && len(c.set) > 0 && len(c.set) < len(c.all) {
		if own := c.offers(c.set); len(own) > 0 {
			fit := " alone fit "
			if len(c.set) == 1 {
				fit = " alone fits "
			}
			alone = "; " + c.nodeList(c.set) + fit + strings.Join(own, ", or ")
		}
	}
	if without := c.leaveOut(); without != "" {
		offers = append(offers, without)
	}
	switch {
	case len(offers) > 0:
		return "it fits " + strings.Join(offers, ", or ") + alone
	case alone != "":
		return "nothing fits as a whole" + alone
	}
	return "nothing that was tried is enough: ask for less of what is named, or free it"
}

func (c *conflict) offers(keep []int) []string {
	var out []string
	add := func(text string) {
		if text != "" && len(out) < maxOffers {
			out = append(out, text)
		}
	}
	add(c.evenCounts(keep))
	for _, text := range c.cuts(keep, c.set) {
		add(text)
	}
	add(c.withoutSiblings(keep))
	if c.reserved() {
		add(c.smallerReserve(keep))
	}
	for _, k := range c.parts.affinity {
		if len(out) < maxOffers && c.can(keep, withoutAffinity(k)) {
			_, on, _ := strings.Cut(c.affinityText(k), " must be ")
			add("if " + c.nodeList(c.members(k)) + " need not be " + on)
		}
	}
	moved := false
	for _, f := range c.facts {
		if f.Kind == plan.FactTenant && !f.Together && len(out) < maxOffers && c.can(keep, withoutTenant(f.Tenant)) {
			moved = true
			add("if VM " + words.Plain(f.Tenant) + " is moved away")
		}
	}
	if !moved {
		add(c.tenantsTogether(keep))
	}
	return out
}

// evenCounts offers a virtual CPU more for odd numbers: two then share a core.
func (c *conflict) evenCounts(keep []int) string {
	wide := slices.ContainsFunc(c.p.Cores, func(k plan.Core) bool { return k.Tenant == "" && len(k.CPUs) > 1 })
	if !wide || !c.parts.all[plan.DemandCores] {
		return ""
	}
	odd := lists.Filter(c.set, func(i int) bool {
		r := &c.p.Requests[i]
		return r.Threads == 1 && r.VCPUs > 1 && r.VCPUs%2 != 0
	})
	if len(odd) == 0 || !c.can(keep, evenCores(c.names(odd))) {
		return ""
	}
	counts := lists.Distinct(lists.Map(odd, func(i int) int { return c.p.Requests[i].VCPUs + 1 }))
	text := fmt.Sprintf("with %d vCPUs", counts[0])
	if len(counts) > 1 {
		text = "with " + andList(lists.Map(odd, func(i int) string {
			return fmt.Sprint(c.p.Requests[i].VCPUs + 1)
		})) + " vCPUs"
	}
	return text + " for " + c.nodeList(odd) + " (two virtual CPUs share a core if their number is even, with smt: auto)"
}

// withoutSiblings offers smt: off, which may open small cores with one thread.
func (c *conflict) withoutSiblings(keep []int) string {
	shared := lists.Filter(c.set, func(i int) bool {
		return slices.ContainsFunc(c.p.Cores, func(k plan.Core) bool {
			return k.Tenant == "" && len(k.CPUs) < c.p.Requests[i].Threads
		})
	})
	if len(shared) == 0 || !c.parts.all[plan.DemandSMT] && !c.parts.all[plan.DemandCores] {
		return ""
	}
	choices := [][]int{shared}
	if len(shared) > 1 && len(shared) <= fewParts {
		for _, i := range shared {
			choices = append(choices, []int{i})
		}
	}
	for _, who := range choices {
		if c.can(keep, ownCores(c.names(who))) {
			return "with smt: off for " + c.nodeList(who)
		}
	}
	return ""
}

func (c *conflict) names(requests []int) []string {
	return lists.Map(requests, func(i int) string { return c.p.Requests[i].Name })
}

func (c *conflict) cuts(keep, whom []int) []string {
	var out []string
	for _, what := range demandOrder {
		if c.parts.all[what] && what != plan.DemandSMT {
			if text := c.cut(keep, whom, what); text != "" {
				out = append(out, text)
			}
		}
	}
	return out
}

// cut finds one limit for all, because a single number can be written into the lab file.
func (c *conflict) cut(keep, whom []int, what string) string {
	var who []int
	var amounts []int64
	threads := map[int]bool{}
	for _, i := range whom {
		r := &c.p.Requests[i]
		if !c.isRelevant(r, what) {
			continue
		}
		n := amount(c.p, r, what)
		if what == plan.DemandMemory {
			n = r.Pages
		}
		who, amounts, threads[r.Threads] = append(who, i), append(amounts, n), true
	}
	floor := least(what)
	if what == plan.DemandMemory {
		floor = 1 // a lab file cannot ask for no memory
	}
	names := c.names(who)
	helps := func(n int64) bool { return c.can(keep, atMost(what, names, n)) }
	if len(who) == 0 || slices.Max(amounts) <= floor || !helps(floor) {
		return ""
	}
	most := slices.Max(amounts)
	low := largest(floor, most-1, helps)
	sum := lists.Sum(amounts, func(n int64) int64 { return max(0, n-low) })
	less, of := " less", ""
	if len(who) > 1 {
		less, of = " less in all", " each"
	}
	if len(who) < len(keep) {
		of += " for " + c.nodeList(who)
	}
	// "26 instead of 28 vCPUs", or "at most 26 vCPUs" if the requests differ.
	number := func(to, from, unit string) string {
		if most == slices.Min(amounts) {
			return to + " instead of " + from + unit
		}
		return "at most " + to + unit
	}
	switch {
	case what == plan.DemandCores:
		per, unit := int64(1), " cores"
		if len(threads) == 1 {
			per, unit = int64(c.p.Requests[who[0]].Threads), " vCPUs"
		}
		return fmt.Sprintf("with %s%s (%s%s)", number(fmt.Sprint(low*per), fmt.Sprint(most*per), unit), of,
			words.Count(sum, "core"), less)
	case what == plan.DemandMemory:
		return fmt.Sprintf("with %s%s (%s%s)", number(c.bytes(low), c.bytes(most), " of memory"), of, c.bytes(sum),
			less)
	case low == 0:
		return fmt.Sprintf("without %ss for %s", deviceWord(what), c.nodeList(who))
	}
	return fmt.Sprintf("with %s%s", number(fmt.Sprint(low), words.Count(most, deviceWord(what)), ""), of)
}

// largest needs an ok that is true for low, and false for all numbers above the result.
func largest(low, high int64, ok func(int64) bool) int64 {
	for low < high {
		if middle := (low + high + 1) / 2; ok(middle) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

func (c *conflict) smallerReserve(keep []int) string {
	most := max(c.p.ReserveCores, lists.Max(c.p.NUMANodes, func(n plan.NUMANode) int { return n.ReserveCores }))
	helps := func(n int64) bool { return c.can(keep, reserveOf(int(n))) }
	if most <= 1 || !helps(1) { // the minimum in a lab file
		return ""
	}
	return fmt.Sprintf("with a reserve of %s instead of %d", words.Count(largest(1, int64(most-1), helps), "core"),
		most)
}

func (c *conflict) tenantsTogether(keep []int) string {
	var edits []edit
	var names []string
	for _, f := range c.facts {
		if f.Kind == plan.FactTenant {
			edits, names = append(edits, withoutTenant(f.Tenant)), append(names, words.Plain(f.Tenant))
		}
	}
	if len(edits) < 2 || !c.can(keep, edits...) {
		return ""
	}
	return "if VMs " + andList(names) + " are moved away"
}

// leaveOut offers the last lab node that helps, or else as many as necessary.
func (c *conflict) leaveOut() string {
	tried := map[int]bool{}
	for _, i := range slices.Backward(c.set) {
		class := c.p.Requests[i].Class
		if tried[class] {
			continue
		}
		tried[class] = true
		rest := slices.DeleteFunc(slices.Clone(c.all), func(o int) bool { return o == i })
		if len(rest) > 0 && c.can(rest) {
			return "without " + words.Plain(c.p.Requests[i].Name)
		}
	}
	in := c.placed()
	if len(in) == 0 {
		return ""
	}
	out := slices.DeleteFunc(slices.Clone(c.all), func(i int) bool { return slices.Contains(in, i) })
	return "without " + c.nodeList(out)
}

// placed adds each lab node that fits. The result need not be the largest set.
func (c *conflict) placed() []int {
	var in []int
	full := map[int]bool{}
	for i := range c.p.Requests {
		class := c.p.Requests[i].Class
		if full[class] {
			continue
		}
		if c.can(append(slices.Clone(in), i)) {
			in = append(in, i)
		} else {
			full[class] = true
		}
	}
	return in
}

// countedClash returns the smallest clash, or nil. Among equal sizes, devices come before cores and cores before
// memory.
func countedClash(p *plan.Problem) *plan.Clash {
	if !reserveFits(p) {
		return &plan.Clash{Parts: []string{plan.DemandReserve}, Affinity: -1}
	}
	all := p.DeviceClashes()
	try := func(requests []int, parts ...string) {
		if requests != nil {
			all = append(all, plan.Clash{Requests: requests, Parts: parts, Affinity: -1})
		}
	}
	free, _ := freeCores(p)
	if greedy := tooMany(p, plan.DemandCores, int64(free)); greedy != nil {
		try(greedy, plan.DemandCores)
	} else {
		try(tooMany(p, plan.DemandCores, int64(free-p.ReserveCores)), plan.DemandCores, plan.DemandReserve)
	}
	if !slices.ContainsFunc(p.NUMANodes, func(n plan.NUMANode) bool { return n.Pages == nil }) {
		pages := lists.Sum(p.NUMANodes, func(n plan.NUMANode) int64 { return max(0, *n.Pages) })
		try(tooMany(p, plan.DemandMemory, pages*int64(p.PageBytes)), plan.DemandMemory)
	}
	if len(all) == 0 {
		return nil
	}
	best := slices.MinFunc(all, func(a, b plan.Clash) int { return cmp.Compare(len(a.Requests), len(b.Requests)) })
	return &best
}

// tooMany returns the fewest requests, or nil.
func tooMany(p *plan.Problem, what string, there int64) []int {
	order := lists.Where(p.Requests, func(r plan.Request) bool { return amount(p, &r, what) > 0 })
	// "vm00 needs 5 GPUs, there are 4" instead of all eight.
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(amount(p, &p.Requests[b], what), amount(p, &p.Requests[a], what))
	})
	var sum int64
	for k, i := range order {
		sum += amount(p, &p.Requests[i], what)
		if sum > there {
			return slices.Sorted(slices.Values(order[:k+1]))
		}
	}
	return nil
}

func anyOf(p *plan.Problem, requests []int, what string) []int {
	var all []int
	for _, i := range requests {
		for _, w := range wantsOf(&p.Requests[i], what) {
			all = append(all, w.Any...)
		}
	}
	return lists.Filter(lists.Distinct(all), func(d int) bool { return d >= 0 && d < len(p.Devices) })
}
