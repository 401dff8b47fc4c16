package hostview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// leastAlike is how many devices have to be alike before one card stands for them: two are compared at a glance.
const leastAlike = 3

// collapse puts devices that are alike and hang side by side on one card: 64 equal NICs would drown eight GPUs. It
// reports whether there were any.
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

// collapsed are branches in which one stands for those that are alike, in the place of the first. *any is set if there
// were any.
func collapsed(all []branch, any *bool) []branch {
	var out []branch
	alike := map[string][]branch{}
	// What branches that stand for each other have in common; "" for one that stays by itself. GPUs and screens do, and
	// cards with something in bold, which must not be overlooked.
	key := func(b branch) string {
		k := fmt.Sprint(b.Wire, b.Bridge != nil)
		if b.Bridge != nil {
			// A box may stand for a chain of bridges: only chains of one length are alike.
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
		// The others of same are in this one, and therefore left out.
		case same[0].Cards[0].ID == b.Cards[0].ID:
			*any = true
			out = append(out, merged(same, cards))
		}
	}
	return out
}

// cardKey is what alike cards have in common. Own is the line with names of that device alone, in which all cards
// differ.
func cardKey(c card) string {
	k := "|" + c.Kind + markKey(c.Marks) + fmt.Sprint(c.Owners)
	for _, l := range c.Lines {
		k += words.If(l != c.Own, "|"+l)
	}
	return k
}

// markKey is what findings have in common that say the same of different devices.
func markKey(all []mark) string {
	k := ""
	for _, m := range all {
		k += m.ID + string(m.Severity)
	}
	return k
}

// merged is the branch that stands for all of these. The members stay on the card: pointing at it shows them all.
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
		ports := make([]string, len(all))
		for i, s := range all {
			ports[i] = s.Bridge.Full
		}
		b.Bridge = &bridgeBox{Text: strconv.Itoa(len(all)) + " ports", Full: strings.Join(ports, "\n"),
			Marks: b.Bridge.Marks}
	}
	return b
}

// span is "NIC0-3,8" for names that differ in the number at their end, else the first and the last.
func span(names []string) string {
	first, last := names[0], names[len(names)-1]
	if first == last {
		return first
	}
	prefix := strings.TrimRight(first, "0123456789")
	var numbers topology.CPUSet // which prints numbers as is wanted here
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
