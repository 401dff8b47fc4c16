package texts

import (
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/message"
	"github.com/rackless/rackless/machine/topology"
)

// limitHint is in every such line of pcie_print_link_status (drivers/pci/pci.c).
const limitHint = "available PCIe bandwidth, limited by"

// limitForm allows any prefix before the address. Kernels before 5.7 do not print "PCIe" after the speed.
const limitForm = `(?:^|[\s(])((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): [\d.]+ Gb/s ` + limitHint +
	` ([\d.]+) GT/s(?: PCIe)? x(\d+) link at ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ` +
	`\(capable of [\d.]+ Gb/s with ([\d.]+) GT/s(?: PCIe)? x(\d+) link\)`

var limitLine = lazyregexp.New(limitForm)

// nvidiaFirst matches the first of the three lines in which NVIDIA's driver says that it cannot use a GPU.
var nvidiaFirst = lazyregexp.New(`NVRM: The NVIDIA GPU [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// beginsLog reports whether a line is about a fault, or begins a message about one.
func beginsLog(line string) bool { return reportsFault(line) || nvidiaFirst().MatchString(line) }

func (r *reader) dmesg() {
	var l faultLog
	defer func() { r.h.Kernel.Messages = l.messages() }()
	first, joined := "", 0
	for n, line := range r.lines() {
		switch {
		case nvidiaFirst().MatchString(line):
			first, joined = line, n
			continue
		case first != "" && n <= joined+3 && strings.Contains(line, "NVRM: "):
			_, rest, _ := strings.Cut(line, "NVRM: ")
			if m, ok := message.Kernel(first + " " + rest); ok {
				l.add(m)
				first = ""
				continue
			}
			first += " " + rest
		}
		if m, ok := message.Kernel(line); ok {
			l.add(m)
			continue
		}
		if m := groupAdded().FindStringSubmatch(line); m != nil {
			r.inGroup(m[1]+m[3], count(m[2]+m[4]))
			continue
		}
		m := limitLine().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		of, port := address(m[1]), address(m[4])
		limit, limitOK := linkRate(m[2], m[3])
		best, bestOK := linkRate(m[5], m[6])
		if of == nil || port == nil || !limitOK || !bestOK {
			r.note(n, "a link that is none: %q", line)
			continue
		}
		// A driver that is loaded again prints it again.
		d := r.function(*of)
		d.Link = &topology.Link{MaxSpeedGTs: &best.GTs, MaxWidth: &best.Lanes}
		d.PathLimit = &topology.PathLimit{At: *port, SpeedGTs: limit.GTs, Width: limit.Lanes}
	}
}

func linkRate(speed, lanes string) (topology.Rate, bool) {
	gts, err := strconv.ParseFloat(speed, 64)
	width := count(lanes)
	if err != nil || gts <= 0 || gts > 128 || width == nil || *width < 1 || *width > 32 {
		return topology.Rate{}, false
	}
	return topology.Rate{GTs: gts, Lanes: *width}, true
}
