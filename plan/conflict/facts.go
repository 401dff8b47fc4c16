package conflict

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// maxFacts bounds the facts that are tried.
const maxFacts = 48

// A lift is a fact, and the edit that would make it go away.
type lift struct {
	fact plan.Fact
	edit edit
}

// findFacts finds the facts of the host without any one of which the requests could be met. Where
// there is no such fact, it tries all facts of a kind together.
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

// lifts lists the facts that could matter to the parts of the conflict.
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
	for d := range c.p.Devices {
		dev := &c.p.Devices[d]
		what := demandOf(dev.Kind)
		if !dev.Whole && dev.Tenant == "" && c.parts.all[what] && c.wouldServe(d, what) {
			text := printable(dev.ID) + " stays"
			if dev.Refused != "" {
				text += ": " + printable(dev.Refused)
			}
			add(plan.Fact{Kind: plan.FactRefused, Devices: []string{dev.ID}, Text: text}, givable(d))
		}
	}
	if c.parts.all[plan.DemandVFs] {
		for _, d := range anyOf(c.p, c.set, plan.DemandVFs) {
			dev := &c.p.Devices[d]
			add(plan.Fact{Kind: plan.FactVFs, Devices: []string{dev.ID}, Text: fmt.Sprintf("%s has %s to give",
				printable(dev.ID),
				words.Count(int64(dev.VFs), "virtual function"))},
				manyVFs(d))
		}
	}
	if c.parts.busy {
		for k, pkg := range c.p.Packages {
			if pkg.Busy != "" {
				add(plan.Fact{Kind: plan.FactPackage, Package: new(pkg.ID),
					Text: fmt.Sprintf("package %d keeps a core for %s",
						pkg.ID, printable(pkg.Busy))}, notBusy(k))
			}
		}
	}
	if c.parts.all[plan.DemandMemory] {
		for k, n := range c.p.NUMANodes {
			if n.Pages != nil {
				add(plan.Fact{Kind: plan.FactMemory, NUMANode: new(n.ID), Text: fmt.Sprintf("NUMA node %d can give %s",
					n.ID,
					c.bytes(*n.Pages))}, unlimitedMemory(k))
			}
		}
	}
	return all
}

// wouldServe reports whether a request of the conflict would take a device that is refused.
func (c *conflict) wouldServe(d int, what string) bool {
	for _, i := range c.set {
		wants := wantsOf(&c.p.Requests[i], what)
		for k := range wants {
			if wouldTake(c.p, &wants[k], d) {
				return true
			}
		}
	}
	return false
}

// tenants returns the names of all tenants that hold cores or devices.
func (c *conflict) tenants() []string {
	names := map[string]bool{}
	for i := range c.p.Cores {
		names[c.p.Cores[i].Tenant] = true
	}
	for d := range c.p.Devices {
		names[c.p.Devices[d].Tenant] = true
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// tenantFact says what a tenant holds, as far as it matters here.
func (c *conflict) tenantFact(name string) plan.Fact {
	f := plan.Fact{Kind: plan.FactTenant, Tenant: name}
	var has, others []string
	cores := int64(0)
	for i := range c.p.Cores {
		if c.p.Cores[i].Tenant == name {
			cores++
		}
	}
	if text := words.Count(cores, "core"); cores > 0 && (c.parts.all[plan.DemandCores] || c.parts.all[plan.DemandSMT] ||
		c.reserved()) {
		has = append(has, text)
	} else if cores > 0 {
		others = append(others, text)
	}
	for d := range c.p.Devices {
		dev := &c.p.Devices[d]
		if dev.Tenant != name {
			continue
		}
		f.Devices = append(f.Devices, dev.ID)
		if c.parts.all[demandOf(dev.Kind)] {
			has = append(has, printable(dev.ID))
		} else {
			others = append(others, printable(dev.ID))
		}
	}
	if len(has) == 0 {
		has = others
	}
	f.Text = "tenant " + printable(name) + " holds " + andList(has)
	return f
}

// demandOf returns what asks for whole devices of a kind.
func demandOf(kind string) string {
	if kind == plan.KindGPU {
		return plan.DemandGPUs
	}
	return plan.DemandNICs
}

// bundles returns the bundles of several devices of which the conflict could use one.
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
	for d := range c.p.Devices {
		if dev := &c.p.Devices[d]; dev.Bundle == bundle {
			f.Devices = append(f.Devices, dev.ID)
			names = append(names, printable(dev.ID))
			if group == "" {
				group = dev.Group
			}
		}
	}
	f.Text = andList(names) + " can only go together"
	if group != "" {
		f.Text = andList(names) + " are tied by " + printable(group)
	}
	return f
}

// bytes writes an amount of pages.
func (c *conflict) bytes(pages int64) string { return lab.Bytes(pages * int64(c.p.PageBytes)).String() }

// manyNames bounds lists of names in messages.
const manyNames = 6

// andList joins names: "a", "a and b", "a, b and c", and counts those past a few.
func andList(names []string) string {
	if len(names) > manyNames {
		return strings.Join(names[:manyNames-1], ", ") + fmt.Sprintf(" and %d more", len(names)-manyNames+1)
	}
	return words.List(names)
}
