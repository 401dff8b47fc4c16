package synthetic

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/topology"
)

// kindNames are the names of levels, in lower case.
var kindNames = map[string]string{
	"pack": "pack", "package": "pack", "socket": "pack",
	"die":  "die",
	"numa": "numa", "numanode": "numa", "node": "numa",
	"group": "group",
	"core":  "core",
	"pu":    "pu",
	"l1":    "l1", "l1d": "l1", "l1i": "l1i", "l2": "l2", "l2i": "l2i", "l3": "l3", "l3i": "l3i", "l4": "l4",
	"l5": "l5",
}

// kindOf returns the type that a name stands for, or "".
func kindOf(name string) string { return kindNames[strings.TrimSuffix(strings.ToLower(name), "cache")] }

// A level of the tree is all objects of one type and depth, or a node attached to each of them.
type level struct {
	kind     string // "machine", or a value of kindNames; empty before it is known
	count    int    // in each object of the level above
	width    int    // in the machine
	size     *uint64
	indexes  string // how the operating system numbers the objects; empty: 0, 1, 2, ...
	attached []level
	at       int // byte of the description
	numbered int // likewise of indexes
}

// A parser reads a description from left to right.
type parser struct {
	in     string
	at     int
	levels []level // the machine first
}

func (p *parser) fail(at int, format string, args ...any) error {
	in := p.in
	if len(in) > 80 {
		in = in[:80] + "..."
	}
	return &Error{In: in, Offset: at, Why: fmt.Sprintf(format, args...)}
}

// parse fills in the levels with their types.
func (p *parser) parse() error {
	p.levels = []level{{kind: "machine", count: 1, width: 1}}
	for {
		p.at += len(p.in[p.at:]) - len(strings.TrimLeft(p.in[p.at:], " \t\r\n"))
		if p.at == len(p.in) {
			break
		}
		last := &p.levels[len(p.levels)-1]
		if p.in[p.at] == '[' {
			node, err := p.node()
			if err != nil {
				return err
			}
			last.attached = append(last.attached, node)
			continue
		}
		if len(p.levels) > maxLevels {
			return p.fail(p.at, "more than %d levels", maxLevels)
		}
		l, err := p.level()
		if err != nil {
			return err
		}
		if l.width = last.width * l.count; l.width > maxCPUs {
			return p.fail(l.at, "%d objects; at most %d are made", l.width, maxCPUs)
		}
		p.levels = append(p.levels, l)
	}
	if err := p.nameLevels(); err != nil {
		return err
	}
	return p.check()
}

// run takes the characters up to the first that is in stop, or all.
func (p *parser) run(stop string) string {
	rest := p.in[p.at:]
	if i := strings.IndexAny(rest, stop); i >= 0 {
		rest = rest[:i]
	}
	p.at += len(rest)
	return rest
}

// take takes one character if it is next.
func (p *parser) take(c byte) bool {
	if p.at < len(p.in) && p.in[p.at] == c {
		p.at++
		return true
	}
	return false
}

// level reads "core:4(...)", or "4" without a type.
func (p *parser) level() (level, error) {
	l := level{at: p.at}
	word := p.run(" \t\r\n:([")
	if p.take(':') {
		if l.kind = kindOf(word); l.kind == "" {
			return l, p.fail(l.at, "unknown type %q; want pack, die, numa, group, l1 to l5, core or pu", clipped(word))
		}
		word = p.run(" \t\r\n([")
	}
	var ok bool
	if l.count, ok = number(word); !ok || l.count == 0 {
		return l, p.fail(p.at-len(word), "%q is not a number of objects from 1", clipped(word))
	}
	return l, p.attributes(&l)
}

// node reads "[numa(...)]".
func (p *parser) node() (level, error) {
	l := level{kind: "numa", at: p.at}
	p.take('[')
	word := p.run("(] ")
	if kindOf(word) != "numa" {
		return l, p.fail(p.at-len(word), "type %q in brackets; only numa can be attached", clipped(word))
	}
	if err := p.attributes(&l); err != nil {
		return l, err
	}
	if !p.take(']') {
		return l, p.fail(p.at, "want ]")
	}
	return l, nil
}

// attributes reads what stands in parentheses, if they are next.
func (p *parser) attributes(l *level) error {
	if !p.take('(') {
		return nil
	}
	for !p.take(')') {
		if p.take(' ') {
			continue
		}
		word := p.run(" )")
		if word == "" {
			return p.fail(p.at, "want )")
		}
		name, value, _ := strings.Cut(word, "=")
		at := p.at - len(value)
		ofNode := l.kind == "numa" && (name == "memory" || name == "memorysidecachesize")
		switch {
		case name == "indexes":
			if l.indexes, l.numbered = value, at; value == "" {
				return p.fail(at, "no indexes")
			}
		case ofNode || strings.HasPrefix(l.kind, "l") && name == "size":
			v, ok := parseSize(value)
			if !ok {
				return p.fail(at, "%q is not a size; want bytes, or a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB",
					clipped(value))
			}
			if name != "memorysidecachesize" {
				l.size = &v
			}
		default:
			return p.fail(p.at-len(word), "%q: want indexes=, of NUMA nodes memory=, of caches size=", clipped(word))
		}
	}
	return nil
}

// parseSize parses "64GiB". Upper and lower case are one.
func parseSize(s string) (uint64, bool) {
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

// nameLevels gives levels that have none a type: all but the last, or none of them, may lack it.
// hwloc wants, with one level, a NUMA node (unless nodes are attached), with two also a package,
// then a core, up to four caches (L2, L1, L3 and an instruction cache, in that order), and groups
// for the rest; and puts them as groups, package, node, caches, core.
func (p *parser) nameLevels() error {
	if len(p.levels) == 1 {
		return p.fail(0, "no level in it; want for example %q", "pack:2 core:4 pu:2")
	}
	last := &p.levels[len(p.levels)-1]
	if last.kind != "" && last.kind != "pu" {
		return p.fail(last.at, "the last level is %s; want pu", last.kind)
	}
	last.kind = "pu"
	middle := p.levels[1 : len(p.levels)-1]
	unnamed := func(l level) bool { return l.kind == "" }
	first := slices.IndexFunc(middle, unnamed)
	if first < 0 {
		return nil
	}
	if slices.ContainsFunc(middle, func(l level) bool { return !unnamed(l) }) {
		return p.fail(middle[first].at, "a level without a type among levels with one")
	}
	// Each type in the order in which hwloc wants it, with its place from the outside in.
	kinds := []string{"numa", "pack", "core", "l2", "l1", "l3", "l1i"}
	places := []string{"group", "pack", "numa", "l3", "l2", "l1", "l1i", "core"}
	if slices.ContainsFunc(p.levels, func(l level) bool { return l.attached != nil }) {
		kinds = kinds[1:]
	}
	for len(kinds) < len(middle) {
		kinds = append(kinds, "group")
	}
	kinds = kinds[:len(middle)]
	slices.SortStableFunc(kinds, func(a, b string) int { return slices.Index(places, a) - slices.Index(places, b) })
	for i := range middle {
		middle[i].kind = kinds[i]
	}
	return nil
}

// check refuses what no machine is, where hwloc would make something of it: a package inside a core.
func (p *parser) check() error {
	// What stands further out has the lower rank. Groups and other caches may stand anywhere.
	ranks := map[string]int{"pack": 1, "die": 2, "l3": 3, "core": 4, "pu": 5}
	seen := map[string]bool{}
	outer := ""
	nodes := 0
	for _, l := range p.levels {
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
		if nodes += l.width * len(l.attached); nodes > maxNodes {
			return p.fail(l.at, "%d NUMA nodes; at most %d are made", nodes, maxNodes)
		}
	}
	if seen["die"] && !seen["pack"] {
		return p.fail(0, "dies without packages")
	}
	for _, l := range p.levels {
		switch {
		case l.attached == nil:
		case seen["numa"]:
			return p.fail(l.attached[0].at, "NUMA nodes both as a level and attached")
		case l.kind == "core" || l.kind == "pu" && seen["core"]:
			return p.fail(l.attached[0].at, "a NUMA node for each %s", l.kind)
		}
	}
	return nil
}

// A loop counts over objects: count of them, each step places after the one before.
type loop struct{ step, count int }

// numbers returns the operating system's numbers of total objects of a level.
func (p *parser) numbers(l *level, total int) ([]int, error) {
	fail := func(format string, args ...any) ([]int, error) { return nil, p.fail(l.numbered, format, args...) }
	out := make([]int, total)
	if strings.Trim(l.indexes, "0123456789,") == "" {
		words := strings.Split(l.indexes, ",")
		if l.indexes != "" && len(words) != total {
			return fail("%d indexes; the level has %d objects", len(words), total)
		}
		for i := range out {
			out[i] = i
			if l.indexes == "" {
				continue
			}
			var ok bool
			if out[i], ok = number(words[i]); !ok {
				return fail("index %q is not a number from 0 to %d", clipped(words[i]), topology.MaxCPUs-1)
			}
		}
	} else if err := p.loops(l, out); err != nil {
		return nil, err
	}
	seen := make(map[int]bool, total)
	for _, n := range out {
		if seen[n] {
			return fail("indexes %q give number %d twice", clipped(l.indexes), n)
		}
		seen[n] = true
	}
	return out, nil
}

// loops numbers objects by "2*4:1*2" or "core:pack", the fastest loop first.
func (p *parser) loops(l *level, out []int) error {
	var loops []loop
	total := len(out)
	product, smallest := 1, total
	for part := range strings.SplitSeq(l.indexes, ":") {
		x, err := p.loop(l, part, total)
		if err != nil {
			return err
		}
		loops = append(loops, x)
		smallest = min(smallest, x.step)
		// Each factor is at most total, and the product is held to it, so neither overflows.
		if product *= x.count; product > total {
			break
		}
	}
	// The innermost loop may be left out: "core:pack" goes on over the threads of a core.
	if rest := total / product; product < total && product*rest == total && rest == smallest {
		loops = append(loops, loop{1, rest})
		product = total
	}
	if product != total {
		return p.fail(l.numbered, "indexes %q count to %d; the level has %d objects", clipped(l.indexes), product,
			total)
	}
	factor := 1
	for _, x := range loops {
		for i := range out {
			out[i] += i / x.step % x.count * factor
		}
		factor *= x.count
	}
	return nil
}

// loop parses "2*8", a step and a count, or the type of a level: a loop over its objects within the
// next level out that the indexes name.
func (p *parser) loop(l *level, part string, total int) (loop, error) {
	if step, count, ok := strings.Cut(part, "*"); ok {
		s, ok1 := number(step)
		c, ok2 := number(count)
		if !ok1 || !ok2 || s == 0 || c == 0 || s > total || c > total {
			return loop{}, p.fail(l.numbered, "loop %q is not step*count, each from 1 to %d", clipped(part), total)
		}
		return loop{s, c}, nil
	}
	named := func(word string) int {
		kind := kindOf(word)
		return slices.IndexFunc(p.levels[:len(p.levels)-1], func(o level) bool { return kind != "" && o.kind == kind })
	}
	own := named(part)
	if own < 0 {
		return loop{}, p.fail(l.numbered, "no level %q above the CPUs", clipped(part))
	}
	outer := 0
	for other := range strings.SplitSeq(l.indexes, ":") {
		if i := named(other); i < own {
			outer = max(outer, i)
		}
	}
	width := p.levels[own].width
	if total%width != 0 {
		return loop{}, p.fail(l.numbered, "%d objects do not divide over %d of level %s", total, width,
			p.levels[own].kind)
	}
	return loop{total / width, width / p.levels[outer].width}, nil
}

// number parses decimal digits, nothing else: strconv would take "+1".
func number(s string) (int, bool) {
	v, err := strconv.ParseUint(s, 10, 31)
	return int(v), err == nil && v < topology.MaxCPUs
}

// clipped shortens a word for a message.
func clipped(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
