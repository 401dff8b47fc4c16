package conflict

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

var demandOrder = []string{plan.DemandGPUs, plan.DemandNICs, plan.DemandVFs, plan.DemandCores, plan.DemandSMT,
	plan.DemandMemory}

// demands is message for programs.
func (c *conflict) demands() []plan.Demand {
	out := []plan.Demand{}
	for _, i := range c.set {
		r := &c.p.Requests[i]
		playing := lists.Filter(demandOrder, func(what string) bool { return c.isRelevant(r, what) })
		if playing == nil {
			playing = []string{plan.DemandCores}
		}
		for _, what := range playing {
			out = append(out, plan.Demand{Node: r.Name, What: what, Count: amount(c.p, r, what),
				Text: c.demandText(r, what)})
		}
	}
	for _, k := range c.parts.affinity {
		out = append(out, plan.Demand{Among: c.names(c.members(k)), What: plan.DemandAffinity, Text: c.affinityText(k)})
	}
	if c.reserved() {
		out = append(out, plan.Demand{What: plan.DemandReserve, Count: int64(c.p.ReserveCores), Text: c.reserveText()})
	}
	return out
}

func (c *conflict) isRelevant(r *plan.Request, what string) bool {
	return c.parts.all[what] && !c.parts.not[[2]string{r.Name, what}] && amount(c.p, r, what) > 0
}

func (c *conflict) reserved() bool { return c.parts.all[plan.DemandReserve] || len(c.set) == 0 }

func (c *conflict) demandText(r *plan.Request, what string) string {
	n := amount(c.p, r, what)
	switch what {
	case plan.DemandCores:
		if r.Threads > 1 {
			return fmt.Sprintf("%s (%d vCPUs)", words.Count(n, "core"), r.VCPUs)
		}
		return words.Count(n, "core")
	case plan.DemandSMT:
		return fmt.Sprintf("cores with %d threads", n)
	case plan.DemandMemory:
		return c.bytes(r.Pages) + " of memory"
	}
	return words.Count(n, deviceWord(what)) + wantText(wantsOf(r, what))
}

// wantText repeats selectors: "2 GPUs" alone would hide that the vendor excluded the others.
func wantText(wants []plan.Want) string {
	var texts []string
	for _, w := range wants {
		if strings.ContainsFunc(w.Text, func(r rune) bool { return r < '0' || r > '9' }) {
			texts = append(texts, words.Plain(w.Text))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return " (" + andList(slices.Compact(texts)) + ")"
}

func deviceWord(what string) string {
	return map[string]string{plan.DemandGPUs: "GPU", plan.DemandNICs: "NIC", plan.DemandVFs: "virtual function"}[what]
}

func (c *conflict) members(k int) []int {
	return slices.DeleteFunc(slices.Clone(c.p.Affinity[k].Requests), func(i int) bool {
		return !slices.Contains(c.set, i)
	})
}

func (c *conflict) affinityText(k int) string {
	a := c.p.Affinity[k]
	which := map[string]string{plan.Same: "the same", plan.Different: "different"}
	var parts []string
	if a.NUMA != "" && !c.parts.noNUMA {
		parts = append(parts, which[a.NUMA]+" NUMA nodes")
	}
	if a.NIC != "" && !c.parts.noNIC {
		parts = append(parts, which[a.NIC]+" NICs")
	}
	if parts == nil {
		return ""
	}
	members := c.members(k)
	who := c.nodeList(members)
	if len(members) == len(c.set) {
		who = "they"
	}
	return who + " must be on " + strings.Join(parts, " and ")
}

func (c *conflict) reserveText() string {
	text := "the host keeps " + words.Count(c.p.ReserveCores, "core")
	var on []string
	for _, n := range c.p.NUMANodes {
		if n.ReserveCores > 0 {
			on = append(on, fmt.Sprintf("%d of them on NUMA node %d", n.ReserveCores, n.ID))
		}
	}
	if len(on) > 0 {
		text += ", " + andList(on)
	}
	return text
}

const manyInRow = 4

// nodeList has runs by position in the lab, which agrees with the numbers in names.
func (c *conflict) nodeList(requests []int) string {
	name := func(i int) string { return words.Plain(c.p.Requests[i].Name) }
	var names []string
	for len(requests) > 0 {
		run := 1
		for run < len(requests) && requests[run] == requests[0]+run {
			run++
		}
		if run < manyInRow {
			run = 1
			names = append(names, name(requests[0]))
		} else {
			names = append(names, name(requests[0])+" to "+name(requests[run-1]))
		}
		requests = requests[run:]
	}
	return andList(names)
}

func (c *conflict) message() string {
	all := ""
	switch len(c.set) {
	case 0:
		return c.reserveMessage()
	case 1:
	case 2:
		all = "both "
	default:
		all = "all "
	}
	head := c.nodeList(c.set) + " cannot " + all + "be placed: "
	clauses := []string{c.needs()}
	clauses = append(clauses, lists.Map(c.parts.affinity, c.affinityText)...)
	clauses = append(clauses, c.supplyText())
	clauses = slices.DeleteFunc(clauses, func(s string) bool { return s == "" })
	text := strings.Join(clauses, ", and ")
	var facts []string
	for _, f := range c.facts {
		if f.Kind != plan.FactMemory && f.Kind != plan.FactVFs { // c.there has mentioned these
			facts = append(facts, f.Text)
		}
	}
	tied := slices.ContainsFunc(c.facts, func(f plan.Fact) bool { return f.Kind == plan.FactBundle })
	if c.parts.all[plan.DemandVFs] && (c.parts.all[plan.DemandNICs] || tied) {
		facts = append(facts, "a NIC that is given away, or anything that goes together with it, gives no virtual "+
			"functions")
	}
	if len(facts) > 0 {
		text += ": " + strings.Join(facts, "; ")
	}
	return head + text
}

func (c *conflict) reserveMessage() string {
	free, on := freeCores(c.p)
	text := fmt.Sprintf("of %s, no other VM holds %d", words.Count(len(c.p.Cores), "core"), free)
	for _, n := range c.p.NUMANodes {
		if on[n.ID] < n.ReserveCores {
			text += fmt.Sprintf(", %d of them on NUMA node %d", on[n.ID], n.ID)
		}
	}
	if len(c.facts) > 0 {
		text += ": " + strings.Join(lists.Map(c.facts, func(f plan.Fact) string { return f.Text }), "; ")
	}
	return "no lab node can be placed: " + c.reserveText() + ", and " + text
}

// needs are by groups of lab nodes with equal needs.
func (c *conflict) needs() string {
	if asked, there := c.inAll(); there != "" {
		return asked + " asked for and " + there
	} else if asked != "" {
		return asked + " asked for"
	}
	var byNeed group.By[string, int]
	for _, i := range c.set {
		if need := c.need(&c.p.Requests[i]); need != "" {
			byNeed.Add(need, i)
		}
	}
	var parts []string
	for _, need := range byNeed.Keys {
		switch who := byNeed.Of(need); {
		case len(who) == len(c.set) && len(who) == 1:
			return "it needs " + need
		case len(who) == len(c.set):
			return "each needs " + need
		case len(who) == 1:
			parts = append(parts, c.nodeList(who)+" needs "+need)
		default:
			parts = append(parts, c.nodeList(who)+" need "+need+" each")
		}
	}
	return strings.Join(parts, ", ")
}

func (c *conflict) inAll() (asked, there string) {
	if len(c.parts.all) != 1 || len(c.set) < 2 || len(c.parts.affinity) > 0 {
		return "", ""
	}
	for what := range c.parts.all {
		var n, all, can int64
		for _, i := range c.set {
			r := &c.p.Requests[i]
			if deviceWord(what) == "" || wantText(wantsOf(r, what)) != "" {
				return "", ""
			}
			n += amount(c.p, r, what)
		}
		all = c.devicesOf(what)
		can += lists.Sum(anyOf(c.p, c.set, what), func(d int) int64 { return int64(c.p.Gives(d, what)) })
		if n <= can {
			return "", ""
		}
		if can == all {
			there = fmt.Sprintf("%d are there", all)
		}
		return words.Count(n, deviceWord(what)) + " are", there
	}
	return "", ""
}

func (c *conflict) need(r *plan.Request) string {
	var what []string
	for _, d := range demandOrder {
		switch {
		case !c.isRelevant(r, d):
		case d == plan.DemandCores && c.isRelevant(r, plan.DemandSMT):
			what = append(what, fmt.Sprintf("%s with %d threads each (%d vCPUs)", words.Count(r.Cores, "core"),
				r.Threads, r.VCPUs))
		case d == plan.DemandSMT && c.isRelevant(r, plan.DemandCores): // mentioned with the cores
		default:
			what = append(what, c.demandText(r, d))
		}
	}
	return andList(what)
}

func (c *conflict) supplyText() string {
	var parts []string
	add := func(text func() string, kinds ...string) {
		if slices.ContainsFunc(kinds, func(what string) bool { return c.parts.all[what] }) {
			parts = append(parts, text())
		}
	}
	for _, what := range []string{plan.DemandGPUs, plan.DemandNICs} {
		add(func() string { return c.devicesThere(what) }, what)
	}
	add(c.vfsThere, plan.DemandVFs)
	add(c.coresThere, plan.DemandCores, plan.DemandSMT, plan.DemandReserve)
	add(c.memoryThere, plan.DemandMemory)
	if slices.ContainsFunc(c.parts.affinity, func(k int) bool {
		return c.p.Affinity[k].NUMA != "" && !c.parts.noNUMA
	}) {
		_, on := freeCores(c.p)
		have := " have"
		if len(on) == 1 {
			have = " has"
		}
		parts = append(parts, words.Count(len(on), "NUMA node")+have+" cores to give")
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, ", and ")
}

func (c *conflict) vfsThere() string {
	var of []string
	var sum int64
	for _, d := range anyOf(c.p, c.set, plan.DemandVFs) {
		dev := &c.p.Devices[d]
		sum += int64(dev.VFs)
		of = append(of, fmt.Sprintf("%d of %s", dev.VFs, words.Plain(dev.ID)))
	}
	return thereAre(sum, "virtual function") + " to give (" + andList(of) + ")"
}

// Memory is irrelevant if the amount on any node is unknown.
func (c *conflict) memoryThere() string {
	var on []string
	var sum int64
	for _, n := range c.p.NUMANodes {
		if n.Pages != nil {
			sum += *n.Pages
			on = append(on, fmt.Sprintf("%s on NUMA node %d", c.bytes(*n.Pages), n.ID))
		}
	}
	text := "there is " + c.bytes(sum) + " to give"
	if len(on) != 1 {
		text += " (" + andList(on) + ")"
	}
	return text
}

func thereAre(n int64, one string) string {
	if n == 1 {
		return "there is 1 " + one
	}
	return "there are " + words.Count(n, one)
}

func (c *conflict) devicesOf(what string) int64 {
	return int64(lists.Count(c.p.Devices, func(d plan.Device) bool { return demandOf(d.Kind) == what }))
}

func (c *conflict) devicesThere(what string) string {
	all := c.devicesOf(what)
	can := anyOf(c.p, c.set, what)
	if int64(len(can)) == all {
		if _, there := c.inAll(); there != "" {
			return "" // mentioned with the needs
		}
		return thereAre(all, deviceWord(what))
	}
	text := fmt.Sprintf("%d of %s can be used", len(can), words.Count(all, deviceWord(what)))
	if len(can) == 0 || len(can) > 4 {
		return text
	}
	names := lists.Map(can, func(d int) string { return words.Plain(c.p.Devices[d].ID) })
	return text + " (" + strings.Join(names, ", ") + ")"
}

func (c *conflict) coresThere() string {
	held := map[string]int{}
	free, wide := 0, 0
	for _, k := range c.p.Cores {
		switch {
		case k.Tenant != "":
			held[k.Tenant]++
			continue
		case len(k.CPUs) > 1:
			wide++
		}
		free++
	}
	if c.parts.all[plan.DemandReserve] {
		free -= c.p.ReserveCores
	}
	all := len(c.p.Cores)
	text := thereAre(int64(all), "core")
	if free < all {
		text = fmt.Sprintf("of %s %d can be given", words.Count(all, "core"), max(0, free))
	}
	if c.parts.all[plan.DemandSMT] {
		text += fmt.Sprintf(", %d of them with several threads", min(wide, max(0, free)))
	}
	var why []string
	if c.parts.all[plan.DemandReserve] {
		why = append(why, c.reserveText())
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		if !slices.ContainsFunc(c.facts, func(f plan.Fact) bool { return f.Tenant == name }) {
			why = append(why, fmt.Sprintf("VM %s holds %d", words.Plain(name), held[name]))
		}
	}
	if len(why) > 0 {
		text += " (" + strings.Join(why, ", ") + ")"
	}
	return text
}
