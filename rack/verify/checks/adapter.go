package checks

import (
	"context"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

// An Adapter is emulated, as its emulator sees it. Its JSON is the output of rackless nic ls, see docs/json.md.
type Adapter struct {
	Node      string `json:"node"`
	NIC       string `json:"nic"` // network device in the node
	Model     string `json:"model"`
	MAC       string `json:"mac"`
	RateBits  int64  `json:"rate_bits_per_second"`
	Connected bool   `json:"connected"` // connected to the node's machine
	Driver    bool   `json:"driver"`    // set up by a driver
	LinkUp    bool   `json:"link_up"`
	Flaps     bool   `json:"link_flaps"` // down three times within a minute
	LinkDowns uint64 `json:"link_downs"` // since it was created
	Resets    uint64 `json:"resets"`
	Fault     Fault  `json:"fault,omitempty"`
	Crash     string `json:"crash,omitempty"` // panic of rackless, the cause
	// Refused counts the node's claims of other addresses.
	Refused uint64 `json:"refused_addresses,omitzero"`
}

// Fault is a kind of failure.
type Fault string

// Faults of adapters.
const (
	FaultLink     Fault = "link-down"
	FaultCable    Fault = "cable"
	FaultFlap     Fault = "flap"
	FaultCommands Fault = "hung-command"
	FaultFirmware Fault = "fw-fatal"
	FaultAssert   Fault = "fw-assert"
	FaultBus      Fault = "off-bus"
)

// Faults lists all with descriptions.
var Faults = []struct {
	Kind Fault
	Help string
}{
	{FaultLink, "the port of the switch is shut, as by rackless link set --down"},
	{FaultCable, "the cable is pulled: the driver reports \"Cable unplugged\""},
	{FaultFlap, "the link goes down for a second, comes back for a second, and so on"},
	{FaultCommands, "the firmware takes commands and answers none; the driver waits 60 s for each"},
	{FaultFirmware, "the firmware has stopped with a fatal error, which the health buffer says"},
	{FaultAssert, "likewise, but the reset by which the driver recovers it helps"},
	{FaultBus, "the NIC has lost its PCIe link: all reads give ones"},
}

// An AdapterReader reads a lab with emulated adapters.
type AdapterReader interface {
	// Adapters are in the order of nodes, nil if no NIC is emulated.
	Adapters(ctx context.Context) ([]Adapter, error)
}

// HasHostCards reports whether nodes may have cards of a host.
func HasHostCards(r Reader) bool {
	h, ok := r.(interface{ HasHostCards() bool })
	return ok && h.HasHostCards()
}

type adapterCheck struct {
	id, title, want string
	holds           func(a *Adapter) bool // according to the emulation
	have            string
	where           string // evidence in the node
	consequence     string
	fix             string // for an adapter that is not emulated
	lost            bool   // its kernel would wait for an answer
}

// adapterChecks are in order of dependency, and an adapter fails only the first: a card that is gone has no cable.
var adapterChecks = []adapterCheck{
	{id: IDAdapter, title: "the node has its NICs", want: "connected",
		holds: func(a *Adapter) bool { return a.Connected },
		have:  "the node has lost it, as the lab's daemon ended or the connection to it", where: "lspci",
		fix:         "give the node its card again: rackless down and up",
		consequence: "the node has no network and no RDMA until it is started again", lost: true},
	{id: IDAdapterBus, title: "NICs answer on PCIe", want: "answers",
		holds:       func(a *Adapter) bool { return a.Fault != FaultBus },
		have:        "all reads give ones: it has lost its PCIe link",
		where:       "configuration space; dmesg (\"PCI slot is unavailable\")",
		fix:         "look at lspci -vv (LnkSta) and AER on the host; seat the card again",
		consequence: "the driver gives the NIC up; its netdev and its RDMA device are gone or dead", lost: true},
	{id: IDAdapterFirmware, title: "the firmware of NICs runs", want: "health counter runs, no syndrome",
		holds:       func(a *Adapter) bool { return a.Fault != FaultFirmware && a.Fault != FaultAssert },
		have:        "fatal error: the health counter stands still, syndrome 0x1 (firmware internal error)",
		where:       "dmesg (\"Fatal error\", \"print_health_info\")",
		fix:         "keep the report for the vendor, bind the driver again, update the firmware",
		consequence: "the driver stops the NIC and tries to recover it; queue pairs and connections are lost",
		lost:        true},
	{id: IDAdapterCommands, title: "the firmware of NICs answers commands", want: "answers",
		holds: func(a *Adapter) bool { return a.Fault != FaultCommands },
		have:  "takes commands, and answers none",
		where: "dmesg (\"wait_func: ... timeout\", after 60 s)",
		fix:   "bind the driver again, or reset the card; update the firmware",
		consequence: "traffic of existing queues goes on, but whatever sets something up or reads a counter waits " +
			"for a minute: ibv_devinfo, perftest, ethtool -S", lost: true},
	{id: IDAdapterCable, title: "cables of NICs are plugged in", want: "plugged in",
		holds: func(a *Adapter) bool { return a.Fault != FaultCable },
		have:  "unplugged", where: "dmesg (\"Cable unplugged\")",
		fix:         "plug the cable in; ethtool -m shows the module",
		consequence: "the port is down: no frame leaves or arrives"},
	{id: IDAdapterLink, title: "links of NICs are up", want: "up",
		holds: func(a *Adapter) bool { return a.Fault != FaultLink },
		have:  "down at the other end, with the cable in place", where: "/sys/class/net/NIC/carrier",
		fix:         "look at the port of the switch, and at the speed and FEC of both ends",
		consequence: "the port is down: no frame leaves or arrives"},
	{id: IDAdapterFlaps, title: "links of NICs stay up", want: "fewer than 3 times down within a minute",
		holds: func(a *Adapter) bool { return a.Fault != FaultFlap && !a.Flaps },
		have:  "goes down and up again", where: "dmesg (\"Link down\")",
		fix: "exchange the cable, then the transceiver; compare the error counters of both ends",
		consequence: "transfers stall and are repeated, connections break after some seconds; no figure of this port " +
			"means anything"},
}

// adapterFindings returns one finding for each check that all adapters pass, and one for each failure, noticed by the
// node or not. The evidence comes from the node, and the cause from the emulation.
func adapterFindings(l *lab.Lab, all []adapterState) []finding.Finding {
	var out []finding.Finding
	failed := make([]bool, len(all))
	for _, c := range adapterChecks {
		good := true
		for i := range all {
			s := &all[i]
			said := s.said(&c)
			if failed[i] || said == "" && (s.emulated == nil || c.holds(s.emulated)) {
				continue
			}
			good, failed[i] = false, true
			out = append(out, c.failed(l, s, said))
		}
		if good {
			out = append(out, finding.Finding{ID: c.id, Subject: "lab " + l.Name, Title: c.title, Status: finding.OK,
				Have: words.Count(len(all), "NIC"), Want: c.want, Evidence: "in the nodes: " + c.where})
		}
	}
	return out
}

func (c *adapterCheck) failed(l *lab.Lab, s *adapterState, said string) finding.Finding {
	f := finding.Finding{ID: c.id, Subject: s.node + " " + s.nic, Title: c.title, Status: finding.Failed, Have: c.have,
		Want: c.want, Consequence: c.consequence, Evidence: "in the node: " + said, Fix: c.fix}
	where := strings.ReplaceAll(c.where, "NIC", s.nic)
	a := s.emulated
	switch {
	case a == nil:
		return f
	case c.holds(a):
		f.Fix = "rackless nic reset " + a.name(l) + " resets it and binds the driver again"
	default:
		f.Fix = a.fix(l)
	}
	if said == "" {
		f.Evidence = "in the node: nothing in " + where + " yet"
		if s.seen == nil {
			f.Evidence = "in the node: " + where
		}
	}
	f.Evidence += "; cause, by rackless nic ls: " + a.text()
	if a.Crash != "" {
		f.Have += "; rackless, which emulates it, has failed: " + a.Crash
	}
	return f
}

func (a *Adapter) text() string {
	link, fault := "link down", "no fault"
	if a.LinkUp {
		link = "link up"
	}
	if a.Fault != "" {
		fault = "fault " + string(a.Fault)
	}
	return fmt.Sprintf("%s, %s, %s", fault, link, words.Count(int(a.LinkDowns), "link down"))
}

func (a *Adapter) fix(l *lab.Lab) string {
	switch {
	case !a.Connected:
		return "rackless up with the lab's file starts the node again"
	case a.Fault == "":
		return "rackless link show " + l.Name + " shows the port; find out who takes the link down"
	}
	which := "rackless nic fault " + a.name(l) + " --clear"
	if a.Crash != "" {
		which += "; please report the stack in rackless logs --daemon " + l.Name
	}
	return which
}

func (a *Adapter) name(l *lab.Lab) string {
	name := l.Name + "/" + a.Node
	if a.NIC != "eth0" {
		name += " --nic " + a.NIC
	}
	return name
}

// lostAdapters returns nodes whose kernel cannot be asked about an adapter, with the reason.
func lostAdapters(known []finding.Finding) map[string]finding.Finding {
	lost := make(map[string]finding.Finding)
	for _, f := range known {
		for _, c := range adapterChecks {
			if node, _, ok := strings.Cut(f.Subject, " "); ok && c.lost && c.id == f.ID && f.Status == finding.Failed {
				lost[node] = f
			}
		}
	}
	return lost
}

// explained replaces a link's fix by that of the adapter's fault.
func explained(out, adapters []finding.Finding) {
	for i := range out {
		f := &out[i]
		if f.Status == finding.OK || f.ID != IDLink && f.ID != IDPort {
			continue
		}
		node, dev, _ := strings.Cut(f.Subject, " ")
		for _, a := range adapters {
			owner, nic, _ := strings.Cut(a.Subject, " ")
			if a.Status == finding.Failed && owner == node && (f.ID == IDPort || nic == dev) {
				f.Fix = a.Fix
			}
		}
	}
}

// Broken returns an error if figures of a NIC would be from a failed adapter, or nil.
func Broken(l *lab.Lab, all []Adapter, node, nic string) error {
	for _, f := range adapterFindings(l, states(all)) {
		if f.Status == finding.Failed && f.Subject == node+" "+nic {
			return fmt.Errorf("%s: the NIC %s has failed (%s): %s; %s", node, nic, f.ID, f.Have, f.Fix)
		}
	}
	return nil
}
