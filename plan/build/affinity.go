package build

import (
	"slices"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// addAffinity turns the names in the lab's affinity into indexes of Problem.Requests. The lab file is
// checked for these mistakes where it is read; a Lab that a program made is checked here.
func (b *problemBuilder) addAffinity() {
	index := map[string]int{}
	for i := range b.p.Requests {
		name := b.p.Requests[i].Name
		if _, twice := index[name]; twice {
			b.fail(name, "", "two lab nodes have this name: give each its own")
		}
		index[name] = i
	}
	for _, a := range b.lab.Affinity {
		before := len(b.errs)
		var members []int
		for _, name := range a.Nodes {
			i, ok := index[name]
			switch {
			case !ok:
				b.fail("", "affinity", "no lab node is called %s", words.Plain(name))
			case slices.Contains(members, i):
				b.fail("", "affinity", "%s is there twice", words.Plain(name))
			}
			members = append(members, i)
		}
		if len(b.errs) == before && len(members) < 2 {
			b.fail("", "affinity", "it has %s: want at least 2", words.Count(len(members), "lab node"))
		}
		numa, nic := b.togetherness("numa", a.NUMA), b.togetherness("nic", a.NIC)
		if len(b.errs) > before || numa == "" && nic == "" {
			continue
		}
		slices.Sort(members)
		if nic == plan.Same && b.cannotShare(members) {
			continue
		}
		b.p.Affinity = append(b.p.Affinity, plan.Affinity{Requests: members, NUMA: numa, NIC: nic})
	}
}

// togetherness checks what an affinity asks for.
func (b *problemBuilder) togetherness(key string, t lab.Togetherness) string {
	switch t {
	case lab.Same:
		return plan.Same
	case lab.Different:
		return plan.Different
	case "":
	default: // a Lab that no parser made
		b.fail("", "affinity", "%s: %q: want same or different", key, string(t))
	}
	return ""
}

// cannotShare reports, as an error, lab nodes that are to share NICs and ask for whole ones, which
// only one of them can have.
func (b *problemBuilder) cannotShare(members []int) bool {
	for _, i := range members {
		if r := &b.p.Requests[i]; len(r.NICs) > 0 {
			b.fail(r.Name, "nics", "affinity nic: same shares NICs among lab nodes, and a whole NIC goes to one: "+
				"ask for vfs")
			return true
		}
	}
	return false
}
