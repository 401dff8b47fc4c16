package hostview

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// A scene is the picture before layout: packages with NUMA nodes as rooms.
type scene struct {
	Groups []roomGroup
	NVLink []nvlinkSet
}

type roomGroup struct {
	Title string // "" if unknown; then there is no box
	Rooms []room
	Odd   bool // devices without a known place
	order int
}

// A room may hold devices without a NUMA node.
type room struct {
	Title  string
	Full   string // shown on hover
	CPUs   *topology.CPUSet
	Lines  []string
	Caches []cacheCells
	Blocks []block
	Marks  []mark
	Odd    bool

	Holdings []holding // owners' parts, with a Placement
	Memory   uint64
}

type mark struct {
	ID       string
	Severity finding.Severity
	Full     string
}

// cacheCells share an L3 cache.
type cacheCells struct {
	Known bool // the L3 cache is known
	Cells []coreCell
	Full  string
}

type coreCell struct {
	Threads   int
	Isolated  bool
	Efficient bool
	Owners    []int
}

// maxCells limits the cores of a node: a number says more than thousands of cells.
const maxCells = 1024

func newScene(v *view) *scene {
	s := &scene{NVLink: v.nvlinkSets()}
	forests := v.forests()
	add := func(title string, order int, r room, odd bool) {
		// Nodes of a package need not be adjacent.
		i := slices.IndexFunc(s.Groups, func(g roomGroup) bool { return g.Title == title })
		if i < 0 {
			i = len(s.Groups)
			s.Groups = append(s.Groups, roomGroup{Title: title, Odd: odd, order: order})
		}
		s.Groups[i].Rooms = append(s.Groups[i].Rooms, r)
	}
	for i := range v.Host.NUMANodes {
		n := &v.Host.NUMANodes[i]
		title, at := v.groupOf(n)
		add(title, at, v.nodeRoom(n, forests[n.ID]), false)
		delete(forests, n.ID)
	}
	if len(v.Host.NUMANodes) == 0 {
		// lspci tells nothing else about a node.
		for _, id := range lists.Keys(forests) {
			if id != unplaced {
				add("", 0, room{Title: fmt.Sprintf("NUMA node %d", id), Lines: []string{"known from its devices alone"},
					Blocks: forests[id]}, false)
				delete(forests, id)
			}
		}
	}
	if len(v.Host.NUMANodes) == 0 && len(s.Groups) == 0 && (v.onlineCPUs().Len() > 0 || len(forests[unplaced]) > 0) {
		title := ""
		if len(v.Host.Packages) == 1 {
			title = v.packageTitle([]int{v.Host.Packages[0].ID})
		}
		add(title, 0, v.machineRoom(forests[unplaced]), false)
		delete(forests, unplaced)
	}
	// On a node that is not listed, or on none.
	for _, id := range lists.Keys(forests) {
		r := room{Title: fmt.Sprintf("NUMA node %d", id), Lines: []string{"named by devices, not by the kernel"},
			Blocks: forests[id], Odd: true}
		if id == unplaced {
			r.Title, r.Lines = "NUMA node not known", []string{"nothing says to which node these are attached"}
		}
		r.Full = r.Title + ": " + r.Lines[0]
		// The title " " keeps them out of the group "" of a machine without known packages.
		add(" ", 1<<30, r, true)
	}
	slices.SortStableFunc(s.Groups, func(a, b roomGroup) int { return cmp.Compare(a.order, b.order) })
	return s
}

// groupOf also returns an order. A node without CPUs joins the nearest package, and unknown packages come last.
func (v *view) groupOf(n *topology.NUMANode) (title string, order int) {
	if len(v.Host.Packages) == 0 {
		return "", 0
	}
	cpus := n.CPUs
	if cpus.IsEmpty() {
		best := -1
		for i, dist := range n.Distances {
			if i >= len(v.Host.NUMANodes) || v.Host.NUMANodes[i].CPUs.IsEmpty() {
				continue
			}
			// Such a node is memory on a device or another bus. The firmware tells distances.
			if best < 0 || dist < n.Distances[best] {
				best = i
			}
		}
		if best < 0 {
			return "Nodes without CPUs", 1 << 29
		}
		cpus = v.Host.NUMANodes[best].CPUs
	}
	ids := v.packagesOf(cpus)
	if len(ids) == 0 {
		return "Package not known", 1 << 28
	}
	return v.packageTitle(ids), slices.IndexFunc(v.Host.Packages, func(p topology.Package) bool {
		return p.ID == ids[0]
	})
}

// packagesOf uses the list of packages, or else the cores.
func (v *view) packagesOf(cpus topology.CPUSet) []int {
	var ids []int
	for i := range v.Host.Packages {
		if p := &v.Host.Packages[i]; p.CPUs.Overlaps(cpus) {
			ids = append(ids, p.ID)
		}
	}
	if len(ids) > 0 {
		return ids
	}
	for i := range v.Host.Cores {
		if c := &v.Host.Cores[i]; c.Package != nil && c.CPUs.Overlaps(cpus) {
			ids = append(ids, *c.Package)
		}
	}
	return lists.Distinct(ids)
}

// packageTitle returns text such as "Package 0 · AMD EPYC 7551P" or "Packages 0 and 1".
func (v *view) packageTitle(ids []int) string {
	switch {
	case len(ids) > 2 && len(ids) == len(v.Host.Packages):
		return fmt.Sprintf("All %d packages", len(ids))
	case len(ids) > 1:
		names := lists.Map(ids, strconv.Itoa)
		return "Packages " + some(names, 6)
	}
	p := lists.Find(v.Host.Packages, func(p topology.Package) bool { return p.ID == ids[0] })
	title := fmt.Sprintf("Package %d", ids[0])
	if p.Model != v.cpuModel() {
		title += prefixed(" · ", p.Model)
	}
	return title
}

func (v *view) nodeRoom(n *topology.NUMANode, blocks []block) room {
	r := room{Title: fmt.Sprintf("NUMA node %d", n.ID), CPUs: &n.CPUs, Blocks: blocks,
		Marks: v.marks(fmt.Sprintf("node %d", n.ID))}
	var full []string
	line := func(parts ...string) {
		if text := joined(" · ", parts...); text != "" {
			r.Lines = append(r.Lines, text)
			full = append(full, joined(", ", parts...))
		}
	}
	memory, free := "", ""
	switch {
	case n.MemoryBytes != nil && *n.MemoryBytes == 0:
		memory = "no memory"
	case n.MemoryBytes != nil:
		memory = words.Size(*n.MemoryBytes)
		if n.FreeBytes != nil {
			free = words.Size(*n.FreeBytes) + " free"
		}
	case slices.ContainsFunc(v.Host.NUMANodes, func(n topology.NUMANode) bool { return n.MemoryBytes != nil }):
		memory = "memory not known" // but known for other nodes; a matrix never has it
	}
	line(v.coresText(n.CPUs), memory)
	line(free)
	if special(n) {
		line(nodeKind(n))
	}
	if pools := poolsText(n.Hugepages); pools != unknown && pools != none {
		line("hugepages " + pools)
	}
	if held := v.tenantsOn(n.CPUs); len(held) > 0 {
		line("VMs " + some(held, 4))
	}
	r.Caches = v.cacheCells(n.CPUs)
	r.Full = fmt.Sprintf("%s: CPUs %s; %s", r.Title, setText(&n.CPUs, 1<<20), strings.Join(full, "; "))
	if v.Placement != nil {
		v.share(&r, n)
	}
	if len(n.Distances) > 0 && len(v.Host.NUMANodes) > 1 {
		r.Full += "; distances " + strings.Trim(fmt.Sprint(n.Distances), "[]")
	}
	return r
}

func (v *view) machineRoom(blocks []block) room {
	cpus := v.onlineCPUs()
	r := room{Title: "Machine", Blocks: blocks, Caches: v.cacheCells(cpus), Lines: []string{"no NUMA nodes are known"}}
	if !cpus.IsEmpty() {
		r.CPUs = &cpus
		r.Lines = append([]string{joined(" · ", v.coresText(cpus), optionalSize(v.totalMemory()))}, r.Lines...)
	}
	r.Full = strings.Join(r.Lines, ", ")
	return r
}

func (v *view) coresText(cpus topology.CPUSet) string {
	cores := lists.Count(v.Host.Cores, func(c topology.Core) bool { return c.CPUs.Overlaps(cpus) })
	return counted(cores, "core")
}

func (v *view) tenantsOn(cpus topology.CPUSet) []string {
	held := lists.Filter(v.Host.Tenants, func(t topology.Tenant) bool {
		return slices.ContainsFunc(t.Pins, func(p topology.Pin) bool { return p.CPUs.Overlaps(cpus) })
	})
	return lists.Map(held, func(t topology.Tenant) string { return t.Name })
}

// cacheCells makes each CPU a cell if no cores are known.
func (v *view) cacheCells(cpus topology.CPUSet) []cacheCells {
	// No machine has more than eight threads per core.
	if cpus.Len() > maxCells*8 {
		return nil
	}
	var isolated topology.CPUSet
	if v.Host.CPUs.Isolated != nil {
		isolated = *v.Host.CPUs.Isolated
	}
	var out group.List[int, cacheCells] // by L3
	total := 0
	add := func(l3 *int, own topology.CPUSet, efficient bool) {
		id := -1 // without a known L3
		if l3 != nil {
			id = *l3
		}
		at := out.At(id, cacheCells{Known: l3 != nil, Full: v.cacheText(l3)})
		at.Cells = append(at.Cells, coreCell{Threads: own.Len(), Efficient: efficient, Isolated: own.Overlaps(isolated),
			Owners: slices.Compact(v.Placement.ownersOf(own))})
		total++
	}
	for i := range v.Host.Cores {
		c := &v.Host.Cores[i]
		if c.CPUs.Overlaps(cpus) {
			add(c.L3, c.CPUs, c.Kind == topology.KindEfficiency)
		}
	}
	if len(v.Host.Cores) == 0 {
		for c := range cpus.All() {
			add(nil, topology.CPUs(c), false)
		}
	}
	// Some cores would look like all of them.
	if total > maxCells {
		return nil
	}
	return out.All
}

func (v *view) cacheText(id *int) string {
	// A source may not list the caches.
	if id == nil || *id >= len(v.Host.L3) {
		return "L3 not known"
	}
	l := &v.Host.L3[*id]
	return joined(", ", fmt.Sprintf("L3 %d: CPUs %s", l.ID, l.CPUs), optionalSize(l.SizeBytes))
}

func (v *view) marks(about ...string) []mark {
	var out []mark
	for _, s := range about {
		for _, f := range v.findings[s] {
			m := mark{drawable(f.ID), f.Severity, drawable(fmt.Sprintf("%s, %s: %s. %s", f.ID, f.Severity, f.Title,
				f.Evidence))}
			out = lists.Add(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b mark) int { return cmp.Compare(a.Severity.Rank(), b.Severity.Rank()) })
	return out
}

// leastAlike devices share a card; fewer are easily compared.
const leastAlike = 3

// collapse merges equal neighbours, because 64 equal NICs would hide eight GPUs.
func (s *scene) collapse() bool {
	any := false
	for _, g := range s.Groups {
		for _, r := range g.Rooms {
			for i := range r.Blocks {
				r.Blocks[i].Branches = collapsed(r.Blocks[i].Branches, &any)
			}
		}
	}
	return any
}

func collapsed(all []branch, any *bool) []branch {
	var out []branch
	alike := map[string][]branch{}
	// GPUs, screens and bold lines, which must not be overlooked, are never merged.
	key := func(b branch) string {
		k := fmt.Sprint(b.Wire, b.Bridge != nil)
		if b.Bridge != nil {
			// Only chains of equal length are merged.
			k += markKey(b.Bridge.Marks) + strings.Repeat("+", strings.Count(b.Bridge.Full, ", then "))
		}
		for _, c := range b.Cards {
			if c.Kind == cardGPU || c.Kind == cardScreen || c.Strong > 0 || cardKey(c) != cardKey(b.Cards[0]) {
				return ""
			}
		}
		return k + cardKey(b.Cards[0])
	}
	for _, b := range all {
		if len(b.Cards) > 0 && len(b.Fan) == 0 {
			alike[key(b)] = append(alike[key(b)], b)
		}
	}
	delete(alike, "")
	for _, b := range all {
		var same []branch
		var cards []card
		if len(b.Cards) > 0 && len(b.Fan) == 0 {
			same = alike[key(b)]
		}
		for _, s := range same {
			cards = append(cards, s.Cards...)
		}
		switch {
		case len(cards) < leastAlike:
			b.Fan = collapsed(b.Fan, any)
			out = append(out, b)
		// The first card stands for all.
		case same[0].Cards[0].ID == b.Cards[0].ID:
			*any = true
			out = append(out, merged(same, cards))
		}
	}
	return out
}

// cardKey leaves out Own, which differs for every card.
func cardKey(c card) string {
	lines := lists.Filter(c.Lines, func(l string) bool { return l != c.Own })
	return fmt.Sprintf("|%s%s%v%q", c.Kind, markKey(c.Marks), c.Owners, lines)
}

func markKey(all []mark) string {
	return words.Join(lists.Map(all, func(m mark) string { return m.ID + string(m.Severity) }), "")
}

// merged keeps the members and shows them on hover.
func merged(all []branch, cards []card) branch {
	b, c := all[0], cards[0]
	var names, at, own, full []string
	for _, m := range cards {
		names, at = append(names, m.Name), append(at, m.At)
		own, full = append(own, m.Own), append(full, m.Full)
	}
	c.Title = strings.TrimSpace(fmt.Sprintf("%s x%d", span(names), len(cards)))
	lines := slices.DeleteFunc(slices.Clone(c.Lines), func(l string) bool { return l == c.Own })
	c.Lines = slices.Insert(lines, 0, slices.DeleteFunc([]string{span(at), span(own)}, func(l string) bool {
		return l == "" || l == span(names)
	})...)
	c.Full, c.Members = strings.Join(full, "\n"), cards
	b.Cards = []card{c}
	if b.Bridge != nil && len(all) > 1 {
		ports := lists.Map(all, func(b branch) string { return b.Bridge.Full })
		b.Bridge = &bridgeBox{Text: strconv.Itoa(len(all)) + " ports", Full: strings.Join(ports, "\n"),
			Marks: b.Bridge.Marks}
	}
	return b
}

// span returns text such as "NIC0-3,8", else the first and last name.
func span(names []string) string {
	first, last := names[0], names[len(names)-1]
	if first == last {
		return first
	}
	prefix := strings.TrimRight(first, "0123456789")
	var numbers topology.CPUSet // CPUSet formats ranges of numbers
	for _, n := range names {
		digits, ok := strings.CutPrefix(n, prefix)
		number, err := strconv.Atoi(digits)
		if !ok || err != nil || number >= topology.MaxCPUs || strconv.Itoa(number) != digits {
			return first + " to " + last
		}
		numbers = numbers.Union(topology.CPUs(number))
	}
	return prefix + numbers.String()
}
