//go:build linux

package tables

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack/vram"
	"github.com/rackless/rackless/report/show"
)

// VRAM returns a row for each GPU and NIC, and reasons of failures. width is in columns; 0 means no limit.
func VRAM(r *vram.Report, width int) string {
	g := show.NewGrid("node", "gpu", "nic", "path", "rdma", "written>", "read>", "received>", "reason")
	counted := false
	for _, p := range r.Pairs {
		verdict, path := "done", p.Path.String()
		if p.Status != finding.OK {
			verdict = "FAILED"
		}
		if p.Path == topology.PathUnknown {
			path = "?"
		}
		count := func(n *uint64) string {
			if n == nil {
				return "-"
			}
			counted = true
			return words.Bytes(*n)
		}
		nic := p.Device
		if p.NIC != "" {
			nic = p.NIC + ", " + p.Device
		}
		g.Add(p.Node, fmt.Sprintf("%d, %s", p.GPU, p.Address), nic, path, verdict, count(p.Written), count(p.Read),
			words.Bytes(p.Received), vramReason(p))
	}
	done := lists.Count(r.Pairs, func(p vram.Pair) bool { return p.Status == finding.OK })
	title := fmt.Sprintf("GPUDirect RDMA in lab %s: done for %d of %s", r.Lab, done, words.Count(len(r.Pairs), "pair"))
	if r.Emulated {
		title += ", emulated"
	}
	note := "Received: bytes of the RDMA device by the counters of the node's driver, with headers."
	if counted {
		note = "Written, read: bytes that the NIC wrote to and read from the memory of this GPU, as the\n" +
			"emulation counts them. " + note
	}
	return title + "\n\n" + g.Fit(width).String() + "\n" + note + "\n"
}

// vramReason is the step, the error, and the kernel's messages.
func vramReason(p vram.Pair) string {
	if p.Error == "" {
		return ""
	}
	text := p.Step + ": " + p.Error
	if p.Errno != "" && !strings.Contains(p.Error, p.Errno) {
		text += " (" + p.Errno + ")"
	}
	switch {
	case len(p.Kernel) > 0:
		text += "; kernel: " + strings.Join(p.Kernel, "; ")
	case p.Step != "count":
		text += "; the kernel logged nothing"
	}
	return text
}
