package topology

import "strings"

// synthIndexes are the numbers of a level's objects as a description gives them.
type synthIndexes struct {
	text string // empty: 0, 1, 2, ...
	at   int    // byte of the description
}

// A synthLoop counts over objects: count of them, each step places after the one before.
type synthLoop struct{ step, count int }

// resolve returns the numbers of total objects.
func (x synthIndexes) resolve(in string, total int, levels []synthLevel) ([]int, error) {
	fail := func(format string, args ...any) ([]int, error) { return nil, syntheticError(in, x.at, format, args...) }
	if x.text == "" {
		out := make([]int, total)
		for i := range out {
			out[i] = i
		}
		return out, nil
	}
	if strings.Trim(x.text, "0123456789,") == "" {
		return x.list(in, total)
	}
	var loops []synthLoop
	product, smallest := 1, total
	for part := range strings.SplitSeq(x.text, ":") {
		l, err := x.loop(in, part, total, levels)
		if err != nil {
			return nil, err
		}
		loops = append(loops, l)
		// Each factor is at most total, and the product is held to it, so neither overflows.
		if product *= l.count; product > total {
			return fail("indexes %q count to %d; the level has %d objects", clipped(x.text), product, total)
		}
		smallest = min(smallest, l.step)
	}
	// The innermost loop may be left out: "core:pack" goes on over the threads of a core.
	if product != total {
		if rest := total / product; product*rest == total && rest == smallest {
			loops = append(loops, synthLoop{1, rest})
		} else {
			return fail("indexes %q count to %d; the level has %d objects", clipped(x.text), product, total)
		}
	}
	out := make([]int, total)
	factor := 1
	for _, l := range loops {
		for i := range out {
			out[i] += i / l.step % l.count * factor
		}
		factor *= l.count
	}
	return out, x.unique(in, out)
}

// list parses "0,2,1,3".
func (x synthIndexes) list(in string, total int) ([]int, error) {
	words := strings.Split(x.text, ",")
	if len(words) != total {
		return nil, syntheticError(in, x.at, "%d indexes; the level has %d objects", len(words), total)
	}
	out := make([]int, total)
	for i, w := range words {
		n, ok := number(w)
		if !ok {
			return nil, syntheticError(in, x.at, "index %q is not a number from 0 to %d", clipped(w), MaxCPUs-1)
		}
		out[i] = n
	}
	return out, x.unique(in, out)
}

// unique refuses a number for two objects.
func (x synthIndexes) unique(in string, numbers []int) error {
	seen := make(map[int]bool, len(numbers))
	for _, n := range numbers {
		if seen[n] {
			return syntheticError(in, x.at, "indexes %q give number %d twice", clipped(x.text), n)
		}
		seen[n] = true
	}
	return nil
}

// loop parses "2*8", a step and a count, or the type of a level: a loop over its objects within the
// next level out that the indexes name.
func (x synthIndexes) loop(in, part string, total int, levels []synthLevel) (synthLoop, error) {
	if step, count, ok := strings.Cut(part, "*"); ok {
		s, ok1 := number(step)
		c, ok2 := number(count)
		if !ok1 || !ok2 || s == 0 || c == 0 || s > total || c > total {
			return synthLoop{}, syntheticError(in, x.at, "loop %q is not step*count, each from 1 to %d", clipped(part),
				total)
		}
		return synthLoop{s, c}, nil
	}
	named := func(word string) int {
		kind, _ := syntheticKind(word)
		for i := range levels[:len(levels)-1] {
			if kind != "" && levels[i].kind == kind {
				return i
			}
		}
		return -1
	}
	own := named(part)
	if own < 0 {
		return synthLoop{}, syntheticError(in, x.at, "no level %q above the CPUs", clipped(part))
	}
	outer := 0
	for other := range strings.SplitSeq(x.text, ":") {
		if i := named(other); i < own {
			outer = max(outer, i)
		}
	}
	if total%levels[own].width != 0 {
		return synthLoop{}, syntheticError(in, x.at, "%d objects do not divide over %d of level %s", total,
			levels[own].width, levels[own].kind)
	}
	return synthLoop{total / levels[own].width, levels[own].width / levels[outer].width}, nil
}
