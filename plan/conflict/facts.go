package conflict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

const maxFacts = 48

type lift struct {
	fact plan.Fact
	edit edit
}

// findFacts tries single facts, then all of a kind: several tenants may be in the way only together.
func (c *conflict) findFacts() {
	lifts := c.lifts()
	for _, l := range lifts {
		if c.can(c.set, append(slices.Clone(c.drops), l.edit)...) {
			c.facts = append(c.facts, l.fact)
		}
	}
	if len(c.facts) > 0 {
		return
	}
	for _, kind := range []string{plan.FactTenant, plan.FactBundle, plan.FactRefused, plan.FactVFs, plan.FactMemory} {
		edits := slices.Clone(c.drops)
		var facts []plan.Fact
		for _, l := range lifts {
			if l.fact.Kind == kind {
				l.fact.Together = true
				facts, edits = append(facts, l.fact), append(edits, l.edit)
			}
		}
		if len(facts) > 1 && c.can(c.set, edits...) {
			c.facts = append(c.facts, facts...)
		}
	}
}

func (c *conflict) lifts() []lift {
	var all []lift
	add := func(f plan.Fact, e edit) {
		if len(all) < maxFacts {
			all = append(all, lift{f, e})
		}
	}
	for _, name := range c.tenants() {
		add(c.tenantFact(name), withoutTenant(name))
	}
	for _, b := range c.bundles() {
		add(c.bundleFact(b), unbundle(b))
	}
	for d, dev := range c.p.Devices {
		what := demandOf(dev.Kind)
		if !dev.Whole && dev.Tenant == "" && c.parts.all[what] && c.wouldServe(d, what) {
			text := words.Plain(dev.ID) + " stays"
			if dev.Refused != "" {
				text += ": " + words.Plain(dev.Refused)
			}
			add(plan.Fact{Kind: plan.FactRefused, Devices: []string{dev.ID}, Text: text}, givable(d))
		}
	}
	if c.parts.all[plan.DemandVFs] {
		for _, d := range anyOf(c.p, c.set, plan.DemandVFs) {
			dev := &c.p.Devices[d]
			text := words.Plain(dev.ID) + " has " + words.Count(dev.VFs, "virtual function") + " to give"
			add(plan.Fact{Kind: plan.FactVFs, Devices: []string{dev.ID}, Text: text}, manyVFs(d))
		}
	}
	for k, pkg := range c.p.Packages {
		if c.parts.busy && pkg.Busy != "" {
			text := fmt.Sprintf("package %d keeps a core for %s", pkg.ID, words.Plain(pkg.Busy))
			add(plan.Fact{Kind: plan.FactPackage, Package: new(pkg.ID), Text: text}, notBusy(k))
		}
	}
	for k, n := range c.p.NUMANodes {
		if c.parts.all[plan.DemandMemory] && n.Pages != nil {
			text := fmt.Sprintf("NUMA node %d can give %s", n.ID, c.bytes(*n.Pages))
			add(plan.Fact{Kind: plan.FactMemory, NUMANode: new(n.ID), Text: text}, unlimitedMemory(k))
		}
	}
	return all
}

func (c *conflict) wouldServe(d int, what string) bool {
	return slices.ContainsFunc(c.set, func(i int) bool {
		takes := func(w plan.Want) bool { return wouldTake(c.p, &w, d) }
		return slices.ContainsFunc(wantsOf(&c.p.Requests[i], what), takes)
	})
}

func (c *conflict) tenants() []string {
	names := lists.SetOf(c.p.Cores, func(k plan.Core) string { return k.Tenant })
	for _, dev := range c.p.Devices {
		names[dev.Tenant] = true
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// tenantFact describes a tenant that is known to be in the way: the relevant cores and devices, or else all.
func (c *conflict) tenantFact(name string) plan.Fact {
	f := plan.Fact{Kind: plan.FactTenant, Tenant: name}
	var has, others []string
	add := func(what string, matters bool) {
		if matters {
			has = append(has, what)
		} else {
			others = append(others, what)
		}
	}
	cores := lists.Count(c.p.Cores, func(k plan.Core) bool { return k.Tenant == name })
	if cores > 0 {
		add(words.Count(cores, "core"), c.parts.all[plan.DemandCores] || c.parts.all[plan.DemandSMT] || c.reserved())
	}
	for _, dev := range c.p.Devices {
		if dev.Tenant == name {
			f.Devices = append(f.Devices, dev.ID)
			add(words.Plain(dev.ID), c.parts.all[demandOf(dev.Kind)])
		}
	}
	if len(has) == 0 {
		has = others
	}
	f.Text = "VM " + words.Plain(name) + " holds " + andList(has)
	return f
}

func demandOf(kind string) string {
	if kind == plan.KindGPU {
		return plan.DemandGPUs
	}
	return plan.DemandNICs
}

func (c *conflict) bundles() []int {
	size, wanted := map[int]int{}, map[int]bool{}
	for d := range c.p.Devices {
		size[c.p.Devices[d].Bundle]++
	}
	for _, what := range []string{plan.DemandGPUs, plan.DemandNICs, plan.DemandVFs} {
		if c.parts.all[what] {
			for _, d := range anyOf(c.p, c.set, what) {
				wanted[c.p.Devices[d].Bundle] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(wanted)), func(b int) bool { return size[b] < 2 })
}

func (c *conflict) bundleFact(bundle int) plan.Fact {
	f := plan.Fact{Kind: plan.FactBundle}
	group := ""
	var names []string
	for _, dev := range c.p.Devices {
		if dev.Bundle == bundle {
			f.Devices = append(f.Devices, dev.ID)
			names = append(names, words.Plain(dev.ID))
			group = cmp.Or(group, dev.Group)
		}
	}
	if group == "" {
		f.Text = andList(names) + " can only go together"
	} else {
		f.Text = andList(names) + " are tied by " + words.Plain(group)
	}
	return f
}

func (c *conflict) bytes(pages int64) string { return lab.Bytes(pages * int64(c.p.PageBytes)).String() }

const manyNames = 6

func andList(names []string) string {
	if len(names) > manyNames {
		return words.Names(names, manyNames-1) // never "and 1 more"
	}
	return words.List(names)
}
