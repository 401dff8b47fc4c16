package hostview

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/machine/topology"
)

// optionalSize is a size, or unknown.
func optionalSize(n *uint64) string {
	if n == nil {
		return unknown
	}
	return words.Size(*n)
}

// unknown stands in a table where a fact is not known, none where it is known that there is nothing.
const (
	unknown = "?"
	none    = "-"
)

// speedText prints a network speed: "25 Gb/s", "100 Mb/s".
func speedText(mbps int64) string {
	if mbps < 1000 {
		return strconv.FormatInt(mbps, 10) + " Mb/s"
	}
	return strconv.FormatFloat(float64(mbps)/1000, 'f', -1, 64) + " Gb/s"
}

// counted is "1 core" or "2 cores", and nothing of none.
func counted(n int, what string) string {
	if n == 0 {
		return ""
	}
	return words.Count(n, what)
}

// joined puts the parts that say something on one line.
func joined(sep string, parts ...string) string {
	parts = slices.DeleteFunc(slices.Clone(parts), func(s string) bool { return s == "" || s == unknown || s == none })
	return strings.Join(parts, sep)
}

// intText prints an optional number.
func intText(n *int) string {
	if n == nil {
		return unknown
	}
	return strconv.Itoa(*n)
}

// rateText is "Gen4 x16"; a part that is not known is left out, and a speed that is no generation's stays in GT/s.
func rateText(gts *float64, width *int) string {
	speed, lanes := "", ""
	if gts != nil {
		if g := topology.Generation(*gts); g > 0 {
			speed = fmt.Sprintf("Gen%d", g)
		} else if *gts > 0 && !math.IsInf(*gts, 0) {
			speed = strconv.FormatFloat(*gts, 'g', 4, 64) + " GT/s"
		}
	}
	if width != nil && *width > 0 {
		lanes = fmt.Sprintf("x%d", *width)
	}
	return joined(" ", speed, lanes)
}

// linkTexts returns a link's rate now, and what the device could do where that is more. What a link
// does now is "" where that is not known.
func linkTexts(l *topology.Link) (now, most string) {
	if l == nil {
		return "", ""
	}
	now, most = rateText(l.SpeedGTs, l.Width), rateText(l.MaxSpeedGTs, l.MaxWidth)
	// Both halves count: a link of the full width at a lower speed carries as little as a narrow one.
	slower := l.SpeedGTs != nil && l.MaxSpeedGTs != nil && *l.SpeedGTs < *l.MaxSpeedGTs
	narrower := l.Width != nil && l.MaxWidth != nil && *l.Width < *l.MaxWidth
	if now != "" && !slower && !narrower {
		most = ""
	}
	return now, most
}

// linkText is a link in a cell: "Gen4 x16" where it runs at its most, "Gen1/4 x8/16" where the
// device could do more, "max Gen4 x16" where the present rate is not known.
func linkText(l *topology.Link) string {
	if l == nil {
		return unknown
	}
	if l.SpeedGTs == nil && l.Width == nil {
		return orUnknown(prefixed("max ", rateText(l.MaxSpeedGTs, l.MaxWidth)))
	}
	generation := func(gts float64) string { return strconv.Itoa(topology.Generation(gts)) }
	speed := nowOf(l.SpeedGTs, l.MaxSpeedGTs, "Gen", generation)
	for _, gts := range []*float64{l.SpeedGTs, l.MaxSpeedGTs} {
		if gts != nil && topology.Generation(*gts) == 0 {
			speed = rateText(l.SpeedGTs, nil) // no generation has this speed
		}
	}
	width := nowOf(l.Width, l.MaxWidth, "x", strconv.Itoa)
	return orUnknown(strings.TrimSpace(speed + " " + width))
}

// nowOf is "now/most" behind a prefix, only one of them where they do not differ, and "" where neither is known.
func nowOf[T cmp.Ordered](now, most *T, prefix string, print func(T) string) string {
	switch {
	case now == nil && most == nil:
		return ""
	case now == nil:
		return prefix + unknown + "/" + print(*most)
	case most == nil || *now >= *most:
		return prefix + print(*now)
	}
	return prefix + print(*now) + "/" + print(*most)
}

// cpusText prints a set in at most so many letters: as the kernel's list; else with a stride, which
// the kernel reads too ("0-126:2"); else as much of the list as there is room for, with the number
// of CPUs.
func cpusText(s topology.CPUSet, letters int) string {
	list := s.String()
	if len(list) <= letters {
		return list
	}
	if strided := stridedText(s); strided != "" && len(strided) <= letters {
		return strided
	}
	// Cut at a comma: half of a range would name CPUs that are not in the set.
	tail := fmt.Sprintf(",… (%d)", s.Len())
	head := list[:max(letters-len(tail)+2, 0)] // the ellipsis is 3 bytes and one letter
	if i := strings.LastIndexByte(head, ','); i > 0 {
		return head[:i] + tail
	}
	return words.Count(s.Len(), "CPU")
}

// stridedText is the set as one range with a stride, "" where it is none.
func stridedText(s topology.CPUSet) string {
	last, stride := -1, 0
	for c := range s.All() {
		switch {
		case last < 0:
		case stride == 0:
			stride = c - last
		case c-last != stride:
			return ""
		}
		last = c
	}
	if stride < 2 {
		return ""
	}
	return fmt.Sprintf("%d-%d:%d", s.Min(), last, stride)
}

// setText is cpusText of an optional set.
func setText(s *topology.CPUSet, letters int) string {
	switch {
	case s == nil:
		return unknown
	case s.IsEmpty():
		return none
	}
	return cpusText(*s, letters)
}

// pagesText is "16 x 1 GiB (5 free)" of a pool.
func pagesText(p topology.HugepagePool) string {
	text := fmt.Sprintf("%d x %s", p.Total, words.Size(p.SizeBytes))
	if p.Free != nil {
		text += fmt.Sprintf(" (%d free)", *p.Free)
	}
	return text
}

// poolsText lists the pools that have pages. It is none where the pools are known and empty, and
// unknown where there are no pools.
func poolsText(pools []topology.HugepagePool) string {
	if len(pools) == 0 {
		return unknown
	}
	full := lists.Filter(pools, func(p topology.HugepagePool) bool { return p.Total > 0 })
	return cmp.Or(strings.Join(lists.Map(full, pagesText), ", "), none)
}

// distancesText prints a row of the SLIT; of many nodes only what it ranges over.
func distancesText(row []int) string {
	switch {
	case len(row) == 0:
		return unknown
	case len(row) <= 8:
		return strings.Trim(fmt.Sprint(row), "[]")
	}
	return fmt.Sprintf("%d to %d", slices.Min(row), slices.Max(row))
}

// orUnknown is s, or unknown where it is empty.
func orUnknown(s string) string { return cmp.Or(s, unknown) }
