package topology

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// syntheticKinds are the names of levels, in lower case.
var syntheticKinds = map[string]string{
	"pack": "pack", "package": "pack", "socket": "pack",
	"die":  "die",
	"numa": "numa", "numanode": "numa", "node": "numa",
	"group": "group",
	"core":  "core",
	"pu":    "pu",
	"l1":    "l1", "l1d": "l1", "l1i": "l1i", "l2": "l2", "l2i": "l2i", "l3": "l3", "l3i": "l3i", "l4": "l4",
	"l5": "l5",
}

// syntheticKind returns the type that a name stands for.
func syntheticKind(name string) (string, bool) {
	kind, ok := syntheticKinds[strings.TrimSuffix(strings.ToLower(name), "cache")]
	return kind, ok
}

// A synthParser reads a description from left to right.
type synthParser struct {
	in string
	at int
}

func (p *synthParser) fail(at int, format string, args ...any) error {
	return syntheticError(p.in, at, format, args...)
}

// parse returns the levels with their types, the machine first.
func (p *synthParser) parse() ([]synthLevel, error) {
	levels := []synthLevel{{kind: "machine", count: 1, width: 1}}
	for {
		p.at += len(p.in[p.at:]) - len(strings.TrimLeft(p.in[p.at:], " \t\r\n"))
		if p.at == len(p.in) {
			break
		}
		last := &levels[len(levels)-1]
		if p.in[p.at] == '[' {
			attached, err := p.attached()
			if err != nil {
				return nil, err
			}
			last.attached = append(last.attached, attached)
			continue
		}
		if len(levels) > maxSyntheticLevels {
			return nil, p.fail(p.at, "more than %d levels", maxSyntheticLevels)
		}
		l, err := p.level()
		if err != nil {
			return nil, err
		}
		if l.width = last.width * l.count; l.width > maxSyntheticCPUs {
			return nil, p.fail(l.at, "%d objects; at most %d are made", l.width, maxSyntheticCPUs)
		}
		levels = append(levels, l)
	}
	if err := p.kinds(levels); err != nil {
		return nil, err
	}
	return levels, p.check(levels)
}

// run takes the characters up to the first that is in stop, or all.
func (p *synthParser) run(stop string) string {
	rest := p.in[p.at:]
	if i := strings.IndexAny(rest, stop); i >= 0 {
		rest = rest[:i]
	}
	p.at += len(rest)
	return rest
}

// take takes one character if it is next.
func (p *synthParser) take(c byte) bool {
	if p.at < len(p.in) && p.in[p.at] == c {
		p.at++
		return true
	}
	return false
}

// level reads "core:4(...)", or "4" without a type.
func (p *synthParser) level() (synthLevel, error) {
	l := synthLevel{at: p.at}
	word := p.run(" \t\r\n:([")
	if p.take(':') {
		kind, ok := syntheticKind(word)
		if !ok {
			return l, p.fail(l.at, "unknown type %q; want pack, die, numa, group, l1 to l5, core or pu", clipped(word))
		}
		l.kind = kind
		word = p.run(" \t\r\n([")
	}
	at := p.at - len(word)
	n, ok := number(word)
	if !ok || n == 0 {
		return l, p.fail(at, "%q is not a number of objects from 1", clipped(word))
	}
	l.count = n
	if p.take('(') {
		var err error
		l.size, l.indexes, err = p.attributes(l.kind)
		if err != nil {
			return l, err
		}
	}
	return l, nil
}

// attached reads "[numa(...)]".
func (p *synthParser) attached() (synthAttached, error) {
	a := synthAttached{at: p.at}
	p.take('[')
	word := p.run("(] ")
	if kind, _ := syntheticKind(word); kind != "numa" {
		return a, p.fail(p.at-len(word), "type %q in brackets; only numa can be attached", clipped(word))
	}
	if p.take('(') {
		var err error
		if a.size, a.indexes, err = p.attributes("numa"); err != nil {
			return a, err
		}
	}
	if !p.take(']') {
		return a, p.fail(p.at, "want ]")
	}
	return a, nil
}

// attributes reads up to the closing parenthesis.
func (p *synthParser) attributes(kind string) (size *uint64, indexes synthIndexes, err error) {
	isCache := strings.HasPrefix(kind, "l")
	for !p.take(')') {
		if p.take(' ') {
			continue
		}
		word := p.run(" )")
		if word == "" {
			return nil, indexes, p.fail(p.at, "want )")
		}
		name, value, _ := strings.Cut(word, "=")
		at := p.at - len(value)
		switch {
		case name == "indexes":
			indexes = synthIndexes{text: value, at: at}
			if value == "" {
				return nil, indexes, p.fail(at, "no indexes")
			}
		case name == "memory" && kind == "numa", name == "size" && isCache, name == "memorysidecachesize" &&
			kind == "numa":
			v, ok := syntheticSize(value)
			if !ok {
				return nil, indexes, p.fail(at, "%q is not a size; want bytes, or a number with kB, MB, GB, TB, KiB, "+
					"MiB, GiB or TiB", clipped(value))
			}
			if name != "memorysidecachesize" {
				size = &v
			}
		default:
			return nil, indexes, p.fail(p.at-len(word), "%q: want indexes=, of NUMA nodes memory=, of caches size=",
				clipped(word))
		}
	}
	return size, indexes, nil
}

// syntheticSize parses "64GiB". Upper and lower case are one.
func syntheticSize(s string) (uint64, bool) {
	units := []struct {
		suffix string
		factor uint64
	}{
		{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
		{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	}
	digits, factor := strings.ToLower(s), uint64(1)
	for _, u := range units {
		if d, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, factor = d, u.factor
			break
		}
	}
	v, err := strconv.ParseUint(digits, 10, 64)
	hi, lo := bits.Mul64(v, factor)
	return lo, err == nil && hi == 0
}

// kinds gives levels that have none a type: all but the last, or none of them, may lack it. hwloc
// wants, with one level, a NUMA node (unless nodes are attached), with two also a package, then a
// core, up to four caches (L2, L1, L3 and an instruction cache, in that order), and groups for the
// rest; and puts them as groups, package, node, caches, core.
func (p *synthParser) kinds(levels []synthLevel) error {
	if len(levels) == 1 {
		return p.fail(0, "no level in it; want for example %q", "pack:2 core:4 pu:2")
	}
	last := &levels[len(levels)-1]
	if last.kind != "" && last.kind != "pu" {
		return p.fail(last.at, "the last level is %s; want pu", last.kind)
	}
	if last.kind == "" && last.size != nil {
		return p.fail(last.at, "CPUs have no memory")
	}
	last.kind = "pu"
	middle := levels[1 : len(levels)-1]
	var unnamed []*synthLevel
	for i := range middle {
		if middle[i].kind == "" {
			unnamed = append(unnamed, &middle[i])
		}
	}
	if len(unnamed) == 0 {
		return nil
	}
	if len(unnamed) != len(middle) {
		return p.fail(unnamed[0].at, "a level without a type among levels with one")
	}
	hasAttached := slices.ContainsFunc(levels, func(l synthLevel) bool { return l.attached != nil })
	left := len(middle)
	want := func(wanted bool) bool {
		if left == 0 || !wanted {
			return false
		}
		left--
		return true
	}
	node := want(!hasAttached)
	pack := want(true)
	core := want(true)
	caches := min(left, 4)
	left -= caches
	kinds := slices.Repeat([]string{"group"}, left)
	if pack {
		kinds = append(kinds, "pack")
	}
	if node {
		kinds = append(kinds, "numa")
	}
	kinds = append(kinds, [][]string{nil, {"l2"}, {"l2", "l1"}, {"l3", "l2", "l1"},
		{"l3", "l2", "l1", "l1i"}}[caches]...)
	if core {
		kinds = append(kinds, "core")
	}
	for i, l := range unnamed {
		l.kind = kinds[i]
	}
	return nil
}

// check refuses what no machine is, where hwloc would make something of it: a package inside a core.
func (p *synthParser) check(levels []synthLevel) error {
	// What stands further out has the lower rank. Groups and other caches may stand anywhere.
	ranks := map[string]int{"pack": 1, "die": 2, "l3": 3, "core": 4, "pu": 5}
	seen := map[string]bool{}
	outer := ""
	nodes := 0
	for _, l := range levels {
		if l.kind != "group" && seen[l.kind] {
			return p.fail(l.at, "a second level of %s", l.kind)
		}
		seen[l.kind] = true
		if r := ranks[l.kind]; r > 0 {
			if r < ranks[outer] {
				return p.fail(l.at, "%s inside of %s", l.kind, outer)
			}
			outer = l.kind
		}
		if l.kind == "numa" {
			if seen["core"] {
				return p.fail(l.at, "a NUMA node inside of a core")
			}
			nodes += l.width
		}
		nodes += l.width * len(l.attached)
		if nodes > maxSyntheticNodes {
			return p.fail(l.at, "%d NUMA nodes; at most %d are made", nodes, maxSyntheticNodes)
		}
	}
	if seen["die"] && !seen["pack"] {
		return p.fail(0, "dies without packages")
	}
	for _, l := range levels {
		if l.attached != nil && seen["numa"] {
			return p.fail(l.attached[0].at, "NUMA nodes both as a level and attached")
		}
		if l.attached != nil && seen["core"] && (l.kind == "core" || l.kind == "pu") {
			return p.fail(l.attached[0].at, "a NUMA node for each %s", l.kind)
		}
	}
	return nil
}

// clipped shortens a word for a message.
func clipped(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
