package plan

import (
	"fmt"
	"slices"
	"strings"
)

// maxOffers bounds how many ways out are told.
const maxOffers = 4

// nearest says what would fit: each offer has been tried. Offers are for the whole lab; where none helps it, because there are other conflicts too, they are for
// the lab nodes of this one, and the text says so.
func (c *conflict) nearest() string {
	all := make([]int, len(c.p.Requests))
	for i := range all {
		all[i] = i
	}
	if offers := c.offers(all); len(offers) > 0 {
		return "it fits " + strings.Join(offers, ", or ")
	}
	if placed := c.placed(); len(placed) > 0 {
		var names []string
		for _, i := range placed {
			names = append(names, printable(c.p.Requests[i].Name))
		}
		text := andList(names) + " can be placed without the others"
		if len(c.set) > 1 || len(c.set) < len(all) {
			if offers := c.offers(c.set); len(offers) > 0 && len(c.set) > 0 {
				text += "; " + andList(c.names()) + " fit " + strings.Join(offers, ", or ") + ", but then others do not"
			}
		}
		return text
	}
	if offers := c.offers(c.set); len(offers) > 0 {
		return andList(c.names()) + ": it fits " + strings.Join(offers, ", or ") + ", but then other lab nodes do not"
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
	for _, what := range demandOrder {
		if c.parts.all[what] && what != DemandSMT {
			add(c.cut(keep, what))
		}
	}
	if c.parts.all[DemandSMT] && c.can(keep, without(DemandSMT, c.rawNames())) {
		add("with smt: off for " + andList(c.names()))
	}
	if c.reserved() {
		add(c.smallerReserve(keep))
	}
	for _, k := range c.parts.affinity {
		if len(out) < maxOffers && c.can(keep, withoutAffinity(k)) {
			add("where " + andList(printables(c.members(k))) + " need not be on " + strings.SplitN(c.affinityText(k), " must be on ", 2)[1])
		}
	}
	for _, f := range c.facts {
		if f.Kind == FactTenant && !f.Together && len(out) < maxOffers && c.can(keep, withoutTenant(f.Tenant)) {
			add("when tenant " + printable(f.Tenant) + " is moved away")
		}
	}
	add(c.tenantsTogether(keep))
	if len(c.set) > 1 && len(out) < maxOffers {
		add(c.leaveOut(keep))
	}
	return out
}

func (c *conflict) rawNames() []string {
	var names []string
	for _, i := range c.set {
		names = append(names, c.p.Requests[i].Name)
	}
	return names
}

// cut finds the largest equal cut of something that helps: by halving, because to ask for less is never harder.
func (c *conflict) cut(keep []int, what string) string {
	var names []string
	var most, least, sum int64
	var threads []int
	each := func(do func(r *Request, n int64)) {
		for _, i := range c.set {
			if r := &c.p.Requests[i]; c.plays(r, what) {
				n := amount(c.p, r, what)
				if what == DemandMemory {
					n = r.Pages
				}
				do(r, n)
			}
		}
	}
	each(func(r *Request, n int64) {
		names = append(names, r.Name)
		threads = append(threads, r.Threads)
		if least == 0 || n < least {
			least = n
		}
		most = max(most, n)
	})
	floor := int64(0)
	if what == DemandCores || what == DemandMemory {
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
	each(func(_ *Request, n int64) { sum += max(0, n-low) })
	who := ""
	if len(names) > 1 {
		who = " each"
	}
	if len(names) < len(c.set) || len(c.set) < len(c.p.Requests) {
		who += " for " + andList(printables(names))
	}
	equal := most == least
	instead := func(from string) string {
		if equal {
			return " instead of " + from
		}
		return " at most"
	}
	switch what {
	case DemandCores:
		slices.Sort(threads)
		less := counted(sum, "core") + " less"
		if len(names) > 1 {
			less += " in all"
		}
		if t := threads[0]; t == threads[len(threads)-1] {
			return fmt.Sprintf("with %d%s vCPUs%s (%s)", low*int64(t), instead(fmt.Sprint(most*int64(t))), who, less)
		}
		return fmt.Sprintf("with %d%s cores%s (%s)", low, instead(fmt.Sprint(most)), who, less)
	case DemandMemory:
		return fmt.Sprintf("with %s%s of memory%s (%s less in all)", c.bytes(low), instead(c.bytes(most)), who, c.bytes(sum))
	}
	if low == 0 {
		return fmt.Sprintf("without %ss for %s", deviceWord(what), andList(printables(names)))
	}
	return fmt.Sprintf("with %d%s%s", low, instead(counted(most, deviceWord(what))), who)
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
	return fmt.Sprintf("with a reserve of %s instead of %d", counted(int64(low), "core"), most)
}

// tenantsTogether offers to move several tenants where one is not enough.
func (c *conflict) tenantsTogether(keep []int) string {
	var edits []edit
	var names []string
	for _, f := range c.facts {
		if f.Kind == FactTenant && f.Together {
			edits, names = append(edits, withoutTenant(f.Tenant)), append(names, printable(f.Tenant))
		}
	}
	if len(edits) == 0 || !c.can(keep, edits...) {
		return ""
	}
	return "when tenants " + andList(names) + " are moved away"
}

// leaveOut offers to leave one of the lab nodes out, the last that helps.
func (c *conflict) leaveOut(keep []int) string {
	tried := map[int]bool{}
	for k := len(c.set) - 1; k >= 0; k-- {
		i := c.set[k]
		if class := c.p.Requests[i].Class; tried[class] {
			continue
		} else {
			tried[class] = true
		}
		rest := slices.DeleteFunc(slices.Clone(keep), func(o int) bool { return o == i })
		if len(rest) > 0 && c.can(rest) {
			return "without " + printable(c.p.Requests[i].Name)
		}
	}
	return ""
}

// placed returns lab nodes that can be placed together: all that still fit, in the order of the lab. Of a class of which one did not fit, no other does.
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
