package conflict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

// maxOffers bounds how many ways out are told.
const maxOffers = 4

// nearest says what would fit: each offer has been tried, on the whole lab. Where there is another
// conflict too, so that nothing helps but to leave lab nodes out, it says what would help the lab
// nodes of this one alone.
func (c *conflict) nearest() string {
	all := make([]int, len(c.p.Requests))
	for i := range all {
		all[i] = i
	}
	offers := c.offers(all)
	if len(offers) == 0 {
		offers = c.cuts(all, all)
	}
	alone := ""
	if len(offers) == 0 && len(c.set) > 0 && len(c.set) < len(all) {
		if own := c.offers(c.set); len(own) > 0 {
			alone = "; " + c.nodeList(c.set) + map[bool]string{true: " alone fits ",
				false: " alone fit "}[len(c.set) == 1] + strings.Join(own, ", or ")
		}
	}
	if without := c.leaveOut(all); without != "" {
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

// offers lists changes with which the requests of keep can be met.
func (c *conflict) offers(keep []int) []string {
	var out []string
	add := func(text string) {
		if text != "" && len(out) < maxOffers {
			out = append(out, text)
		}
	}
	for _, text := range c.cuts(keep, c.set) {
		add(text)
	}
	if c.parts.all[plan.DemandSMT] && c.can(keep, ownCores(c.names())) {
		add("with smt: off for " + c.nodeList(c.set))
	}
	if c.reserved() {
		add(c.smallerReserve(keep))
	}
	for _, k := range c.parts.affinity {
		if len(out) < maxOffers && c.can(keep, withoutAffinity(k)) {
			_, on, _ := strings.Cut(c.affinityText(k), " must be ")
			add("where " + c.nodeList(c.memberIndexes(k)) + " need not be " + on)
		}
	}
	moved := false
	for _, f := range c.facts {
		if f.Kind == plan.FactTenant && !f.Together && len(out) < maxOffers && c.can(keep, withoutTenant(f.Tenant)) {
			moved = true
			add("when tenant " + printable(f.Tenant) + " is moved away")
		}
	}
	if !moved {
		add(c.tenantsTogether(keep))
	}
	return out
}

func (c *conflict) names() []string {
	var names []string
	for _, i := range c.set {
		names = append(names, c.p.Requests[i].Name)
	}
	return names
}

// cuts offers to cut what plays a part in the conflict, for the requests of whom.
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

// cut finds the largest equal cut of something that helps: by halving, because to ask for less is never harder.
func (c *conflict) cut(keep, whom []int, what string) string {
	var names []string
	var who []int
	var most, least, sum int64
	var threads []int
	each := func(do func(i int, r *plan.Request, n int64)) {
		for _, i := range whom {
			if r := &c.p.Requests[i]; c.plays(r, what) {
				n := amount(c.p, r, what)
				if what == plan.DemandMemory {
					n = r.Pages
				}
				do(i, r, n)
			}
		}
	}
	each(func(i int, r *plan.Request, n int64) {
		names, who = append(names, r.Name), append(who, i)
		threads = append(threads, r.Threads)
		if least == 0 || n < least {
			least = n
		}
		most = max(most, n)
	})
	floor := int64(0)
	if what == plan.DemandCores || what == plan.DemandMemory {
		floor = 1
	}
	if most <= floor || !c.can(keep, atMost(what, names, floor)) {
		return ""
	}
	low, high := floor, most-1 // low helps
	for low < high {
		middle := (low + high + 1) / 2
		if c.can(keep, atMost(what, names, middle)) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	each(func(_ int, _ *plan.Request, n int64) { sum += max(0, n-low) })
	of := ""
	if len(names) > 1 {
		of = " each"
	}
	if len(names) < len(keep) {
		of += " for " + c.nodeList(who)
	}
	// number writes the cut with what was asked for: "26 instead of 28 vCPUs", "at most 26 vCPUs"
	// where not all asked for the same.
	number := func(to, from, unit string) string {
		if most == least {
			return to + " instead of " + from + unit
		}
		return "at most " + to + unit
	}
	less := " less"
	if len(names) > 1 {
		less += " in all"
	}
	switch what {
	case plan.DemandCores:
		if t := int64(slices.Min(threads)); t == int64(slices.Max(threads)) {
			return fmt.Sprintf("with %s%s (%s%s)", number(fmt.Sprint(low*t), fmt.Sprint(most*t), " vCPUs"), of,
				words.Count(sum, "core"), less)
		}
		return fmt.Sprintf("with %s%s (%s%s)", number(fmt.Sprint(low), fmt.Sprint(most), " cores"), of,
			words.Count(sum, "core"), less)
	case plan.DemandMemory:
		return fmt.Sprintf("with %s%s (%s%s)", number(c.bytes(low), c.bytes(most), " of memory"), of, c.bytes(sum),
			less)
	}
	if low == 0 {
		return fmt.Sprintf("without %ss for %s", deviceWord(what), c.nodeList(who))
	}
	return fmt.Sprintf("with %s%s", number(fmt.Sprint(low), words.Count(most, deviceWord(what)), ""), of)
}

// smallerReserve finds the largest reserve that helps.
func (c *conflict) smallerReserve(keep []int) string {
	high := c.p.ReserveCores
	for _, n := range c.p.NUMANodes {
		high = max(high, n.ReserveCores)
	}
	low := 1 // the least that a lab file can ask for
	if high <= low || !c.can(keep, reserveOf(low)) {
		return ""
	}
	most := high
	for high--; low < high; {
		middle := (low + high + 1) / 2
		if c.can(keep, reserveOf(middle)) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return fmt.Sprintf("with a reserve of %s instead of %d", words.Count(int64(low), "core"), most)
}

// tenantsTogether offers to move several tenants where one is not enough.
func (c *conflict) tenantsTogether(keep []int) string {
	var edits []edit
	var names []string
	for _, f := range c.facts {
		if f.Kind == plan.FactTenant {
			edits, names = append(edits, withoutTenant(f.Tenant)), append(names, printable(f.Tenant))
		}
	}
	if len(edits) < 2 || !c.can(keep, edits...) {
		return ""
	}
	return "when tenants " + andList(names) + " are moved away"
}

// leaveOut offers to leave out one lab node of the conflict, the last that helps, or else as many as have to be.
func (c *conflict) leaveOut(all []int) string {
	tried := map[int]bool{}
	for k := len(c.set) - 1; k >= 0; k-- {
		i := c.set[k]
		class := c.p.Requests[i].Class
		if tried[class] {
			continue
		}
		tried[class] = true
		rest := slices.DeleteFunc(slices.Clone(all), func(o int) bool { return o == i })
		if len(rest) > 0 && c.can(rest) {
			return "without " + printable(c.p.Requests[i].Name)
		}
	}
	in := c.placed()
	if len(in) == 0 {
		return ""
	}
	out := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return slices.Contains(in, i) })
	return "without " + c.nodeList(out)
}

// placed returns lab nodes that can be placed together: all that still fit, in the order of the
// lab. Of a class of which one did not fit, no other does.
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
