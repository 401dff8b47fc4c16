package checks

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/lab"
)

// The state of mlx5 functions is read without access to the adapter, because a request to one that does not answer
// blocks for a minute: from configuration space, the network stack's state, and the driver's last messages.

// adapterScript prints "pci ADDRESS VENDOR DRIVER" for each function, "net ADDRESS DEVICE FLAGS CARRIER" for its
// network devices, "uptime SECONDS", and the driver's messages. The vendor is read from the function, because the
// kernel's file does not change when a function has left the bus.
//
//go:embed adapter.sh
var adapterScript string

type nodeAdapter struct {
	pci, nic, driver string
	ones             bool // configuration space reads all ones
	carrier          *bool
	now              float64

	bus, fatal, syndrome, gaveUp string // since the driver last bound the adapter
	timeout, unplugged           string
	timeoutAt                    float64
	downs                        []float64 // link down; at most flapCount
}

// Age up to which a past event counts.
const (
	timeoutCounts = 5 * 60 // s
	flapWindow    = 60     // s
	flapCount     = 3
)

// The output is not trusted.
const (
	maxFunctions = 64
	maxMessage   = 160 // characters shown of a message
)

func parseAdapters(out string) []nodeAdapter {
	var all []nodeAdapter
	of := func(pci string) *nodeAdapter {
		i := slices.IndexFunc(all, func(a nodeAdapter) bool { return a.pci == pci })
		if i < 0 {
			return &nodeAdapter{}
		}
		return &all[i]
	}
	now := 0.0
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 4 && f[0] == "pci" && len(all) < maxFunctions:
			all = append(all, nodeAdapter{pci: f[1], ones: f[2] == "ffff", driver: f[3]})
		case len(f) == 5 && f[0] == "net":
			a := of(f[1])
			a.nic = f[2]
			flags, err := strconv.ParseUint(f[3], 0, 32)
			if err == nil && flags&1 != 0 && (f[4] == "0" || f[4] == "1") {
				a.carrier = new(f[4] == "1")
			}
		case len(f) == 2 && f[0] == "uptime":
			now, _ = strconv.ParseFloat(f[1], 64)
			if all == nil {
				all = []nodeAdapter{} // not nil: it was read
			}
		default:
			at, text, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "["), "] mlx5_core ")
			pci, text, of2 := strings.Cut(text, " ")
			if ok && of2 {
				seconds, _ := strconv.ParseFloat(strings.TrimSpace(at), 64)
				of(strings.TrimSuffix(pci, ":")).message(seconds, text)
			}
		}
	}
	for i := range all {
		all[i].now = now
	}
	return all
}

// message knows those of mlx5_core's health.c, cmd.c, events.c and main.c.
func (a *nodeAdapter) message(at float64, text string) {
	has := func(part string) bool { return strings.Contains(text, part) }
	text = string([]rune(text)[:min(len([]rune(text)), maxMessage)])
	switch {
	case has("firmware version:"), has("health recovery succeeded"):
		a.bus, a.fatal, a.syndrome, a.gaveUp, a.timeout, a.unplugged = "", "", "", "", "", ""
	case has("PCI slot is unavailable"):
		a.bus = text
	case has("Fatal error ") && has(" detected"), has("device's health compromised"):
		a.fatal = text
	case has(": synd 0x"):
		_, a.syndrome, _ = strings.Cut(text, ": synd ")
	case has("health recovery failed"), has("health recovery flow aborted"):
		a.gaveUp = text
	case has("imeout. Will cause a leak"):
		a.timeout, a.timeoutAt = text, at
	case has("Cable unplugged"):
		a.unplugged = text
	case has("Cable plugged"):
		a.unplugged = ""
	case strings.HasSuffix(text, "Link down"):
		if a.downs = append(a.downs, at); len(a.downs) > flapCount {
			a.downs = a.downs[1:]
		}
	}
}

// says returns evidence, or "". With past it also counts faults that may be over.
func (a *nodeAdapter) says(id string, past bool) string {
	switch id {
	case IDAdapter:
		if a.pci == "" {
			return "lspci shows no function of it"
		}
	case IDAdapterBus:
		switch {
		case a.ones:
			return "the configuration space of " + a.pci + " reads ones"
		case a.bus != "":
			return "dmesg: " + a.bus
		}
	case IDAdapterFirmware:
		if a.fatal == "" {
			return ""
		}
		text := "dmesg: " + a.fatal
		for _, more := range []string{a.syndrome, a.gaveUp} {
			if more != "" {
				text += "; " + more
			}
		}
		return text
	case IDAdapterCommands:
		if past && a.timeout != "" && a.now-a.timeoutAt < timeoutCounts {
			return fmt.Sprintf("dmesg, %.0f s ago: %s", a.now-a.timeoutAt, a.timeout)
		}
	case IDAdapterCable:
		if a.unplugged != "" {
			return "dmesg: " + a.unplugged
		}
	case IDAdapterLink:
		if a.carrier != nil && !*a.carrier {
			return "/sys/class/net/" + a.nic + "/carrier: 0"
		}
	case IDAdapterFlaps:
		if past && len(a.downs) == flapCount && a.now-a.downs[0] < flapWindow {
			return fmt.Sprintf("dmesg: Link down %d times within %.0f s", flapCount, a.now-a.downs[0])
		}
	}
	return ""
}

// An adapterState has the views of emulation and node, or nil.
type adapterState struct {
	node, nic string
	emulated  *Adapter
	seen      *nodeAdapter
}

// said lets the emulation, if available, decide whether a past fault is over.
func (s *adapterState) said(c *adapterCheck) string {
	if s.seen == nil || c.id == IDAdapterLink && s.flaps() { // a flapping link is down at times
		return ""
	}
	return s.seen.says(c.id, s.emulated == nil || !c.holds(s.emulated))
}

func (s *adapterState) flaps() bool {
	if a := s.emulated; a != nil {
		return a.Fault == FaultFlap || a.Flaps
	}
	return s.seen.says(IDAdapterFlaps, true) != ""
}

// seenAdapters joins the states from the emulation and the nodes. Of a node with host cards, only NICs of the lab
// count.
func seenAdapters(ctx context.Context, l *lab.Lab, r Reader, emulated []Adapter) []adapterState {
	all := states(emulated)
	perNode, cards := make([][]nodeAdapter, len(l.Nodes)), HasHostCards(r)
	parallel(len(l.Nodes), func(i int) {
		n := l.Nodes[i]
		if !n.ConnectX() && !cards {
			return
		}
		for until := time.Now().Add(settleLimit); ; {
			out, err := r.Exec(ctx, n.Name, []string{"sh", "-c", adapterScript})
			if err != nil || out.ExitCode != 0 {
				return // other checks report that
			}
			perNode[i] = parseAdapters(string(out.Stdout))
			// The node may be about to notice an event, or the end of a recovery.
			if !disagree(join(n, all, perNode[i])) || time.Now().After(until) || wait.For(ctx, settlePause) != nil {
				return
			}
		}
	})
	var out []adapterState
	for i, n := range l.Nodes {
		out = append(out, join(n, all, perNode[i])...)
	}
	return out
}

func states(emulated []Adapter) []adapterState {
	var all []adapterState
	for i := range emulated {
		all = append(all, adapterState{node: emulated[i].Node, nic: emulated[i].NIC, emulated: &emulated[i]})
	}
	return all
}

// join matches functions by their network devices, or else by the order of the NICs.
func join(n lab.Node, emulated []adapterState, seen []nodeAdapter) []adapterState {
	own := lists.Filter(emulated, func(s adapterState) bool { return s.node == n.Name })
	if len(own) == 0 {
		for i := range seen {
			a := &seen[i]
			lost := a.nic == "" && (a.ones || a.bus != "" || a.fatal != "")
			if lost || slices.ContainsFunc(n.NICs, func(nic lab.NIC) bool { return nic.Name == a.nic }) {
				own = append(own, adapterState{node: n.Name, nic: cmp.Or(a.nic, a.pci), seen: a})
			}
		}
		return own
	}
	if seen == nil {
		return own
	}
	for k := range own {
		i := slices.IndexFunc(seen, func(a nodeAdapter) bool { return a.nic == own[k].nic })
		if i < 0 && k < len(seen) && seen[k].nic == "" {
			i = k
		}
		if own[k].seen = new(nodeAdapter); i >= 0 {
			own[k].seen = &seen[i]
		}
	}
	return own
}

func disagree(all []adapterState) bool {
	return slices.ContainsFunc(all, func(s adapterState) bool {
		return s.emulated != nil && slices.ContainsFunc(adapterChecks, func(c adapterCheck) bool {
			return c.holds(s.emulated) && s.said(&c) != ""
		}) && !slices.ContainsFunc(adapterChecks, func(c adapterCheck) bool { return !c.holds(s.emulated) })
	})
}
