package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// demandOrder is the order in which messages name what is asked for.
var demandOrder = []string{DemandGPUs, DemandNICs, DemandVFs, DemandCores, DemandSMT, DemandMemory}

// demands lists the parts of the requests that play a part.
func (c *conflict) demands() []Demand {
	out := []Demand{}
	for _, i := range c.set {
		r := &c.p.Requests[i]
		any := false
		for _, what := range demandOrder {
			if c.plays(r, what) {
				out = append(out, Demand{Node: r.Name, What: what, Count: amount(c.p, r, what), Text: c.demandText(r, what)})
				any = true
			}
		}
		if !any { // that it is there at all is enough: a core is the least that it takes
			out = append(out, Demand{Node: r.Name, What: DemandCores, Count: int64(r.Cores), Text: c.demandText(r, DemandCores)})
		}
	}
	for _, k := range c.parts.affinity {
		out = append(out, Demand{Among: c.members(k), What: DemandAffinity, Text: c.affinityText(k)})
	}
	if c.reserved() {
		out = append(out, Demand{What: DemandReserve, Count: int64(c.p.ReserveCores), Text: c.reserveText()})
	}
	return out
}

// plays reports whether something that a request asks for plays a part in the conflict.
func (c *conflict) plays(r *Request, what string) bool {
	return c.parts.all[what] && !c.parts.not[[2]string{r.Name, what}] && amount(c.p, r, what) > 0
}

func (c *conflict) reserved() bool { return c.parts.all[DemandReserve] || len(c.set) == 0 }

// demandText says what a request asks for: "2 GPUs", "14 cores (28 vCPUs)".
func (c *conflict) demandText(r *Request, what string) string {
	n := amount(c.p, r, what)
	switch what {
	case DemandCores:
		if r.Threads > 1 {
			return fmt.Sprintf("%s (%d vCPUs)", counted(n, "core"), r.VCPUs)
		}
		return counted(n, "core")
	case DemandSMT:
		return fmt.Sprintf("cores with %d threads", n)
	case DemandMemory:
		return c.bytes(r.Pages)
	}
	return counted(n, deviceWord(what)) + wantText(wantsOf(r, what))
}

// wantText repeats how the lab names the devices, where it says more than a number.
func wantText(wants []Want) string {
	var texts []string
	for _, w := range wants {
		if strings.ContainsFunc(w.Text, func(r rune) bool { return r < '0' || r > '9' }) {
			texts = append(texts, printable(w.Text))
		}
	}
	if texts = slices.Compact(texts); len(texts) == 0 {
		return ""
	}
	return " (" + andList(texts) + ")"
}

func deviceWord(what string) string {
	return map[string]string{DemandGPUs: "GPU", DemandNICs: "NIC", DemandVFs: "virtual function"}[what]
}

// members returns the lab nodes of the conflict that an affinity is of.
func (c *conflict) members(k int) []string {
	var names []string
	for _, i := range c.p.Affinity[k].Requests {
		if slices.Contains(c.set, i) {
			names = append(names, c.p.Requests[i].Name)
		}
	}
	return names
}

func (c *conflict) affinityText(k int) string {
	a := c.p.Affinity[k]
	words := map[string]string{Same: "the same", Different: "different"}
	var parts []string
	if a.NUMA != "" {
		parts = append(parts, words[a.NUMA]+" NUMA nodes")
	}
	if a.NIC != "" {
		parts = append(parts, words[a.NIC]+" NICs")
	}
	return andList(printables(c.members(k))) + " must be on " + strings.Join(parts, " and ")
}

func (c *conflict) reserveText() string {
	text := "the host keeps " + counted(int64(c.p.ReserveCores), "core")
	var on []string
	for _, n := range c.p.NUMANodes {
		if n.ReserveCores > 0 {
			on = append(on, fmt.Sprintf("%d on NUMA node %d", n.ReserveCores, n.ID))
		}
	}
	if len(on) > 0 {
		text += ", " + andList(on)
	}
	return text
}

func printables(names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, printable(n))
	}
	return out
}

func (c *conflict) names() []string {
	var names []string
	for _, i := range c.set {
		names = append(names, printable(c.p.Requests[i].Name))
	}
	return names
}

// message says what conflicts: who, what they need, what there is for it, and what stands in the way.
func (c *conflict) message() string {
	names := c.names()
	var head string
	switch len(names) {
	case 0:
		return c.reserveMessage()
	case 1:
		head = names[0] + " cannot be placed: "
	case 2:
		head = names[0] + " and " + names[1] + " cannot both be placed: "
	default:
		head = andList(names) + " cannot all be placed: "
	}
	var clauses []string
	if needs := c.needs(); needs != "" {
		clauses = append(clauses, needs)
	}
	for _, k := range c.parts.affinity {
		clauses = append(clauses, c.affinityText(k))
	}
	text := strings.Join(clauses, ", and ")
	if there := c.there(); there != "" {
		text += ", and " + there
	}
	var facts []string
	for _, f := range c.facts {
		if f.Kind != FactMemory && f.Kind != FactVFs { // they are in what there is
			facts = append(facts, f.Text)
		}
	}
	if len(facts) > 0 {
		text += ": " + strings.Join(facts, "; ")
	}
	return head + text
}

// reserveMessage says that the host is too small for its own reserve.
func (c *conflict) reserveMessage() string {
	return fmt.Sprintf("the host cannot keep its reserve: %s, and %s", c.reserveText(), c.coresThere(false))
}

// needs says what each lab node asks for: "each needs 2 GPUs", or by lab nodes of equal needs.
func (c *conflict) needs() string {
	byNeed := map[string][]string{}
	var order []string
	for _, i := range c.set {
		r := &c.p.Requests[i]
		var what []string
		for _, d := range demandOrder {
			if c.plays(r, d) {
				what = append(what, c.demandText(r, d))
			}
		}
		if len(what) == 0 {
			continue
		}
		need := andList(what)
		if byNeed[need] == nil {
			order = append(order, need)
		}
		byNeed[need] = append(byNeed[need], printable(r.Name))
	}
	if len(order) == 1 && len(byNeed[order[0]]) == len(c.set) {
		if len(c.set) == 1 {
			return "it needs " + order[0]
		}
		return "each needs " + order[0]
	}
	var parts []string
	for _, need := range order {
		who := byNeed[need]
		if len(who) == 1 {
			parts = append(parts, who[0]+" needs "+need)
		} else {
			parts = append(parts, andList(who)+" need "+need+" each")
		}
	}
	return strings.Join(parts, ", ")
}

// there says what there is of what plays a part.
func (c *conflict) there() string {
	var parts []string
	for _, what := range []string{DemandGPUs, DemandNICs} {
		if c.parts.all[what] {
			parts = append(parts, c.devicesThere(what))
		}
	}
	if c.parts.all[DemandVFs] {
		var nics []string
		for _, d := range anyOf(c.p, c.set, DemandVFs) {
			nics = append(nics, fmt.Sprintf("%s can give %s", printable(c.p.Devices[d].ID), counted(int64(c.p.Devices[d].VFs), "virtual function")))
		}
		parts = append(parts, andList(nics))
	}
	if c.parts.all[DemandCores] || c.parts.all[DemandSMT] || c.parts.all[DemandReserve] {
		parts = append(parts, c.coresThere(c.parts.all[DemandSMT]))
	}
	if c.parts.all[DemandMemory] {
		var nodes []string
		for _, n := range c.p.NUMANodes {
			if n.Pages != nil {
				nodes = append(nodes, fmt.Sprintf("NUMA node %d %s", n.ID, c.bytes(*n.Pages)))
			}
		}
		if len(nodes) > 0 {
			parts = append(parts, "there is this much memory to give: "+andList(nodes))
		}
	}
	return strings.Join(parts, ", and ")
}

// devicesThere says how many devices of a kind there are and how many the lab nodes can get.
func (c *conflict) devicesThere(what string) string {
	kind := map[string]string{DemandGPUs: KindGPU, DemandNICs: KindNIC}[what]
	all := 0
	for d := range c.p.Devices {
		if c.p.Devices[d].Kind == kind {
			all++
		}
	}
	can := anyOf(c.p, c.set, what)
	text := fmt.Sprintf("of %s %d can be theirs", counted(int64(all), deviceWord(what)), len(can))
	if len(c.set) == 1 {
		text = fmt.Sprintf("of %s %d can be its own", counted(int64(all), deviceWord(what)), len(can))
	}
	if len(can) == 0 || len(can) > 4 {
		return text
	}
	var names []string
	for _, d := range can {
		names = append(names, printable(c.p.Devices[d].ID))
	}
	return text + " (" + strings.Join(names, ", ") + ")"
}

// coresThere says how many cores can be given, and who has the others.
func (c *conflict) coresThere(threads bool) string {
	held := map[string]int64{}
	var free, wide int64
	for i := range c.p.Cores {
		k := &c.p.Cores[i]
		if k.Tenant != "" {
			held[k.Tenant]++
			continue
		}
		free++
		if len(k.CPUs) > 1 {
			wide++
		}
	}
	if c.parts.all[DemandReserve] {
		free -= int64(c.p.ReserveCores)
	}
	text := fmt.Sprintf("of %s %d can be given", counted(int64(len(c.p.Cores)), "core"), max(0, free))
	if threads {
		text += fmt.Sprintf(", %d of them with several threads", wide)
	}
	if len(c.set) == 0 {
		text = fmt.Sprintf("of %s %d are free", counted(int64(len(c.p.Cores)), "core"), free)
	}
	var why []string
	if c.parts.all[DemandReserve] {
		why = append(why, c.reserveText())
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		if !slices.ContainsFunc(c.facts, func(f Fact) bool { return f.Tenant == name }) {
			why = append(why, fmt.Sprintf("tenant %s holds %d", printable(name), held[name]))
		}
	}
	if len(why) > 0 {
		text += " (" + strings.Join(why, ", ") + ")"
	}
	return text
}
