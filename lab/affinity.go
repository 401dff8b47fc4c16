package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
)

func (d *decoder) resolveAffinity(all []fileAffinity, entries fileNodeList, nodes []Node,
	expanded map[string][]string) []Affinity {
	byName := make(map[string]*Node, len(nodes))
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	var result []Affinity
	for _, f := range all {
		a := Affinity{NUMA: or(f.NUMA, nil, ""), NIC: or(f.NIC, nil, "")}
		before := len(d.Errs)
		first := make(map[string]place)
		for _, ref := range f.Nodes {
			for _, name := range d.standsFor(ref, entries, byName, expanded) {
				if at, twice := first[name]; twice {
					d.Fail(ref.at, Error{Key: "affinity.nodes", What: "node named twice",
						Have: fmt.Sprintf("%s, in column %d of line %d already", strictyaml.Quote(name), at.Column,
							at.Line), Fix: "remove one of them"})
					break
				}
				first[name] = ref.at
				a.Nodes = append(a.Nodes, name)
			}
		}
		if len(d.Errs) > before {
			continue // others would only be consequences
		}
		if len(a.Nodes) < 2 {
			d.Fail(f.at, Error{Key: "affinity.nodes", What: "too few nodes", Have: strconv.Itoa(len(a.Nodes)),
				Want: "at least 2", Fix: "name two nodes, or an entry with a count of 2 or more"})
			continue
		}
		if a.NIC == Same {
			d.checkShareable(f, a, byName)
		}
		result = append(result, a)
	}
	// Invalid affinities could contradict by accident.
	if len(d.Errs) == 0 {
		d.checkTogether("numa", all, result, func(a Affinity) Togetherness { return a.NUMA })
		d.checkTogether("nic", all, result, func(a Affinity) Togetherness { return a.NIC })
	}
	return result
}

// standsFor returns a node, or else all nodes of an entry.
func (d *decoder) standsFor(ref nodeRef, entries fileNodeList, byName map[string]*Node,
	expanded map[string][]string) []string {
	if byName[ref.name] != nil {
		return []string{ref.name}
	}
	if names := expanded[ref.name]; names != nil {
		return names
	}
	var candidates, known []string
	for _, e := range entries {
		names := expanded[e.name]
		candidates = append(append(candidates, e.name), names...)
		text := e.name
		if len(names) > 1 {
			text += fmt.Sprintf(" (%s to %s)", names[0], names[len(names)-1])
		}
		known = append(known, text)
	}
	const maxKnown = 8 // in one message
	if len(known) > maxKnown {
		known = append(known[:maxKnown], fmt.Sprintf("%d more", len(known)-maxKnown))
	}
	e := Error{Key: "affinity.nodes", What: "no such node", Have: strictyaml.Quote(ref.name),
		Want: words.Or(known)}
	e.Fix = strictyaml.Meant(ref.name, candidates)
	d.Fail(ref.at, e)
	return nil
}

func (d *decoder) checkShareable(f fileAffinity, a Affinity, byName map[string]*Node) {
	for _, name := range a.Nodes {
		if n := byName[name]; len(n.NICs) > n.VFs {
			d.Fail(f.at, Error{Key: "affinity.nic", What: "a whole NIC cannot be shared",
				Have: fmt.Sprintf("same, and %s asks for nics: %s", name, flowList(n.NICRequests, 0)),
				Fix:  "ask for vfs, and for no nics, in each of them"})
			return
		}
	}
}

// checkTogether reports nodes that one affinity keeps apart and others put together. entries[i] is the file's entry for
// all[i].
func (d *decoder) checkTogether(key string, entries []fileAffinity, all []Affinity, of func(Affinity) Togetherness) {
	// Both are equivalence relations. Each class is a tree of nodes.
	parent := make(map[string]string)
	root := func(n string) string {
		for parent[n] != "" {
			n = parent[n]
		}
		return n
	}
	for _, a := range all {
		if of(a) != Same {
			continue
		}
		for _, n := range a.Nodes[1:] {
			if from, to := root(n), root(a.Nodes[0]); from != to {
				parent[from] = to
			}
		}
	}
	for i, a := range all {
		if of(a) != Different {
			continue
		}
		seen := make(map[string]string)
		for _, n := range a.Nodes {
			r := root(n)
			other, met := seen[r]
			if !met {
				seen[r] = n
				continue
			}
			lines := chain(other, n, entries, all, of)
			d.Fail(entries[i].at, Error{Key: strictyaml.Join("affinity", key), What: "contradicts another entry",
				Have: fmt.Sprintf("different for %s and %s, same by line %s", other, n,
					strings.Join(lines, " and line ")), Fix: "remove one of them"})
			break
		}
	}
}

// chain returns the lines of the smallest set of entries.
func chain(from, to string, entries []fileAffinity, all []Affinity, of func(Affinity) Togetherness) []string {
	type step struct {
		node  string
		lines []string
	}
	// Breadth first, so the first path is shortest.
	used := make([]bool, len(all))
	for queue := []step{{node: from}}; len(queue) > 0; queue = queue[1:] {
		here := queue[0]
		for i, a := range all {
			if used[i] || of(a) != Same || !slices.Contains(a.Nodes, here.node) {
				continue
			}
			used[i] = true
			lines := append(slices.Clone(here.lines), strconv.Itoa(entries[i].at.Line))
			if slices.Contains(a.Nodes, to) {
				return lines
			}
			queue = append(queue, lists.Map(a.Nodes, func(n string) step { return step{n, lines} })...)
		}
	}
	return nil
}
