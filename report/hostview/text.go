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

func optionalSize(n *uint64) string {
	if n == nil {
		return unknown
	}
	return words.Size(*n)
}

// unknown is not known, none is known to be nothing.
const (
	unknown = "?"
	none    = "-"
)

func speedText(mbps int64) string {
	if mbps < 1000 {
		return strconv.FormatInt(mbps, 10) + " Mb/s"
	}
	return strconv.FormatFloat(float64(mbps)/1000, 'f', -1, 64) + " Gb/s"
}

func counted(n int, what string) string {
	if n == 0 {
		return ""
	}
	return words.Count(n, what)
}

func joined(sep string, parts ...string) string {
	parts = slices.DeleteFunc(slices.Clone(parts), func(s string) bool { return s == "" || s == unknown || s == none })
	return strings.Join(parts, sep)
}

func intText(n *int) string {
	if n == nil {
		return unknown
	}
	return strconv.Itoa(*n)
}

// rateText returns text such as "Gen4 x16", in GT/s for a speed that matches no generation.
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

// linkTexts returns "" for an unknown rate, and the device's maximum if higher.
func linkTexts(l *topology.Link) (now, most string) {
	if l == nil {
		return "", ""
	}
	now, most = rateText(l.SpeedGTs, l.Width), rateText(l.MaxSpeedGTs, l.MaxWidth)
	// Full width at a lower speed is as slow as a narrow link.
	slower := l.SpeedGTs != nil && l.MaxSpeedGTs != nil && *l.SpeedGTs < *l.MaxSpeedGTs
	narrower := l.Width != nil && l.MaxWidth != nil && *l.Width < *l.MaxWidth
	if now != "" && !slower && !narrower {
		most = ""
	}
	return now, most
}

// linkText returns "Gen1/4 x8/16" below the maximum, or "max Gen4 x16" for an unknown rate.
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
			speed = rateText(l.SpeedGTs, nil) // the speed matches no generation
		}
	}
	width := nowOf(l.Width, l.MaxWidth, "x", strconv.Itoa)
	return orUnknown(strings.TrimSpace(speed + " " + width))
}

// deviceLink takes nil for an unknown function.
func deviceLink(d *topology.PCIDevice) string {
	switch {
	case d == nil:
		return unknown
	case d.Link == nil && d.LinkGBps != nil:
		return gbpsText(*d.LinkGBps)
	}
	return linkText(d.Link)
}

// nowOf returns "now/most", one value if most is not higher, or "" if neither is known.
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

// cpusText is the kernel's list, a stride that the kernel accepts ("0-126:2"), or the start with the number of CPUs.
func cpusText(s topology.CPUSet, letters int) string {
	list := s.String()
	if len(list) <= letters {
		return list
	}
	if strided := stridedText(s); strided != "" && len(strided) <= letters {
		return strided
	}
	// Half of a range would name other CPUs.
	tail := fmt.Sprintf(",… (%d)", s.Len())
	head := list[:max(letters-len(tail)+2, 0)] // the ellipsis has 3 bytes, one letter
	if i := strings.LastIndexByte(head, ','); i > 0 {
		return head[:i] + tail
	}
	return words.Count(s.Len(), "CPU")
}

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

func setText(s *topology.CPUSet, letters int) string {
	switch {
	case s == nil:
		return unknown
	case s.IsEmpty():
		return none
	}
	return cpusText(*s, letters)
}

func pagesText(p topology.HugepagePool) string {
	text := fmt.Sprintf("%d x %s", p.Total, words.Size(p.SizeBytes))
	if p.Free != nil {
		text += fmt.Sprintf(" (%d free)", *p.Free)
	}
	return text
}

// poolsText is none if all are empty, and unknown without pools.
func poolsText(pools []topology.HugepagePool) string {
	if len(pools) == 0 {
		return unknown
	}
	full := lists.Filter(pools, func(p topology.HugepagePool) bool { return p.Total > 0 })
	return cmp.Or(strings.Join(lists.Map(full, pagesText), ", "), none)
}

// distancesText is the range of the SLIT's row for many nodes.
func distancesText(row []int) string {
	switch {
	case len(row) == 0:
		return unknown
	case len(row) <= 8:
		return strings.Trim(fmt.Sprint(row), "[]")
	}
	return fmt.Sprintf("%d to %d", slices.Min(row), slices.Max(row))
}

func orUnknown(s string) string { return cmp.Or(s, unknown) }
