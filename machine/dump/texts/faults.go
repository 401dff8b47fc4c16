package texts

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/message"
	"github.com/rackless/rackless/machine/topology"
)

// maxFaults bounds a log's messages.
const maxFaults = 1000

// OddLog describes a kernel log without usable lines.
const OddLog = "a kernel log (dmesg) with none of the lines that are read from one: the kernel command line, IOMMU " +
	"groups, links that limit a function, and faults of devices. The first three stand near its beginning: take " +
	"the log " +
	"of the whole boot (journalctl -k -b). rackless explain takes a single line"

// reportsFault reports whether a line is about a fault. A link that comes up counts, as it may go down later; other
// ends of faults are in every log.
func reportsFault(line string) bool {
	m, ok := message.Kernel(line)
	return ok && (!m.Ends || m.Kind == linkDown)
}

// linkDown counts only if the link was up before.
const linkDown = "link-down"

// flaps is how often a link goes down until that is a fault although it is up again.
const flaps = 3

type fault struct {
	topology.KernelMessage
	again int // lines about the same event
}

type faultLog struct {
	all    []fault
	linked map[string]bool // devices that had a link
}

func (l *faultLog) add(m message.Match) {
	if a := address(m.Device); a != nil {
		m.Device = a.String()
	} else if a := address(m.Device + ".0"); a != nil {
		m.Device = a.String() // an Xid names no function
	}
	i := slices.IndexFunc(l.all, func(f fault) bool {
		return f.Kind == m.Kind && f.Device == m.Device && f.Part == m.Part
	})
	switch {
	case m.Ends:
		if m.Kind == linkDown && l.linked == nil {
			l.linked = map[string]bool{}
		}
		if m.Kind == linkDown {
			l.linked[m.Device] = true
		}
		if i >= 0 && (m.Kind != linkDown || l.all[i].Count < flaps) {
			l.all = slices.Delete(l.all, i, i+1)
		}
		return
	case m.Kind == linkDown && !l.linked[m.Device]:
		return // a port without a cable
	case m.Kind == "aer-status":
		l.bits(m)
		return
	case m.Kind == "mlx5-health-info":
		return
	case i < 0 && len(l.all) == maxFaults:
		return
	case i < 0:
		i = len(l.all)
		l.all = append(l.all, fault{KernelMessage: topology.KernelMessage{Kind: m.Kind, Device: m.Device,
			Part: m.Part, Line: clip(m.Text)}})
	}
	if f := &l.all[i]; m.Detail {
		f.again++
	} else {
		if f.Count++; f.Count == 1 {
			f.Line = clip(m.Text)
		}
	}
	if m.Code != "" {
		l.all[i].code(m.Code)
	}
}

// bits adds the bits of a PCI Express error, printed below it.
func (l *faultLog) bits(m message.Match) {
	for i := range slices.Backward(l.all) {
		f := &l.all[i]
		if !strings.HasPrefix(f.Kind, "aer-") || f.Device != m.Device {
			continue
		}
		if len(m.Code) < 8 {
			f.code(m.Code)
			return
		}
		status, _ := strconv.ParseUint(m.Code, 16, 32) // the form has eight digits
		for ; status != 0; status &= status - 1 {
			f.code(strconv.Itoa(bits.TrailingZeros64(status)))
		}
		return
	}
}

const maxCodes = 32

func (f *fault) code(s string) {
	if !slices.Contains(f.Codes, s) && len(f.Codes) < maxCodes {
		f.Codes = append(f.Codes, s)
	}
}

func clip(line string) string { return words.Clip(strings.Join(strings.Fields(line), " "), 160) }

func (l *faultLog) messages() []topology.KernelMessage {
	var out []topology.KernelMessage
	for _, f := range l.all {
		f.Count = max(f.Count, f.again)
		out = append(out, f.KernelMessage)
	}
	return out
}
