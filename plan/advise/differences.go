package advise

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// maxTermChanges: a change of the lab changes terms of every lab node.
const maxTermChanges = 6

// Differences lists the cost, then each lab node, then the host, then the terms that changed most. It returns nil for
// equal plans.
func Differences(before, after *plan.Plan) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	switch d := after.Cost - before.Cost; {
	case d < 0:
		add("score from %d to %d: %d lower", before.Cost, after.Cost, -d)
	case d > 0:
		add("score from %d to %d: %d higher", before.Cost, after.Cost, d)
	}
	if before.Optimal != after.Optimal {
		word := map[bool]string{true: "proved to be the least", false: "not proved to be the least"}
		add("the score was %s and now is %s", word[before.Optimal], word[after.Optimal])
	}
	if before.Lab != after.Lab {
		add("lab from %s to %s", before.Lab, after.Lab)
	}
	if before.Host.Name != after.Host.Name {
		add("host from %s to %s", before.Host.Name, after.Host.Name)
	}
	if before.Workload != after.Workload {
		add("workload from %s to %s: scores are in other weights, and their difference means little", before.Workload,
			after.Workload)
	}
	old := map[string]*plan.Node{}
	for i := range before.Nodes {
		old[before.Nodes[i].Name] = &before.Nodes[i]
	}
	for i := range after.Nodes {
		n := &after.Nodes[i]
		was := old[n.Name]
		delete(old, n.Name)
		if was == nil {
			add("%s is new: CPUs %s, %s", n.Name, orNone(n.CPUs()), nodeMemory(n))
			continue
		}
		for _, line := range nodeDifferences(was, n) {
			add("%s: %s", n.Name, line)
		}
	}
	for i := range before.Nodes {
		if name := before.Nodes[i].Name; old[name] != nil {
			add("%s is gone", name)
		}
	}
	if b, a := before.Housekeeping, after.Housekeeping; !b.CPUs.Equal(a.CPUs) {
		add("the host keeps CPUs %s instead of %s", orNone(a.CPUs), orNone(b.CPUs))
	}
	if b, a := hugepagesText(before.Hugepages), hugepagesText(after.Hugepages); b != a {
		add("hugepages from %s to %s", b, a)
	}
	if !slices.Equal(before.KernelArgs, after.KernelArgs) {
		add("other kernel arguments: they take a reboot")
	}
	changes := termChanges(before.Terms, after.Terms)
	for i, c := range changes {
		if i == maxTermChanges {
			add("%d more terms changed", len(changes)-i)
			break
		}
		all = append(all, c.String())
	}
	return all
}

func nodeDifferences(was, is *plan.Node) []string {
	var all []string
	differ := func(what, a, b string) {
		if a != b {
			all = append(all, fmt.Sprintf("%s from %s to %s", what, a, b))
		}
	}
	if gone, come := cardsOnly(was, is), cardsOnly(is, was); gone+come != "" {
		all = append(all, fmt.Sprintf("devices: %s instead of %s", cmp.Or(come, "none"), cmp.Or(gone, "none")))
	}
	differ("CPUs", orNone(was.CPUs()), orNone(is.CPUs()))
	differ("memory", nodeMemory(was), nodeMemory(is))
	differ("guest NUMA nodes", fmt.Sprint(len(was.Cells)), fmt.Sprint(len(is.Cells)))
	differ("threads of a core", fmt.Sprint(was.Threads), fmt.Sprint(is.Threads))
	differ("QEMU's threads", orNone(was.EmulatorCPUs), orNone(is.EmulatorCPUs))
	return all
}

func orNone(s topology.CPUSet) string { return cmp.Or(s.String(), "none") }

func nodeMemory(n *plan.Node) string {
	parts := lists.Map(n.Memory,
		func(m plan.NodeMemory) string {
			return fmt.Sprintf("%s on NUMA node %d", words.Exact(m.Bytes), m.NUMANode)
		})
	return cmp.Or(words.List(parts), "none")
}

// cardsOnly compares devices and their NUMA nodes.
func cardsOnly(n, other *plan.Node) string {
	text := func(c *plan.NodeDevice) string {
		name := plan.DeviceName(c.Kind, c.ID)
		if c.Kind == plan.KindVF {
			name = "VF of " + c.ID
		}
		if c.NUMANode != nil {
			name += fmt.Sprintf(" (NUMA node %d)", *c.NUMANode)
		}
		return name
	}
	have := map[string]int{} // several VFs may be of one NIC
	for i := range other.Cards {
		have[text(&other.Cards[i])]++
	}
	var parts []string
	for i := range n.Cards {
		s := text(&n.Cards[i])
		if have[s]--; have[s] < 0 {
			parts = append(parts, s)
		}
	}
	return words.List(parts)
}

func hugepagesText(pages []plan.Hugepages) string {
	parts := lists.Map(pages, func(h plan.Hugepages) string {
		return fmt.Sprintf("%d x %s on NUMA node %d", h.Count, words.Exact(h.PageBytes), h.NUMANode)
	})
	return cmp.Or(words.List(parts), "none")
}

type termChange struct {
	subject, term string
	before, after int64
}

func (c termChange) String() string {
	return fmt.Sprintf("%s: %s: score %d to %d", c.subject, cmp.Or(plan.Meaning(c.term), c.term), c.before, c.after)
}

// termChanges has the largest change first. A missing term costs 0.
func termChanges(before, after []plan.Term) []termChange {
	var changes group.List[[2]string, termChange]
	add := func(terms []plan.Term, cost func(*termChange) *int64) {
		for _, t := range terms {
			subject := cmp.Or(t.Node, strings.Join(t.Among, ", "))
			*cost(changes.At([2]string{subject, t.Term}, termChange{subject: subject, term: t.Term})) += t.Cost
		}
	}
	add(before, func(c *termChange) *int64 { return &c.before })
	add(after, func(c *termChange) *int64 { return &c.after })
	all := slices.DeleteFunc(changes.All, func(c termChange) bool { return c.before == c.after })
	slices.SortStableFunc(all, func(x, y termChange) int { return cmp.Compare(y.size(), x.size()) })
	return all
}

func (c termChange) size() int64 { return max(c.before-c.after, c.after-c.before) }
